"""The plots of one run's numbers: each an inline SVG, or a sentence why there is nothing to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import rc_context

from totempole.spark.drawing import FAINT, PALETTE, STYLE
from totempole.spark.report import shapes
from totempole.spark.report.figures import Record, RunFigures
from totempole.spark.report.shapes import Plot, Words, legend_above, picture, small, time_axis
from totempole.spark.report.text import time_text

NODES_DRAWN = 8
"""Lines of a plot: one for each node. More nodes are drawn as their least, middle and most."""
GROUPS_DRAWN = 6
GROUP_LETTERS = 14

SERVICE_COLOURS = {"agreed": PALETTE[0], "safe": PALETTE[1], "green": PALETTE[2]}
NO_LATENCY = "No message was delivered whose submission is in the trace."
NO_DELIVERY = "No message was delivered."


def not_recorded(what: str, figures: RunFigures) -> Words:
    """The plot would be empty because of the trace, not because of the ring."""
    return Words(
        f"{what} are recorded at the level “protocol”, and this trace has level “{figures.totals['level']}”."
    )


# Latency


def latency_over_time(figures: RunFigures, layer: str, scope: str) -> Plot:
    rows = figures.rows("latency_over_time", layer=layer, scope=scope)
    if not rows:
        return Words(NO_LATENCY)
    with rc_context(STYLE):
        figure, axes = small()
        for service, mine in by(rows, "service"):
            shapes.band(axes, figures, mine, SERVICE_COLOURS.get(service, FAINT), service)
        shapes.duration_scale(axes, _durations(rows), "latency")
        time_axis(axes, figures)
        legend_above(axes)
        return picture(figure)


def latency_percentiles(figures: RunFigures, layer: str) -> Plot:
    """The whole curve: how bad the worst of a hundred and of a thousand were."""
    scopes = ("own",) if disagree(figures, layer) else ("own", "all")
    rows = [row for row in figures.rows("latency", layer=layer) if row["scope"] in scopes]
    rows = [row for row in rows if is_resolved(row["deliveries"], row["percentile"])]
    if not rows:
        return Words(NO_LATENCY)
    with rc_context(STYLE):
        figure, axes = small()
        for service, mine in by(rows, "service"):
            colour = SERVICE_COLOURS.get(service, FAINT)
            for scope, of_scope in by(mine, "scope"):
                own = scope == "own"
                look = {"ls": "-", "label": service} if own else {"ls": "--"}
                shapes.curve(axes, of_scope, "latency_us", colour, **look)
        shapes.percentile_axis(axes, rows)
        shapes.duration_scale(axes, [row["latency_us"] for row in rows], "latency")
        legend_above(axes)
        return picture(figure)


def disagree(figures: RunFigures, layer: str) -> int:
    """Deliveries that came before they were sent: the clocks of the nodes are not one."""
    rows = figures.rows("latency", layer=layer, scope="all", percentile=50.0)
    return sum(row["negative"] for row in rows)


def is_resolved(number: int, percent: float) -> bool:
    """With a hundred deliveries there is no 99.9th percentile."""
    return percent == 50 or number * (100 - percent) >= 99.999


# Throughput and losses


def throughput(figures: RunFigures, column: str) -> Plot:
    """`column` is messages_per_s or bytes_per_s."""
    found = by(figures.rows("throughput"), "node")
    if not found:
        return Words(NO_DELIVERY)
    lines = [(figures.name(node), shapes.filled(figures, mine, column)) for node, mine in found]
    with rc_context(STYLE):
        figure, axes = small()
        if len(lines) <= NODES_DRAWN:
            shapes.lines(axes, figures, lines)
        else:
            shapes.spread(axes, figures, [line for _, line in lines])
        shapes.rate_scale(axes, column)
        time_axis(axes, figures)
        legend_above(axes)
        return picture(figure)


def group_traffic(figures: RunFigures) -> Plot:
    found = by(figures.rows("group_traffic"), "group")
    if not found:
        return Words(NO_DELIVERY)
    busiest = sorted(found, key=lambda pair: -sum(row["messages"] for row in pair[1]))[:GROUPS_DRAWN]
    lines = [(_short(group), shapes.filled(figures, mine, "messages_per_s")) for group, mine in busiest]
    with rc_context(STYLE):
        figure, axes = small()
        shapes.lines(axes, figures, lines)
        shapes.rate_scale(axes, "messages_per_s")
        time_axis(axes, figures)
        legend_above(axes)
        return picture(figure)


def losses(figures: RunFigures) -> Plot:
    if not figures.is_protocol:
        return not_recorded("Retransmissions and drops", figures)
    rows = figures.rows("losses")
    if not rows:
        return Words("Nothing was retransmitted and nothing dropped.")
    with rc_context(STYLE):
        figure, axes = small()
        base = [0.0] * figures.bins
        for place, (kind, name) in enumerate(
            (("retransmit", "retransmitted"), ("drop", "dropped on arrival"))
        ):
            mine = shapes.filled(figures, [row for row in rows if row["kind"] == kind], "packets")
            top = [below + more for below, more in zip(base, mine, strict=True)]
            times, upper = shapes.steps(figures, top)
            lower = shapes.steps(figures, base)[1]
            axes.fill_between(times, lower, upper, step="post", color=PALETTE[place], lw=0, label=name)
            base = top
        shapes.count_scale(axes, f"packets in {time_text(figures.bin_us)}")
        time_axis(axes, figures)
        legend_above(axes)
        return picture(figure)


# The token and the ring


def rotation_over_time(figures: RunFigures) -> Plot:
    rows = figures.rows("rotation_over_time")
    if not rows:
        return _no_tokens(figures)
    with rc_context(STYLE):
        figure, axes = small()
        shapes.band(axes, figures, rows, PALETTE[2], "")
        shapes.duration_scale(axes, _durations(rows), "token rotation")
        time_axis(axes, figures)
        return picture(figure)


def rotation_percentiles(figures: RunFigures) -> Plot:
    rows = [row for row in figures.rows("rotation") if is_resolved(row["visits"], row["percentile"])]
    if not rows:
        return _no_tokens(figures)
    nodes = [pair for pair in by(rows, "node") if pair[0]]
    few = len(nodes) <= NODES_DRAWN
    with rc_context(STYLE):
        figure, axes = small()
        for place, (node, mine) in enumerate(nodes):
            look: dict[str, Any] = {"colour": FAINT, "alpha": 0.5}
            if few:
                width = shapes.width_of(place, len(nodes))
                look = {"colour": PALETTE[place], "lw": width, "label": figures.name(node)}
            shapes.curve(axes, mine, "rotation_us", **look)
        if not few:
            everyone = [row for row in rows if not row["node"]]
            shapes.curve(axes, everyone, "rotation_us", PALETTE[2], label="all nodes")
        drawn = [row for row in rows if row["node"] or not few]
        shapes.percentile_axis(axes, drawn)
        shapes.duration_scale(axes, [row["rotation_us"] for row in drawn], "token rotation")
        legend_above(axes)
        return picture(figure)


def outages(figures: RunFigures) -> Plot:
    """How long each node was without an operational ring, each time."""
    found = [row for row in figures.rows("outages") if row["until_us"] is not None]
    if not found:
        return Words("No node that had a ring left the Operational state and came back to it.")
    with rc_context(STYLE):
        figure, axes = small()
        times = [(row["from_us"] - figures.start_us) / 1e6 for row in found]
        lengths = [max(row["until_us"] - row["from_us"], 1) for row in found]
        axes.plot(times, lengths, ls="", marker="o", ms=4, mew=0, alpha=0.55, color=PALETTE[6])
        shapes.duration_scale(axes, lengths, "out of operation")
        time_axis(axes, figures)
        return picture(figure)


def _no_tokens(figures: RunFigures) -> Words:
    if figures.is_protocol:
        return Words("No token came twice to a node.")
    return not_recorded("Token visits", figures)


def _durations(rows: Sequence[Record]) -> list[float]:
    return [row[part] for row in rows for part in ("p50_us", "p99_us")]


def by(rows: Sequence[Record], column: str) -> list[tuple[Any, list[Record]]]:
    """In parts by a column's values, sorted; within them the rows' order is kept."""
    parts: dict[Any, list[Record]] = {}
    for row in rows:
        parts.setdefault(row[column], []).append(row)
    return sorted(parts.items())


def _short(name: str) -> str:
    return name if len(name) <= GROUP_LETTERS else f"{name[: GROUP_LETTERS - 1]}…"
