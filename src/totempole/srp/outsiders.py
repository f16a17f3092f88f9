"""What a processor remembers about others: which of their packets are old, and whom it should not call now.

Totem answers every foreign message with a new membership. That is right for processors that can hear each
other. It never ends for those that cannot: a link that is dead one way, a processor that hears nobody, a
recorded packet that somebody repeats. Two memories keep the cost of these bounded.

Freshness. Joins and notices are numbered within a life of their sender, messages within their
ring. A packet that is not newer than the newest one of its kind is a repetition, and is dropped.

Readmission. A processor that was left out of the ring several times in succession is no reason for a new
membership for a while: after the second time for 16 consensus timeouts, then eight times as long each time,
`readmission_us` and a quarter at most. Each side waits by itself, and answers when the other side calls it: a
mended link is found when the first of them does. A Join that does not name the receiver is not answered while
it waits, nor is what may be left of the attempt that failed: others may form a ring without it. A new
life, or `readmission_us` together on a ring, clears the record. With the default settings a processor that
can never be a member costs the others at most ten configurations in its first minute, and 360 an hour,
under load too (docs/decisions/0016).

Laggards (docs/decisions/0008-laggards.md) are kept out likewise, and their Joins are not answered either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from totempole.srp.config import RingConfig
from totempole.srp.packets import Join, Notice, RegularMessage, Unordered
from totempole.types import ProcessorId, RingId

REMEMBERED_MAX = 4_096
"""Processors that one remembers anything about; the oldest are forgotten first."""

FIRST_WAIT = 16
"""Consensus timeouts that one waits after the second failure in succession."""
PATIENCE_FACTOR = 8
"""How much longer one waits after each further failure."""

TIMES_MAX = 20
"""Beyond this, the wait would be above any bound."""

LONG_WAIT = 3
"""How many attempts a wait must be worth for the rest of the last one to be ignored."""

ALL_OF_IT = 2**64
"""Above every sequence number of a ring."""


class Failures(NamedTuple):
    """How often in succession a processor was left out of the ring, in which of its lives, and when last."""

    times: int
    incarnation: int
    at_us: int
    until_us: int
    """No call before this."""


def remember(memory: dict[ProcessorId, Any], processor: ProcessorId, value: Any) -> None:
    """Keeps a value, and forgets the oldest one when there are too many."""
    memory[processor] = value
    if len(memory) > REMEMBERED_MAX:
        del memory[next(iter(memory))]
    assert len(memory) <= REMEMBERED_MAX, f"{len(memory)} remembered"


class Outsiders:
    """Bounded memories, by processor."""

    __slots__ = (
        "_barred_until_us",
        "_config",
        "_failures",
        "_joins",
        "_messages",
        "_notices",
        "_refused",
        "_shunned_by",
        "_shunned_until_us",
        "_together_since_us",
        "_unordered",
    )

    def __init__(self, config: RingConfig) -> None:
        self._config = config
        self._joins: dict[ProcessorId, tuple[int, ...]] = {}
        """Incarnation and counter of the newest Join."""
        self._notices: dict[ProcessorId, tuple[int, ...]] = {}
        """The same of the newest Null, Leave or Wake."""
        self._unordered: dict[ProcessorId, tuple[int, ...]] = {}
        """The same of the newest Unordered. There are many of these: one must not make a Wake that it has
        overtaken look old, or the token rests on."""
        self._messages: dict[ProcessorId, tuple[int, ...]] = {}
        """Incarnation, ring and place of the newest message from another ring."""
        self._failures: dict[ProcessorId, Failures] = {}
        self._together_since_us: dict[ProcessorId, int] = {}
        """When the members of the ring became so."""
        self._barred_until_us: dict[ProcessorId, int] = {}
        """Laggards that have been expelled."""
        self._shunned_by: frozenset[ProcessorId] = frozenset()
        """Those who have expelled this one for lagging."""
        self._shunned_until_us = 0
        self._refused: dict[ProcessorId, frozenset[ProcessorId]] = {}
        """Who did not fit on the ring, and in which company."""

    # Freshness

    def is_fresh_join(self, join: Join) -> bool:
        return self._is_newer(self._joins, join.sender, (join.incarnation, join.counter))

    def is_fresh_notice(self, notice: Notice) -> bool:
        newest = self._unordered if type(notice) is Unordered else self._notices
        return self._is_newer(newest, notice.sender, (notice.incarnation, notice.counter))

    def is_fresh_message(self, message: RegularMessage) -> bool:
        """Of a message from another ring."""
        stamp = (message.incarnation, message.ring_id.seq, message.seq)
        return self._is_newer(self._messages, message.sender, stamp)

    def _is_newer(
        self, newest: dict[ProcessorId, tuple[int, ...]], sender: ProcessorId, stamp: tuple[int, ...]
    ) -> bool:
        if stamp <= newest.get(sender, ()):
            return False
        remember(newest, sender, stamp)
        return True

    def life_of_joins(self, processor: ProcessorId) -> int:
        """The latest incarnation that it has sent a Join in; 0 if none is known."""
        return self._joins.get(processor, (0,))[0]

    def incarnation_of(self, processor: ProcessorId) -> int:
        """The latest life that it has spoken in, as far as this processor knows."""
        newest = (self._joins, self._notices, self._unordered, self._messages)
        return max(stamps[processor][0] if processor in stamps else 0 for stamps in newest)

    # Readmission

    def note_ring(
        self,
        old: RingId,
        left_behind: Iterable[ProcessorId],
        members: Iterable[ProcessorId],
        failed: Iterable[ProcessorId],
        now_us: int,
        spread: float,
    ) -> None:
        """A ring was installed: who of the old one is gone, who is on it, and who failed to get on it.

        `spread`, from 0 to 1, makes waits longer by a part of a quarter. Three rings of which two cannot
        agree would otherwise all call at one instant, and fall apart again.
        """
        for processor in sorted(left_behind):
            # That ring is over: what comes of it now was said before, or by somebody who repeats it.
            remember(self._messages, processor, (self.incarnation_of(processor), old.seq, ALL_OF_IT))
        for processor in sorted(failed):
            self._note_failure(processor, now_us, spread)
        since_us = self._together_since_us
        self._together_since_us = {q: since_us.get(q, now_us) for q in sorted(members)}

    def _note_failure(self, processor: ProcessorId, now_us: int, spread: float) -> None:
        incarnation = self.incarnation_of(processor)
        count = 1 + self._failures_of(processor, incarnation, now_us)
        wait_us = 0
        if count > 1:
            wait_us = self._config.consensus_us * FIRST_WAIT * PATIENCE_FACTOR ** (min(count, TIMES_MAX) - 2)
        assert 0 <= spread <= 1, f"a spread of {spread}"
        until_us = now_us + int(min(wait_us, self._config.readmission_us) * (1 + spread / 4))
        remember(self._failures, processor, Failures(count, incarnation, now_us, until_us))

    def _failures_of(self, processor: ProcessorId, incarnation: int, now_us: int) -> int:
        failures = self._failures.get(processor)
        if failures is None or failures.incarnation != incarnation:
            return 0
        together_us = now_us - self._together_since_us.get(processor, now_us)
        return 0 if together_us >= self._config.readmission_us else failures.times

    def fails_often(self, processor: ProcessorId, now_us: int) -> bool:
        """Whether it is too early to call it again."""
        failures = self._present_failures(processor)
        return failures is not None and now_us < failures.until_us

    def still_tries(self, processor: ProcessorId, now_us: int, attempt_us: int) -> bool:
        """Whether its Joins may belong to the attempt that has just failed.

        It gives that attempt up later than the others, and would draw them into the next one. Short waits do
        not count: where an attempt takes a good part of the wait, each side could call while the other does
        not listen, again and again.
        """
        failures = self._present_failures(processor)
        if failures is None or failures.until_us - failures.at_us < LONG_WAIT * attempt_us:
            return False
        return now_us < failures.at_us + attempt_us

    def _present_failures(self, processor: ProcessorId) -> Failures | None:
        failures = self._failures.get(processor)
        if failures is None or failures.incarnation != self.incarnation_of(processor):
            return None
        return failures

    # Laggards

    def bar(self, processor: ProcessorId, now_us: int) -> None:
        remember(self._barred_until_us, processor, now_us + self._config.readmission_us)

    def is_barred(self, processor: ProcessorId, now_us: int) -> bool:
        return now_us < self._barred_until_us.get(processor, 0)

    def note_shunned(self, by: Collection[ProcessorId], now_us: int) -> None:
        self._shunned_by = frozenset(by)
        self._shunned_until_us = now_us + self._config.readmission_us

    def is_shunned_by(self, processor: ProcessorId, now_us: int) -> bool:
        """It is of no use to call. If they want this processor back, they will send a Join."""
        return processor in self._shunned_by and now_us < self._shunned_until_us

    # Full rings

    def refuse(self, processor: ProcessorId, company: frozenset[ProcessorId]) -> None:
        """The ring is full. Until it is smaller, what that processor says is not worth a new membership."""
        remember(self._refused, processor, company)

    def note_room(self, processor: ProcessorId) -> None:
        """A Null says that its ring would fit: it is not in the company that was refused any more."""
        self._refused.pop(processor, None)

    def refused_company(self, processor: ProcessorId) -> frozenset[ProcessorId]:
        return self._refused.get(processor, frozenset())
