"""An event loop in virtual time: it waits by running the simulated world, and never in vain.

While a task can go on, time stands still: what a program computes takes no time. When all of them wait, the
events of the world run, one by one, until a task can go on or the next timer of the loop is due. So one seed
gives one run, whatever the machine does.

Futures and tasks have hashes of their own, so that the order in which asyncio goes through sets of them is
the same in every process. Whatever would wait for the real world raises `NotSimulated`: threads,
subprocesses, real sockets, signals.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import base_events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial, partialmethod
from itertools import count
from math import ceil
from typing import Any, NoReturn, Protocol, TypeVar, cast

from totempole.errors import TotemError
from totempole.sim.clock import Scheduler
from totempole.sim.streams import Channel, Draw
from totempole.testing.stream_transport import StreamServer, StreamTransport

SPINS_MAX = 1_000
"""Turns of the loop in one instant. From then on each takes a microsecond, so that a program that waits with
`sleep(0)` in a loop goes on, too."""
LIMIT_S = 600.0
TCP_US = 50
"""How long bytes take between a program and its clients."""
LOCAL = (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0")


class NotSimulated(TotemError, RuntimeError):
    """The program asks for something that there is not in virtual time."""


class TimeOver(AssertionError):
    """The test has taken more virtual time than it may: it waits for something that does not come."""


class Place(Protocol):
    """Where a task runs: one life of a program."""

    host: str

    @property
    def is_over(self) -> bool: ...

    def entered(self, task: asyncio.Task[Any]) -> None: ...

    def connected(self, end: StreamTransport | StreamServer) -> None: ...


PLACE: ContextVar[Place | None] = ContextVar("totempole_place", default=None)
"""Tasks inherit it from the one that starts them."""

T = TypeVar("T")
AnyTask = TypeVar("AnyTask", bound=asyncio.Task[Any])
Enter = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Accept = Callable[[], tuple[Channel, Channel]]
"""A new connection: the channels to read from and to write to. Raises OSError."""


class VirtualFuture(asyncio.Future[Any]):
    def __init__(self, *, loop: VirtualLoop) -> None:
        self._number = next(loop.numbers)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class VirtualTask(asyncio.Task[Any]):
    def __init__(self, work: Any, *, loop: VirtualLoop, **options: Any) -> None:
        self._number = next(loop.numbers)
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


class AtOnce(Executor):
    """In place of threads: what takes long on a real host takes no time here."""


class VirtualLoop(base_events.BaseEventLoop):
    _ready: deque[asyncio.Handle]
    _thread_id: int | None

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.numbers = count(1)
        self.listeners: dict[str, Accept] = {}
        """Unix sockets, by their paths, and servers, by host and port."""
        self._free_ports = count(50_000)
        self.limit_us = int(limit_s * 1_000_000)
        self.on_limit: Callable[[], object] = lambda: None
        """Called when the time is over, and again a second later."""
        self._spins = 0
        self._clock_resolution = 1e-6
        self._selector = self  # what the loop waits with
        self.set_task_factory(cast(Any, _new_task))

    # Time

    def time(self) -> float:
        return self.scheduler.now_us / 1_000_000

    def select(self, timeout: float | None) -> list[Any]:
        """The loop has nothing to do for so long. It is told of no files: there are none."""
        scheduler = self.scheduler
        if timeout is not None and timeout <= 0:
            self._spins += 1
            if self._spins > SPINS_MAX:
                scheduler.run_until(scheduler.now_us + 1)
            return []
        self._spins = 0
        until_us = self.limit_us
        if timeout is not None:
            until_us = min(until_us, scheduler.now_us + ceil(timeout * 1_000_000 - 1e-3))
        while not self._ready:
            if not scheduler.step(until_us):
                break
        if scheduler.now_us >= self.limit_us and not self._ready:
            self.limit_us += 1_000_000
            self.call_soon(self.on_limit)
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass  # nothing waits for it

    # Tasks

    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(loop=self)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._thread_id not in (None, threading.get_ident()):
            _refuse("another thread's call")
        return self.call_soon(callback, *args, context=context)

    # Connections

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: str | None = None, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if options or path is None:
            _refuse("a real Unix socket")
        if str(path) not in self.listeners:
            raise FileNotFoundError(2, "no simulated daemon here: start the program with cluster.start")
        return self._connect(protocol_factory, str(path))

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Any = None,
        **_options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """To a server of the same host; the test itself may name any."""
        here = _host_here()
        target = here if host in LOCAL else str(host)
        if ssl or sock is not None or (here and target != here):
            _refuse(f"a connection to {host or 'a socket'}")
        if f"{target}:{port}" not in self.listeners:
            raise ConnectionRefusedError(111, f"nobody listens at {target}:{port}")
        return self._connect(protocol_factory, f"{target}:{port}")

    def _connect(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], where: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        place = PLACE.get()
        if place is not None and place.is_over:
            raise ConnectionRefusedError(111, "the host is down")
        protocol = protocol_factory()
        return self._join(protocol, *self.listeners[where]()), protocol

    def _join(self, protocol: asyncio.BaseProtocol, incoming: Channel, outgoing: Channel) -> StreamTransport:
        transport = StreamTransport(self, protocol, incoming, outgoing)
        place = PLACE.get()
        if place is not None:
            place.connected(transport)
        return transport

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **_options: Any,
    ) -> StreamServer:
        """On the program's own host, whatever address it names."""
        if ssl or port is None:
            _refuse("a server of TLS, or of a socket")
        here, chosen = _host_here(), port or next(self._free_ports)
        if f"{here}:{chosen}" in self.listeners:
            raise OSError(98, f"port {chosen} is in use")
        stop = self.listen(f"{here}:{chosen}", protocol_factory, lambda: TCP_US)
        server = StreamServer(self, (here, chosen), stop)
        place = PLACE.get()
        if place is not None:
            place.connected(server)
        return server

    def listen(
        self, where: str, protocol_factory: Callable[[], asyncio.BaseProtocol], delay_us: Draw
    ) -> Callable[[], None]:
        """Each connection has a protocol, in the context of this call. What is returned ends it."""
        context = copy_context()

        def accept() -> tuple[Channel, Channel]:
            to_server, to_client = (Channel(self.scheduler, delay_us) for _ in range(2))
            context.run(lambda: self._join(protocol_factory(), to_server, to_client))
            return to_client, to_server

        def stop() -> None:
            if self.listeners.get(where) is accept:
                del self.listeners[where]

        self.listeners[where] = accept
        return stop

    @contextmanager
    def listening(self, path: str, enter: Enter, delay_us: Draw) -> Iterator[None]:
        """Serves a Unix socket: `enter` is called for each connection."""

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=self), enter, loop=self)

        stop = self.listen(path, protocol, delay_us)
        try:
            yield
        finally:
            stop()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        if not isinstance(executor, AtOnce):
            _refuse("a thread (asyncio.to_thread, run_in_executor)")
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


_REAL = (
    "add_reader",
    "remove_reader",
    "add_writer",
    "remove_writer",
    "add_signal_handler",
    "remove_signal_handler",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_datagram_endpoint",
    "create_unix_server",
    "connect_accepted_socket",
    "getaddrinfo",
    "getnameinfo",
    "sendfile",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_sendall",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)
"""What asks for the real world."""


def _host_here() -> str:
    """Empty for the test itself."""
    place = PLACE.get()
    return place.host if place is not None else ""


def _refuse(what: str, *_arguments: Any, **_options: Any) -> NoReturn:
    raise NotSimulated(
        f"{what} is of the real world, and this program runs in simulated time: leave it out of the test "
        "(docs/testing.md says what is simulated)"
    )


for _name in _REAL:
    setattr(VirtualLoop, _name, partialmethod(partial(_refuse, f"loop.{_name}")))


def _new_task(loop: Any, work: Coroutine[Any, Any, Any], **options: Any) -> VirtualTask:
    return placed(VirtualTask(work, loop=loop, **options), options.get("context"))


def placed(task: AnyTask, context: Context | None) -> AnyTask:
    """Tells the program whose task it is."""
    place = context.get(PLACE) if context is not None else PLACE.get()
    if place is not None:
        place.entered(task)
    return task
