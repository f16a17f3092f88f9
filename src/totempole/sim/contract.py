"""The one contract (docs/architecture.md) as the simulator sees it: what it feeds, and what it may drive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from totempole.errors import TotemError
from totempole.order import Order
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId


class SimulationError(TotemError):
    """A protocol object raised: the text names the run's seed, the processor, the time and the input."""


class SansIo(Order, Protocol):
    """A protocol object: no I/O, inputs with the time, lists of effects out."""

    @property
    def incarnation(self) -> int: ...


@runtime_checkable
class RemembersLives(Protocol):
    """The ring's endpoint, true or broken."""

    def life_of(self, processor: ProcessorId) -> int: ...


class EndpointFactory(Protocol):
    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> SansIo: ...
