"""A replicated object, for programs without asyncio and without threads. All as in `objects.replica`.

    with totempole.blocking.connect() as session, session.replica(Bank, "bank") as bank:
        left = bank.call(Bank.transfer, "ann", "bob", 10)
        print(bank.read(Bank.balance, "ann"), bank.peek(Bank.balance, "ann"))

Commands of other programs are applied here by the calls of this one: what comes while the program makes none
waits at the daemon, and is read from the log if it becomes too much.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from totempole.errors import SessionError, TotemError, Unknown
from totempole.objects.hosting import (
    CLOSED,
    HOUSEKEEPING_S,
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

    from totempole.client.blocking import Session
    from totempole.client.blocking_feed import Feed
    from totempole.client.endpoint import Tls

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Replica(ReplicaBase[T]):
    """Made by `Session.replica`, and used inside `with`."""

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

    def __enter__(self) -> Self:
        """Returns when all that was green at this node is applied here."""
        self._running.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._running.close()

    # Commands

    def call(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of a command, once it is ordered, on a quorum's disks and applied here: exactly once.
        Raises as the asyncio replica's."""
        running = self._running
        command, arguments = running.hosting.encode(method, args, kwargs)
        pending = running.hosting.host.call(command.name, arguments)
        running.wait(pending, self._timeout)
        if pending.outcome is None or pending.outcome.kind:
            raise running.failure(pending)
        result: R = command.result.decode(pending.outcome.value)
        return result

    @overload
    def call_many(
        self,
        method: Callable[Concatenate[T, ...], R],
        arguments: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: Literal[False] = False,
    ) -> list[R]: ...

    @overload
    def call_many(
        self,
        method: Callable[Concatenate[T, ...], R],
        arguments: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: Literal[True],
    ) -> list[R | Exception]: ...

    def call_many(
        self,
        method: Callable[Concatenate[T, ...], R],
        arguments: Iterable[tuple[Any, ...]],
        *,
        return_exceptions: bool = False,
    ) -> list[R] | list[R | Exception]:
        """Calls a command with each of these tuples of arguments, in this order: they share records, and are
        much faster than one after the other."""
        running = self._running
        host = running.hosting.host
        encoded = [running.hosting.encode(method, args, {}) for args in arguments]
        calls = [host.call(command.name, content) for command, content in encoded]
        left = deque(calls)

        def are_done() -> bool:
            while left and left[0].is_done:
                left.popleft()
            return not left

        try:
            running.until(are_done, self._timeout)
        except TimeoutError:
            pass  # each call says what is known of it
        except KeyboardInterrupt:
            for call in calls:
                host.give_up(call)
            raise
        why = f"not done within {self._timeout or 0:g} s"
        results, first = running.results(encoded, calls, why)
        if first is not None and not return_exceptions:
            raise first
        return results

    def submit(
        self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> CallReceipt[R]:
        """A receipt, once the call is on the disk of the daemon's host: in a minority, too."""
        running = self._running
        command, arguments = running.hosting.encode(method, args, kwargs)
        pending = running.hosting.host.call(command.name, arguments, red=True)
        running.wait(pending, self._timeout)
        if pending.is_durable or pending.outcome is not None:
            return running.receipt(pending)
        raise running.failure(pending)

    def receipt(self, text: str, method: Callable[Concatenate[T, ...], R] | None = None) -> CallReceipt[R]:
        """The receipt that was written as this text. `method` is for type checkers."""
        name = self._running.hosting.parse_receipt(text, method)
        return CallReceipt(self._running, name, self._running.hosting.host.find(name.client, name.number))

    # Reading

    def read(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What a method that changes nothing says, linearisable: of a state with every call that has returned
        anywhere before this read began."""
        running = self._running
        reader = check_reader(method)
        pending = running.hosting.host.read()
        running.wait(pending, self._timeout)
        if pending.error is not None:
            raise pending.error
        return detached(reader(running.hosting.state, *args, **kwargs))

    def peek(self, method: Callable[Concatenate[T, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What a method that changes nothing says of the state that is here, with what has come by now."""
        reader = check_reader(method)
        self._running.look()
        return detached(reader(self._running.hosting.state, *args, **kwargs))

    def after(self, receipt: CallReceipt[Any] | int) -> None:
        """Waits until the receipt's call is applied here, or all records before a position."""
        running = self._running
        if isinstance(receipt, int):
            pending = running.hosting.host.when_applied(receipt)
            running.wait(pending, self._timeout)
            if pending.error is not None:
                raise pending.error
        else:
            receipt._applied(self._timeout)


class CallReceipt(ReceiptBase, Generic[R]):
    """Names a call forever. `str(receipt)` can be kept; `replica.receipt(text)` makes it one again."""

    __slots__ = ("_running",)

    def __init__(self, running: _Running[Any], name: CallName, pending: PendingCall | None) -> None:
        super().__init__(name, pending)
        self._running = running

    def result(self, timeout: float | None = None) -> R:
        """Waits until the call is applied: its result, or what it raised. `Unknown` if that takes longer than
        `timeout` seconds, or if nobody knows the call any more."""
        self._applied(timeout)
        result: R = self._running.hosting.take_result(self)
        return result

    def _applied(self, timeout: float | None) -> None:
        if self.outcome is not None:
            return
        running = self._running
        try:
            if self.pending is None:
                self.outcome = running.search(self, timeout)
                return
            pending = self.pending
            running.until(lambda: pending.is_done, timeout)
        except TimeoutError:
            raise Unknown(unknown_text(f"not applied within {timeout:g} s"), (self,)) from None
        self.outcome = pending.outcome
        if self.outcome is None:
            raise Unknown(unknown_text(str(pending.error)), (self,))


class _Running(Generic[T]):
    """The bridge between a session that reads and writes in its calls, and a hosting."""

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
        self.hosting: Hosting[T] = Hosting(cls, name, session.protocol, _nothing, self._retry_later, file)
        self._replicas = replicas
        self._tls = tls
        self._feed: Feed | None = None
        self._retry_at: float | None = None
        self._house_at = 0.0

    def open(self) -> None:
        if self._feed is not None:
            raise SessionError(f"object {self.hosting.name!r}: a replica is entered once: make another one")
        try:
            self._feed = self._follow()
            self.until(lambda: self.hosting.error or (self._feed is not None and self._feed.is_live), None)
            if self.hosting.error is not None:
                raise self.hosting.error
        except BaseException:
            self.close()
            raise
        self.hosting.opened(time.monotonic())
        self._turn()

    def _follow(self) -> Feed:
        """From the newest snapshot on, or from the beginning."""
        session, hosting = self.session, self.hosting
        endpoints = session.log_services(self._replicas, self._tls)
        start = hosting.begin(hosting.new_snapshots(endpoints, session.log_reconnect).open_blocking())
        return session.feed(log_name(hosting.name), start, replicas=self._replicas, tls=self._tls)

    def _follow_again(self, feed: Feed) -> None:
        feed.close()
        try:
            self._feed = self._follow()
        except TotemError as error:
            self.hosting.fail(error)

    def close(self) -> None:
        if self.hosting.close():
            self.session.flush()
        if self._feed is not None:
            self._feed.close()

    # Turns

    def _turn(self) -> None:
        """Takes in what has come, and sends."""
        feed, hosting = self._feed, self.hosting
        if feed is None:
            raise SessionError(CLOSED)
        while not hosting.is_stale and hosting.take_from(feed.drain):
            pass
        if hosting.is_stale and hosting.error is None:
            self._follow_again(feed)
            return
        hosting.reached(feed.place)
        if feed.is_over:
            hosting.feed_is_over(feed.error)
        hosting.keep_file(time.monotonic())
        self._keep_time()
        if hosting.send():
            self.session.flush()
        hosting.host.settled.clear()

    def _keep_time(self) -> None:
        now_s = time.monotonic()
        if self._retry_at is not None and now_s >= self._retry_at:
            self._retry_at = None
            self.hosting.host.retry()
        if now_s >= self._house_at and self.hosting.is_open:
            self._house_at = now_s + HOUSEKEEPING_S
            self.hosting.keep_house(now_s)

    def _retry_later(self) -> None:
        self._retry_at = time.monotonic() + RETRY_S

    def look(self) -> None:
        """Takes in what has come by now, without waiting."""
        self.hosting.check_open()
        feed = self._feed
        assert feed is not None, "it is open"
        if feed.is_live:
            self.session.serve(None, time.monotonic(), lambda: True)
        else:
            with suppress(TimeoutError, TotemError):  # there is nothing; or the turn tells what is wrong
                feed.until(lambda: feed.is_live, time.monotonic())
        self._turn()

    # Waiting

    def until(self, done: Callable[[], object], timeout: float | None) -> None:
        """TimeoutError when it is not done by then."""
        deadline = None if timeout is None else time.monotonic() + timeout

        def turned() -> object:
            self._turn()
            return done()

        while not turned():
            feed = self._feed
            assert feed is not None, "it is open"
            ends = [end for end in (deadline, self._retry_at) if end is not None]
            try:
                feed.until(turned, min(ends, default=None))
            except TimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
            except TotemError:
                if not feed.is_over:  # otherwise the next turn says so to all who wait
                    raise

    def wait(self, pending: PendingCall | PendingRead | PendingPosition, timeout: float | None) -> None:
        """Until it is settled. After so long it is given up, with an error that says what is known of it."""
        try:
            if isinstance(pending, PendingCall):
                self.until(lambda: pending.is_done or pending.is_durable, timeout)
            else:
                self.until(lambda: pending.is_done, timeout)
        except TimeoutError:
            raise self.late(pending, f"not done within {timeout:g} s") from None
        except KeyboardInterrupt:
            self.hosting.give_up(pending)
            raise

    def late(self, pending: PendingCall | PendingRead | PendingPosition, why: str) -> Exception:
        """Gives it up at its deadline."""
        if not isinstance(pending, PendingCall):
            self.hosting.give_up(pending)
            return SessionError(f"nothing was read: {NO_ANSWER} ({why})")
        if self.hosting.host.give_up(pending, wanted=True):
            return SessionError(f"nothing was called: {why}, and it was not sent before")
        return Unknown(unknown_text(why), (self.receipt(pending),))

    def search(self, receipt: CallReceipt[Any], timeout: float | None) -> Outcome:
        """The outcome of a call of another program, or of a time before."""
        self.look()
        pending = self.hosting.search(receipt.name, None, for_good=timeout is not None)
        try:
            self.until(lambda: pending.is_done, timeout)
        finally:
            self.hosting.end_search(pending)
        if pending.outcome is None:
            raise Unknown(unknown_text(str(pending.error)), (receipt,))
        return pending.outcome

    # What a caller is told

    def results(
        self, encoded: Sequence[tuple[Any, bytes]], calls: list[PendingCall], why: str
    ) -> tuple[list[Any], Exception | None]:
        """Of several calls, and the first error among them."""
        found: list[Any] = []
        first: Exception | None = None
        for (command, _), call in zip(encoded, calls, strict=True):
            if call.outcome is not None and not call.outcome.kind:
                found.append(command.result.decode(call.outcome.value))
                continue
            failure = self.failure(call) if call.is_done else self.late(call, why)
            found.append(failure)
            first = first or failure
        return found, first

    def receipt(self, pending: PendingCall) -> CallReceipt[Any]:
        return CallReceipt(self, self.hosting.name_of(pending), pending)

    def failure(self, pending: PendingCall) -> Exception:
        """What a call raises that has no result."""
        error = self.hosting.failure(pending)
        return error or Unknown(unknown_text(str(pending.error)), (self.receipt(pending),))


def _nothing() -> None:
    """What has come is looked at when the session returns."""
