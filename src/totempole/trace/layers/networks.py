"""What is written of the networks under a ring on several of them."""

from __future__ import annotations

from totempole.trace.kinds import Kind, Level

KINDS = (
    Kind(
        "network",
        Level.DELIVERY,
        "a network moved from old_state to new_state, or more is known of its fault; network: from 1; ring, "
        "seq: the place in the order; reason: what is wrong",
    ),
)
