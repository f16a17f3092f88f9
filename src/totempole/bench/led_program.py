"""A program on asyncio that a benchmark leads by lines of text (`workers.Worker`): what all of these do.

A command is one line on standard input: a verb and words. The program answers with lines of JSON, and ends
with its standard input. It measures one kind of call at a time, made by some tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from totempole.errors import TotemError

LATENCIES_MAX = 200_000


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class LedProgram:
    def __init__(self) -> None:
        self._buffer = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._error = ""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._mark()

    @property
    def commands(self) -> Mapping[str, Callable[..., None]]:
        """By their verbs. Those of all programs are here."""
        return {"quiet": self._quiet, "mark": self._mark, "report": self._report}

    async def follow(self) -> None:
        """Does as it is told, until its standard input ends. The daemon is ended anyway: no farewells."""
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_input)
        await self._over
        os._exit(0)

    def _on_input(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            if not self._over.done():
                self._over.set_result(None)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            verb, *words = line.decode().split()
            self.commands[verb](*words)

    # Calls

    def _start(self, calling: Callable[[], Awaitable[None]], count: int = 1) -> None:
        """By so many tasks, in place of those before."""
        self._quiet()
        self._tasks = [asyncio.create_task(self._run(calling)) for _ in range(count)]

    async def _run(self, calling: Callable[[], Awaitable[None]]) -> None:
        try:
            await calling()
        except TotemError as error:
            self._error = self._error or str(error)

    def _quiet(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    # What is counted

    def _mark(self) -> None:
        """Counts from here on."""
        self._marked_ns = time.monotonic_ns()
        self._cpu_s = time.process_time()
        self._done = 0
        self._latencies_us: list[float] = []

    def _count(self, start_ns: int, calls: int) -> None:
        self._done += calls
        if len(self._latencies_us) < LATENCIES_MAX:
            self._latencies_us.append((time.monotonic_ns() - start_ns) / 1000)

    def _report(self, **more: Any) -> None:
        say(
            event="report",
            seconds=(time.monotonic_ns() - self._marked_ns) / 1e9,
            cpu_s=time.process_time() - self._cpu_s,
            done=self._done,
            latencies_us=self._latencies_us,
            error=self._error,
            **more,
        )
