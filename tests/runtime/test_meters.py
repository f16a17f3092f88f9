"""Counting: histograms that add up, quantiles within what was measured, rates of what happened in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.runtime.meters import RATED, RECENT_ROTATIONS, ROTATION_BUCKETS_US, Lag, Meters, Rotations

rotations_us = st.lists(st.integers(1, 10_000_000), min_size=1, max_size=40)


def visited(times_us: list[int]) -> Rotations:
    rotations, now_us = Rotations(), 1_000
    rotations.visit(now_us)
    for time_us in times_us:
        now_us += time_us
        rotations.visit(now_us)
    return rotations


@given(rotations_us)
def test_the_histogram_adds_up(times_us: list[int]) -> None:
    found = visited(times_us).histogram()
    assert found["count"] == len(times_us) == sum(found["counts"])
    assert found["sum_us"] == sum(times_us)
    assert found["buckets_us"] == list(ROTATION_BUCKETS_US)
    assert len(found["counts"]) == len(ROTATION_BUCKETS_US) + 1
    for place, bucket_us in enumerate(ROTATION_BUCKETS_US):
        assert sum(found["counts"][: place + 1]) == sum(time_us <= bucket_us for time_us in times_us)


@given(rotations_us)
def test_the_quantiles_are_within_what_was_measured(times_us: list[int]) -> None:
    found = visited(times_us).summary()
    assert found["last"] == times_us[-1]
    assert found["max"] == max(times_us)
    assert min(times_us) <= found["p50"] <= found["p99"] <= found["max"]


def test_no_rotation_yet() -> None:
    assert Rotations().summary() == {"last": 0, "p50": 0, "p99": 0, "max": 0}
    assert visited([]).histogram()["count"] == 0


def test_the_time_without_a_ring_is_no_rotation() -> None:
    rotations = visited([100, 200])
    rotations.forget_visit()
    rotations.visit(10_000_000)
    assert rotations.histogram()["count"] == 2
    rotations.visit(10_000_300)
    assert rotations.last_us == 300


def test_only_recent_rotations_are_kept() -> None:
    rotations = visited([1_000_000] * 10 + [10] * RECENT_ROTATIONS)
    assert rotations.summary()["p99"] == 10
    assert rotations.summary()["max"] == 1_000_000
    assert rotations.histogram()["count"] == RECENT_ROTATIONS + 10


def test_lag_raises_an_alarm_from_its_bound_on() -> None:
    lag = Lag(50_000)
    assert [lag.note(late_us) for late_us in (0, 49_999, 50_000, 70_000, 5)] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert (lag.alarms, lag.last_us, lag.longest_us) == (2, 5, 70_000)


def test_rates_are_of_the_time_between_two_ticks() -> None:
    meters = Meters(50_000)
    meters.tick(1_000_000)
    assert meters.rates == dict.fromkeys(RATED, 0.0)
    meters.messages_delivered += 500
    meters.tokens += 10
    meters.tick(1_250_000)
    assert meters.rates["messages_delivered"] == pytest.approx(2_000)
    assert meters.rates["tokens"] == pytest.approx(40)
    meters.tick(2_250_000)
    assert meters.rates == dict.fromkeys(RATED, 0.0)


def test_a_tick_at_the_same_time_changes_no_rate() -> None:
    meters = Meters(50_000)
    meters.tick(1_000)
    meters.tokens += 1
    meters.tick(1_000)
    assert meters.rates["tokens"] == 0.0


def test_the_totals_are_all_there() -> None:
    meters = Meters(50_000)
    assert set(RATED) <= meters.totals().keys()
    meters.packets_sent = 3
    assert meters.totals()["packets_sent"] == 3
