"""What must have come true once the faults have stopped, by what is still broken then.

Usually nothing is: all who are up come together (Totem theorems 4.3, 4.7, 4.8). Two things can last:

- Rings are full: more processors are up than `members_max` allows. Every one is in a ring with all of those
  who it says are its members, and no two rings would fit into one.
- Links stay severed one way. The seeds' network has no such links, and no ring of all need exist. Processors
  whose own links are whole must still be in rings nearly all the time, see few changes of configuration, and
  deliver what those with whom they share their rings send. No two rings could be one: there is a severed link
  between them. (Which processor is left out is chance. Totem §4.2: an outsider may not break up a ring, so
  two rings may each hold to its own end of the link.) Such a run never comes to rest: its trace is read as
  incomplete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from totempole.checkers import Liveness
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings, Verdict
from totempole.sim.world import World
from totempole.trace.schema import Row
from totempole.types import ProcessorId

CONFIGURATIONS_MAX = 4
CONFIGURATIONS_PER_WAIT = 3
"""Regular configurations that a processor with whole links may install: so many, and so many in each
`readmission_us`. It is one in each where attempts are short beside the wait (srp/outsiders.py)."""
STEADY_PERCENT = 80
"""Of the time after settling, in the ring that a processor is in most."""
DELIVERY_US = 800_000
"""How long a message may take to be delivered by all of them."""


def terms_after(world: World, at_us: int, within_us: int) -> Terms:
    """How the checkers are to read the trace of a run whose last fault was at `at_us`."""
    if broken_links(world):
        return Terms()
    return Terms(complete=True, expectation=Liveness(at_us, _groups(world), within_us))


def check_lasting(world: World, at_us: int, within_us: int) -> tuple[Verdict, ...]:
    """Verdicts about what lasts, where something does."""
    if broken_links(world):
        return (_steady(world, at_us + within_us),)
    return (_full(world),) if _crowded(world) else ()


def all_together(world: World) -> bool:
    """Whether all who are up can be, and so must be, in one ring."""
    return not broken_links(world) and not _crowded(world)


def broken_links(world: World) -> list[tuple[ProcessorId, ProcessorId]]:
    """Severed links between two processors that are up."""
    return [link for link in sorted(world.medium.severed) if all(world.hosts[end].alive for end in link)]


def _up(world: World) -> tuple[ProcessorId, ...]:
    return tuple(me for me, host in sorted(world.hosts.items()) if host.alive)


# Full rings


def _members_max(world: World) -> int:
    return min(host.config.members_max for host in world.hosts.values())


def _crowded(world: World) -> bool:
    return len(_up(world)) > _members_max(world)


def _groups(world: World) -> tuple[tuple[ProcessorId, ...], ...]:
    if not _crowded(world):
        return (_up(world),)
    found = {
        tuple(sorted(configuration.members))
        for me in _up(world)
        if (configuration := world.hosts[me].regular_configuration) is not None
    }
    return tuple(sorted(found))


def _full(world: World) -> Verdict:
    found = Findings("full-ring")
    groups = _groups(world)
    placed = sorted(me for group in groups for me in group)
    if placed != list(_up(world)):
        found.violated(f"The rings {groups} do not have each of {_up(world)} once.", nodes=_up(world))
    smallest = sorted(map(len, groups))[:2]
    if sum(smallest) <= _members_max(world):
        found.violated(
            f"Two of the rings {groups} would fit into one of {_members_max(world)} members.",
            nodes=_up(world),
        )
    return found.verdict()


# Severed links


def _steady(world: World, since_us: int) -> Verdict:
    found = Findings("severed-links")
    ends = {end for link in broken_links(world) for end in link}
    whole = [me for me in _up(world) if me not in ends]
    rings = {me: _regular_rows(world, me) for me in whole}
    readmission_us = min(host.config.readmission_us for host in world.hosts.values())
    for me in whole:
        _check_changes(rings[me], since_us, world.now_us, readmission_us, found)
        _check_steadiness(rings[me], since_us, world.now_us, found)
    _check_rings_apart(world, found)
    _check_deliveries(world, rings, since_us, found)
    return found.verdict()


def _regular_rows(world: World, me: ProcessorId) -> list[Row]:
    return [
        row
        for row in world.rows
        if row.node == me and row.kind == "configuration" and row.configuration_kind == "regular"
    ]


def _check_changes(
    changes: Sequence[Row], since_us: int, end_us: int, readmission_us: int, found: Findings
) -> None:
    seen = [row for row in changes if row.at_us > since_us]
    allowed = CONFIGURATIONS_MAX + CONFIGURATIONS_PER_WAIT * ((end_us - since_us) // readmission_us)
    if len(seen) > allowed:
        found.violated(
            f"Node {seen[0].node}, whose links are whole, installed {len(seen)} regular configurations in "
            f"{(end_us - since_us) / 1e6:g} s; {allowed} are allowed.",
            seen[0],
            seen[-1],
        )


def _check_steadiness(changes: Sequence[Row], since_us: int, end_us: int, found: Findings) -> None:
    """Each membership that it had, and for how long."""
    ends = [*(row.at_us for row in changes[1:]), end_us]
    lasted_us: Counter[tuple[ProcessorId, ...]] = Counter()
    for row, until_us in zip(changes, ends, strict=False):
        lasted_us[row.members] += max(0, until_us - max(row.at_us, since_us))
    most_us = max(lasted_us.values(), default=0)
    if most_us * 100 < STEADY_PERCENT * (end_us - since_us):
        found.violated(
            f"A node whose links are whole was with the same members for {most_us / 1e6:g} of "
            f"{(end_us - since_us) / 1e6:g} s at most.",
            *changes[-1:],
        )


def _check_rings_apart(world: World, found: Findings) -> None:
    rings = {
        tuple(sorted(configuration.members))
        for me in _up(world)
        if (configuration := world.hosts[me].regular_configuration) is not None
    }
    broken = broken_links(world)
    for one, other in combinations(sorted(rings), 2):
        both = {*one, *other}
        disjoint = len(both) == len(one) + len(other)
        if disjoint and not any(source in both and target in both for source, target in broken):
            found.violated(f"The rings {one} and {other} could be one, and are not.", nodes=sorted(both))


def _check_deliveries(
    world: World, rings: dict[ProcessorId, list[Row]], since_us: int, found: Findings
) -> None:
    """What one whose links are whole sends, all such with whom it has been all the time deliver."""
    with_all_along = {me: _with_all_along(rows, since_us) for me, rows in rings.items()}
    delivered: dict[str, set[ProcessorId]] = {}
    sent: list[Row] = []
    for row in world.rows:
        if row.kind == "deliver" and row.node in rings:
            delivered.setdefault(row.message, set()).add(row.node)
        elif row.kind == "submit" and row.node in rings and row.message:
            sent.append(row)
    for row in sent:
        due = {me for me in with_all_along[row.node] if row.node in with_all_along.get(me, ())}
        missing = sorted(due - delivered.get(row.message, set()))
        if missing and since_us < row.at_us < world.now_us - DELIVERY_US:
            found.violated(f"Nodes {missing} never delivered {row.message}.", row, nodes=missing)


def _with_all_along(changes: Sequence[Row], since_us: int) -> set[ProcessorId]:
    """The members of all configurations that were in force after that instant."""
    before = [row for row in changes if row.at_us <= since_us][-1:]
    after = [row for row in changes if row.at_us > since_us]
    return set.intersection(*(set(row.members) for row in before + after))
