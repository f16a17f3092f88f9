"""What the plots of a run share: their size, their axes, and the few shapes that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from totempole.spark.drawing import BASE_PT, PALETTE, inline_svg, new_figure
from totempole.spark.report.figures import Record, RunFigures
from totempole.spark.report.text import bytes_text, count_text, time_text

WIDTH_IN = 4.2
"""So narrow that letters are large enough to read on a phone, where a plot is as wide as the screen."""
HEIGHT_IN = 2.6
LOG_FROM = 30
"""A scale is logarithmic when the highest value is so many times the lowest."""
LEGEND_LETTERS = 40
"""That a line of the legend has room for; the mark of each name takes the room of five."""
PERCENTILE_TICKS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9)


class Words(str):
    """What a plot says instead of being drawn."""

    __slots__ = ()


Plot = str | Words


def small() -> tuple[Figure, Axes]:
    figure, axes = new_figure(width_in=WIDTH_IN, height_in=HEIGHT_IN)
    return figure, axes[0]


def picture(figure: Figure) -> str:
    """Without a ground of its own, so that it takes the page's, light or dark."""
    figure.set_facecolor("none")
    for axes in figure.axes:
        axes.set_facecolor("none")
    return inline_svg(figure)


def legend_above(axes: Axes) -> None:
    """Over the axes, where no line runs behind it."""
    names = axes.get_legend_handles_labels()[1]
    if names:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 0.98),
            ncols=max(1, LEGEND_LETTERS // (max(map(len, names)) + 5)),
            frameon=False,
            fontsize=BASE_PT - 0.5,
            handlelength=1.2,
            columnspacing=1.2,
            borderaxespad=0,
        )


# Axes


def time_axis(axes: Axes, figures: RunFigures) -> None:
    axes.set_xlim(0, max(figures.length_us, 1) / 1e6)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_xlabel("seconds from the run's start")


def duration_scale(axes: Axes, values: Sequence[float], name: str) -> None:
    """Microseconds upwards; logarithmic when they differ much."""
    least = max(min(values), 1)
    if LOG_FROM * least < max(values):
        axes.set_yscale("log")
        axes.set_ylim(bottom=least * 0.7)
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1.0,)))
        axes.minorticks_off()
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(formatter(time_text))
    axes.set_ylabel(name)


def rate_scale(axes: Axes, column: str) -> None:
    is_bytes = column == "bytes_per_s"
    count_scale(axes, "bytes a second" if is_bytes else "messages a second")
    axes.yaxis.set_major_formatter(formatter(bytes_text if is_bytes else count_text))


def count_scale(axes: Axes, name: str) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(formatter(count_text))
    axes.set_ylabel(name)


def percentile_axis(axes: Axes, rows: Sequence[Record]) -> None:
    highest = max(row["percentile"] for row in rows)
    shown = [percent for percent in PERCENTILE_TICKS if percent <= highest]
    axes.set_xscale("log")
    axes.set_xticks([odds(percent) for percent in shown], [f"{percent:g}" for percent in shown])
    axes.minorticks_off()
    axes.set_xlabel("percentile")


def odds(percent: float) -> float:
    """One in so many is worse: the axis on which 90, 99 and 99.9 lie evenly."""
    return 100 / (100 - percent)


def formatter(text: Callable[[float], str]) -> FuncFormatter:
    return FuncFormatter(lambda value, _place: text(value))


# Shapes


def band(axes: Axes, figures: RunFigures, rows: Sequence[Record], colour: str, name: str) -> None:
    """The median as a line, up to the 99th percentile shaded; a bin without any leaves a gap."""
    by_bin = {row["bin"]: row for row in rows}
    times = [(place + 0.5) * figures.bin_us / 1e6 for place in range(figures.bins)]
    found = [by_bin.get(place) for place in range(figures.bins)]
    middle, high = (
        [_clear(row[part]) if row else float("nan") for row in found] for part in ("p50_us", "p99_us")
    )
    axes.fill_between(times, middle, high, color=colour, alpha=0.22, lw=0)
    axes.plot(times, high, color=colour, lw=0.6, marker=".", ms=2, alpha=0.6)
    axes.plot(times, middle, color=colour, lw=1.3, marker=".", ms=3.5, label=name or None)


def curve(axes: Axes, rows: Sequence[Record], column: str, colour: str, **look: Any) -> None:
    """Over the percentiles."""
    values = [_clear(row[column]) for row in rows]
    axes.plot([odds(row["percentile"]) for row in rows], values, color=colour, **({"lw": 1.5} | look))


def lines(axes: Axes, figures: RunFigures, named: Sequence[tuple[str, Sequence[float]]]) -> None:
    """A line for each name."""
    for place, (name, line) in enumerate(named):
        width = width_of(place, len(named))
        times, values = steps(figures, line)
        axes.step(times, values, where="post", lw=width, color=PALETTE[place], label=name)


def width_of(place: int, count: int) -> float:
    """Of one line of several. Where they run on one another the lower ones show at the sides."""
    return 1.0 + 0.9 * (count - 1 - place)


def spread(axes: Axes, figures: RunFigures, of_nodes: Sequence[Sequence[float]]) -> None:
    """The least, the middle and the most of too many nodes for a line each."""
    columns = [sorted(column) for column in zip(*of_nodes, strict=True)]
    least, middle, most = (
        steps(figures, [column[place] for column in columns])
        for place in (0, len(of_nodes) // 2, len(of_nodes) - 1)
    )
    name = f"all {len(of_nodes)} nodes"
    axes.fill_between(
        least[0], least[1], most[1], step="post", color=PALETTE[0], alpha=0.25, lw=0, label=name
    )
    axes.step(*middle, where="post", color=PALETTE[0], lw=1.4, label="the middle one")


def filled(figures: RunFigures, rows: Sequence[Record], column: str) -> list[float]:
    """A number for each bin: nothing happened where there is no row."""
    line = [0.0] * figures.bins
    for row in rows:
        line[row["bin"]] += row[column]
    return line


def steps(figures: RunFigures, line: Sequence[float]) -> tuple[list[float], list[float]]:
    times = [place * figures.bin_us / 1e6 for place in range(figures.bins + 1)]
    return times, [*line, line[-1]]


def _clear(value_us: float) -> float:
    """What took less than the clock's tick: a logarithm needs a number above nothing."""
    return max(value_us, 1)
