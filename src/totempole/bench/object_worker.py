"""A program that has a replicated object, for benchmarks, led by lines of text.

`python -m totempole.bench.object_worker SOCKET` connects to the daemon and opens the object "bench". It
prints a line of JSON when it is ready, and takes commands on standard input, one a line:

    call SIZE CALLERS         so many tasks, each with one `Replica.call` after the other, of so many bytes
    call_many SIZE CALLERS BATCH
                              so many tasks, each with one `Replica.call_many` after the other
    read SIZE CALLERS         so many tasks, each with one `Replica.read` after the other
    peek SIZE                 one `Replica.peek` after the other
    fill BYTES SIZE           makes the object so large, with values of so many bytes; then reports
    quiet                     calls nothing from here on
    mark                      counts from here on
    report                    prints what was counted since the mark
    watch                     notes every few milliseconds how many calls have returned, and whether a
                              snapshot is being taken, until `report`

It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from totempole.bench.led_program import LedProgram, say
from totempole.bench.object_classes import KEY, Store
from totempole.client.running import run
from totempole.client.session import Session, connect
from totempole.objects.replica import Replica

OBJECT = "bench"
PEEKS = 1_000
"""Before other tasks have their turn."""
FILL_COUNT = 8_192
"""Values that one call of `fill` makes."""
WATCH_S = 0.02


class Program(LedProgram):
    def __init__(self, replica: Replica[Store]) -> None:
        self._replica = replica
        self._watching: asyncio.Task[None] | None = None
        super().__init__()

    @property
    def commands(self) -> dict[str, Callable[..., None]]:
        return {
            **super().commands,
            "call": self._call,
            "call_many": self._call_many,
            "read": self._read,
            "peek": self._peek,
            "fill": self._fill,
            "watch": self._watch,
        }

    def _mark(self) -> None:
        super()._mark()
        self._samples: list[tuple[int, int, bool]] = []

    def _call(self, size: str, callers: str) -> None:
        value = os.urandom(int(size))
        call, put_if = self._replica.call, Store.put_if

        async def calling() -> None:
            while True:
                start_ns = time.monotonic_ns()
                await call(put_if, KEY, value)
                self._count(start_ns, 1)

        self._start(calling, int(callers))

    def _call_many(self, size: str, callers: str, batch: str) -> None:
        arguments = [(KEY, os.urandom(int(size)))] * int(batch)
        call_many, put_if = self._replica.call_many, Store.put_if

        async def calling() -> None:
            while True:
                start_ns = time.monotonic_ns()
                await call_many(put_if, arguments)
                self._count(start_ns, len(arguments))

        self._start(calling, int(callers))

    def _read(self, size: str, callers: str) -> None:
        read, get = self._replica.read, Store.get

        async def calling() -> None:
            await self._replica.call(Store.put, KEY, os.urandom(int(size)))
            while True:
                start_ns = time.monotonic_ns()
                await read(get, KEY)
                self._count(start_ns, 1)

        self._start(calling, int(callers))

    def _peek(self, size: str) -> None:
        peek, get = self._replica.peek, Store.get

        async def calling() -> None:
            await self._replica.call(Store.put, KEY, os.urandom(int(size)))
            while True:
                start_ns = time.monotonic_ns()
                for _ in range(PEEKS):
                    peek(get, KEY)
                self._done += PEEKS
                self._latencies_us.append((time.monotonic_ns() - start_ns) / 1000 / PEEKS)
                await asyncio.sleep(0)

        self._start(calling)

    def _fill(self, total: str, size: str) -> None:
        async def calling() -> None:
            left, first = int(total) // int(size), 0
            while left:
                count = min(left, FILL_COUNT)
                await self._replica.call(Store.fill, first, count, int(size))
                first, left = first + count, left - count
            self._report()

        self._start(calling)

    # What was counted

    def _watch(self) -> None:
        snapshots = self._replica._running.hosting.snapshots

        async def watching() -> None:
            while True:
                taker = snapshots.taker if snapshots is not None else None
                is_busy = taker is not None and taker.is_busy
                self._samples.append((time.monotonic_ns(), self._done, is_busy))
                await asyncio.sleep(WATCH_S)

        self._watching = asyncio.create_task(watching())

    def _report(self, **more: Any) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        super()._report(samples=self._samples, **more)


async def lead(socket: str) -> None:
    session: Session
    async with (
        connect(socket, name="bench", reconnect=False) as session,
        session.replica(Store, OBJECT) as replica,
    ):
        await replica.call(Store.put, KEY, b"first")
        program = Program(replica)
        say(event="ready")
        await program.follow()


if __name__ == "__main__":
    run(lead(sys.argv[1]))
