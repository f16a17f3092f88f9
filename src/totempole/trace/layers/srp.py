"""What a ring writes: messages, configurations, tokens, membership and stable storage."""

from __future__ import annotations

from typing import NamedTuple

from totempole.trace.kinds import Kind, Level

FORMING = ("gather", "commit")
"""The transition at the Commit token's first visit: the processor accepts the token (Totem §4.2)."""

RECOVERING = ("commit", "recover")
"""The transition at the Commit token's second visit: the consensus is known to be one (Totem theorem 4.2)."""

LEFT = "left"
LEAVE_TIMEOUT = "leave timeout"
"""The reason for the state `left` of a processor that had to leave before it was done: as good as a crash."""


class SrpColumns(NamedTuple):
    aru: int = 0
    """token: the aru that it leaves with."""
    rtr: int = 0
    """token: how many retransmissions it leaves asking for."""
    failed: tuple[int, ...] = ()
    """join, state: my_fail_set, beside the proposed or agreed processors in `members`."""


KINDS = (
    Kind("submit", Level.DELIVERY, "the application handed a message over"),
    Kind("originate", Level.DELIVERY, "a message was broadcast first: it has a ring and a seq now"),
    Kind("deliver", Level.DELIVERY, "a message was delivered, in `configuration`"),
    Kind(
        "configuration", Level.DELIVERY, "one was installed; previous: what it ends; seq: the last before it"
    ),
    Kind("receive", Level.CHECKED, "a message entered the store of its ring for the first time"),
    Kind("suspect", Level.CHECKED, "members: newly in my_fail_set; origin: whose Join said so, or the node"),
    Kind("safe", Level.CHECKED, "seq: everything up to it is at every member"),
    Kind("join", Level.CHECKED, "a Join was sent; members: my_proc_set; failed: my_fail_set"),
    Kind("blame", Level.CHECKED, "origin is expelled; seq: its aru; count: us since the last visit; reason"),
    Kind(
        "persist", Level.CHECKED, "a write begins; count: ticket; seq: ring number; timestamp: covers below"
    ),
    Kind("persisted", Level.CHECKED, "a write is done; count: its ticket"),
    Kind("token", Level.PROTOCOL, "a token visit; seq; count: token_seq; aru; rtr"),
    Kind("retransmit", Level.PROTOCOL, "a message was sent again, whole or in part; bytes: how many"),
)
