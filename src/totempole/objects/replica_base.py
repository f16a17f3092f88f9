"""What the replica for asyncio programs and the one for others have in common: all that does not wait."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from totempole.objects.digests import Divergence
from totempole.objects.hosting import Hosting, PrimaryChanged

T = TypeVar("T")


class ReplicaBase(Generic[T]):
    def __init__(self, hosting: Hosting[T]) -> None:
        self._hosting = hosting
        self._timeout: float | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Explains how methods are called, to a program that calls `bank.transfer(…)` directly."""
            if hasattr(type(self), name):  # a property has raised AttributeError: let that error through
                return object.__getattribute__(self, name)
            cls = self.__dict__["_hosting"].type.cls if "_hosting" in self.__dict__ else object
            if name.startswith("_") or not hasattr(cls, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            method = f"{cls.__name__}.{name}"
            raise AttributeError(
                f"a replica has no attribute {name!r}: use call({method}, …) for a command, "
                f"read({method}, …) or peek for the rest"
            )

    def within(self, seconds: float) -> Self:
        """The same replica, with a deadline for each call, submit and read: `bank.within(5).call(…)`. A call
        that is not done by then raises `Unknown` with its receipt if it was sent; any other error means that
        it never was."""
        bounded = copy(self)
        bounded._timeout = seconds
        return bounded

    @property
    def name(self) -> str:
        """The object's name."""
        return self._hosting.name

    @property
    def position(self) -> int:
        """All records of the object before this position are applied here."""
        return self._hosting.machine.applied

    @property
    def version(self) -> int:
        """That the object is at; 0: nobody has called anything yet."""
        return self._hosting.machine.version

    @property
    def tentative(self) -> T:
        """A copy of the state with this replica's own calls on top that are not applied yet, as if they were
        ordered next. Nothing that is done to it reaches the object. ObjectError above 16 MB of state."""
        return self._hosting.tentative()

    def on_primary(self, callback: Callable[[PrimaryChanged], None]) -> None:
        """Calls back at each new primary component that is in the order from now on, between the records
        before it and those behind it."""
        self._hosting.on_primary.append(callback)

    def on_divergence(self, callback: Callable[[Divergence], None]) -> None:
        """Calls back when this host and another one have applied the same commands and hold something else: a
        command depends on more than the state, its arguments and `ordered`. It is logged in any case."""
        self._hosting.on_divergence.append(callback)
