"""An attempt to form a ring that cannot succeed: who is left out for it, and how soon it is over.

Where a link is dead one way, one of its ends never reaches the consensus. The others must find that end and
nobody else (docs/decisions/0016-bad-links-and-strangers.md).
"""

from __future__ import annotations

from srp_bench import Bench, join_of

from totempole.core.effects import Send
from totempole.srp.packets import Join
from totempole.srp.states import State


def joins_of(bench: Bench, me: int) -> list[Join]:
    return [sent.packet for sent in bench.of_kind(me, Send) if type(sent.packet) is Join]


def test_a_processor_without_a_consensus_has_forwarded_no_token() -> None:
    """000 §4.2: "the number of times the sender has forwarded the token since reaching consensus".

    What it forwarded on the ring before would make it the strongest, and a healthy processor the weakest.
    """
    bench = Bench([1, 2])
    bench.form()
    for number in range(20):
        bench.submit(1, b"%d" % number)
        bench.pump()
    bench.advance(bench.config.join_us)
    bench.forget()
    bench.hand(2, join_of(3, {3}))
    assert bench[2].state is State.GATHER
    assert [join.rotation_count for join in joins_of(bench, 2)] == [0]


def test_a_processor_alone_keeps_the_timeouts_of_its_last_ring() -> None:
    """It measures nobody's pace. With the shortest timeouts it would break up the attempts of a loaded ring."""
    bench = Bench([1, 2])
    bench.form()
    bench.hop_us = 15_000
    for number in range(4):
        bench.submit(1, b"%d" % number)
        bench.pump()
    bench.hop_us = 0
    timeouts = bench[1].machine.timeouts
    stretched_us = timeouts.token_loss_us
    assert stretched_us > bench.config.token_loss_us
    bench.lost = lambda source, to, packet: source != to
    bench.advance(10_000_000)
    assert bench.ring_of(1) == (1,)
    assert timeouts.token_loss_us == stretched_us
