"""Classes for `twins`: one that is the same everywhere, and those that are not."""

from __future__ import annotations

import random
import time
from datetime import date, datetime
from random import Random
from uuid import uuid4

from totempole.objects import ordered
from totempole.objects.commands import Refused, command


class Good:
    """Uses all that it may: time, random numbers, position and caller come from the order."""

    def __init__(self) -> None:
        self.entries: dict[str, float] = {}
        self.names: set[str] = set()
        self.history: list[tuple[str, int]] = []

    @command
    def put(self, key: str, value: float = 0.5) -> float:
        if not key:
            raise Refused("no key")
        self.entries[key] = value + ordered.random().random()
        self.names.add(key)
        self.history.append((ordered.caller(), ordered.position()))
        return ordered.time()

    @command
    def listed(self) -> list[str]:
        return sorted(self.names)

    @command
    def broken(self) -> int:
        return 1 // 0


class Named:
    """What the others have in common."""

    def __init__(self) -> None:
        self.last: object = None
        self.count = 0
        self.names: set[str] = set()

    @command
    def add(self, name: str) -> int:
        self.names.add(name)
        self.count += 1
        return self.count


class ReadsClock(Named):
    @command
    def odd(self) -> None:
        self.last = round(time.time())


class ReadsDay(Named):
    @command
    def odd(self) -> str:
        return date.today().isoformat()


class ReadsNow(Named):
    @command
    def odd(self) -> None:
        self.last = datetime.now().isoformat()


class DrawsRandom(Named):
    @command
    def odd(self) -> None:
        self.last = random.randrange(1_000_000)


class DrawsOwnRandom(Named):
    @command
    def odd(self) -> float:
        return Random().random()


class MakesNames(Named):
    @command
    def odd(self) -> str:
        return str(uuid4())


class IteratesSet(Named):
    @command
    def odd(self) -> None:
        self.last = ",".join(self.names)


class ReturnsSetOrder(Named):
    @command
    def odd(self) -> list[str]:
        return list(self.names)


class UsesAddress(Named):
    @command
    def odd(self) -> None:
        self.last = id(self)


class UsesHash(Named):
    @command
    def odd(self) -> int:
        return hash("name")


class RaisesTime(Named):
    @command
    def odd(self) -> None:
        raise Refused(f"not at {time.time()}")


class BornAtATime(Named):
    def __init__(self) -> None:
        super().__init__()
        self.born = time.time()


class CountsOutside(Named):
    """Its state is not all its own."""

    def snapshot(self) -> bytes:
        return str(self.count).encode()

    @classmethod
    def restore(cls, content: bytes) -> CountsOutside:
        made = cls()
        made.count = int(content)
        return made

    @command
    def odd(self) -> int:
        return len(self.names)


class Loops(Named):
    @command
    def odd(self) -> None:
        while True:
            pass


class Prints(Named):
    @command
    def odd(self) -> None:
        print("{not a line of ours}")
