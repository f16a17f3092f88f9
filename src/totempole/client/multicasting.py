"""What an asyncio program multicasts: taken at once, or in turn as the daemon gives credit; and its receipts.

A message that nothing stands in the way of is taken without waiting (`offer`). Otherwise tasks wait for
credit in turn, so that none is overtaken. A message larger than a SEND goes in parts, beside the small ones,
once the daemon has agreed to take it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from totempole.client.sending import NOTHING_SENT, Delivered, Run, Sent, Target, check_notice, one_as_bytes
from totempole.errors import SessionError
from totempole.types import Payload

if TYPE_CHECKING:
    from totempole.client.connection import Connection
    from totempole.client.endpoint import Link


class Multicasting:
    """The tasks of a session that multicast."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = connection.protocol.sending
        self._turn = asyncio.Lock()
        """The task that waits for credit has it. Those behind wait for the turn."""
        self._large_turn = asyncio.Lock()
        self._filling: Sent | None = None
        """The frame that was last added to,"""
        self._receipt = MulticastReceipt(self, ())
        """and the receipt that its messages share."""

    def offer(self, to: Target, payload: bytes) -> MulticastReceipt | None:
        """Takes the message at once, if nothing stands in the way."""
        connection, sending = self._connection, self._sending
        if type(payload) is not bytes or self._turn.locked() or connection.closing:
            return None
        sent = sending.offer(to, payload)
        if sent is None:
            return None
        if sending.out or not connection.flushing:
            connection.flush_soon()
        if sent is not self._filling:
            self._filling, self._receipt = sent, MulticastReceipt(self, (sent,))
        return self._receipt

    async def multicast(self, to: Target, payload: bytes) -> MulticastReceipt:
        return self.offer(to, payload) or await self.multicast_many(to, (one_as_bytes(payload),))

    async def multicast_many(self, to: Target, payloads: Sequence[bytes]) -> MulticastReceipt:
        connection, sending = self._connection, self._sending
        connection.check_open()
        if not payloads:
            return MulticastReceipt(self, ())
        run = Run(payloads)
        await connection.connected()
        sending.check(to, run.longest)
        if run.left == 1 and sending.is_large(to, run.longest):
            run.sent.append(await self._multicast_large(to, run.payloads[0]))
        elif self._turn.locked() or not sending.offer_run(to, run):
            await self._send_in_turn(to, run)
        connection.flush_soon()
        return MulticastReceipt(self, tuple(run.sent))

    async def _send_in_turn(self, to: Target, run: Run) -> None:
        """The rest, as there is credit."""
        connection, sending = self._connection, self._sending
        async with self._turn:
            while not sending.offer_run(to, run):
                payload = run.payloads[run.next]
                if sending.is_large(to, len(payload)):
                    run.sent.append(await self._multicast_large(to, payload))
                    run.next += 1
                    continue
                connection.flush()
                await connection.awaiting(connection.news())
                await connection.connected()
                sending.check(to, run.longest)

    # Large messages

    async def _multicast_large(self, to: Target, payload: bytes) -> Sent:
        """On a task of its own: a large message that was begun has to be sent to its end."""
        return await asyncio.shield(self._connection.start(self._send_large(to, payload)))

    async def _send_large(self, to: Target, payload: bytes) -> Sent:
        """Begins again with a new connection: of a message in parts, nothing is delivered unless all came."""
        connection = self._connection
        async with self._large_turn:
            while True:
                await connection.connected()
                link = connection.link
                request, parts = connection.protocol.ask_large(to, payload)
                try:
                    await connection.answer(request)
                except SessionError:
                    if connection.link is link:
                        raise
                    continue
                if link is not None and await self._send_parts(link, parts):
                    return self._sending.sent_large(to)

    async def _send_parts(self, link: Link, parts: list[tuple[Payload, ...]]) -> bool:
        """Whether the link has taken all of them."""
        connection = self._connection
        for part in parts:
            while link is connection.link and (link.writing_paused or link.closing):
                await connection.awaiting(connection.news())
            if link is not connection.link:
                return False
            connection.flush()
            link.write(part)
        return not link.closing

    # Receipts

    async def wait_for_sent(self, sent: Sent) -> None:
        """Waits for news of what was multicast, or of its loss."""
        connection = self._connection
        future: asyncio.Future[None] = connection.loop.create_future()
        sent.waiters.append(future)
        try:
            await connection.awaiting(future)
        finally:
            if future in sent.waiters:
                sent.waiters.remove(future)


class MulticastReceipt:
    """Of one call of `multicast` or `multicast_many`. Messages that travelled together may share one."""

    __slots__ = ("_multicasting", "sent")

    def __init__(self, multicasting: Multicasting, sent: tuple[Sent, ...]) -> None:
        self._multicasting = multicasting
        self.sent = sent

    async def delivered(self) -> Delivered:
        """Waits until the message has come back to this program; of several, the last.

        `Unknown` if the connection is lost, or the group left, before that: it may have been delivered, or
        may still be. SessionError if it does not come back at all, because this program is in none of the
        groups, or only with policy="shed".
        """
        return await self._settled(safe=False)

    async def safe(self) -> Delivered:
        """Waits until the message is at every processor of the configuration in which it was delivered.

        For messages with service=SAFE, or with `safe_notice=True`; of others nobody tells, and this raises
        SessionError. Else as `delivered`.
        """
        check_notice(self.sent)
        return await self._settled(safe=True)

    async def _settled(self, safe: bool) -> Delivered:
        if not self.sent:
            raise SessionError(NOTHING_SENT)
        for sent in self.sent:
            while not sent.is_settled(safe):
                await self._multicasting.wait_for_sent(sent)
            found = sent.outcome(safe, self)
        return found
