"""The states, events and timers of the single-ring protocol (000 §4.2, figure 4.3).

Two states stand outside the paper's four: STARTING, until stable storage has taken the first ring number,
and LEFT, after a graceful leave.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class State(IntEnum):
    STARTING = 0
    OPERATIONAL = 1
    GATHER = 2
    COMMIT = 3
    RECOVER = 4
    LEFT = 5


class Event(Enum):
    """What can happen to a processor. With `State` it spans the table in `machine.py`."""

    REGULAR_TOKEN = auto()
    REGULAR_MESSAGE = auto()
    """A message of the installed ring."""
    NEW_RING_MESSAGE = auto()
    """A message of the ring being formed."""
    FOREIGN_MESSAGE = auto()
    JOIN = auto()
    COMMIT_TOKEN = auto()
    LEAVE = auto()
    WAKE = auto()
    TOKEN_RETRANSMISSION_TIMEOUT = auto()
    TOKEN_LOSS_TIMEOUT = auto()
    JOIN_TIMEOUT = auto()
    CONSENSUS_TIMEOUT = auto()
    HOLD_TIMEOUT = auto()
    NULL_TIMEOUT = auto()
    LEAVE_TIMEOUT = auto()


class Timer(IntEnum):
    TOKEN_RETRANSMISSION = 0
    TOKEN_LOSS = 1
    JOIN = 2
    CONSENSUS = 3
    HOLD = 4
    """An idle ring's leader holds the token until this expires (000 appendix A, MAX_DELAY_PROC)."""
    NULL = 5
    LEAVE = 6


EVENT_OF_TIMER = {
    Timer.TOKEN_RETRANSMISSION: Event.TOKEN_RETRANSMISSION_TIMEOUT,
    Timer.TOKEN_LOSS: Event.TOKEN_LOSS_TIMEOUT,
    Timer.JOIN: Event.JOIN_TIMEOUT,
    Timer.CONSENSUS: Event.CONSENSUS_TIMEOUT,
    Timer.HOLD: Event.HOLD_TIMEOUT,
    Timer.NULL: Event.NULL_TIMEOUT,
    Timer.LEAVE: Event.LEAVE_TIMEOUT,
}
