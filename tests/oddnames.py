"""A simulated run of groups with odd names: joins, state, messages to several groups, a partition."""

from __future__ import annotations

from dataclasses import replace

from totempole.sim.scenario import Outcome, parse, run
from totempole.sim.script import JoinGroup, Multicast, QuitGroup, Scenario, Step

NAMES = {"x": "a,b", "y": "two words, and\na line break", "z": "\0\x1b[2J,"}

TEXT = """
processors 1 2 3
groups
at 1s join 1.a x donor
at 1s join 2.b x donor
at 1s join 2.b y
at 1100ms multicast 1.a x,y,z units=4
at 1200ms join 3.c x state
at 1200ms join 3.c z
at 1300ms multicast 3.c z,x units=4 safe notice
at 1400ms partition (1 2) (3)
at 1500ms multicast 1.a x units=3
at 2s heal
at 2500ms quit 2.b y
end 4s
expect settled 3s
"""


def renamed(scenario: Scenario) -> Scenario:
    """A scenario file has words for names, so the odd ones come in here."""
    return replace(scenario, steps=tuple(map(_renamed, scenario.steps)))


def _renamed(step: Step) -> Step:
    action = step.action
    if isinstance(action, Multicast):
        action = replace(action, groups=tuple(NAMES[name] for name in action.groups))
    elif isinstance(action, JoinGroup | QuitGroup):
        action = replace(action, group=NAMES[action.group])
    return replace(step, action=action)


def odd_run() -> Outcome:
    return run(renamed(parse(TEXT)), level="checked")
