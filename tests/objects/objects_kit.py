"""The package's own modules, or those of a broken one, under one name; and classes that are made with them.

Without `from __future__ import annotations`: classes inside functions have to find each other by annotation.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import totempole.objects.machine as true_machine
from totempole.sim.fuzz import mutation
from totempole.sim.fuzz.mutation import Mutant


class Kit:
    """What a test needs of the package. Two kits share nothing but `totempole.errors`."""

    def __init__(self, machine: Any) -> None:
        commands = SimpleNamespace(**machine.ObjectType.of.__globals__)
        codec = SimpleNamespace(**commands.Codec.encode.__globals__)
        self.ordered = SimpleNamespace(**machine.Moment.__init__.__globals__)
        self.records = machine.records
        self.machine = machine
        self.Codec = codec.Codec
        self.Machine = machine.ObjectMachine
        self.ObjectType = commands.ObjectType
        self.Snapshot = machine.Snapshot
        self.Limits = machine.Limits
        self.Kind = machine.Kind
        self.Refused = commands.Refused
        self.command = commands.command
        self.migration = commands.migration

    def opened(self, cls: type) -> Any:
        """A machine that has read the first record, at position 0."""
        machine = self.Machine(cls)
        machine.apply(machine.opening(), 0, 1)
        return machine

    def calls(
        self,
        machine: Any,
        client: str,
        *calls: tuple[Any, ...],
        first: int = 1,
        born: int = 0,
        acknowledged: int = 0,
        version: int = 0,
    ) -> bytes:
        """A record: each call is a method's name and its arguments."""
        of = machine.object_type
        made = [of.encode_call(name, args, number=first + at) for at, (name, *args) in enumerate(calls)]
        return self.records.encode(
            self.records.Calls(client, born, acknowledged, version or machine.version, tuple(made))
        )

    def again(self, machine: Any, cls: type) -> Any:
        """What another host makes of its snapshot."""
        return self.Machine.restore(cls, self.Snapshot.decode(b"".join(machine.pieces())))


TRUE = Kit(true_machine)


@cache
def broken(which: Mutant) -> Kit:
    return Kit(mutation._mutated(which, "machine"))


def journal(kit: Kit, **limits: int) -> type:
    """It keeps everything that was done to it, so that nothing is done twice without a trace."""
    ordered, command = kit.ordered, kit.command

    class Journal:
        object_limits = kit.Limits(**{"clients_max": 3, "digest_every": 4, **limits})
        entries: list[tuple[str, int, int]]
        total: int

        def __init__(self) -> None:
            self.entries = []
            self.total = 0

        @command
        def add(self, what: int) -> int:
            self.entries.append((ordered.caller(), what, ordered.token()))
            self.total += what
            return self.total

        @command
        def draw(self, what: int) -> int:
            self.entries.append((ordered.caller(), what, ordered.token()))
            return ordered.random().randrange(1 << 30)

        @command
        def stamp(self, what: int) -> float:
            self.entries.append((ordered.caller(), what, ordered.token()))
            return ordered.time()

        @command
        def refuse(self, what: int) -> None:
            raise kit.Refused(f"no {what}")

        @command
        def fail(self, what: int) -> None:
            self.total += 1
            raise KeyError(what)

    return Journal
