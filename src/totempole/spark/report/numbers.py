"""The tables of one run's numbers, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from statistics import median

from totempole.spark.report.figures import Record, RunFigures
from totempole.spark.report.lanes import faults, lane_nodes
from totempole.spark.report.markup import NOTHING, table
from totempole.spark.report.plots import is_resolved
from totempole.spark.report.text import bytes_text, count_text, time_text

SHOWN_PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
FAULTS_LISTED = 60
REASONS_LISTED = 12
NODE_COLUMNS = (
    *("node", "lives", "submitted", "delivered", "bytes", "delivered/s", "installed", "crashes"),
    *("re-formed", "median", "longest", "rotation p50", "p99", "resent", "dropped"),
)
LAYERS = {"ring": "ring packets", "group": "group batches", "log": "runs of the log"}
SCOPES = {"own": "at the originator", "all": "at every node"}


def latency_table(figures: RunFigures) -> str:
    headers = ("of", "service", "where", "deliveries", "mean", *(f"p{p:g}" for p in SHOWN_PERCENTILES), "max")
    rows = figures.rows("latency")
    keys = dict.fromkeys((row["layer"], row["scope"], row["service"]) for row in rows)
    lines = [
        _latency_line([row for row in rows if (row["layer"], row["scope"], row["service"]) == key])
        for key in sorted(keys, key=lambda key: (key[0] != "ring", key[2], key[1] != "own"))
    ]
    return table(headers, lines, words=("of", "service", "where")) if lines else ""


def _latency_line(rows: Sequence[Record]) -> list[str]:
    first = rows[0]
    found = {row["percentile"]: row["latency_us"] for row in rows}
    return [
        LAYERS[first["layer"]],
        escape(first["service"]),
        SCOPES[first["scope"]],
        f"{first['deliveries']:,}",
        time_text(first["mean_us"]),
        *(percentile_cell(first["deliveries"], percent, found[percent]) for percent in SHOWN_PERCENTILES),
        time_text(first["max_us"]),
    ]


def percentile_cell(number: int, percent: float, value_us: float) -> str:
    return time_text(value_us) if is_resolved(number, percent) else NOTHING


def node_table(figures: RunFigures) -> str:
    """What each processor did. Rates are over the time in which it wrote anything."""
    lines = [_node_line(figures, node) for node in lane_nodes(figures)]
    return table(NODE_COLUMNS, lines)


def _node_line(figures: RunFigures, node: int) -> list[str]:
    lives = figures.rows("lives", node=node)
    if not lives:
        return [escape(figures.name(node)), "no trace", *[NOTHING] * (len(NODE_COLUMNS) - 2)]
    alive = [life for life in lives if life["last_us"] is not None]
    total = {
        name: sum(life[name] for life in lives)
        for name in ("submitted", "delivered", "delivered_bytes", "installed", "crashes")
    }
    lasted_us = sum(life["last_us"] - life["first_us"] for life in alive)
    return [
        escape(figures.name(node)),
        str(len(alive)),
        f"{total['submitted']:,}",
        f"{total['delivered']:,}",
        bytes_text(total["delivered_bytes"]),
        count_text(total["delivered"] * 1e6 / lasted_us) if lasted_us else NOTHING,
        f"{total['installed']:,}",
        str(total["crashes"]),
        *_outage_cells(figures.rows("outages", node=node)),
        *_protocol_cells(figures, node),
    ]


def _outage_cells(outages: Sequence[Record]) -> list[str]:
    lengths = outage_lengths_us(outages)
    if not lengths:
        return ["0", NOTHING, NOTHING]
    return [str(len(lengths)), time_text(median(lengths)), time_text(max(lengths))]


def outage_lengths_us(outages: Iterable[Record]) -> list[int]:
    """Of those that ended in the same life."""
    return [row["until_us"] - row["from_us"] for row in outages if row["until_us"] is not None]


def _protocol_cells(figures: RunFigures, node: int) -> list[str]:
    if not figures.is_protocol:
        return [NOTHING] * 4
    rotation = {row["percentile"]: row for row in figures.rows("rotation", node=node)}
    cells = [
        percentile_cell(rotation[percent]["visits"], percent, rotation[percent]["rotation_us"])
        if percent in rotation
        else NOTHING
        for percent in (50.0, 99.0)
    ]
    lost = [
        sum(row["packets"] for row in figures.rows("losses", node=node, kind=kind))
        for kind in ("retransmit", "drop")
    ]
    return [*cells, *(f"{number:,}" for number in lost)]


def drop_table(figures: RunFigures) -> str:
    counts: dict[str, int] = {}
    for row in figures.rows("losses", kind="drop"):
        counts[row["reason"]] = counts.get(row["reason"], 0) + row["packets"]
    if not counts:
        return ""
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    lines = [[escape(reason), f"{number:,}"] for reason, number in most[:REASONS_LISTED]]
    return table(("reason", "packets"), lines, words=("reason",), caption="Why packets were dropped")


def fault_table(figures: RunFigures) -> str:
    """The numbers over the timeline, and what they stand for."""
    found = faults(figures)
    if not found:
        return ""
    lines = [
        [str(number), time_text(at_us), escape("; ".join(told))]
        for number, (at_us, told) in enumerate(found[:FAULTS_LISTED], start=1)
    ]
    left = len(found) - FAULTS_LISTED
    title = "Faults that the simulation injected"
    shown = table(("", "at", "what"), lines, caption=title, sentences="what")
    return shown + (f'<p class="soft">… and {left} more.</p>' if left > 0 else "")
