"""A group that an asyncio program is in, and all its groups together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from totempole.client.events import Event
from totempole.client.protocol import Joining
from totempole.client.sending import Target
from totempole.client.streams import Stream
from totempole.errors import SessionError
from totempole.types import ProcessId, Service

if TYPE_CHECKING:
    from totempole.client.session import Session


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
    ) -> None:
        """Sends a message to all members, this program among them.

        Returns when the message is accepted, and waits while the ring pushes back. With `safe_notice` the
        members get a `Safe` once every processor of the configuration has the message.
        """
        to = self._target(service, safe_notice)
        if not self._session._offer(to, payload):
            await self._session._multicast(to, payload)

    async def multicast_many(
        self, payloads: Sequence[bytes], service: Service = Service.AGREED, *, safe_notice: bool = False
    ) -> None:
        """Sends messages, in this order; each is delivered as a message of its own. If it is cancelled or
        fails while it waits, the first of them may have been accepted."""
        await self._session._multicast_many(self._target(service, safe_notice), payloads)

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
            self._session._read_on()
