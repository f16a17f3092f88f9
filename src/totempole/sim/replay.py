"""What one life of a processor was fed, and feeding it again: the same inputs give the same effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from totempole.effects import Effect
from totempole.sim.contract import EndpointFactory
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId

Input = tuple[str, int, tuple[Any, ...]]
"""The method, the processor's own time, and the arguments after it."""


@dataclass(slots=True)
class Recording:
    """One life, from start to crash."""

    me: ProcessorId
    config: RingConfig
    stable: Mapping[str, int]
    trace_kinds: frozenset[str]
    inputs: list[Input] = field(default_factory=list)
    effects: list[list[Effect]] = field(default_factory=list)


def replay(
    inputs: Iterable[Input],
    me: ProcessorId,
    config: RingConfig,
    stable: Mapping[str, int],
    trace_kinds: frozenset[str],
    endpoint: EndpointFactory | None = None,
) -> list[list[Effect]]:
    """Feed a fresh protocol object; one list of effects for each input."""
    protocol = (endpoint or default_endpoint())(me, config, stable, trace_kinds)
    return [getattr(protocol, method)(now_us, *arguments) for method, now_us, arguments in inputs]


def default_endpoint() -> EndpointFactory:
    """The single-ring protocol."""
    from totempole.srp.endpoint import Endpoint

    return Endpoint
