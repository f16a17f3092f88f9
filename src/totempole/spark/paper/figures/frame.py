"""What all figures share: their entry in the registry, and the marks of what a paper states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from totempole.sim.paper.machines import Machine
from totempole.spark.drawing import BASE_PT, PAPER
from totempole.spark.paper.published import Kind, Published
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import Study

MARKERS: dict[Kind, Any] = {"about": "D", "under": "v", "over": "^"}
"""A bound points to where the truth is."""
MODEL: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.1}


@dataclass(frozen=True, slots=True)
class PaperFigure:
    name: str
    """As `--only` has it: the number in the paper, or a word."""
    paper: str
    title: str
    caption: str
    machine: Machine
    study: Study
    draw: Callable[[Results], Figure]

    @property
    def number(self) -> str:
        """In its paper; empty where the paper has only words. Two papers have a figure 7."""
        number = self.name.removeprefix("rrp-")
        return number if number[0].isdigit() else ""

    @property
    def file_name(self) -> str:
        return f"figure-{self.paper}-{self.number or self.name}.svg".lower().replace(" ", "-")


def mark(axes: Axes, stated: Published, offset: tuple[float, float], align: str = "left") -> None:
    """One value of a paper at its place, with its words beside it."""
    assert stated.at is not None
    axes.plot(
        [stated.at],
        [stated.value],
        MARKERS[stated.kind],
        color=PAPER,
        markersize=7,
        markeredgecolor="white",
        markeredgewidth=0.8,
        zorder=5,
        clip_on=False,
    )
    axes.annotate(
        f"paper: {stated.stated}",
        (stated.at, stated.value),
        xytext=offset,
        textcoords="offset points",
        fontsize=BASE_PT - 1,
        color=PAPER,
        ha=align,
        va="center",
        zorder=6,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
    )


def mark_in_legend(axes: Axes) -> None:
    """The one entry that stands for all marks."""
    axes.plot([], [], "D", color=PAPER, markersize=6, linestyle="none", label="stated in the paper")
