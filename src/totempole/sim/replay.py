"""What one life of a processor was fed, and feeding it again: the same inputs give the same effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from totempole.effects import Effect
from totempole.jitter import jitter
from totempole.sim.contract import EndpointFactory, SansIo
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId
from totempole.wire.seal import Keyring

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

    return jittered(Endpoint)


def jittered(endpoint: Callable[..., SansIo]) -> EndpointFactory:
    """With the random numbers that a node of that number, in that life, would have."""

    def make(
        me: ProcessorId,
        config: RingConfig,
        stable: Mapping[str, int],
        trace_kinds: frozenset[str],
        keyring: Keyring | None = None,
        /,
    ) -> SansIo:
        return endpoint(me, config, stable, trace_kinds, keyring, jitter(me, stable))

    return make
