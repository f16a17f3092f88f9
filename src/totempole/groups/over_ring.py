"""Groups directly on one ring, as 003 has it beside groups on many rings."""

from __future__ import annotations

from totempole.groups.config import GroupConfig
from totempole.groups.layer import GroupLayer
from totempole.srp import Endpoint
from totempole.srp.config import RingConfig


def over_ring(
    endpoint: Endpoint, ring: RingConfig, config: GroupConfig, trace_kinds: frozenset[str]
) -> GroupLayer:
    return GroupLayer(
        endpoint,
        endpoint.me,
        endpoint.incarnation,
        config,
        packet_bytes_max=ring.packet_bytes_max,
        trace_kinds=trace_kinds,
    )
