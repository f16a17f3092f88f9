"""Totem CACM figure 7: the distribution of latency, for two kinds of arrivals and several loss rates."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from totempole.sim.paper.machines import MS, SPARCSTATION_20
from totempole.spark.drawing import PALETTE, label_axes, legend, new_figure, panel_title
from totempole.spark.paper.figures.frame import PaperFigure
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import DENSITY, EVEN, LOSSES, POISSON

LEAST_PER_MS = 1e-5
STYLES = ("-", "--", "-.", ":")


def _label(loss: float) -> str:
    text = f"r = {loss:.5f}".rstrip("0")
    return f"{text} (typical LAN)" if loss == LOSSES[0] else text


def _title(axes: Axes, results: Results, series: str) -> None:
    """With the place where the last hundredth begins, as Totem CACM compares the two kinds by their tails."""
    title = f"{series} arrivals"
    tail_us = results.statistic("density", series, LOSSES[0], "each_us", "p99")
    if tail_us is not None:
        axes.axvline(tail_us / MS, color=PALETTE[0], linewidth=0.9, alpha=0.7)
        title += f": 99 % within {tail_us / MS:.1f} ms"
    panel_title(axes, title)


def _draw(results: Results) -> Figure:
    figure, panels = new_figure(1, 2, height_in=3.8, share_x=True, share_y=True)
    for axes, series in zip(panels, (POISSON, EVEN), strict=True):
        for place, loss in enumerate(results.xs("density", series)):
            waits_us, densities = results.density("density", series, loss, "each_us")
            axes.plot(
                [wait_us / MS for wait_us in waits_us],
                [density * MS for density in densities],
                linestyle=STYLES[place % len(STYLES)],
                color=PALETTE[place % len(PALETTE)],
                label=_label(loss),
            )
        _title(axes, results, series)
        axes.set_yscale("log")
        axes.set_ylim(LEAST_PER_MS, 2)
        axes.set_xlim(0, DENSITY.bins[0].high / MS)
        label_axes(axes, "latency to agreed delivery (ms)")
    label_axes(panels[0], "latency to agreed delivery (ms)", "probability density (per ms)")
    legend(panels[0], "upper right")
    return figure


FIGURE_7 = PaperFigure(
    "7",
    "Totem CACM",
    "Probability density of latency, eight SPARCstation 20",
    "1000 messages of 1000 bytes a second; r is the probability that a receiver loses a message. From "
    "submission to delivery at each processor that did not send the message. On a LAN, Totem CACM says, r is "
    "typically below 0.00001; the lines are where 99 % are delivered then.",
    SPARCSTATION_20,
    DENSITY,
    _draw,
)
