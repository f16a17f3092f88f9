"""What the papers state in words and numbers, and where among our results its counterpart is.

Curves of Totem and Totem CACM that were only drawn are lost with the figures; those of RRP are in
`sim.paper.redundant`. What was used to calibrate the machines is marked: that ours meets it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from totempole.sim.paper.redundant import ACTIVE, KILOBYTES_PER_S, NONE, PASSIVE
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import (
    AGREED,
    ALL,
    EVEN,
    LOADED,
    LOSSES,
    ONE,
    POISSON,
    SAFE,
    SATURATED,
)

Kind = Literal["about", "under", "over"]

MS = 0.001
"""From microseconds."""
TOKEN_LOSS_US = 100_000.0


@dataclass(frozen=True, slots=True)
class Ours:
    """A number of our results."""

    study: str
    series: str
    x: float
    measure: str
    statistic: str = "mean"
    scale: float = 1.0
    less: float = 0.0

    def found_in(self, results: Results) -> float | None:
        value = results.statistic(self.study, self.series, self.x, self.measure, self.statistic)
        return None if value is None else (value - self.less) * self.scale


@dataclass(frozen=True, slots=True)
class Published:
    figure: str
    """The figure that it is marked in; a name where the paper states it without one."""
    section: str
    what: str
    kind: Kind
    value: float
    unit: str
    ours: Ours
    per: Ours | None = None
    """Stated as a ratio: our number is divided by this one."""
    used: bool = False
    """In the calibration."""
    at: float | None = None
    """The x at which the figure marks it."""

    @property
    def stated(self) -> str:
        return f"{self.kind} {self.value:g} {self.unit}".rstrip()

    def found_in(self, results: Results) -> float | None:
        value = self.ours.found_in(results)
        if value is None or self.per is None:
            return value
        divisor = self.per.found_in(results)
        return value / divisor if divisor else None


def _rate(size: int, series: str = ALL) -> Ours:
    return Ours("throughput", series, size, "messages_per_s")


def _utilisation(size: int) -> Ours:
    return Ours("throughput", ALL, size, "messages_per_s", scale=100 * size * 8 / 10_000_000)


def _delay(series: str, load: int, measure: str = "to_all_us") -> Ours:
    return Ours("load", series, load, measure, scale=MS)


def _gone(series: str, retransmission: bool) -> Ours:
    less = 0.0 if retransmission else TOKEN_LOSS_US
    return Ours("token-loss", series, float(retransmission), "gone_us", scale=MS, less=less)


def _tail(series: str) -> Ours:
    return Ours("density", series, LOSSES[0], "each_us", "p99", scale=MS)


def _replicated(processors: int, style: str, size: int) -> Ours:
    return Ours(f"replication-{processors}", style, size, "kb_per_s")


def _rates(figure: str, processors: int, used: frozenset[tuple[str, int]]) -> Iterator[Published]:
    """What figures 8 and 9 of RRP show, at a few of their sizes."""
    for size in (100, 1_000, 1_400):
        for style in (NONE, ACTIVE, PASSIVE):
            theirs = getattr(KILOBYTES_PER_S[processors][size], style)
            what = f"{style}, {size} bytes, {processors} processors"
            ours = _replicated(processors, style, size)
            is_used = (style, size) in used
            yield Published(figure, _8, what, "about", theirs, "KB/s", ours, used=is_used, at=size)
        for style in (ACTIVE, PASSIVE):
            theirs = round(KILOBYTES_PER_S[processors][size].ratio(style), 2)
            what = f"{style} to none, {size} bytes, {processors} processors"
            per = _replicated(processors, NONE, size)
            yield Published(figure, _8, what, "about", theirs, "", _replicated(processors, style, size), per)


def _messages(figure: str, processors: int) -> Iterator[Published]:
    """What figures 6 and 7 show: the same in messages."""
    for style in (NONE, ACTIVE, PASSIVE):
        theirs = getattr(KILOBYTES_PER_S[processors][1_000], style)
        what = f"{style}, 1000 bytes, {processors} processors"
        ours = Ours(f"replication-{processors}", style, 1_000, "messages_per_s")
        yield Published(figure, _8, what, "about", theirs, _PER_S, ours, at=1_000)


_4_4 = "Totem §4.4"
_8 = "RRP §8"
_003 = "Totem CACM Performance"
_PER_S = "messages/s"

PUBLISHED = (
    Published(
        "4.18",
        _4_4,
        "ordered, 1024 bytes, all five send",
        "about",
        810,
        _PER_S,
        _rate(1_024),
        used=True,
        at=1_024,
    ),
    Published("4.18", _4_4, "ordered, 600 bytes", "over", 900, _PER_S, _rate(600), at=600),
    Published("4.18", _4_4, "ordered, 4 bytes", "about", 1_130, _PER_S, _rate(4), used=True, at=4),
    Published(
        "4.18",
        _4_4,
        "a single sender: similar to all five",
        "about",
        1,
        "",
        _rate(1_024, ONE),
        per=_rate(1_024),
    ),
    Published(
        "4.19",
        _4_4,
        "useful utilisation, large messages (1024 bytes)",
        "about",
        70,
        "%",
        _utilisation(1_024),
        at=1_024,
    ),
    Published(
        "4.19", _4_4, "the same, the largest of one frame (1350 bytes)", "about", 70, "%", _utilisation(1_350)
    ),
    Published(
        "4.20",
        _4_4,
        "agreed by all, 400 messages/s",
        "under",
        10,
        "ms",
        _delay(AGREED, 400),
        used=True,
        at=400,
    ),
    Published("4.20", _4_4, "agreed by all, 625 messages/s", "about", 13, "ms", _delay(AGREED, 625), at=625),
    Published(
        "4.20",
        _4_4,
        "agreed, in rotations, 400 messages/s: slightly more than half",
        "about",
        0.5,
        "",
        _delay(AGREED, 400),
        per=_delay(AGREED, 400, "rotation_us"),
    ),
    Published(
        "4.20",
        _4_4,
        "safe, in rotations, 400 messages/s",
        "about",
        2,
        "",
        _delay(SAFE, 400),
        per=_delay(SAFE, 400, "rotation_us"),
    ),
    Published(
        "token-loss",
        _4_4,
        "to re-form a ring after the timeout, all send",
        "about",
        40,
        "ms",
        _gone(SATURATED, False),
        at=0,
    ),
    Published("token-loss", _4_4, "the same at 400 messages/s", "about", 40, "ms", _gone(LOADED, False)),
    Published(
        "token-loss",
        _4_4,
        "to go on after a retransmission, all send",
        "about",
        16,
        "ms",
        _gone(SATURATED, True),
        at=1,
    ),
    Published("token-loss", _4_4, "the same at 400 messages/s", "about", 16, "ms", _gone(LOADED, True)),
    Published(
        "7",
        _003,
        "99th percentile, deterministic to Poisson arrivals, low loss",
        "under",
        1,
        "",
        _tail(EVEN),
        per=_tail(POISSON),
    ),
    Published(
        "crash",
        _003,
        "to detect a crash, at most",
        "under",
        50,
        "ms",
        Ours("crash", "crash", 0, "detection_us", "most", MS),
        used=True,
        at=0,
    ),
    Published(
        "crash",
        _003,
        "to recover after that, typically",
        "under",
        20,
        "ms",
        Ours("crash", "crash", 0, "recovery_us", "p50", MS),
        used=True,
        at=1,
    ),
    *_messages("rrp-6", 4),
    *_messages("rrp-7", 6),
    *_rates("rrp-8", 4, frozenset({(PASSIVE, 100), (PASSIVE, 1_400), (ACTIVE, 1_400)})),
    *_rates("rrp-9", 6, frozenset({(PASSIVE, 1_400)})),
)


def stated_in(figure: str) -> list[Published]:
    return [each for each in PUBLISHED if each.figure == figure]
