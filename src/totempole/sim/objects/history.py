"""What simulated programs called and were told, as rows of the trace, and the history that such rows are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from totempole.checkers.class_model import Raised
from totempole.checkers.linearizability import Call
from totempole.objects.ordered import CALLS_PER_POSITION
from totempole.objects.records import Kind, Outcome
from totempole.sim.objects.subject import Context, Subject
from totempole.sim.world import World
from totempole.trace.layers.objects import DONE, RAISED, REFUSED, WITHOUT_EFFECT
from totempole.trace.schema import Row
from totempole.types import ProcessorId

TICKS_PER_US = 1_000
"""Events of one microsecond are told apart: begins and ends are in the order in which they happened."""

READ_BEFORE = 1e-6
"""A read stands before the record that it has not seen."""

REASONS = {Kind.DONE: DONE, Kind.REFUSED: REFUSED, Kind.RAISED: RAISED}


@dataclass(slots=True)
class Entry:
    """A call that was begun."""

    name: str
    processor: ProcessorId
    program: str
    operation: str
    arguments: tuple[Any, ...]
    is_read: bool


@dataclass(slots=True)
class History:
    world: World
    subject: Subject
    began: int = 0
    ended: int = 0
    _open: dict[str, Entry] = field(default_factory=dict)

    def begin(
        self, processor: ProcessorId, program: str, operation: str, arguments: tuple[Any, ...]
    ) -> Entry:
        self.began += 1
        is_read = not self.subject.is_command(operation)
        entry = Entry(str(self.began), processor, program, operation, arguments, is_read)
        self._open[entry.name] = entry
        content = self.subject.method(operation).encode(operation, arguments, {})
        self._record(entry, "call", process=program, reason=operation, old_state=content.hex())
        return entry

    def read(self, entry: Entry, result: Any, position: int) -> None:
        """`position`: records before it were applied."""
        token = position * CALLS_PER_POSITION
        if isinstance(result, Exception):
            self._end(entry, RAISED, new_state=_raised(result), seq=token)
        else:
            answer = self.subject.method(entry.operation).result.encode(result).hex()
            self._end(entry, DONE, new_state=answer, seq=token)

    def told(self, entry: Entry, outcome: Outcome, index: int, time_us: int) -> None:
        """An outcome that is none of the object's own says that the call was not applied."""
        answer = outcome.value.hex() if outcome.kind is Kind.DONE else outcome.text
        self._end(
            entry,
            REASONS.get(outcome.kind, WITHOUT_EFFECT),
            process=outcome.client,
            count=outcome.number,
            new_state=answer,
            seq=outcome.position * CALLS_PER_POSITION + index,
            timestamp=time_us,
        )

    def without_effect(self, entry: Entry) -> None:
        self._end(entry, WITHOUT_EFFECT)

    def is_open(self, entry: Entry) -> bool:
        return entry.name in self._open

    def _end(self, entry: Entry, reason: str, **columns: Any) -> None:
        assert entry.name in self._open, f"call {entry.name} is told once"
        del self._open[entry.name]
        self.ended += 1
        self._record(entry, "result", reason=reason, **columns)

    def _record(self, entry: Entry, kind: str, **columns: Any) -> None:
        # Not as rows of the processor: the program may run while that is down.
        self.world.recorder.record(
            self.world.now_us,
            kind,
            layer="objects",
            message=entry.name,
            origin=entry.processor,
            group=self.subject.name,
            **columns,
        )


def _raised(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def history_of(rows: Iterable[Row], subject: Subject, placed: dict[str, Context] | None = None) -> list[Call]:
    """The history that is in the rows of a trace, in their order. `placed`: where calls stand in the order of
    which no result has come, if that is known."""
    placed = placed or {}
    begun: dict[str, tuple[Row, float]] = {}
    ended: dict[str, tuple[Row, float]] = {}
    tick, last_us = 0, -1
    for row in rows:
        if row.layer != "objects" or row.group != subject.name:
            continue
        tick = tick + 1 if row.at_us == last_us else 0
        last_us = row.at_us
        instant = row.at_us + tick / TICKS_PER_US
        (begun if row.kind == "call" else ended)[row.message] = row, instant
    calls = []
    for name, (row, began) in begun.items():
        result, end = ended.get(name, (None, None))
        if result is None or result.reason != WITHOUT_EFFECT:
            calls.append(_call(subject, row, began, result, end, placed.get(name)))
    return calls


def _call(
    subject: Subject, row: Row, began: float, result: Row | None, end: float | None, context: Context | None
) -> Call:
    method = row.reason
    codec = subject.method(method)
    arguments = tuple(codec.decode(bytes.fromhex(row.old_state)))
    if result is None:
        return Call(row.process, method, arguments, began, context=context, hint=_hint(context))
    answer: Any
    if result.reason == DONE:
        answer = codec.result.decode(bytes.fromhex(result.new_state))
    else:
        refused = result.reason == REFUSED
        answer = Raised("Refused", result.new_state) if refused else _parsed(result.new_state)
    if not subject.is_command(method):
        hint = result.seq / CALLS_PER_POSITION - READ_BEFORE
        return Call(row.process, method, arguments, began, end, answer, hint=hint)
    position, index = divmod(result.seq, CALLS_PER_POSITION)
    told = Context(position, result.timestamp, result.process, index)
    if context is None and result.timestamp >= 0:
        context = told
    return Call(row.process, method, arguments, began, end, answer, context, _hint(context or told))


def _hint(context: Context | None) -> float | None:
    return None if context is None else context.position + context.index / CALLS_PER_POSITION


def _parsed(text: str) -> Raised:
    kind, _, told = text.partition(": ")
    return Raised(kind, told)
