"""What the group layer writes: processes, what they asked for, and what they were told.

A row that was told to a process has its place in the total order: ring, seq and `index`.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.trace.kinds import Kind, Level


class GroupColumns(NamedTuple):
    to: tuple[str, ...] = ()
    """group_send, group_deliver, group_safe: the groups that the message was sent to."""
    index: int = 0  # type: ignore[assignment]
    """The place within the packet."""
    processes: tuple[str, ...] = ()
    """group_view: its members."""
    together: tuple[str, ...] = ()
    """group_view: those of them that come from the same view as the process."""
    offers_state: bool = False
    """group_join: it can give the group's state to others."""
    wants_state: bool = False
    """group_join: it asks for the group's state."""
    stage: str = ""
    """group_state: asked and given at a donor, begins and last at a joiner; prefix and state are digests that
    the applications of a donor and a joiner have written down."""
    peer: str = ""
    """group_state: the other process of the transfer. Empty where nobody can give the state."""


KINDS = (
    Kind("process", Level.DELIVERY, "reason: connect or disconnect"),
    Kind("group_join", Level.DELIVERY, "a process asked to join; offers_state, wants_state"),
    Kind("group_leave", Level.DELIVERY, "a process asked to leave"),
    Kind("group_send", Level.DELIVERY, "a process sent `count` messages; message: the first of them"),
    Kind("group_deliver", Level.DELIVERY, "a process received them"),
    Kind("group_view", Level.DELIVERY, "a process was told of a view; reason: what changed"),
    Kind("group_safe", Level.DELIVERY, "a process was told that messages are at every processor"),
    Kind("group_state", Level.DELIVERY, "state for a joiner; stage and peer"),
)
