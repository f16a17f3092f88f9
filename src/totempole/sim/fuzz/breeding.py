"""New scenarios from old ones: a step taken away, added, moved or repeated, or two scenarios crossed.

What begins the calm stays as it is, and everyone is started then, with a disk that works, so that whatever
has become of the faults, the run must settle. Nothing that lasts comes from the second parent: it would
promise less. Keys stay as the first parent changes them: half a change parts those who have made it from the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

from totempole.sim.fuzz.plan import CALM_US, FIRST_FAULT_US, MS
from totempole.sim.script import (
    Action,
    Expectation,
    Heal,
    OnLink,
    OnProcessor,
    Partition,
    Scenario,
    Step,
    When,
)
from totempole.sim.script_faults import OnDisk, SetKeys
from totempole.types import ProcessorId

CHANGES_MAX = 10
"""How many changes a child has, at most."""
MOVED_US = 100 * MS
STEPS_MAX = 400

Change = Callable[[Random, list[Step], list[Step]], None]
"""Changes the steps before the calm; the others are those of a second parent."""


def bred(random: Random, name: str, parent: Scenario, other: Scenario) -> Scenario:
    """A child of two scenarios: its settings, its network and most of its steps are the first one's."""
    calm_us = _calm_from_us(parent)
    steps, fixed = _split(parent, calm_us)
    others = [
        _moved_to(step, parent, other)
        for step in _split(other, _calm_from_us(other))[0]
        if not _lasts(step.action)
    ]
    for _ in range(random.randint(1, CHANGES_MAX)):
        random.choice(CHANGES)(random, steps, others)
    steps = [step for step in steps if step.at_us < calm_us][:STEPS_MAX]
    fixed = [*_repairs(parent, calm_us, steps, fixed), *fixed]
    seed = parent.seed if random.random() < 0.5 else random.randrange(2**31)
    ordered = sorted([*steps, *fixed], key=lambda step: step.at_us)
    return replace(parent, name=name, seed=seed, steps=tuple(ordered))


def _calm_from_us(scenario: Scenario) -> int:
    """When the network is made whole for the last time. A crash may come long after (plan, IDLE)."""
    return max((step.at_us for step in scenario.steps if isinstance(step.action, Heal)), default=CALM_US)


def _split(scenario: Scenario, calm_us: int) -> tuple[list[Step], list[Step]]:
    """What happens before the calm and may be changed, and the rest."""
    early: list[Step] = []
    fixed: list[Step] = []
    for step in scenario.steps:
        stays = step.at_us >= calm_us or isinstance(step.action, Expectation | SetKeys)
        (fixed if stays else early).append(step)
    return early, fixed


def _lasts(action: Action) -> bool:
    """Whether the calm does not put it right: less is promised then (sim/settling.py)."""
    match action:
        case When(action=then):
            return _lasts(then)
        case OnLink("sever") | OnDisk("rollback"):
            return True
    return False


def _repairs(parent: Scenario, calm_us: int, steps: list[Step], fixed: list[Step]) -> list[Step]:
    """What the calm needs beside the first parent's own repairs: starts, and disks that work."""
    everyone = [me for _, me in parent.processors]
    disks = {me for step in steps for me in _disks(step.action)}
    wanted: list[Action] = [OnProcessor("restart", me) for me in everyone]
    wanted += [OnDisk("mend", me) for me in sorted(disks)]
    known = [step.action for step in fixed if step.at_us == calm_us]
    return [Step(calm_us, action) for action in wanted if action not in known]


def _disks(action: Action) -> tuple[ProcessorId, ...]:
    """Whose disk it harms."""
    if isinstance(action, When):
        return _disks(action.action)
    return (action.processor,) if isinstance(action, OnDisk) else ()


def _moved_to(step: Step, to: Scenario, source: Scenario) -> Step:
    """The same step among the processors of another scenario."""
    mine, theirs = [me for _, me in to.processors], [me for _, me in source.processors]
    names = {old: mine[place % len(mine)] for place, old in enumerate(theirs)}
    return replace(step, action=_renamed(step.action, names))


NAMED = frozenset({"processor", "source", "target", "to", "by"})


def _renamed(action: Action, names: dict[ProcessorId, ProcessorId]) -> Any:
    assert is_dataclass(action)
    if isinstance(action, Partition):
        parts: dict[ProcessorId, int] = {}
        for place, part in enumerate(action.components):
            for me in part:
                parts.setdefault(names.get(me, me), place)
        found = [
            tuple(sorted(me for me in parts if parts[me] == place)) for place in sorted(set(parts.values()))
        ]
        return replace(action, components=tuple(found))
    changes: dict[str, Any] = {}
    for item in fields(action):
        value = getattr(action, item.name)
        if item.name in NAMED and value is not None:
            changes[item.name] = names.get(value, value)
    if isinstance(action, When):
        changes["action"] = _renamed(action.action, names)
    return replace(action, **changes)


def _remove(random: Random, steps: list[Step], _others: list[Step]) -> None:
    if steps:
        del steps[random.randrange(len(steps))]


def _remove_many(random: Random, steps: list[Step], _others: list[Step]) -> None:
    start = random.randrange(len(steps) + 1)
    del steps[start : start + random.randint(1, 10)]


def _move(random: Random, steps: list[Step], _others: list[Step]) -> None:
    if steps:
        place = random.randrange(len(steps))
        steps[place] = _at(steps[place], steps[place].at_us + random.randint(-MOVED_US, MOVED_US))


def _repeat(random: Random, steps: list[Step], _others: list[Step]) -> None:
    if steps:
        step = random.choice(steps)
        steps.append(_at(step, step.at_us + random.randint(0, 5 * MOVED_US)))


def _add(random: Random, steps: list[Step], others: list[Step]) -> None:
    if others:
        steps.append(random.choice(others))


def _add_beside(random: Random, steps: list[Step], others: list[Step]) -> None:
    """A step of the other parent at the time of one of this one's: two things that meet."""
    if steps and others:
        at_us = random.choice(steps).at_us + random.randint(-MOVED_US // 5, MOVED_US // 5)
        steps.append(_at(random.choice(others), at_us))


def _cross(random: Random, steps: list[Step], others: list[Step]) -> None:
    """Up to some time as the one, from then on as the other."""
    cut_us = random.randint(FIRST_FAULT_US, CALM_US)
    steps[:] = [
        *[step for step in steps if step.at_us < cut_us],
        *[step for step in others if step.at_us >= cut_us],
    ]


def _at(step: Step, at_us: int) -> Step:
    return replace(step, at_us=max(FIRST_FAULT_US, at_us))


CHANGES: tuple[Change, ...] = (
    _remove,
    _remove_many,
    _move,
    _move,
    _repeat,
    _add,
    _add,
    _add_beside,
    _add_beside,
    _cross,
)
