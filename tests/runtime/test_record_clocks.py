"""A trace's times: an interruption between the readings of the two clocks does not shift them."""

from __future__ import annotations

import itertools
import time

import pytest

from totempole.runtime.record import CLOCKS_READ_MAX, wall_offset_us

OFFSET_NS = 1_700_000_000_000_000_000


@pytest.mark.parametrize("interrupted", [0, 1, 7, CLOCKS_READ_MAX - 1])
def test_the_quickest_reading_counts(interrupted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first so many readings are interrupted for 0.2 s."""
    now = itertools.count(0, 1_000)
    late_ns = 0
    readings = 0

    def wall_ns() -> int:
        nonlocal late_ns, readings
        found = next(now) + late_ns + OFFSET_NS
        readings += 1
        if readings <= interrupted:
            late_ns += 200_000_000
        return found

    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now) + late_ns)
    monkeypatch.setattr(time, "time_ns", wall_ns)
    assert abs(wall_offset_us() - OFFSET_NS // 1000) <= 2
    assert readings == interrupted + 1


def test_a_machine_that_always_interrupts_is_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count(0, 1_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now))
    monkeypatch.setattr(time, "time_ns", lambda: next(now) + OFFSET_NS)
    assert abs(wall_offset_us() - OFFSET_NS // 1000) <= 1_000
