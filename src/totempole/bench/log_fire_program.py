"""A program that appends to the durable log while its daemons are killed, and writes down what it was told.

`python -m totempole.bench.log_fire_program NAME FILE SOCKET...` keeps a few appends of every kind under way:
with keys, repeated until they are answered; many at once; without keys; until red. Each record's payload is
unlike all others. What it was told goes to the file, a line of JSON each, before the next append:

    ["green", PAYLOAD, BEGUN_NS, ENDED_NS, POSITION]    a position was returned
    ["red", PAYLOAD, RECEIPT]                           a receipt was returned, until="red"
    ["unknown", PAYLOAD, RECEIPT or null]               whether it is in the log is not known
    ["refused", PAYLOAD, TEXT]                          nothing was appended
    ["found", PAYLOAD, POSITION]                        what the receipt told later

At the word "quiet" on standard input it ends its appends, asks all receipts, says so with a report, and ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from totempole.bench.led_program import say
from totempole.client.endpoint import Reconnect
from totempole.client.log import Log, Receipt
from totempole.client.running import run
from totempole.client.session import connect
from totempole.errors import SessionError, Unknown

LOG = "fire"
TIMEOUT_S = 2.0
RECEIPT_S = 60.0
PAUSE_S = 0.05
RED_PAUSE_S = 0.25
"""Receipts are asked one by one in the end, and read from the disk: there should not be too many."""
BATCH = 20
RECONNECT = Reconnect(first_s=0.02, most_s=0.2)


class Program:
    def __init__(self, name: str, log: Log, file: Path) -> None:
        self._name = name
        self._log = log
        self._file = open(file, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        self._quiet = asyncio.Event()
        self._receipts: dict[str, Receipt] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        kinds: list[Callable[[str], Coroutine[Any, Any, None]]] = [
            self._with_key,
            self._with_key,
            self._many,
            self._without_key,
            self._until_red,
        ]
        self._tasks = [
            asyncio.create_task(self._repeat(kind, f"{self._name}-{place}"))
            for place, kind in enumerate(kinds)
        ]

    async def _repeat(self, append: Callable[[str], Coroutine[Any, Any, None]], name: str) -> None:
        number = 0
        while not self._quiet.is_set():
            number += 1
            payload = f"{name}-{number}"
            try:
                await append(payload)
            except SessionError as error:
                self._note("refused", payload, str(error))
                await asyncio.sleep(PAUSE_S)

    def _note(self, *words: object) -> None:
        self._file.write(json.dumps(words) + "\n")

    # Appends

    async def _with_key(self, payload: str) -> None:
        """The same record again and again, until its position is told."""
        begun_ns = time.monotonic_ns()
        while True:
            try:
                position = await self._log.append(payload.encode(), key=payload, timeout=TIMEOUT_S)
            except SessionError:  # Unknown among them
                await asyncio.sleep(PAUSE_S)
            else:
                self._note("green", payload, begun_ns, time.monotonic_ns(), position)
                return

    async def _many(self, payload: str) -> None:
        payloads = [f"{payload}-{index}" for index in range(BATCH)]
        contents = [each.encode() for each in payloads]
        begun_ns = time.monotonic_ns()
        while True:
            try:
                positions = await self._log.append_many(contents, payloads, timeout=TIMEOUT_S)
            except SessionError:
                await asyncio.sleep(PAUSE_S)
            else:
                ended_ns = time.monotonic_ns()
                for each, position in zip(payloads, positions, strict=True):
                    self._note("green", each, begun_ns, ended_ns, position)
                await asyncio.sleep(PAUSE_S)
                return

    async def _without_key(self, payload: str) -> None:
        begun_ns = time.monotonic_ns()
        try:
            position = await self._log.append(payload.encode(), timeout=TIMEOUT_S)
        except Unknown as unknown:
            receipt = unknown.receipt
            self._note("unknown", payload, None if receipt is None else str(receipt))
            if receipt is not None:
                self._receipts[payload] = receipt
        else:
            self._note("green", payload, begun_ns, time.monotonic_ns(), position)

    async def _until_red(self, payload: str) -> None:
        try:
            receipt = await self._log.append(payload.encode(), until="red", timeout=TIMEOUT_S)
        except Unknown:
            self._note("unknown", payload, None)
        else:
            self._note("red", payload, str(receipt))
            self._receipts[payload] = receipt
        await asyncio.sleep(RED_PAUSE_S)

    # The end

    def on_input(self) -> None:
        os.read(sys.stdin.fileno(), 4096)
        self._quiet.set()

    async def end(self) -> None:
        await self._quiet.wait()
        await asyncio.gather(*self._tasks)
        for payload, receipt in self._receipts.items():
            try:
                self._note("found", payload, await receipt.position(timeout=RECEIPT_S))
            except SessionError as error:
                self._note("unfound", payload, str(error))
        self._file.close()
        say(event="report", receipts=len(self._receipts))


async def lead(name: str, file: Path, sockets: list[str]) -> None:
    async with connect(sockets, name=name, reconnect=RECONNECT) as session, session.log(LOG) as log:
        program = Program(name, log, file)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), program.on_input)
        program.start()
        say(event="connected")
        await program.end()


if __name__ == "__main__":
    run(lead(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
