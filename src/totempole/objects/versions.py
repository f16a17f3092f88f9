"""Versions of a class: which code applies which commands, and when an object goes from one to the next.

The object's version stands in its order. A program may have several: its class names the one before by a
migration.

    class Bank:                              # version 2
        object_version = 2

        @migration(1)
        @staticmethod
        def _from_1(old: BankOfVersion1) -> Bank: ...

Hosts apply commands of version 1 with the old class until an `Upgrade` in the order, then migrate, all at the
same place. A new version whose state has not changed needs no old class: `object_runs_from = 1` says that the
new class applies the old commands as before; a new command is marked `@command(since=2)`.

Each host announces the highest version that it knows. An upgrade is taken when all hosts know it that have
announced anything lately; it is proposed by any of them. A program that meets a version that it does not know
stops there.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar, cast, get_type_hints

import msgspec

from totempole.errors import ObjectError
from totempole.objects.commands import FROM_VERSION, Command, ObjectType
from totempole.objects.records import Limits
from totempole.objects.state import StateCodec

T = TypeVar("T")
Migrate = Callable[[Any], Any]


class Version(Generic[T]):
    """One class, with the versions that it runs, and how its state is made of older ones."""

    def __init__(self, type_: ObjectType[T]) -> None:
        self.type = type_
        self.codec = StateCodec(type_.cls)
        self.migrations: list[tuple[int, Migrate, Version[Any]]] = _migrations(type_)
        """From which version, by what, from whose state. The newest comes first."""

    @staticmethod
    def of(type_: ObjectType[T]) -> Version[T]:
        """The same one each time."""
        return cast("Version[T]", _version_of(cast(Any, type_)))

    def runs(self, version: int) -> bool:
        return self.type.runs_from <= version <= self.type.version

    def commands(self, version: int) -> dict[str, Command]:
        """Those that the object has at this version."""
        return {name: each for name, each in self.type.commands.items() if each.since <= version}

    def find(self, version: int) -> Version[Any] | None:
        """The class for this version: this one, or one before."""
        if self.runs(version):
            return self
        return next((found for _, _, old in self.migrations if (found := old.find(version))), None)

    def path_from(self, before: Version[Any]) -> list[Migrate] | None:
        """What makes a state of this class out of one of that class, in order."""
        if before is self:
            return []
        for _, migrate, old in self.migrations:
            path = old.path_from(before)
            if path is not None:
                return [*path, migrate]
        return None

    def lowest(self) -> int:
        return min([self.type.runs_from, *[old.lowest() for _, _, old in self.migrations]])

    def shown(self) -> str:
        """The versions that it has, for errors."""
        low, high = self.lowest(), self.type.version
        return f"version {high}" if low == high else f"versions {low} to {high}"


@cache
def _version_of(type_: ObjectType[Any]) -> Version[Any]:
    return Version(type_)


def _migrations(type_: ObjectType[Any]) -> list[tuple[int, Migrate, Version[Any]]]:
    found = []
    cls = type_.cls
    for name in dir(cls):
        marked = inspect.getattr_static(cls, name)
        function = getattr(marked, "__func__", marked)
        from_version = getattr(function, FROM_VERSION, None)
        if from_version is None:
            continue
        where = f"{cls.__name__}.{name}"
        if not isinstance(marked, staticmethod):
            raise ObjectError(f"{where}: a migration is a static method")
        old: ObjectType[Any] = ObjectType.of(_old_class(where, function))
        if old.version != from_version or old.version >= type_.runs_from:
            raise ObjectError(
                f"{where}: migration({from_version}) takes a class of version {old.version}; it must be"
                f" {from_version}, and lower than {type_.runs_from}, which {cls.__name__} runs itself"
            )
        found.append((from_version, function, Version.of(old)))
    return sorted(found, key=lambda each: -each[0])


def _old_class(where: str, function: Callable[..., Any]) -> type:
    parameters = list(inspect.signature(function).parameters)
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise ObjectError(f"{where}: its annotations cannot be read: {error}") from None
    old = hints.get(parameters[0]) if len(parameters) == 1 else None
    if not inspect.isclass(old):
        raise ObjectError(f"{where}: annotate its one parameter with the class of the old version")
    return old


class HostRow(msgspec.Struct, frozen=True, array_like=True):
    host: str
    version: int
    time_us: int


class Hosts:
    """What hosts have announced. A part of every host's replicated state."""

    def __init__(self, limits: Limits, rows: tuple[HostRow, ...] = ()) -> None:
        self._limits = limits
        self._rows: OrderedDict[str, HostRow] = OrderedDict((row.host, row) for row in rows)

    def announce(self, host: str, version: int, time_us: int) -> None:
        """Version 0: it has closed the object."""
        self._rows.pop(host, None)
        if version:
            self._rows[host] = HostRow(host, version, time_us)
        if len(self._rows) > self._limits.hosts_max:
            self._rows.popitem(last=False)

    def known(self, time_us: int) -> tuple[HostRow, ...]:
        """Those that have announced something lately, by the order's time."""
        since = time_us - self._limits.host_forget_us
        return tuple([row for row in self._rows.values() if row.time_us >= since])

    def rows(self) -> tuple[HostRow, ...]:
        return tuple(self._rows.values())

    def lacking(self, version: int, time_us: int) -> tuple[str, ...]:
        """Hosts that hold up an upgrade to this version."""
        return tuple([row.host for row in self.known(time_us) if row.version < version])

    def common(self, time_us: int) -> int:
        """The highest version that all of them know; 0 if there are none."""
        return min([row.version for row in self.known(time_us)], default=0)
