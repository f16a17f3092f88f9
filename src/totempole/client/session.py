"""A session with a daemon, for asyncio programs.

    async with totempole.connect() as session:
        async with session.join("orders") as group:
            await group.multicast(b"…", service=totempole.SAFE)
            async for event in group:
                match event:
                    case Messages(sender=sender, payloads=payloads): ...
                    case View(members=members): ...

The daemon is reached by a Unix socket on this host, or by TLS. `multicast` returns when a message is
accepted, and waits while the ring pushes back; messages of one turn of the loop travel together.
When the daemon goes away the session comes back to it, as a new process, and says so with `Reconnected`.

A session belongs to one event loop. Everything but waiting happens in `protocol`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from totempole.client.endpoint import (
    ANSWER_S_MAX,
    Attempts,
    Endpoint,
    Endpoints,
    Link,
    Path,
    Reconnect,
    Tls,
    endpoints_of,
    keep_freed_memory,
    reconnect_of,
)
from totempole.client.events import Event, Item, Stream
from totempole.client.protocol import (
    NO_BARRIER,
    RECEIVED_BYTES_MAX,
    STATE_BYTES_MAX,
    WAITING_BYTES_MAX,
    Joining,
    Phase,
    PolicyName,
    Protocol,
    StateProvider,
    info_of,
    policy_of,
)
from totempole.client.sending import (
    Chunks,
    MulticastReceipt,
    Run,
    Sent,
    Target,
    captured,
    could_not_give,
    one_as_bytes,
    pieces_async,
    target_of,
)
from totempole.errors import SessionError
from totempole.groups.events import StateAsked
from totempole.session import Groups, NetworkStatus
from totempole.types import Payload, ProcessId, Service

if TYPE_CHECKING:
    import os

    from totempole.client.appending import Appending
    from totempole.client.feed import Feed
    from totempole.client.feeding import Feeding, FeedStart
    from totempole.client.log import Log
    from totempole.objects.replica import Replica

T = TypeVar("T")

CLOSED = "the session is closed: use it inside `async with`"
DISCARDED_BYTES = 4_096
"""Read at once from a connection that was given up."""


def connect(
    path: Path | Sequence[Path] | None = None,
    *,
    host: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
    name: str = "",
    reconnect: bool | Reconnect = True,
    state_bytes_max: int = STATE_BYTES_MAX,
) -> Session:
    """A session with a daemon: `async with totempole.connect() as session`.

    `path` is the daemon's Unix socket; not given: what the environment variable TOTEMPOLE_SOCKET says, or
    /var/lib/totempole/clients.sock. For a daemon on another host give `host` ("address:port") and `tls`, a
    context or the files for one (`Tls`). Of several daemons, in a list, the first that answers is used, and
    another when that goes away. `name` is what the daemon's logs call the program. `reconnect` says
    whether to come back when the daemon has gone away, and with `Reconnect` how; without it, iterating raises
    SessionError then. `state_bytes_max` bounds the state of a group that is joined with `want_state`,
    together with the messages that wait for it.
    """
    return Session(
        endpoints_of(path, host, tls),
        name=name,
        reconnect=reconnect_of(reconnect),
        state_bytes_max=state_bytes_max,
    )


class Session:
    """A program's connection to its daemon. Made by `connect`, and used inside `async with`."""

    def __init__(
        self,
        endpoint: Endpoint | socket.socket | Sequence[Endpoint],
        *,
        name: str = "",
        reconnect: Reconnect | None = None,
        state_bytes_max: int = STATE_BYTES_MAX,
        logger: logging.Logger | None = None,
    ) -> None:
        self._endpoints = Endpoints(endpoint)
        self._log_socket = ""
        self._attempts = Attempts(reconnect) if reconnect else None
        self._logger = logger or logging.getLogger("totempole.client")
        self._protocol = Protocol(name, state_bytes_max=state_bytes_max)
        self._protocol.warn = self._logger.warning
        self._protocol.has_others = self._endpoints.count > 1
        if self._endpoints.are_simulated:
            self._protocol.draw_token = lambda: random.randbytes(16).hex()  # which comes from the seed
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: SessionError | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._turn = asyncio.Lock()
        """Whoever waits for credit. Those behind wait for the turn, so that none is overtaken."""
        self._large_turn = asyncio.Lock()
        self._news: set[asyncio.Future[None]] = set()
        """Those who wait for credit, or for a connection."""
        self._room: asyncio.Future[None] | None = None
        """Coming back waits for the program to take events."""
        self._flushing = False
        self._filling: Sent | None = None
        """The frame that was last added to,"""
        self._receipt = MulticastReceipt(self, ())
        """and the receipt that its messages share."""
        self._waiting = 0
        """How many wait for something that comes behind events."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._donor = Donor(self, self._protocol, self._logger)
        self._warned = False
        self._closing = False

    @classmethod
    def over(
        cls,
        sock: socket.socket,
        *,
        name: str = "",
        state_bytes_max: int = STATE_BYTES_MAX,
        log_socket: str = "",
    ) -> Session:
        """A session over a socket that is connected already. There is no coming back when that is lost.
        `log_socket`: of the node's log service."""
        session = cls(sock, name=name, state_bytes_max=state_bytes_max)
        session._log_socket = log_socket
        return session

    # Life

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise SessionError("a session is entered once: make another one")
        self._loop = asyncio.get_running_loop()
        keep_freed_memory()
        try:
            await self._open_first()
        except BaseException as error:
            self._end(error if isinstance(error, SessionError) else SessionError(CLOSED))
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the session: what was accepted is sent first, then all groups are left."""
        self._closing = True
        try:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self._link is not None and self._protocol.phase is Phase.OPEN:
                await self._say_bye(self._link)
        finally:
            self._end(None)

    async def _say_bye(self, link: Link) -> None:
        self._protocol.bye()
        self._tell()
        self.flush()
        self._read_on()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await link.closed
        except TimeoutError:
            self._logger.warning("the daemon did not answer the farewell within %g s", ANSWER_S_MAX)

    def _end(self, error: SessionError | None) -> None:
        if self._protocol.phase is not Phase.OVER:
            self._error = error or SessionError(CLOSED)
            self._protocol.end(error)
        if self._link is not None:
            self._link.abort()
            self._link = None
        self._tell()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(self._error or SessionError(CLOSED))
                future.exception()  # nobody need be waiting
        self._answers.clear()

    # The connection

    async def _open_first(self) -> None:
        for is_last in self._endpoints.tries():
            try:
                await self._open()
                return
            except SessionError:
                if is_last:
                    raise
            self._endpoints.move_on()

    async def _open(self) -> None:
        """A connection, greeted and welcomed; or SessionError."""
        assert self._loop is not None
        link = Link(self, self._loop)
        try:
            async with asyncio.timeout(self._endpoints.greeting_s_max):
                await link.connect(self._endpoints.current)
                self._link = link
                self._protocol.connect(link.offer())
                self.flush()
                await link.welcomed
            if self._attempts is not None:
                self._attempts.opened(self._loop.time())
        except BaseException as error:
            link.abort()
            self._link = None
            if isinstance(error, TimeoutError):
                error = SessionError(f"no daemon at {self._where}: no answer within {ANSWER_S_MAX:g} s")
            raise error from None

    @property
    def _where(self) -> str:
        return self._endpoints.name

    def lost(self, link: Link, error: BaseException | None) -> None:
        """The connection is gone."""
        if link is not self._link:
            return
        self._link = None
        protocol = self._protocol
        why = str(error or "") or "the daemon has closed the connection"
        reason = protocol.farewell or why
        if not link.welcomed.done():
            link.welcomed.set_exception(self._endpoints.refused(protocol.farewell, why))
            link.welcomed.exception()
            return
        if self._closing:
            self._end(None)
        elif self._attempts is None or protocol.refused_for_good:
            self._end(SessionError(f"the session with {self._where} is over: {reason}"))
        else:
            self._logger.warning("the connection to %s is lost: %s", self._where, reason)
            protocol.lost(reason)
            self._tell()
            self.start(self._come_back(self._attempts, reason))

    async def _come_back(self, attempts: Attempts, reason: str) -> None:
        assert self._loop is not None
        lost_s, give_up_s = self._loop.time(), attempts.how.give_up_s
        give_up_at = None if give_up_s is None else lost_s + give_up_s
        attempts.lost(lost_s)
        while True:
            await asyncio.sleep(attempts.next_pause())
            await self._room_for_events()
            self._endpoints.move_on()
            try:
                await self._open()
            except SessionError as error:
                self._logger.info("not back yet: %s", error)
                if self._protocol.refused_for_good:
                    self._end(error)
                    return
                if give_up_at is not None and self._loop.time() >= give_up_at:
                    text = f"the daemon went away ({reason}) and did not come back within {give_up_s:g} s"
                    self._end(SessionError(f"{text}: {error}"))
                    return
            else:
                self._logger.info("back at %s as process %s", self._where, self.process)
                return

    async def _room_for_events(self) -> None:
        """A program that fell behind would only fall behind again: it takes what it has first. While it waits
        for the daemon, it may take nothing."""
        assert self._loop is not None
        while self._protocol.inbox.meter.bytes > RECEIVED_BYTES_MAX // 2 and not self._waits:
            self._room = self._loop.create_future()
            await self._room

    # Input

    def room(self, link: Link) -> memoryview:
        # A connection that was given up reads into nothing that counts.
        return self._protocol.room() if link is self._link else memoryview(bytearray(DISCARDED_BYTES))

    def received(self, link: Link, count: int) -> None:
        if link is not self._link:
            return
        protocol = self._protocol
        try:
            protocol.received(count)
        except SessionError as error:
            self._tell()  # what came before it
            link.abort()
            self.lost(link, error)
            return
        self._tell()
        if protocol.farewell is not None:
            link.abort()
            self.lost(link, None)
            return
        if protocol.wants_move:
            link.abort()
            self.lost(link, SessionError("its log is closed"))
            return
        if protocol.sending.waiting:
            self.flush()
        if protocol.inbox.meter.bytes > RECEIVED_BYTES_MAX:
            self._read_on()

    def _tell(self) -> None:
        """Wakes whoever waits for what has come."""
        protocol = self._protocol
        link = self._link
        if link is not None and protocol.phase is Phase.OPEN and not link.welcomed.done():
            link.welcomed.set_result(None)
        meter = protocol.inbox.meter
        if meter.news:
            news, meter.news = meter.news, []
            for stream in news:
                _wake(stream.waiters)
                stream.waiters.clear()
        if protocol.answers:
            answers, protocol.answers = protocol.answers, []
            for answer in answers:
                future = self._answers.pop(answer.request, None)
                if future is not None and not future.done():
                    if answer.error is None:
                        future.set_result(answer.value)
                    else:
                        future.set_exception(answer.error)
        if protocol.sending.settled:
            settled, protocol.sending.settled = protocol.sending.settled, []
            for sent in settled:
                _wake(sent.waiters)
                sent.waiters.clear()
        if self._news:
            _wake(self._news)
            self._news.clear()

    def _read_on(self) -> None:
        """Reads, or not: the program has much to take, and nothing to wait for."""
        link = self._link
        if link is not None:
            held = self._protocol.inbox.meter.bytes
            low = RECEIVED_BYTES_MAX // 2 if link.reading_paused else RECEIVED_BYTES_MAX
            waits = self._waits or self._closing
            link.read(held <= low or (waits and held <= WAITING_BYTES_MAX))

    @property
    def _waits(self) -> bool:
        """Whether the program waits for something that the daemon sends, perhaps behind events."""
        return bool(self._waiting or self._protocol.asking)

    def go_on(self) -> None:
        """The program waits for the daemon, or has fewer events to take: reads on, or comes back."""
        if self._link is not None:
            if self._link.reading_paused:
                self._read_on()
        elif self._room is not None and not self._room.done():
            self._room.set_result(None)

    def writable(self) -> None:
        self._tell()

    # Output

    def flush(self) -> None:
        """Writes what there is."""
        self._flushing = False
        self._protocol.pump()
        link, sending = self._link, self._protocol.sending
        if link is not None and sending.waiting:
            sending.close_batch()
            out, sending.out = sending.out, []
            link.write(out)

    def _flush_soon(self) -> None:
        """At the end of this turn of the loop; at once if a batch is full."""
        if self._protocol.sending.out:
            self.flush()
        if not self._flushing:
            self._flushing = True
            assert self._loop is not None
            self._loop.call_soon(self.flush)

    async def news(self) -> None:
        """Credit, a connection, or the end."""
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        self._news.add(future)
        try:
            await future
        finally:
            self._news.discard(future)

    async def _answer(self, request: int) -> Any:
        """What the daemon answers. Whoever is cancelled meanwhile does not hear it."""
        assert self._loop is not None
        self.flush()
        future = self._answers[request] = self._loop.create_future()
        self.go_on()
        self._tell()  # it may be answered already
        try:
            return await future
        finally:
            self._answers.pop(request, None)
            self._read_on()

    def _check_open(self) -> None:
        if self._loop is None or self._closing or self._protocol.phase is Phase.OVER:
            raise self._error or SessionError(CLOSED)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        assert self._loop is not None
        task: asyncio.Task[T] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Sending

    async def multicast(
        self,
        groups: str | Sequence[str],
        payload: bytes,
        service: Service = Service.AGREED,
        *,
        safe_notice: bool = False,
    ) -> MulticastReceipt:
        """Sends a message to the members of one or several groups; the program need not be one of them.

        Returns when the message is accepted, and waits while the ring pushes back; the receipt tells where it
        was delivered to this program itself. With `safe_notice` the members get a `Safe` once every processor
        of the configuration has the message.
        """
        return await self._multicast(target_of(groups, service, safe_notice), payload)

    async def multicast_many(
        self,
        groups: str | Sequence[str],
        payloads: Sequence[bytes],
        service: Service = Service.AGREED,
        *,
        safe_notice: bool = False,
    ) -> MulticastReceipt:
        """Sends messages, in this order; each is delivered as a message of its own. If it is cancelled or
        fails while it waits, the first of them may have been accepted."""
        return await self._multicast_many(target_of(groups, service, safe_notice), payloads)

    def _offer(self, to: Target, payload: bytes) -> MulticastReceipt | None:
        """Takes the message at once, if nothing stands in the way."""
        sending = self._protocol.sending
        if type(payload) is not bytes or self._turn.locked() or self._closing:
            return None
        sent = sending.offer(to, payload)
        if sent is None:
            return None
        if sending.out or not self._flushing:
            self._flush_soon()
        if sent is not self._filling:
            self._filling, self._receipt = sent, MulticastReceipt(self, (sent,))
        return self._receipt

    async def _multicast(self, to: Target, payload: bytes) -> MulticastReceipt:
        return self._offer(to, payload) or await self._multicast_many(to, (one_as_bytes(payload),))

    async def _multicast_many(self, to: Target, payloads: Sequence[bytes]) -> MulticastReceipt:
        self._check_open()
        if not payloads:
            return MulticastReceipt(self, ())
        run = Run(payloads)
        sending = self._protocol.sending
        await self._connected()
        sending.check(to, run.longest)
        if run.left == 1 and sending.is_large(to, run.longest):
            run.sent.append(await self._multicast_large(to, run.payloads[0]))
        elif self._turn.locked() or not sending.offer_run(to, run):
            await self._send_in_turn(to, run)
        self._flush_soon()
        return MulticastReceipt(self, tuple(run.sent))

    async def _send_in_turn(self, to: Target, run: Run) -> None:
        """The rest, as there is credit."""
        sending = self._protocol.sending
        async with self._turn:
            while not sending.offer_run(to, run):
                payload = run.payloads[run.next]
                if sending.is_large(to, len(payload)):
                    run.sent.append(await self._multicast_large(to, payload))
                    run.next += 1
                    continue
                self.flush()
                await self.awaiting(self.news())
                await self._connected()
                sending.check(to, run.longest)

    async def _connected(self) -> None:
        """Waits until there is a daemon."""
        self._check_open()
        while self._protocol.phase is not Phase.OPEN:
            await self.awaiting(self.news())
            self._check_open()

    async def _multicast_large(self, to: Target, payload: bytes) -> Sent:
        """On a task of its own: a large message that was begun has to be sent to its end."""
        return await asyncio.shield(self.start(self._send_large(to, payload)))

    async def _send_large(self, to: Target, payload: bytes) -> Sent:
        """Begins again with a new connection: of a message in parts, nothing is delivered unless all came."""
        async with self._large_turn:
            while True:
                await self._connected()
                link = self._link
                request, parts = self._protocol.ask_large(to, payload)
                try:
                    await self._answer(request)
                except SessionError:
                    if self._link is link:
                        raise
                    continue
                if link is not None and await self._send_parts(link, parts):
                    return self._protocol.sending.sent_large(to)

    async def _send_parts(self, link: Link, parts: list[tuple[Payload, ...]]) -> bool:
        for part in parts:
            while link is self._link and (link.writing_paused or link.closing):
                await self.awaiting(self.news())
            if link is not self._link:
                return False
            self.flush()
            link.write(part)
        return not link.closing

    async def wait_for_sent(self, sent: Sent) -> None:
        """News of what was multicast, or of its loss."""
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        sent.waiters.append(future)
        try:
            await self.awaiting(future)
        finally:
            if future in sent.waiters:
                sent.waiters.remove(future)

    # Groups

    def join(
        self,
        group: str,
        *,
        policy: PolicyName = "disconnect",
        state: StateProvider | None = None,
        want_state: bool = False,
        info: bytes = b"",
    ) -> Group:
        """A group to be in: `async with session.join("orders") as group`.

        `policy` says what happens when the program takes its events too slowly and its queue at the daemon is
        full: "disconnect" ends the session, with a clear reason; "shed" drops messages of this group, and a
        `Gap` tells how many; "block" makes the program's own multicasts wait while its queue is over half
        full, and disconnects it if that does not help.

        `state` gives the group's state to members that join later: it is called between two events of the
        iteration, and returns bytes or an iterable of chunks (it may be a coroutine function, or return an
        asynchronous iterable). They are sent while the program goes on. `want_state`: the first event after
        the first view is a `State`, from some member that can give it. A program with either is warned in
        the log when it meets members with another history and does not look at `View.strangers`. `info`: up
        to 512 bytes that all members find in `View.info`, such as an address.
        """
        return Group(self, Joining(group, policy_of(policy), state, want_state, info_of(info)))

    async def _join(self, joining: Joining) -> Stream:
        self._check_open()
        request = self._protocol.join(joining)
        stream = self._protocol.inbox.memberships[joining.group].own
        try:
            await self._answer(request)
        except asyncio.CancelledError:
            self.abandon(joining.group)
            raise
        return stream

    async def _leave(self, group: str, stream: Stream | None) -> None:
        if not self._protocol.is_in(group, stream):
            return
        request = self._protocol.leave(group)
        self._tell()
        self.go_on()
        if request is not None:
            with suppress(SessionError):
                await self._answer(request)

    def abandon(self, group: str, error: SessionError | None = None) -> None:
        """Leaves it, without waiting."""
        self._protocol.leave(group, error)
        self._tell()
        self.flush()
        self.go_on()

    def _iterate(self, group: str, stream: Stream) -> None:
        if self._protocol.is_in(group, stream):
            self._protocol.inbox.iterate(self._protocol.inbox.memberships[group])

    def _members(self, group: str, stream: Stream | None) -> tuple[ProcessId, ...]:
        if not self._protocol.is_in(group, stream):
            return ()
        return self._protocol.inbox.memberships[group].members

    async def groups(self) -> Groups:
        """All groups of the cluster and their members, as the daemon knows them now."""
        await self._connected()
        table: Groups = await self._answer(self._protocol.ask_groups())
        return table

    async def networks(self) -> tuple[NetworkStatus, ...]:
        """The networks of a ring that is on several, with state and fault, as all its members have agreed.
        Empty with one network."""
        await self._connected()
        table: tuple[NetworkStatus, ...] = await self._answer(self._protocol.ask_networks())
        return table

    @property
    def process(self) -> ProcessId:
        """Who the program is: the sender of its messages, and a member of its groups."""
        return self._protocol.process

    # The durable log

    def log(
        self,
        name: str,
        *,
        replicas: str | Sequence[str] | None = None,
        tls: ssl.SSLContext | Tls | None = None,
    ) -> Log:
        """A log to append to and to read: `async with session.log("orders") as log`.

        It is read from the log service of the daemon's host, or from `replicas` ("address:port,…"), with
        `tls` or as the session has it.
        """
        from totempole.client.log import Log
        from totempole.client.log_endpoints import services_beside

        def endpoints() -> Sequence[Endpoint]:
            return services_beside(self._endpoints.all, self._log_socket, replicas, tls)

        return Log(self, name, endpoints)

    def feed(
        self,
        log: str,
        start: FeedStart = "earliest",
        *,
        place: int = 0,
        replicas: str | Sequence[str] | None = None,
        tls: ssl.SSLContext | Tls | None = None,
    ) -> Feed:
        """All that a log has from position `start` on and all that comes, as soon as it is green:
        `async with session.feed("orders", position) as feed`, then `async for item in feed`.

        Items are `LogBatch` and `Notice`, in the order of their places, each once. What lies before is read
        from the log service (`replicas` and `tls` as in `log`), what comes is pushed by the daemon. `place`:
        runs before it are not wanted.
        """
        from totempole.client.feed import Feed
        from totempole.client.log_endpoints import services_beside

        self._check_open()

        def endpoints() -> Sequence[Endpoint]:
            return services_beside(self._endpoints.all, self._log_socket, replicas, tls)

        return Feed(self, self._protocol.feeds.open(log, start, place), endpoints, self.log_reconnect)

    def end_feed(self, feeding: Feeding) -> None:
        self._protocol.feeds.close(feeding)
        self.flush()

    async def awaiting(self, waiter: Awaitable[T]) -> T:
        """Waits for what the daemon sends, perhaps behind events: a reason to read on, and to come back."""
        self._waiting += 1
        self.go_on()
        try:
            return await waiter
        finally:
            self._waiting -= 1
            self._read_on()

    async def barrier(self, timeout: float | None = None) -> int:
        """A place in the order: every run that was green at any replica when this was called is before it,
        and feeds of this session that are live have been given those of their logs. TimeoutError if a
        majority of the replicas does not answer within `timeout` seconds."""
        self._check_open()
        feeds = self._protocol.feeds
        ticket = feeds.barrier()
        self._flush_soon()
        try:
            async with asyncio.timeout(timeout):
                place: int = await self._answer_to(ticket)
                return place
        except TimeoutError:
            feeds.give_up(ticket)
            raise TimeoutError(f"{NO_BARRIER} within {timeout:g} s") from None
        except asyncio.CancelledError:
            feeds.give_up(ticket)
            raise

    async def _answer_to(self, ticket: int) -> Any:
        assert self._loop is not None
        future = self._answers[ticket] = self._loop.create_future()
        self.go_on()
        try:
            return await future
        finally:
            self._answers.pop(ticket, None)

    def replica(
        self,
        cls: type[T],
        name: str,
        *,
        replicas: str | Sequence[str] | None = None,
        tls: ssl.SSLContext | Tls | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> Replica[T]:
        """A replicated object, whose state is in this program: `async with session.replica(Bank, "bank") as
        bank`, then `await bank.call(Bank.transfer, "ann", "bob", 10)`.

        All programs that open the same name have the same object. `cls` is a plain class; those of its
        methods that change it are marked with `totempole.command`. What lies before is read from the log
        service, as in `log`. `file` keeps the database of a `totempole.objects.SqliteObject`.
        """
        from totempole.objects.replica import Replica

        return Replica(self, cls, name, replicas=replicas, tls=tls, file=file)

    @property
    def protocol(self) -> Protocol:
        """For the parts of the package that stand above the session."""
        return self._protocol

    def log_services(
        self, replicas: str | Sequence[str] | None = None, tls: ssl.SSLContext | Tls | None = None
    ) -> Sequence[Endpoint]:
        """Those that it reads from: of its daemons, or the ones that are named."""
        from totempole.client.log_endpoints import services_beside

        return services_beside(self._endpoints.all, self._log_socket, replicas, tls)

    @property
    def log_reconnect(self) -> Reconnect | None:
        """How it comes back to a log service. An embedded node starts its own, and starts it again."""
        return self.reconnect or (Reconnect() if self._log_socket else None)

    @property
    def reconnect(self) -> Reconnect | None:
        """How it comes back to a daemon that has gone away."""
        return self._attempts.how if self._attempts is not None else None

    async def ask_log(self, ask: Callable[[Appending], int], timeout: float | None) -> Any:
        """Asks, and waits for the answer."""
        self._check_open()
        assert self._loop is not None
        appending = self._protocol.appending
        ticket = ask(appending)
        if not self._flushing:
            self._flush_soon()
        future = self._answers[ticket] = self._loop.create_future()
        self.go_on()
        try:
            if timeout is None:
                return await future
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise appending.give_up(ticket, f"no answer within {timeout:g} s") from None
        except asyncio.CancelledError:
            appending.give_up(ticket, "it was cancelled")
            raise
        finally:
            self._answers.pop(ticket, None)

    # Receiving

    def events(self, *, networks: bool = False) -> SessionEvents:
        """The events of all groups that the session has joined, in one order; a message to two of them comes
        once.

        It begins with what has not been taken from them yet. A group that is iterated over by itself too
        gives its events to both. With `networks` it also tells how each network of a redundant ring stands,
        and what changes from then on: `NetworkChanged`.
        """
        self._check_open()
        stream = self._protocol.open_events(networks)
        if networks:
            self.flush()
        return SessionEvents(self, stream)

    async def _next(self, stream: Stream) -> Event:
        """The next event of a stream; StopAsyncIteration at its end."""
        inbox = self._protocol.inbox
        while True:
            item = inbox.take(stream)
            if item is None:
                if stream.over:
                    raise stream.error or StopAsyncIteration
                await self._wait_for_event(stream)
                continue
            self.go_on()
            event = item.event
            if isinstance(event, StateAsked):
                await self._donor.give(stream, item, event)
            elif isinstance(event, SessionError):
                raise event
            else:
                return event  # type: ignore[return-value]  # a Transfer is a State by now

    async def _wait_for_event(self, stream: Stream) -> None:
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        stream.waiters.append(future)
        if self._link is not None and self._link.reading_paused:
            self._warn(stream)
        try:
            await future
        finally:
            if future in stream.waiters:
                stream.waiters.remove(future)

    def _warn(self, starving: Stream) -> None:
        if self._warned:
            return
        self._warned = True
        fullest = max(self._protocol.inbox.streams(), key=lambda stream: len(stream.ready))
        self._logger.warning(
            "%s waits for events, but nothing is read while %s has %d that nobody takes: iterate over it, or "
            "take all groups' events from session.events()",
            starving.name,
            fullest.name,
            len(fullest.ready),
        )


def _wake(futures: Any) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Group:
    """Made by `Session.join`, and used inside `async with`: entering joins, leaving leaves.

    Iterating gives the group's events, from the view that brought the program in. The iteration ends when the
    group is left or the session closed, and raises SessionError when it had to end.
    """

    def __init__(self, session: Session, joining: Joining) -> None:
        self._session = session
        self._joining = joining
        self._targets: dict[tuple[Service, bool], Target] = {}
        self._stream: Stream | None = None
        self._iterated = False

    @property
    def name(self) -> str:
        """The group's name."""
        return self._joining.group

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """Who is in the group, as of the event that was taken last."""
        return self._session._members(self.name, self._stream)

    async def __aenter__(self) -> Self:
        if self._stream is not None:
            raise SessionError(f"group {self.name!r}: it is entered once: join again")
        self._stream = await self._session._join(self._joining)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session._leave(self.name, self._stream)

    # Sending

    async def multicast(
        self, payload: bytes, service: Service = Service.AGREED, *, safe_notice: bool = False
    ) -> MulticastReceipt:
        """Sends a message to all members, this program among them.

        Returns when the message is accepted, and waits while the ring pushes back; the receipt tells where it
        was delivered. With `safe_notice` the members get a `Safe` once every processor of the configuration
        has the message.
        """
        to = self._target(service, safe_notice)
        return self._session._offer(to, payload) or await self._session._multicast(to, payload)

    async def multicast_many(
        self, payloads: Sequence[bytes], service: Service = Service.AGREED, *, safe_notice: bool = False
    ) -> MulticastReceipt:
        """Sends messages, in this order; each is delivered as a message of its own. If it is cancelled or
        fails while it waits, the first of them may have been accepted."""
        return await self._session._multicast_many(self._target(service, safe_notice), payloads)

    def _target(self, service: Service, notice: bool) -> Target:
        target = self._targets.get((service, notice))
        if target is None:
            target = self._targets[service, notice] = Target((self.name,), Service(service), notice)
        return target

    # Receiving

    def __aiter__(self) -> Self:
        self._own_stream()
        return self

    async def __anext__(self) -> Event:
        return await self._session._next(self._own_stream())

    def _own_stream(self) -> Stream:
        if self._stream is None:
            raise SessionError(f"group {self.name!r} is not joined: use it inside `async with`")
        if not self._iterated:
            self._iterated = True
            self._session._iterate(self.name, self._stream)
        return self._stream


class SessionEvents(AsyncIterator[Event]):
    """The events of all joined groups, in one order. Ends with the session."""

    def __init__(self, session: Session, stream: Stream) -> None:
        self._session = session
        self._stream = stream

    async def __anext__(self) -> Event:
        return await self._session._next(self._stream)

    def close(self) -> None:
        """Takes no more from here: the groups keep their events for themselves again."""
        inbox = self._session._protocol.inbox
        if inbox.whole is self._stream:
            inbox.close_whole()
            self._session._tell()
            self._session.go_on()


class Donor:
    """A member's side of a group's state: asked for at one place in the order, given while it goes on."""

    def __init__(self, session: Session, protocol: Protocol, logger: logging.Logger) -> None:
        self._session = session
        self._protocol = protocol
        self._logger = logger

    async def give(self, stream: Stream, item: Item, asked: StateAsked) -> None:
        """The program has worked off all before this place: the state is taken here, and sent on a task."""
        provider = self._protocol.gift(asked)
        if provider is None:
            return
        try:
            chunks: Any = provider()
            if inspect.isawaitable(chunks):
                chunks = await chunks
            chunks = captured(chunks)
        except Exception as error:
            self._fail(asked, error)
        except BaseException:
            stream.put_back(item)  # whoever goes on iterating is asked again
            raise
        else:
            self._session.start(self._send(asked, chunks))

    async def _send(self, asked: StateAsked, chunks: Chunks) -> None:
        try:
            async for content, last in pieces_async(chunks, self._protocol.sending.state_piece_bytes):
                while self._protocol.is_wanted(asked) and not self._protocol.give(asked, content, last):
                    self._session.flush()
                    await self._session.news()
                if not last and not self._protocol.is_wanted(asked):
                    return
                self._session.flush()
                await asyncio.sleep(0)
        except Exception as error:
            self._fail(asked, error)

    def _fail(self, asked: StateAsked, error: Exception) -> None:
        failure = could_not_give(asked.group, error)
        self._logger.error("%s", failure, exc_info=error)
        self._session.abandon(asked.group, failure)
