"""The names of the states, events and timers of the single-ring protocol (Totem §4.2, figure 4.3).

Two states stand outside the paper's four: STARTING, until stable storage has taken the first ring number,
and LEFT, after a graceful leave.
"""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    STARTING = 0
    OPERATIONAL = 1
    GATHER = 2
    COMMIT = 3
    RECOVER = 4
    LEFT = 5


class Event(IntEnum):
    """What can happen to a processor. With `State` it spans the tables in `machine.py`."""

    REGULAR_TOKEN = 0
    REGULAR_MESSAGE = 1
    """A message of the installed ring."""
    NEW_RING_MESSAGE = 2
    """A message of the ring being formed."""
    FOREIGN_MESSAGE = 3
    JOIN = 4
    COMMIT_TOKEN = 5
    LEAVE = 6
    WAKE = 7
    UNORDERED = 8
    TOKEN_RETRANSMISSION_TIMEOUT = 9
    TOKEN_LOSS_TIMEOUT = 10
    JOIN_TIMEOUT = 11
    CONSENSUS_TIMEOUT = 12
    HOLD_TIMEOUT = 13
    NULL_TIMEOUT = 14
    LEAVE_TIMEOUT = 15
    STARTED = 16
    WRITTEN = 17
    """A write to stable storage is done."""
    SUBMITTED = 18
    """The layer above has given a message to send."""
    LEAVE_ASKED = 19
    """This processor is to leave the ring."""


class Timer(IntEnum):
    TOKEN_RETRANSMISSION = 0
    TOKEN_LOSS = 1
    JOIN = 2
    CONSENSUS = 3
    HOLD = 4
    """An idle ring's leader holds the token until this expires (Totem appendix A, MAX_DELAY_PROC)."""
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
