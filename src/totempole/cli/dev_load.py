"""`load` of `totem dev`: a program at each node, all in one group. Each sends, and their orders are compared.

Totem promises that messages which two programs both receive come to both in the same order, whatever was
parted, killed or restarted meanwhile. So every second the programs' orders are compared, each pair by what
both have received.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import totempole
from totempole.client.endpoint import Reconnect
from totempole.client.events import Messages
from totempole.client.session import Group, connect
from totempole.errors import TotemError

GROUP = "dev-load"
RATE = 100
RATE_MAX = 2_000
"""Messages a second, of all programs together."""
REMEMBERED = 4_000
"""Deliveries of each program that are compared."""
TICK_S = 1.0
AGAIN_S = 0.2
_MESSAGE = Struct(">IQ")

Message = tuple[int, int]
"""Who sent it, and its number there."""


class Orders:
    """What each program was delivered last."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._delivered: dict[int, deque[Message]] = {number: deque(maxlen=REMEMBERED) for number in numbers}

    def add(self, number: int, message: Message) -> None:
        self._delivered[number].append(message)

    def difference(self) -> str:
        """Two messages that two programs have in different orders; empty if there are none."""
        for one, other in itertools.combinations(self._delivered, 2):
            places = {message: place for place, message in enumerate(self._delivered[one])}
            common = [message for message in self._delivered[other] if message in places]
            for first, second in itertools.pairwise(common):
                if places[first] >= places[second]:
                    return f"node {other} has {_text(first)} before {_text(second)}, and node {one} not"
        return ""


def _text(message: Message) -> str:
    return f"message {message[1]} of node {message[0]}"


@contextmanager
def _unlogged() -> Iterator[None]:
    """Sessions say when their node has gone and is back; whoever killed it knows."""
    logger = logging.getLogger("totempole.client")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


class Tick(NamedTuple):
    """One second."""

    delivered: Mapping[int, int]
    """Messages, at each node."""
    difference: str


class GroupLoad:
    """Runs on a thread of its own from `start` to `stop`, and tells every second, on that thread."""

    def __init__(self, sockets: Mapping[int, Path], rate: float, tell: Callable[[Tick], None]) -> None:
        self._sockets = sockets
        self._pause_s = len(sockets) / rate
        self._tell = tell
        self.sent = 0
        self.delivered: Counter[int] = Counter()
        """Since the start."""
        self.difference = ""
        """The first that was found."""
        self._orders = Orders(sockets)
        self._shown: Counter[int] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="totem-dev-load", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._running.wait()

    def stop(self) -> None:
        assert self._loop is not None, "it was started"
        assert self._main is not None, "it was started"
        with suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError), _unlogged():
            totempole.run(self._drive())

    async def _drive(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self._running.set()
        async with asyncio.TaskGroup() as tasks:
            for number in self._sockets:
                tasks.create_task(self._program(number))
            tasks.create_task(self._count())

    async def _program(self, number: int) -> None:
        """Comes back whenever its node does."""
        forever = Reconnect(give_up_s=None)
        while True:
            try:
                async with (
                    connect(str(self._sockets[number]), name="totem dev load", reconnect=forever) as session,
                    session.join(GROUP) as group,
                    asyncio.TaskGroup() as tasks,
                ):
                    tasks.create_task(self._send(number, group))
                    tasks.create_task(self._receive(number, group))
            except* (TotemError, OSError):
                await asyncio.sleep(AGAIN_S)

    async def _send(self, number: int, group: Group) -> None:
        while True:
            self.sent += 1
            await group.multicast(_MESSAGE.pack(number, self.sent))
            await asyncio.sleep(self._pause_s)

    async def _receive(self, number: int, group: Group) -> None:
        async for event in group:
            if isinstance(event, Messages):
                for payload in event.payloads:
                    self._orders.add(number, _MESSAGE.unpack(payload))
                self.delivered[number] += len(event.payloads)

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            difference = self._orders.difference()
            self.difference = self.difference or difference
            delivered = {number: self.delivered[number] - self._shown[number] for number in self._sockets}
            self._shown = self.delivered.copy()
            self._tell(Tick(delivered, difference))
