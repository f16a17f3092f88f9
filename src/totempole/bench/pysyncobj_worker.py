"""A PySyncObj node for benchmarks: a replicated object that counts, led by lines of text.

`python -m totempole.bench.pysyncobj_worker OWN OTHER,OTHER BATCHES [JOURNAL]` with addresses as HOST:PORT,
BATCHES 0 or 1 (its `appendEntriesUseBatch`) and a file for its journal. The node is ticked by this program,
which the library offers for programs with a loop of their own and which spares it a thread. Commands, one a
line:

    flood SIZE WINDOW         keeps so many operations with an argument of so many bytes under way; of each
                              so many of them, one is timed
    turns SIZE COUNT          one operation at a time; then reports
    quiet                     starts none from here on
    mark                      counts from here on
    report                    prints what was counted since the mark

It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated

TICK_S = 0.01
TIMED_EVERY = 16
BUFFER_BYTES = 2**16
"""Of sockets. Its default, 8 KiB, is less than one packet of the loopback interface, which then stalls."""


class Counter(SyncObj):  # type: ignore[misc]  # the library is not typed
    def __init__(self, own: str, others: list[str], batches: bool, journal: str | None) -> None:
        self.applied = 0
        conf = SyncObjConf(
            autoTick=False,
            bindAddress=own,  # or it takes the port of all addresses, and hosts on loopback share them
            sendBufferSize=BUFFER_BYTES,
            recvBufferSize=BUFFER_BYTES,
            appendEntriesUseBatch=batches,
            journalFile=journal,
        )
        super().__init__(own, others, conf)

    @replicated  # type: ignore[untyped-decorator]
    def operation(self, payload: bytes) -> None:
        self.applied += 1


class Node:
    def __init__(self, own: str, others: list[str], batches: bool, journal: str | None) -> None:
        self._object = Counter(own, others, batches, journal)
        self._commands: deque[str | None] = deque()
        self._running = True
        self._payload = b""
        self._window = self._under_way = 0
        self._turns_left = 0
        self._started_ns = 0
        self._told: tuple[bool, bool] | None = None
        self._mark()

    def _mark(self) -> None:
        self._marked_ns = time.monotonic_ns()
        self._cpu_s = time.process_time()
        self._applied = self._object.applied
        self._latencies_us: list[float] = []
        self._failed = 0

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        while self._running:
            self._object.doTick(TICK_S)
            self._tell_state()
            while self._commands:
                self._obey(self._commands.popleft())
            self._feed()

    def _read(self) -> None:
        for line in sys.stdin:
            self._commands.append(line)
        self._commands.append(None)

    def _tell_state(self) -> None:
        leads = self._object._isLeader()
        state = (bool(self._object.isReady()), leads)
        if state != self._told:
            self._told = state
            _say(event="state", ready=state[0], leads=leads)

    def _obey(self, line: str | None) -> None:
        if line is None:
            self._running = False
            return
        verb, *words = line.split()
        COMMANDS[verb](self, *words)

    # Operations

    def _flood(self, size: str, window: str) -> None:
        self._payload = os.urandom(int(size))
        self._window = int(window)

    def _feed(self) -> None:
        """As many as the window has room for."""
        operation, payload, done = self._object.operation, self._payload, self._done
        count = self._window - self._under_way
        if count > 0:
            self._under_way += count
            for number in range(count):
                if number % TIMED_EVERY:
                    operation(payload, callback=done)
                else:
                    operation(payload, callback=partial(self._timed_done, time.monotonic_ns()))

    def _done(self, result: Any, error: int) -> None:
        self._under_way -= 1
        self._failed += error != 0

    def _timed_done(self, started_ns: int, result: Any, error: int) -> None:
        self._latencies_us.append((time.monotonic_ns() - started_ns) / 1000)
        self._done(result, error)

    def _quiet(self) -> None:
        self._window = 0

    def _turns(self, size: str, count: str) -> None:
        self._payload = os.urandom(int(size))
        self._turns_left = int(count)
        self._next_turn()

    def _next_turn(self) -> None:
        self._started_ns = time.monotonic_ns()
        self._object.operation(self._payload, callback=self._turn_done)

    def _turn_done(self, result: Any, error: int) -> None:
        self._latencies_us.append((time.monotonic_ns() - self._started_ns) / 1000)
        self._failed += error != 0
        self._turns_left -= 1
        if self._turns_left:
            self._next_turn()
        else:
            self._report()

    def _report(self) -> None:
        _say(
            event="report",
            seconds=(time.monotonic_ns() - self._marked_ns) / 1e9,
            cpu_s=time.process_time() - self._cpu_s,
            applied=self._object.applied - self._applied,
            total=self._object.applied,
            under_way=self._under_way,
            failed=self._failed,
            latencies_us=self._latencies_us,
        )


COMMANDS: dict[str, Callable[..., None]] = {
    "flood": Node._flood,
    "turns": Node._turns,
    "quiet": Node._quiet,
    "mark": Node._mark,
    "report": Node._report,
}


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> int:
    own, others, batches, *journal = sys.argv[1:]
    Node(own, others.split(","), batches == "1", journal[0] if journal else None).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
