"""`totem sim FILE`: play a scenario, show what happened, judge it."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from totempole import scenarios
from totempole.checkers import Outcome as Holds
from totempole.checkers import check
from totempole.checkers.costs import costs_of
from totempole.cli import options
from totempole.cli.figure import draw
from totempole.cli.loading import EventsOptions, load_scenario, parse_processors
from totempole.cli.mutants import find_mutant
from totempole.cli.output import Screen, table
from totempole.cli.tables import (
    delivery_data,
    delivery_table,
    verdict_data,
    verdict_table,
    violation_lines,
    worst,
)
from totempole.cli.timeline import Timeline
from totempole.errors import TotemError
from totempole.sim.fuzz.mutants import Mutant, mutated_stack
from totempole.sim.scenario import Outcome, Scenario, render_story, run
from totempole.sim.settings_text import time_text
from totempole.trace.digest import trace_digest
from totempole.trace.ndjson import write_ndjson

EXAMPLES = """\
examples:
  totem sim --list                         the scenarios that come with totempole
  totem sim figure-4-16                    one of them
  totem sim my.scenario --story            every configuration, state and fault, line by line
  totem sim appendix-a.events              the paper's events file, with packet drivers
  totem sim appendix-a.events -m 0.95      the same with 5 % of the messages lost
  totem sim my.scenario --trace run.ndjson the whole trace, as text
  totem sim my.scenario --trace traces     the same as Parquet, for totem verify and totem report
  totem sim my.scenario --trace traces --logs logs   also the replicas' logs: totem verify traces --log logs/*

Exits 0 when every expectation is met and no property is violated, else 1.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", nargs="?", metavar="FILE", help="a scenario, or an events file of appendix A")
    parser.add_argument("--list", action="store_true", help="list the scenarios that come with totempole")
    parser.add_argument("--story", action="store_true", help="tell the run event by event")
    parser.add_argument(
        "--trace",
        metavar="OUT",
        help="write the trace, all of it: as text to OUT.ndjson, or into a directory",
    )
    parser.add_argument(
        "--logs",
        type=Path,
        metavar="DIR",
        help="write the log of each replica, as its disk has it at the end",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="another seed than the file's")
    parser.add_argument("--mutant", metavar="NAME", help="run a broken protocol (totem fuzz --mutants)")
    options.add_judging(parser, quick="show the summary only")
    _add_events(parser)
    parser.set_defaults(run=run_sim)


def _add_events(parser: options.Parser) -> None:
    """The arguments of `cmm` and `pm` in appendix A, with its letters."""
    events = parser.add_argument_group("an events file of appendix A")
    add, count, chance = events.add_argument, options.at_least_one, options.probability
    add("--events", action="store_true", help="take FILE for an events file")
    add(
        "--processors",
        "-c",
        nargs="+",
        default=[],
        metavar="N",
        help="who takes part (default: all it names)",
    )
    add("--network", "-n", type=int, metavar="N", help="which network, if its events are on several")
    add("--message-reception", "-m", type=chance, metavar="P", help="how likely messages arrive (default 1)")
    add("--token-reception", "-t", type=chance, metavar="P", help="how likely tokens arrive (default 1)")
    add("--discard-limit", "-d", type=count, metavar="N", help="a processor halts after N messages delivered")
    add("--size", "-s", type=count, metavar="BYTES", help="of the packet drivers' messages (default 1024)")
    add("--window", "-w", type=count, metavar="N", help="messages that all may send in a rotation")
    add("--each-time", "-e", type=count, metavar="N", help="messages that one may send in a token visit")


def _events_options(arguments: argparse.Namespace) -> EventsOptions:
    names = (
        "network",
        "message_reception",
        "token_reception",
        "discard_limit",
        "size",
        "window",
        "each_time",
    )
    given = {name: getattr(arguments, name) for name in names}
    return EventsOptions(parse_processors(arguments.processors), **given)


def run_sim(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    if arguments.list:
        _list(screen)
        return 0
    if arguments.file is None:
        raise TotemError("sim: name a scenario file, or give --list")
    scenario = load_scenario(
        arguments.file,
        events=arguments.events,
        options=_events_options(arguments),
        seed=arguments.seed,
    )
    mutant = find_mutant(arguments.mutant) if arguments.mutant else None
    report = play(screen, scenario, "protocol" if arguments.trace else "checked", mutant)
    rows = report.outcome.rows
    if arguments.trace:
        _save_trace(arguments.trace, report.outcome)
    if arguments.logs:
        _save_logs(arguments.logs, report.outcome)
    if arguments.story:
        screen.long(render_story(rows, scenario.names).rstrip())
    report.show(screen, brief=arguments.quick)
    screen.save_json(report.data())
    return 0 if report.holds else 1


def _save_trace(target: str, outcome: Outcome) -> None:
    if target.endswith(".ndjson"):
        write_ndjson(target, outcome.rows)
        return
    from totempole.sim.saving import save_run

    save_run(Path(target), outcome)


def _save_logs(target: Path, outcome: Outcome) -> None:
    from totempole.sim.saving import save_logs

    if target.exists():
        raise TotemError(f"sim: --logs {target}: it is there already; name a new directory")
    save_logs(target, outcome)


def play(screen: Screen, scenario: Scenario, level: str, mutant: Mutant | None = None) -> SimReport:
    """Runs and judges it, on the true protocol or a broken one."""
    stack = mutated_stack(mutant) if mutant else None
    started_s = time.perf_counter()
    with screen.err.status(f"simulating {scenario.name}, {time_text(scenario.end_us)}"):
        outcome = run(scenario, level=level, stack=stack)
        return SimReport(outcome, time.perf_counter() - started_s)


def _list(screen: Screen) -> None:
    shown = table("scenario", "about")
    for name in scenarios.names():
        shown.add_row(name, scenarios.about(name))
    screen.print(shown)


class SimReport:
    """One run: its figure, its tables, its verdict."""

    def __init__(self, outcome: Outcome, elapsed_s: float) -> None:
        self.outcome = outcome
        self.names = outcome.scenario.names
        self.timeline = Timeline(outcome.judged_rows)
        self.verdicts = worst(outcome.reports or [check(outcome.judged_rows)])
        self.costs = costs_of(outcome.judged_rows)
        self.elapsed_s = elapsed_s

    @property
    def holds(self) -> bool:
        return not self.outcome.failures and all(v.outcome is not Holds.VIOLATED for v in self.verdicts)

    def show(self, screen: Screen, brief: bool = False) -> None:
        if not brief:
            screen.rule("Configurations")
            screen.print(draw(self.timeline, self.names, screen.out.width))
            screen.print()
            screen.print(delivery_table(self.timeline, self.names))
            screen.print()
            screen.print(verdict_table(self.verdicts))
        self._show_trouble(screen)
        screen.print()
        screen.print(self._summary())
        screen.print(self._costs())

    def _show_trouble(self, screen: Screen) -> None:
        lines = violation_lines(self.verdicts)
        if lines:
            screen.print("\n[bold red]Violations[/]")
        for line in lines:
            screen.long(f"  {line}")
        if self.outcome.failures:
            screen.print("\n[bold red]Expectations that failed[/]")
        for failure in self.outcome.failures:
            screen.long(f"  {failure.partition(chr(10))[0]}")

    def _summary(self) -> str:
        world = self.outcome.world
        verdict = "[bold green]holds[/]" if self.holds else "[bold red]FAILS[/]"
        scenario = self.outcome.scenario
        return (
            f"{escape(scenario.name)}: {verdict}. Simulated {time_text(scenario.end_us)} of "
            f"{len(self.names)} processors in {self.elapsed_s:.1f} s: {world.packet_events:,} packet events, "
            f"{self._delivered():,} deliveries, {world.counters['lost']:,} datagrams lost"
        )

    def _costs(self) -> str:
        costs = self.costs
        return (
            f"At most {costs.configurations:,} configurations at a processor, "
            f"{costs.without_ring_us / 1000:,.1f} ms without a ring, {costs.attempts:,} attempts at one "
            f"(never more than {costs.attempts_max:,})"
        )

    def _delivered(self) -> int:
        return sum(host.delivered for host in self.outcome.world.hosts.values())

    def data(self) -> dict[str, Any]:
        world = self.outcome.world
        return {
            "scenario": self.outcome.scenario.name,
            "seed": self.outcome.scenario.seed,
            "holds": self.holds,
            "simulated_us": self.outcome.scenario.end_us,
            "elapsed_s": round(self.elapsed_s, 3),
            "packet_events": world.packet_events,
            "deliveries": self._delivered(),
            "datagrams": dict(sorted(world.counters.items())),
            "trace_digest": trace_digest(self.outcome.rows),
            "processors": delivery_data(self.timeline, self.names),
            "properties": verdict_data(self.verdicts),
            "costs": asdict(self.costs),
            "failures": list(self.outcome.failures),
        }
