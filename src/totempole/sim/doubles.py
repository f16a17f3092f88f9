"""What can be promised while two nodes use one processor number, and what must come true afterwards.

The number names nobody then. Two processors may be on one ring in its name, each with half of the packets,
and no protocol that goes by numbers can order what they say. So the rows of such a number, and its messages,
are left out of the trace that is judged. All else holds among the others: one order, the same configurations,
safe delivery. Where they speak of the number itself the checkers say that its trace is missing.

Once the faults have stopped, one of the two gives way (`identity`), and the other is on a ring with everyone.
"""

from __future__ import annotations

from collections.abc import Collection

from totempole.checkers.verdict import Findings, Verdict
from totempole.sim.world import World
from totempole.trace.schema import Row
from totempole.types import ProcessorId


def rows_of_others(world: World) -> list[Row]:
    """The trace without numbers that two nodes have used, and without their messages."""
    return _without(world.rows, world.doubles) if world.doubles else world.rows


def _without(rows: list[Row], numbers: Collection[ProcessorId]) -> list[Row]:
    senders = {str(number) for number in numbers}
    return [
        row
        for row in rows
        if row.node not in numbers and not (row.message and row.message.partition(".")[0] in senders)
    ]


def check_doubles(world: World, together: bool) -> Verdict:
    """That one of two has given way; and, if all can be, that everyone is on one ring."""
    found = Findings("one-node-a-number")
    for me, double in sorted(world.doubles.items()):
        if double.alive and world.hosts[me].alive:
            found.violated(f"Two nodes with the number {me} are still up.", nodes=[me])
    if together:
        _check_ring(world, found)
    return found.verdict()


def _check_ring(world: World, found: Findings) -> None:
    up = tuple(me for me, host in sorted(world.hosts.items()) if host.alive)
    for me in up:
        configuration = world.hosts[me].regular_configuration
        members = () if configuration is None else tuple(sorted(configuration.members))
        if members != up:
            found.violated(f"Node {me} is on a ring of {members}, and {up} are up.", nodes=[me])
