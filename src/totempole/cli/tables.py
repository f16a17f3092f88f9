"""The tables that several commands show, each as a table for eyes and as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from totempole.checkers import PROPERTIES, Outcome, Report, Verdict
from totempole.cli.figure import members_text
from totempole.cli.output import table
from totempole.cli.timeline import Timeline
from totempole.trace.lives import Stay
from totempole.types import ProcessorId

STYLES = {Outcome.HOLDS: "green", Outcome.VIOLATED: "bold red", Outcome.UNDECIDED: "yellow"}
CITATIONS = {item.name: item.citation for item in PROPERTIES}

VIOLATIONS_SHOWN = 3
"""Of each property; the JSON has those that the checkers list."""


# Verdicts


def worst(reports: Iterable[Report]) -> list[Verdict]:
    """One verdict for each property: violated if ever so, else what the last report says."""
    found: dict[str, Verdict] = {}
    for report in reports:
        for verdict in report.verdicts:
            before = found.get(verdict.property)
            if before is None or before.outcome is not Outcome.VIOLATED:
                found[verdict.property] = verdict
    return list(found.values())


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    shown = table("property", "citation", "verdict", title="Properties")
    for verdict in verdicts:
        shown.add_row(verdict.property, Text(_citation(verdict), "dim"), _outcome(verdict))
    return shown


def _citation(verdict: Verdict) -> str:
    """What only a simulation can judge is no property of the papers."""
    return CITATIONS.get(verdict.property, "simulated programs")


def _outcome(verdict: Verdict) -> Text:
    count = f" ({verdict.count})" if verdict.count > 1 else ""
    return Text(f"{verdict.told()}{count}", style="dim" if verdict.note else STYLES[verdict.outcome])


def violation_lines(verdicts: Iterable[Verdict]) -> list[str]:
    lines = []
    for verdict in verdicts:
        lines += [str(violation) for violation in verdict.violations[:VIOLATIONS_SHOWN]]
        if verdict.count > VIOLATIONS_SHOWN:
            lines.append(f"{verdict.property}: {verdict.count - VIOLATIONS_SHOWN} more like these")
    return lines


def verdict_data(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    return [
        {
            "property": verdict.property,
            "citation": _citation(verdict),
            "verdict": str(verdict.outcome),
            "count": verdict.count,
            "violations": [_violation_data(violation) for violation in verdict.violations],
            "reasons": list(verdict.reasons),
            "note": verdict.note,
        }
        for verdict in verdicts
    ]


def _violation_data(violation: Any) -> dict[str, Any]:
    return {
        "nodes": list(violation.nodes),
        "messages": list(violation.messages),
        "steps": [list(step) for step in violation.steps],
        "text": violation.text,
    }


# Deliveries and configurations


def delivery_table(timeline: Timeline, names: Mapping[ProcessorId, str]) -> Table:
    numbers = ("sent", "delivered", "safe", "transitional", "configurations", "lives")
    shown = table("processor", *numbers, "ends in", title="Deliveries", right=numbers)
    for row in delivery_data(timeline, names):
        counts = [f"{row[column]:,}" for column in ("sent", "delivered", "safe", "transitional")]
        installed = str(len(row["configurations"]))
        shown.add_row(str(row["processor"]), *counts, installed, str(row["lives"]), str(row["ends in"]))
    return shown


def delivery_data(timeline: Timeline, names: Mapping[ProcessorId, str]) -> list[dict[str, Any]]:
    return [_processor_data(timeline, names, node) for node in timeline.nodes]


def _processor_data(
    timeline: Timeline, names: Mapping[ProcessorId, str], node: ProcessorId
) -> dict[str, Any]:
    stays = timeline.stays(node)
    return {
        "processor": names[node],
        "sent": timeline.originated[node],
        "delivered": sum(stay.delivered for stay in stays),
        "safe": sum(stay.safe for stay in stays),
        "transitional": sum(stay.delivered for stay in stays if not stay.regular),
        "lives": timeline.lives(node),
        "ends in": _shown(stays[-1], names) if stays else "",
        "configurations": [_stay_data(stay, names) for stay in stays],
    }


def _stay_data(stay: Stay, names: Mapping[ProcessorId, str]) -> dict[str, Any]:
    return {
        "at_us": stay.at_us,
        "id": stay.name,
        "kind": "regular" if stay.regular else "transitional",
        "members": [names[member] for member in stay.members],
        "delivered": stay.delivered,
    }


def _shown(stay: Stay, names: Mapping[ProcessorId, str]) -> str:
    return members_text(stay, names, stay.members)


# Coverage

SECTIONS = (("fault", "fate", "crash in", "run"), ("transition", "branch"), ("groups", "process"))
"""Kinds of things to reach, those of one line side by side."""


def coverage_table(coverage: Mapping[str, int], expected: Sequence[str]) -> Group:
    """How often each thing was reached; what should have been and was not, in red."""
    everything = dict.fromkeys([*expected, *sorted(coverage)])
    lines: list[Table | Text] = []
    for kinds in SECTIONS:
        if not any(name.startswith(tuple(f"{kind}: " for kind in kinds)) for name in everything):
            continue
        line = Table.grid(padding=(0, 3, 0, 0))
        line.add_row(*(_section(kind, coverage, everything) for kind in kinds))
        lines += [Text(), line]
    return Group(*lines)


def _section(kind: str, coverage: Mapping[str, int], everything: Iterable[str]) -> Table:
    shown = table(kind, "times", right=("times",))
    shown.padding = (0, 1, 0, 0)
    for name in everything:
        if name.startswith(f"{kind}: "):
            count = coverage.get(name, 0)
            style = "" if count else "bold red"
            shown.add_row(Text(name.removeprefix(f"{kind}: "), style=style), Text(f"{count:,}", style=style))
    return shown


# What a clean search excludes


def rarest_excluded(clean: int) -> float | None:
    """The rule of three: after so many clean runs, a bug that shows in this share of them or more would have
    been seen, with 95 % certainty."""
    return 3 / clean if clean > 3 else None


def what_may_remain(clean: int) -> str:
    share = rarest_excluded(clean)
    if share is None:
        return "So few clean runs exclude nothing."
    return (
        f"{clean:,} clean runs: a bug that shows in fewer than one of {clean // 3:,} runs "
        f"(3/N = {share:.2g}) may remain."
    )
