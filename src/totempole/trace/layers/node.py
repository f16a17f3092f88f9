"""The life of a node, written by the simulator or the node itself, and what every layer may say."""

from __future__ import annotations

from totempole.trace.kinds import Kind, Level

KILLED = "killed"
"""The reason of a crash that another wrote down, because the node could not."""

DROPPED = "dropped"
"""The reason of a fault that is one packet lost on purpose."""

KINDS = (
    Kind("restart", Level.DELIVERY, "a life of the node begins; the first one too"),
    Kind("crash", Level.DELIVERY, "the life ends; reason: 'killed' if someone else wrote the row"),
    Kind("leave", Level.DELIVERY, "the node left of its own will"),
    Kind("fault", Level.DELIVERY, "the simulator or a test did something to it; reason: what"),
    Kind("state", Level.DELIVERY, "a state machine moved from old_state to new_state; reason: why"),
    Kind("branch", Level.DELIVERY, "a rare branch was taken; reason: its name"),
    Kind("drop", Level.PROTOCOL, "something that arrived was ignored; reason: why"),
)
