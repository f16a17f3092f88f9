"""The tentative state: a copy of the green one, with the host's own calls on top that are not applied yet.

It is what the object will be if nobody else calls anything in between. Each question makes a copy, so large
states are refused.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from totempole.errors import ObjectError
from totempole.objects.commands import ObjectType
from totempole.objects.digests import STATE_BYTES_PER_COMMAND
from totempole.objects.host import ObjectHost
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Call, Calls, encode
from totempole.objects.snapshots import Snapshot

T = TypeVar("T")

STATE_BYTES_MAX = 16 << 20

CLIENT = "tentative"


class Tentative(Generic[T]):
    def __init__(self, type_: ObjectType[T]) -> None:
        self._type = type_
        self._green: Snapshot | None = None
        self._refused = ""
        self._refused_until = 0

    def state(self, host: ObjectHost[T]) -> T:
        """Raises ObjectError if the state is too large to be copied, or cannot be."""
        machine = self._copy(host.machine)
        calls = [
            Call(number, call.method, call.arguments)
            for number, call in enumerate(host.unapplied, 1)
            if call.version == machine.version
        ]
        if calls:
            born = machine.applied
            machine.apply(
                encode(Calls(CLIENT, born, 0, machine.version, tuple(calls))), born, machine.time_us
            )
        return machine.state

    def _copy(self, green: ObjectMachine[T]) -> ObjectMachine[T]:
        if green.version:
            return ObjectMachine.restore(self._type, self._snapshot(green))
        machine = ObjectMachine(self._type)
        opening = machine.opening()
        assert opening is not None, "it is new"
        machine.apply(opening, green.applied, green.time_us)
        return machine

    def _snapshot(self, machine: ObjectMachine[Any]) -> Snapshot:
        if machine.commands < self._refused_until:
            raise ObjectError(self._refused)
        if self._green is None or self._green.applied != machine.applied:
            self._green = None
            taken = machine.snapshot(is_checked=False)
            if len(taken.state) > STATE_BYTES_MAX:
                self._refused = (
                    f"the state of {machine.name} has {len(taken.state)} bytes; at most {STATE_BYTES_MAX} "
                    "are copied for a tentative state: use peek, and keep your own calls beside it"
                )
                self._refused_until = machine.commands + len(taken.state) // STATE_BYTES_PER_COMMAND
                raise ObjectError(self._refused)
            self._green = taken
        return self._green
