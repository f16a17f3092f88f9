"""`totem report`: how a ring performed, from its traces: a page of plots, and the tables behind it."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from totempole.checkers.terms import Terms
from totempole.cli import options
from totempole.cli.output import Screen, table

if TYPE_CHECKING:
    from totempole.spark.report.job import Report
    from totempole.spark.report.overview import Verdict

RUNS_SHOWN = 20

EXAMPLES = """\
examples:
  totem report traces --out report               then open report/index.html
  totem report traces --out report --verify      also judge them by every property
  totem report traces --out report --run seed-17 seed-18
  totem report run.ndjson --out report           a trace of `totem sim … --trace run.ndjson`
  totem report traces --out report --master spark://HOST:7077

TRACES are directories as nodes write them (run=…/node=…/part-*.parquet, and what a killed node left), or
single files. In the directory --out is one page, index.html, that needs nothing else, and the numbers behind
its plots as Parquet files: tables/TABLE/run=…. An earlier report there is replaced.

Token rotation, retransmissions and drops are in traces of the level protocol only.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACES", help="directories or files")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="where the page and its tables go"
    )
    parser.add_argument(
        "--run",
        action="extend",
        nargs="+",
        default=[],
        dest="runs",
        metavar="NAME",
        help="these runs only",
    )
    parser.add_argument("--verify", action="store_true", help="judge the runs too, and show the verdicts")
    options.add_master(parser)
    options.add_terms(parser)
    options.add_judging(parser, quick="draw the first run only; the tables have all")
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    started_s = time.perf_counter()
    report = _write(screen, arguments)
    _show(screen, report, time.perf_counter() - started_s)
    screen.save_json(report.data())
    return 1 if any(outcome == "violated" for _, _, outcome, _ in report.verdicts or ()) else 0


def _write(screen: Screen, arguments: argparse.Namespace) -> Report:
    from totempole.spark.bronze import find_files, read_events
    from totempole.spark.cancellable import run_cancellable
    from totempole.spark.progress import watching
    from totempole.spark.report.job import write_report
    from totempole.spark.run_files import rows_of
    from totempole.spark.session import LARGE, LARGE_ROWS, open_session
    from totempole.spark.terms import known_terms, terms_of

    files = find_files(arguments.traces)
    with screen.progress("report", None) as advance:
        advance(0, "starting Spark")
        settings = LARGE if sum(map(rows_of, files)) > LARGE_ROWS else {}
        with open_session("totem report", arguments.master, settings) as spark, watching(spark, advance):
            events = read_events(spark, files)
            otherwise = Terms(arguments.complete, arguments.same_clock)
            terms = terms_of(events, known_terms(spark, arguments.traces), otherwise)
            work = partial(
                write_report,
                events,
                arguments.out,
                source=", ".join(map(str, arguments.traces)),
                only=arguments.runs,
                quick=arguments.quick,
                terms=terms if arguments.verify else None,
            )
            return run_cancellable(spark, work)


def _show(screen: Screen, report: Report, elapsed_s: float) -> None:
    numbers = ("processors", "submitted", "delivered", "rings", "crashes")
    shown = table("run", "level", *numbers, title="Runs", right=numbers)
    for row in report.runs[:RUNS_SHOWN]:
        shown.add_row(escape(row["run"]), row["level"], *(f"{row[name]:,}" for name in numbers))
    screen.print(shown)
    if len(report.runs) > RUNS_SHOWN:
        screen.print(f"… and {len(report.runs) - RUNS_SHOWN:,} more")
    for line in _broken(report.verdicts or []):
        screen.print(line)
    events = sum(row["rows"] for row in report.runs)
    screen.print(
        f"\n{events:,} events in {elapsed_s:.1f} s; runs drawn: {len(report.drawn)} of {len(report.runs):,}"
    )
    screen.long(f"Page: {report.page}")
    screen.long(f"Tables: {report.tables}")


def _broken(verdicts: list[Verdict]) -> list[str]:
    lines = [
        f"[bold red]violated[/] {name}, run {escape(run)}: {escape(text)}"
        for run, name, outcome, text in verdicts
        if outcome == "violated"
    ]
    more = len(lines) - RUNS_SHOWN
    return lines if more <= 0 else [*lines[:RUNS_SHOWN], f"… and {more:,} more"]
