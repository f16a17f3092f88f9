"""A daemon for tests: a ring of one, the real group layer, the real service, a real epoll loop on a thread;
and a plain blocking program to talk to it."""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from totempole.core import effects
from totempole.core.effects import Append, CancelTimer, SetTimer, Tell, Write
from totempole.core.inputs import Appended, Arrived, Expired, Input, Start, Written
from totempole.corel.commands import OpenLog
from totempole.corel.config import LogConfig
from totempole.corel.events import (
    Accepted,
    BarrierPassed,
    Durable,
    Fenced,
    GreenEnded,
    GreenLine,
    GreenRuns,
    Lost,
    Placed,
    Unknown,
)
from totempole.daemon.config import ClientsConfig
from totempole.daemon.service import ClientService
from totempole.groups import Batch, GroupConfig, GroupLayer, pack
from totempole.groups.events import GroupMessages, GroupView, Taken, ToProcesses
from totempole.session import (
    DAEMON_KINDS,
    HEAD,
    LARGE_BYTES_MAX,
    Credit,
    Done,
    Frame,
    Hello,
    Join,
    NetworkStatus,
    Policy,
    Send,
    Welcome,
    cost_of,
)
from totempole.session.codec import FrameReader, decode, encode
from totempole.stack import StackSpec, build
from totempole.structured_log import fields_of, name_of
from totempole.types import Payload, Service

LIMIT_S = 60.0
"""A guard against hanging, never a measure."""

T = TypeVar("T")


class Loop:
    """The host: what a driver is to its service, without network and disk."""

    def __init__(self, groups: GroupConfig, log: LogConfig | None = None) -> None:
        self._stack = build(StackSpec(1, groups=groups, log=log), {})
        assert self._stack.groups is not None
        self.layer: GroupLayer = self._stack.groups
        self.replica = self._stack.replica
        self.disk_works = True
        """Whether what is appended to the log becomes durable."""
        self._unwritten: deque[int] = deque()
        self.service: ClientService | None = None
        self.failure: BaseException | None = None
        self.network_status: tuple[NetworkStatus, ...] = ()
        self.skew_us = 0
        """Added to the clock, to bring deadlines near."""
        self._watched: dict[int, Callable[[int], None]] = {}
        self._timers: dict[Any, int] = {}
        self._to_self: deque[effects.Send] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._applying = False
        self._running = True
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll = select.epoll()
        self._epoll.register(self._waker, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, daemon=True)

    # The host's protocol

    def now_us(self) -> int:
        return time.monotonic_ns() // 1000 + self.skew_us

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def feed(self, given: Input) -> None:
        assert not self._applying, "an effect was answered with an input before the effects behind it"
        effects = self._stack.feed(self.now_us(), given)
        persisted: list[Input] = []
        self._applying = True
        for effect in effects:
            if isinstance(effect, Write):
                persisted.append(Written(effect.ticket))
            elif isinstance(effect, Append):
                self._unwritten.append(effect.ticket)
            else:
                self._apply(effect)
        self._applying = False
        for answer in persisted:
            self.feed(answer)

    def _sync(self) -> None:
        while self._unwritten and self.disk_works:
            self.feed(Appended(self._unwritten.popleft()))

    def _apply(self, effect: Any) -> None:
        match effect:
            case effects.Send(to=1):
                self._to_self.append(effect)
            case SetTimer(timer=timer, at_us=at_us):
                self._timers[timer] = at_us
            case CancelTimer(timer=timer):
                self._timers.pop(timer, None)
            case Tell(event=ToProcesses() | Taken() as event):
                assert self.service is not None
                self.service.grouped(event)
            case Tell(
                event=Accepted()
                | Durable()
                | Placed()
                | Fenced()
                | Lost()
                | Unknown()
                | BarrierPassed() as answer
            ):
                assert self.service is not None
                self.service.log_answered(answer)
            case Tell(event=GreenLine() | GreenRuns() | GreenEnded() as told):
                assert self.service is not None
                self.service.log_told(told)

    def watch(self, descriptor: int, on_ready: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        assert descriptor not in self._watched
        self._watched[descriptor] = on_ready
        self._epoll.register(descriptor, events)

    def rewatch(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)

    def at(self, due_us: int, function: Callable[[], None]) -> None:
        self._timers[function] = due_us

    def call(self, function: Callable[[], None]) -> None:
        self._calls.append(function)
        with suppress(OSError):
            os.eventfd_write(self._waker, 1)

    # Running

    def start(self) -> None:
        self._thread.start()
        self.ask(lambda: self.feed(Start()))
        if self.replica is not None:
            self.ask(lambda: self.feed(OpenLog(())))

    def stop(self) -> None:
        def halt() -> None:
            self._running = False

        self.call(halt)
        self._thread.join(LIMIT_S)
        self._epoll.close()
        os.close(self._waker)
        if self.failure is not None:
            raise self.failure

    def ask(self, function: Callable[[], T]) -> T:
        """On the loop's thread, and waits for the answer."""
        answers: list[T] = []
        done = threading.Event()

        def do() -> None:
            answers.append(function())
            done.set()

        self.call(do)
        assert done.wait(LIMIT_S), self.failure
        return answers[0]

    def _run(self) -> None:
        try:
            while self._running:
                self._turn()
        except BaseException as failure:
            self.failure = failure

    def _turn(self) -> None:
        ready = self._epoll.poll(self._wait_s())
        for _ in range(len(self._calls)):
            self._calls.popleft()()
        for _ in range(len(self._to_self)):
            send = self._to_self.popleft()
            self.feed(Arrived(0, send.channel, send.datagrams, 0, None))
        self._sync()
        now = self.now_us()
        for timer, due_us in [item for item in self._timers.items() if item[1] <= now]:
            if self._timers.get(timer) == due_us:
                del self._timers[timer]
                if callable(timer):
                    timer()
                else:
                    self.feed(Expired(timer))
        for descriptor, mask in ready:
            if descriptor == self._waker:
                os.eventfd_read(self._waker)
            elif descriptor in self._watched:
                self._watched[descriptor](mask)

    def _wait_s(self) -> float:
        if self._to_self or self._calls or (self._unwritten and self.disk_works):
            return 0.0
        due_us = min(self._timers.values(), default=0)
        return max(0.0, min((due_us - self.now_us() + 999) / 1_000_000, 0.05))


class Remembering(logging.Handler):
    """What was logged: names and fields."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append((name_of(record), fields_of(record)))


class Daemon:
    def __init__(self, loop: Loop, service: ClientService, log: Remembering, path: Path) -> None:
        self.loop = loop
        self.service = service
        self.path = path
        self._log = log

    @property
    def logged(self) -> list[tuple[str, dict[str, Any]]]:
        return self.loop.ask(lambda: list(self._log.events))

    def reasons(self) -> list[str]:
        return [fields.get("reason", "") for _, fields in self.logged]

    def snapshot(self) -> dict[str, Any]:
        return self.loop.ask(self.service.snapshot)

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Until the status says so."""
        limit = time.monotonic() + LIMIT_S
        while not condition(status := self.snapshot()):
            assert time.monotonic() < limit, status
            time.sleep(0.01)
        return status

    def skip(self, seconds: float) -> None:
        """Lets the daemon's clock jump."""

        def jump() -> None:
            self.loop.skew_us += int(seconds * 1_000_000)

        self.loop.ask(jump)

    def program(self, name: str = "well-behaved", greet: bool = True) -> Program:
        return Program(self.path, name, greet)


@contextmanager
def daemon(
    path: Path, groups: GroupConfig | None = None, log: LogConfig | None = None, **settings: Any
) -> Iterator[Daemon]:
    """With `log`, it keeps a replica whose disk is a promise."""
    groups = groups or GroupConfig()
    config = ClientsConfig(socket=path / "clients.sock", **settings)
    logger, lines = logging.Logger("test"), Remembering()
    logger.addHandler(lines)
    loop = Loop(groups, log)
    service = ClientService(
        config,
        groups,
        logger,
        processor=1,
        cluster_id=4,
        packet_bytes_max=60_000,
        has_log=log is not None,
    )
    loop.service = service
    loop.start()
    try:
        loop.ask(lambda: service.attach(loop))
        loop.ask(service.open)
        yield Daemon(loop, service, lines, path / "clients.sock")
    finally:
        if loop.failure is None:
            loop.ask(service.close)
        loop.stop()


class Program:
    """Talks frames, one blocking call at a time. Sends are counted against the credit."""

    def __init__(self, path: Path | None, name: str = "", greet: bool = True, sock: Any = None) -> None:
        if sock is None:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(path))
        self.socket = sock
        self.socket.settimeout(LIMIT_S)
        self.credit = self.spent = 0
        self.welcome: Welcome | None = None
        self._reader = FrameReader(DAEMON_KINDS, LARGE_BYTES_MAX)
        self._arrived: deque[Any] = deque()
        self._request = 0
        if greet:
            self.write(Hello(name))
            self.welcome = self.expect(Welcome)
            self.credit = self.welcome.credit

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def write(self, *frames: Frame) -> None:
        self.socket.sendall(b"".join(map(encode, frames)))

    def next(self) -> Any:
        """The next frame; None at the end of the stream. Credit is noted, and given as well."""
        while not self._arrived:
            try:
                data = self.socket.recv(1_000_000)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._reader.feed(data)
            self._arrived += [decode(*frame) for frame in self._reader.take()]
        frame = self._arrived.popleft()
        if isinstance(frame, Credit):
            self.credit = frame.total
        return frame

    def expect(self, kind: type[T]) -> T:
        """The next frame of that kind; others are passed over."""
        while (frame := self.next()) is not None:
            if isinstance(frame, kind):
                return frame
        raise AssertionError(f"the stream has ended without {kind.__name__}")

    def last(self) -> Any:
        """What came last, before the stream ended."""
        last = None
        while (frame := self.next()) is not None:
            last = frame
        return last

    def request(self, kind: Callable[..., Frame], *arguments: Any) -> int:
        self._request += 1
        self.write(kind(self._request, *arguments))
        return self._request

    def join(self, group: str, policy: Policy = Policy.DISCONNECT, **flags: bool) -> GroupView:
        """Waits for the first view; the answer may come before or after it."""
        self._request += 1
        self.write(Join(self._request, group, policy, **flags))
        found: dict[type, Any] = {}
        while len(found) < 2:
            frame = self.next()
            if isinstance(frame, (Done, GroupView)):
                found[type(frame)] = frame
            assert frame is not None
        view: GroupView = found[GroupView]
        return view

    def send(self, group: str, *payloads: bytes, service: Service = Service.AGREED) -> None:
        """Within the credit: reads until there is enough."""
        data = encode(Send((group,), pack(payloads), service))
        cost = cost_of(len(data) - HEAD.size)
        kept: list[Any] = []
        while self.spent + cost > self.credit:
            frame = self.next()
            assert frame is not None
            kept.append(frame)
        self._arrived.extendleft(reversed(kept))
        self.spent += cost
        self.socket.sendall(data)

    def payloads(self, count: int) -> list[bytes]:
        """So many messages, whatever comes between them."""
        found: list[bytes] = []
        while len(found) < count:
            found += Batch(self.expect(GroupMessages).batch)
        return found


def collect(payload: Payload) -> list[bytes]:
    return list(Batch(payload))
