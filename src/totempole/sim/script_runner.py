"""Plays a scenario in a world, and compares what was expected with what was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, field, replace
from typing import cast

from totempole.checkers import Report, check
from totempole.checkers.properties import judge_rows
from totempole.checkers.terms import Alarmed, Terms
from totempole.checkers.verdict import Outcome as Judgement
from totempole.errors import ConfigurationError, ScenarioError
from totempole.sim.appenders import Appenders
from totempole.sim.calm import calm_stretches
from totempole.sim.contract import StackFactory
from totempole.sim.discard import DiscardLimit
from totempole.sim.disk import WIPED, Damage
from totempole.sim.doubles import check_doubles, doubled_numbers, rows_of_others
from totempole.sim.load import FOREVER_US, Arrivals, Burst, Load, PacketDriver, Saturation
from totempole.sim.objects.judging import check_objects
from totempole.sim.objects.own import OWN
from totempole.sim.objects.programs import ObjectParts, ObjectPrograms
from totempole.sim.objects.subject import Subject
from totempole.sim.packet_filter import DropRule, StrayRule
from totempole.sim.processes import Programs
from totempole.sim.programs_check import check_programs
from totempole.sim.rollback import check_rollbacks
from totempole.sim.script import (
    Action,
    DropNext,
    ExpectAlarm,
    Expectation,
    ExpectCheckers,
    ExpectConfigurations,
    ExpectDelivered,
    ExpectMembers,
    ExpectNetwork,
    ExpectRollbacks,
    ExpectSettled,
    Fault,
    Heal,
    JoinGroup,
    Multicast,
    OnInterface,
    OnLink,
    OnProcess,
    OnProcessor,
    OnService,
    Partition,
    QuitGroup,
    Scenario,
    Send,
    SetCondition,
    Slow,
    Step,
    Traffic,
    When,
    Wire,
    configuration_text,
)
from totempole.sim.script_faults import CrashWithin, LimitSegments, OnDisk, SetKeys, Stray
from totempole.sim.script_logs import Append, OnLog, Read, SetReplica
from totempole.sim.script_objects import OnHost, Work
from totempole.sim.script_parser import ring_config
from totempole.sim.settings_text import time_text
from totempole.sim.settling import all_together, check_lasting, terms_after
from totempole.sim.shared import lossless_stretches, shared_stretches
from totempole.sim.stacks import Keys, RealStack
from totempole.sim.world import Ambush, World
from totempole.stack import NetworkSpec, ProcessorStack
from totempole.trace.schema import Row
from totempole.types import ConfigurationKind, ProcessorId

CLOCK_OFFSET_US_MAX = 1_000_000

TOGETHER_US = 2_000_000
"""By then all processors of a ring are together, if nothing but networks fails, and every two share one."""


@dataclass(slots=True)
class Outcome:
    """What a run gave. `failures` has one line for each expectation that was not met."""

    scenario: Scenario
    world: World
    programs: Programs | None = None
    """Where there are process groups."""
    appenders: Appenders | None = None
    """Where there is a log."""
    objects: ObjectPrograms | None = None
    """Where programs have a replicated object."""
    limit: DiscardLimit | None = None
    failures: list[str] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    """What the checkers said, each time they were asked."""

    @property
    def rows(self) -> list[Row]:
        return self.world.rows

    @property
    def judged_rows(self) -> list[Row]:
        """What the checkers read: all, but for numbers that two nodes have used."""
        return rows_of_others(self.world)


def build(
    scenario: Scenario,
    *,
    level: str = "delivery",
    record_inputs: bool = False,
    stack: StackFactory | None = None,
) -> World:
    """The scenario's world before anything has happened in it."""
    try:
        config = {me: ring_config(scenario.settings, me) for me in scenario.names}
    except ConfigurationError as problem:
        raise ScenarioError(f"{scenario.name}: {problem}") from problem
    keys = Keys() if scenario.sealed else None
    if stack is None or isinstance(stack, RealStack):
        stack = replace(stack or RealStack(), groups=scenario.groups, keys=keys)
        if scenario.networks:
            networks = tuple(
                NetworkSpec(network.segment_bytes or None, network.name, network.capacity)
                for network in scenario.networks
            )
            stack = replace(stack, networks=networks, redundancy=scenario.redundancy)
        stack = replace(stack, log=scenario.log)
    return World(
        scenario.seed,
        scenario.names,
        config,
        condition=scenario.condition,
        lans=[network.lan for network in scenario.networks] or [scenario.lan],
        conditions=[network.condition for network in scenario.networks],
        networks=[network.name for network in scenario.networks],
        costs=scenario.costs,
        buffers=scenario.buffers,
        disk=scenario.disk,
        drift_ppm_max=scenario.drift_ppm,
        clock_offset_us_max=CLOCK_OFFSET_US_MAX if scenario.drift_ppm else 0,
        level=level,
        names=scenario.names,
        record_inputs=record_inputs,
        stack=stack,
        keys=keys,
    )


def run(
    scenario: Scenario,
    *,
    level: str = "delivery",
    record_inputs: bool = False,
    stack: StackFactory | None = None,
    subject: Subject | None = None,
    object_parts: ObjectParts | None = None,
) -> Outcome:
    """Play to the end, whatever fails on the way; every expectation is judged at its time. `subject`: a
    replicated object that is none of our own."""
    world = build(scenario, level=level, record_inputs=record_inputs, stack=stack)
    outcome = Outcome(scenario, world)
    if scenario.groups is not None:
        outcome.programs = Programs(world, doubled_numbers(scenario))
    if scenario.log is not None:
        outcome.appenders = Appenders(world)
    if scenario.objects:
        outcome.objects = ObjectPrograms(world, subject or OWN[scenario.objects], object_parts)
    if scenario.discard_limit:
        outcome.limit = DiscardLimit(world, scenario.discard_limit)
    world.start([me for me in scenario.names if me not in scenario.absent])
    for step in scenario.steps:
        world.run_until(step.at_us)
        _play(outcome, step)
    world.run_until(scenario.end_us)
    return outcome


def _play(outcome: Outcome, step: Step) -> None:
    action = step.action
    if isinstance(action, Expectation):
        problem = judge(outcome, action)
        if problem:
            text = action.text(outcome.scenario.names.__getitem__)
            outcome.failures.append(f"{outcome.scenario.name}: at {time_text(step.at_us)} {text}: {problem}")
    else:
        perform(outcome.world, action, outcome.programs, outcome.appenders, outcome.objects)


TO_PROCESSORS: dict[str, Callable[[World, ProcessorId], None]] = {
    "crash": World.crash,
    "restart": World.restart,
    "pause": World.pause,
    "resume": World.resume,
    "leave": World.leave,
    "retire": World.retire,
    "move": World.move,
    "double": World.double,
    "single": World.single,
}
TO_LINKS: dict[str, Callable[[World, ProcessorId, ProcessorId, int | None], None]] = {
    "cut": World.cut,
    "sever": World.sever,
    "mend": World.mend,
}
TO_INTERFACES: dict[str, Callable[[World, ProcessorId, int | None], None]] = {
    "mute": World.mute,
    "deafen": World.deafen,
    "cure": World.cure,
}
TO_SERVICE: dict[str, Callable[[World, ProcessorId, int], None]] = {
    "drain": World.drain,
    "restore": World.restore,
}


def perform(
    world: World,
    action: Action,
    programs: Programs | None = None,
    appenders: Appenders | None = None,
    objects: ObjectPrograms | None = None,
    again: bool = False,
) -> None:
    """Do one thing now; expectations are not things to do. `again`: an ambush has led to it."""
    match action:
        case OnProcessor(verb, processor):
            TO_PROCESSORS[verb](world, processor)
        case OnLink(verb, source, target, network):
            TO_LINKS[verb](world, source, target, _number(world, network))
        case OnInterface(verb, processor, network):
            TO_INTERFACES[verb](world, processor, _number(world, network))
        case OnService(verb, network, processor):
            TO_SERVICE[verb](world, processor, world.networks.index(network))
        case Wire(one, other):
            world.wire(world.networks.index(one), world.networks.index(other))
        case Partition(components, sharp, network):
            world.partition(components, _number(world, network), sharp)
        case Heal(network):
            world.heal(_number(world, network))
        case Slow(processor, factor):
            world.slow(processor, factor)
        case SetCondition(condition, from_or_none, to_or_none, network):
            world.set_condition(condition, from_or_none, to_or_none, _number(world, network))
        case DropNext(kind, source_or_none, to, count, network):
            world.drop_next(DropRule(kind, source_or_none, to, count, _number(world, network)))
        case Stray(verb, kind, source_or_none, to, count, after_us, network):
            on = _number(world, network)
            world.lead_astray(StrayRule(verb, kind, source_or_none, to, count, after_us, on))
        case OnDisk():
            _on_disk(world, action)
        case CrashWithin(processor, after):
            world.crash_within(processor, after)
        case LimitSegments(processor, segment_bytes, network):
            world.limit_segments(processor, segment_bytes, _number(world, network))
        case SetKeys(processor, keys):
            world.set_keys(processor, keys)
        case When(says, ambush, by, after):

            def strike() -> None:
                perform(world, ambush, programs, appenders, objects, True)

            world.ambush(Ambush(says, strike, by, after), again)
        case Send(processor, count, size, service):
            Burst(world, processor, count, size=size, service=service).start()
        case Traffic():
            _load(world, action).start()
        case OnProcess() | JoinGroup() | QuitGroup() | Multicast():
            assert programs is not None, "a scenario without groups has no processes"
            programs.perform(action)
        case Append() | Read() | OnLog() | SetReplica():
            assert appenders is not None, "a scenario without a log has no records"
            appenders.perform(action)
        case OnHost() | Work():
            assert objects is not None, "a scenario without objects has no programs that have one"
            objects.perform(action)


def _number(world: World, network: str) -> int | None:
    """None for all networks."""
    return world.networks.index(network) if network else None


def _on_disk(world: World, action: OnDisk) -> None:
    me = action.processor
    match action.verb:
        case "wipe":
            world.damage_disk(me, WIPED)
        case "lose" | "rollback":
            world.damage_disk(me, Damage(action.lost, action.records))
        case "slow":
            world.slow_disk(me, action.latency_us)
        case "stick":
            world.stick_disk(me)
        case "mend":
            world.mend_disk(me)


def _load(world: World, traffic: Traffic) -> Load:
    me, size, safe = traffic.processor, traffic.size, traffic.safe
    until_us = FOREVER_US if traffic.until_us is None else traffic.until_us
    if traffic.shape == "saturate":
        return Saturation(world, me, size=size, safe=safe, until_us=until_us)
    if traffic.shape == "driver":
        return PacketDriver(world, me, size=size, safe=safe, until_us=until_us)
    poisson = traffic.shape == "poisson"
    return Arrivals(world, me, traffic.rate_per_s, poisson=poisson, size=size, safe=safe, until_us=until_us)


def judge(outcome: Outcome, expectation: Expectation) -> str:
    """What is wrong, or nothing."""
    match expectation:
        case ExpectMembers():
            return _judge_members(outcome, expectation)
        case ExpectConfigurations():
            return _judge_configurations(outcome, expectation)
        case ExpectDelivered(processor, count):
            delivered = outcome.world.hosts[processor].delivered
            return "" if delivered == count else f"it has delivered {delivered}"
        case ExpectNetwork(network, state, processor):
            return _judge_network(outcome.world, network, state, processor)
        case ExpectAlarm():
            return ""  # the next `expect settled` says
        case ExpectCheckers():
            return _judge_report(outcome, check(outcome.judged_rows), settled=False)
        case ExpectRollbacks():
            verdict = check_rollbacks(outcome.rows, outcome.world.rollbacks)
            outcome.reports.append(Report((verdict,)))
            return str(verdict) if verdict.outcome is Judgement.VIOLATED else ""
        case ExpectSettled() as expected:
            outcome.world.settle_doubles()
            settled = all_together(outcome.world)
            return _judge_report(outcome, _check_settled(outcome, expected), settled)


def last_fault_us(scenario: Scenario) -> int:
    """When the last fault, or the last repair, of a scenario happens."""
    return max((step.at_us for step in scenario.steps if isinstance(step.action, Fault)), default=0)


def terms_of(outcome: Outcome) -> Terms:
    """How the trace of a run that is over is to be read: as one that settled, if that was expected last."""
    last = outcome.scenario.steps[-1].action if outcome.scenario.steps else None
    if not isinstance(last, ExpectSettled):
        return Terms()
    return _terms(outcome, last)


def _terms(outcome: Outcome, expected: ExpectSettled) -> Terms:
    scenario = outcome.scenario
    terms = terms_after(outcome.world, _calm_since_us(outcome), expected.within_us)
    if scenario.networks:
        terms = replace(
            terms,
            shared=shared_stretches(scenario, TOGETHER_US),
            lossless=lossless_stretches(scenario, TOGETHER_US),
            alarmed=tuple(_alarmed(outcome)),
        )
    if not all_together(outcome.world):
        return terms
    return replace(terms, calm=calm_stretches(scenario, expected.within_us, expected.earlier_us))


def _alarmed(outcome: Outcome) -> Iterator[Alarmed]:
    for step in outcome.scenario.steps:
        if isinstance(step.action, ExpectAlarm):
            network, why, since_us, within_us = astuple(step.action)
            number = outcome.world.networks.index(network) + 1
            yield Alarmed(number, since_us, since_us + within_us, why)


def _check_settled(outcome: Outcome, expected: ExpectSettled) -> Report:
    terms = _terms(outcome, expected)
    rows = outcome.judged_rows
    report = judge_rows(rows, terms)
    lasting = check_lasting(outcome.world, _calm_since_us(outcome), expected.within_us)
    if outcome.world.doubles:
        lasting = (*lasting, check_doubles(outcome.world, all_together(outcome.world)))
    return Report((*report.verdicts, *lasting))


def _calm_since_us(outcome: Outcome) -> int:
    """When the last fault happened, or a processor was last halted by the discard limit."""
    last_us = last_fault_us(outcome.scenario)
    return last_us if outcome.limit is None else max(last_us, outcome.limit.last_halt_us)


def _judge_report(outcome: Outcome, report: Report, settled: bool) -> str:
    if outcome.programs is not None:
        report = Report((*report.verdicts, *check_programs(outcome.programs, settled)))
    if outcome.appenders is not None:
        report = Report((*report.verdicts, *outcome.appenders.check(settled)))
    if outcome.objects is not None:
        report = Report((*report.verdicts, *check_objects(outcome.objects, outcome.rows, settled)))
    outcome.reports.append(report)
    return "; ".join(str(verdict) for verdict in report.violated)


def _judge_network(world: World, network: str, state: str, processor: ProcessorId) -> str:
    stack = world.hosts[processor].stack
    if stack is None:
        return "it is down"
    service = cast(ProcessorStack, stack).networks[0].service
    number = world.networks.index(network)
    found = service.states[number].name.lower()
    told = f" ({service.why[number]})" if service.why[number] else ""
    return "" if found == state else f"it is {found}{told}"


def _judge_members(outcome: Outcome, expectation: ExpectMembers) -> str:
    configuration = outcome.world.hosts[expectation.processor].regular_configuration
    if configuration is None:
        return "it has no regular configuration"
    if tuple(sorted(configuration.members)) == expectation.members:
        return ""
    found = configuration_text(True, configuration.members, outcome.scenario.names.__getitem__)
    return f"its regular configuration is {found}"


def _judge_configurations(outcome: Outcome, expectation: ExpectConfigurations) -> str:
    installed = [
        (configuration.kind is ConfigurationKind.REGULAR, tuple(sorted(configuration.members)))
        for configuration in outcome.world.hosts[expectation.processor].configurations
    ]
    if tuple(installed[-len(expectation.sequence) :]) == expectation.sequence:
        return ""
    name = outcome.scenario.names.__getitem__
    shown = " ".join(configuration_text(regular, members, name) for regular, members in installed)
    return f"it has installed {shown or 'none'}"
