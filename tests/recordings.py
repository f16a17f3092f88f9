"""Recordings of simulated nodes, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from totempole.groups import GroupConfig, GroupLayer
from totempole.groups.over_ring import over_ring
from totempole.jitter import jitter
from totempole.runtime.recording import InputRecorder, RecordingHeader, recording_header
from totempole.sim.replay import Recording
from totempole.sim.world import World
from totempole.srp import Endpoint
from totempole.srp.config import RingConfig
from totempole.trace.schema import LEVELS
from totempole.types import ProcessorId, RingKind, Service


def grouped_endpoint(
    me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str]
) -> GroupLayer:
    endpoint = Endpoint(me, config, stable, trace_kinds, draw=jitter(me, stable))
    return over_ring(endpoint, config, GroupConfig(), trace_kinds)


@cache
def life(level: str = "delivery") -> Recording:
    """What one of three processors was fed while they formed a ring, sent, and lost one of them."""
    config = RingConfig(ring_kind=RingKind.ACCELERATED, segment_bytes=600)
    world = World(3, 3, config, level=level, record_inputs=True, endpoint=grouped_endpoint)
    world.start()
    world.run_for(500_000)
    for number in range(60):
        world.submit(1 + number % 3, b"%d " % number * 200, Service.SAFE if number % 2 else Service.AGREED)
        world.run_for(2_000)
    world.crash(3)
    world.run_for(1_000_000)
    world.leave(1)
    world.run_for(1_000_000)
    found = world.hosts[1].recordings[0]
    assert {method for method, _, _ in found.inputs} >= {"start", "receive", "expire", "submit", "leave"}
    assert found.trace_kinds == LEVELS[level]
    return found


def header_of(found: Recording) -> RecordingHeader:
    return recording_header(found.me, found.config, found.stable, found.trace_kinds)


def write(path: Path, found: Recording, stop: int | None = None) -> Path:
    with InputRecorder(path, header_of(found)) as recorder:
        for (method, now_us, arguments), effects in zip(
            found.inputs[:stop], found.effects[:stop], strict=True
        ):
            recorder.record(method, now_us, arguments, effects)
    return path
