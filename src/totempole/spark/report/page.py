"""One page of HTML for all runs of a trace: an overview, then a section for each run that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import median

from totempole.spark.report import plots
from totempole.spark.report.figures import MARKS_DRAWN, STAYS_DRAWN, Record, RunFigures
from totempole.spark.report.lanes import LANES_MAX, MARKS, faults, lane_nodes, marks, timeline
from totempole.spark.report.markup import document, figure, side_by_side, tiles
from totempole.spark.report.numbers import (
    drop_table,
    fault_table,
    latency_table,
    node_table,
    outage_lengths_us,
)
from totempole.spark.report.overview import Verdict, evidence, overview, properties
from totempole.spark.report.shapes import Plot, Words
from totempole.spark.report.text import bytes_text, time_text


def render(
    runs: Sequence[Record],
    drawn: Sequence[RunFigures],
    *,
    source: str,
    latency: Sequence[Record] = (),
    verdicts: Sequence[Verdict] | None = None,
) -> str:
    """`runs` are the rows of that table, and `latency` those of its table that the overview shows."""
    links = {figures.run: f"run-{number}" for number, figures in enumerate(drawn, start=1)}
    events, delivered = (sum(row[column] for row in runs) for column in ("rows", "delivered"))
    several = "" if len(runs) == 1 else "s"
    parts = [
        "<header><h1>Totem report</h1>",
        f'<p class="soft">{escape(source)}: {len(runs):,} run{several}, {events:,} events, {delivered:,} '
        "deliveries.</p></header>",
        overview(runs, links, latency, verdicts),
        *(_section(links[figures.run], figures, verdicts or ()) for figures in drawn),
        "" if verdicts is None else properties(verdicts),
        _READING,
    ]
    return document(f"Totem report: {source}", "\n".join(part for part in parts if part))


def _section(anchor: str, figures: RunFigures, verdicts: Sequence[Verdict]) -> str:
    parts = [
        f'<section id="{anchor}"><h2>{escape(figures.run)}</h2>',
        tiles(_tiles(figures)),
        evidence(figures.run, verdicts),
        "<h3>Configurations</h3>",
        figure("Configurations per processor.", _legend(figures), timeline(figures), wide=True),
        _not_drawn(figures),
        fault_table(figures),
        "<h3>Latency</h3>",
        _latency(figures, "ring"),
        latency_table(figures),
        _groups(figures),
        _log(figures),
        "<h3>Throughput and losses</h3>",
        _throughput(figures),
        drop_table(figures),
        "<h3>Token and ring</h3>",
        _ring(figures),
        "<h3>Processors</h3>",
        node_table(figures),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _tiles(figures: RunFigures) -> list[tuple[str, str]]:
    totals = figures.totals
    found = [
        ("run time", time_text(figures.length_us)),
        ("processors", str(totals["processors"])),
        ("messages submitted", f"{totals['submitted']:,}"),
        ("deliveries", f"{totals['delivered']:,}"),
        ("bytes delivered", bytes_text(totals["delivered_bytes"])),
        ("regular configurations", str(totals["rings"])),
    ]
    lengths_us = outage_lengths_us(figures.rows("outages"))
    if lengths_us:
        found.append(("median time to re-form a ring", time_text(median(lengths_us))))
    return [*found, ("trace level", totals["level"])]


# The timeline


def _legend(figures: RunFigures) -> str:
    """Of what is in this picture."""
    found = [name for kind, (_, _, name) in MARKS.items() if kind in marks(figures)]
    said = [
        "A box is a regular configuration, coloured by its ring, with its members (in parentheses: did not",
        "install it). Hatched: a transitional one. Pale: not operational, or nothing recorded any more.",
        "Grey strip: deliveries.",
        f"{'; '.join(found).capitalize()}." if found else "",
        "The numbers above are faults, listed below." if faults(figures) else "",
    ]
    return " ".join(each for each in said if each)


def _not_drawn(figures: RunFigures) -> str:
    said = []
    nodes, installed = len(lane_nodes(figures)), figures.totals["installed"]
    if nodes > LANES_MAX:
        said.append(f"{nodes - LANES_MAX} of {nodes} processors are not drawn.")
    if installed > STAYS_DRAWN:
        said.append(f"Only the {STAYS_DRAWN:,} longest of {installed:,} stays are drawn.")
    if len(figures.rows("marks")) >= MARKS_DRAWN:
        said.append(f"Only the first {MARKS_DRAWN} faults, crashes and restarts are drawn.")
    return f'<p class="soft">{" ".join(said)}</p>' if said else ""


# Rows of plots


def _latency(
    figures: RunFigures,
    layer: str,
    *more: tuple[str, str, Plot],
    begin: str = "submission",
    end: str = "delivery",
) -> str:
    one_clock = not plots.disagree(figures, layer)
    return side_by_side(
        (
            "At the originator.",
            f"From {begin} to {end} there: median, shaded to the 99th percentile.",
            plots.latency_over_time(figures, layer, "own"),
        ),
        (
            "At every node.",
            f"From {begin} to {end} anywhere: true where the nodes share a clock.",
            plots.latency_over_time(figures, layer, "all") if one_clock else _early(figures, layer),
        ),
        (
            "By percentile.",
            "At the originator; dashed, at every node." if one_clock else "At the originator.",
            plots.latency_percentiles(figures, layer),
        ),
        *more,
    )


def _early(figures: RunFigures, layer: str) -> Words:
    return Words(
        "Not drawn: the clocks of these nodes do not agree. By them, so many deliveries came before their "
        f"submission: {plots.disagree(figures, layer):,}. At the originator there is one clock only."
    )


def _log(figures: RunFigures) -> str:
    if not figures.rows("latency", layer="log"):
        return ""
    return "<h3>Durable log</h3>\n" + _latency(figures, "log", begin="append", end="green")


def _groups(figures: RunFigures) -> str:
    if not figures.totals["group_delivered"]:
        return ""
    groups = len({row["group"] for row in figures.rows("group_traffic")})
    which = (
        f"The {plots.GROUPS_DRAWN} busiest of {groups} groups,"
        if groups > plots.GROUPS_DRAWN
        else "By group,"
    )
    traffic = ("Messages received.", f"{which} all processes together.", plots.group_traffic(figures))
    return f"<h3>Process groups</h3>{_latency(figures, 'group', traffic)}"


def _throughput(figures: RunFigures) -> str:
    each = f"By node, in bins of {time_text(figures.bin_us)}; lines that agree lie within one another."
    return side_by_side(
        ("Messages delivered.", each, plots.throughput(figures, "messages_per_s")),
        ("Bytes delivered.", each, plots.throughput(figures, "bytes_per_s")),
        ("Retransmissions and drops.", "All nodes together.", plots.losses(figures)),
    )


def _ring(figures: RunFigures) -> str:
    return side_by_side(
        (
            "Token rotation.",
            "Between two visits to a node: median, shaded to the 99th percentile. An idle token rests.",
            plots.rotation_over_time(figures),
        ),
        (
            "Token rotation by percentile.",
            "By node; lines that agree lie within one another.",
            plots.rotation_percentiles(figures),
        ),
        (
            "Time to re-form a ring.",
            "From leaving the Operational state until the next ring is installed; a dot for each node.",
            plots.outages(figures),
        ),
    )


_READING = """\
<section><h2>How to read this page</h2>
<ul>
<li><b>Latency</b> runs from the application's submission to a delivery. At the originator one clock measures
it. At every node it is as good as the agreement of the clocks: exact in the simulator and among nodes of one
host. A ring packet, and a batch of a process group, counts once, however many messages it holds. In the
simulator computing takes no time: what is delivered at the instant of its submission is drawn at 1 µs, the
floor of the logarithmic axis.</li>
<li><b>Percentiles</b> are shown as far as there are enough deliveries to have them: the 99.9th needs a
thousand.</li>
<li><b>Time</b> is in bins of one width for the whole run; the last one may be a part of a bin.</li>
<li><b>To re-form a ring</b> takes from leaving the Operational state until the next ring is installed.</li>
<li>The numbers behind every plot are in the Parquet tables beside this page, by run.</li>
</ul></section>"""
