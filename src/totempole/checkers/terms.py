"""What the caller knows about a run that its rows cannot say."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from totempole.types import ProcessorId


@dataclass(frozen=True, slots=True)
class Liveness:
    """When the faults stopped, who can hear whom since, and how long the ring may take to settle."""

    at_us: int
    groups: tuple[Collection[ProcessorId], ...]
    bound_us: int


@dataclass(frozen=True, slots=True)
class Calm:
    """A stretch of a run in which nothing goes wrong, and by when all who are up have a ring in it."""

    from_us: int
    settled_us: int
    to_us: int


@dataclass(frozen=True, slots=True)
class Alarmed:
    """A fault of one network that began at an instant and stays: by when it is told of, and in which words at
    last. Networks are counted from 1, as in rows."""

    network: int
    from_us: int
    told_us: int
    why: str


@dataclass(frozen=True, slots=True)
class Terms:
    """How a trace is to be read."""

    complete: bool = False
    """The run ended quiescent: what has not happened by now never will."""
    same_clock: bool = True
    """`at_us` is one clock for all nodes, as it is in the simulator."""
    expectation: Liveness | None = None
    calm: tuple[Calm, ...] = ()
    """Stretches without any fault. The simulator knows them; of nodes nobody does."""
    shared: tuple[Calm, ...] = ()
    """Stretches in which nothing fails but networks, and every two processors always share one that works."""
    lossless: tuple[Calm, ...] = ()
    """Stretches in which no network and no processor loses anything, nor is slow."""
    alarmed: tuple[Alarmed, ...] = ()
