"""The analytical model of Totem §4.4 against values worked out by hand."""

from __future__ import annotations

from math import inf

import pytest

from totempole.sim.paper.machines import SUN_4_IPC
from totempole.spark.paper.model import RingModel

MODEL = RingModel(processors=5, token_us=1_000, message_us=1_250, useful_us=800, window=70)
"""Nb is 5 ms; a message takes 1.25 ms, of which 0.8 are useful."""


def test_the_rotation_time() -> None:
    """T = Nb / (1 - r * rho): with 400 messages/s half the time is spent on messages, and T is doubled."""
    assert MODEL.rotation_us(0) == 5_000
    assert MODEL.rotation_us(400) == 10_000
    assert MODEL.rotation_us(720) == pytest.approx(50_000)
    assert MODEL.rotation_us(800) == inf


def test_the_latencies() -> None:
    """Half a rotation to agreed delivery, two to safe delivery."""
    assert (MODEL.agreed_us(400), MODEL.safe_us(400)) == (5_000, 20_000)


def test_the_limits() -> None:
    """The longest rotation is Nb + Mra = 5 + 87.5 ms, in which 70 messages are sent."""
    assert MODEL.rotation_max_us == 92_500
    assert MODEL.throughput_per_s == pytest.approx(756.757, abs=0.001)
    assert MODEL.utilisation == pytest.approx(0.605, abs=0.001)


def test_the_rotation_is_the_sum_of_its_visits() -> None:
    """T = Nb + Nmra, where Nm messages arrive in a rotation."""
    rotation_us = MODEL.rotation_us(600)
    messages = 600 * rotation_us / 1_000_000
    assert rotation_us == pytest.approx(MODEL.idle_rotation_us + messages * MODEL.message_us)


def test_a_machine_gives_the_models_times() -> None:
    """Receiving 1000 bytes and 106 of headers, and handing the 1000 over, is what lasts longest."""
    model = RingModel.of(SUN_4_IPC, 1_000)
    assert model.message_us == pytest.approx(50 + 257 + 0.093 * 1_106 + 2 * 257 + 2 * 0.093 * 1_000)
    assert model.token_us == pytest.approx(50 + 2 * 257 + 2 * 0.093 * 110 + (110 + 66) * 0.8 + 10)
    assert model.useful_us == 800
    assert (model.processors, model.window) == (5, 70)
    assert RingModel.of(SUN_4_IPC, 1_000, processors=9).processors == 9
