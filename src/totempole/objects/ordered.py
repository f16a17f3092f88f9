"""Time, random numbers, position and caller for commands: from the order, so the same at every host.

A command must not read the clock, draw random numbers of its own or look at its process: hosts would differ.
Outside a command these functions raise ObjectError. A test of a class without a cluster gives them by hand:

    with ordered.at(position=7, time=1_700_000_000.0):
        lock.acquire("printer")
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random

from totempole.errors import ObjectError

CALLS_PER_POSITION = 65_536


class Moment:
    """Where in the order a command runs. The machine has one, and moves it from call to call."""

    __slots__ = ("_random", "_random_token", "caller", "index", "position", "time_us", "version")

    def __init__(
        self, position: int = 0, time_us: int = 0, caller: str = "", index: int = 0, version: int = 1
    ) -> None:
        self.position = position
        self.time_us = time_us
        self.caller = caller
        self.index = index
        self.version = version
        self._random: Random | None = None
        self._random_token = -1

    @property
    def token(self) -> int:
        return self.position * CALLS_PER_POSITION + self.index

    @property
    def random(self) -> Random:
        """One for each call: a second question goes on where the first one ended."""
        token = self.token
        if self._random is None or self._random_token != token:
            self._random = Random(token)
            self._random_token = token
        return self._random


current: ContextVar[Moment | None] = ContextVar("totempole.ordered", default=None)
"""Of the command that runs. The machine sets it."""


def _now(what: str) -> Moment:
    moment = current.get()
    if moment is None:
        raise ObjectError(
            f"ordered.{what}() was called outside a command: the order gives it to methods marked @command"
            f" while they are applied; a test uses `with ordered.at(position=…, time=…)`"
        )
    return moment


def time() -> float:
    """Seconds since 1970, by the wall clock of the host that appended the record. It never runs backwards,
    and all commands of a record have the same."""
    return _now("time").time_us / 1_000_000


def time_us() -> int:
    """The same in whole microseconds."""
    return _now("time_us").time_us


def random() -> Random:
    """A generator whose numbers depend on the place of the call in the order, and on nothing else. They can
    be foreseen by everybody who reads the log: no good for secrets."""
    return _now("random").random


def position() -> int:
    """Of the record that the call is in. Calls that share a record have the same: see `token`."""
    return _now("position").position


def token() -> int:
    """Unique for each call, and ascending over the whole order: a fencing token."""
    return _now("token").token


def caller() -> str:
    """The id of the client that has made the call. A program that opens the object again has another one."""
    return _now("caller").caller


def version() -> int:
    """The version that the object is at."""
    return _now("version").version


@contextmanager
def at(
    position: int = 0, time: float = 0.0, caller: str = "test", index: int = 0, version: int = 1
) -> Iterator[None]:
    """For tests of a class without a cluster: commands called inside find this place in the order."""
    mark = current.set(Moment(position, round(time * 1_000_000), caller, index, version))
    try:
        yield
    finally:
        current.reset(mark)
