"""A session with a daemon, for programs without asyncio. It needs no threads.

    with totempole.blocking.connect() as session:
        with session.join("orders") as group:
            group.multicast(b"…", service=totempole.SAFE)
            for event in group:
                match event:
                    case Messages(sender=sender, payloads=payloads): ...
                    case View(members=members): ...

The names are those of the asyncio session, and everything is read and written by the calls themselves: while
the program makes none, nothing is received, and after some time the policy that it joined with takes effect.
A state for joiners is sent by these calls too. A session is for one thread at a time.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from totempole.client.blocking_group import BlockingReceipt, Group, SessionEvents
from totempole.client.donor import Piece, captured, could_not_give, pieces
from totempole.client.endpoint import (
    ANSWER_S_MAX,
    Attempts,
    Endpoint,
    Endpoints,
    Offer,
    Path,
    Reconnect,
    Tls,
    endpoints_of,
    keep_freed_memory,
    reconnect_of,
    widen,
)
from totempole.client.events import Event, Stream
from totempole.client.protocol import (
    NO_BARRIER,
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
from totempole.client.sending import Run, Sent, Target, target_of
from totempole.errors import SessionError
from totempole.groups.events import StateAsked
from totempole.session import Groups, NetworkStatus
from totempole.types import Payload, ProcessId, Service

if TYPE_CHECKING:
    import os

    from totempole.client.appending import Appending
    from totempole.client.blocking_feed import Feed
    from totempole.client.blocking_log import Log
    from totempole.client.blocking_log_reader import LogReader
    from totempole.client.feeding import Feeding, FeedStart
    from totempole.objects.blocking import Replica
    from totempole.runtime.node import BlockingNode as Node  # noqa: F401 - a name of this module

T = TypeVar("T")

WRITE_PARTS_MAX = 64
CLOSED = "the session is closed: use it inside `with`"


def __getattr__(name: str) -> Any:
    """`Node` stands above the sessions, and is loaded when it is asked for."""
    if name == "Node":
        from totempole.runtime.node import BlockingNode

        return BlockingNode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def connect(
    path: Path | Sequence[Path] | None = None,
    *,
    host: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
    name: str = "",
    reconnect: bool | Reconnect = True,
    state_bytes_max: int = STATE_BYTES_MAX,
) -> Session:
    """A session with a daemon: `with totempole.blocking.connect() as session`; as `totempole.connect`."""
    return Session(
        endpoints_of(path, host, tls),
        name=name,
        reconnect=reconnect_of(reconnect),
        state_bytes_max=state_bytes_max,
    )


def log_reader(
    log: str = "",
    *,
    path: Path | Sequence[Path] | None = None,
    replicas: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
    name: str = "",
    reconnect: bool | Reconnect = True,
) -> LogReader:
    """For programs that only read the durable log; as `totempole.log_reader`."""
    from totempole.client.blocking_log_reader import log_reader

    return log_reader(log, path=path, replicas=replicas, tls=tls, name=name, reconnect=reconnect)


class Session:
    """A program's connection to its daemon. Made by `connect`, and used inside `with`."""

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
        self._socket: socket.socket | None = None
        self._unsent: deque[memoryview] = deque()
        self._offer: Offer | None = None
        self._error: SessionError | None = None
        self._entered = False
        self._return: _Return | None = None
        """How it comes back, while there is no connection."""
        self._gifts: deque[_Gift] = deque()

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

    def __enter__(self) -> Self:
        if self._entered:
            raise SessionError("a session is entered once: make another one")
        self._entered = True
        keep_freed_memory()
        try:
            self._open_first()
        except BaseException as error:
            self._end(error if isinstance(error, SessionError) else None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session: what was accepted is sent first, then all groups are left."""
        protocol = self._protocol
        self._gifts.clear()
        self._attempts = None
        try:
            if self._socket is not None and protocol.phase is Phase.OPEN:
                protocol.bye()
                self._until(lambda: protocol.phase is Phase.OVER, _deadline(ANSWER_S_MAX))
        except TimeoutError:
            self._logger.warning("the daemon did not answer the farewell within %g s", ANSWER_S_MAX)
        except SessionError:
            pass  # gone already
        finally:
            self._end(None)

    def _end(self, error: SessionError | None) -> None:
        if self._protocol.phase is not Phase.OVER:
            self._error = error
            self._protocol.end(error)
        self._hang_up()

    def _hang_up(self) -> None:
        self._unsent.clear()
        if self._offer is not None:
            self._offer.close()
            self._offer = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _check_open(self) -> None:
        if not self._entered or self._protocol.phase in (Phase.CLOSING, Phase.OVER):
            raise self._error or SessionError(CLOSED)

    # The connection

    def _open_first(self) -> None:
        for is_last in self._endpoints.tries():
            try:
                self._open()
                return
            except SessionError:
                if is_last:
                    raise
            self._endpoints.move_on()

    def _open(self) -> None:
        protocol = self._protocol
        self._socket = self._connect()
        self._socket.setblocking(False)
        self._offer = Offer.made() if self._socket.family == socket.AF_UNIX else None
        protocol.connect(self._offer.reader if self._offer is not None else None)
        deadline = _deadline(self._endpoints.greeting_s_max)
        try:
            while protocol.phase is Phase.CONNECTING:
                self._write()
                self._read(deadline)
                if self._socket is None:
                    raise self._endpoints.refused(protocol.farewell, "it has closed the connection")
        except TimeoutError:
            self._hang_up()
            text = f"no daemon at {self._where}: no answer within {ANSWER_S_MAX:g} s"
            raise SessionError(text) from None
        if self._attempts is not None:
            self._attempts.opened(time.monotonic())

    def _connect(self) -> socket.socket:
        where = self._endpoints.current
        if isinstance(where, socket.socket):
            return where
        try:
            if where.path:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                widen(sock)
                try:
                    sock.settimeout(ANSWER_S_MAX)
                    sock.connect(where.path)
                except BaseException:
                    sock.close()
                    raise
                return sock
            plain = socket.create_connection((where.host, where.port), ANSWER_S_MAX)
            assert where.context is not None
            try:
                return where.context.wrap_socket(plain, server_hostname=where.server_name)
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise where.unreachable(error) from None

    @property
    def _where(self) -> str:
        return self._endpoints.name

    def _lost(self, why: str) -> None:
        """The connection is gone."""
        protocol = self._protocol
        reason = protocol.farewell or why
        self._hang_up()
        self._gifts.clear()
        if protocol.phase is Phase.CONNECTING:
            return  # whoever opens it says so
        if protocol.phase is Phase.CLOSING:
            self._end(None)
        elif self._attempts is None or protocol.refused_for_good:
            self._end(SessionError(f"the session with {self._where} is over: {reason}"))
        else:
            self._logger.warning("the connection to %s is lost: %s", self._where, reason)
            protocol.lost(reason)
            self._return = _Return(self._attempts, reason)

    def _come_back(self, deadline: float | None) -> None:
        """One more attempt, when it is due."""
        way = self._return
        assert way is not None
        pause = way.due - time.monotonic()
        if deadline is not None and way.due > deadline:
            time.sleep(max(0.0, deadline - time.monotonic()))
            raise TimeoutError(f"no connection to {self._where}")
        time.sleep(max(0.0, pause))
        self._endpoints.move_on()
        try:
            self._open()
        except SessionError as error:
            self._logger.info("not back yet: %s", error)
            if self._protocol.refused_for_good:
                self._end(error)
            elif not way.again():
                gone = f"the daemon went away ({way.reason}) and did not come back in time"
                self._end(SessionError(f"{gone}: {error}"))
        else:
            self._return = None
            self._logger.info("back at %s as process %s", self._where, self.process)

    # Input and output

    def _until(self, done: Callable[[], object], deadline: float | None) -> None:
        """Reads and writes until it is done. TimeoutError when that is too late."""
        while True:
            self._write()
            if done():
                return
            if self._protocol.phase is Phase.OVER:
                raise self._error or SessionError(CLOSED)
            if self._return is not None:
                self._come_back(deadline)
            else:
                self._read(deadline)

    def _read(self, deadline: float | None) -> None:
        """Waits until something can be read, or written if that is wanted, and reads it."""
        sock = self._socket
        if sock is None:
            return
        self._check_room()
        if not (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            ready = _poll(sock, bool(self._unsent), deadline)
            if not ready:
                raise TimeoutError("nothing came in time")
            if ready == select.POLLOUT:
                return
        self._receive(sock)

    def _receive(self, sock: socket.socket) -> None:
        try:
            count = sock.recv_into(self._protocol.room())
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._lost(str(error))
            return
        if not count:
            self._lost("the daemon has closed the connection")
            return
        try:
            self._protocol.received(count)
        except SessionError as error:
            self._lost(str(error))
            return
        self._protocol.inbox.meter.news.clear()
        if self._protocol.farewell is not None:
            self._lost(self._protocol.farewell)
        elif self._protocol.wants_move:
            self._lost("its log is closed")

    def _write(self) -> None:
        """As much as the socket takes."""
        self._give()
        self._protocol.pump()
        sending = self._protocol.sending
        if sending.waiting:
            sending.close_batch()
            self._unsent.extend(map(memoryview, sending.out))
            sending.out = []
        if self._offer is not None and self._socket is not None:
            offer, self._offer = self._offer, None
            rest = offer.send(self._socket.fileno(), self._unsent)
            self._unsent = deque([memoryview(rest)] if rest else [])
        try:
            while self._unsent and self._socket is not None and self._write_some(self._socket):
                pass
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._hear_last_words()
            if self._socket is not None:
                self._lost(str(error))

    def _hear_last_words(self) -> None:
        """The daemon has hung up. It may have said why."""
        while self._socket is not None and _poll(self._socket, False, time.monotonic()):
            self._receive(self._socket)

    def _write_some(self, sock: socket.socket) -> bool:
        unsent = self._unsent
        if isinstance(sock, ssl.SSLSocket):
            count = sock.send(unsent[0])
        else:
            parts = [unsent[index] for index in range(min(len(unsent), WRITE_PARTS_MAX))]
            count = sock.sendmsg(parts, (), socket.MSG_NOSIGNAL)
        while unsent and count >= len(unsent[0]):
            count -= len(unsent.popleft())
        if count:
            unsent[0] = unsent[0][count:]
        return True

    def _check_room(self) -> None:
        inbox = self._protocol.inbox
        if inbox.meter.bytes > WAITING_BYTES_MAX:
            fullest = max(inbox.streams(), key=lambda stream: len(stream.ready))
            raise SessionError(
                f"{fullest.name} has {len(fullest.ready)} events that the program does not take, and "
                f"{inbox.meter.bytes} bytes are as much as is kept: take them, or use session.events()"
            )

    def _answer(self, request: int, deadline: float | None) -> Any:
        answers = self._protocol.answers
        self._until(lambda: any(answer.request == request for answer in answers), deadline)
        answer = next(answer for answer in answers if answer.request == request)
        answers.clear()
        if answer.error is not None:
            raise answer.error
        return answer.value

    # Sending

    def multicast(
        self,
        groups: str | Sequence[str],
        payload: bytes,
        service: Service = Service.AGREED,
        *,
        safe_notice: bool = False,
        timeout: float | None = None,
    ) -> BlockingReceipt:
        """Sends a message to the members of one or several groups; the program need not be one of them.

        Returns when the message is accepted, and waits while the ring pushes back: TimeoutError if that takes
        longer than `timeout` seconds. The receipt tells where it was delivered to this program itself. With
        `safe_notice` the members get a `Safe` once every processor of the configuration has the message.
        """
        return self._multicast(target_of(groups, service, safe_notice), (payload,), timeout)

    def multicast_many(
        self,
        groups: str | Sequence[str],
        payloads: Sequence[bytes],
        service: Service = Service.AGREED,
        *,
        safe_notice: bool = False,
        timeout: float | None = None,
    ) -> BlockingReceipt:
        """Sends messages, in this order; each is delivered as a message of its own. If it fails while it
        waits, the first of them may have been accepted."""
        return self._multicast(target_of(groups, service, safe_notice), payloads, timeout)

    def _multicast(self, to: Target, payloads: Sequence[bytes], timeout: float | None) -> BlockingReceipt:
        self._check_open()
        if not payloads:
            return BlockingReceipt(self, ())
        deadline = _deadline(timeout)
        sending = self._protocol.sending
        run = Run(payloads)
        while True:
            self._until(lambda: self._protocol.phase is Phase.OPEN, deadline)
            sending.check(to, run.longest)
            if sending.offer_run(to, run):
                break
            if sending.is_large(to, len(run.payloads[run.next])):
                run.sent.append(self._send_large(to, run.payloads[run.next], deadline))
                run.next += 1
            else:
                self._write()
                self._read(deadline)
        self._until(lambda: not self._unsent, deadline)
        return BlockingReceipt(self, tuple(run.sent))

    def wait_for_sent(self, sent: Sequence[Sent], safe: bool, timeout: float | None) -> None:
        """Reads until there is news of all, or until they are lost."""
        if not all(each.is_settled(safe) for each in sent):
            self._until(lambda: all(each.is_settled(safe) for each in sent), _deadline(timeout))

    def _send_large(self, to: Target, payload: bytes, deadline: float | None) -> Sent:
        """Begins again with a new connection: of a message in parts, nothing is delivered unless all came."""
        while True:
            self._until(lambda: self._protocol.phase is Phase.OPEN, deadline)
            sock = self._socket
            request, parts = self._protocol.ask_large(to, payload)
            try:
                self._answer(request, deadline)
            except SessionError:
                if self._socket is sock:
                    raise
                continue
            if self._send_parts(sock, parts):
                return self._protocol.sending.sent_large(to)

    def _send_parts(self, sock: socket.socket | None, parts: list[tuple[Payload, ...]]) -> bool:
        """Without a time limit: the daemon keeps room for it."""
        for part in parts:
            self._unsent.extend(map(memoryview, part))
            self._until(lambda: not self._unsent or self._socket is not sock, None)
            if self._socket is not sock:
                return False
        return True

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
        """A group to be in: `with session.join("orders") as group`.

        All as in the asyncio session, but for `state`: it returns bytes or an iterable of chunks.
        """
        return Group(self, Joining(group, policy_of(policy), state, want_state, info_of(info)))

    def _join(self, joining: Joining) -> Stream:
        self._check_open()
        request = self._protocol.join(joining)
        stream = self._protocol.inbox.memberships[joining.group].own
        try:
            self._answer(request, None)
        except KeyboardInterrupt:
            self._protocol.leave(joining.group)
            raise
        return stream

    def _leave(self, group: str, stream: Stream | None) -> None:
        if not self._protocol.is_in(group, stream):
            return
        request = self._protocol.leave(group)
        if request is not None:
            self._answer(request, _deadline(ANSWER_S_MAX))

    def groups(self, timeout: float | None = None) -> Groups:
        """All groups of the cluster and their members, as the daemon knows them now."""
        self._check_open()
        deadline = _deadline(timeout)
        self._until(lambda: self._protocol.phase is Phase.OPEN, deadline)
        table: Groups = self._answer(self._protocol.ask_groups(), deadline)
        return table

    def networks(self, timeout: float | None = None) -> tuple[NetworkStatus, ...]:
        """The networks of a ring that is on several, with state and fault, as all its members have agreed.
        Empty with one network."""
        self._check_open()
        deadline = _deadline(timeout)
        self._until(lambda: self._protocol.phase is Phase.OPEN, deadline)
        table: tuple[NetworkStatus, ...] = self._answer(self._protocol.ask_networks(), deadline)
        return table

    def log(
        self,
        name: str,
        *,
        replicas: str | Sequence[str] | None = None,
        tls: ssl.SSLContext | Tls | None = None,
    ) -> Log:
        """A log to append to and to read: `with session.log("orders") as log`.

        It is read from the log service of the daemon's host, or from `replicas` ("address:port,…"), with
        `tls` or as the session has it.
        """
        from totempole.client.blocking_log import Log
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
        `with session.feed("orders", position) as feed`, then `for item in feed`; as the asyncio session's."""
        from totempole.client.blocking_feed import Feed
        from totempole.client.log_endpoints import services_beside

        self._check_open()

        def endpoints() -> Sequence[Endpoint]:
            return services_beside(self._endpoints.all, self._log_socket, replicas, tls)

        return Feed(self, self._protocol.feeds.open(log, start, place), endpoints, self.log_reconnect)

    def end_feed(self, feeding: Feeding) -> None:
        self._protocol.feeds.close(feeding)
        self._write()

    def barrier(self, timeout: float | None = None) -> int:
        """A place in the order: every run that was green at any replica when this was called is before it,
        and feeds of this session that are live have been given those of their logs. TimeoutError if a
        majority of the replicas does not answer within `timeout` seconds."""
        self._check_open()
        feeds = self._protocol.feeds
        ticket = feeds.barrier()
        try:
            place: int = self._answer(ticket, _deadline(timeout))
            return place
        except TimeoutError:
            feeds.give_up(ticket)
            raise TimeoutError(f"{NO_BARRIER} within {timeout:g} s") from None
        except KeyboardInterrupt:
            feeds.give_up(ticket)
            raise

    def until(self, done: Callable[[], object], deadline: float | None) -> None:
        """Reads and writes until it is done. TimeoutError when that is too late."""
        self._until(done, deadline)

    def serve(self, other: socket.socket | None, until_s: float, done: Callable[[], object]) -> bool:
        """Reads and writes while another socket has nothing to be read, until that time, or until it is done.
        Whether the other socket can be read."""
        while True:
            self._write()
            now_s = time.monotonic()
            if self._return is not None and now_s >= self._return.due:
                self._come_back(None)
                continue
            end_s = until_s if self._return is None else min(until_s, self._return.due)
            poll = select.poll()
            if other is not None:
                poll.register(other, select.POLLIN)
            has_room = self._protocol.inbox.meter.bytes <= WAITING_BYTES_MAX
            mine = self._socket if has_room else None
            if mine is not None:
                poll.register(mine, select.POLLIN | select.POLLOUT * bool(self._unsent))
            has_more = isinstance(mine, ssl.SSLSocket) and mine.pending() > 0
            wait_s = 0.0 if has_more or done() else max(0.0, end_s - now_s)
            ready = dict(poll.poll(math.ceil(1000 * wait_s)))
            if mine is not None and (has_more or ready.get(mine.fileno(), 0) & ~select.POLLOUT):
                self._receive(mine)
            if other is not None and other.fileno() in ready:
                return True
            if done() or self._protocol.phase is Phase.OVER or time.monotonic() >= until_s:
                return False

    def replica(
        self,
        cls: type[T],
        name: str,
        *,
        replicas: str | Sequence[str] | None = None,
        tls: ssl.SSLContext | Tls | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> Replica[T]:
        """A replicated object, whose state is in this program: `with session.replica(Bank, "bank") as bank`,
        then `bank.call(Bank.transfer, "ann", "bob", 10)`; as the asyncio session's."""
        from totempole.objects.blocking import Replica

        return Replica(self, cls, name, replicas=replicas, tls=tls, file=file)

    @property
    def protocol(self) -> Protocol:
        """For the parts of the package that stand above the session."""
        return self._protocol

    def flush(self) -> None:
        """Writes what there is, as much as the socket takes."""
        self._write()

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

    def ask_log(self, ask: Callable[[Appending], int], timeout: float | None) -> Any:
        """Asks, and waits for the answer."""
        self._check_open()
        appending = self._protocol.appending
        ticket = ask(appending)
        try:
            return self._answer(ticket, _deadline(timeout))
        except TimeoutError:
            raise appending.give_up(ticket, f"no answer within {timeout:g} s") from None
        except KeyboardInterrupt:
            appending.give_up(ticket, "it was interrupted")
            raise

    @property
    def process(self) -> ProcessId:
        """Who the program is: the sender of its messages, and a member of its groups."""
        return self._protocol.process

    def fileno(self) -> int:
        """Of the socket, for `select`: when it can be read, `next(timeout=0)` may have something."""
        if self._socket is None:
            raise SessionError("there is no connection at the moment")
        return self._socket.fileno()

    # Receiving

    def events(self, *, networks: bool = False) -> SessionEvents:
        """The events of all groups that the session has joined, in one order; a message to two of them comes
        once.

        It begins with what has not been taken from them yet. A group that is iterated over by itself too
        gives its events to both. With `networks` it also tells how each network of a redundant ring stands,
        and what changes from then on: `NetworkChanged`.
        """
        self._check_open()
        return SessionEvents(self, self._protocol.open_events(networks))

    def _next(self, stream: Stream, timeout: float | None) -> Event | None:
        """The next event of a stream; None at its end."""
        deadline = _deadline(timeout)
        while True:
            item = self._protocol.inbox.take(stream)
            if item is None:
                if stream.over:
                    if stream.error is not None:
                        raise stream.error
                    return None
                self._until(lambda: stream.ready or stream.over, deadline)
                continue
            event = item.event
            if isinstance(event, StateAsked):
                self._begin_to_give(event)
            elif isinstance(event, SessionError):
                raise event
            else:
                return event  # type: ignore[return-value]  # a Transfer is a State by now

    # State for joiners

    def _begin_to_give(self, asked: StateAsked) -> None:
        """A joiner wants the group's state as of here."""
        provider = self._protocol.gift(asked)
        if provider is None:
            return
        try:
            chunks = captured(provider())
        except Exception as error:
            self._fail_to_give(asked, error)
        else:
            self._gifts.append(_Gift(asked, pieces(chunks, self._protocol.sending.state_piece_bytes)))
            self._write()

    def _give(self) -> None:
        """As much of the states that are wanted as there is credit for, of each in turn."""
        waiting = 0
        while self._gifts and waiting < len(self._gifts):
            gift = self._gifts.popleft()
            try:
                over, gave = self._give_piece(gift)
            except Exception as error:
                self._fail_to_give(gift.asked, error)
                continue
            if not over:
                self._gifts.append(gift)
            waiting = 0 if gave else waiting + 1

    def _give_piece(self, gift: _Gift) -> tuple[bool, bool]:
        """Whether it is over, and whether a piece was taken."""
        if not self._protocol.is_wanted(gift.asked):
            return True, True
        if gift.next is None:
            gift.next = next(gift.pieces)
        content, last = gift.next
        if not self._protocol.give(gift.asked, content, last):
            return False, False
        gift.next = None
        return last, True

    def _fail_to_give(self, asked: StateAsked, error: Exception) -> None:
        failure = could_not_give(asked.group, error)
        self._logger.error("%s", failure, exc_info=error)
        self._protocol.leave(asked.group, failure)


class _Gift:
    """A state that is being given."""

    __slots__ = ("asked", "next", "pieces")

    def __init__(self, asked: StateAsked, parts: Iterator[Piece]) -> None:
        self.asked = asked
        self.pieces = parts
        self.next: Piece | None = None


class _Return:
    """When to try to come back."""

    def __init__(self, attempts: Attempts, reason: str) -> None:
        self.reason = reason
        self._attempts = attempts
        self._give_up_at = _deadline(attempts.how.give_up_s)
        now = time.monotonic()
        attempts.lost(now)
        self.due = now + attempts.next_pause()

    def again(self) -> bool:
        """Whether there is another attempt."""
        now = time.monotonic()
        self.due = now + self._attempts.next_pause()
        return self._give_up_at is None or now < self._give_up_at


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _poll(sock: socket.socket, writing: bool, deadline: float | None) -> int:
    """What the socket is ready for, of POLLIN and POLLOUT; 0 when the deadline has come."""
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT * writing)
    wait_ms = None if deadline is None else max(0.0, math.ceil(1000 * (deadline - time.monotonic())))
    found = poll.poll(wait_ms)
    return found[0][1] if found else 0
