"""Figures 5.21 to 5.23 of Totem, drawn from our numbers, with what the paper states marked in black."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from totempole.spark.drawing import FAINT, PALETTE, PAPER, legend, new_figure, save_svg
from totempole.spark.topology.published import LONGER, SMALL_SHARE, applies_to
from totempole.spark.topology.results import Outcome, Results
from totempole.spark.topology.study import Design

LABELS = {
    Design.RANDOM: "random, until biconnected",
    Design.ROBUST: "robust pattern",
    Design.FILLED: "random, all edges that fit (not in the paper)",
}
COLOURS = {Design.RANDOM: PALETTE[1], Design.ROBUST: PALETTE[0], Design.FILLED: FAINT}
STYLES = {Design.RANDOM: "-", Design.ROBUST: "-", Design.FILLED: "--"}

CONNECTED_MIN = 20
"""A mean height over fewer graphs than this is chance, and is not drawn."""
BAR = 0.27


def figures(results: Results) -> Mapping[str, Figure]:
    """By the names of their files."""
    return {
        "figure-5.21": draw_heights(results),
        "figure-5.22": draw_connected(results),
        "figure-5.23": draw_sizes(results),
    }


def save_figures(results: Results, directory: Path) -> list[Path]:
    return [save_svg(figure, directory / f"{name}.svg") for name, figure in figures(results).items()]


def draw_heights(results: Results) -> Figure:
    figure, (axes,) = new_figure(title="Spanning tree height as edges are deleted (Totem figure 5.21)")
    for design, outcome in results.outcomes.items():
        drawn = [row for row in outcome.after if row.connected >= min(CONNECTED_MIN, outcome.graphs)]
        axes.plot(
            [row.deleted for row in drawn],
            [row.mean_height for row in drawn],
            STYLES[design],
            color=COLOURS[design],
            label=LABELS[design],
        )
        _mark_half(axes, design, outcome)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("edges deleted")
    axes.set_ylabel("mean height of the spanning trees (hops),\ngraphs that are still connected")
    _place(axes, results)
    legend(axes, "upper left")
    return figure


def _mark_half(axes: Axes, design: Design, outcome: Outcome) -> None:
    """Where half of the graphs have parted."""
    half = outcome.after[outcome.deletions_to(0.5)]
    label = "half of the graphs have parted" if design is Design.ROBUST else None
    axes.plot(half.deleted, half.mean_height, "o", color=COLOURS[design], markersize=5, label=label)


def draw_connected(results: Results) -> Figure:
    figure, (axes,) = new_figure(title="Graphs still connected as edges are deleted (Totem figure 5.22)")
    for design, outcome in results.outcomes.items():
        shares = [*(row.share_connected for row in outcome.after), 0.0]
        axes.plot(range(len(shares)), shares, STYLES[design], color=COLOURS[design], label=LABELS[design])
    for design in (Design.RANDOM, Design.ROBUST):
        _mark_mean(axes, design, results.outcomes[design])
    if applies_to(results.study):
        low, high = (results.random.survived + longer for longer in LONGER)
        axes.axvspan(
            low,
            high,
            ymax=0.1,
            color=PAPER,
            alpha=0.18,
            label="the paper: robust lasts 5 to 7 longer on average",
        )
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_xlabel("edges deleted")
    axes.set_ylabel("share of graphs still connected")
    _place(axes, results, left=0.01, bottom=0.14)
    legend(axes, "upper right")
    return figure


def _mark_mean(axes: Axes, design: Design, outcome: Outcome) -> None:
    axes.plot([outcome.survived] * 2, [0, 0.1], color=COLOURS[design], linewidth=2)
    left = design is Design.RANDOM
    axes.annotate(
        f"mean {outcome.survived:.1f}",
        (outcome.survived, 0.02),
        xytext=(-4 if left else 4, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        color=COLOURS[design],
        fontsize="small",
    )


def draw_sizes(results: Results) -> Figure:
    title = "The smaller component when a graph first parts (Totem figure 5.23)"
    figure, (axes, together) = new_figure(1, 2, title=title, share_y=True)
    grid = axes.get_gridspec()
    assert grid is not None
    grid.set_width_ratios([6, 1])
    for place, (design, outcome) in enumerate(results.outcomes.items()):
        offset = (place - 1) * BAR
        sizes = [size + offset for size in outcome.sizes]
        axes.bar(sizes, list(outcome.sizes.values()), BAR, color=COLOURS[design], label=LABELS[design])
        _draw_more_than_two(together, offset, design, outcome)
    if applies_to(results.study):
        together.plot([-BAR / 2, BAR / 2], [1 - SMALL_SHARE] * 2, color=PAPER, linewidth=2)
        axes.plot([], [], color=PAPER, linewidth=2, label="the paper: robust, three or more, under 1%")
    axes.set_yscale("log")
    axes.set_xlim(left=0.4)
    axes.yaxis.set_major_formatter(FuncFormatter(_percent))
    axes.set_xlabel("nodes in the smaller component")
    axes.set_ylabel("share of graphs (logarithmic)")
    together.set_xticks([0], ["three or more,\ntogether"])
    for each in (axes, together):
        each.grid(False, axis="x")
    _place(axes, results, bottom=0.66)
    legend(axes, "upper right")
    return figure


def _draw_more_than_two(axes: Axes, offset: float, design: Design, outcome: Outcome) -> None:
    share = 1 - outcome.share_of_sizes_to(2)
    if share > 0:
        axes.bar(offset, share, BAR, color=COLOURS[design])
        axes.annotate(
            f"{share:.1%}",
            (offset, share),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            rotation=90,
            color=COLOURS[design],
            fontsize="small",
        )


def _percent(value: float, _place: int) -> str:
    return f"{value * 100:.3g}%"


def _place(axes: Axes, results: Results, left: float | None = None, bottom: float = 0.04) -> None:
    """What was drawn, in a corner that the curves leave free."""
    study = results.study
    text = f"{study.graphs:,} graphs of each design, {study.nodes} nodes, degree at most {study.degree}"
    place, side = (0.99, "right") if left is None else (left, "left")
    axes.text(place, bottom, text, transform=axes.transAxes, ha=side, color=FAINT, fontsize="small")
