"""Cache invalidation: programs keep what they have read from a database, and drop what another changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import totempole

KEEP_S = 10.0
Fetch = Callable[[str], Coroutine[Any, Any, bytes]]


class Entry(NamedTuple):
    until: float
    value: asyncio.Task[bytes]


class Cache:
    def __init__(self, group: totempole.Group, fetch: Fetch) -> None:
        self.group, self.fetch = group, fetch
        self.entries: dict[str, Entry] = {}

    async def get(self, key: str) -> bytes:
        now, entry = asyncio.get_running_loop().time(), self.entries.get(key)
        if entry is None or entry.until < now or (entry.value.done() and entry.value.exception()):
            # What is changed while it is fetched is dropped, and fetched again by the next one who asks.
            entry = self.entries[key] = Entry(now + KEEP_S, asyncio.create_task(self.fetch(key)))
        return await asyncio.shield(entry.value)

    async def changed(self, key: str) -> None:
        """To be called after each write. Returns when the news has its place in the order."""
        await (await self.group.multicast(key.encode())).delivered()

    async def listen(self) -> None:
        async for event in self.group:
            if isinstance(event, totempole.Messages):
                for key in event.payloads:
                    self.entries.pop(bytes(key).decode(), None)
            else:
                self.entries.clear()  # nodes have come or gone: something may have been missed


@asynccontextmanager
async def cache(fetch: Fetch) -> AsyncIterator[Cache]:
    async with totempole.connect() as session, session.join("changes") as group:
        made = Cache(group, fetch)
        listening = asyncio.create_task(made.listen())
        yield made
        listening.cancel()
