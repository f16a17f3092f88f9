"""A program with replicated objects, for tests: it calls them, and writes down what it called and was told.

`python -m totempole.lab.object_program SOCKET DIRECTORY NAME` takes commands on standard input, one a line,
and says lines of JSON:

    work [PAUSE_MS]    calls a dict, a lock, a queue and a counter from several tasks, until `rest`
    peek               from here on, what should be read is peeked at: a mistake that a test must find
    rest               waits until no task has a call under way
    read               reads each object once, at the same time, and goes on
    settle             asks for the outcome of each call with a receipt, those of lives before included
    state              reads each object, and says where it is, and a digest of it
    report             how many calls have begun, and how they have ended

Calls go to DIRECTORY/NAME.calls, a line of JSON for each of these:

    begin NUMBER INSTANT OBJECT OPERATION ARGUMENTS     before the call is made
    receipt NUMBER TEXT
    end NUMBER INSTANT RESULT POSITION                  `position`: of its record, if that is known
    raised NUMBER INSTANT NAME                          the command itself has said no
    drop NUMBER WHY                                     surely nothing was called, or nothing was read

A program that is killed and started again appends to the same file. Instants are those of the steady clock,
which all processes of a machine have in common.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import time
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, Literal

from totempole.client.endpoint import Reconnect
from totempole.client.session import connect
from totempole.errors import TotemError, Unknown
from totempole.objects import Counter, Lock, Queue, ReplicatedDict
from totempole.objects.commands import Refused
from totempole.objects.replica import CallReceipt, Replica

OBJECTS: dict[str, type] = {"dict": ReplicatedDict, "lock": Lock, "queue": Queue, "counter": Counter}
KEYS = ("a", "b", "c")
LEASE_S = 1e9
"""No lease ends during a test: time plays no part."""
CALL_S = 1.0
"""The deadline of a call and of a read."""
SETTLE_S = 15.0
OPEN_S = 0.1
RECONNECT = Reconnect(first_s=0.05, most_s=0.2, give_up_s=None)
REFUSED = Refused.__name__

Kind = Literal["begin", "receipt", "end", "raised", "drop"]


class CallRecord:
    """The file. A line is written with one system call: whoever is killed loses none."""

    def __init__(self, path: Path) -> None:
        self.tally: Tally[str] = Tally()
        self.number = 0
        self.receipts: dict[int, tuple[str, str]] = {}
        """Object and text, of calls that have not ended."""
        objects: dict[int, str] = {}
        for kind, number, *rest in read_lines(path):
            self.number = max(self.number, number)
            if kind == "begin":
                objects[number] = rest[1]
            elif kind == "receipt":
                self.receipts[number] = (objects[number], rest[0])
            else:
                self.receipts.pop(number, None)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._file, b"\n")  # behind half a line

    def begin(self, name: str, operation: str, arguments: tuple[Any, ...]) -> int:
        self.number += 1
        self._write("begin", self.number, time.monotonic(), name, operation, arguments)
        return self.number

    def receipt(self, number: int, name: str, text: str) -> None:
        self.receipts[number] = (name, text)
        self._write("receipt", number, text)

    def end(self, number: int, result: Any, position: int | None) -> None:
        self._over("end", number, time.monotonic(), result, position)

    def raised(self, number: int, error: Exception) -> None:
        self._over("raised", number, time.monotonic(), type(error).__name__)

    def drop(self, number: int, error: Exception) -> None:
        self._over("drop", number, f"{type(error).__name__}: {error}")

    def _over(self, kind: Kind, number: int, *rest: Any) -> None:
        self.receipts.pop(number, None)
        self._write(kind, number, *rest)

    def _write(self, kind: Kind, *fields: Any) -> None:
        self.tally[kind] += 1
        os.write(self._file, json.dumps([kind, *fields]).encode() + b"\n")


def read_lines(path: Path) -> list[list[Any]]:
    """All whole lines."""
    lines = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found = json.loads(line)
        except ValueError:
            continue  # the program was killed in the middle of it
        if isinstance(found, list):
            lines.append(found)
    return lines


class Caller:
    """The objects, and tasks that call them."""

    def __init__(self, name: str, record: CallRecord) -> None:
        self.name = name
        self.record = record
        self.replicas: dict[str, Replica[Any]] = {}
        self.is_peeking = False
        self.pause_s = 0.02
        self._random = random.Random()
        self._is_resting = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._values = count(1)
        self._life = f"{name}-{record.number}"

    # Calls

    async def command(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """The result as it was written down; None if there is none."""
        number = self.record.begin(name, method.__name__, arguments)
        replica = self.replicas[name].within(CALL_S)
        try:
            if self._random.random() < 0.5:
                return self._done(number, await replica.call(method, *_whole(method, arguments)))
            receipt = await replica.submit(method, *_whole(method, arguments))
            self.record.receipt(number, name, str(receipt))
            return self._done(number, await receipt.result(CALL_S), receipt.position)
        except Refused as refusal:
            self.record.raised(number, refusal)
        except Unknown as unknown:
            if unknown.receipt is not None:
                self.record.receipt(number, name, str(unknown.receipt))
        except TotemError as error:
            self.record.drop(number, error)
        return None

    def _done(self, number: int, result: Any, position: int | None = None) -> Any:
        told = plain(result)
        self.record.end(number, told, position)
        return told

    async def read(self, name: str, operation: str, method: Callable[..., Any], *arguments: Any) -> Any:
        number = self.record.begin(name, operation, arguments)
        replica = self.replicas[name].within(CALL_S)
        try:
            if self.is_peeking:
                return self._done(number, replica.peek(method, *arguments))
            return self._done(number, await replica.read(method, *arguments))
        except TotemError as error:
            self.record.drop(number, error)

    # Tasks

    def work(self) -> None:
        self._is_resting.clear()
        doing = (self._use_dict, self._use_dict, self._use_lock, self._use_queue, self._count)
        self._tasks += [asyncio.create_task(self._repeat(each)) for each in doing]

    async def rest(self) -> None:
        self._is_resting.set()
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)

    def read_all(self) -> None:
        self._tasks += [asyncio.create_task(each) for each in self._reads()]

    def _reads(self) -> Iterator[Coroutine[Any, Any, Any]]:
        for key in KEYS:
            yield self.read("dict", "get", ReplicatedDict.get, key)
            yield self.read("lock", "owner", owner, key)
        yield self.read("counter", "get", Counter.get)
        yield self.read("queue", "size", Queue.size)

    async def _repeat(self, do: Callable[[], Awaitable[object]]) -> None:
        while not self._is_resting.is_set():
            await do()
            await asyncio.sleep(self.pause_s * self._random.uniform(0.5, 1.5))

    async def _use_dict(self) -> None:
        key = self._random.choice(KEYS)
        value = f"{self._life}-{next(self._values)}"
        chosen = self._random.random()
        if chosen < 0.5:
            await self.read("dict", "get", ReplicatedDict.get, key)
        elif chosen < 0.75:
            await self.command("dict", ReplicatedDict.set, key, value)
        elif chosen < 0.9:
            before = await self.read("dict", "get", ReplicatedDict.get, key)
            await self.command("dict", ReplicatedDict.compare_and_set, key, before, value)
        else:
            await self.command("dict", ReplicatedDict.pop, key)

    async def _use_lock(self) -> None:
        lock = self._random.choice(KEYS[:2])
        token = await self.command("lock", Lock.acquire, lock, self.name)
        await self.read("lock", "owner", owner, lock)
        if token is not None:
            await self.command("lock", Lock.release, lock, token)

    async def _use_queue(self) -> None:
        await self.command("queue", Queue.put, f"{self._life}-{next(self._values)}")
        await self.read("queue", "size", Queue.size)
        work = await self.command("queue", Queue.take)
        if work is not None:
            await self.command("queue", Queue.done, *work[:2])

    async def _count(self) -> None:
        await self.command("counter", Counter.add, 1)
        await self.read("counter", "get", Counter.get)

    # The end

    async def settle(self) -> None:
        await asyncio.gather(*[self._settle(*each) for each in list(self.record.receipts.items())])

    async def _settle(self, number: int, where: tuple[str, str]) -> None:
        name, text = where
        receipt: CallReceipt[Any] = self.replicas[name].receipt(text)
        try:
            self._done(number, await receipt.result(SETTLE_S), receipt.position)
        except Refused as refusal:
            self.record.raised(number, refusal)
        except Unknown as unknown:
            logging.warning("nobody knows %s: %s", receipt, unknown)

    async def state(self) -> dict[str, Any]:
        found = {}
        for read in self._reads():
            await read
        for name, replica in self.replicas.items():
            machine = replica._running.hosting.machine
            found[name] = [machine.applied, machine.commands, machine.digest().hex()]
        queue: Queue = self.replicas["queue"].peek(_itself)
        return {"objects": found, "queue": [queue.values[item] for item in sorted(queue.values)]}


def owner(lock: Lock, name: str) -> str | None:
    lease = lock.holder(name)
    return None if lease is None else lease.owner


def _itself(state: Any) -> Any:
    return state


def _whole(method: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """With what is left out of the record."""
    return (*arguments, LEASE_S) if method in (Lock.acquire, Queue.take) else arguments


def as_recorded(method: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without what is left out of the record."""
    return arguments[:-1] if method in ("acquire", "take", "pop") else arguments


def plain(result: Any) -> Any:
    """As JSON has it."""
    return [result.item, result.token, result.value] if hasattr(result, "token") else result


class Program:
    """Carries commands out, one after the other."""

    def __init__(self, socket: str, directory: Path, name: str) -> None:
        self._socket = socket
        self._record = CallRecord(directory / f"{name}.calls")
        self._caller = Caller(name, self._record)
        self._buffer = b""
        self._commands: asyncio.Queue[list[str]] = asyncio.Queue()

    async def run(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._on_input)
        async with AsyncExitStack() as stack:
            await self._open(stack)
            _say(event="open")
            while words := await self._commands.get():
                verb, *rest = words
                answer = await COMMANDS[verb](self, *rest)
                _say(event="report", done=verb, **(answer or {}))
        os._exit(0)  # whoever leads is gone

    async def _open(self, stack: AsyncExitStack) -> None:
        """As soon as there is a daemon."""
        while True:
            try:
                session = await stack.enter_async_context(connect(self._socket, reconnect=RECONNECT))
                break
            except TotemError as error:
                logging.info("no daemon yet: %s", error)
                await asyncio.sleep(OPEN_S)
        for name, cls in OBJECTS.items():
            self._caller.replicas[name] = await stack.enter_async_context(session.replica(cls, name))

    def _on_input(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._commands.put_nowait(line.decode().split())
        if not data:
            self._commands.put_nowait([])

    async def _work(self, pause_ms: str = "20") -> None:
        self._caller.pause_s = float(pause_ms) / 1000
        self._caller.work()

    async def _peek(self) -> None:
        self._caller.is_peeking = True

    async def _rest(self) -> None:
        await self._caller.rest()

    async def _read(self) -> None:
        self._caller.read_all()

    async def _settle(self) -> None:
        await self._caller.settle()

    async def _state(self) -> dict[str, Any]:
        return await self._caller.state()

    async def _report(self) -> dict[str, Any]:
        return {"tally": dict(self._record.tally), "receipts": len(self._record.receipts)}


COMMANDS: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any] | None]]] = {
    "work": Program._work,
    "peek": Program._peek,
    "rest": Program._rest,
    "read": Program._read,
    "settle": Program._settle,
    "state": Program._state,
    "report": Program._report,
}


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(Program(sys.argv[1], Path(sys.argv[2]), sys.argv[3]).run())
