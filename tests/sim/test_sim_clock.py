"""Virtual time is exact, ordered and repeatable; local clocks are monotone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from totempole.sim.clock import Scheduler
from totempole.sim.drift import LocalClock


def test_events_run_in_order_of_time_then_of_scheduling() -> None:
    scheduler, seen = Scheduler(), []
    for at_us, name in ((20, "c"), (10, "a"), (10, "b"), (30, "d")):
        scheduler.at(at_us, lambda name=name: seen.append((scheduler.now_us, name)))
    scheduler.run_until(25)
    assert seen == [(10, "a"), (10, "b"), (20, "c")]
    assert scheduler.now_us == 25
    assert len(scheduler) == 1


def test_a_cancelled_event_does_not_run() -> None:
    scheduler, seen = Scheduler(), []
    ticket = scheduler.at(10, seen.append, "cancelled")
    scheduler.at(10, seen.append, "kept")
    scheduler.cancel(ticket)
    scheduler.run_until(10)
    assert seen == ["kept"]
    assert len(scheduler) == 0


def test_an_event_in_the_past_runs_at_once_and_time_stands() -> None:
    scheduler, seen = Scheduler(), []
    scheduler.run_until(100)
    scheduler.at(50, lambda: seen.append(scheduler.now_us))
    scheduler.run_until(100)
    assert seen == [100]


@given(
    offset=st.integers(0, 10**9),
    drift=st.integers(-200_000, 200_000),
    early=st.integers(0, 10**12),
    gap=st.integers(0, 10**6),
)
def test_a_drifting_clock_is_monotone_and_timers_never_fire_early(
    offset: int, drift: int, early: int, gap: int
) -> None:
    clock = LocalClock(offset, drift)
    assert clock.local(early) <= clock.local(early + gap)
    deadline = clock.local(early) + gap
    instant = clock.to_global(deadline)
    assert clock.local(instant) >= deadline
    assert clock.local(instant - 1) < deadline


def test_a_clock_drifts() -> None:
    assert LocalClock(5, 100).local(1_000_000) == 1_000_105
    assert LocalClock(0, -100).local(1_000_000) == 999_900
