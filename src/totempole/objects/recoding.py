"""A call that waits is written anew when its object has gone to another version."""

from __future__ import annotations

from typing import Any

from totempole.errors import ObjectError
from totempole.objects.machine import ObjectMachine
from totempole.objects.pending import PendingCall


def encoded_again(machine: ObjectMachine[Any], call: PendingCall) -> bytes | None:
    """Its arguments for the class of the present version: each by its name, new ones by their defaults. None:
    that version has no such command, or other parameters."""
    known = machine.newest.find(call.version)
    if known is None:
        return None
    try:
        command = known.type.command_of(call.method)
        named = dict(zip(command.parameters, command.decode(call.arguments), strict=True))
        return machine.object_type.encode_call(call.method, (), named).arguments
    except ObjectError:
        return None
