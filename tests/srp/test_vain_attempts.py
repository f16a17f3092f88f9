"""An attempt to form a ring that cannot succeed: who is left out for it, and how soon it is over.

Where a link is dead one way, one of its ends never reaches the consensus. The others must find that end and
nobody else (docs/decisions/0016-bad-links-and-strangers.md).
"""

from __future__ import annotations

from srp_bench import Bench, join_of
from test_srp_hazards import commit_token

from totempole.core.effects import Send
from totempole.srp.packets import Join
from totempole.srp.states import State
from totempole.types import RingId


def joins_of(bench: Bench, me: int) -> list[Join]:
    return [sent.packet for sent in bench.of_kind(me, Send) if type(sent.packet) is Join]


def test_a_processor_without_a_consensus_has_forwarded_no_token() -> None:
    """Totem §4.2: "the number of times the sender has forwarded the token since reaching consensus".

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
    """It measures nobody's pace. With shorter timeouts it would break up the attempts of a loaded ring."""
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


def in_commit_of_three() -> Bench:
    """Processor 1, as representative, has sent the Commit token of 1, 2 and 3, all of whom agreed."""
    bench = Bench([1])
    bench.start()
    bench.pump()
    for counter in (1, 2):
        for sender in (2, 3):
            bench.hand(1, join_of(sender, {1, 2, 3}, counter=counter))
    assert bench[1].state is State.COMMIT
    return bench


def test_a_member_that_has_left_the_consensus_ends_the_wait_for_the_commit_token() -> None:
    """3 does not hear 2, and says so when its consensus timeout expires. It will never take this token. 2
    hears it, and answers."""
    bench = in_commit_of_three()
    bench.forget()
    bench.hand(1, join_of(3, {1, 2, 3}, {2}, counter=3))
    assert "new ring refused by a member" in bench.traced(1, "branch")
    assert bench.traced(1, "state") == ["commit>gather join"]
    bench.hand(1, join_of(2, {1, 2, 3}, {3}, counter=3))
    assert bench[1].state is State.COMMIT
    assert bench[1].machine.current.ring.members == (1, 2), "of the two ends it keeps the smaller"


def test_a_member_that_wants_to_be_alone_may_have_agreed_again() -> None:
    """It can have been alone and come back while its Join was on its way."""
    bench = in_commit_of_three()
    bench.hand(1, join_of(3, {1, 2, 3}, {1, 2}, counter=3))
    assert bench[1].state is State.COMMIT


def test_a_failure_outside_the_ring_is_no_refusal() -> None:
    bench = in_commit_of_three()
    bench.hand(1, join_of(3, {1, 2, 3, 4}, {4}, counter=3))
    assert bench[1].state is State.COMMIT


def test_a_failure_that_may_be_older_than_the_consensus_is_no_refusal() -> None:
    """2 has the Commit token before it heard that 3 agrees: the Join may have been sent before that."""
    bench = Bench([2])
    bench.start()
    bench.pump()
    bench.hand(2, join_of(1, {1, 2, 3}))
    bench.hand(2, commit_token(RingId(100, 1), (1, 2, 3), 1, filled=False, sender=1))
    assert bench[2].state is State.COMMIT
    bench.hand(2, join_of(3, {1, 2, 3}, {1}))
    assert bench[2].state is State.COMMIT
