"""A program that appends to the durable log, for benchmarks, led by lines of text.

`python -m totempole.bench.log_worker SOCKET` connects to the daemon and opens the log "bench". It prints a
line of JSON when it is connected, and takes commands on standard input, one a line:

    append SIZE UNDER_WAY     keeps so many calls of `append` under way, each with a record of so many bytes
    append_many SIZE UNDER_WAY BATCH
                              keeps so many calls of `append_many` under way, each with so many records
    turns SIZE COUNT          one `append` at a time; then reports
    beat SIZE                 one `append` at a time until told to be quiet, and notes when each was answered
    quiet                     calls nothing from here on
    mark                      counts from here on
    report                    prints what was counted since the mark

It ends with its standard input.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from totempole.bench.led_program import LedProgram, say
from totempole.client.running import run
from totempole.client.session import Session, connect

LOG = "bench"


class Program(LedProgram):
    def __init__(self, session: Session) -> None:
        self._log = session.log(LOG)
        super().__init__()

    @property
    def commands(self) -> dict[str, Callable[..., None]]:
        return {
            **super().commands,
            "append": self._append,
            "append_many": self._append_many,
            "turns": self._turns,
            "beat": self._beat,
        }

    def _mark(self) -> None:
        super()._mark()
        self._last = -1
        self._answered_ns: list[int] = []

    def _append(self, size: str, under_way: str) -> None:
        payload = os.urandom(int(size))

        async def calling() -> None:
            while True:
                await self._timed(payload)

        self._start(calling, int(under_way))

    def _append_many(self, size: str, under_way: str, batch: str) -> None:
        payloads = [os.urandom(int(size))] * int(batch)

        async def calling() -> None:
            while True:
                start_ns = time.monotonic_ns()
                positions = await self._log.append_many(payloads)
                self._placed(start_ns, len(payloads), positions[-1])

        self._start(calling, int(under_way))

    def _turns(self, size: str, count: str) -> None:
        payload = os.urandom(int(size))

        async def calling() -> None:
            for _ in range(int(count)):
                await self._timed(payload)
            self._report()

        self._start(calling)

    def _beat(self, size: str) -> None:
        payload = os.urandom(int(size))

        async def calling() -> None:
            while True:
                await self._timed(payload)
                self._answered_ns.append(time.monotonic_ns())

        self._start(calling)

    async def _timed(self, payload: bytes) -> None:
        start_ns = time.monotonic_ns()
        position = await self._log.append(payload)
        self._placed(start_ns, 1, position)

    def _placed(self, start_ns: int, records: int, position: int) -> None:
        self._last = max(self._last, position)
        self._count(start_ns, records)

    def _report(self, **more: Any) -> None:
        super()._report(last=self._last, answered_ns=self._answered_ns, **more)


async def lead(socket: str) -> None:
    async with connect(socket, name="bench", reconnect=False) as session:
        program = Program(session)
        say(event="connected", process=str(session.process))
        await program.follow()


def main() -> int:
    run(lead(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
