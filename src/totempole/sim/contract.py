"""The one contract (docs/architecture.md) as the simulator sees it: what it feeds, and what it may drive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from totempole.core.effects import Effect
from totempole.core.inputs import Input
from totempole.errors import TotemError
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId


class SimulationError(TotemError):
    """A protocol object raised: the text names the run's seed, the processor, the time and the input."""


class SansIo(Protocol):
    """A protocol object: no I/O, inputs with the time, lists of effects out."""

    @property
    def incarnation(self) -> int: ...

    def token_first(self, network: int = 0) -> bool: ...

    def feed(self, now_us: int, given: Input) -> list[Effect]: ...


class StackFactory(Protocol):
    """Makes what a simulated processor runs, for each of its lives."""

    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> SansIo: ...
