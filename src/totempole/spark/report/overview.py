"""The head of the page: a line for each run, and the verdicts on the properties, if they were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from totempole.spark.report.figures import Record
from totempole.spark.report.markup import NOTHING, table
from totempole.spark.report.numbers import percentile_cell
from totempole.spark.report.text import count_text, time_text

RUNS_LISTED = 200
"""Lines of the overview; the table `runs` has all."""
COLUMNS = (
    *("run", "level", "processors", "lives", "time", "submitted", "delivered", "delivered/s"),
    *("latency p50", "p99", "rings", "crashes", "faults"),
)
NOTHING_TO_JUDGE = "nothing to judge"
"""The outcome of a property of groups, or of the log, in a run that has none."""
OUTCOMES = ("holds", "violated", "undecided", NOTHING_TO_JUDGE)
WORST_FIRST = ("violated", "undecided", "holds", NOTHING_TO_JUDGE)

Verdict = tuple[str, str, str, str]
"""A run, a property, its outcome (one of OUTCOMES), and a sentence about it."""


def overview(
    runs: Sequence[Record],
    links: Mapping[str, str],
    latency: Sequence[Record],
    verdicts: Sequence[Verdict] | None,
) -> str:
    """`links` leads from the runs that are drawn to their sections."""
    middle = _middle(latency)
    judged = None if verdicts is None else _judged(verdicts)
    lines = []
    for row in runs[:RUNS_LISTED]:
        line = _line(row, links.get(row["run"]), middle.get(row["run"], {}))
        lines.append(line if judged is None else [*line, judged.get(row["run"], NOTHING)])
    headers = COLUMNS if judged is None else (*COLUMNS, "properties")
    shown = table(headers, lines, words=("run", "level", "properties"))
    return f"<section><h3>Runs</h3>{shown}{_left_out(len(runs), len(links))}</section>"


def properties(verdicts: Sequence[Verdict]) -> str:
    """In how many runs each property holds."""
    counts: dict[str, dict[str, int]] = {}
    for _, name, outcome, _ in verdicts:
        of_property = counts.setdefault(name, dict.fromkeys(OUTCOMES, 0))
        of_property[outcome] += 1
    idle = [name for name, found in counts.items() if found[NOTHING_TO_JUDGE] == sum(found.values())]
    lines = [
        [escape(name), *(_count(*each) for each in found.items())]
        for name, found in counts.items()
        if name not in idle
    ]
    shown = table(("property", *OUTCOMES), lines, words=("property",), caption="In how many runs")
    return f"<section><h2>Properties</h2>{shown}{_idle(idle)}</section>"


def _idle(names: Sequence[str]) -> str:
    if not names:
        return ""
    listed = escape(", ".join(names))
    return f'<p class="soft">Nothing to judge, for no run has what they are about: {listed}.</p>'


def evidence(run: str, verdicts: Sequence[Verdict]) -> str:
    """What of a run does not hold, or cannot be told."""
    lines = [
        [f'<span class="{outcome}">{outcome}</span>', escape(name), escape(text)]
        for mine, name, outcome, text in sorted(verdicts, key=lambda each: WORST_FIRST.index(each[2]))
        if mine == run and outcome in ("violated", "undecided")
    ]
    if not lines:
        return ""
    headers = ("verdict", "property", "evidence")
    return "<h3>Properties</h3>" + table(headers, lines, words=headers, sentences="evidence")


def _line(row: Record, link: str | None, middle: Mapping[str, str]) -> list[str]:
    length_us = row["end_us"] - row["start_us"]
    name = escape(row["run"])
    return [
        f'<a href="#{link}">{name}</a>' if link else name,
        escape(row["level"]),
        str(row["processors"]),
        str(row["lives"]),
        time_text(length_us),
        f"{row['submitted']:,}",
        f"{row['delivered']:,}",
        count_text(row["delivered"] * 1e6 / length_us) if length_us else NOTHING,
        middle.get("p50", NOTHING),
        middle.get("p99", NOTHING),
        str(row["rings"]),
        str(row["crashes"]),
        str(row["faults"]),
    ]


def _middle(latency: Sequence[Record]) -> dict[str, dict[str, str]]:
    """For each run, percentiles at the originator, of the service that the run has most of."""
    found: dict[str, dict[str, str]] = {}
    service: dict[str, str] = {}
    for row in sorted(latency, key=lambda row: (-row["deliveries"], row["service"])):
        if row["layer"] == "ring" and row["scope"] == "own":
            if row["service"] != service.setdefault(row["run"], row["service"]):
                continue
            cell = percentile_cell(row["deliveries"], row["percentile"], row["latency_us"])
            found.setdefault(row["run"], {})[f"p{row['percentile']:g}"] = cell
    return found


def _judged(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """For each run the worst, and how many of them."""
    found: dict[str, list[str]] = {}
    for run, _, outcome, _ in verdicts:
        found.setdefault(run, []).append(outcome)
    worst = {run: next(each for each in WORST_FIRST if each in mine) for run, mine in found.items()}
    return {run: _count(worst[run], mine.count(worst[run]), worst[run]) for run, mine in found.items()}


def _count(outcome: str, count: int, unit: str = "") -> str:
    style = "soft" if outcome == NOTHING_TO_JUDGE else outcome
    return f'<span class="{style}">{f"{count:,} {unit}".rstrip()}</span>' if count else NOTHING


def _left_out(runs: int, drawn: int) -> str:
    said = []
    if runs > RUNS_LISTED:
        said.append(f"{runs - RUNS_LISTED:,} more in the Parquet table “runs”.")
    if runs > drawn:
        said.append(
            f"{drawn} of {runs:,} runs are drawn below, {runs - drawn:,} left out: --run NAME draws others."
        )
    return f'<p class="soft">{" ".join(said)}</p>' if said else ""
