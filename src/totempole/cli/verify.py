"""`totem verify`: judges recorded traces by every property, with Spark."""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from totempole.checkers.properties import PROPERTIES
from totempole.checkers.stored import STORED
from totempole.checkers.terms import Terms
from totempole.cli import options
from totempole.cli.event_text import on_one_line
from totempole.cli.output import Screen, table
from totempole.errors import ConfigurationError

if TYPE_CHECKING:
    from totempole.spark.log_files import LogFiles
    from totempole.spark.verdicts import Judged

SHOWN_MAX = 30
"""Findings that are printed, and of one verdict; --json and --tables have all that are listed."""
SHOWN_OF_ONE = 3

EXAMPLES = """\
examples:
  totem verify traces                        every run below the directory, by every property
  totem verify traces --complete             the runs are over: what has not come by now never will
  totem verify traces --oracle               by the statements and by the checkers, and compare
  totem verify traces --tables tables        keep bronze, silver and gold; judge again only what has changed
  totem verify traces --follow               as a cluster writes them, until Ctrl-C
  totem verify traces --master spark://…     on a cluster
  totem verify traces --log n1/log n2/log    also what the replicas' logs have on disk, beside their traces

TRACES are what nodes and `totem sim --trace` record: run=…/node=…/part-*.parquet, spools that killed nodes
left, and *.ndjson. --log names the directories of logs, of one replica or of several, or copies of them; each
says itself whose it is. Exits 1 when a property is violated, or when a member of a configuration left no
trace.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACES", help="directories or files")
    parser.add_argument(
        "--run", dest="runs", action="append", metavar="NAME", help="only this run (repeatable)"
    )
    parser.add_argument(
        "--log",
        dest="logs",
        action="extend",
        nargs="+",
        default=[],
        type=Path,
        metavar="DIRECTORY",
        help="judge these replicas' logs on disk, too: by themselves, and beside the traces",
    )
    options.add_terms(parser)
    how = parser.add_argument_group("how")
    by = how.add_mutually_exclusive_group()
    by.add_argument(
        "--judge",
        choices=("statements", "checkers", "parts"),
        help="by Spark's statements over tables; by the checkers, a run at a time; or by the checkers, in "
        "parts of runs (default: the checkers for up to a million events, then the statements)",
    )
    by.add_argument("--oracle", action="store_true", help="judge by both, and compare")
    how.add_argument("--tables", type=Path, metavar="DIR", help="keep the tables here, and go on from them")
    how.add_argument("--follow", action="store_true", help="watch the directory of a running cluster")
    options.add_master(how)
    options.add_judging(parser, quick="the verdicts only, without evidence")
    parser.set_defaults(run=run_verify)


def run_verify(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    if arguments.follow:
        if arguments.logs:
            raise ConfigurationError(
                "--log: not with --follow; verify the logs without it, as often as needed"
            )
        from totempole.cli.verify_follow import follow

        return follow(screen, arguments)
    from totempole.spark.bronze import find_files
    from totempole.spark.cancellable import run_cancellable
    from totempole.spark.progress import watching
    from totempole.spark.run_files import rows_of
    from totempole.spark.session import LARGE, LARGE_ROWS, open_session
    from totempole.spark.verdicts import judge_files
    from totempole.spark.verify import Judge

    otherwise = Terms(arguments.complete, arguments.same_clock)
    large = arguments.judge != "checkers" and sum(map(rows_of, find_files(arguments.traces))) > LARGE_ROWS
    with open_session("totem verify", arguments.master, LARGE if large else {}) as spark:
        with screen.progress("verifying", None) as advance, watching(spark, advance) as watch:

            def tell(done: int, name: str) -> None:
                watch.note = f"{done} of {len(PROPERTIES)} properties, {name}"

            work = partial(
                judge_files,
                spark,
                arguments.traces,
                otherwise,
                runs=arguments.runs,
                by=arguments.judge and Judge(arguments.judge),
                oracle=arguments.oracle,
                tables=arguments.tables,
                logs=arguments.logs,
                tell=tell,
            )
            judged = run_cancellable(spark, work)
        show(screen, judged, evidence=not arguments.quick)
        screen.save_json(data(judged))
        return 0 if judged.holds else 1


def show(screen: Screen, judged: Judged, evidence: bool) -> None:
    found = table("property", "citation", *_STYLES, right=tuple(_STYLES))
    for item in PROPERTIES:
        counts = judged.outcomes[item.name]
        cells = [_cell(counts.get(outcome, 0), style) for outcome, style in _STYLES.items()]
        absence = _absences(judged).get(item.layer)
        if absence:
            cells = [f"[dim]{absence}[/]", *cells[1:]]
        found.add_row(item.name, item.citation, *cells)
    for stored in STORED if judged.logs else ():
        counts = judged.outcomes[stored.name]
        cells = [_cell(counts.get(outcome, 0), style) for outcome, style in _STYLES.items()]
        found.add_row(stored.name, stored.citation, *cells)
    screen.print(found)
    for log in judged.logs:
        screen.long(f"Log of node {log.node}: {_positions(log)}, {log.directory}")
    if evidence:
        _show_findings(screen, judged)
    for run, node in judged.absent:
        screen.print(f"[red]Run {run}: node {node} is a member of its configurations and left no trace.[/]")
    for line in judged.disagreements:
        screen.print(f"[red]The checkers say otherwise: {line}[/]")
    screen.print(_summary(judged))


def _positions(log: LogFiles) -> str:
    if log.position == log.first_position:
        return "no records"
    return f"positions {log.first_position:,} to {log.position - 1:,}"


_STYLES = {"holds": "green", "violated": "bold red", "undecided": "yellow"}


def _cell(count: int, style: str) -> str:
    return f"[{style}]{count:,}[/]" if count else "[dim]0[/]"


def _show_findings(screen: Screen, judged: Judged) -> None:
    of_one: Counter[tuple[str, str]] = Counter()
    shown = 0
    for row in judged.listed:
        of_one[row["run"], row["property"]] += 1
        if shown == SHOWN_MAX or of_one[row["run"], row["property"]] > SHOWN_OF_ONE:
            continue
        shown += 1
        what = "[bold red]violated[/]" if row["violated"] else "[yellow]undecided[/]"
        screen.print(f"{what} {row['property']}, run {row['run']}: ", end="")
        screen.long(on_one_line(row["text"]))
        if row["steps"]:
            steps = ", ".join(f"node {node} step {step}" for node, step in row["steps"])
            screen.print(f"  [dim]see {steps}[/]")
    more = len(judged.listed) - shown
    if more > 0:
        screen.print(f"[dim]… and {more:,} more findings (--json FILE has them)[/]")


def _summary(judged: Judged) -> str:
    totals = {
        outcome: sum(counts.get(outcome, 0) for counts in judged.outcomes.values()) for outcome in _STYLES
    }
    runs = f"{judged.runs:,} run{'s' if judged.runs != 1 else ''}, {judged.events:,} events"
    if totals["violated"]:
        return f"\n{runs}: [bold red]violated[/] in {totals['violated']:,} of their verdicts."
    if totals["undecided"]:
        return (
            f"\n{runs}: nothing is violated; {totals['undecided']:,} verdicts are undecided, the others hold."
        )
    return f"\n{runs}: [green]{_all_properties(judged)} hold.[/]"


def _absences(judged: Judged) -> dict[str, str]:
    """The layers that these runs have nothing of."""
    there = {"groups": (judged.grouped, "no groups"), "corel": (judged.logged, "no log")}
    return {layer: text for layer, (runs, text) in there.items() if not runs}


def _all_properties(judged: Judged) -> str:
    absences = _absences(judged)
    of_logs = len(STORED) if judged.logs else 0
    if not absences:
        return f"all {len(PROPERTIES) + of_logs} properties"
    judged_of = of_logs + sum(item.layer not in absences for item in PROPERTIES)
    return f"all {judged_of} properties ({', '.join(absences.values())} in these runs)"


def data(judged: Judged) -> dict[str, Any]:
    return {
        "runs": judged.runs,
        "events": judged.events,
        "grouped_runs": judged.grouped,
        "logged_runs": judged.logged,
        "holds": judged.holds,
        "properties": {name: dict(counts) for name, counts in judged.outcomes.items()},
        "findings": judged.listed,
        "absent": [{"run": run, "node": node} for run, node in judged.absent],
        "disagreements": judged.disagreements,
        "logs": [
            {
                "node": log.node,
                "directory": log.directory,
                "first_position": log.first_position,
                "next_position": log.position,
                "runs": log.place - log.first_place,
            }
            for log in judged.logs
        ],
    }
