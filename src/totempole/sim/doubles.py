"""What can be promised while two nodes use one processor number, and what must come true afterwards.

The number names nobody then. Two processors may be on one ring in its name, each with half of the packets,
and no protocol that goes by numbers can order what they say. So the rows of such a number, and its messages,
are left out of the trace that is judged. All else holds among the others: one order, the same configurations,
safe delivery. Where they speak of the number itself the checkers say that its trace is missing.

The same goes for process groups. Both nodes have programs, perhaps under the same names, and the others may
differ in which of these they take for members. So names of the number's processes are struck from all views,
and a view that tells of nothing else is left out. What is left must hold: the others agree on who of them is
in a group, and deliver what they send each other in one order, virtually synchronous and safe. What such a
process gives a joiner as the group's state is not judged, but that a joiner gets a state is.

Once the faults have stopped, one of the two gives way (`identity`), and the other is on a ring with everyone.
Its programs are then as good as any: everyone has them in the table of groups, and none of the loser's
(`programs_check`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from totempole.checkers.verdict import Findings, Verdict
from totempole.sim.script import Action, OnProcessor, Scenario, When
from totempole.sim.world import World
from totempole.trace.schema import Row
from totempole.types import ProcessorId


def doubled_numbers(scenario: Scenario) -> frozenset[ProcessorId]:
    """The numbers that two nodes will use."""
    actions = (_final(step.action) for step in scenario.steps)
    return frozenset(
        action.processor for action in actions if isinstance(action, OnProcessor) and action.verb == "double"
    )


def _final(action: Action) -> Action:
    """What is done in the end, however many ambushes lead to it."""
    while isinstance(action, When):
        action = action.action
    return action


def rows_of_others(world: World) -> list[Row]:
    """The trace without numbers that two nodes have used, without their messages and their processes."""
    if not world.doubles:
        return world.rows
    return list(_without_views(_without(world.rows, world.doubles), world.doubles))


def _without(rows: Iterable[Row], numbers: Collection[ProcessorId]) -> Iterator[Row]:
    senders = {str(number) for number in numbers}
    for row in rows:
        if row.node not in numbers and not (row.message and row.message.partition(".")[0] in senders):
            yield row


def _without_views(rows: Iterable[Row], numbers: Collection[ProcessorId]) -> Iterator[Row]:
    """Views with fewer names, and without those that then tell nothing to the process that gets them."""
    latest: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}
    for row in rows:
        if row.kind != "group_view":
            yield row
            continue
        left, along = _struck(row.groups.processes, numbers), _struck(row.groups.together, numbers)
        before, kind = latest.get((row.process, row.group), ((), ""))
        # After a transitional view a regular one is news, whoever is in it.
        settles = (kind, row.configuration_kind) == ("transitional", "regular")
        if (left, left) != (along, before) or settles:
            latest[row.process, row.group] = (left, row.configuration_kind)
            yield row._replace(groups=row.groups._replace(processes=left, together=along))


def _struck(names: tuple[str, ...], numbers: Collection[ProcessorId]) -> tuple[str, ...]:
    """Of others only."""
    return tuple(name for name in names if int(name.partition(".")[0]) not in numbers)


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
