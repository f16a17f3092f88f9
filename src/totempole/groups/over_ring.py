"""Groups directly on one ring, as 003 has it beside groups on many rings."""

from __future__ import annotations

from totempole.groups.config import GroupConfig
from totempole.groups.layer import GroupLayer
from totempole.srp import Endpoint
from totempole.srp.config import RingConfig


def over_ring(
    endpoint: Endpoint, ring: RingConfig, config: GroupConfig, trace_kinds: frozenset[str]
) -> GroupLayer:
    """What waits in the ring's own queue is what one visit of the token can take: the rest is packed later,
    when more has come to share its packets."""
    return GroupLayer(
        endpoint,
        endpoint.me,
        endpoint.incarnation,
        config,
        packet_bytes_max=ring.packet_bytes_max,
        packets_ahead=ring.packets_ahead,
        trace_kinds=trace_kinds,
    )
