"""Totem figures 4.18 and 4.19: how many messages are ordered, and how much of the Ethernet is put to use."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from totempole.sim.paper.machines import SUN_4_IPC
from totempole.spark.drawing import FAINT, PALETTE, label_axes, legend, new_figure
from totempole.spark.paper.figures.frame import MODEL, PaperFigure, mark, mark_in_legend
from totempole.spark.paper.model import RingModel
from totempole.spark.paper.published import stated_in
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import ALL, ONE, SIZES, THROUGHPUT

MODEL_SIZES = range(SIZES[0], SIZES[-1] + 1, 2)
LINES = ((ALL, "all five processors send", "-", "o"), (ONE, "a single processor sends", ":", "s"))


def _per_second(rate_per_s: float, _size: float) -> float:
    return rate_per_s


def _share(rate_per_s: float, size: float) -> float:
    """Percent of 10 Mbit/s, contents only."""
    return 100 * rate_per_s * size / SUN_4_IPC.lan.bandwidth_bytes_per_s


def _draw(
    results: Results,
    shown: Callable[[float, float], float],
    modelled: Callable[[RingModel], float],
    about: str,
) -> tuple[Figure, Axes]:
    figure, (axes,) = new_figure()
    for (series, label, style, marker), colour in zip(LINES, PALETTE, strict=False):
        sizes, rates = results.line("throughput", series, "messages_per_s")
        values = [shown(rate, size) for size, rate in zip(sizes, rates, strict=True)]
        axes.plot(sizes, values, linestyle=style, marker=marker, markersize=4, color=colour, label=label)
    models = [modelled(RingModel.of(SUN_4_IPC, size)) for size in MODEL_SIZES]
    axes.plot(MODEL_SIZES, models, color=FAINT, label="analytical model, all send", **MODEL)
    label_axes(axes, "message size (bytes)", about)
    axes.set_xlim(0, 1_400)
    mark_in_legend(axes)
    return figure, axes


def _draw_rates(results: Results) -> Figure:
    figure, axes = _draw(
        results, _per_second, lambda model: model.throughput_per_s, "messages ordered per second"
    )
    axes.set_ylim(0, 1_300)
    for stated in stated_in("4.18"):
        if stated.at is not None:
            mark(
                axes,
                stated,
                (12, 14) if stated.at < 100 else (-8, -20),
                "left" if stated.at < 100 else "right",
            )
    legend(axes, "lower left")
    return figure


def _draw_utilisation(results: Results) -> Figure:
    figure, axes = _draw(
        results, _share, lambda model: 100 * model.utilisation, "useful utilisation of 10 Mbit/s (%)"
    )
    axes.set_ylim(0, 100)
    for stated in stated_in("4.19"):
        if stated.at is not None:
            mark(axes, stated, (-12, 14), "right")
    legend(axes, "lower right")
    return figure


FIGURE_4_18 = PaperFigure(
    "4.18",
    "Totem",
    "Messages ordered per second, five Sun 4/IPC",
    "Every processor, or one, has always more to send; window_size is 70.",
    SUN_4_IPC,
    THROUGHPUT,
    _draw_rates,
)
FIGURE_4_19 = PaperFigure(
    "4.19",
    "Totem",
    "Utilisation of the Ethernet, five Sun 4/IPC",
    "The same runs. Useful is what the messages contain: no headers, no token.",
    SUN_4_IPC,
    THROUGHPUT,
    _draw_utilisation,
)
