"""What RRP §8 measured: throughput on one network, and on two with active and passive replication.

Messages are packed as our nodes pack them: into packets of several frames, without regard to where a frame
ends. RRP packs whole messages into a packet of one frame of 1424 bytes, and messages longer than that into as
many as they take. So its curves have peaks at 700 and 1400 bytes, where frames are full, and lows at 1000 and
2000, where a third of every frame or of every second one is empty. Ours have neither.
"""

from __future__ import annotations

from dataclasses import replace

from totempole.errors import TotemError
from totempole.rrp import RedundancyConfig
from totempole.sim.paper.machines import FRAME_BYTES, MS, Machine, S
from totempole.sim.paper.redundant import NONE
from totempole.sim.paper.ring import PaperRing
from totempole.sim.stacks import RealStack
from totempole.srp import RingConfig
from totempole.stack import NetworkSpec

PACKET_BYTES = 20_000
LENGTH_BYTES = 4
"""Before each message in a packet."""
WARM_UP_US = 300 * MS


def throughput(machine: Machine, seed: int, *, size: int, style: str, duration_us: int = S) -> float:
    """Messages ordered per second when all send all that they can (RRP figures 6 to 9)."""
    count = max(1, PACKET_BYTES // (size + LENGTH_BYTES))
    costs = replace(machine.costs, delivered_ns=count * machine.costs.delivered_ns)
    config = RingConfig(segment_bytes=FRAME_BYTES, idle_rounds=10**9)
    names = ("one",) if style == NONE else ("one", "two")
    stack = RealStack()
    if style != NONE:
        networks = tuple(NetworkSpec(name=name) for name in names)
        stack = RealStack(networks=networks, redundancy=RedundancyConfig(style=style))
    ring = PaperRing(replace(machine, costs=costs), seed, config, networks=len(names), stack=stack)
    ring.saturate(count * (size + LENGTH_BYTES))
    world = ring.world
    world.run_for(WARM_UP_US)
    before = world.hosts[1].delivered
    world.run_for(duration_us)
    if world.counters["overflowed"]:
        raise TotemError(f"{machine.name}, {style}, {size} bytes: receive buffers overflowed")
    return (world.hosts[1].delivered - before) * count * S / duration_us
