"""How well one processor is heard on one network: the monitors of RRP §§5, 6, by sender and network.

A path has a leaky counter for each kind of evidence: messages, tokens, and hellos short and long. What is
lost fills it, what comes empties it, by a fifth of that. So it falls with traffic and not with time (RRP says
"periodically"), and a fixed share of loss is tolerated at any pace: up to one in six. Eleven losses in a row
fill it.

RRP compares networks with each other, and assumes equal shares. Here each is compared with what the sender
says that it has sent there (`route`).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

from totempole.types import ProcessorId

FULL = 11.0
RECOVERY = 0.2
"""What comes weighs so much of what is lost."""

CLEAN_ROUNDS = 5
"""Hello rounds without loss after which a path is clear again, if nothing else speaks against it."""

LOSS_WINDOW = 32
KEPT = 1 - 1 / LOSS_WINDOW
DEAD_LOSS = 0.9
"""Beyond this share of loss nothing comes through."""


class Evidence(IntEnum):
    MESSAGES = 0
    TOKENS = 1
    SHORT = 2
    """Hellos as short as a token, to all."""
    LONG = 3
    """Hellos as long as the network takes."""


TO_ALL = (Evidence.MESSAGES, Evidence.SHORT)
"""Multicast. Once another path has failed, messages go elsewhere, and hellos are what is left to judge by."""


class Lost(IntFlag):
    """What a path loses."""

    MESSAGES = 1
    TOKENS = 2
    SHORT = 4
    LONG = 8
    INTERFACE = 16
    """The receiver's own interface is gone."""
    NOT_TOKENS = 32
    """What goes to all is lost, and tokens, which go to one, are not."""


class Finding(NamedTuple):
    """A path that is bad, as its receiver says."""

    network: int
    sender: ProcessorId
    dead: bool
    lost: int


class Leak:
    __slots__ = ("fresh", "level", "loss", "run")

    def __init__(self) -> None:
        self.level = 0.0
        self.loss = 0.0
        """The recent share, for people."""
        self.run = 0
        """How often in succession nothing came."""
        self.fresh = False
        """Whether there was evidence since the last round of hellos."""

    def note(self, lost: float, count: int = 1) -> bool:
        """`lost`: the share, from 0 to 1, of what should have come, so many times. Whether that was one loss
        too many."""
        self.fresh = True
        if not lost and not self.level:  # as mostly
            self.run = 0
            if self.loss:
                self.loss *= KEPT**count
            return False
        assert 0 <= lost <= 1, f"{lost} of a packet lost"
        is_too_many = False
        for _ in range(count):
            before = self.level
            self.level = min(FULL, max(0.0, before + lost - RECOVERY * (1 - lost)))
            self.loss += (lost - self.loss) / LOSS_WINDOW
            self.run = self.run + 1 if lost > DEAD_LOSS else 0
            is_too_many |= before < FULL <= self.level
        return is_too_many

    def rest(self) -> None:
        """A round of hellos has come. What there is no evidence for fades."""
        if not self.fresh:
            self.level = max(0.0, self.level - FULL / CLEAN_ROUNDS)
        self.fresh = False


class Path:
    """From one sender to this processor, on one network."""

    __slots__ = ("_clean", "bad", "dead", "leaks", "lost")

    def __init__(self) -> None:
        self.leaks = tuple(Leak() for _ in Evidence)
        self.bad = False
        self.dead = False
        """Nothing comes through of what it is bad at."""
        self.lost = 0
        """What it is bad at."""
        self._clean = 0

    @property
    def loss(self) -> float:
        return max(leak.loss for leak in self.leaks)

    def note(self, evidence: Evidence, lost: float, count: int = 1) -> bool:
        """Whether that says something new of a bad path."""
        leak = self.leaks[evidence]
        is_too_many = leak.note(lost, count)
        # Too many were lost while some came, and now nothing comes any more.
        is_end = not self.dead and self.lost >> evidence & 1 and leak.run >= FULL
        if not is_too_many and not is_end:
            return False
        tokens = self.leaks[Evidence.TOKENS]
        if not self.bad and evidence in TO_ALL and tokens.fresh and tokens.level < 1:
            self.lost |= Lost.NOT_TOKENS
        before = self.bad, self.dead, self.lost
        self.bad = True
        self.dead = self.dead or leak.run >= FULL
        self.lost |= 1 << evidence
        self._clean = 0
        return before != (self.bad, self.dead, self.lost)

    def round(self, clean: bool) -> bool:
        """A round of hellos is over; `clean`: all of it came. Whether the path has just become clear."""
        self._clean = self._clean + 1 if clean else 0
        if clean:
            for leak in self.leaks:
                leak.rest()
        if not self.bad or self._clean < CLEAN_ROUNDS:
            return False
        if any(self.leaks[evidence].level >= 1 for evidence in (Evidence.MESSAGES, Evidence.TOKENS)):
            return False
        self.clear()
        return True

    def clear(self) -> None:
        self.bad = self.dead = False
        self.lost = 0
        for leak in self.leaks:
            leak.level = leak.loss = 0.0
            leak.run = 0

    def suspect(self) -> None:
        """Bad until hellos have come for a while."""
        self.bad = True
        self._clean = 0
