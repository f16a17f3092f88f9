"""A class that simulated programs replicate, and what they call of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, NamedTuple

from totempole.checkers.class_model import ClassModel
from totempole.checkers.linearizability import Call
from totempole.objects import ordered
from totempole.objects.commands import Command, ObjectType

Operation = Sequence[Any]
"""(method, argument, …). A method that is no command is a read."""

Workload = Callable[[Random, str], Generator[Operation, Any, None]]
"""What one caller does, one operation after another: it is sent the result of each. A call that was refused,
that raised, or of which nobody knows what became, gives an exception as its result. The text is the caller's
name."""


class Unknown(Exception):
    """Nobody knows what became of the call."""


class Context(NamedTuple):
    """Where in the order a call stands."""

    position: int
    time_us: int
    caller: str
    index: int  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    cls: type[Any]
    workload: Workload
    key: Callable[[Call], Hashable] | None = None
    """Calls with different keys do not influence each other: makes the judge's work easier."""
    is_read: Callable[[Call], bool] = lambda _call: False
    """Commands that, with this result, have changed nothing: makes the judge's work easier."""

    @property
    def type(self) -> ObjectType[Any]:
        return ObjectType.of(self.cls)

    @property
    def log(self) -> str:
        return f"objects/{self.name}"

    def is_command(self, method: str) -> bool:
        return method in self.type.commands

    def method(self, name: str) -> Command:
        """How arguments and results are written, of reads too."""
        found = self.type.commands.get(name)
        return found if found is not None else _read_of(self.type, name)

    def model(self) -> ClassModel:
        """The class itself, called by one caller after another."""
        return ClassModel(
            self.cls,
            key=self.key,
            is_read=lambda call: not self.is_command(call.operation) or self.is_read(call),
            around=_around,
        )


@cache
def _read_of(of: ObjectType[Any], name: str) -> Command:
    return Command(of.cls, name, inspect.getattr_static(of.cls, name), 0)


def _around(call: Call) -> AbstractContextManager[Any]:
    context: Context | None = call.context
    if context is None:
        return nullcontext()
    return ordered.at(context.position, context.time_us / 1_000_000, context.caller, context.index)
