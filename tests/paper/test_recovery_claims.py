"""Totem §4.3, the recovery algorithm: what is delivered when rings change, and where, a test per claim."""

from __future__ import annotations

from itertools import pairwise

from paperlab import BUSY, MS, Entry, Lab, packet_of, seqs

from totempole.core.order import Deliver, InstallConfiguration
from totempole.srp import RingConfig
from totempole.srp.packets import CommitToken, RegularMessage, RegularToken
from totempole.srp.states import State
from totempole.types import ConfigurationKind, ProcessorId, RingId, Service

REGULAR, TRANSITIONAL = ConfigurationKind.REGULAR, ConfigurationKind.TRANSITIONAL

PATIENT = RingConfig(fail_to_receive_rounds=10**6, idle_rounds=300)


def broken_ring(count: int = 1, config: RingConfig = PATIENT, processors: int = 4) -> tuple[Lab, int, RingId]:
    """1 broadcasts messages from 6 on, 3 misses number 6, and the token is lost before that is repaired.

    Gives the time at which that happened, and the ring.
    """
    lab = Lab(processors, config).form()
    lab.send(1, 5)
    lab.run(10 * MS)
    since_us, ring_id = lab.mark, lab.ring(1).ring_id
    lab.lose_messages(6, 1, to=[3])
    lab.send(1, count)
    lab.until(lambda: lab.ring(1).my_aru == 5 + count)
    lab.lose_token()
    lab.run(MS)
    return lab, since_us, ring_id


def recovered_ring(
    count: int = 1, config: RingConfig = PATIENT, processors: int = 4
) -> tuple[Lab, int, RingId]:
    """The same, and they have formed a new ring."""
    lab, since_us, ring_id = broken_ring(count, config, processors)
    lab.until_next_rings(lab.everyone)
    return lab, since_us, ring_id


def rebroadcast(lab: Lab, since_us: int) -> list[RegularMessage]:
    return [sent.packet for sent in lab.sent(RegularMessage, since_us) if sent.packet.recovered]


def old_messages(lab: Lab, messages: list[RegularMessage]) -> list[RegularMessage]:
    """What is inside rebroadcast messages."""
    config = lab.world.hosts[1].config
    inside = [packet_of(config, message.contents) for message in messages]
    return [message for message in inside if isinstance(message, RegularMessage)]


def install_entry(lab: Lab, me: ProcessorId, since_us: int) -> Entry:
    """The input upon which a processor installed a ring."""
    return next(
        entry
        for entry in lab.entries(me)
        if entry.at_us >= since_us and any(isinstance(e, InstallConfiguration) for e in entry.effects)
    )


# Step 1: the exchange


def test_messages_above_the_lowest_aru_are_broadcast_on_the_new_ring() -> None:
    """§4.3 step 1: every message of the old ring above the lowest my_aru is broadcast on the new ring."""
    lab, since_us, _ = recovered_ring(count=3)
    assert seqs(old_messages(lab, rebroadcast(lab, since_us))) == [6, 7, 8]


def test_nothing_is_broadcast_that_everybody_has() -> None:
    """§4.3 step 1: with equal arus there is nothing above the lowest, and nothing is exchanged."""
    lab = Lab(4, BUSY).form()
    lab.send(1, 30)
    lab.run(10 * MS)
    since_us = lab.mark
    lab.lose_token()
    lab.until_next_rings(lab.everyone)
    assert rebroadcast(lab, since_us) == []


def test_an_old_message_travels_inside_a_message_of_the_new_ring() -> None:
    """§4.3: with a new ring identifier and number outside, and the old ones inside, unchanged."""
    lab, since_us, old = recovered_ring(count=3)
    outside = rebroadcast(lab, since_us)
    inside = old_messages(lab, outside)
    assert {message.ring_id for message in outside} == {lab.ring(1).ring_id}
    assert seqs(outside) == [1, 2, 3]
    original = [s.packet for s in lab.sent(RegularMessage, since_us) if s.packet.ring_id == old]
    assert inside == original[:3]


def test_a_message_heard_on_the_new_ring_is_not_broadcast_again() -> None:
    """§4.3, figure 4.12: a message that another has rebroadcast leaves the retrans_message_queue."""
    lab, since_us, _ = recovered_ring(count=3)
    assert {message.sender for message in rebroadcast(lab, since_us)} == {1}


def test_the_exchange_repairs_what_was_missed() -> None:
    """§4.3: all that transition from the same old ring deliver the same messages of it."""
    lab, since_us, old = recovered_ring(count=3)
    for me in lab.everyone:
        assert seqs(lab.delivered(me, since_us)) == [6, 7, 8]
        assert {delivery.key.ring_id for delivery in lab.delivered(me, since_us)} == {old}
    lab.assert_checkers_hold()


def test_a_straggler_is_not_taken_in_during_the_exchange() -> None:
    """§4.3: all deliver the same messages of the old ring, so none may come to one of them alone."""
    lab, since_us, old = broken_ring(count=3)
    last = next(s.packet for s in reversed(lab.sent(RegularMessage)) if s.packet.ring_id == old)
    lab.until(lambda: lab.state(2) is State.RECOVER)
    lab.inject(2, last._replace(seq=9, number=9, contents=b"a straggler"))
    assert lab.details("drop", 2)[-1] == "RegularMessage in recover"
    lab.until_next_rings(lab.everyone)
    assert all(seqs(lab.delivered(me, since_us)) == [6, 7, 8] for me in lab.everyone)


def test_old_messages_are_not_for_those_who_were_elsewhere() -> None:
    """§4.3: a rebroadcast message is not delivered by one that was not a member of its old ring."""
    lab = Lab(5, PATIENT).form([1, 2, 3], [4, 5])
    since_us = lab.mark
    lab.lose_messages(1, 1, to=[3])
    lab.send(1, 3)
    lab.run(5 * MS)
    assert seqs(lab.delivered(3)) == []
    lab.world.medium.partition([])
    lab.send(5)
    lab.until_rings(lab.everyone)
    assert seqs(old_messages(lab, rebroadcast(lab, since_us))) == [1, 2, 3]
    assert [delivery.origin for delivery in lab.delivered(3)] == [1, 1, 1]
    assert [delivery.origin for me in (4, 5) for delivery in lab.delivered(me)] == [5, 5]
    lab.assert_checkers_hold()


def test_no_new_message_is_broadcast_in_recover() -> None:
    """§4.3: no new messages are broadcast by a processor in the Recover state."""
    lab, since_us, old = broken_ring()
    for me in lab.everyone:
        lab.send(me, 50)
    lab.run(300 * MS)
    new = lab.ring(1).ring_id
    sent = [s for s in lab.sent(RegularMessage, since_us) if s.packet.ring_id == new]
    assert len([s for s in sent if not s.packet.recovered]) == 200
    for item in sent:
        after = item.at_us >= lab.installed_at(item.source, new)
        assert after == (not item.packet.recovered)
    assert old != new


def test_retrans_flg_says_that_there_is_more_and_its_setter_clears_it() -> None:
    """§4.3: retrans_flg is set by one that has more to rebroadcast, and cleared by the same one when done."""
    config = RingConfig(fail_to_receive_rounds=10**6, idle_rounds=300, each_time_packets=2, window_packets=50)
    lab, since_us, _ = recovered_ring(count=20, config=config)
    new = lab.ring(1).ring_id
    tokens = [token for token in lab.tokens(since_us) if token.ring_id == new]
    changes = [
        (after.sender, after.retrans_flg)
        for before, after in pairwise([tokens[0]._replace(retrans_flg=False), *tokens])
        if before.retrans_flg != after.retrans_flg
    ]
    setters, clearers = changes[::2], changes[1::2]
    assert [flag for _, flag in setters] == [True] * len(setters)
    assert [who for who, _ in setters] == [who for who, _ in clearers]
    last_rebroadcast = max(s.at_us for s in lab.sent(RegularMessage, since_us) if s.packet.recovered)
    last_cleared = max(s.at_us for s in lab.sent(RegularToken, since_us) if s.packet.retrans_flg)
    assert last_cleared >= last_rebroadcast - MS


def test_a_ring_is_installed_after_three_quiet_rotations() -> None:
    """§4.3: three successive rotations with retrans_flg false, the last two with aru >= my_install_seq."""
    lab, since_us, _ = recovered_ring(count=3)
    new = lab.ring(1).ring_id
    for me in lab.everyone:
        installed_us = lab.installed_at(me, new)
        visits = [
            s.packet
            for s in lab.sent(RegularToken, since_us, me)
            if s.packet.ring_id == new and s.at_us <= installed_us
        ]
        assert [token.retrans_flg for token in visits[-3:]] == [False] * 3
        assert [token.aru >= 3 for token in visits[-2:]] == [True] * 2
        assert len(visits) == 3


def test_a_promise_is_given_before_anyone_installs() -> None:
    """§4.3: whoever installs has every other member's promise to deliver what was exchanged."""
    lab, since_us, _ = recovered_ring(count=3)
    promised = [row.at_us for row in lab.rows("branch", since_us=since_us) if row.reason == "promise given"]
    installed = [lab.installed_at(me, lab.ring(1).ring_id) for me in lab.everyone]
    assert len(promised) == 4
    assert max(promised) < min(installed)


# Steps 2 to 6: what is delivered where


def test_the_change_of_rings_is_one_step() -> None:
    """§4.3: steps 2 to 6 are one atomic action: old messages, transitional change, the rest, new ring."""
    lab = Lab(4, PATIENT).form()
    since_us = lab.mark
    lab.lose_messages(1, 1, to=[3])
    lab.send(1, 2)
    lab.send(1, 2, Service.SAFE)
    lab.until(lambda: lab.ring(1).my_aru == 4)
    lab.lose_token()
    lab.run(MS)
    lab.until_next_rings(lab.everyone)
    entry = install_entry(lab, 3, since_us)
    happened = [
        effect.configuration.kind if isinstance(effect, InstallConfiguration) else effect.key.seq
        for effect in entry.effects
        if isinstance(effect, InstallConfiguration | Deliver)
    ]
    assert happened == [1, 2, TRANSITIONAL, 3, 4, REGULAR]


def test_old_ring_messages_come_before_any_of_the_new_ring() -> None:
    """§4.3: a processor delivers the old ring's messages before it delivers any message of the new ring."""
    lab, since_us, old = broken_ring(count=3)
    for me in lab.everyone:
        lab.send(me, 20)
    lab.run(300 * MS)
    for me in lab.everyone:
        rings = [delivery.key.ring_id for delivery in lab.delivered(me, since_us)]
        assert rings == [old] * 3 + [lab.ring(1).ring_id] * 80


def test_some_are_operational_before_others() -> None:
    """§4.3: installing is a local decision; the others follow when the token completes its next rotation."""
    lab, since_us, old = broken_ring(count=3)
    lab.send(1, 10)
    lab.until(lambda: lab.state(1) is State.OPERATIONAL and lab.ring(1).ring_id != old)
    assert [lab.state(me) for me in (2, 3, 4)] == [State.RECOVER] * 3
    lab.run(20 * MS)
    new = lab.ring(1).ring_id
    visits = [(s.at_us, s.source) for s in lab.sent(RegularToken, lab.installed_at(1, new))][:4]
    assert visits == [(lab.installed_at(me, new), me) for me in (1, 2, 3, 4)]
    assert all(len(lab.delivered(me, since_us)) == 13 for me in lab.everyone)


def one_delivered_safely() -> tuple[Lab, int, RingId]:
    """A safe message of 1, which 1 has delivered and nobody else could yet; then the token is lost."""
    lab = Lab(4, PATIENT).form()
    since_us, ring_id, ring = lab.mark, lab.ring(1).ring_id, lab.ring(1)
    lab.lose(lambda p: isinstance(p, RegularToken) and p.ring_id == ring_id and ring.safe_up_to == 1)
    lab.send(1, 1, Service.SAFE)
    lab.until(lambda: seqs(lab.delivered(1)) == [1])
    assert [lab.delivered(me) for me in (2, 3, 4)] == [[], [], []]
    return lab, since_us, ring_id


def test_what_one_delivered_as_safe_all_deliver_on_the_old_ring() -> None:
    """§4.3 step 2: a safe message up to high_ring_delivered is delivered in the old regular configuration."""
    lab, since_us, old = one_delivered_safely()
    lab.until_next_rings(lab.everyone)
    for me in lab.everyone:
        assert [(d.key.seq, d.configuration) for d in lab.delivered(me, since_us)] == [(1, old)]
    lab.assert_checkers_hold()


def test_a_safe_message_that_nobody_is_known_to_have_delivered_waits_for_the_transition() -> None:
    """§4.3 step 4: it cannot be delivered on the old ring, but in the smaller transitional configuration."""
    lab, since_us, _ = one_delivered_safely()
    lab.world.crash(1)
    lab.until_next_rings([2, 3, 4])
    for me in (2, 3, 4):
        (transitional,) = lab.installed(me, TRANSITIONAL, since_us)
        assert transitional.members == (2, 3, 4)
        assert [(d.key.seq, d.configuration) for d in lab.delivered(me)] == [(1, transitional.id)]
    lab.assert_checkers_hold()


def ring_with_a_gap(config: RingConfig = PATIENT) -> tuple[Lab, int, RingId]:
    """5 broadcasts messages 1 and 2, of which nobody else gets 1; then 4 broadcasts 3. Then 5 is gone."""
    lab = Lab(5, config).form()
    since_us, ring_id = lab.mark, lab.ring(1).ring_id
    lab.lose_messages(1, 5, to=[1, 2, 3, 4])
    lab.send(5, 2)
    lab.until(lambda: lab.ring(5).my_aru == 2)
    lab.send(4, 1, Service.SAFE)
    lab.until(lambda: all(3 in lab.ring(me).messages for me in lab.everyone))
    assert 1 not in lab.ring(2).messages
    assert 2 in lab.ring(2).messages
    lab.world.crash(5)
    lab.lose_token()
    return lab, since_us, ring_id


def test_what_follows_a_gap_is_not_delivered() -> None:
    """§4.3: a message after a gap, from one that did not come along, would break causality."""
    lab, _, _ = ring_with_a_gap()
    lab.until_next_rings([1, 2, 3, 4])
    assert all(2 not in seqs(lab.delivered(me)) for me in (1, 2, 3, 4))
    lab.assert_checkers_hold()


def test_past_a_gap_only_companions_messages_are_delivered() -> None:
    """§4.3 step 4: in the transitional configuration, those originated by members of my_deliver_memb are."""
    lab, since_us, _ = ring_with_a_gap()
    lab.until_next_rings([1, 2, 3, 4])
    for me in (1, 2, 3, 4):
        (transitional,) = lab.installed(me, TRANSITIONAL, since_us)
        assert transitional.members == (1, 2, 3, 4)
        assert [(d.origin, d.configuration) for d in lab.delivered(me)] == [(4, transitional.id)]


def test_agreed_messages_are_delivered_on_the_old_ring_up_to_the_gap() -> None:
    """§4.3 step 2: messages are delivered in order until a gap or a safe one above high_ring_delivered."""
    lab, since_us, old = recovered_ring(count=3)
    assert [(d.key.seq, d.configuration) for d in lab.delivered(3, since_us)] == [
        (6, old),
        (7, old),
        (8, old),
    ]


def test_figure_4_15() -> None:
    """§4.3, figure 4.15: p is isolated while q, r, s and t merge with u and v."""
    p, everyone = 1, (1, 2, 3, 4, 5)
    lab = Lab(7).form(everyone, [6, 7])
    since_us = lab.mark
    lab.world.partition([[p], [2, 3, 4, 5, 6, 7]])
    lab.until_rings([p], [2, 3, 4, 5, 6, 7])
    changes = {me: [(c.kind, c.members) for c in lab.installed(me, since_us=since_us)] for me in lab.everyone}
    merged = (REGULAR, (2, 3, 4, 5, 6, 7))
    for me in (2, 3, 4, 5):
        assert changes[me] == [(TRANSITIONAL, (2, 3, 4, 5)), merged]
    for me in (6, 7):
        assert changes[me] == [(TRANSITIONAL, (6, 7)), merged]
    assert changes[p] == [(TRANSITIONAL, (p,)), (REGULAR, (p,))]


def test_no_safe_message_is_delivered_on_a_ring_before_all_have_installed_it() -> None:
    """§4.3: no safe message is delivered on the new ring before all processors on it install it."""
    lab, since_us, _ = broken_ring(count=3)
    for me in lab.everyone:
        lab.send(me, 20, Service.SAFE)
    lab.run(300 * MS)
    new = lab.ring(1).ring_id
    installed_us = max(lab.installed_at(me, new) for me in lab.everyone)
    safe = [row for row in lab.rows("deliver", since_us=since_us) if row.ring == str(new)]
    assert len(safe) == 4 * 80
    assert min(row.at_us for row in safe) > installed_us


# Failure of recovery


def failed_recovery() -> tuple[Lab, int, RingId]:
    """Figure 4.16: 1 installs the new ring of 1, 2, 3 and 4; the others have promised, and are parted first.

    The message at stake is 4's, which follows a gap.
    """
    lab, since_us, old = ring_with_a_gap()
    # The token that 1 sends on in the visit in which it installs the ring.
    lab.lose(
        lambda p: (
            isinstance(p, RegularToken)
            and p.sender == 1
            and p.ring_id != old
            and lab.state(1) is State.OPERATIONAL
        )
    )
    lab.until(lambda: lab.members(1) == (1, 2, 3, 4))
    assert all(lab.state(me) is State.RECOVER for me in (2, 3, 4))
    lab.world.partition([[1], [2, 3], [4]])
    lab.until_next_rings([2, 3])
    return lab, since_us, old


def test_a_promise_is_kept_in_a_smaller_configuration() -> None:
    """§4.3, figure 4.16: what was promised is delivered in the transitional configuration that comes."""
    lab, since_us, _ = failed_recovery()
    assert [d.origin for d in lab.delivered(1)] == [4]
    for me in (2, 3):
        (transitional,) = lab.installed(me, TRANSITIONAL, since_us)
        assert transitional.members == (2, 3)
        # 4 is not of this configuration; without the promise its message would be lost behind the gap.
        assert [(d.origin, d.configuration) for d in lab.delivered(me)] == [(4, transitional.id)]
    lab.assert_checkers_hold()


def test_the_old_ring_is_kept_until_a_new_one_is_installed() -> None:
    """§4.3: each processor preserves its old ring identifier until it installs a new ring."""
    lab, _, old = failed_recovery()
    last = next(s.packet for s in reversed(lab.sent(CommitToken)) if len(s.packet.memb_list) == 2)
    assert [entry.old_ring_id for entry in last.memb_list] == [old, old]


def test_the_promise_is_told_to_the_others() -> None:
    """§4.2, §4.3: the Commit token says who has received everything in an earlier, failed recovery."""
    lab, _, _ = failed_recovery()
    last = next(s.packet for s in reversed(lab.sent(CommitToken)) if len(s.packet.memb_list) == 2)
    assert [entry.deliver_memb for entry in last.memb_list] == [(1, 2, 3, 4)] * 2


def test_what_a_failed_recovery_brought_stays() -> None:
    """§4.3, figure 4.13: after a failed recovery the old ring's aru may have increased."""
    lab, since_us, old = broken_ring(count=3)
    lab.until(lambda: lab.ring(3).my_aru == 8)
    assert lab.state(3) is State.RECOVER
    failed = lab.machine(3).ring_id
    lab.lose(lambda p: isinstance(p, RegularToken) and p.ring_id == failed)
    lab.until_next_rings(lab.everyone)
    last = next(s.packet for s in reversed(lab.sent(CommitToken)) if s.packet.ring_id != failed)
    entry = next(entry for entry in last.memb_list if entry.processor == 3)
    assert (entry.old_ring_id, entry.old_ring_aru) == (old, 8)
    assert seqs(lab.delivered(3, since_us)) == [6, 7, 8]
    lab.assert_checkers_hold()


def test_what_was_received_on_a_failed_ring_goes() -> None:
    """§4.3, figure 4.13: messages received on a new ring that is never installed are discarded."""
    lab, _, _ = broken_ring(count=3)
    lab.until(lambda: lab.ring(3).my_aru == 8)
    failed = lab.machine(3).ring_id
    lab.lose(lambda p: isinstance(p, RegularToken) and p.ring_id == failed)
    lab.until_next_rings(lab.everyone)
    lab.send(2, 3)
    lab.run(20 * MS)
    assert lab.ring(3).ring_id.seq > failed.seq
    assert all(d.key.ring_id != failed for me in lab.everyone for d in lab.delivered(me))
