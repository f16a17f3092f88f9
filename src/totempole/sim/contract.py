"""The one contract (docs/architecture.md) as the simulator sees it: what it feeds, and what it may drive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from totempole.effects import Effect
from totempole.errors import TotemError
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId, Service


class SimulationError(TotemError):
    """A protocol object raised: the text names the run's seed, the processor, the time and the input."""


class SansIo(Protocol):
    """A protocol object: no I/O, inputs with the time, lists of effects out."""

    @property
    def incarnation(self) -> int: ...

    @property
    def token_first(self) -> bool: ...

    def start(self, now_us: int) -> list[Effect]: ...

    def receive(self, now_us: int, datagrams: Sequence[bytes]) -> list[Effect]: ...

    def expire(self, now_us: int, timer: Any) -> list[Effect]: ...

    def submit(self, now_us: int, payload: bytes, service: Service) -> list[Effect]: ...

    def persisted(self, now_us: int, ticket: int) -> list[Effect]: ...

    def leave(self, now_us: int) -> list[Effect]: ...


class EndpointFactory(Protocol):
    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> SansIo: ...
