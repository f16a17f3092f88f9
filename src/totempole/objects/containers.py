"""Ready-made objects: a dict, a counter, and a queue of work.

    async with session.replica(ReplicatedDict, "settings") as settings:
        await settings.call(ReplicatedDict.set, "colour", "red")
        print(await settings.read(ReplicatedDict.get, "colour"))

They are plain classes: read them as examples, and derive from them. Values are plain ones: None, bool, int,
float, str, bytes, and lists, tuples, dicts and sets of these.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

import msgspec

from totempole.objects import ordered
from totempole.objects.commands import Refused, command
from totempole.objects.locks import end_of_lease


class ReplicatedDict:
    """Keys are text. The order of keys is that in which they were set first."""

    entries: dict[str, Any]

    def __init__(self) -> None:
        self.entries = {}

    @command
    def set(self, key: str, value: Any) -> None:
        self.entries[key] = value

    @command
    def set_default(self, key: str, value: Any) -> Any:
        """Sets it unless it is there. Returns what is there now."""
        return self.entries.setdefault(key, value)

    @command
    def compare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        """Sets it if it is `expected` now. A key that is not there is None."""
        if self.entries.get(key) != expected:
            return False
        self.entries[key] = value
        return True

    @command
    def update(self, entries: dict[str, Any]) -> None:
        """All of them, at one place in the order."""
        self.entries.update(entries)

    @command
    def pop(self, key: str, default: Any = None) -> Any:
        """Removes it. Returns what was there."""
        return self.entries.pop(key, default)

    @command
    def clear(self) -> None:
        self.entries.clear()

    # Reading

    def get(self, key: str, default: Any = None) -> Any:
        return self.entries.get(key, default)

    def has(self, key: str) -> bool:
        return key in self.entries

    def keys(self) -> list[str]:
        return list(self.entries)

    def items(self) -> dict[str, Any]:
        """A copy of all."""
        return dict(self.entries)

    def size(self) -> int:
        return len(self.entries)


class Counter:
    value: int

    def __init__(self) -> None:
        self.value = 0

    @command
    def add(self, amount: int = 1) -> int:
        """Returns the sum."""
        self.value += amount
        return self.value

    # Reading

    def get(self) -> int:
        return self.value


class Taken(msgspec.Struct, frozen=True):
    """An item that somebody works on."""

    token: int
    """Names this taking of it: an earlier one's is no longer good."""
    until_us: int


class Work(msgspec.Struct, frozen=True):
    """What `Queue.take` gives."""

    item: int
    """Its number in the queue."""
    token: int
    """For `done`, `give_back` and `keep`. A resource outside should refuse a token that is lower than one it
    has seen."""
    value: Any


class Queue:
    """Items are taken in the order in which they were put. Who takes one has it for a time. What is not done
    by then can be taken again, before all that was put later."""

    values: dict[int, Any]
    waiting: list[int]
    """Items that nobody has: a heap."""
    taken: dict[int, Taken]
    ends: list[tuple[int, int]]
    """When each taking ends, and of which item: a heap. May name takings that are over."""

    def __init__(self) -> None:
        self.values = {}
        self.waiting = []
        self.taken = {}
        self.ends = []

    @command
    def put(self, value: Any) -> int:
        """Returns the item's number."""
        item = ordered.token()
        self.values[item] = value
        heappush(self.waiting, item)
        return item

    @command
    def take(self, seconds: float = 60.0) -> Work | None:
        """The first item that nobody has, for so long; None if there is none."""
        self._give_back_what_ended()
        if not self.waiting:
            return None
        until_us = end_of_lease(seconds)
        item = heappop(self.waiting)
        work = Work(item, ordered.token(), self.values[item])
        self.taken[item] = Taken(work.token, until_us)
        heappush(self.ends, (until_us, item))
        return work

    @command
    def done(self, item: int, token: int) -> None:
        """The item is gone. Refused if the taking is over."""
        self._check(item, token)
        del self.taken[item], self.values[item]

    @command
    def keep(self, item: int, token: int, seconds: float = 60.0) -> None:
        """So much longer, from now on. Refused if the taking is over."""
        self._check(item, token)
        until_us = end_of_lease(seconds)
        self.taken[item] = Taken(token, until_us)
        heappush(self.ends, (until_us, item))

    @command
    def give_back(self, item: int, token: int) -> None:
        """Somebody else may take it. Refused if the taking is over."""
        self._check(item, token)
        del self.taken[item]
        heappush(self.waiting, item)

    def _check(self, item: int, token: int) -> None:
        self._give_back_what_ended()
        taken = self.taken.get(item)
        if taken is None or taken.token != token:
            raise Refused(f"item {item} is no longer yours: its time was over, or it is done")

    def _give_back_what_ended(self) -> None:
        now_us = ordered.time_us()
        while self.ends and self.ends[0][0] <= now_us:
            _, item = heappop(self.ends)
            taken = self.taken.get(item)
            if taken is not None and taken.until_us <= now_us:
                del self.taken[item]
                heappush(self.waiting, item)
        if len(self.ends) > 2 * len(self.taken) + 16:  # many were done long before their time
            self.ends = [(taken.until_us, item) for item, taken in self.taken.items()]
            heapify(self.ends)

    # Reading

    def size(self) -> int:
        """Items that are not done."""
        return len(self.values)

    def waiting_items(self) -> int:
        """Items that nobody had when the last command was applied."""
        return len(self.waiting)
