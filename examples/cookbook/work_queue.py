"""A work queue: no item is lost, and each is done once, whichever workers die."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import totempole
from totempole.objects import Queue

LEASE_S = 5.0
IDLE_S = 0.2


async def add(values: list[Any]) -> None:
    async with totempole.connect() as session, session.replica(Queue, "work") as queue:
        await queue.call_many(Queue.put, [(value,) for value in values])


async def worker(do: Callable[[Any, int], Awaitable[None]]) -> None:
    """`do` gets an item and a token. If it writes somewhere, that should refuse lower tokens for the item."""
    async with totempole.connect() as session, session.replica(Queue, "work") as queue:
        while True:
            work = await queue.call(Queue.take, LEASE_S)
            if work is None:
                await asyncio.sleep(IDLE_S)
                continue
            await do(work.value, work.token)
            with suppress(totempole.Refused):  # it took too long, and somebody else has the item now
                await queue.call(Queue.done, work.item, work.token)
