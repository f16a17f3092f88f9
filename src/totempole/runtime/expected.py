"""Who is expected in the ring, who is missing, and what the log says of it.

Nothing here changes what the ring does: a ring goes on with whoever is there. `Expectation` is what the
settings say, `Attendance` compares it with the members as they come and go. It takes the time and reads no
clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from totempole.settings import Kind, whole, wholes
from totempole.types import PROCESSOR_MAX, ProcessorId
from totempole.wire.layout import PROCESSORS_MAX

MISSING_US = 5_000_000
"""So long may somebody be missing before the log says so: a restart of a node is no news."""
MET_MAX = 4_096
"""Processors that are remembered; the one met first is forgotten first."""


_COUNT, _PROCESSORS = whole(0, PROCESSORS_MAX), wholes(1, PROCESSOR_MAX)

EXPECTED = Kind(
    "a number of members, or a list of processors, like [1, 2, 3]",
    takes=lambda raw: _COUNT.takes(raw) or _PROCESSORS.takes(raw),
    accepts=lambda value: _COUNT.accepts(value) or _PROCESSORS.accepts(value),
    read=lambda raw: tuple(raw) if isinstance(raw, list) else raw,
    show=lambda value: list(value) if isinstance(value, tuple) else value,
)


@dataclass(frozen=True, slots=True)
class Expectation:
    count: int = 0
    """How many members the ring should have, this node included; 0: it is not known."""
    processors: tuple[ProcessorId, ...] = ()
    """Which ones; empty where only their number is known."""

    def present(self, members: Collection[ProcessorId]) -> int:
        """How many of the expected are there."""
        if self.processors:
            return sum(processor in members for processor in self.processors)
        return min(len(members), self.count)


class Absent(NamedTuple):
    processor: ProcessorId
    address: str
    """Where it is, or was last; empty if that is not known."""
    met: bool
    """Whether it has been in a ring with this node since this node started."""


class Line(NamedTuple):
    """For the log."""

    level: int
    name: str
    fields: dict[str, Any]


class Attendance:
    def __init__(self, expected: Expectation, addresses_of: Callable[[ProcessorId], list[str]]) -> None:
        """`addresses_of` gives where a processor is, as far as that is known."""
        self.expected = expected
        self._addresses_of = addresses_of
        self._met: dict[ProcessorId, str] = {}
        """By processor: where it was last."""
        self._missing: tuple[ProcessorId | int, ...] = ()
        """As it is now: how many, and who."""
        self._told: tuple[ProcessorId | int, ...] = ()
        self.since_us = 0
        """When what is missing last changed."""

    def look(self, now_us: int, members: Sequence[ProcessorId]) -> Line | None:
        """Notes who is there. Gives a line when somebody has been missing for a while, and when all are back.
        To be called a few times a second."""
        self._meet(members)
        missing = self._now_missing(members)
        if missing != self._missing or not self.since_us:
            self._missing, self.since_us = missing, now_us
        if missing == self._told or (missing and now_us - self.since_us < MISSING_US):
            return None
        self._told = missing
        if not missing:
            return Line(logging.INFO, "all expected members are here", {"members": len(members)})
        absent = self.absent(members)
        fields: dict[str, Any] = {"expected": self.expected.count, "missing": missing[0]}
        if absent:
            fields["who"] = [each.processor for each in absent]
            fields["where"] = [each.address or "unknown" for each in absent]
        strangers = [each.processor for each in absent if not each.met]
        if strangers:
            fields["never_met"] = strangers
        return Line(logging.WARNING, "members are missing", fields)

    def missing(self, members: Collection[ProcessorId]) -> int:
        return self.expected.count - self.expected.present(members)

    def absent(self, members: Collection[ProcessorId]) -> list[Absent]:
        """Those of the missing who are known: by the settings, or because they were there before."""
        if not self.missing(members):
            return []
        met = dict(self._met)
        known = self.expected.processors or sorted(met)
        return [
            Absent(processor, self._where(processor), processor in met)
            for processor in known
            if processor not in members
        ]

    def _where(self, processor: ProcessorId) -> str:
        addresses = self._addresses_of(processor)
        return addresses[0] if addresses else self._met.get(processor, "")

    def _meet(self, members: Collection[ProcessorId]) -> None:
        for processor in members:
            self._met[processor] = self._where(processor)
        while len(self._met) > MET_MAX:
            del self._met[next(iter(self._met))]

    def _now_missing(self, members: Collection[ProcessorId]) -> tuple[int, ...]:
        count = self.missing(members)
        return (count, *(each.processor for each in self.absent(members))) if count else ()

    def document(self, now_us: int, members: Collection[ProcessorId]) -> dict[str, Any]:
        """For the status, on any thread; empty where nobody is expected."""
        count, processors = self.expected.count, self.expected.processors
        if not count:
            return {}
        return {
            "count": count,
            "processors": list(processors),
            "present": self.expected.present(members),
            "missing": self.missing(members),
            "absent": [each._asdict() for each in self.absent(members)],
            "for_s": max(0, now_us - self.since_us) // 1_000_000 if self.since_us else 0,
        }
