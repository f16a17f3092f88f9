"""Timestamps that never run backwards, crashes included (Totem §5.1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from srp_bench import Bench, alone_in, message

from totempole.core.effects import Send, Write
from totempole.core.order import Deliver
from totempole.srp.config import RingConfig
from totempole.srp.packets import RegularMessage, RegularToken
from totempole.srp.states import State, Timer
from totempole.srp.timestamps import TimestampClock

SMALL = RingConfig(timestamp_interval=21, each_time_packets=10)


def test_timestamps_increase_by_one() -> None:
    clock = TimestampClock(0, 100)
    first = clock.next()
    assert [clock.next(), clock.next()] == [first + 1, first + 2]


def test_a_timestamp_follows_every_one_that_was_seen() -> None:
    clock = TimestampClock(0, 100)
    clock.witness(5_000)
    assert clock.next() == 5_001
    clock.witness(17)
    assert clock.next() == 5_002


def test_a_restart_begins_above_all_that_the_last_life_may_have_used() -> None:
    """Stable storage holds S; the last life stayed below S + timestamp_interval."""
    first = TimestampClock(0, 100)
    while not first.outruns_storage(1):
        first.next()
    assert TimestampClock(first.to_store, 100).next() > first.now


def test_storage_is_outrun_when_the_steps_would_reach_the_stored_bound() -> None:
    clock = TimestampClock(0, 100)
    assert not clock.outruns_storage(99)
    assert clock.outruns_storage(100)


def test_a_timestamp_from_far_ahead_counts_as_steps_taken() -> None:
    clock = TimestampClock(0, 100)
    clock.witness(clock.now + 98)
    assert not clock.outruns_storage(1)
    clock.witness(clock.now + 1)
    assert clock.outruns_storage(1)


def test_half_the_interval_is_used_before_the_next_write_begins() -> None:
    clock = TimestampClock(0, 100)
    clock.witness(clock.now + 39)
    assert not clock.runs_low(10)
    clock.next()
    assert clock.runs_low(10)
    clock.begin_write()
    assert clock.to_store == clock.now
    assert not clock.runs_low(10), "one write at a time"


def test_a_write_that_is_not_done_covers_nothing() -> None:
    clock = TimestampClock(0, 100)
    clock.witness(clock.now + 95)
    clock.begin_write()
    assert clock.outruns_storage(10)
    clock.written()
    assert not clock.outruns_storage(10)


@given(st.lists(st.sampled_from(["visit", "far ahead", "written", "crash"])), st.integers(21, 60))
def test_no_timestamp_is_used_twice_across_lives(events: list[str], interval: int) -> None:
    """Visits of ten steps, tokens from far ahead, writes that take their time, crashes at any moment."""
    clock, stored, last = TimestampClock(0, interval), interval, 0
    under_way: int | None = None
    for event in events:
        if event == "far ahead":
            clock.witness(clock.now + 300)
        elif event == "written" and under_way is not None:
            clock.written()
            stored, under_way = under_way, None
        elif event == "crash":
            clock = TimestampClock(stored, interval)
            stored, under_way = clock.to_store, None
        elif event == "visit":
            if clock.runs_low(10):
                clock.begin_write()
                under_way = clock.to_store
            if clock.outruns_storage(10):
                continue
            for _ in range(10):
                used = clock.next()
                assert used > last
                last = used


# In the machine: the write comes before what it protects


def visit_of(bench: Bench, timestamp: int) -> RegularToken:
    """A token for processor 1, from far ahead in time."""
    ring = bench[1].machine.installed
    return RegularToken(1, 1, ring.ring_id, ring.my_token_seq, 0, 0, timestamp=timestamp)


def test_a_token_waits_for_the_timestamp_to_be_stored() -> None:
    bench = alone_in(State.OPERATIONAL, SMALL)
    bench.expire(1, next(timer for timer in bench.timers[1] if timer.name == "HOLD"))
    bench.wire.clear()
    bench.forget()
    bench.disk_stands_still = True
    bench.submit(1, b"late")
    bench.hand(1, visit_of(bench, 10_000))
    assert bench.of_kind(1, Write)[-1].records["timestamp"] == 10_000
    sent = [transmit.packet for transmit in bench.of_kind(1, Send)]
    assert not [packet for packet in sent if isinstance(packet, RegularToken | RegularMessage)]
    bench.write_out(1)
    assert [deliver.timestamp for deliver in bench.of_kind(1, Deliver)] == [10_001]


def test_a_resting_token_waits_too_if_a_timestamp_came_that_storage_does_not_cover() -> None:
    """Totem §5.1. It came after the token was taken, and nothing has been written since."""
    bench = Bench([1, 2], SMALL)
    bench.form()
    for me in (1, 2):
        bench.submit(me, b"early")
        bench.pump()
    assert Timer.HOLD in bench.timers[2], "the token rests with the last to send"
    bench.disk_stands_still = True
    bench.hand(2, message(1, sender=1, ring_id=bench[2].machine.ring_id, timestamp=10_000))
    bench.forget()
    bench.submit(2, b"late")
    assert bench.of_kind(2, Write)[-1].records["timestamp"] == 10_000
    bench.expire(2, Timer.HOLD)
    assert not bench.of_kind(2, Send), "a timestamp that storage does not cover"
    bench.write_out(2)
    sent = [transmit.packet for transmit in bench.of_kind(2, Send)]
    assert [packet.timestamp for packet in sent if isinstance(packet, RegularMessage)] == [10_001]


def test_timestamps_grow_across_a_crash_however_many_were_used() -> None:
    bench = alone_in(State.OPERATIONAL, SMALL)
    for _ in range(3):
        for number in range(75):
            bench.submit(1, b"%d" % number)
        bench.pump()
        used = [deliver.timestamp for deliver in bench.of_kind(1, Deliver)]
        assert len(used) == 75
        assert used == sorted(set(used))
        bench.restart(1)
        bench.pump()
        bench.submit(1, b"after the crash")
        bench.pump()
        (after,) = [deliver.timestamp for deliver in bench.of_kind(1, Deliver)]
        assert after > used[-1]
        bench.forget()


def test_every_message_of_a_ring_has_a_later_timestamp_than_those_before_it() -> None:
    bench = Bench([1, 2, 3])
    bench.form()
    for number in range(30):
        for me in (1, 2, 3):
            bench.submit(me, b"%d" % number)
    bench.pump()
    for me in (1, 2, 3):
        timestamps = [deliver.timestamp for deliver in bench.of_kind(me, Deliver)]
        assert len(timestamps) == 90
        assert timestamps == sorted(set(timestamps))
