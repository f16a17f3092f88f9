"""`totem demo`: the whole story in the terminal, in a few minutes."""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from totempole import scenarios
from totempole.checkers import Outcome as Holds
from totempole.checkers import Verdict
from totempole.cli import demo_nodes, demo_spark, demo_text, options
from totempole.cli.demo_nodes import KEY
from totempole.cli.figure import REGULAR_COLOURS, draw
from totempole.cli.fuzz import SearchReport, cores, watch_search
from totempole.cli.mutants import find_mutant
from totempole.cli.output import Screen, table
from totempole.cli.replay import Replay, first_failing, shrink
from totempole.cli.sim import SimReport, play
from totempole.cli.tables import CITATIONS, STYLES, verdict_data
from totempole.cli.timeline import Timeline
from totempole.errors import ConfigurationError
from totempole.sim.fuzz.mutants import Mutant, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.search import Tally
from totempole.sim.scenario import parse
from totempole.types import ProcessorId

OUT = Path("out/demo")
SEEDS = range(20)
QUICK_SEEDS = range(4)
HUNTED_SEEDS = range(100)
SHRINK_TRIALS_MAX = 150
QUICK_TRIALS_MAX = 20
LOAD_S = 1.0
QUICK_LOAD_S = 0.3
"""How long the real processes go on between two events."""

WIDTH_MAX = 100
"""Wider paragraphs are hard to read."""
ORDER_SHOWN = 84
"""Deliveries in the picture of the order."""
TOLD = ("partition", "heal", "crash", "restart", "cut")
"""Faults that the figures tell; the scenario files have them all."""
FIGURES_END_US = 2_200_000
"""The dissertation's figures end here; the scenarios go on to bring everyone together again."""

PROMISE_MUTANT = "the received promise forgotten"
HUNTED_MUTANT = "safe delivered as agreed"
"""One that random runs find at once, and that shrinks within seconds."""

MARKS = {Holds.HOLDS: "✓", Holds.VIOLATED: "✗", Holds.UNDECIDED: "?"}


def add(parser: options.Parser) -> None:
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="DIR", help=f"the traces and Spark's report ({OUT})"
    )
    options.add_judging(parser, quick="fewer random runs, little time spent on shrinking, no Spark")
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> int:
    demo = Demo(Screen(arguments.json), arguments.out, quick=arguments.quick)
    demo.tell()
    return 0 if demo.holds else 1


class Demo:
    """Each method is a part of the story; `reports` and `data` grow as it is told."""

    def __init__(self, screen: Screen, out: Path, quick: bool = False) -> None:
        self.screen = screen
        self.out = out
        screen.out.width = min(screen.out.width, WIDTH_MAX)
        self.quick = quick
        self.reports: dict[str, SimReport] = {}
        self.real_holds = False
        self.spark_holds = True
        self.caught: dict[str, bool] = {}
        """Broken protocols, and whether anyone noticed."""
        self.search = SearchReport(Tally(0, 0), 0, 0.0)
        self.data: dict[str, Any] = {}

    @property
    def holds(self) -> bool:
        stories = all(report.holds for report in self.reports.values())
        real = self.real_holds and self.spark_holds
        return stories and real and self.search.holds and all(self.caught.values())

    def tell(self) -> None:
        started_s = time.perf_counter()
        welcome = "\n\n".join(_flat(paragraph) for paragraph in demo_text.WELCOME)
        self.screen.print(Panel(welcome, border_style="cyan", padding=(1, 2)))
        self.ring()
        self.crash()
        self.partition()
        self.figures()
        self.verdicts()
        self.spark(self.real_processes())
        self.fuzz()
        self.break_the_promise()
        self.hunt_and_shrink()
        self.close(time.perf_counter() - started_s)

    # The ring

    def ring(self) -> None:
        self._head("1  Five processors form a ring and order messages, while one datagram in twenty is lost")
        report = self._play("ring", level="protocol")
        self._say(demo_text.RING)
        orders = _orders(report)
        self.screen.print(order_picture(orders, report.names))
        lost = report.outcome.world.counters["lost"]
        again = sum(row.kind == "retransmit" for row in report.outcome.rows)
        distinct = {tuple(order) for order in orders.values()}
        how = "one and the same order" if len(distinct) == 1 else f"[red]{len(distinct)} orders[/]"
        self._say(f"""
            [bold]{min(map(len, distinct)):,}[/] messages delivered by all five, in [bold]{how}[/]. {lost:,}
            datagrams were lost on the way, {again:,} messages broadcast again.
            """)

    def crash(self) -> None:
        self._head("2  One of them crashes under load, and comes back")
        report = self._play("crash")
        self._say(demo_text.CRASH)
        self._draw(report, legend=True)

    def partition(self) -> None:
        self._head("3  The network parts in two, both sides go on, and they come together again")
        report = self._play("partition")
        self._say(demo_text.PARTITION)
        self._draw(report)

    # The dissertation

    def figures(self) -> None:
        self._head("4  Figure 4.15 of the dissertation, replayed")
        report = self._play("figure-4-15")
        self._say(demo_text.FIGURE_15)
        self._draw(report, until_us=FIGURES_END_US)
        self._head("5  Figure 4.16: the recovery fails half-way")
        report = self._play("figure-4-16")
        self._say(demo_text.FIGURE_16)
        self._draw(report, until_us=FIGURES_END_US)

    def verdicts(self) -> None:
        self._head("6  Was it right? The dissertation's properties, checked over all of these traces")
        shown = table("property", "in the dissertation", "1", "2", "3", "4.15", "4.16")
        reports = list(self.reports.values())
        for place, verdict in enumerate(reports[0].verdicts):
            marks = [_mark(report.verdicts[place]) for report in reports]
            shown.add_row(verdict.property, Text(_cited(verdict.property), "dim"), *marks)
        self.screen.print(Padding(shown, (0, 0, 1, 0)))
        self.screen.print(Padding(demo_text.VERDICTS, (0, 2)))
        self.data["runs"] = [
            {"scenario": name, "holds": report.holds, "properties": verdict_data(report.verdicts)}
            for name, report in self.reports.items()
        ]

    # Real sockets

    def real_processes(self) -> Path:
        """Where they wrote their traces."""
        self._head("7  The same protocol on real sockets: four processes, kill -9, and a network that parts")
        self._say(demo_text.REAL)
        _empty(self.out)
        played = demo_nodes.play(QUICK_LOAD_S if self.quick else LOAD_S, self.out)
        if played.no_namespaces:
            self._say(
                f"[dim]All are on the loopback interface, for {escape(played.no_namespaces)}. To part the "
                "network, each process drops what comes from the other side.[/]"
            )
        figure = draw(Timeline(played.rows), demo_nodes.NAMES, self.screen.out.width, told=TOLD, legend=False)
        self.screen.print(Padding(figure, (0, 0, 1, 0)))
        delivered = sum(row.kind == "deliver" for row in played.rows)
        self.real_holds = bool(delivered) and not played.report.violated
        broken = ", ".join(verdict.property for verdict in played.report.violated)
        verdict = f"[bold red]{broken} violated[/]" if broken else "[bold green]none violated[/]"
        pids = ", ".join(f"{demo_nodes.NAMES[node]} {pid}" for node, pid in played.pids.items())
        self._say(f"""
            Processes: {pids}. The others had their next configuration [bold]{played.failover_ms:.0f} ms[/]
            after r was killed. {delivered:,} deliveries of sealed packets, read back from the nodes' own
            traces: of {len(played.report.verdicts)} properties, {verdict}.
            """)
        self.data["real"] = {"holds": self.real_holds, "failover_ms": played.failover_ms}
        return played.traces

    def spark(self, traces: Path) -> None:
        self._head("8  Spark judges what they wrote down, and draws it")
        if self.quick:
            self._say("Left out of a quick demo.")
            return
        why_not = demo_spark.why_not()
        if why_not:
            self._say(f"[yellow]Left out: {escape(why_not)}[/]")
            return
        self._say(demo_text.SPARK)
        report = demo_spark.judge_and_draw(self.screen, traces, self.out / "report")
        outcomes = Counter(outcome for _, _, outcome, _ in report.verdicts or ())
        self.spark_holds = bool(outcomes["holds"]) and not outcomes["violated"]
        words = {Holds.HOLDS: "hold", Holds.VIOLATED: "are violated", Holds.UNDECIDED: "are undecided"}
        verdict = ", ".join(f"{outcomes[outcome]} {word}" for outcome, word in words.items())
        latency = "; ".join(
            f"{row['service']} p{row['percentile']:g} {row['latency_us'] / 1000:.1f} ms"
            for row in report.latency
            if row["layer"] == "ring"
        )
        self._say(f"""
            {sum(row["rows"] for row in report.runs):,} events: [bold]{verdict}[/]. From submission to own
            delivery: {latency}. The page with the plots:
            """)
        self.screen.long(f"  {report.page}\n")
        self.data["spark"] = {"holds": self.spark_holds, "page": str(report.page)}

    # The search

    def fuzz(self) -> None:
        seeds = QUICK_SEEDS if self.quick else SEEDS
        self._head(f"9  {len(seeds)} random runs: everything that can go wrong, drawn from a seed")
        tally = Tally(seeds.start, seeds.stop)
        started_s = time.perf_counter()
        watch_search(self.screen, tally, cores())
        self.search = SearchReport(tally, tally.done, time.perf_counter() - started_s)
        failed = f"[bold red]{tally.failed} failed[/]" if tally.failed else "[bold green]none failed[/]"
        self._say(f"""
            {tally.done} runs, {failed}: {tally.packet_events:,} packet events,
            {tally.deliveries:,} deliveries. Among the faults: {_faults(tally.coverage)}.
            """)
        self.data["fuzz"] = self.search.data()

    def break_the_promise(self) -> None:
        self._head("10  Would the checkers notice? One line of the protocol is broken, on purpose")
        mutant = find_mutant(PROMISE_MUTANT)
        self._show_mutation(mutant)
        report = self._simulate("figure-4-16", mutant=mutant)
        self.caught[mutant.name] = not report.holds
        self._say(demo_text.BROKEN_PROMISE)
        self._draw(report, until_us=FIGURES_END_US)
        self._say_violations(report)

    def hunt_and_shrink(self) -> None:
        self._head("11  A broken protocol, caught by random runs and reduced to what matters")
        mutant = find_mutant(HUNTED_MUTANT)
        self._show_mutation(mutant)
        stack = mutated_stack(mutant)
        seed = first_failing(self.screen, HUNTED_SEEDS, stack)
        self.caught[mutant.name] = seed is not None
        if seed is None:
            self._say("[bold red]No seed gave it away[/]")
            return
        found = Replay(plan(seed), mutant, stack)
        violated = ", ".join(found.verdict.violated)
        self._say(f"Seed {seed} gives it away: [bold red]{violated}[/]. Shrinking it…")
        shrinker = shrink(self.screen, found, QUICK_TRIALS_MAX if self.quick else SHRINK_TRIALS_MAX)
        self._show_small(found, Replay(shrinker.best, mutant, stack))

    def _show_small(self, found: Replay, small: Replay) -> None:
        before, after = found.scenario, small.scenario
        self._say(f"""
            From {len(before.steps)} steps and {len(before.processors)} processors to {len(after.steps)} steps
            and {len(after.processors)} processors:
            """)
        steps = after.to_text().partition("\n\n")[2].rstrip()
        self.screen.print(Padding(Panel(escape(steps), border_style="dim", expand=False), (0, 2, 1, 2)))
        if small.outcome is not None:
            self._say_violations(SimReport(small.outcome, small.elapsed_s))

    def close(self, elapsed_s: float) -> None:
        runs = len(self.reports) + self.search.tally.done
        caught = sum(self.caught.values())
        verdict = "[bold green]All of it held[/]" if self.holds else "[bold red]Something did not hold[/]"
        summary = f"{verdict}: {runs} runs, {caught} broken protocols caught, {elapsed_s:.0f} seconds."
        box = Group(summary, *_next_steps(options.totem_command()))
        self.screen.print(Panel(box, border_style="green" if self.holds else "red", padding=(1, 2)))
        mutants = [{"mutant": name, "caught": caught} for name, caught in self.caught.items()]
        self.screen.save_json({**self.data, "mutants": mutants, "holds": self.holds})

    # Telling

    def _head(self, title: str) -> None:
        self.screen.rule(title)
        self.screen.print()

    def _say(self, text: str) -> None:
        self.screen.print(Padding(_flat(text), (0, 2, 1, 2)))

    def _play(self, name: str, level: str = "checked") -> SimReport:
        self.reports[name] = report = self._simulate(name, level)
        return report

    def _simulate(self, name: str, level: str = "checked", mutant: Mutant | None = None) -> SimReport:
        file = f"{name}.scenario"
        return play(self.screen, parse(scenarios.read(file), file), level, mutant)

    def _draw(self, report: SimReport, until_us: int | None = None, legend: bool = False) -> None:
        width = self.screen.out.width
        figure = draw(report.timeline, report.names, width, until_us=until_us, told=TOLD, legend=legend)
        self.screen.print(Padding(figure, (0, 0, 1, 0)))

    def _show_mutation(self, mutant: Mutant) -> None:
        text = Text().append(f"{mutant.name}, in srp/{mutant.module}.py:\n", style="bold")
        text.append(f"- {_flat(mutant.old)}\n", style="red")
        text.append(f"+ {_flat(mutant.new)}", style="green")
        self.screen.print(Padding(text, (0, 2, 1, 2)))

    def _say_violations(self, report: SimReport) -> None:
        broken = [verdict for verdict in report.verdicts if verdict.outcome is Holds.VIOLATED]
        if not broken:
            self._say("[bold red]Nobody noticed[/]")
        for verdict in broken:
            first = escape(_with_names(verdict.violations[0].text, report.names))
            more = f" … and {verdict.count - 1} more" if verdict.count > 1 else ""
            name = verdict.property
            self._say(f"[bold red]{name}[/] ({_cited(name)}) is violated: {first}{more}")


def _mark(verdict: Verdict) -> Text:
    """A dash where there was nothing to judge: no groups, or no log."""
    return Text("-", style="dim") if verdict.note else Text(MARKS[verdict.outcome], STYLES[verdict.outcome])


def _empty(directory: Path) -> None:
    """Makes place, unless what is there was not made by a demo."""
    if directory.exists():
        if any(directory.iterdir()) and not (directory / KEY).exists():
            raise ConfigurationError(f"{directory}: there is something else; name another place with --out")
        shutil.rmtree(directory)
    directory.mkdir(parents=True)


def _next_steps(totem: str) -> Iterator[Table | str]:
    for title, steps in demo_text.NEXT.items():
        yield f"\n[bold]{title}[/]"
        grid = Table.grid(padding=(0, 2, 0, 0))
        for command, why in steps:
            grid.add_row(Text(command.format(totem=totem), style="cyan"), Text(why))
        yield grid


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cited(name: str) -> str:
    return CITATIONS[name].removeprefix("Totem ")


def _faults(coverage: Mapping[str, int]) -> str:
    """The faults of a search, the most frequent first."""
    counts = [(coverage.get(key, 0), name) for key, name in demo_text.FAULTS.items()]
    return ", ".join(f"{count:,} {name}" for count, name in sorted(counts, reverse=True) if count)


Orders = dict[ProcessorId, list[tuple[str, ProcessorId]]]
"""Each processor's deliveries, in its order: message and originator."""


def _orders(report: SimReport) -> Orders:
    orders: Orders = {node: [] for node in report.names}
    for row in report.outcome.rows:
        if row.kind == "deliver":
            orders[row.node].append((row.message, row.origin))
    return orders


def order_picture(orders: Orders, names: Mapping[ProcessorId, str]) -> Padding:
    """One line for each processor: the senders of its first deliveries."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    colours = dict(zip(sorted(names), REGULAR_COLOURS, strict=False))
    for node, order in orders.items():
        line = Text()
        for _, origin in order[:ORDER_SHOWN]:
            line.append(names[origin], style=colours[origin])
        grid.add_row(Text(names[node], style="bold"), line)
    return Padding(grid, (0, 2, 1, 2))


def _with_names(text: str, names: Mapping[ProcessorId, str]) -> str:
    """Node 104 is s, to whoever has just seen the figure."""

    def name(found: re.Match[str]) -> str:
        return found[1] + names.get(int(found[2]), found[2])

    return re.sub(r"\b((?:[Nn]ode|member) )(\d+)\b", name, text)
