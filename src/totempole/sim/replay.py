"""What one life of a processor was fed, and feeding it again: the same inputs give the same effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from totempole.core.effects import Effect
from totempole.core.inputs import Input
from totempole.sim.contract import StackFactory
from totempole.sim.stacks import RealStack
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId


@dataclass(slots=True)
class Recording:
    """One life, from start to crash."""

    me: ProcessorId
    config: RingConfig
    stable: Mapping[str, int]
    trace_kinds: frozenset[str]
    inputs: list[tuple[int, Input]] = field(default_factory=list)
    """With the processor's own time of each."""
    effects: list[list[Effect]] = field(default_factory=list)


def replay(recording: Recording, stack: StackFactory | None = None) -> list[list[Effect]]:
    """Feeds a fresh protocol object; one list of effects for each input."""
    protocol = (stack or RealStack())(recording.me, recording.config, recording.stable, recording.trace_kinds)
    return [protocol.feed(now_us, given) for now_us, given in recording.inputs]
