"""A replicated object, for asyncio programs.

    async with session.replica(Bank, "bank") as bank:
        left = await bank.call(Bank.transfer, "ann", "bob", 10)
        print(await bank.read(Bank.balance, "ann"), bank.peek(Bank.balance, "ann"))

The object lives in this program: its state is here, and every command of every program is applied here, in
the order of the object's log. `call` returns when the command is ordered, on the disks of a quorum, and
applied here. Calls of many tasks share records.

A replica belongs to its session's event loop. `peek` is for that loop's thread, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from totempole.errors import SessionError, TotemError, Unknown
from totempole.objects.hosting import (
    CLOSED,
    HOUSEKEEPING_S,
    KEEP_S,
    NO_ANSWER,
    RETRY_S,
    Hosting,
    log_name,
    unknown_text,
)
from totempole.objects.pending import PendingCall, PendingPosition, PendingRead
from totempole.objects.reading import check_reader, detached
from totempole.objects.receipts import CallName, ReceiptBase
from totempole.objects.records import Outcome
from totempole.objects.replica_base import ReplicaBase

if TYPE_CHECKING:
    import os
    import ssl
    from collections.abc import Sequence

    from totempole.client.endpoint import Tls
    from totempole.client.feed import Feed
    from totempole.client.session import Session

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

TURN_S = 0.01
"""So long records are applied before others of the loop have their turn."""


class Replica(ReplicaBase[T]):
    """Made by `Session.replica`, and used inside `async with`."""

    def __init__(
        self,
        session: Session,
        cls: type[T],
        name: str,
        *,
        replicas: str | Sequence[str] | None = None,
        tls: ssl.SSLContext | Tls | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._running: _Running[T] = _Running(session, cls, name, replicas, tls, file)
        super().__init__(self._running.hosting)

    # Life

    async def __aenter__(self) -> Self:
        """Returns when all that was green at this node is applied here."""
        await self._running.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends it. Calls that were sent and are not applied raise `Unknown`."""
        await self._running.close()

    # Commands

    async def call(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a command, once it is ordered, on a quorum's disks and applied here: exactly once,
        whatever goes away and comes back meanwhile.

        `Refused` is what the command itself raises to say no; `CommandRaisedError` tells of any other
        exception in it. `Unknown` (at a deadline, or when the replica is closed) means that it was sent, and
        nobody here knows what becomes of it; its receipt may tell later. Any other error means that nothing
        was called.
        """
        running = self._running
        hosting = running.hosting
        command, arguments = hosting.encode(method, args, kwargs)
        waiter = running.loop.create_future()
        pending = hosting.host.call(command.name, arguments, waiter)
        running.turn_soon()
        if self._timeout is None:
            try:
                await waiter
            except asyncio.CancelledError:
                hosting.host.give_up(pending)
                raise
        else:
            await running.wait(pending, waiter, self._timeout)
        outcome = pending.outcome
        if outcome is not None and not outcome.kind:
            result: R = command.result.decode(outcome.value)
            return result
        raise running.failure(pending)

    @overload
    async def call_many(
        self,
        method: Callable[Concatenate[T, ...], R],
        arguments: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: Literal[False] = False,
    ) -> list[R]: ...

    @overload
    async def call_many(
        self,
        method: Callable[Concatenate[T, ...], R],
        arguments: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: Literal[True],
    ) -> list[R | Exception]: ...

    async def call_many(
        self,
        method: Callable[Concatenate[T, ...], R],
        arguments: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: bool = False,
    ) -> list[R] | list[R | Exception]:
        """Calls a command with each of these tuples of arguments, in this order; other calls may come in
        between. Returns the results. The first error is raised when all are done; with `return_exceptions`
        each stands in its place."""
        running = self._running
        hosting = running.hosting
        encoded = [hosting.encode(method, args, {}) for args in arguments]
        if not encoded:
            return []
        waiter = running.loop.create_future()
        crowd = _Crowd(waiter, len(encoded))
        calls = [hosting.host.call(command.name, content, crowd) for command, content in encoded]
        running.turn_soon()
        try:
            async with asyncio.timeout(self._timeout):
                await waiter
        except TimeoutError:
            pass  # each call says what is known of it
        except asyncio.CancelledError:
            for call in calls:
                hosting.host.give_up(call)
            raise
        results: list[Any] = []
        first: Exception | None = None
        why = f"not done within {self._timeout or 0:g} s"
        decode = encoded[0][0].result.decode
        for call in calls:
            if call.outcome is not None and not call.outcome.kind:
                results.append(decode(call.outcome.value))
                continue
            failure = running.failure(call) if call.is_done else running.late(call, why)
            results.append(failure)
            first = first or failure
        if first is not None and not return_exceptions:
            raise first
        return results

    async def submit(
        self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> CallReceipt[R]:
        """A receipt, once the call is on the disk of the daemon's host: in a minority, too. It is applied
        when that host meets a majority, unless its disk is lost before. The result is kept for the receipt
        until it was asked for, or until 4,096 later ones were submitted."""
        running = self._running
        command, arguments = running.hosting.encode(method, args, kwargs)
        waiter = running.loop.create_future()
        pending = running.hosting.host.call(command.name, arguments, waiter, red=True)
        running.turn_soon()
        await running.wait(pending, waiter, self._timeout)
        if pending.is_durable or pending.outcome is not None:
            return running.receipt(pending)
        raise running.failure(pending)

    def receipt(self, text: str, method: Callable[Concatenate[T, ...], R] | None = None) -> CallReceipt[R]:
        """The receipt that was written as this text, by this program or by one before it. `method` is for
        type checkers."""
        name = self._running.hosting.parse_receipt(text, method)
        return CallReceipt(self._running, name, self._running.hosting.host.find(name.client, name.number))

    # Reading

    async def read(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What a method that changes nothing says, linearisable: of a state with every call that has returned
        anywhere before this read began. It needs a quorum, and no disk. Reads at the same time share the
        cost."""
        running = self._running
        reader = check_reader(method)
        waiter = running.loop.create_future()
        pending = running.hosting.host.read(waiter)
        running.turn_soon()
        await running.wait(pending, waiter, self._timeout)
        if pending.error is not None:
            raise pending.error
        return detached(reader(running.hosting.state, *args, **kwargs))

    def peek(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What a method that changes nothing says of the state that is here. It may be old; it has all calls
        of this replica that have returned, and never goes back."""
        return detached(check_reader(method)(self._running.hosting.state, *args, **kwargs))

    async def after(self, receipt: CallReceipt[Any] | int) -> None:
        """Waits until the receipt's call is applied here, or all records before a position. What is peeked at
        then has it."""
        running = self._running
        if isinstance(receipt, int):
            waiter = running.loop.create_future()
            pending = running.hosting.host.when_applied(receipt, waiter)
            running.turn_soon()
            await running.connection.awaiting(running.wait(pending, waiter, self._timeout))
            if pending.error is not None:
                raise pending.error
        else:
            await receipt._applied(self._timeout)


class CallReceipt(ReceiptBase, Generic[R]):
    """Names a call forever. `str(receipt)` can be kept; `replica.receipt(text)` makes it one again."""

    __slots__ = ("_running",)

    def __init__(self, running: _Running[Any], name: CallName, pending: PendingCall | None) -> None:
        super().__init__(name, pending)
        self._running = running

    async def result(self, timeout: float | None = None) -> R:
        """Waits until the call is applied: its result, or what it raised. `Unknown` if that takes longer than
        `timeout` seconds, or if nobody knows the call any more."""
        await self._applied(timeout)
        result: R = self._running.hosting.take_result(self)
        return result

    async def _applied(self, timeout: float | None) -> None:
        if self.outcome is not None:
            return
        running = self._running
        awaiting = running.connection.awaiting  # the record comes behind events of groups
        if self.pending is None:
            self.outcome = await awaiting(running.search(self, timeout))
        else:
            await awaiting(running.wait_again(self.pending, timeout, self))
            self.outcome = self.pending.outcome


class _Crowd:
    """Calls that are waited for together."""

    __slots__ = ("left", "waiter")

    def __init__(self, waiter: asyncio.Future[None], left: int) -> None:
        self.waiter = waiter
        self.left = left


class _Running(Generic[T]):
    """The bridge between an event loop and a hosting."""

    def __init__(
        self,
        session: Session,
        cls: type[T],
        name: str,
        replicas: str | Sequence[str] | None,
        tls: ssl.SSLContext | Tls | None,
        file: str | os.PathLike[str] | None,
    ) -> None:
        self.session = session
        self.connection = session.connection
        self.hosting: Hosting[T] = Hosting(
            cls, name, session.protocol, self.turn_soon, self._retry_later, file
        )
        self._replicas = replicas
        self._tls = tls
        self._feed: Feed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_turning = False
        self._is_keeping = False
        """What is applied is written to the object's file soon."""
        self._reopening: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise SessionError(CLOSED)
        return self._loop

    async def open(self) -> None:
        if self._loop is not None:
            raise SessionError(f"object {self.hosting.name!r}: a replica is entered once: make another one")
        self._loop = asyncio.get_running_loop()
        self._ready = self._loop.create_future()
        try:
            await self._follow()
            await self.connection.awaiting(self._ready)
        except BaseException:
            await self.close()
            raise
        self._keep_house()

    async def _follow(self) -> None:
        """From the newest snapshot on, or from the beginning."""
        session, hosting = self.session, self.hosting
        endpoints = session.log_services(self._replicas, self._tls)
        start = hosting.begin(await hosting.new_snapshots(endpoints, session.log_reconnect).open())
        feed = session.feed(log_name(hosting.name), start, replicas=self._replicas, tls=self._tls)
        feed.on_news = self.turn_soon
        self._feed = await feed.__aenter__()
        self.turn_soon()

    async def _follow_again(self) -> None:
        try:
            await self._stop_following()
            await self._follow()
        except TotemError as error:
            self.hosting.fail(error)
        finally:
            self._reopening = None
            self.turn_soon()

    async def _stop_following(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.on_news = None
            await feed.close()

    async def close(self) -> None:
        if self.hosting.close():
            self.connection.flush()
        self._deliver()
        if self._reopening is not None:
            self._reopening.cancel()
            await asyncio.wait([self._reopening])
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        await self._stop_following()

    # Turns

    def turn_soon(self) -> None:
        """Once in a turn of the loop, for all that has come."""
        if not self._is_turning and self._loop is not None:
            self._is_turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = False
        hosting, feed = self.hosting, self._feed
        if feed is not None and not hosting.is_stale:
            self._take_in(feed)
        if hosting.keep_file(self.loop.time()) and not self._is_keeping:
            self._is_keeping = True
            self._later(KEEP_S, self._keep)
        if hosting.is_stale and self._reopening is None and hosting.error is None:
            self._reopening = self.connection.start(self._follow_again())
        if hosting.send():
            self.connection.flush()
            self.connection.go_on()  # the answers come behind events of groups
        self._deliver()
        ready = self._ready
        if hosting.error is not None and ready is not None and not ready.done():
            ready.set_exception(hosting.error)
            ready.exception()  # nobody need be waiting

    def _take_in(self, feed: Feed) -> None:
        """What has come, as far as it does not take too long."""
        hosting, time = self.hosting, self.loop.time
        end = time() + TURN_S
        while hosting.take_from(feed.take):
            if time() >= end:
                self.turn_soon()
                return
        if hosting.is_stale or hosting.error is not None:
            return
        hosting.reached(feed.place)
        if feed.is_over:
            hosting.feed_is_over(feed.error)
        elif feed.is_live and self._ready is not None and not self._ready.done():
            hosting.opened(time())
            self._ready.set_result(None)

    def _deliver(self) -> None:
        """Wakes whoever waits for what has happened."""
        host = self.hosting.host
        settled, host.settled = host.settled, []
        for waiting in settled:
            waiter = waiting.waiter
            if waiter is None:
                continue
            if waiter.__class__ is _Crowd:
                waiter.left -= 1
                if waiter.left:
                    continue
                waiter = waiter.waiter
            if not waiter.done():
                waiter.set_result(None)

    def _later(self, seconds: float, then: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            then()
            self.turn_soon()

        timer = self.loop.call_later(seconds, run)
        self._timers.add(timer)

    def _retry_later(self) -> None:
        self._later(RETRY_S, lambda: self.hosting.host.retry())

    def _keep(self) -> None:
        self._is_keeping = False

    def _keep_house(self) -> None:
        self.hosting.keep_house(self.loop.time())
        self._later(HOUSEKEEPING_S, self._keep_house)

    # Waiting

    async def wait(
        self,
        pending: PendingCall | PendingRead | PendingPosition,
        waiter: asyncio.Future[None],
        timeout: float | None,
    ) -> None:
        """Until it is settled. After so long it is given up, with an error that says what is known of it."""
        timer = None if timeout is None else self.loop.call_later(timeout, _wake, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self.hosting.give_up(pending)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if not pending.is_done and not (isinstance(pending, PendingCall) and pending.is_durable):
            raise self.late(pending, f"not done within {timeout:g} s")

    def late(self, pending: PendingCall | PendingRead | PendingPosition, why: str) -> Exception:
        """Gives it up at its deadline."""
        pending.waiter = None
        if not isinstance(pending, PendingCall):
            self.hosting.give_up(pending)
            return SessionError(f"nothing was read: {NO_ANSWER} ({why})")
        if self.hosting.host.give_up(pending, wanted=True):
            return SessionError(f"nothing was called: {why}, and it was not sent before")
        return Unknown(unknown_text(why), (self.receipt(pending),))

    async def wait_again(self, pending: PendingCall, timeout: float | None, receipt: ReceiptBase) -> None:
        """For the outcome of a call that somebody has waited for before."""
        end = None if timeout is None else self.loop.time() + timeout
        while not pending.is_done:
            left = None if end is None else end - self.loop.time()
            if left is not None and left <= 0:
                break
            waiter = pending.waiter
            if waiter is None or waiter.__class__ is _Crowd or waiter.done():
                waiter = pending.waiter = self.loop.create_future()
            # Who waits is also woken when a call that was sent again is on the disk again.
            await asyncio.wait([waiter], timeout=left)
        if pending.outcome is None:
            why = str(pending.error) if pending.is_done else f"not applied within {timeout or 0:g} s"
            raise Unknown(unknown_text(why), (receipt,))

    async def search(self, receipt: CallReceipt[Any], timeout: float | None) -> Outcome:
        """The outcome of a call of another program, or of a time before."""
        self.hosting.check_open()
        waiter = self.loop.create_future()
        pending = self.hosting.search(receipt.name, waiter, for_good=timeout is not None)
        self.turn_soon()
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            raise Unknown(unknown_text(f"not applied within {timeout:g} s"), (receipt,)) from None
        finally:
            self.hosting.end_search(pending)
        if pending.outcome is None:
            raise Unknown(unknown_text(str(pending.error)), (receipt,))
        return pending.outcome

    # What a caller is told

    def receipt(self, pending: PendingCall) -> CallReceipt[Any]:
        return CallReceipt(self, self.hosting.name_of(pending), pending)

    def failure(self, pending: PendingCall) -> Exception:
        """What a call raises that has no result."""
        error = self.hosting.failure(pending)
        return error or Unknown(unknown_text(str(pending.error)), (self.receipt(pending),))


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
