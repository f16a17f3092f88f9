"""One look for every picture: a figure, its colours, and an SVG that the same numbers give byte for byte.

Only matplotlib's objects are used, never its `pyplot`, which keeps figures in a global and asks for a screen.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a51a3", "#7f7f7f")
"""Colours that people with any kind of colour vision can tell apart (Okabe and Ito), and two more."""
PAPER = "#111111"
"""What a paper states: never the colour of anything measured."""
FAINT = "#8a8a8a"
GRID = "#dddddd"

BASE_PT = 9.0
WIDTH_IN = 7.2
HEIGHT_IN = 4.2

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": BASE_PT,
    "axes.titlesize": BASE_PT + 1,
    "axes.labelsize": BASE_PT,
    "legend.fontsize": BASE_PT - 0.5,
    # Ids in the file come from what is drawn, not from chance; letters stay letters.
    "svg.hashsalt": "totempole",
    "svg.fonttype": "none",
}


def new_figure(
    rows: int = 1,
    columns: int = 1,
    *,
    width_in: float = WIDTH_IN,
    height_in: float = HEIGHT_IN,
    title: str = "",
    share_x: bool = False,
    share_y: bool = False,
) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row. Space is made for labels by itself."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False)
        axes = [each for row in grid for each in row]
        for each in axes:
            style_axes(each)
        if title:
            figure.suptitle(title, fontsize=BASE_PT + 2, fontweight="bold")
    return figure, axes


def style_axes(axes: Axes) -> None:
    """A frame on two sides, and a grid behind what is drawn."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=BASE_PT - 0.5, color=FAINT)
    axes.grid(True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def panel_title(axes: Axes, text: str) -> None:
    """What one of several axes shows."""
    axes.set_title(text, loc="left", fontsize=BASE_PT + 0.5)


def label_axes(axes: Axes, x: str = "", y: str = "") -> None:
    """What is along the axes, with units."""
    axes.set_xlabel(x, fontsize=BASE_PT)
    axes.set_ylabel(y, fontsize=BASE_PT)


def legend(axes: Axes, where: Any = "best", columns: int = 1) -> None:
    """What the lines are, without a box around it."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc=where, ncols=columns, frameon=False, fontsize=BASE_PT - 0.5)


def svg_text(figure: Figure) -> str:
    """The picture as SVG, without a date and without random ids."""
    written = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": "totempole"})
    return written.getvalue()


def inline_svg(figure: Figure) -> str:
    """The picture as it stands within an HTML page."""
    text = svg_text(figure)
    return text[text.index("<svg") :]


def save_svg(figure: Figure, path: Path) -> Path:
    """In one step, so that a file of that name is whole."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(svg_text(figure), encoding="utf-8")
    os.replace(partial, path)
    return path
