"""Tokens by way of another member, where the link to the successor is dead.

Deviation: Totem assumes links that work both ways, and leaves out one end of a link that does not.

- A processor that passes its token again shows it to another member as well, each time to the next one. A
  member that is shown a token hands it on to the sender's successor, as it is.
- A processor that gets a token of its predecessor's twice sends it back the second time. When a link works,
  a token that is passed again or shown to others comes twice; and no other token does.
- If the token comes round and was not sent back, the link is taken for dead. Every token is shown to the same
  member from then on, at once, until one is sent back.

A ring on several networks has other ways round a dead link (rrp).
"""

from __future__ import annotations

from totempole.srp.ring import Ring
from totempole.types import NO_PROCESSOR, ProcessorId

CERTAIN_ROTATIONS = 16
"""A link over which nothing comes for so many rotations is worth a warning."""


class Relay:
    """Who hands this processor's tokens on to its successor, if anyone does."""

    __slots__ = ("_repeats", "_rotations", "others", "shown", "through")

    def __init__(self, ring: Ring, me: ProcessorId) -> None:
        self.shown = NO_PROCESSOR
        """Who was shown the token last, since it was here, if it was not sent back."""
        self.through = NO_PROCESSOR
        """Who is shown every token."""
        self.others = tuple(member for member in ring.members if member not in (me, ring.successor))
        """Who can hand its tokens on."""
        self._repeats = 0
        self._rotations = 0

    def next(self) -> ProcessorId:
        """Who is shown the token this time, if there is anyone."""
        if not self.others:
            return NO_PROCESSOR
        self._repeats += 1
        return self.others[self._repeats % len(self.others)]

    def came_round(self) -> None:
        """The token is here again, after it was shown to somebody, and was not sent back."""
        self.through, self.shown, self._rotations = self.shown, NO_PROCESSOR, 0

    def link_works(self) -> None:
        self.through = self.shown = NO_PROCESSOR

    def goes_on(self) -> bool:
        """One more token is shown. Whether it is certain by now, and was not before, that it must be."""
        self._rotations += 1
        return self._rotations == CERTAIN_ROTATIONS
