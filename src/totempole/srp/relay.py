"""Tokens by way of another member, where the link to the successor is dead.

Deviation: Totem assumes links that work both ways, and leaves out one end of a link that does not.

- A processor that passes its token a third time shows it to another member as well, each time to the next
  one. A member that is shown a token hands it on to the sender's successor, as it is.
- A processor that gets a token of its predecessor's again sends that copy back. As many copies as members
  were shown the token can have come without the link, and the first of these is not sent back. So the link
  works if the sender gets back as many as it has shown. What is sent back may be behind data, and then come
  after the token has come round: it counts for one rotation more.
- If the token comes round before that, the link is taken for dead. Every token is shown to the same member
  from then on, at once and ahead of the data that follows it, until the link is known to work.

A ring on several networks has other ways round a dead link (rrp).
"""

from __future__ import annotations

from totempole.srp.ring import Ring
from totempole.types import NO_PROCESSOR, ProcessorId

CERTAIN_ROTATIONS = 16
"""A link over which nothing comes for so many rotations is worth a warning."""


class Relay:
    """Who hands this processor's tokens on to its successor, if anyone does."""

    __slots__ = (
        "_is_repeated",
        "_missing",
        "_rotations",
        "_sent_back",
        "_showings",
        "_turn",
        "others",
        "shown",
        "through",
    )

    def __init__(self, ring: Ring, me: ProcessorId) -> None:
        self.shown = NO_PROCESSOR
        """Who was shown the latest token last, because it did not come round."""
        self.through = NO_PROCESSOR
        """Who is shown every token."""
        self.others = tuple(member for member in ring.members if member not in (me, ring.successor))
        """Who can hand its tokens on."""
        self._turn = 0
        self._rotations = 0
        self._missing = 0
        """Of the token before the latest one: so many copies more, sent back, and the link works."""
        # Of the latest token:
        self._is_repeated = False
        self._showings = 0
        self._sent_back = 0

    def next(self) -> ProcessorId:
        """The token is passed again: who is shown it this time, if it is shown to anyone."""
        if not self._is_repeated or not self.others:
            self._is_repeated = True
            return NO_PROCESSOR
        self._turn += 1
        return self.others[self._turn % len(self.others)]

    def is_shown_to(self, member: ProcessorId) -> None:
        self.shown = member
        self._showings += 1

    def is_sent_back(self) -> None:
        """The successor has had the latest token before this copy of it came."""
        self._sent_back += 1
        if self._sent_back >= self._showings:
            self._link_works()

    def is_sent_back_late(self) -> None:
        """The same, and the token has come round once since that copy of it left."""
        self._missing -= 1
        if self._missing == 0:
            self._link_works()

    def _link_works(self) -> None:
        self.through = self.shown = NO_PROCESSOR

    def came_round(self) -> None:
        """The latest token is here again."""
        if self.shown != NO_PROCESSOR:
            if self.through == NO_PROCESSOR:
                self._rotations = 0
            self.through, self.shown = self.shown, NO_PROCESSOR
        self._missing = self._showings - self._sent_back
        self._is_repeated = False
        self._showings = self._sent_back = 0

    def goes_on(self) -> bool:
        """One more token is shown at once. Whether it is certain now that it must be, and was not before."""
        self._showings += 1
        self._rotations += 1
        return self._rotations == CERTAIN_ROTATIONS
