"""What becomes of the messages that a program multicasts: delivered where, safe, or unknown.

    receipt = await group.multicast(b"…", safe_notice=True)
    place, view = await receipt.delivered()
    await receipt.safe()

A receipt is settled when its messages come back to the program's session. The program need not take them
from a stream first, so it may wait for a receipt in the task that iterates. Messages that share a frame share
one `Sent`, and the receipts of one frame are one object: a program that asks for none pays for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from totempole.errors import SessionError, Unknown
from totempole.types import Place, Service

if TYPE_CHECKING:
    from totempole.client import blocking, session
    from totempole.client.events import View
    from totempole.client.sending import Target

NOTHING_SENT = "no message was sent, so none is delivered"
NO_NOTICE = "nobody tells when the message is safe: multicast it with safe_notice=True or service=SAFE"
LEFT = "the group was left before the message came back"
SKIPPED = "the daemon did not pass the message on to this program"
CLOSED = "the session was closed before the message came back"


class Delivered(NamedTuple):
    """Where a program's own message was delivered to it."""

    place: Place
    """In the total order: the `place` of its `Messages`."""
    view: View
    """The view of the group in which it was delivered. Of several groups: of the first in the message's list
    that this program is in."""


class Sent:
    """The messages of one frame, from the program to the daemon and back."""

    __slots__ = ("lost", "number", "place", "safe", "to", "unreturned", "view", "waiters")

    def __init__(self, to: Target, unreturned: str) -> None:
        self.to = to
        self.number = 0
        """Of the last message, once the frame is complete."""
        self.place: Place | None = None
        self.view: View | None = None
        self.safe = False
        self.lost = ""
        """Why nothing more is heard of it."""
        self.unreturned = unreturned
        """Why it does not come back to the program at all."""
        self.waiters: list[Any] = []
        """For the session: how it wakes those who wait."""

    def is_settled(self, safe: bool) -> bool:
        return bool(self.unreturned or self.lost or (self.safe if safe else self.place is not None))

    def outcome(self, safe: bool, receipt: Any) -> Delivered:
        if self.unreturned:
            raise SessionError(self.unreturned)
        if not (self.safe if safe else self.place is not None):
            what = "safe" if safe else "delivered"
            raise Unknown(f"the message is not known to be {what}: {self.lost}", (receipt,))
        assert self.place is not None
        assert self.view is not None
        return Delivered(self.place, self.view)


def check_notice(sent: tuple[Sent, ...]) -> None:
    """Whether there will be news of safety."""
    for each in sent:
        if not (each.to.notice or each.to.service is Service.SAFE):
            raise SessionError(NO_NOTICE)


class MulticastReceipt:
    """Of one call of `multicast` or `multicast_many`. Messages that travelled together may share one."""

    __slots__ = ("_session", "sent")

    def __init__(self, session: session.Session, sent: tuple[Sent, ...]) -> None:
        self._session = session
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
                await self._session.wait_for_sent(sent)
            found = sent.outcome(safe, self)
        return found


class BlockingReceipt:
    """The same without asyncio. TimeoutError if it takes longer than `timeout` seconds."""

    __slots__ = ("_session", "sent")

    def __init__(self, session: blocking.Session, sent: tuple[Sent, ...]) -> None:
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
