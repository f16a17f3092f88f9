"""Totem §4.4, flow control: how much may be sent, and what it protects, a test per claim."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from paperlab import CALM, MS, Lab

from totempole.core.effects import Trace
from totempole.sim.conditions import Buffers, Condition
from totempole.sim.load import Saturation
from totempole.srp import RingConfig
from totempole.srp.flow import FlowControl
from totempole.srp.packets import RegularMessage, RegularToken
from totempole.types import RingId, Service

NARROW = RingConfig(each_time_packets=5, window_packets=12)


def saturated(config: RingConfig, duration_us: int, size: int = 100, **conditions: object) -> tuple[Lab, int]:
    """A ring of four, all sending all they may. Gives the time at which they began."""
    lab = Lab(4, config, **conditions).form(within_us=10_000 * MS)
    since_us = lab.mark
    for me in lab.everyone:
        Saturation(lab.world, me, size=size).start()
    lab.run(duration_us)
    return lab, since_us


def visits(lab: Lab, since_us: int) -> list[tuple[RegularToken, int, int]]:
    """Each token visit: the token as it left, new messages, retransmissions."""
    found = []
    for entry in lab.log(since_us):
        for token in entry.sent(RegularToken):
            again = sum(isinstance(effect, Trace) and effect.kind == "retransmit" for effect in entry.effects)
            found.append((token, len(entry.sent(RegularMessage)) - again, again))
    return found


def test_a_visit_sends_no_more_than_each_time() -> None:
    """§4.4: each_time limits what a processor may send during one visit of the token."""
    lab, since_us = saturated(RingConfig(each_time_packets=3, window_packets=50), 50 * MS)
    sent = [new for _, new, _ in visits(lab, since_us)]
    assert max(sent) == 3
    assert sent.count(3) > 100


def test_a_rotation_sends_no_more_than_the_window() -> None:
    """§4.4: window_size limits what all processors together send during one rotation of the token."""
    lab, since_us = saturated(NARROW, 50 * MS)
    rotation: deque[int] = deque(maxlen=4)
    fullest = 0
    for _, new, again in visits(lab, since_us):
        rotation.append(new + again)
        fullest = max(fullest, sum(rotation))
    assert fullest == 12


def test_retransmissions_count_against_the_limits() -> None:
    """§4.4: retransmissions are included in the number of messages sent."""
    lab, since_us = saturated(NARROW, 120 * MS, condition=Condition(loss=0.1, token_loss=0.0))
    found = visits(lab, since_us)
    assert sum(again for _, _, again in found) > 20
    assert max(new + again for _, new, again in found) <= 5
    rotation: deque[int] = deque(maxlen=4)
    for _, new, again in found:
        rotation.append(new + again)
        # A full window never stops the repair that would empty it: one retransmission is always allowed.
        assert sum(rotation) <= 12 + 4


def test_retrans_round_counts_the_retransmissions_of_a_rotation() -> None:
    """§4.4: before forwarding, last_retrans is subtracted from retrans_round and this visit's are added."""
    lab, since_us = saturated(CALM, 15 * MS, condition=Condition(loss=0.05, token_loss=0.0))
    rotation: deque[int] = deque(maxlen=4)
    seen = Counter[int]()
    for token, _, again in visits(lab, since_us):
        rotation.append(again)
        assert token.retrans_round == sum(rotation)
        seen[token.retrans_round] += 1
    assert len(seen) > 3


def test_what_others_sent_is_taken_off_the_allowance() -> None:
    """§4.4, figure 4.17: new messages by the advance of seq, retransmissions by retrans_round."""
    config = RingConfig(each_time_packets=20, window_packets=30)
    flow = FlowControl(config, 1)
    token = RegularToken(1, 1, RingId(4, 1), 0, seq=0, aru=0)
    assert flow.allowance(token, 99).new_packets == 20
    assert flow.allowance(token._replace(seq=20, aru=20, retrans_round=5), 99).new_packets == 5
    flow.account(token, seq=25, retransmitted=2, sent_bytes=0, waiting=0)
    assert flow.allowance(token._replace(seq=40, aru=40, retrans_round=6), 99).new_packets == 30 - 15 - 4


def test_the_window_is_shared_fairly() -> None:
    """§4.4: each_time contributes to fairness in distributing window_size among the processors."""
    lab, since_us = saturated(NARROW, 50 * MS)
    # From when the token has told everyone what waits at the others.
    sent = Counter(s.source for s in lab.sent(RegularMessage, since_us + 10 * MS))
    assert set(sent) == {1, 2, 3, 4}
    # In proportion to what waits at each, which is nearly the same for all.
    assert min(sent.values()) >= 0.95 * max(sent.values())


SIZE = 1_000
PACKET_BYTES = SIZE + 200
"""A message of that size with its headers, at most."""


def test_a_slow_processor_slows_the_others_and_loses_nothing() -> None:
    """§4.4: a processor empties its input buffer before it takes the token, so the slowest sets the rate."""
    rates = {}
    for factor, duration_us in ((1, 20 * MS), (40, 100 * MS)):
        lab = Lab(4, CALM).form()
        lab.world.slow(3, factor)
        for me in (1, 2, 4):
            Saturation(lab.world, me, size=SIZE).start()
        lab.run(duration_us)
        rates[factor] = lab.world.hosts[1].delivered / duration_us
        assert lab.world.counters["overflowed"] == 0
        assert not lab.rows("retransmit")
    # A message costs the slow one 40 * (2 + 0.5 + 0.2) us to receive; all wait for it.
    slow_us = 40 * 2.7
    assert rates[40] < rates[1] / 3
    assert rates[40] == pytest.approx(1 / slow_us, rel=0.4)


@pytest.mark.parametrize(("buffered", "overflows"), [(1.0, False), (0.3, True)])
def test_a_window_within_the_input_buffer_never_overflows_it(buffered: float, overflows: bool) -> None:
    """§4.4: if window_size is limited by the size of each input buffer, buffer overflow cannot occur."""
    config = RingConfig(each_time_packets=10, window_packets=40)
    room = int(buffered * config.window_packets * PACKET_BYTES)
    lab = Lab(4, config, buffers=Buffers(data_bytes=room)).form()
    lab.world.slow(3, 40)
    for me in (1, 2, 4):
        Saturation(lab.world, me, size=SIZE).start()
    lab.run(100 * MS)
    assert (lab.world.counters["overflowed"] > 0) == overflows


def test_a_burst_larger_than_the_window_is_spread_over_rotations() -> None:
    """§4.4: bursty traffic is throttled by the window, not lost: it goes out at the full rate of the ring."""
    lab = Lab(4, NARROW).form()
    since_us = lab.mark
    lab.send(2, 100, Service.AGREED)
    lab.run(50 * MS)
    assert [new for token, new, _ in visits(lab, since_us) if token.sender == 2 and new] == [5] * 20
    assert all(len(lab.delivered(me, since_us)) == 100 for me in lab.everyone)


def test_one_that_does_not_receive_stops_the_others_in_bounds() -> None:
    """§4.2, §4.4: failure to receive must not impose excessive buffering; seq - aru is bounded meanwhile."""
    # What two members send before the third lowers the aru counts too: a small each_time keeps that small.
    config = RingConfig(outstanding_packets_max=25, fail_to_receive_rounds=30, each_time_packets=10)
    lab = Lab(4, config).form()
    since_us = lab.mark
    lab.world.set_condition(Condition(loss=1.0, token_loss=0.0), target=3)
    for me in (1, 2, 4):
        Saturation(lab.world, me, size=100).start()
    lab.until_rings([1, 2, 4])
    ring_id = lab.tokens(since_us)[0].ring_id
    gaps = [token.seq - token.aru for token in lab.tokens(since_us) if token.ring_id == ring_id]
    assert 20 < max(gaps) <= 25
