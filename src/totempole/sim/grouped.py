"""The ring with process groups on it, as one protocol object for a simulated host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from totempole.groups import GroupConfig, GroupLayer
from totempole.sim.contract import EndpointFactory
from totempole.sim.replay import default_endpoint
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId


@dataclass(frozen=True, slots=True)
class Grouped:
    """An EndpointFactory. `layer` is the true group layer or a broken one."""

    config: GroupConfig = field(default_factory=GroupConfig)
    ring: EndpointFactory = field(default_factory=default_endpoint)
    layer: type[GroupLayer] = GroupLayer

    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> GroupLayer:
        order = self.ring(me, config, stable, trace_kinds)
        return self.layer(
            order,
            me,
            order.incarnation,
            self.config,
            packet_bytes_max=config.packet_bytes_max,
            trace_kinds=trace_kinds,
        )
