"""A node embedded in an asyncio program, without groups: what it sends goes to every node of its kind.

    async with RingNode(config) as node:
        await node.multicast(b"…", service=Service.SAFE)
        async for event in node:
            match event:
                case RingMessages(sender=sender, payloads=payloads): ...
                case RingView(kind="regular", members=members): ...

The node runs on a thread or in a process of its own (`placement`), so that a program that is busy does not
lose the token. `multicast` returns when the messages are accepted and waits while the ring pushes back.
Leaving the `async with` block leaves the ring: what was accepted is delivered first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from totempole.errors import ConfigurationError, SessionError, TotemError
from totempole.groups.packing import packed_bytes, weight
from totempole.runtime.config import NodeConfig
from totempole.runtime.hosting import Hosting, ThreadHosting
from totempole.runtime.ring_events import Event
from totempole.runtime.separate import ProcessHosting
from totempole.types import Service

SENDING_BYTES_MAX = 1_000_000
"""What may be under way to the node before `multicast` waits."""

Placement = Literal["thread", "process"]
T = TypeVar("T")


class RingNode:
    def __init__(
        self, config: NodeConfig, *, placement: Placement = "thread", logger: logging.Logger | None = None
    ) -> None:
        if placement not in ("thread", "process"):
            raise ConfigurationError(f"placement = {placement!r}: give thread or process")
        self._config = config
        self._placement = placement
        self._logger = logger or logging.getLogger("totempole")
        self._client: socket.socket | None = None
        self._mailbox: _LoopMailbox | None = None
        self._hosting: Hosting | None = None

    # Life

    async def start_with(self, client: socket.socket) -> None:
        """Enters, and serves this far end of a session of the program's own (node.py)."""
        self._client = client
        await self.__aenter__()

    async def __aenter__(self) -> Self:
        if self._mailbox is not None:
            raise SessionError("a node is entered once: make another one")
        self._mailbox = mailbox = _LoopMailbox(asyncio.get_running_loop())
        if self._placement == "thread":
            # Opening reads and checks the disk: not on the program's loop.
            opening = _Opening(lambda: ThreadHosting(self._config, self._logger, mailbox, self._client))
            try:
                self._hosting = await asyncio.to_thread(opening.run)
            except asyncio.CancelledError:
                opening.give_up()
                raise
        else:
            self._hosting = ProcessHosting(self._config, mailbox, self._client)
        self._hosting.start()
        try:
            await mailbox.first_event()
        except BaseException:
            self._hosting.stop_at_once()
            raise
        return self

    def stop_at_once(self) -> None:
        """Without leaving: the others miss it after `token_loss_us`."""
        _, hosting = self._inside()
        hosting.stop_at_once()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        mailbox, hosting = self._inside()
        if not mailbox.over.is_set():
            hosting.leave()
        await mailbox.over.wait()

    # Sending

    async def multicast(self, payload: bytes, service: Service = Service.AGREED) -> None:
        await self.multicast_many((payload,), service)

    async def multicast_many(self, payloads: Sequence[bytes], service: Service = Service.AGREED) -> None:
        """All or nothing is accepted, and in this order; each is delivered as a message of its own."""
        mailbox, hosting = self._inside()
        if not payloads:
            return
        limit = self._config.ring.packet_bytes_max
        for payload in payloads:
            if packed_bytes(1, len(payload)) > limit:
                raise ConfigurationError(
                    f"a message of {len(payload)} bytes does not fit packet_bytes_max = {limit}: cut it up"
                )
        taken = tuple(payloads)  # the caller may use its list again
        size = weight(taken)
        await mailbox.credit(size)
        hosting.send(taken, service, size)

    # Receiving

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event; the iteration ends when the node has left, and raises if it had to stop."""
        mailbox, hosting = self._inside()
        event = await mailbox.next_event()
        hosting.taken()
        return event

    async def status(self) -> dict[str, Any]:
        """What `totem status` shows."""
        _, hosting = self._inside()
        return await asyncio.to_thread(hosting.status)

    async def reload_keys(self) -> None:
        """Reads the key file again, as a daemon does upon SIGHUP; raises if it cannot be used."""
        _, hosting = self._inside()
        await asyncio.to_thread(hosting.reload_keys)

    def _inside(self) -> tuple[_LoopMailbox, Hosting]:
        if self._mailbox is None or self._hosting is None:
            raise SessionError("the node is not running: use it inside `async with`")
        return self._mailbox, self._hosting


class _Opening:
    """A node that a thread opens for a program that may not wait for it: then it is closed again."""

    def __init__(self, open_: Callable[[], ThreadHosting]) -> None:
        self._open = open_
        self._lock = threading.Lock()
        self._hosting: ThreadHosting | None = None
        self._given_up = False

    def run(self) -> ThreadHosting:
        hosting = self._open()
        with self._lock:
            self._hosting = hosting
            if self._given_up:
                hosting.close()
        return hosting

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            if self._hosting is not None:
                self._hosting.close()


class _LoopMailbox:
    """Where the node's thread and the program's loop meet. Each counter is written by one side only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.taken_bytes = 0
        self.over = asyncio.Event()
        self._loop = loop
        self._events: deque[tuple[Event, int]] = deque()
        self._error: TotemError | None = None
        self._news = asyncio.Event()
        self._news_told = False
        self._room = asyncio.Event()
        self._sent_bytes = 0
        self._accepted_bytes = 0

    # The node's side

    def put(self, event: Event, size: int) -> None:
        self._events.append((event, size))
        self._tell(self._on_news)

    def accepted(self, size: int) -> None:
        self._accepted_bytes += size
        self._tell(self._room.set)

    def ended(self, error: TotemError | None) -> None:
        self._error = error
        self._tell(self._on_end)

    def _tell(self, function: Any) -> None:
        if function == self._on_news:
            if self._news_told:
                return
            self._news_told = True
        with suppress(RuntimeError):  # the loop is closed: the program has ended without leaving
            self._loop.call_soon_threadsafe(function)

    # The program's side

    def _on_news(self) -> None:
        self._news_told = False
        self._news.set()

    def _on_end(self) -> None:
        self.over.set()
        self._news.set()
        self._room.set()

    async def first_event(self) -> None:
        """Returns when the node is up: it has installed its first configuration."""
        while not self._events:
            self._raise_if_over()
            await self._wait(self._news)

    async def next_event(self) -> Event:
        while not self._events:
            if self.over.is_set() and self._error is None:
                raise StopAsyncIteration
            self._raise_if_over()
            await self._wait(self._news)
        event, size = self._events.popleft()
        self.taken_bytes += size
        return event

    async def credit(self, size: int) -> None:
        """Waits until there is room for more; one batch may exceed it, so that none is too large."""
        while self._sent_bytes - self._accepted_bytes >= SENDING_BYTES_MAX:
            self._raise_if_over()
            await self._wait(self._room)
        self._raise_if_over()
        self._sent_bytes += size

    @staticmethod
    async def _wait(news: asyncio.Event) -> None:
        news.clear()
        await news.wait()

    def _raise_if_over(self) -> None:
        if self.over.is_set():
            raise self._error or SessionError("the node has left the ring")
