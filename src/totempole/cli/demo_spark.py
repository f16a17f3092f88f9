"""The demo's chapter on Spark: it judges what the real processes recorded, and draws it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from totempole.checkers.terms import Terms
from totempole.cli.output import Screen
from totempole.errors import ConfigurationError

if TYPE_CHECKING:
    from totempole.spark.report.job import Report

MODULES = ("matplotlib", "pandas", "pyarrow", "pyspark")


def why_not() -> str:
    """What is missing here; empty if Spark can run."""
    from totempole.spark.java import java_home

    for module in MODULES:
        if find_spec(module) is None:
            return f"{module} is not installed: pip install '.[spark]' in a clone"
    try:
        java_home()
    except ConfigurationError as error:
        return str(error)
    return ""


def judge_and_draw(screen: Screen, traces: Path, out: Path) -> Report:
    from totempole.spark.bronze import find_files, read_events
    from totempole.spark.cancellable import run_cancellable
    from totempole.spark.progress import watching
    from totempole.spark.report.job import write_report
    from totempole.spark.session import open_session
    from totempole.spark.terms import terms_of, terms_table

    with screen.progress("Spark", None) as advance:
        advance(0, "starting")
        with open_session("totem demo") as spark, watching(spark, advance):
            events = read_events(spark, find_files([traces]))
            terms = terms_of(events, terms_table(spark, {}), Terms(same_clock=False))
            return run_cancellable(spark, lambda: write_report(events, out, source="totem demo", terms=terms))
