"""What an asyncio program sees of its daemon: a session, its groups, and their events.

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

A session belongs to one event loop. Its parts: `connection` is opened, read and written, and wakes the tasks
that wait; `multicasting` sends, in turn; `receiving` joins groups and takes their events; `protocol` decides,
without I/O.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from totempole.client.endpoint import (
    Endpoint,
    Endpoints,
    Path,
    Reconnect,
    Tls,
    endpoints_of,
    reconnect_of,
)
from totempole.client.events import Event, Stream
from totempole.client.protocol import (
    NO_BARRIER,
    STATE_BYTES_MAX,
    Joining,
    PolicyName,
    Protocol,
    StateProvider,
    info_of,
    policy_of,
)
from totempole.client.sending import Target, target_of
from totempole.errors import SessionError
from totempole.session import Groups, NetworkStatus
from totempole.types import ProcessId, Service

if TYPE_CHECKING:
    import os

    from totempole.client.feed import Feed
    from totempole.client.feeding import FeedStart
    from totempole.client.log import Log
    from totempole.client.multicasting import Multicasting, MulticastReceipt
    from totempole.client.receiving import Receiving
    from totempole.objects.replica import Replica

T = TypeVar("T")


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
        # A program that only names sessions does not load what one consists of.
        from totempole.client.connection import Connection
        from totempole.client.multicasting import Multicasting
        from totempole.client.receiving import Receiving

        logger = logger or logging.getLogger("totempole.client")
        self._endpoints = Endpoints(endpoint)
        self._log_socket = ""
        self._reconnect = reconnect
        protocol = Protocol(name, state_bytes_max=state_bytes_max)
        protocol.warn = logger.warning
        protocol.has_others = self._endpoints.count > 1
        if self._endpoints.are_simulated:
            protocol.draw_token = lambda: random.randbytes(16).hex()  # which comes from the seed
        # For other parts of the package, too:
        self.protocol = protocol
        self.connection = Connection(protocol, self._endpoints, reconnect, logger)
        self.receiving = Receiving(self.connection, logger)
        self._multicasting = Multicasting(self.connection)

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
        await self.connection.open()
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
        await self.connection.close()

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
        return await self._multicasting.multicast(target_of(groups, service, safe_notice), payload)

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
        to = target_of(groups, service, safe_notice)
        return await self._multicasting.multicast_many(to, payloads)

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
        joining = Joining(group, policy_of(policy), state, want_state, info_of(info))
        return Group(self.receiving, self._multicasting, joining)

    async def groups(self) -> Groups:
        """All groups of the cluster and their members, as the daemon knows them now."""
        await self.connection.connected()
        table: Groups = await self.connection.answer(self.protocol.ask_groups())
        return table

    async def networks(self) -> tuple[NetworkStatus, ...]:
        """The networks of a ring that is on several, with state and fault, as all its members have agreed.
        Empty with one network."""
        await self.connection.connected()
        table: tuple[NetworkStatus, ...] = await self.connection.answer(self.protocol.ask_networks())
        return table

    @property
    def process(self) -> ProcessId:
        """Who the program is: the sender of its messages, and a member of its groups."""
        return self.protocol.process

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

        return Log(self, name, partial(self.log_services, replicas, tls))

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

        self.connection.check_open()
        feeding = self.protocol.feeds.open(log, start, place)
        services = partial(self.log_services, replicas, tls)
        return Feed(self.connection, feeding, services, self.log_reconnect)

    async def barrier(self, timeout: float | None = None) -> int:
        """A place in the order: every run that was green at any replica when this was called is before it,
        and feeds of this session that are live have been given those of their logs. TimeoutError if a
        majority of the replicas does not answer within `timeout` seconds."""
        connection = self.connection
        connection.check_open()
        feeds = self.protocol.feeds
        ticket = feeds.barrier()
        connection.flush_soon()
        try:
            async with asyncio.timeout(timeout):
                place: int = await connection.expect(ticket)
                return place
        except TimeoutError:
            feeds.give_up(ticket)
            raise TimeoutError(f"{NO_BARRIER} within {timeout:g} s") from None
        except asyncio.CancelledError:
            feeds.give_up(ticket)
            raise
        finally:
            connection.forget(ticket)

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

    # Receiving

    def events(self, *, networks: bool = False) -> SessionEvents:
        """The events of all groups that the session has joined, in one order; a message to two of them comes
        once.

        It begins with what has not been taken from them yet. A group that is iterated over by itself too
        gives its events to both. With `networks` it also tells how each network of a redundant ring stands,
        and what changes from then on: `NetworkChanged`.
        """
        return SessionEvents(self.receiving, self.receiving.open_events(networks=networks))

    # For other parts of the package

    def log_services(
        self, replicas: str | Sequence[str] | None = None, tls: ssl.SSLContext | Tls | None = None
    ) -> Sequence[Endpoint]:
        """The log services that it reads from: of its daemons, or the ones that are named."""
        from totempole.client.log_endpoints import services_beside

        return services_beside(self._endpoints.all, self._log_socket, replicas, tls)

    @property
    def log_reconnect(self) -> Reconnect | None:
        """How it comes back to a log service. An embedded node starts its own, and starts it again."""
        return self.reconnect or (Reconnect() if self._log_socket else None)

    @property
    def reconnect(self) -> Reconnect | None:
        """How it comes back to a daemon that has gone away."""
        return self._reconnect


class Group:
    """Made by `Session.join`, and used inside `async with`: entering joins, leaving leaves.

    Iterating gives the group's events, from the view that brought the program in. The iteration ends when the
    group is left or the session closed, and raises SessionError when it had to end.
    """

    def __init__(self, receiving: Receiving, multicasting: Multicasting, joining: Joining) -> None:
        self._receiving = receiving
        self._multicasting = multicasting
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
        return self._receiving.members(self.name, self._stream)

    async def __aenter__(self) -> Self:
        if self._stream is not None:
            raise SessionError(f"group {self.name!r}: it is entered once: join again")
        self._stream = await self._receiving.join(self._joining)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._receiving.leave(self.name, self._stream)

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
        return self._multicasting.offer(to, payload) or await self._multicasting.multicast(to, payload)

    async def multicast_many(
        self, payloads: Sequence[bytes], service: Service = Service.AGREED, *, safe_notice: bool = False
    ) -> MulticastReceipt:
        """Sends messages, in this order; each is delivered as a message of its own. If it is cancelled or
        fails while it waits, the first of them may have been accepted."""
        return await self._multicasting.multicast_many(self._target(service, safe_notice), payloads)

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
        return await self._receiving.next(self._own_stream())

    def _own_stream(self) -> Stream:
        if self._stream is None:
            raise SessionError(f"group {self.name!r} is not joined: use it inside `async with`")
        if not self._iterated:
            self._iterated = True
            self._receiving.iterate(self.name, self._stream)
        return self._stream


class SessionEvents(AsyncIterator[Event]):
    """The events of all joined groups, in one order. Ends with the session."""

    def __init__(self, receiving: Receiving, stream: Stream) -> None:
        self._receiving = receiving
        self._stream = stream

    async def __anext__(self) -> Event:
        return await self._receiving.next(self._stream)

    def close(self) -> None:
        """Takes no more from here: the groups keep their events for themselves again."""
        self._receiving.close_events(self._stream)
