"""A replicated dict: the settings of a service, the same for all its programs."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import totempole
from totempole.objects import ReplicatedDict

WITHIN_S = 5.0


class Settings:
    def __init__(self, replica: totempole.Replica[ReplicatedDict]) -> None:
        self.replica = replica.within(WITHIN_S)

    def peek(self, key: str) -> Any:
        """From this program's memory: at once, in a minority too, and perhaps old."""
        return self.replica.peek(ReplicatedDict.get, key)

    async def get(self, key: str) -> Any:
        """With every write that has returned before, anywhere."""
        return await self.replica.read(ReplicatedDict.get, key)

    async def set(self, key: str, value: Any) -> None:
        await self.replica.call(ReplicatedDict.set, key, value)

    async def change(self, key: str, change: Callable[[Any], Any]) -> Any:
        """Read, compute, write: again if somebody else has written in between."""
        while True:
            before = await self.get(key)
            after = change(before)
            if await self.replica.call(ReplicatedDict.compare_and_set, key, before, after):
                return after


@asynccontextmanager
async def settings() -> AsyncIterator[Settings]:
    async with totempole.connect() as session, session.replica(ReplicatedDict, "settings") as replica:
        yield Settings(replica)
