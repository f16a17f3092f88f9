"""A program that calls a replicated object while nodes and programs are killed, and writes down what it was
told.

`python -m totempole.bench.object_fire_program NAME FILE SOCKET...` keeps a few calls of every kind under way:
without a deadline and with one, many at once, and submitted. Each call counts a name unlike all others. What
it was told goes to the file, a line of JSON each; a program that is started again goes on with that file, and
asks the receipts that it finds there.

    ["life"]                                    the program has started
    ["begun", NAME, AT_NS]                      before anything is called
    ["done", NAME, AT_NS, VALUE]                the result was returned
    ["told", NAME, VALUE]                       the result, by a receipt
    ["receipt", NAME, TEXT]                     it is not known what becomes of the call
    ["submitted", NAME, TEXT]                   the call is on the disk of the daemon's host
    ["refused", NAME, TEXT]                     nothing was called

At the word "quiet" on standard input it ends its calls, asks all receipts, says so with a report, and ends.
At "leave" it closes the replica, whatever is under way.
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
from totempole.bench.object_classes import Tally
from totempole.client.endpoint import Reconnect
from totempole.client.running import run
from totempole.client.session import connect
from totempole.errors import SessionError, Unknown
from totempole.objects.replica import CallReceipt, Replica

OBJECT = "tally"
DEADLINE_S = 0.5
SUBMIT_S = 5.0
RECEIPT_S = 2.0
LAST_RECEIPTS_S = 60.0
"""For all that are left in the end. There is no answer for a call that reached nobody."""
PAUSE_S = 0.1
BATCH = 5
RECONNECT = Reconnect(first_s=0.02, most_s=0.2)

Kind = Callable[[str], Coroutine[Any, Any, None]]


class Program:
    def __init__(self, name: str, replica: Replica[Tally], file: Path) -> None:
        self._replica = replica
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        told = [json.loads(line) for line in lines]
        self._prefix = f"{name}.{sum(words[0] == 'life' for words in told)}"
        self._receipts = open_receipts(told)
        self._file = open(file, "a", buffering=1, encoding="utf-8")  # noqa: SIM115
        self._is_quiet = asyncio.Event()
        self._is_leaving = False
        self._tasks: list[asyncio.Task[None]] = []
        self._note("life")

    def start(self) -> None:
        kinds: list[Kind] = [self._call, self._call, self._with_deadline, self._many, self._submit]
        self._tasks = [
            asyncio.create_task(self._repeat(kind, f"{self._prefix}-{place}"))
            for place, kind in enumerate(kinds)
        ]
        self._tasks.append(asyncio.create_task(self._ask_now_and_then()))

    async def _repeat(self, kind: Kind, prefix: str) -> None:
        number = 0
        while not self._is_quiet.is_set():
            number += 1
            await kind(f"{prefix}-{number}")
            await asyncio.sleep(PAUSE_S)

    def _note(self, *words: object) -> None:
        self._file.write(json.dumps(words) + "\n")

    # Calls

    def _begin(self, name: str) -> None:
        self._note("begun", name, time.monotonic_ns())

    def _take(self, name: str, answer: int | Exception) -> None:
        """What a call has returned or raised."""
        if isinstance(answer, int):
            self._note("done", name, time.monotonic_ns(), answer)
        elif isinstance(answer, Unknown):
            self._keep("receipt", name, answer.receipt)
        elif isinstance(answer, SessionError):
            self._note("refused", name, str(answer))
        else:
            raise answer

    def _keep(self, kind: str, name: str, receipt: object) -> None:
        text = str(receipt)
        self._note(kind, name, text)
        self._receipts[name] = text

    async def _call(self, name: str) -> None:
        self._begin(name)
        await self._answered(name, self._replica.call(Tally.count, name))

    async def _with_deadline(self, name: str) -> None:
        self._begin(name)
        await self._answered(name, self._replica.within(DEADLINE_S).call(Tally.count, name))

    async def _answered(self, name: str, call: Coroutine[Any, Any, int]) -> None:
        try:
            self._take(name, await call)
        except SessionError as error:
            self._take(name, error)

    async def _many(self, name: str) -> None:
        names = [f"{name}-{index}" for index in range(BATCH)]
        for each in names:
            self._begin(each)
        bounded = self._replica.within(DEADLINE_S)
        try:
            answers = await bounded.call_many(
                Tally.count, [(each,) for each in names], return_exceptions=True
            )
        except SessionError as error:
            answers = [error] * BATCH
        for each, answer in zip(names, answers, strict=True):
            self._take(each, answer)

    async def _submit(self, name: str) -> None:
        self._begin(name)
        try:
            receipt = await self._replica.within(SUBMIT_S).submit(Tally.count, name)
        except SessionError as error:
            self._take(name, error)
            return
        self._keep("submitted", name, receipt)
        await self._ask(name, receipt)

    # Receipts

    async def _ask_now_and_then(self) -> None:
        while not self._is_quiet.is_set():
            await self._ask_all()
            await asyncio.sleep(PAUSE_S)

    async def _ask_all(self) -> None:
        asked = list(self._receipts.items())
        await asyncio.gather(
            *(self._ask(name, self._replica.receipt(text, Tally.count)) for name, text in asked)
        )

    async def _ask(self, name: str, receipt: CallReceipt[int]) -> None:
        try:
            value = await receipt.result(timeout=RECEIPT_S)
        except SessionError:  # Unknown among them: it is asked again
            return
        if self._receipts.pop(name, None) is not None:
            self._note("told", name, value)

    # The end

    def on_input(self) -> None:
        word = os.read(sys.stdin.fileno(), 4096).strip()
        self._is_leaving = word == b"leave"
        self._is_quiet.set()

    async def end(self) -> None:
        await self._is_quiet.wait()
        if self._is_leaving:
            await self._replica.close()
        await asyncio.gather(*self._tasks)
        give_up_s = time.monotonic() + LAST_RECEIPTS_S
        while self._receipts and not self._is_leaving and time.monotonic() < give_up_s:
            before = len(self._receipts)
            await self._ask_all()
            if len(self._receipts) == before:
                break  # those that are left were all asked for long enough
        self._file.close()
        say(event="report", receipts=len(self._receipts))


def open_receipts(told: list[list[Any]]) -> dict[str, str]:
    """By name, of a program's earlier lives: those that have not told their result yet."""
    receipts: dict[str, str] = {}
    for kind, *words in told:
        if kind in ("receipt", "submitted"):
            receipts[words[0]] = words[1]
        elif kind == "told":
            receipts.pop(words[0], None)
    return receipts


async def lead(name: str, file: Path, sockets: list[str]) -> None:
    async with (
        connect(sockets, name=name, reconnect=RECONNECT) as session,
        session.replica(Tally, OBJECT) as replica,
    ):
        program = Program(name, replica, file)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), program.on_input)
        program.start()
        say(event="ready")
        await program.end()


if __name__ == "__main__":
    run(lead(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
