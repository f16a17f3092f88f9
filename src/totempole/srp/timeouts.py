"""How long a processor waits: timeouts that follow the ring's pace, and timers that cost nothing to move.

Totem sets its timeouts by hand. One setting cannot suit four processors on a fast network and thirty on slow
ones, and one that suits the fast network breaks the ring up when load makes the token slow
(docs/decisions/0007-timeouts-follow-the-ring.md). Here the settings are what the timeouts are at least:

- token loss, join and consensus are stretched by one factor, such that the token may be away for `MARGIN`
  times the slowest recent rotation;
- token retransmission is stretched by the quickest recent rotation. By the slowest, one retransmission would
  slow the rotation, which would delay the next retransmission, and so on up to the bound.

Both factors lie between 1 and `timeout_stretch_max_percent`, and the second is never above the first, so that
the timeouts keep the order in which the settings are.
"""

from __future__ import annotations

from totempole.srp.config import RingConfig
from totempole.srp.output import Output
from totempole.srp.states import Timer

MARGIN = 10
"""For how many of the slowest recent rotations the token may be away before it counts as lost. With four, a
ring at full load on busy cores broke once in ten minutes: a member had been kept from running for 186 ms."""
RETRANSMISSION_MARGIN = 4

PERIOD_ROTATIONS = 32
PERIOD_LOSSES = 8
"""A period of measurement is so many rotations, and so many token loss timeouts, at least."""

UNKNOWN = -1
NEVER = 2**62


class Timeouts:
    """Measured from the token's leaving to its coming back, so without the time that it rests here.

    The extremes of the present period and of the one before count. So a slow rotation stretches the timeouts
    at once, and is forgotten within two periods. A token that may rest elsewhere on its way does so for
    `idle_hold_us` at most: what is left of its absence is a rotation that it took at least. So an idle ring,
    too, forgets what was slow, and remembers what still is.

    A processor alone on its ring measures nothing, and keeps what its last ring with others needed. If it had
    the shortest timeouts, it would give up each attempt to join a loaded ring before the others do, and break
    up theirs.
    """

    __slots__ = (
        "_before",
        "_config",
        "_left_us",
        "_may_rest",
        "_output",
        "_quickest_us",
        "_rotations",
        "_since_us",
        "_slowest_us",
        "consensus_us",
        "join_us",
        "token_loss_us",
        "token_retransmission_us",
    )

    def __init__(self, config: RingConfig, output: Output) -> None:
        self._config = config
        self._output = output
        self._left_us = UNKNOWN
        self._may_rest = False
        self._since_us = 0
        self._rotations = 0
        self._slowest_us = 0
        self._quickest_us = NEVER
        self._before = (0, NEVER)
        """The slowest and the quickest rotation of the last period."""
        self.token_loss_us = config.token_loss_us
        self._derive()

    def token_left(self, now_us: int, may_rest: bool = False) -> None:
        """It is on its way, and may rest somewhere for a while."""
        self._left_us = now_us
        self._may_rest = may_rest

    def token_came(self, now_us: int) -> None:
        if self._left_us == UNKNOWN:
            return
        slow_us = quick_us = now_us - self._left_us
        assert slow_us >= 0, "the clock ran backwards"
        if self._may_rest:
            slow_us, quick_us = max(0, slow_us - self._config.idle_hold_us), NEVER
        self._left_us = UNKNOWN
        self._rotations += 1
        if slow_us > self._slowest_us or quick_us < self._quickest_us:
            self._slowest_us = max(self._slowest_us, slow_us)
            self._quickest_us = min(self._quickest_us, quick_us)
            self._derive()
        elif self._rotations >= PERIOD_ROTATIONS:
            self._end_period(now_us)

    def new_ring(self) -> None:
        """Its pace is not known yet. That a rotation was slow is remembered, that one was quick is not."""
        self._left_us = UNKNOWN
        self._quickest_us = NEVER
        self._before = (self._before[0], NEVER)
        self._derive()

    def _end_period(self, now_us: int) -> None:
        if now_us - self._since_us < PERIOD_LOSSES * self._config.token_loss_us:
            return
        self._before = (self._slowest_us, self._quickest_us)
        self._since_us = now_us
        self._rotations = self._slowest_us = 0
        self._quickest_us = NEVER
        self._derive()

    def _derive(self) -> None:
        config = self._config
        slowest_us = max(self._slowest_us, self._before[0])
        quickest_us = min(self._quickest_us, self._before[1], slowest_us)
        percent = self._stretch(MARGIN * slowest_us)
        before_us, self.token_loss_us = self.token_loss_us, config.token_loss_us * percent // 100
        if self.token_loss_us > before_us:
            self._output.branch("timeouts stretched")
        self.join_us = config.join_us * percent // 100
        self.consensus_us = config.consensus_us * percent // 100
        retransmission_percent = self._stretch(RETRANSMISSION_MARGIN * quickest_us)
        self.token_retransmission_us = config.token_retransmission_us * retransmission_percent // 100
        assert self.token_retransmission_us <= self.token_loss_us, "lost before it is passed again"
        assert self.join_us <= self.consensus_us, "given up before a Join is repeated"
        assert self.token_loss_us >= config.token_loss_us, "shorter than set"

    def _stretch(self, away_us: int) -> int:
        """In percent, such that a token that is away for so long is not lost."""
        wanted = 100 * away_us // self._config.token_loss_us
        return min(max(100, wanted), self._config.timeout_stretch_max_percent)


class LazyTimer:
    """A timer that every packet may move.

    Moving it later only notes the new instant. The driver's timer then runs out early, and is set again for
    the rest of the time: one effect in a timeout instead of one in every packet.
    """

    __slots__ = ("_armed_us", "_output", "_timer", "due_us")

    def __init__(self, timer: Timer, output: Output) -> None:
        self._timer = timer
        self._output = output
        self._armed_us = NEVER
        """When the driver's timer runs out."""
        self.due_us = NEVER

    def set(self, after_us: int) -> None:
        assert after_us > 0, f"a timer that runs out {after_us} us from now"
        self.due_us = due_us = self._output.now_us + after_us
        if due_us < self._armed_us:
            self._armed_us = due_us
            self._output.set_timer(self._timer, after_us)

    def cancel(self) -> None:
        self.due_us = NEVER

    def ran_out(self) -> bool:
        """The driver's timer has: is this one due?"""
        self._armed_us = NEVER
        left_us = self.due_us - self._output.now_us
        if left_us <= 0:
            self.due_us = NEVER
            return True
        if self.due_us != NEVER:
            self.set(left_us)
        return False
