"""The experiments as tables: a row for each point of a figure and each seed, with all that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from totempole.sim.paper.machines import MS, S
from totempole.sim.paper.redundant import ACTIVE, KILOBYTES_PER_S, NONE, PASSIVE

SIZES = (4, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_024, 1_150, 1_250, 1_350)
"""Bytes; the largest is what still fits an Ethernet frame with all headers."""
LOADS = (50, 100, 200, 300, 400, 500, 625, 700, 750)
"""Messages a second; at 800 the five machines are at their limit."""
LOSSES = (0.00001, 0.001, 0.01, 0.1)
"""The first is what Totem CACM calls typical of a LAN at most."""

ALL, ONE = "all send", "one sends"
AGREED, SAFE = "agreed", "safe"
SATURATED, LOADED = "all send all they can", "400 messages/s"
POISSON, EVEN = "Poisson", "deterministic"

STYLES = (NONE, ACTIVE, PASSIVE)

OLD_MACHINE, NEW_MACHINE = "sun-4-ipc", "sparcstation-20"
FOUR_MACHINES, SIX_MACHINES = "pentium-ii", "pentium-iii"


@dataclass(frozen=True, slots=True)
class Point:
    """One run of one experiment (totempole.sim.paper.experiments)."""

    study: str
    series: str
    x: float
    seed: int
    experiment: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bins:
    """How the samples of a measure are counted for a density. The last bin's upper end is left out."""

    measure: str
    high: float
    count: int
    low: float = 0.0

    @property
    def width(self) -> float:
        return (self.high - self.low) / self.count


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run."""

    repeats: int = 3
    """Seeds for each point."""
    quick: bool = False
    """Few points, short runs."""

    @property
    def seeds(self) -> range:
        return range(1, self.repeats + 1)


@dataclass(frozen=True, slots=True)
class Study:
    name: str
    points: Callable[[Scale], Iterator[Point]]
    bins: Sequence[Bins] = field(default=())


def _throughput(scale: Scale) -> Iterator[Point]:
    sizes = (4, 600, 1_024, 1_350) if scale.quick else SIZES
    # Nothing is drawn by lot but who starts when: one seed tells all.
    for series in (ALL, ONE):
        for size in sizes:
            parameters = {
                "machine": OLD_MACHINE,
                "size": size,
                "one_sender": series == ONE,
                "duration_us": (1 if scale.quick else 4) * S,
            }
            yield Point("throughput", series, size, 1, "throughput", parameters)


def _load(scale: Scale) -> Iterator[Point]:
    for series in (AGREED, SAFE):
        for rate_per_s in (100, 400, 625) if scale.quick else LOADS:
            parameters = {
                "machine": OLD_MACHINE,
                "rate_per_s": rate_per_s,
                "safe": series == SAFE,
                "size": 1_000,
                "duration_us": (1 if scale.quick else 8) * S,
                "measures": ["to_all_us", "rotation_us"],
            }
            for seed in scale.seeds:
                yield Point("load", series, rate_per_s, seed, "latency", parameters)


def _token_loss(scale: Scale) -> Iterator[Point]:
    for series, rate_per_s in ((SATURATED, None), (LOADED, 400)):
        for retransmission in (False, True):
            parameters = {
                "machine": OLD_MACHINE,
                "retransmission": retransmission,
                "rate_per_s": rate_per_s,
                "losses": 4 if scale.quick else 20,
            }
            for seed in scale.seeds:
                yield Point("token-loss", series, float(retransmission), seed, "token loss", parameters)


def _density(scale: Scale) -> Iterator[Point]:
    for series in (POISSON, EVEN):
        for loss in (LOSSES[0], LOSSES[2]) if scale.quick else LOSSES:
            parameters = {
                "machine": NEW_MACHINE,
                "rate_per_s": 1_000,
                "poisson": series == POISSON,
                "size": 1_000,
                "loss": loss,
                "duration_us": (1 if scale.quick else 6) * S,
                "measures": ["each_us"],
            }
            for seed in scale.seeds:
                yield Point("density", series, loss, seed, "latency", parameters)


def _crash(scale: Scale) -> Iterator[Point]:
    parameters = {"machine": NEW_MACHINE, "count": 3 if scale.quick else 10}
    for seed in scale.seeds:
        yield Point("crash", "crash", 0, seed, "crash", parameters)


def _replication(study: str, machine: str, processors: int) -> Callable[[Scale], Iterator[Point]]:
    def points(scale: Scale) -> Iterator[Point]:
        sizes = (100, 1_000, 1_400) if scale.quick else tuple(KILOBYTES_PER_S[processors])
        for series in STYLES:
            for size in sizes:
                parameters = {
                    "machine": machine,
                    "size": size,
                    "style": series,
                    "duration_us": (1 if scale.quick else 2) * S,
                }
                # As with one network, nothing is drawn by lot but who starts when.
                yield Point(study, series, size, 1, "replication", parameters)

    return points


THROUGHPUT = Study("throughput", _throughput)
LOAD = Study("load", _load)
TOKEN_LOSS = Study("token-loss", _token_loss, [Bins("gone_us", 160 * MS, 160)])
DENSITY = Study("density", _density, [Bins("each_us", 24 * MS, 48)])
CRASH = Study("crash", _crash, [Bins("detection_us", 60 * MS, 60), Bins("recovery_us", 60 * MS, 60)])
REPLICATION_4 = Study("replication-4", _replication("replication-4", FOUR_MACHINES, 4))
REPLICATION_6 = Study("replication-6", _replication("replication-6", SIX_MACHINES, 6))
