"""A group that a program without asyncio is in, all its groups together, and receipts for what it sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from totempole.client.events import Event, Stream
from totempole.client.protocol import Joining
from totempole.client.sending import NOTHING_SENT, Delivered, Sent, Target, check_notice
from totempole.errors import SessionError
from totempole.types import ProcessId, Service

if TYPE_CHECKING:
    from totempole.client.blocking import Session


class BlockingReceipt:
    """`MulticastReceipt` without asyncio. TimeoutError if it takes longer than `timeout` seconds."""

    __slots__ = ("_session", "sent")

    def __init__(self, session: Session, sent: tuple[Sent, ...]) -> None:
        self._session = session
        self.sent = sent

    def delivered(self, timeout: float | None = None) -> Delivered:
        """Reads until the message has come back to this program; as `MulticastReceipt.delivered`."""
        return self._settled(False, timeout)

    def safe(self, timeout: float | None = None) -> Delivered:
        """Reads until the message is safe; as `MulticastReceipt.safe`."""
        check_notice(self.sent)
        return self._settled(True, timeout)

    def _settled(self, safe: bool, timeout: float | None) -> Delivered:
        if not self.sent:
            raise SessionError(NOTHING_SENT)
        self._session.wait_for_sent(self.sent, safe, timeout)
        return [sent.outcome(safe, self) for sent in self.sent][-1]


class Group:
    """Made by `Session.join`, and used inside `with`: entering joins, leaving leaves.

    Iterating gives the group's events, from the view that brought the program in. The iteration ends when the
    group is left or the session closed, and raises SessionError when it had to end.
    """

    def __init__(self, session: Session, joining: Joining) -> None:
        self._session = session
        self._joining = joining
        self._stream: Stream | None = None
        self._iterated = False

    @property
    def name(self) -> str:
        """The group's name."""
        return self._joining.group

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """Who is in the group, as of the event that was taken last."""
        protocol = self._session._protocol
        if not protocol.is_in(self.name, self._stream):
            return ()
        return protocol.inbox.memberships[self.name].members

    def __enter__(self) -> Self:
        if self._stream is not None:
            raise SessionError(f"group {self.name!r}: it is entered once: join again")
        self._stream = self._session._join(self._joining)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(SessionError, TimeoutError):  # the session's end leaves all groups
            self._session._leave(self.name, self._stream)

    def multicast(
        self,
        payload: bytes,
        service: Service = Service.AGREED,
        *,
        safe_notice: bool = False,
        timeout: float | None = None,
    ) -> BlockingReceipt:
        """Sends a message to all members, this program among them. See `Session.multicast`."""
        to = Target((self.name,), Service(service), safe_notice)
        return self._session._multicast(to, (payload,), timeout)

    def multicast_many(
        self,
        payloads: Sequence[bytes],
        service: Service = Service.AGREED,
        *,
        safe_notice: bool = False,
        timeout: float | None = None,
    ) -> BlockingReceipt:
        """Sends messages, in this order. See `Session.multicast_many`."""
        to = Target((self.name,), Service(service), safe_notice)
        return self._session._multicast(to, payloads, timeout)

    def next(self, timeout: float | None = None) -> Event:
        """The next event. TimeoutError if none comes within `timeout` seconds; SessionError if none will."""
        event = self._session._next(self._own_stream(), timeout)
        if event is None:
            raise SessionError(f"group {self.name!r} has been left")
        return event

    def __iter__(self) -> Iterator[Event]:
        self._own_stream()
        return self

    def __next__(self) -> Event:
        event = self._session._next(self._own_stream(), None)
        if event is None:
            raise StopIteration
        return event

    def _own_stream(self) -> Stream:
        if self._stream is None:
            raise SessionError(f"group {self.name!r} is not joined: use it inside `with`")
        if not self._iterated:
            self._iterated = True
            protocol = self._session._protocol
            if protocol.is_in(self.name, self._stream):
                protocol.inbox.iterate(protocol.inbox.memberships[self.name])
        return self._stream


class SessionEvents(Iterator[Event]):
    """The events of all joined groups, in one order. Ends with the session."""

    def __init__(self, session: Session, stream: Stream) -> None:
        self._session = session
        self._stream = stream

    def next(self, timeout: float | None = None) -> Event:
        """The next event. TimeoutError if none comes within `timeout` seconds; SessionError if none will."""
        event = self._session._next(self._stream, timeout)
        if event is None:
            raise SessionError("the session is closed, and has no more events")
        return event

    def __next__(self) -> Event:
        event = self._session._next(self._stream, None)
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Takes no more from here: the groups keep their events for themselves again."""
        inbox = self._session._protocol.inbox
        if inbox.whole is self._stream:
            inbox.close_whole()
