"""The settings refuse what they cannot mean, and say which, why and what to do."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from totempole.errors import ConfigurationError
from totempole.srp import RingConfig
from totempole.stack import StackSpec, build
from totempole.types import PROCESSOR_MAX, RingKind

NUMBERS = [item for item in fields(RingConfig) if "least" in item.metadata]
NAMES = [item.name for item in NUMBERS]


def refused(**settings: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        RingConfig(**settings)
    return str(caught.value)


def test_the_defaults_are_accepted_and_each_has_a_meaning() -> None:
    RingConfig()
    assert [item.name for item in fields(RingConfig) if not item.metadata.get("meaning")] == []


def test_every_setting_but_the_kind_is_a_number_with_a_least_value() -> None:
    assert {item.name for item in fields(RingConfig)} - set(NAMES) == {"ring_kind"}


@pytest.mark.parametrize("item", NUMBERS, ids=NAMES)
def test_a_number_below_the_least_is_refused_by_name_and_value(item: Any) -> None:
    least = item.metadata["least"]
    text = refused(**{item.name: least - 1})
    assert text.startswith(f"{item.name} = {least - 1}:")
    assert f"{least}" in text.split(":", 1)[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [1.5, "10", None, True], ids=repr)
def test_what_is_not_a_whole_number_is_refused_by_name_and_value(name: str, value: object) -> None:
    text = refused(**{name: value})
    assert text.startswith(f"{name} = {value!r}:")
    assert "whole number" in text


@pytest.mark.parametrize(
    "item", [item for item in NUMBERS if "most" in item.metadata], ids=lambda item: item.name
)
def test_a_number_above_the_greatest_is_refused_by_name_and_value(item: Any) -> None:
    most = item.metadata["most"]
    text = refused(**{item.name: most + 1})
    assert text.startswith(f"{item.name} = {most + 1}:")
    assert f"{most}" in text


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("idle_hold_us", "token_retransmission_us"),
        ("token_retransmission_us", "token_loss_us"),
        ("join_us", "consensus_us"),
        ("packet_bytes_max", "each_time_bytes"),
        ("each_time_bytes", "window_bytes"),
        ("each_time_packets", "window_packets"),
        ("send_queue_ready", "send_queue_max"),
    ],
)
def test_two_settings_out_of_order_are_refused_with_both_names_and_the_way_out(low: str, high: str) -> None:
    text = refused(**{high: getattr(RingConfig(), low) - 1})
    assert text.startswith(f"{low} = ")
    assert f"{high} = " in text
    assert "lower" in text or "raise" in text


def test_a_timestamp_interval_that_two_visits_use_up_is_refused() -> None:
    RingConfig(each_time_packets=10, timestamp_interval=21)
    text = refused(each_time_packets=10, timestamp_interval=20)
    assert text.startswith("timestamp_interval = 20")
    assert "each_time_packets = 10: raise timestamp_interval" in text


@pytest.mark.parametrize(
    "settings",
    [
        {"packet_bytes_max": 500_001, "each_time_bytes": 600_000},
        {"requests_max": 1_025},
        {"members_max": 1_025, "window_packets": 2_000},
        {"cluster_id": 2**64},
        {"reassembly_bytes_max": 1_000},
        {"segment_bytes": 70_000},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_no_packet_could_carry_is_refused_at_once(settings: dict[str, int]) -> None:
    """A limit of the wire that a setting exceeds would otherwise raise in the middle of a token visit, or
    make packets that no one can ever put together."""
    name, value = next(iter(settings.items()))
    text = refused(**settings)
    assert f"{name} = {value}" in text


def test_the_kind_of_ring_must_be_one() -> None:
    text = refused(ring_kind="classic")
    assert "ring_kind" in text


@pytest.mark.parametrize("kind", RingKind)
def test_both_kinds_of_ring_are_accepted(kind: RingKind) -> None:
    assert RingConfig(ring_kind=kind).ring_kind is kind


@pytest.mark.parametrize("me", [0, -1, PROCESSOR_MAX + 1])
def test_a_processor_identifier_out_of_range_is_refused(me: int) -> None:
    with pytest.raises(ConfigurationError, match=f"processor = {me}: give a whole number from 1 to"):
        build(StackSpec(me), {})
