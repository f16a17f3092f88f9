"""What an asyncio program receives: it joins groups, takes their events one by one, and leaves them again.

Between two events a member may be asked for the group's state (`StateAsked`). The program does not see that:
its `Donor` gives the state there.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from totempole.client.connection import Connection
from totempole.client.donor import Donor
from totempole.client.events import Event, Stream
from totempole.client.protocol import Joining
from totempole.errors import SessionError
from totempole.groups.events import StateAsked
from totempole.types import ProcessId


class Receiving:
    """The groups that a program is in, and the streams that it takes events from."""

    def __init__(self, connection: Connection, logger: logging.Logger) -> None:
        self._connection = connection
        self._protocol = connection.protocol
        self._inbox = connection.protocol.inbox
        self._logger = logger
        self._donor = Donor(connection, self.abandon, logger)
        self._has_warned = False

    # Groups

    async def join(self, joining: Joining) -> Stream:
        """Waits until the program is in the group. The group's stream."""
        self._connection.check_open()
        request = self._protocol.join(joining)
        stream = self._inbox.memberships[joining.group].own
        try:
            await self._connection.answer(request)
        except asyncio.CancelledError:
            self.abandon(joining.group)
            raise
        return stream

    async def leave(self, group: str, stream: Stream | None) -> None:
        """Ends the membership that has this stream, if it has not ended before."""
        if not self._protocol.is_in(group, stream):
            return
        request = self._protocol.leave(group)
        self._connection.wake()
        self._connection.go_on()
        if request is not None:
            with suppress(SessionError):
                await self._connection.answer(request)

    def abandon(self, group: str, error: SessionError | None = None) -> None:
        """Leaves a group without waiting."""
        self._protocol.leave(group, error)
        self._connection.wake()
        self._connection.flush()
        self._connection.go_on()

    def members(self, group: str, stream: Stream | None) -> tuple[ProcessId, ...]:
        """As of the event that was taken last; empty after the membership that has this stream."""
        if not self._protocol.is_in(group, stream):
            return ()
        return self._inbox.memberships[group].members

    # Events

    def iterate(self, group: str, stream: Stream) -> None:
        """The program begins to take events from the group itself."""
        if self._protocol.is_in(group, stream):
            self._inbox.iterate(self._inbox.memberships[group])

    def open_events(self, *, networks: bool) -> Stream:
        """The stream of all groups."""
        self._connection.check_open()
        stream = self._protocol.open_events(networks)
        if networks:
            self._connection.flush()
        return stream

    def close_events(self, stream: Stream) -> None:
        """Groups keep their events for themselves again."""
        if self._inbox.whole is stream:
            self._inbox.close_whole()
            self._connection.wake()
            self._connection.go_on()

    async def next(self, stream: Stream) -> Event:
        """The next event of a stream; StopAsyncIteration at its end."""
        inbox = self._inbox
        while True:
            item = inbox.take(stream)
            if item is None:
                if stream.over:
                    raise stream.error or StopAsyncIteration
                await self._wait_for_event(stream)
                continue
            self._connection.go_on()
            event = item.event
            if isinstance(event, StateAsked):
                await self._donor.give(stream, item, event)
            elif isinstance(event, SessionError):
                raise event
            else:
                return event  # type: ignore[return-value]  # a Transfer is a State by now

    async def _wait_for_event(self, stream: Stream) -> None:
        connection = self._connection
        future: asyncio.Future[None] = connection.loop.create_future()
        stream.waiters.append(future)
        if connection.link is not None and connection.link.reading_paused:
            self._warn(stream)
        try:
            await future
        finally:
            if future in stream.waiters:
                stream.waiters.remove(future)

    def _warn(self, starving: Stream) -> None:
        """One stream waits, and nothing is read because another one is full."""
        if self._has_warned:
            return
        self._has_warned = True
        fullest = max(self._inbox.streams(), key=lambda stream: len(stream.ready))
        self._logger.warning(
            "%s waits for events, but nothing is read while %s has %d that nobody takes: iterate over it, or "
            "take all groups' events from session.events()",
            starving.name,
            fullest.name,
            len(fullest.ready),
        )
