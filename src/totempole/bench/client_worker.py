"""Programs with sessions, for benchmarks: all in one group, led by lines of text.

`python -m totempole.bench.client_worker SOCKET [SESSIONS]` connects so many sessions to the daemon, all in
the group "bench", and prints a line of JSON whenever the least number of members that any of them sees has
changed. With FILE.toml in place of SOCKET the one session is that of an embedded `Node`, on a thread.
Commands come on standard input, one a line:

    flood SIZE SERVICE [WINDOW]  multicasts messages of so many bytes as fast as they are accepted; with a
                              window, only while fewer of its own bytes than that have not come back
    pace SIZE SERVICE RATE    so many messages a second, each with the time it was sent at
    turns SIZE SERVICE COUNT  one message at a time, the next when the last has come back; then reports
    quiet                     sends nothing from here on
    mark                      counts from here on
    report                    prints what was counted since the mark

It ends with its standard input. Messages are counted and not cut out, as a program would do that hands whole
batches on; those of `pace` and `turns` are looked at.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Any

from totempole.client.events import Messages, View
from totempole.client.session import Group, Session, connect
from totempole.errors import TotemError
from totempole.types import Service

GROUP = "bench"
RUN_BYTES = 870_000
"""Messages are handed over in runs of about so many bytes: several ring packets, and less than the credit."""
LATENCIES_MAX = 200_000
_SENT_AT = Struct(">Q")
SIZE_LEAST = _SENT_AT.size


class Program:
    """One session: what it sends, and what it counts."""

    def __init__(self, session: Session, group: Group, changed: Callable[[], None]) -> None:
        self.session = session
        self.group = group
        self.members = 0
        self.end = ""
        """Why it is over, if it is."""
        self.changes = self.sent = self.received = self.own = 0
        """`own`: received, and sent by this session."""
        self.latencies_us: list[float] = []
        self._changed = changed
        self._timed = False
        self._came_back = asyncio.Event()
        self._under_way = 0
        """Messages that were sent and have not come back."""
        self._marked_ns = time.monotonic_ns()
        self._sending: asyncio.Task[None] | None = None

    def mark(self) -> None:
        self.changes = self.sent = self.received = self.own = 0
        self.latencies_us = []
        self._marked_ns = time.monotonic_ns()

    # Receiving

    async def receive(self) -> None:
        try:
            async for event in self.group:
                if type(event) is Messages:
                    count = len(event.payloads)
                    self.received += count
                    if event.sender == self.session.process:
                        self.own += count
                        self._under_way -= count
                        self._came_back.set()
                        if self._timed:
                            self._note_latencies(event)
                elif type(event) is View:
                    self.changes += 1
                    self.members = len(event.members)
                    self._changed()
        except TotemError as error:
            self.end = str(error)
            self._changed()

    def _note_latencies(self, event: Messages) -> None:
        now_ns = time.monotonic_ns()
        for payload in event.payloads:
            (sent_ns,) = _SENT_AT.unpack_from(payload)
            if self._marked_ns <= sent_ns <= now_ns and len(self.latencies_us) < LATENCIES_MAX:
                self.latencies_us.append((now_ns - sent_ns) / 1000)

    # Sending

    def start(self, sending: Coroutine[Any, Any, None], *, timed: bool = False) -> None:
        self.quiet()
        self._timed = timed
        self._sending = asyncio.create_task(self._run(sending))

    def quiet(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    async def _run(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
        except TotemError as error:
            self.end = self.end or str(error)

    async def flood(self, size: int, service: Service, window_bytes: int) -> None:
        run = (os.urandom(size),) * max(1, min(RUN_BYTES, window_bytes // 2 or RUN_BYTES) // (size + 4))
        window = window_bytes // size or sys.maxsize
        self._under_way = 0
        while True:
            self._under_way += len(run)
            await self.group.multicast_many(run, service)
            self.sent += len(run)
            await asyncio.sleep(0)  # so that it can be told to be quiet
            while self._under_way + len(run) > window:
                self._came_back.clear()
                await self._came_back.wait()

    async def pace(self, size: int, service: Service, rate: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            await self.group.multicast(_stamped(size), service)
            self.sent += 1
            due_s = max(due_s + 1 / rate, loop.time())
            await asyncio.sleep(due_s - loop.time())

    async def turns(self, size: int, service: Service, count: int, done: Callable[[], None]) -> None:
        for _ in range(count):
            self._came_back.clear()
            await self.group.multicast(_stamped(size), service)
            self.sent += 1
            await self._came_back.wait()
        done()


def _stamped(size: int) -> bytes:
    return _SENT_AT.pack(time.monotonic_ns()) + bytes(size - SIZE_LEAST)


def _session(place: str, number: int) -> AbstractAsyncContextManager[Session]:
    if not place.endswith(".toml"):
        return connect(place, name=f"bench {number}", reconnect=False)
    # Here, because a client loads no node: its memory and its start are measured, too.
    from totempole.runtime.config import LoggingConfig, NodeConfig
    from totempole.runtime.node import Node

    config = NodeConfig.load(place)
    logging.basicConfig(level=config.logging.level.upper())
    return Node(replace(config, logging=LoggingConfig()))


class Programs:
    """All sessions of this process, and what leads them."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self._members = 0
        self._buffer = b""
        self._marked_ns = time.monotonic_ns()
        self._cpu_s = time.process_time()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, place: str, sessions: int) -> None:
        async with AsyncExitStack() as open_now, asyncio.TaskGroup() as tasks:
            for number in range(sessions):
                session = await open_now.enter_async_context(_session(place, number))
                group = await open_now.enter_async_context(session.join(GROUP, policy="block"))
                program = Program(session, group, self._changed)
                self.programs.append(program)
                tasks.create_task(program.receive())
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_command)
            self._changed()
            await self.over
            os._exit(0)  # all nodes are ended anyway: no farewells

    def _changed(self) -> None:
        members = min((program.members for program in self.programs), default=0)
        ends = [program.end for program in self.programs if program.end]
        if members != self._members or ends:
            self._members = members
            _say(event="members", count=members, sessions=len(self.programs), ends=ends[:3])

    # Commands

    def _on_command(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            if not self.over.done():
                self.over.set_result(None)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            verb, *words = line.decode().split()
            COMMANDS[verb](self, *words)

    def _flood(self, size: str, service: str, window_bytes: str = "0") -> None:
        for program in self.programs:
            program.start(program.flood(int(size), Service[service.upper()], int(window_bytes)))

    def _pace(self, size: str, service: str, rate: str) -> None:
        for program in self.programs:
            bytes_ = max(SIZE_LEAST, int(size))
            program.start(program.pace(bytes_, Service[service.upper()], float(rate)), timed=True)

    def _turns(self, size: str, service: str, count: str) -> None:
        program = self.programs[0]
        bytes_ = max(SIZE_LEAST, int(size))
        turns = program.turns(bytes_, Service[service.upper()], int(count), self._report)
        program.start(turns, timed=True)

    def _quiet(self) -> None:
        for program in self.programs:
            program.quiet()

    def _mark(self) -> None:
        self._marked_ns = time.monotonic_ns()
        self._cpu_s = time.process_time()
        for program in self.programs:
            program.mark()

    def _report(self) -> None:
        _say(
            event="report",
            seconds=(time.monotonic_ns() - self._marked_ns) / 1e9,
            cpu_s=time.process_time() - self._cpu_s,
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            sessions=[
                {
                    "process": str(program.session.process),
                    "sent": program.sent,
                    "received": program.received,
                    "own": program.own,
                    "changes": program.changes,
                    "end": program.end,
                }
                for program in self.programs
            ],
            latencies_us=self.programs[0].latencies_us,
        )


COMMANDS: dict[str, Callable[..., None]] = {
    "flood": Programs._flood,
    "pace": Programs._pace,
    "turns": Programs._turns,
    "quiet": Programs._quiet,
    "mark": Programs._mark,
    "report": Programs._report,
}


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def _main(place: str, sessions: int) -> None:
    await Programs().run(place, sessions)


def main() -> int:
    place = sys.argv[1]
    sessions = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    try:
        import uvloop
    except ImportError:
        asyncio.run(_main(place, sessions))
    else:
        uvloop.run(_main(place, sessions))
    return 0


if __name__ == "__main__":
    if not Path(sys.argv[1]).exists():
        sys.exit(f"client_worker: no socket at {sys.argv[1]}")
    sys.exit(main())
