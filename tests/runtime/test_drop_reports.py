"""The line about dropped packets: at once for a new reason, and then more and more seldom."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import pairwise

import pytest

from totempole.runtime.reports import Reports
from totempole.structured_log import fields_of, name_of

S = 1_000_000
TICK = S // 5


class Dropping:
    """A node that drops packets, and looks after it five times a second."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.reports = Reports(logging.getLogger("totempole.test"), 1, True)
        self.dropped: Counter[str] = Counter()
        self.now_us = 0

    def drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def tick(self) -> bool:
        """Whether a line is written."""
        self._caplog.clear()
        self.reports.drops(self.dropped, self.dropped.total(), "10.0.0.9", self.now_us)
        self.now_us += TICK
        return any(name_of(record) == "packets dropped" for record in self._caplog.records)

    def lines(self, seconds: int, every_us: int, reason: str) -> list[float]:
        """When they are written, in seconds, while packets are dropped so often."""
        start_us, next_us = self.now_us, self.now_us
        written = []
        while self.now_us < start_us + seconds * S:
            if self.now_us >= next_us:
                self.drop(reason)
                next_us += every_us
            at_us = self.now_us - start_us
            if self.tick():
                written.append(at_us / S)
        return written


@pytest.fixture
def node(caplog: pytest.LogCaptureFixture) -> Dropping:
    caplog.set_level(logging.INFO)
    return Dropping(caplog)


def test_a_wrong_key_is_told_more_and_more_seldom(node: Dropping) -> None:
    """It was told with every packet of a node that is alone, about one a second, for ever."""
    written = node.lines(300, 1_100_000, "seal")
    gaps = [later - at for at, later in pairwise(written)]
    late = [gap - due for gap, due in zip(gaps, (1, 2, 4, 8, 16, 32, 60, 60, 60), strict=True)]
    assert all(-0.001 < each < 1.3 for each in late), written


def test_every_packet_is_counted(node: Dropping, caplog: pytest.LogCaptureFixture) -> None:
    node.lines(10, TICK, "seal")
    for _ in range(100):
        if node.tick():
            break
    (line,) = [record for record in caplog.records if name_of(record) == "packets dropped"]
    assert fields_of(line)["reasons"] == {"seal": 50}


def test_a_new_reason_is_told_at_once(node: Dropping) -> None:
    node.lines(100, S, "seal")
    node.drop("cluster")
    assert node.tick()
    node.drop("seal")
    assert not node.tick()


def test_after_a_long_silence_it_is_told_at_once_again(node: Dropping) -> None:
    node.lines(20, S, "seal")
    node.now_us += 300 * S
    assert node.lines(4, S, "seal") == [0, 1, 3]


def test_a_new_life_begins_anew(node: Dropping) -> None:
    node.lines(100, S, "seal")
    node.dropped.clear()
    node.reports.forget_drops()
    assert node.lines(4, S, "seal") == [0, 1, 3]
