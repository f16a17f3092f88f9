"""The accelerated ring (Babay and Amir; docs/accelerated.md), and what keeps unlike processors apart."""

from __future__ import annotations

from itertools import pairwise

import pytest
from paperlab import ACCELERATED, BUSY, CALM, MS, Lab, received, seqs

from totempole.core.effects import Trace
from totempole.core.inputs import Arrived
from totempole.sim.conditions import Condition
from totempole.sim.load import Saturation
from totempole.srp import RingConfig
from totempole.srp.packets import RegularMessage, RegularToken
from totempole.types import RingKind, Service

FEW_LATE = RingConfig(
    idle_rounds=300,
    ring_kind=RingKind.ACCELERATED,
    accelerated_window=4,
    each_time_packets=10,
    window_packets=40,
)


def busy_ring(config: RingConfig = FEW_LATE) -> Lab:
    """A ring of four that has ordered five messages."""
    lab = Lab(4, config).form()
    lab.send(1, 5)
    lab.run(10 * MS)
    return lab


def saturated(config: RingConfig, duration_us: int, **conditions: object) -> tuple[Lab, int]:
    lab = Lab(4, config, **conditions).form(within_us=10_000 * MS)
    since_us = lab.mark
    for me in lab.everyone:
        Saturation(lab.world, me, size=100).start()
    lab.run(duration_us)
    return lab, since_us


def test_the_token_leaves_before_the_last_packets() -> None:
    """Only packets that exceed accelerated_window go before the token; at most that many follow it."""
    lab, since_us = saturated(FEW_LATE, 20 * MS)
    for me in lab.everyone:
        visit = next(e for e in lab.entries(me) if e.at_us > since_us + MS and e.sent(RegularToken))
        kinds = [type(packet) for packet in visit.packets]
        assert kinds == [RegularMessage] * 6 + [RegularToken] + [RegularMessage] * 4


def test_a_visit_within_the_window_sends_everything_after_the_token() -> None:
    """What does not exceed accelerated_window need not delay the token at all."""
    lab = busy_ring()
    since_us = lab.mark
    lab.send(2, 3)
    lab.run(5 * MS)
    visit = next(e for e in lab.entries(2) if e.at_us >= since_us and e.sent(RegularMessage))
    assert [type(packet) for packet in visit.packets] == [RegularToken] + [RegularMessage] * 3


def test_the_tokens_seq_covers_packets_still_to_come() -> None:
    """All packets of a visit are numbered first; the token's seq already counts those that follow it."""
    lab, since_us = saturated(FEW_LATE, 20 * MS)
    visits = [e for e in lab.log(since_us) if e.sent(RegularToken) and e.sent(RegularMessage)]
    assert len(visits) > 20
    for visit in visits:
        assert visit.sent(RegularToken)[0].seq == max(seqs(visit.sent(RegularMessage)))


def test_packets_say_that_they_were_sent_after_the_token() -> None:
    """A packet that follows the token is marked, for the successor to know that the token is under way."""
    lab, since_us = saturated(FEW_LATE, 20 * MS)
    for visit in [e for e in lab.log(since_us) if e.sent(RegularToken)]:
        place = [type(packet) for packet in visit.packets].index(RegularToken)
        marks = [packet.after_token for packet in visit.packets if isinstance(packet, RegularMessage)]
        assert marks == [False] * place + [True] * (len(marks) - place)


def test_the_classic_ring_sends_all_before_the_token() -> None:
    """Totem §4.1, for comparison: retransmissions and new messages first, then the token."""
    lab, since_us = saturated(BUSY, 20 * MS)
    for visit in [e for e in lab.log(since_us) if e.sent(RegularToken)]:
        assert isinstance(visit.packets[-1], RegularToken)


def missed(config: RingConfig) -> tuple[Lab, int]:
    """A packet of 1 that 3 does not get, the first time."""
    lab = busy_ring(config)
    since_us = lab.mark
    lab.lose(lambda packet: isinstance(packet, RegularMessage), to=3, count=1)
    lab.send(1)
    lab.run(10 * MS)
    return lab, since_us


@pytest.mark.parametrize(("config", "later"), [(BUSY, 0), (FEW_LATE, 1)])
def test_requests_lag_by_one_rotation(config: RingConfig, later: int) -> None:
    """Packets are asked for only up to the seq of the token sent last: newer ones may be on their way."""
    lab, since_us = missed(config)
    tokens = lab.tokens(since_us, source=3)
    learned = next(place for place, token in enumerate(tokens) if token.seq == 6)
    asked = next(place for place, token in enumerate(tokens) if token.rtr)
    assert asked - learned == later
    assert all(seqs(lab.delivered(me)) == [1, 2, 3, 4, 5, 6] for me in lab.everyone)


def test_a_packet_on_its_way_is_not_asked_for() -> None:
    """Under saturation, without loss, every token overtakes packets and yet nothing is requested."""
    lab, since_us = saturated(FEW_LATE, 20 * MS)
    lowered = [token for token in lab.tokens(since_us) if token.aru < token.seq]
    assert lowered
    assert not any(token.rtr for token in lab.tokens(since_us))
    assert not lab.rows("retransmit", since_us=since_us)


def test_retransmissions_go_before_the_token() -> None:
    """Requests are answered before the token leaves, so that the successor does not ask for them again."""
    lab, since_us = saturated(FEW_LATE, 40 * MS, condition=Condition(loss=0.05, token_loss=0.0))
    answers = 0
    for visit in [e for e in lab.log(since_us) if e.sent(RegularToken)]:
        again = sum(isinstance(effect, Trace) and effect.kind == "retransmit" for effect in visit.effects)
        answers += again
        assert [type(packet) for packet in visit.packets[:again]] == [RegularMessage] * again
        assert not any(message.after_token for message in visit.sent(RegularMessage)[again:][:-4])
    assert answers > 20


def test_the_safe_rule_is_unchanged() -> None:
    """A message is safe up to the lesser of the arus of the last two tokens that the processor sent."""
    lab, since_us = saturated(FEW_LATE, 30 * MS, condition=Condition(loss=0.02, token_loss=0.0))
    checked = 0
    for me in lab.everyone:
        visits = [e for e in lab.entries(me) if e.at_us >= since_us and e.sent(RegularToken)]
        for before, visit in pairwise(visits):
            lesser = min(before.sent(RegularToken)[0].aru, visit.sent(RegularToken)[0].aru)
            for effect in visit.effects:
                if isinstance(effect, Trace) and effect.kind == "safe":
                    assert effect.columns["seq"] == lesser
                    checked += 1
    assert checked > 50


def test_data_goes_first_until_the_predecessor_is_past_its_token() -> None:
    """Data before the token, until a packet comes that the predecessor sent after it; then the token."""
    lab = busy_ring()
    lab.until(lambda: lab.tokens()[-1].sender == 3)
    since_us = lab.mark
    lab.world.pause(2)
    lab.send(1, 10)
    lab.run(5 * MS)
    lab.world.resume(2)
    lab.run(5 * MS)
    taken = [e for e in lab.entries(2) if e.at_us >= since_us and isinstance(e.given, Arrived)][:11]
    kinds = [type(received(entry, FEW_LATE)[0]) for entry in taken]
    # Six were sent before the token. The first of the other four shows that it has passed.
    assert kinds == [RegularMessage] * 7 + [RegularToken] + [RegularMessage] * 3


def test_recovery_is_classic() -> None:
    """In membership and recovery the classic rules hold: nothing follows the token, nothing is asked late."""
    lab = busy_ring()
    ring_id = lab.ring(1).ring_id
    lab.lose_messages(6, 1, to=[3])
    lab.send(1, 9)
    lab.until(lambda: lab.ring(1).my_aru == 14)
    since_us = lab.mark
    lab.lose_token()
    lab.until_next_rings(lab.everyone)
    visits = [e for e in lab.log(since_us) if any(m.recovered for m in e.sent(RegularMessage))]
    assert visits
    assert all(isinstance(visit.packets[-1], RegularToken) for visit in visits)
    assert all(seqs(lab.delivered(me)) == list(range(1, 15)) for me in lab.everyone)
    assert lab.ring(1).ring_id != ring_id


def test_a_submission_wakes_an_idle_accelerated_ring() -> None:
    """When idle, the last to send holds the token; a small multicast wakes it."""
    lab = Lab(4, RingConfig(ring_kind=RingKind.ACCELERATED)).form()
    lab.run(100 * MS)
    for me in (2, 3, 4):
        lab.run(31 * MS)
        since_us = lab.mark
        lab.send(me)
        lab.until_delivered(since_us, CALM.idle_hold_us // 10)


def test_order_safety_and_recovery_hold_under_loss() -> None:
    """The accelerated ring stands under the same checkers as the classic one."""
    config = RingConfig(ring_kind=RingKind.ACCELERATED, accelerated_window=5)
    lab = Lab(4, config, condition=Condition(loss=0.05)).form(within_us=10_000 * MS)
    for me in lab.everyone:
        lab.send(me, 50, Service.SAFE if me % 2 else Service.AGREED)
    lab.run(40 * MS)
    lab.world.crash(2)
    lab.run(500 * MS)
    assert lab.rows("retransmit")
    lab.assert_checkers_hold()


# Who may share a ring


def test_rings_of_different_kinds_never_mix() -> None:
    """Processors of different ring kinds refuse to form a ring together, and say why."""
    kinds = dict.fromkeys((1, 2), CALM) | {me: RingConfig(ring_kind=RingKind.ACCELERATED) for me in (3, 4)}
    lab = Lab(4, kinds).form([1, 2], [3, 4])
    lab.world.heal()
    for me in lab.everyone:
        lab.send(me, 20)
    lab.run(2_000 * MS)
    assert [lab.members(me) for me in lab.everyone] == [(1, 2), (1, 2), (3, 4), (3, 4)]
    for me in lab.everyone:
        assert set(lab.engine(me).dropped) == {"ring kind"}
        assert "ring kind" in lab.details("drop", me)


def test_clusters_never_mix() -> None:
    """Packets of other clusters are dropped and counted, whatever they are."""
    clusters = {me: RingConfig(cluster_id=7) for me in (1, 2)} | dict.fromkeys((3, 4), CALM)
    lab = Lab(4, clusters).form([1, 2], [3, 4])
    lab.world.heal()
    for me in lab.everyone:
        lab.send(me, 20)
    lab.run(2_000 * MS)
    assert [lab.members(me) for me in lab.everyone] == [(1, 2), (1, 2), (3, 4), (3, 4)]
    for me in lab.everyone:
        assert set(lab.engine(me).dropped) == {"cluster"}
        assert len(lab.delivered(me)) == 40


def test_accelerated_and_classic_give_the_same_order_of_a_senders_messages() -> None:
    """Sequence numbers follow the order of submission, whether a packet leaves before or after the token."""
    for config in (BUSY, ACCELERATED, FEW_LATE):
        lab = Lab(3, config).form()
        lab.send(2, 60)
        lab.run(50 * MS)
        assert [d.message.number for d in lab.delivered(1)] == list(range(1, 61))
