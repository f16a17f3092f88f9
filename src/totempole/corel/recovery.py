"""What the members of a view make of their states: a pure function, so that all of them decide the same
(COReL §5.5.2, steps 2 to 4).

Deviations from COReL, each with its reason:
- The longest yellow zone of the representatives wins, not what all of them have (step 3). With quorum
  acknowledgements a run may be green that only a quorum has; the longest zone has every such run. With the
  acknowledgements of all it is right too: what one representative has as yellow was delivered in the primary
  component in this order, or nothing was behind it.
- A member that lacks more than the representative has at hand looks on until it has fetched it. It does not
  hold up the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from totempole.corel.frames import Shown
from totempole.corel.messages import State
from totempole.corel.quorum import Formation, ReplicaSet
from totempole.corel.run import Run, RunId
from totempole.corel.zones import OPENINGS_MAX


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows from the states of one round, for the members of one log."""

    log: int
    """0: it has no name yet."""
    members: tuple[int, ...]
    """Those who take part. The others of this log look on."""
    onlookers: tuple[int, ...]
    representative: int
    base: int
    """All members have at least so many green runs."""
    green: int
    """One of them has so many."""
    length: int
    """So many green and yellow runs has the representative."""
    committed: Formation
    attempted: int
    attempts: tuple[Formation, ...]
    disks: dict[int, int]
    """Of members whose disks have forgotten nothing."""
    founding: ReplicaSet | None
    """The log can be founded with this set."""
    had_by_all: dict[tuple[int, int], int]
    """By origin and life: up to this number every member has the runs."""

    def is_had_by_all(self, run: RunId) -> bool:
        return run.number <= self.had_by_all.get((run.origin, run.life), 0)


def plan_for(me: int, states: Mapping[int, State]) -> Plan:
    """`states`: of all members of the view, by processor."""
    log = log_of(me, states)
    mine = {who: state for who, state in sorted(states.items()) if log_of(who, states) == log}
    representative = max(mine, key=lambda who: _fitness(mine[who], who))
    chosen = mine[representative]
    members = {who: state for who, state in mine.items() if state.green_runs >= chosen.recent_from}
    committed = chosen.committed
    attempts = {(each.number, each.members): each for state in members.values() for each in state.attempts}
    return Plan(
        log=log,
        members=tuple(members),
        onlookers=tuple(who for who in mine if who not in members),
        representative=representative,
        base=min(state.green_runs for state in members.values()),
        green=max(state.green_runs for state in members.values()),
        length=chosen.length,
        committed=committed,
        attempted=max(state.attempted for state in mine.values()),
        attempts=tuple(attempts[which] for which in sorted(attempts) if which[0] > committed.number),
        disks={who: state.disk for who, state in members.items() if not is_rolled_back(who, states)},
        founding=None if committed.number else _founding(members),
        had_by_all=_had_by_all(members),
    )


def _fitness(state: State, who: int) -> tuple[int, int, int, int]:
    """Of equals, the one that has the most at hand for those who are behind."""
    return state.committed.number, state.length, -state.recent_from, -who


def log_of(who: int, states: Mapping[int, State]) -> int:
    """A replica without a log joins that of the lowest member that has one."""
    if states[who].log:
        return states[who].log
    return next((states[other].log for other in sorted(states) if states[other].log), 0)


def is_rolled_back(who: int, states: Mapping[int, State]) -> bool:
    """Whether another has seen on its disk what is there no more."""
    mine = states[who]
    return any(
        shown.processor == who and shown.disk == mine.disk and _has_lost(mine, shown)
        for state in states.values()
        for shown in state.heard
    )


def _has_lost(state: State, shown: Shown) -> bool:
    """The life in which it showed this is unknown to the disk, or the one after it found less. What the disk
    has written since then proves nothing."""
    lives = [opening.life for opening in state.openings]
    if shown.life not in lives:
        return len(lives) < OPENINGS_MAX or shown.frames > state.frames
    later = state.openings[lives.index(shown.life) + 1 :]
    return shown.frames > (later[0].frames if later else state.frames)


def _founding(members: Mapping[int, State]) -> ReplicaSet | None:
    """A log is founded when all its replicas are there, none knows of a primary, and all were told the same.
    Later an empty disk is known to have lost its contents, for the others remember the log."""
    sets = [state.founding for state in members.values() if state.founding is not None]
    first = sets[0] if sets else None
    if first is None or any(each != first for each in sets):
        return None
    if not all(who in members and members[who].founding == first for who in first.voters):
        return None
    return first.with_disks({who: state.disk for who, state in members.items()})


def _had_by_all(members: Mapping[int, State]) -> dict[tuple[int, int], int]:
    vectors = [{(run.origin, run.life): run.number for run in state.vector} for state in members.values()]
    common = set.intersection(*(set(vector) for vector in vectors))
    return {who: min(vector[who] for vector in vectors) for who in sorted(common)}


def senders(runs: Iterable[Run], plan: Plan, states: Mapping[int, State]) -> Iterator[tuple[Run, int]]:
    """The runs that not all members have, each with the lowest member that has it: step 7 of recovery."""
    had = {who: {(run.origin, run.life): run.number for run in states[who].vector} for who in plan.members}
    for run in runs:
        origin, life, number = run.id
        if not plan.is_had_by_all(run.id):
            yield run, min(who for who in plan.members if had[who].get((origin, life), 0) >= number)
