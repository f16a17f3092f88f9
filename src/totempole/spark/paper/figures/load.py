"""Totem figure 4.20: rotation time and latency as the load grows."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from totempole.sim.paper.machines import MS, SUN_4_IPC
from totempole.spark.drawing import BASE_PT, FAINT, PALETTE, label_axes, legend, new_figure
from totempole.spark.paper.figures.frame import MODEL, PaperFigure, mark, mark_in_legend
from totempole.spark.paper.model import RingModel
from totempole.spark.paper.published import stated_in
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import AGREED, LOAD, SAFE

SIZE = 1_000
HIGHEST_MS = 70
PER_PERCENT = SUN_4_IPC.lan.bandwidth_bytes_per_s / SIZE / 100
"""Messages a second for each percent of the medium."""
LINES = (
    (SAFE, "to_all_us", "to safe delivery by all", "^"),
    (AGREED, "rotation_us", "token rotation (agreed)", "s"),
    (AGREED, "to_all_us", "to agreed delivery by all", "o"),
)


def _share(load: Any) -> Any:
    return load / PER_PERCENT


def _load(share: Any) -> Any:
    return share * PER_PERCENT


def _draw_lines(axes: Axes, results: Results) -> None:
    for (series, measure, label, marker), colour in zip(LINES, PALETTE, strict=False):
        loads, times_us = results.line("load", series, measure)
        times_ms = [time_us / MS for time_us in times_us]
        axes.plot(loads, times_ms, marker=marker, markersize=4, color=colour, label=label)


def _draw_model(axes: Axes) -> None:
    model = RingModel.of(SUN_4_IPC, SIZE)
    loads = range(10, 801, 5)
    for time_us, colour in zip((model.safe_us, model.rotation_us, model.agreed_us), PALETTE, strict=False):
        axes.plot(loads, [time_us(load) / MS for load in loads], color=colour, **MODEL)
    axes.plot([], [], color=FAINT, label="the same by the analytical model", **MODEL)


def _draw(results: Results) -> Figure:
    figure, (axes,) = new_figure(height_in=4.6)
    _draw_lines(axes, results)
    _draw_model(axes)
    label_axes(axes, "messages per second, Poisson arrivals, 1000 bytes", "mean time (ms)")
    axes.set_xlim(0, 800)
    axes.set_ylim(0, HIGHEST_MS)
    above = axes.secondary_xaxis("top", functions=(_share, _load))
    above.set_xlabel("useful utilisation of 10 Mbit/s (%)", fontsize=BASE_PT)
    above.tick_params(labelsize=BASE_PT - 0.5, color=FAINT)
    for stated, offset in zip(
        [each for each in stated_in("4.20") if each.at is not None], [(-10, 12), (12, -2)], strict=True
    ):
        mark(axes, stated, offset, "right" if offset[0] < 0 else "left")
    mark_in_legend(axes)
    legend(axes, "upper left")
    return figure


FIGURE_4_20 = PaperFigure(
    "4.20",
    "Totem",
    "Token rotation time and latency, five Sun 4/IPC",
    "From a message's submission until the last of the five has it in order. The model counts rotations "
    "alone: that a message must be sent and carried before it can be received is not in it.",
    SUN_4_IPC,
    LOAD,
    _draw,
)
