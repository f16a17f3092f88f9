"""Totem §4.1, the total ordering algorithm: what each claim of the section says, one test each."""

from __future__ import annotations

from itertools import pairwise

import pytest
from paperlab import BUSY, CALM, MS, Lab, received, seqs

from totempole.core.effects import Trace
from totempole.core.inputs import Arrived
from totempole.sim.conditions import Condition
from totempole.srp.packets import RegularMessage, RegularToken
from totempole.types import NO_PROCESSOR, Service


def busy_ring(processors: int = 4) -> Lab:
    """A ring that has ordered five messages, with the token going round."""
    lab = Lab(processors, BUSY).form()
    lab.send(1, 5)
    lab.run(10 * MS)
    assert all(lab.ring(me).safe_up_to == 5 for me in lab.everyone)
    return lab


def missed_message(deaf: int) -> tuple[Lab, int]:
    """Processor 1 broadcasts message 6 and one processor does not get it, the first time."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularMessage), to=deaf, count=1)
    lab.send(1)
    lab.run(10 * MS)
    return lab, since_us


def test_only_the_holder_of_the_token_broadcasts() -> None:
    """§4.1: to broadcast a message a processor must hold the token, which leaves after the messages."""
    lab = busy_ring()
    for me in lab.everyone:
        lab.send(me, 100)
    lab.run(50 * MS)
    visits = [entry for entry in lab.log() if entry.sent(RegularMessage)]
    assert len(visits) > 12
    for visit in visits:
        assert [type(packet) for packet in received(visit)] == [RegularToken]
        assert isinstance(visit.packets[-1], RegularToken)


def test_each_new_message_takes_the_next_number() -> None:
    """§4.1: each broadcast increments the token's seq; the ring has one sequence of message numbers."""
    lab = busy_ring()
    for me in lab.everyone:
        lab.send(me, 30)
    lab.run(50 * MS)
    ring = str(lab.ring(1).ring_id)
    originated = [
        row.seq for row in sorted(lab.rows("originate"), key=lambda row: row.at_us) if row.ring == ring
    ]
    assert originated == list(range(1, 126))


def test_the_tokens_seq_is_the_highest_number_broadcast() -> None:
    """§4.1: seq is a high-water mark, the largest number of any message broadcast on the ring."""
    lab = busy_ring()
    for me in lab.everyone:
        lab.send(me, 30)
    lab.run(50 * MS)
    ring_id, highest = lab.ring(1).ring_id, 0
    for entry in lab.log():
        for packet in entry.packets:
            if isinstance(packet, RegularMessage) and packet.ring_id == ring_id:
                highest = max(highest, packet.seq)
            if isinstance(packet, RegularToken) and packet.ring_id == ring_id:
                assert packet.seq == highest


def test_agreed_delivery_is_in_sequence_number_order_everywhere() -> None:
    """§4.1: delivery in sequence number order is agreed delivery."""
    lab = busy_ring()
    for me in lab.everyone:
        lab.send(me, 30)
    lab.run(50 * MS)
    for me in lab.everyone:
        assert seqs(lab.delivered(me)) == list(range(1, 126))
    assert len({tuple(d.message for d in lab.delivered(me)) for me in lab.everyone}) == 1


def test_the_aru_moves_in_step_with_seq_while_nothing_is_missing() -> None:
    """§4.1: if seq and aru are equal, aru moves with seq and aru_id names nobody."""
    lab = busy_ring()
    since_us = lab.mark
    lab.send(2, 30)
    lab.run(20 * MS)
    tokens = lab.tokens(since_us)
    assert tokens[-1].seq == 35
    assert all(token.aru == token.seq and token.aru_id == NO_PROCESSOR for token in tokens)


def test_one_that_misses_a_message_lowers_the_aru() -> None:
    """§4.1: a processor whose my_aru is smaller than aru replaces it and sets aru_id to its identifier."""
    lab, since_us = missed_message(deaf=3)
    lowered = next(token for token in lab.tokens(since_us) if token.aru < token.seq)
    assert (lowered.sender, lowered.seq, lowered.aru, lowered.aru_id) == (3, 6, 5, 3)


def test_the_smallest_my_aru_prevails() -> None:
    """§4.1: one that misses more lowers the aru further, and takes the blame over."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularMessage) and packet.seq == 7, to=2, count=1)
    lab.lose(lambda packet: isinstance(packet, RegularMessage) and packet.seq == 6, to=4, count=1)
    lab.send(1, 2)
    lab.run(10 * MS)
    tokens = lab.tokens(since_us)
    first = next(place for place, token in enumerate(tokens) if token.seq == 7)
    seen = [(token.sender, token.aru, token.aru_id) for token in tokens[first : first + 5]]
    assert seen == [(1, 7, NO_PROCESSOR), (2, 6, 2), (3, 6, 2), (4, 5, 4), (1, 5, 4)]


def test_only_the_one_that_lowered_the_aru_raises_it() -> None:
    """§4.1: the processor named by aru_id sets aru to its my_aru when the token comes again."""
    lab, since_us = missed_message(deaf=3)
    tokens = lab.tokens(since_us)
    lowered = next(place for place, token in enumerate(tokens) if token.aru < token.seq)
    following = [(token.sender, token.aru, token.aru_id) for token in tokens[lowered : lowered + 5]]
    assert following == [(3, 5, 3), (4, 5, 3), (1, 5, 3), (2, 5, 3), (3, 6, NO_PROCESSOR)]


def test_one_that_misses_a_message_asks_for_it() -> None:
    """§4.1: if the token's seq is above my_aru, the processor adds what it misses to rtr."""
    lab, since_us = missed_message(deaf=3)
    asked = next(token for token in lab.tokens(since_us) if token.rtr)
    assert asked.sender == 3
    assert [request.seq for request in asked.rtr] == [6]


@pytest.mark.parametrize(("deaf", "helper"), [(2, 3), (3, 4), (4, 1)])
def test_any_holder_retransmits(deaf: int, helper: int) -> None:
    """§4.1: whoever has a requested message retransmits it, not only its originator."""
    lab, since_us = missed_message(deaf)
    assert [(row.node, row.seq) for row in lab.rows("retransmit", since_us=since_us)] == [(helper, 6)]


def test_a_request_leaves_the_token_when_it_is_met() -> None:
    """§4.1: when it retransmits a message, the processor removes its number from rtr."""
    lab, since_us = missed_message(deaf=3)
    asking = [token.sender for token in lab.tokens(since_us) if token.rtr]
    assert asking == [3]


def test_retransmissions_go_before_new_messages() -> None:
    """§4.1: a requested message is retransmitted before new ones are broadcast in the same visit."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularMessage), to=3, count=1)
    lab.send(1)
    lab.until(lambda: any(token.rtr for token in lab.tokens(since_us)))
    lab.send(4, 3)
    lab.run(10 * MS)
    visit = next(e for e in lab.entries(4) if e.at_us >= since_us and e.sent(RegularMessage))
    assert seqs(visit.sent(RegularMessage)) == [6, 7, 8, 9]


def test_a_retransmission_is_the_original() -> None:
    """§4.1, §5.1: a retransmitted message is the same message: sender, number, timestamp and contents."""
    lab, since_us = missed_message(deaf=3)
    copies = [sent for sent in lab.sent(RegularMessage, since_us) if sent.packet.seq == 6]
    assert [copy.source for copy in copies] == [1, 4]
    assert copies[0].packet == copies[1].packet


def test_an_agreed_message_waits_for_those_before_it() -> None:
    """§4.1: a message is delivered only after every message with a lower number has been."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularMessage), to=3, count=1)
    lab.send(1, 2)
    lab.run(10 * MS)
    arrivals = [
        (seqs(received(entry)), seqs(entry.delivered))
        for entry in lab.entries(3)
        if entry.at_us >= since_us and isinstance((received(entry) or [None])[0], RegularMessage)
    ]
    assert arrivals == [([7], []), ([6], [6, 7])]


def test_an_agreed_message_is_delivered_on_reception() -> None:
    """§4.1: agreed delivery needs no token, only the message and all before it."""
    lab = busy_ring()
    since_us = lab.mark
    lab.send(1)
    lab.run(10 * MS)
    for me in (2, 3, 4):
        (delivery,) = [entry for entry in lab.entries(me) if entry.at_us >= since_us and entry.delivered]
        assert seqs(received(delivery)) == seqs(delivery.delivered) == [6]


def arus_until_delivery(lab: Lab, me: int, since_us: int) -> list[int]:
    """The arus that a processor forwarded, up to the visit in which it delivered."""
    arus = []
    for entry in lab.entries(me):
        if entry.at_us >= since_us:
            arus += [token.aru for token in entry.sent(RegularToken)]
            if entry.delivered:
                break
    return arus


def test_a_safe_message_waits_for_two_rotations() -> None:
    """§4.1: safe delivery needs the token forwarded with aru >= seq on two successive rotations."""
    lab = busy_ring()
    since_us = lab.mark
    lab.send(1, service=Service.SAFE)
    lab.run(10 * MS)
    for me in lab.everyone:
        arus = arus_until_delivery(lab, me, since_us)
        assert arus[-3:] == [5, 6, 6] or arus == [6, 6]
        assert seqs(lab.delivered(me, since_us)) == [6]


def test_the_two_rotations_are_successive() -> None:
    """§4.1: an aru that fell back in between makes the count begin anew."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularMessage), to=4, count=1)
    lab.send(1, service=Service.SAFE)
    lab.run(10 * MS)
    # Processor 1 forwards 6 at once; then 4, which misses the message, has lowered the aru.
    arus = arus_until_delivery(lab, 1, since_us)
    assert arus[arus.index(6) :] == [6, 5, 6, 6]


def test_a_safe_message_holds_back_what_follows_it() -> None:
    """§4.1: a message is delivered after all with lower numbers, so an agreed one waits for a safe one."""
    lab = busy_ring()
    since_us = lab.mark
    lab.send(1, service=Service.SAFE)
    lab.send(1, service=Service.AGREED)
    lab.run(10 * MS)
    for me in lab.everyone:
        (delivery,) = [entry for entry in lab.entries(me) if entry.at_us >= since_us and entry.delivered]
        assert seqs(delivery.delivered) == [6, 7]


def test_messages_are_kept_until_they_are_safe() -> None:
    """§4.1: when a message becomes safe it no longer needs to be retained; before that it does."""
    lab = busy_ring()
    lab.send(1)
    lab.until(lambda: 6 in seqs(lab.delivered(2)))
    assert set(lab.ring(2).messages) == {6}
    lab.send(1, 30)
    while lab.ring(2).safe_up_to < 36:
        lab.run(20)
        ring = lab.ring(2)
        assert set(ring.messages) == set(range(ring.safe_up_to + 1, ring.my_aru + 1))
    assert lab.ring(2).messages == {}
    assert Trace("safe", {"ring": lab.ring(2).ring_id, "seq": 36}, "srp") in lab.entries(2)[-1].effects


def test_a_lost_token_is_sent_again_and_saves_the_ring() -> None:
    """§4.1: on a Token Retransmission timeout the token is sent again; no membership change is needed."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularToken) and packet.sender == 2, count=1)
    lab.run(BUSY.token_retransmission_us + 20 * MS)
    lab.send(3, 5)
    lab.run(10 * MS)
    assert "token retransmitted" in lab.details("branch", 2, since_us)
    assert lab.rows("state", since_us=since_us) == []
    assert all(seqs(lab.delivered(me, since_us)) == [6, 7, 8, 9, 10] for me in lab.everyone)


def test_the_token_is_sent_again_for_as_long_as_nothing_is_heard() -> None:
    """§4.1: after retransmitting, the processor resets the Token Retransmission timeout."""
    lab = busy_ring()
    retransmission_us = BUSY.token_retransmission_us
    since_us = lab.mark
    # The token, then twice a copy for the successor and one for another member (srp/relay.py).
    lab.lose(lambda packet: isinstance(packet, RegularToken) and packet.sender == 2, count=5)
    lab.run(4 * retransmission_us)
    assert lab.details("branch", 2, since_us).count("token retransmitted") == 3
    assert lab.rows("state", since_us=since_us) == []


def test_a_redundant_token_is_discarded() -> None:
    """§4.1: a token with token_seq below my_token_seq is an old copy and is dropped."""
    lab = busy_ring()
    old = next(sent.packet for sent in reversed(lab.sent(RegularToken)) if sent.to == 3)
    lab.run(5 * MS)
    (entry,) = lab.inject(3, old)
    assert entry.packets == []
    assert lab.details("branch", 3)[-1] == "redundant token"


def test_two_copies_of_each_token_are_as_good_as_one() -> None:
    """§4.1: token_seq lets processors recognise redundant copies, so that one token goes round."""
    lab = busy_ring()
    since_us = lab.mark
    lab.world.set_condition(Condition(duplicate=1.0))
    lab.send(2, 20)
    lab.run(50 * MS)
    tokens = lab.sent(RegularToken, since_us)
    token_seqs = [sent.packet.token_seq for sent in tokens if sent.source == sent.packet.sender]
    assert token_seqs == list(range(token_seqs[0], token_seqs[-1] + 1)), "beside those that are sent back"
    assert seqs(lab.delivered(4, since_us)) == list(range(6, 26))


def test_token_seq_grows_by_one_at_each_hop() -> None:
    """§4.1: a processor that accepts the token increments token_seq."""
    lab = busy_ring()
    hops = [(token.sender, token.token_seq) for token in lab.tokens()[-9:]]
    for (sender, token_seq), (successor, next_seq) in pairwise(hops):
        assert (successor, next_seq) == (sender % 4 + 1, token_seq + 1)


def test_a_message_shows_that_the_token_is_not_lost() -> None:
    """§4.1: receipt of a regular message cancels the Token Retransmission timeout."""
    lab = busy_ring()
    since_us = lab.mark
    lab.lose(lambda p: isinstance(p, RegularToken) and p.seq == 6, to=3)
    lab.send(2)
    lab.run(CALM.token_loss_us // 2)
    assert "token retransmitted" in lab.details("branch", 2, since_us)
    assert "token retransmitted" not in lab.details("branch", 1, since_us)


def test_the_input_buffer_is_emptied_before_the_token_is_taken() -> None:
    """§4.1: on reception of the token a processor first processes all messages in its input buffer."""
    lab = busy_ring()
    lab.until(lambda: lab.tokens()[-1].sender == 4)
    since_us = lab.mark
    lab.world.pause(3)
    lab.world.set_condition(Condition(delay_us=(500, 500)), source=1, target=3)
    lab.send(1, 3)
    lab.run(5 * MS)
    lab.world.resume(3)
    lab.run(5 * MS)
    taken = [
        entry for entry in lab.entries(3) if entry.at_us >= since_us and isinstance(entry.given, Arrived)
    ][:4]
    assert [type(received(entry)[0]) for entry in taken] == [RegularMessage] * 3 + [RegularToken]
    (token,) = taken[-1].sent(RegularToken)
    assert (token.aru, token.rtr) == (8, ())


def test_the_order_of_the_ring_is_kept_under_loss() -> None:
    """§4.1: messages may be lost; total order, safe delivery and completeness do not suffer."""
    lab = Lab(4, condition=Condition(loss=0.1, token_loss=0.0)).form(within_us=10_000 * MS)
    for me in lab.everyone:
        lab.send(me, 50, Service.SAFE if me % 2 else Service.AGREED)
    lab.run(500 * MS)
    orders = {tuple(d.message for d in lab.delivered(me)) for me in lab.everyone}
    assert [len(order) for order in orders] == [200]
    assert lab.rows("retransmit")
    lab.assert_checkers_hold()
