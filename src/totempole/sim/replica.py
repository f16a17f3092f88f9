"""The application that simulated processes run: a digest of all messages of a group, chained.

Whoever has the same digest has been delivered the same messages in the same order. It is the group's state
that donors give to joiners, so that a wrong one, or one as of a wrong place, shows. `Ledger` compares.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from totempole.groups.events import GroupMessages
from totempole.types import Place, ProcessId

DIGEST_BYTES = 8
GENESIS = bytes(DIGEST_BYTES)
STATE_BYTES_MAX = 20_000
"""What a state is padded to, at most, so that it takes several pieces."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place that all members of a group see: its views. `together` are those who saw the last one too."""

    place: Place
    together: tuple[ProcessId, ...]


Item = bytes | Mark


def chained(digest: bytes, item: bytes) -> bytes:
    return hashlib.blake2b(digest + item, digest_size=DIGEST_BYTES).digest()


def essence(event: GroupMessages) -> bytes:
    return f"{event.sender}:{event.number}:{event.count}:{crc32(event.batch):08x}".encode()


def state_of(digest: bytes, random: Random) -> bytes:
    """The digest, and something after it that is as long as a real state might be."""
    return digest + bytes(random.choice((0, 1, 100, 3_000, STATE_BYTES_MAX)))


class Ledger:
    """What digest each process had at each mark. Those who went from mark to mark together must agree."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._entries: dict[
            tuple[str, Place], dict[ProcessId, tuple[bytes, Mark, tuple[Place, bytes] | None]]
        ]
        self._entries = {}

    def enter(
        self, group: str, process: ProcessId, mark: Mark, digest: bytes, last: tuple[Place, bytes] | None
    ) -> None:
        entries = self._entries.setdefault((group, mark.place), {})
        for other, (theirs, their_mark, their_last) in entries.items():
            together = process in their_mark.together and other in mark.together
            if together and last is not None and last == their_last and digest != theirs:
                self.problems.append(
                    f"{process} and {other} had the same messages of {group} up to {last[0]}, "
                    f"and other ones from there to {mark.place}"
                )
        entries[process] = (digest, mark, last)


@dataclass(slots=True)
class Replica:
    """A process's membership of one group, and what it knows of the group's state."""

    group: str
    process: ProcessId
    ledger: Ledger
    wants_state: bool
    inside: bool = False
    """The view in which it joined has come."""
    digest: bytes | None = None
    """Not while it waits for the state."""
    asked: Place | None = None
    chunks: list[bytes] = field(default_factory=list)
    last: tuple[Place, bytes] | None = None
    _since_joining: list[Item] = field(default_factory=list)
    _base: int = 0

    def joined(self) -> None:
        self.inside = True
        if not self.wants_state:
            self.digest = GENESIS

    def hear(self, item: Item) -> None:
        if self.digest is None:
            self._since_joining.append(item)
        else:
            self._apply(item)

    def begin(self, place: Place, from_donor: bool) -> None:
        """What came before counts no more; without a donor it is all there is."""
        self.chunks.clear()
        self.asked = place
        if from_donor:
            self.digest = None
            self._base = len(self._since_joining)
            # The view at that place came before; the state begins with it.
            if self._base and isinstance(mark := self._since_joining[-1], Mark) and mark.place == place:
                self._base -= 1
        else:
            self._start(GENESIS, 0)

    def finish(self) -> bytes:
        """All pieces of the state are there. Its digest."""
        digest = b"".join(self.chunks)[:DIGEST_BYTES]
        self.chunks.clear()
        self._start(digest, self._base)
        return digest

    def _start(self, digest: bytes, base: int) -> None:
        self.digest = digest
        items, self._since_joining = self._since_joining[base:], []
        for item in items:
            self._apply(item)

    def _apply(self, item: Item) -> None:
        assert self.digest is not None
        if isinstance(item, bytes):
            self.digest = chained(self.digest, item)
            return
        self.ledger.enter(self.group, self.process, item, self.digest, self.last)
        self.last = (item.place, self.digest)
