"""The numbers that a processor begins its very first life with (Totem §3.2, §4.2, §5.1).

A processor that has lost its stable storage must not use its old numbers again: a ring number would name two
configurations (theorem 4.1), and its messages would sort below older ones (theorem 4.11). It cannot remember
them, so it takes numbers from the wall clock that its former lives cannot have reached:

- the incarnation is the number of seconds since 2020. A processor starts less than once a second;
- the ring's number is RING_SEQ_PER_SECOND for each second. A cluster forms fewer than 64 rings a second, day
  in, day out: each takes a consensus and a write to stable storage;
- the timestamp is TIMESTAMPS_PER_SECOND for each second. It counts packets of the ring, and a ring carries
  fewer than a million of these a second, day in, day out.

A burst may be faster. Only the average since the first start matters, because the numbers start there.

If the clock is behind the former life's first start, the numbers are too low: others refuse the Joins as
those of a rolled-back processor, and say so. If it is ahead, the whole cluster takes the higher numbers over
and goes on from them; the incarnation stays that processor's own. Neither is an error afterwards.
"""

from __future__ import annotations

EPOCH_S = 1_577_836_800
"""2020-01-01 UTC, in seconds since 1970."""

SECONDS_MAX = 2**31
"""First starts are before 2088. The incarnation's 32 bits then leave room for as many restarts."""

RING_SEQ_PER_SECOND = 4 * 64
"""A multiple of four, as ring numbers are (Totem §4.2)."""

TIMESTAMPS_PER_SECOND = 2**20


def first_numbers(seconds: int) -> dict[str, int]:
    """What stable storage holds before the first life, `seconds` after EPOCH_S.

    There is no `future_ring_seq`: by that a processor knows that it has had no life yet.
    """
    assert 0 < seconds < SECONDS_MAX
    return {
        "incarnation": seconds,
        "ring_seq": seconds * RING_SEQ_PER_SECOND,
        "timestamp": seconds * TIMESTAMPS_PER_SECOND,
    }
