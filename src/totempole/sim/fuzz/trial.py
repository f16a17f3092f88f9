"""Runs one scenario and judges it: the unit of every search, on one machine or on many."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from totempole.sim.contract import SimulationError, StackFactory
from totempole.sim.fuzz.coverage import coverage_of
from totempole.sim.fuzz.group_coverage import group_coverage_of
from totempole.sim.fuzz.log_coverage import log_coverage_of
from totempole.sim.fuzz.network_coverage import network_coverage_of
from totempole.sim.fuzz.object_coverage import object_coverage_of
from totempole.sim.objects.programs import ObjectParts
from totempole.sim.script import Scenario
from totempole.sim.script_runner import Outcome, run

RAISED = "no-exception"
"""The name under which an exception in the protocol counts as a violated property."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run showed. Small enough to send from process to process by the thousand."""

    name: str
    violated: tuple[str, ...] = ()
    """Names of the properties that do not hold."""
    text: str = ""
    packet_events: int = 0
    deliveries: int = 0
    coverage: Counter[str] = field(default_factory=Counter)


def try_scenario(
    scenario: Scenario, stack: StackFactory | None = None, object_parts: ObjectParts | None = None
) -> tuple[Verdict, Outcome | None]:
    """Runs the real stack. The outcome is missing when the protocol itself failed."""
    try:
        # What is sent again is not written below the level `protocol`.
        level = "protocol" if scenario.networks else "checked"
        outcome = run(scenario, level=level, stack=stack, object_parts=object_parts)
    except SimulationError as error:
        return Verdict(scenario.name, (RAISED,), str(error)), None
    violated = tuple(
        sorted({name for report in outcome.reports for name in (v.property for v in report.violated)})
    )
    coverage = coverage_of(outcome)
    if outcome.programs is not None:
        coverage.update(group_coverage_of(outcome))
    if scenario.log is not None:
        coverage.update(log_coverage_of(outcome))
    if outcome.objects is not None:
        coverage.update(object_coverage_of(outcome))
    if scenario.networks:
        coverage.update(network_coverage_of(outcome))
    verdict = Verdict(
        name=scenario.name,
        violated=violated or (("expectation",) if outcome.failures else ()),
        text="\n".join(outcome.failures),
        packet_events=outcome.world.packet_events,
        deliveries=sum(host.delivered for host in outcome.world.hosts.values()),
        coverage=coverage,
    )
    return verdict, outcome
