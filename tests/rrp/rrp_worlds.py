"""Whole runs of rings on several networks, and what tests look at in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from totempole.core.inputs import Command
from totempole.networks.events import NetworkState
from totempole.rrp.config import RedundancyConfig
from totempole.sim.conditions import Condition, Lan
from totempole.sim.load import Arrivals, Saturation
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, ProcessorStack
from totempole.trace.schema import Row
from totempole.types import ProcessorId, RingKind

NAMES = ("a", "b", "c", "d")
QUIET = Condition(delay_us=(150, 250))
S = 1_000_000


def redundant_world(
    style: str = "passive",
    networks: int = 2,
    processors: int | Sequence[ProcessorId] = 4,
    *,
    seed: int = 1,
    copies: int = 0,
    tokens: str = "all",
    kind: RingKind = RingKind.CLASSIC,
    lans: Sequence[Lan] = (),
    specs: Sequence[NetworkSpec] = (),
    condition: Condition = QUIET,
    probation_us: int = 300_000,
    hello_us: int = 100_000,
    level: str = "protocol",
    config: RingConfig | None = None,
) -> World:
    """With hellos and probations that are short beside those of a node, so that runs are short."""
    redundancy = RedundancyConfig(
        style=style,
        copies=copies or (2 if style == "active-passive" else 0),
        tokens=tokens,
        hello_us=hello_us,
        probation_us=probation_us,
    )
    specs = tuple(specs) or tuple(NetworkSpec(name=NAMES[number]) for number in range(networks))
    return World(
        seed,
        processors,
        config or RingConfig(ring_kind=kind),
        stack=RealStack(networks=tuple(specs), redundancy=redundancy),
        lans=tuple(lans) or (Lan(),) * networks,
        condition=condition,
        level=level,
    )


def begun(world: World, rate: float = 10.0, size: int = 500) -> World:
    """All are on one ring, and send."""
    world.start()
    world.run_until(S // 2)
    for me in world.hosts:
        Arrivals(world, me, rate, size=size, safe=0.3).start()
    world.run_for(S // 4)
    assert members_of(world) == [tuple(sorted(world.hosts))] * len(world.hosts)
    return world


def saturate(world: World, size: int = 1_400) -> None:
    for me in world.hosts:
        Saturation(world, me, size=size).start()


def members_of(world: World) -> list[tuple[ProcessorId, ...]]:
    found = []
    for host in world.hosts.values():
        configuration = host.regular_configuration
        found.append(tuple(sorted(configuration.members)) if configuration else ())
    return found


def installed(world: World) -> int:
    """Configurations of all processors together."""
    return sum(len(host.configurations) for host in world.hosts.values())


def stack_of(world: World, me: ProcessorId) -> ProcessorStack:
    return cast(ProcessorStack, world.hosts[me].stack)


def states(world: World, me: ProcessorId = 1) -> list[NetworkState]:
    return list(stack_of(world, me).networks[0].service.states)


def why(world: World, network: int, me: ProcessorId = 1) -> str:
    return stack_of(world, me).networks[0].service.why[network]


def changes(world: World, me: ProcessorId = 1) -> list[tuple[int, str, str, str]]:
    """Network from 0, old and new state, and why."""
    return [
        (row.network - 1, row.old_state, row.new_state, row.reason)
        for row in world.rows
        if row.kind == "network" and row.node == me
    ]


def rows_of(world: World, kind: str, since_us: int = 0) -> list[Row]:
    return [row for row in world.rows if row.kind == kind and row.at_us >= since_us]


def ask(world: World, me: ProcessorId, command: Command) -> None:
    assert world.hosts[me].ask(command)


def mute(world: World, me: ProcessorId, network: int, to: Iterable[ProcessorId] | None = None) -> None:
    for other in to or world.hosts:
        if other != me:
            world.cut(me, other, network)


def deaf(world: World, me: ProcessorId, network: int) -> None:
    for other in world.hosts:
        if other != me:
            world.cut(other, me, network)


def dead(world: World, network: int) -> None:
    world.partition([[me] for me in world.hosts], network)


def sent_by(world: World) -> list[tuple[int, Any]]:
    """From now on: the network and the transmission of each datagram burst that leaves a host."""
    found: list[tuple[int, Any]] = []
    true_send = world.medium.send
    medium: Any = world.medium

    class Tapped:
        """The medium, but for what it tells."""

        def __getattr__(self, name: str) -> Any:
            return getattr(medium, name)

        def send(self, source: int, transmit: Any, depart_us: int, network: int = 0) -> None:
            found.append((network, transmit))
            true_send(source, transmit, depart_us, network)

    for host in world.hosts.values():
        cast(Any, host)._medium = Tapped()
    return found
