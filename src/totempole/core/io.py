"""Where a stack's effects are collected, in order, and named for the layer that asks for them.

Each instance of a layer has a `Scope`. It names timers and stable records by layer and instance, and notes
whose write a ticket is, so that two rings of one node, or two engines, never disturb each other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from totempole.core.effects import (
    Alarm,
    Append,
    CancelTimer,
    Effect,
    LayerName,
    Reachable,
    Recall,
    Records,
    SetTimer,
    Stopped,
    Tell,
    TimerName,
    Trace,
    Trim,
    Write,
)
from totempole.types import ProcessorId

_new = tuple.__new__
"""Makes a named tuple at a third of the cost of calling its class: effects are made at every packet."""


class Io:
    """Effects of the input at hand; `now_us` is its time, `network` and `source` are where it came from."""

    __slots__ = ("_ticket", "effects", "engines", "network", "now_us", "source", "trace_kinds", "writers")

    def __init__(self, trace_kinds: frozenset[str], engines: int = 1) -> None:
        self.engines = engines
        """Those that have not left: when the last one has, the stack has stopped."""
        self.now_us = 0
        self.network = 0
        self.source: Any = None
        self.trace_kinds = trace_kinds
        self.effects: list[Effect] = []
        self.writers: dict[int, LayerName] = {}
        """Whose a ticket is, until the write is done."""
        self._ticket = 0

    def take(self) -> list[Effect]:
        effects = self.effects
        self.effects = []
        return effects

    def write(self, records: Records, writer: LayerName) -> int:
        ticket = self.ticket(writer)
        self.effects.append(Write(ticket, records))
        return ticket

    def ticket(self, writer: LayerName) -> int:
        """For an effect that is answered."""
        self._ticket += 1
        self.writers[self._ticket] = writer
        return self._ticket


class Scope:
    """The effects of one instance of a layer."""

    __slots__ = ("_armed", "_names", "_prefix", "io", "name")

    def __init__(self, io: Io, layer: str, instance: int = 0, timers: type[IntEnum] | None = None) -> None:
        self.io = io
        self.name: LayerName = (layer, instance)
        self._prefix = record_prefix(layer, instance)
        self._names = {timer: TimerName(layer, instance, int(timer)) for timer in timers or ()}
        self._armed: set[IntEnum] = set()

    @property
    def now_us(self) -> int:
        return self.io.now_us

    # Timers and stable storage

    def set_timer(self, timer: IntEnum, after_us: int) -> None:
        io = self.io
        self._armed.add(timer)
        io.effects.append(_new(SetTimer, (self._names[timer], io.now_us + after_us)))

    def cancel_timer(self, timer: IntEnum) -> None:
        if timer in self._armed:
            self._armed.discard(timer)
            self.io.effects.append(CancelTimer(self._names[timer]))

    def expired(self, timer: IntEnum) -> None:
        """The layer has been told: the timer is no longer set."""
        self._armed.discard(timer)

    def write(self, records: Records) -> int:
        """All of it or none. The layer's `written` is called with the ticket when it is done."""
        prefix = self._prefix
        if prefix:
            records = {prefix + name: value for name, value in records.items()}
        return self.io.write(records, self.name)

    # The log

    def append(self, frames: tuple[bytes, ...], is_segment: bool) -> int:
        """The layer's `appended` is called with the ticket when they are durable."""
        ticket = self.io.ticket(self.name)
        self.io.effects.append(Append(ticket, frames, is_segment))
        return ticket

    def recall(self, start: int, bytes_max: int) -> int:
        """The layer's `recalled` is called with the ticket and what was read."""
        ticket = self.io.ticket(self.name)
        self.io.effects.append(Recall(ticket, start, bytes_max))
        return ticket

    def trim(self, position: int, keep_bytes: int) -> None:
        self.io.effects.append(Trim(position, keep_bytes))

    # What others are told

    def tell(self, event: Any) -> None:
        self.io.effects.append(_new(Tell, (self.name, event)))

    def reachable(self, processor: ProcessorId, just_now: bool) -> None:
        """Where the packet at hand came from."""
        io = self.io
        io.effects.append(Reachable(processor, io.network, io.source, just_now))

    def alarm(self, alarm: Any) -> None:
        self.io.effects.append(Alarm(alarm, self.io.source))

    def stopped(self) -> None:
        """An engine has left."""
        io = self.io
        io.engines -= 1
        assert io.engines >= 0, "an engine leaves once"
        if not io.engines:
            io.effects.append(Stopped())

    # The trace

    def traces(self, kind: str) -> bool:
        return kind in self.io.trace_kinds

    def trace(self, kind: str, columns: Any) -> None:
        self.io.effects.append(_new(Trace, (kind, columns, self.name[0])))


def record_prefix(layer: str, instance: int) -> str:
    """Before the names of an instance's stable records. The first instance has none."""
    return f"{layer}.{instance}." if instance else ""


def records_of(stable: Records, layer: str, instance: int) -> dict[str, Any]:
    """The stable records of an instance, by their own names."""
    prefix = record_prefix(layer, instance)
    return {
        name.removeprefix(prefix): value
        for name, value in stable.items()
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }


def incarnation_of(stable: Records) -> int:
    """The next life's number: one above that of any instance, as each writes it before it first speaks."""
    return 1 + max(
        (value for name, value in stable.items() if name.rpartition(".")[2] == "incarnation"), default=0
    )
