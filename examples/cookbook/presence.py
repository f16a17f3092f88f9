"""Presence: who is there, by name, and who has come or gone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import totempole

News = Callable[[set[str], set[str]], None]


class Presence:
    def __init__(self, group: totempole.Group, news: News) -> None:
        self.group, self.news = group, news
        self.here: set[str] = set()

    async def watch(self) -> None:
        async for event in self.group:
            if isinstance(event, totempole.View) and event.kind == "regular":
                before, self.here = self.here, {name.decode() for name in event.info.values()}
                if self.here != before:
                    self.news(self.here - before, before - self.here)


@asynccontextmanager
async def presence(name: str, news: News) -> AsyncIterator[Presence]:
    """Is there under this name. `news` is told who has come and who has gone."""
    async with totempole.connect() as session, session.join("presence", info=name.encode()) as group:
        made = Presence(group, news)
        watching = asyncio.create_task(made.watch())
        yield made
        watching.cancel()
