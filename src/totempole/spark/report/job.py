"""`totem report`: from raw events to the gold tables and the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from totempole.checkers.properties import PROPERTIES
from totempole.errors import TraceError
from totempole.spark.bronze import damage
from totempole.spark.report import tables
from totempole.spark.report.figures import Record, natural
from totempole.spark.report.overview import NOTHING_TO_JUDGE, Verdict
from totempole.spark.report.page import render
from totempole.spark.report.store import Store
from totempole.spark.verify import NAMES, sentences, verify

LAYERS = {item.name: item.layer for item in PROPERTIES}

PAGE = "index.html"
TABLES = "tables"

RUNS_DRAWN = 12
"""Runs with a section of their own, unless more are named: a page of a hundred nobody reads."""
RUNS_DRAWN_QUICK = 1
SUMMARY_PERCENTILES = (50.0, 99.0)


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, and the overview as data."""

    page: Path
    tables: Path
    runs: list[Record]
    drawn: list[str]
    latency: list[Record]
    verdicts: list[Verdict] | None
    """If they were asked for."""

    def data(self) -> dict[str, Any]:
        of_run: dict[str, list[Record]] = {}
        for row in self.latency:
            of_run.setdefault(row["run"], []).append({name: row[name] for name in row if name != "run"})
        runs = [{**row, "latency": of_run.get(row["run"], [])} for row in self.runs]
        found = {"page": str(self.page), "tables": str(self.tables), "drawn": self.drawn, "runs": runs}
        return found if self.verdicts is None else found | {"verdicts": self.verdicts}


def write_report(
    events: DataFrame,
    out: Path,
    *,
    source: str,
    only: Sequence[str] = (),
    quick: bool = False,
    terms: DataFrame | None = None,
) -> Report:
    """Writes OUT/tables/NAME/run=… and OUT/index.html, in place of what an earlier report left. With `terms`
    it also judges the runs, by every property."""
    if only:
        events = events.where(F.col("run").isin(*only))
    with Store(out / TABLES) as store:
        with _damage_named():
            summaries = tables.summaries(events, store.keep)
        runs = sorted(store.rows("runs"), key=lambda row: natural(row["run"]))
        _check(runs, only, source)
        with _damage_named():
            tables.figures(events, *summaries, store.keep)
            verdicts = None if terms is None else _verdicts(store, events, terms)
        drawn = chosen(runs, only, quick, verdicts or ())
        latency = _middle(store.rows("latency"))
        figures = store.figures(drawn)
        text = render(runs, figures, source=source, latency=latency, verdicts=verdicts)
    _write(out / PAGE, text)
    return Report(out / PAGE, out / TABLES, runs, [row["run"] for row in drawn], latency, verdicts)


def _verdicts(store: Store, events: DataFrame, terms: DataFrame) -> list[Verdict]:
    known = terms.join(events.select("run").distinct(), "run", "left_semi")
    store.keep("verdicts", sentences(verify(events, known)))
    place = {name: number for number, name in enumerate(NAMES)}
    rows = sorted(store.rows("verdicts"), key=lambda row: (natural(row["run"]), place[row["property"]]))
    there = _layers(events)
    return [(row["run"], row["property"], _outcome(row, there), _sentence(row)) for row in rows]


def _layers(events: DataFrame) -> dict[str, set[str]]:
    """For each layer that a run may do without, the runs that have it."""
    found = events.groupBy("run").agg(
        F.max(F.col("kind") == "process").alias("groups"), F.max(F.col("layer") == "corel").alias("corel")
    )
    rows = found.collect()
    return {layer: {row["run"] for row in rows if row[layer]} for layer in ("groups", "corel")}


def _outcome(row: Record, there: Mapping[str, set[str]]) -> str:
    layer = LAYERS[row["property"]]
    absent = layer in there and row["run"] not in there[layer]
    return NOTHING_TO_JUDGE if absent and row["outcome"] == "holds" else str(row["outcome"])


def _sentence(row: Record) -> str:
    more = f" … and {row['count'] - 1:,} more" if row["count"] > 1 else ""
    return f"{row['text'] or ''}{more}"


@contextmanager
def _damage_named() -> Iterator[None]:
    """A file that looked whole and is not is the reader's trouble, and not Spark's."""
    try:
        yield
    except PySparkException as error:
        raise damage(error) or error from None


def _check(runs: Sequence[Record], only: Sequence[str], source: str) -> None:
    missing = sorted(set(only) - {row["run"] for row in runs}, key=natural)
    if missing:
        raise TraceError(
            f"{source}: no run named {', '.join(missing)} here: leave out --run to see which there are"
        )
    if not runs:
        raise TraceError(f"{source}: no event at all, so there is nothing to report")


def chosen(
    runs: Sequence[Record], only: Sequence[str], quick: bool, verdicts: Sequence[Verdict]
) -> list[Record]:
    """Those that were named; else the first ones, runs that break a property before others."""
    named = len(runs) if only else RUNS_DRAWN
    most = RUNS_DRAWN_QUICK if quick else named
    broken = {run for run, _, outcome, _ in verdicts if outcome == "violated"}
    first = sorted(runs, key=lambda row: row["run"] not in broken)[:most]
    return sorted(first, key=lambda row: natural(row["run"]))


def _middle(latency: Sequence[Record]) -> list[Record]:
    """What the overview has of each run."""
    rows = [row for row in latency if row["scope"] == "own" and row["percentile"] in SUMMARY_PERCENTILES]
    return sorted(
        rows, key=lambda row: (natural(row["run"]), row["layer"], row["service"], row["percentile"])
    )


def _write(path: Path, text: str) -> None:
    """In one step: a reader sees the old page or the new one."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
