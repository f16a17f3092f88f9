"""Turns a node's effects into trace rows (the Trace chapter of docs/architecture.md).

One recorder serves one node for a whole run, so that `step` never repeats, restarts included. The level is
tested before a row is built: most effects are timers and transmissions, which cost one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any
from zlib import crc32

from totempole.core.effects import Effect, Trace
from totempole.core.order import Deliver, InstallConfiguration
from totempole.trace.schema import LEVELS, OWN, PROTOCOL_KINDS, Row, in_layers
from totempole.types import MessageId, RingId, Service

_SERVICE_NAMES = {service: service.name.lower() for service in Service}

_ring_text = lru_cache(maxsize=4096)(RingId.__str__)
_message_text = lru_cache(maxsize=4096)(MessageId.__str__)

_PLAIN: dict[type, Callable[[Any], Any]] = {
    RingId: _ring_text,
    MessageId: _message_text,
    Service: _SERVICE_NAMES.__getitem__,
}


_OWN_NAMES = {layer: own._fields for layer, own in OWN.items()}
_TYPED_COLUMNS = ("message", "service", "ring", "source_ring", "configuration")


def _plain(layer: str, values: dict[str, Any]) -> dict[str, Any]:
    """Makes columns, in place, what the schema has. Writes the papers' types as plain ones, so that a
    protocol need not before it is asked."""
    for name in _TYPED_COLUMNS:
        value = values.get(name, "")
        if type(value) is not str:
            values[name] = _PLAIN[type(value)](value)
    for name in _OWN_NAMES.get(layer, ()):
        if name in values:
            return in_layers(layer, values)
    return values


_new = tuple.__new__
_DELIVER_REST = tuple(Row._field_defaults[name] for name in Row._fields[Row._fields.index("digest") + 1 :])
"""What a row of a delivery has after its digest."""


class Recorder:
    """Hands each row that the level asks for to `sink`, in the order of the node's own events."""

    __slots__ = ("_configuration", "_digests", "_incarnation", "_kinds", "_sink", "node", "run", "step")

    def __init__(self, run: str, node: int, level: str, sink: Callable[[Row], None]) -> None:
        self.run = run
        self.node = node
        self.step = 0
        self._kinds = LEVELS[level]
        self._digests = "receive" in self._kinds
        self._sink = sink
        self._incarnation = 0
        self._configuration = ""

    @property
    def incarnation(self) -> int:
        return self._incarnation

    @incarnation.setter
    def incarnation(self, value: int) -> None:
        """A new life is in no configuration until it installs its first."""
        self._incarnation = value
        self._configuration = ""

    def wants(self, kind: str) -> bool:
        return kind in self._kinds

    def record(self, at_us: int, kind: str, *, layer: str = "sim", **columns: Any) -> None:
        """Writes a row of any kind. A kind that the schema does not know is a mistake in the caller."""
        if kind not in self._kinds:
            assert kind in PROTOCOL_KINDS, f"the trace schema has no rows of kind {kind!r}"
            return
        self._write(at_us, layer, kind, _plain(layer, columns))

    def effects(self, at_us: int, effects: Iterable[Effect]) -> None:
        """Writes the rows among the effects, and ignores all else."""
        for effect in effects:
            if type(effect) is Trace:
                _HANDLERS.get(type(effect.columns), Recorder._trace)(self, at_us, effect)

    def _write(self, at_us: int, layer: str, kind: str, values: dict[str, Any]) -> None:
        if "configuration" not in values:
            values["configuration"] = self._configuration
        self.step += 1
        self._sink(Row(self.run, self.node, self._incarnation, self.step, at_us, layer, kind, **values))

    def _deliver(self, at_us: int, trace: Trace) -> None:
        effect: Deliver = trace.columns
        ring_id, seq, _ = effect.key
        self.step += 1
        # Not by its class: that triples the cost of the row that a run has most of.
        row: Row = _new(
            Row,
            (
                self.run,
                self.node,
                self._incarnation,
                self.step,
                at_us,
                trace.layer,
                "deliver",
                _message_text(effect.message),
                effect.origin,
                "",
                _SERVICE_NAMES[effect.service],
                _ring_text(ring_id),
                seq,
                effect.timestamp,
                "",
                0,
                _ring_text(effect.configuration),
                "",
                (),
                "",
                1,
                len(effect.payload),
                crc32(effect.payload) if self._digests else 0,
                *_DELIVER_REST,
            ),
        )
        self._sink(row)

    def _install(self, at_us: int, trace: Trace) -> None:
        installed = trace.columns.configuration
        self._configuration = str(installed.id)
        self.record(
            at_us,
            "configuration",
            layer=trace.layer,
            configuration_kind=installed.kind.value,
            members=tuple(installed.members),
            ring=installed.ring_id,
            seq=installed.seq,
            previous=str(installed.previous),
        )

    def _trace(self, at_us: int, effect: Trace) -> None:
        if effect.kind in self._kinds:
            self._write(at_us, effect.layer, effect.kind, _plain(effect.layer, dict(effect.columns)))
        else:
            assert effect.kind in PROTOCOL_KINDS, f"the trace schema has no rows of kind {effect.kind!r}"


_HANDLERS: dict[type, Callable[[Recorder, int, Trace], None]] = {
    Deliver: Recorder._deliver,
    InstallConfiguration: Recorder._install,
}
"""Rows that show an event of the order. All others have their columns."""
