"""Timeouts follow the ring's pace between bounds, and moving a timer costs no effect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from srp_bench import Bench

from totempole.core.effects import Effect, SetTimer, TimerName
from totempole.core.io import Io, Scope
from totempole.link import Link
from totempole.segment import Cutter, Reassembler
from totempole.sim.conditions import Condition
from totempole.sim.world import World
from totempole.srp import RingConfig
from totempole.srp.formats import ring_codec
from totempole.srp.output import Output
from totempole.srp.packets import RegularToken
from totempole.srp.states import Timer
from totempole.srp.timeouts import MARGIN, PERIOD_LOSSES, PERIOD_ROTATIONS, LazyTimer, Timeouts
from totempole.types import RingKind

MS = 1_000
CONFIG = RingConfig()


class Out(Output):
    """With a link below, and its effects at hand."""

    def __init__(self) -> None:
        self._io = Io(frozenset({"branch"}))
        codec = ring_codec(1, RingKind.CLASSIC)
        link = Link(self._io, 0, codec, Cutter(1_400, 1, 1), Reassembler(1_000_000, 1))
        super().__init__(Scope(self._io, "srp", 0, Timer), codec, link)

    def at(self, now_us: int) -> None:
        """The next input comes at this time."""
        self.now_us = self._io.now_us = now_us

    def take(self) -> list[Effect]:
        return self._io.take()


def set_to(at_us: int) -> SetTimer:
    return SetTimer(TimerName("srp", 0, Timer.TOKEN_LOSS), at_us)


class Ring:
    """A token that comes back when a test says so."""

    def __init__(self, config: RingConfig = CONFIG) -> None:
        self.timeouts = Timeouts(config, Out())
        self.now_us = 0

    def rotate(self, rotation_us: int, times: int = 1, rests_us: int = 0) -> None:
        for _ in range(times):
            self.timeouts.token_left(self.now_us)
            self.now_us += rotation_us
            self.timeouts.token_came(self.now_us)
            self.now_us += rests_us

    @property
    def stretch(self) -> float:
        return self.timeouts.token_loss_us / CONFIG.token_loss_us


def test_a_fast_ring_keeps_the_timeouts_as_they_are_set() -> None:
    ring = Ring()
    ring.rotate(MS, 1_000)
    timeouts = ring.timeouts
    assert timeouts.token_loss_us == CONFIG.token_loss_us
    assert timeouts.token_retransmission_us == CONFIG.token_retransmission_us
    assert timeouts.join_us == CONFIG.join_us
    assert timeouts.consensus_us == CONFIG.consensus_us


def test_one_slow_rotation_stretches_them_at_once_and_is_forgotten_in_two_periods() -> None:
    ring = Ring()
    ring.rotate(MS, 10)
    ring.rotate(16 * MS)
    assert ring.timeouts.token_loss_us == MARGIN * 16 * MS
    assert ring.timeouts.consensus_us == 2 * CONFIG.consensus_us
    period_us = PERIOD_LOSSES * CONFIG.token_loss_us
    ring.rotate(MS, period_us // MS - 60)
    assert ring.stretch == 2
    ring.rotate(MS, period_us // MS + PERIOD_ROTATIONS + 60)
    assert ring.stretch == 1


def test_a_slow_ring_is_remembered_however_slow_its_periods_are() -> None:
    """A period has a number of rotations at least, or one would be measured by a single one."""
    ring = Ring()
    for _ in range(5):
        ring.rotate(50 * MS, PERIOD_ROTATIONS - 1)
        ring.rotate(70 * MS)
        assert ring.timeouts.token_loss_us == MARGIN * 70 * MS


def test_a_retransmission_is_no_reason_to_retransmit_later() -> None:
    """Else one lost token would delay the help for the next one, and so on."""
    ring = Ring()
    ring.rotate(MS)
    for _ in range(20):
        ring.rotate(3 * ring.timeouts.token_retransmission_us)
    assert ring.timeouts.token_retransmission_us == CONFIG.token_retransmission_us
    assert ring.timeouts.token_loss_us == MARGIN * 3 * CONFIG.token_retransmission_us


def test_a_ring_that_is_always_slow_retransmits_later() -> None:
    ring = Ring()
    ring.rotate(60 * MS, 100)
    assert ring.timeouts.token_retransmission_us == 60 * MS


def test_they_stretch_no_further_than_the_setting_allows() -> None:
    for percent in (100, 250, 1_000):
        ring = Ring(RingConfig(timeout_stretch_max_percent=percent))
        ring.rotate(10_000 * MS, 3)
        assert ring.stretch == percent / 100


def test_time_that_the_token_rests_is_not_counted() -> None:
    ring = Ring()
    ring.rotate(MS, 50, rests_us=70 * MS)
    assert ring.stretch == 1
    ring.timeouts.token_left(ring.now_us, may_rest=True)
    ring.timeouts.token_came(ring.now_us + CONFIG.idle_hold_us + MS)
    assert ring.stretch == 1


def test_a_token_that_is_away_for_longer_than_it_may_rest_is_slow() -> None:
    ring = Ring()
    ring.timeouts.token_left(ring.now_us, may_rest=True)
    ring.timeouts.token_came(ring.now_us + CONFIG.idle_hold_us + 60 * MS)
    assert ring.timeouts.token_loss_us == MARGIN * 60 * MS


def test_an_idle_ring_forgets_that_it_was_slow() -> None:
    ring = Ring()
    ring.rotate(60 * MS)
    for _ in range(200):
        ring.timeouts.token_left(ring.now_us, may_rest=True)
        ring.now_us += CONFIG.idle_hold_us
        ring.timeouts.token_came(ring.now_us)
    assert ring.stretch == 1


def test_an_idle_ring_that_is_always_slow_stays_stretched() -> None:
    ring = Ring()
    for _ in range(200):
        ring.timeouts.token_left(ring.now_us, may_rest=True)
        ring.now_us += CONFIG.idle_hold_us + 60 * MS
        ring.timeouts.token_came(ring.now_us)
    assert ring.timeouts.token_loss_us == MARGIN * 60 * MS


def test_a_new_ring_begins_with_what_was_slow() -> None:
    ring = Ring()
    ring.rotate(60 * MS, 5)
    ring.timeouts.new_ring()
    ring.timeouts.token_came(ring.now_us + 1_000 * MS)
    assert ring.timeouts.token_loss_us == MARGIN * 60 * MS


@given(st.lists(st.integers(0, 3_000_000), max_size=200), st.integers(100, 2_000))
def test_the_order_of_the_timeouts_is_kept(rotations: list[int], percent: int) -> None:
    config = RingConfig(timeout_stretch_max_percent=percent)
    ring = Ring(config)
    for number, rotation_us in enumerate(rotations):
        ring.rotate(rotation_us)
        if number % 50 == 49:
            ring.timeouts.new_ring()
        timeouts = ring.timeouts
        assert config.idle_hold_us <= timeouts.token_retransmission_us <= timeouts.token_loss_us
        assert timeouts.join_us <= timeouts.consensus_us
        assert config.token_loss_us <= timeouts.token_loss_us <= config.token_loss_us * percent // 100


# In the machine


@pytest.mark.parametrize("kind", RingKind, ids=lambda kind: kind.name.lower())
def test_a_ring_that_grows_slow_holds_together(kind: RingKind) -> None:
    """A rotation longer than the token loss timeout breaks nothing, if it is reached in steps."""
    world = World(1, 4, RingConfig(ring_kind=kind, idle_rounds=10**6))
    world.start()
    world.run_for(500 * MS)
    installed = [len(host.configurations) for host in world.hosts.values()]
    for hop_us in (4_000, 10_000, 30_000):
        world.set_condition(Condition(delay_us=(hop_us, hop_us)))
        world.run_for(1_000 * MS)
    assert [len(host.configurations) for host in world.hosts.values()] == installed


def test_a_ring_whose_timeouts_are_set_by_hand_does_not() -> None:
    world = World(1, 4, RingConfig(timeout_stretch_max_percent=100, idle_rounds=10**6))
    world.start()
    world.run_for(500 * MS)
    installed = [len(host.configurations) for host in world.hosts.values()]
    world.set_condition(Condition(delay_us=(30_000, 30_000)))
    world.run_for(600 * MS)
    assert [len(host.configurations) for host in world.hosts.values()] > installed


# Lazy timers


def test_a_timer_that_moves_later_is_set_once() -> None:
    out = Out()
    timer = LazyTimer(Timer.TOKEN_LOSS, out)
    for now_us in range(0, 90, 10):
        out.at(now_us)
        timer.set(100)
    assert out.take() == [set_to(100)]


def test_a_timer_that_runs_out_early_is_set_again_for_the_rest() -> None:
    out = Out()
    timer = LazyTimer(Timer.TOKEN_LOSS, out)
    timer.set(100)
    out.at(60)
    timer.set(100)
    out.take()
    out.at(100)
    assert not timer.ran_out()
    assert out.take() == [set_to(160)]
    out.at(160)
    assert timer.ran_out()
    assert out.take() == []


def test_a_timer_that_moves_forward_is_set_at_once() -> None:
    out = Out()
    timer = LazyTimer(Timer.TOKEN_LOSS, out)
    timer.set(100)
    timer.set(30)
    assert out.take()[-1] == set_to(30)


def test_a_cancelled_timer_runs_out_in_silence_and_can_be_set_again() -> None:
    out = Out()
    timer = LazyTimer(Timer.TOKEN_LOSS, out)
    timer.set(100)
    timer.cancel()
    out.at(100)
    assert not timer.ran_out()
    timer.set(50)
    assert out.take() == [set_to(100), set_to(150)]


def test_a_busy_ring_sets_no_timer_at_a_token_visit() -> None:
    bench = Bench([1, 2, 3], RingConfig(each_time_packets=10))
    bench.form()
    bench.forget()
    for number in range(100):
        bench.submit(2, b"%d" % number)
    bench.pump(until=lambda: len(bench.delivered(1)) == 100)
    assert not bench.of_kind(1, SetTimer)
    assert len([t for t in bench.effects[1] if isinstance(getattr(t, "packet", None), RegularToken)]) >= 10
