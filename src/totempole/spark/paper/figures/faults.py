"""What the papers state about faults without a figure: a lost token (Totem §4.4), a crash (Totem CACM)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from totempole.sim.paper.machines import MS, SPARCSTATION_20, SUN_4_IPC
from totempole.spark.drawing import BASE_PT, PALETTE, PAPER, label_axes, legend, new_figure, panel_title
from totempole.spark.paper.figures.frame import PaperFigure
from totempole.spark.paper.published import TOKEN_LOSS_US, Published, stated_in
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import CRASH, LOADED, SATURATED, TOKEN_LOSS, Bins


def _bars(
    axes: Axes,
    results: Results,
    place: tuple[str, str, float, str],
    bins: Bins,
    label: str,
    colour: str,
    less: float,
) -> None:
    """The share of the samples in each bin, and their mean as a line."""
    middles, densities = results.density(*place)
    lefts = [(middle - less - bins.width / 2) / MS for middle in middles]
    shares = [100 * density * bins.width for density in densities]
    axes.bar(
        lefts,
        shares,
        width=bins.width / MS,
        align="edge",
        color=colour,
        alpha=0.55,
        edgecolor="white",
        label=label,
    )
    mean = results.statistic(*place)
    if mean is not None:
        axes.axvline((mean - less) / MS, color=colour, linewidth=1.4)


def _limit(axes: Axes, stated: Published) -> None:
    axes.axvline(stated.value, color=PAPER, linestyle="--", linewidth=1.2)
    axes.annotate(
        f"paper: {stated.stated}",
        (stated.value, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -6),
        textcoords="offset points",
        fontsize=BASE_PT - 1,
        color=PAPER,
        va="top",
    )


def _finish(axes: Axes, title: str, until_ms: float, about: str) -> None:
    panel_title(axes, title)
    axes.set_xlim(0, until_ms)
    axes.set_ylim(0, 100)
    label_axes(axes, "time (ms); solid lines are our means", about)


def _draw_token_loss(results: Results) -> Figure:
    figure, panels = new_figure(1, 2, height_in=3.4, share_y=True)
    titles = ("Re-formed, after the timeout of 100 ms", "The token passed again")
    for axes, title, x in zip(panels, titles, (0.0, 1.0), strict=True):
        less = 0.0 if x else TOKEN_LOSS_US
        for series, colour in zip((SATURATED, LOADED), PALETTE, strict=False):
            place = ("token-loss", series, x, "gone_us")
            _bars(axes, results, place, TOKEN_LOSS.bins[0], series, colour, less)
        _limit(axes, next(each for each in stated_in("token-loss") if each.at == x))
        _finish(axes, title, 50 if x == 0 else 30, "" if x else "share of token losses (%)")
    legend(panels[0], "upper left")
    return figure


def _draw_crash(results: Results) -> Figure:
    figure, panels = new_figure(1, 2, height_in=3.2, share_y=True)
    titles = ("Until the crash is detected", "From there until a ring is formed")
    for axes, title, bins, stated in zip(panels, titles, CRASH.bins, stated_in("crash"), strict=True):
        _bars(axes, results, ("crash", "crash", 0.0, bins.measure), bins, "", PALETTE[0], 0.0)
        _limit(axes, stated)
        _finish(axes, title, 65, "share of crashes (%)" if axes is panels[0] else "")
    return figure


TOKEN_LOSS_TIMES = PaperFigure(
    "token-loss",
    "Totem",
    "How long the ring is gone when the token is lost, five Sun 4/IPC",
    "Left: every copy is lost, and the five form a new ring. Right: one copy is lost, and passed again after "
    "15 ms (the paper does not say after how long).",
    SUN_4_IPC,
    TOKEN_LOSS,
    _draw_token_loss,
)
CRASH_TIMES = PaperFigure(
    "crash",
    "Totem CACM",
    "How long a crash takes to get over, eight SPARCstation 20",
    "One of eight crashes while 1000 messages arrive each second.",
    SPARCSTATION_20,
    CRASH,
    _draw_crash,
)
