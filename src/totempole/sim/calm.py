"""When nothing goes wrong in a scenario: the stretches in which a ring has no reason to change.

Only a network that loses nothing and delays nothing beyond the ordinary is calm, without links cut one way,
with everyone at full speed, and with nothing lying in wait. A partition that lasts is calm: its parts settle.
"""

from __future__ import annotations

from collections.abc import Iterator

from totempole.checkers.terms import Calm
from totempole.sim.conditions import Condition, Costs, Lan
from totempole.sim.script import (
    DropNext,
    Fault,
    Heal,
    OnInterface,
    OnLink,
    OnProcessor,
    OnService,
    Partition,
    Scenario,
    SetCondition,
    Slow,
    When,
    Wire,
)
from totempole.sim.script_faults import CrashWithin, LimitSegments, OnDisk, SetKeys, Stray
from totempole.sim.script_parser import ring_config

ROTATIONS = 4
"""A token is not lost if it can go round so often before the timeout."""


def calm_stretches(scenario: Scenario, within_us: int, earlier_us: int = 0) -> tuple[Calm, ...]:
    """Those that are long enough to settle in: within so long, and as long again as laggards are kept out.
    With `earlier_us`: all but the last within that time."""
    configs = [ring_config(scenario.settings, me) for me in scenario.names]
    rotation_us = len(configs) * scenario.condition.delay_us[1]
    if (
        not _is_clean(scenario.condition, scenario)
        or any(lan.bandwidth_bytes_per_s for lan in _lans(scenario))
        or any(not _is_clean(one.condition, scenario) for one in scenario.networks if one.condition)
        or scenario.costs != Costs()
        or ROTATIONS * rotation_us > min(config.token_loss_us for config in configs)
    ):
        return ()
    readmission_us = max(config.readmission_us for config in configs)
    leave_us = max(config.leave_us for config in configs)
    stretches = []
    for from_us, to_us in _quiet_times(scenario, leave_us):
        bound_us = within_us if to_us == scenario.end_us else earlier_us or within_us
        stretches.append(Calm(from_us, from_us + bound_us + readmission_us, to_us))
    return tuple(calm for calm in stretches if calm.settled_us < calm.to_us)


def _quiet_times(scenario: Scenario, leave_us: int) -> Iterator[tuple[int, int]]:
    """From one fault to the next, where nothing is wrong in between. A leave may take its time."""
    wrong: set[object] = set()
    since_us = 0
    for step in scenario.steps:
        if not isinstance(step.action, Fault):
            continue
        if not wrong and step.at_us > since_us:
            yield since_us, step.at_us - 1
        _note(wrong, step.action, scenario)
        leaves = isinstance(step.action, OnProcessor) and step.action.verb in ("leave", "retire")
        since_us = max(since_us, step.at_us + (leave_us if leaves else 0))
    if not wrong:
        yield since_us, scenario.end_us


def _note(wrong: set[object], action: Fault, scenario: Scenario) -> None:
    """Adds what the action makes wrong, or takes away what it puts right."""
    match action:
        case OnProcessor("pause", processor):
            wrong.add(("paused", processor))
        case OnProcessor("resume" | "crash" | "restart", processor):
            wrong.discard(("paused", processor))
        case OnProcessor("double", processor):
            # They may fight over the number for the rest of the run, one life after another.
            wrong.add(("double", processor))
        case OnProcessor() | OnService():
            pass
        case Partition(network=network):
            if network:
                wrong.add(action)
        case Heal(network):
            passing = (DropNext, When, Stray, CrashWithin, Wire, Partition, OnInterface)
            ended = {entry for entry in wrong if isinstance(entry, passing) or _is_cut(entry)}
            wrong -= {entry for entry in ended if not network or getattr(entry, "network", "") == network}
        case OnLink("mend", source, target, network):
            wrong -= {OnLink("cut", source, target, network), OnLink("sever", source, target, network)}
        case OnInterface("cure", processor, network):
            wrong -= {OnInterface(verb, processor, network) for verb in ("mute", "deafen")}
        case OnLink() | OnInterface() | Wire() | DropNext() | When() | Stray() | CrashWithin():
            wrong.add(action)
        case OnDisk("slow" | "stick" | "mend", processor):
            _set(wrong, ("disk", processor), action.verb != "mend")
        case OnDisk() | LimitSegments() | SetKeys():
            pass
        case Slow(processor, factor):
            _set(wrong, ("slow", processor), factor != 1.0)
        case SetCondition(condition, from_or_none, to_or_none, network):
            if from_or_none is None and to_or_none is None:
                of_links = {entry for entry in wrong if isinstance(entry, tuple) and entry[0] == "condition"}
                wrong -= {entry for entry in of_links if not network or entry[-1] == network}
            _set(
                wrong,
                ("condition", from_or_none, to_or_none, network),
                not _is_clean(condition, scenario),
            )
        case _:
            wrong.add(action)


def _lans(scenario: Scenario) -> list[Lan]:
    return [network.lan for network in scenario.networks] or [scenario.lan]


def _is_cut(entry: object) -> bool:
    return isinstance(entry, OnLink) and entry.verb == "cut"


def _set(wrong: set[object], entry: object, is_wrong: bool) -> None:
    if is_wrong:
        wrong.add(entry)
    else:
        wrong.discard(entry)


def _is_clean(condition: Condition, scenario: Scenario) -> bool:
    harm = (condition.loss, condition.duplicate, condition.reorder, condition.late, condition.corrupt)
    slower = condition.delay_us[1] > scenario.condition.delay_us[1]
    return not any(harm) and not condition.token_loss and not slower
