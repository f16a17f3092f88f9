"""One entry for each figure of a paper: what is run for it, and how it is drawn.

A figure of another protocol joins by one more entry here, with its study (`studies`), the experiments that
the study names (`totempole.sim.paper.experiments`) and what the paper states (`published`).
"""

from __future__ import annotations

from collections.abc import Iterable

from totempole.errors import ConfigurationError
from totempole.spark.paper.figures.density import FIGURE_7
from totempole.spark.paper.figures.faults import CRASH_TIMES, TOKEN_LOSS_TIMES
from totempole.spark.paper.figures.frame import PaperFigure
from totempole.spark.paper.figures.load import FIGURE_4_20
from totempole.spark.paper.figures.replication import FIGURE_6, FIGURE_8, FIGURE_9
from totempole.spark.paper.figures.replication import FIGURE_7 as FIGURE_7_OF_004
from totempole.spark.paper.figures.throughput import FIGURE_4_18, FIGURE_4_19
from totempole.spark.paper.studies import Study

FIGURES = {
    figure.name: figure
    for figure in (
        FIGURE_4_18,
        FIGURE_4_19,
        FIGURE_4_20,
        TOKEN_LOSS_TIMES,
        FIGURE_7,
        CRASH_TIMES,
        FIGURE_6,
        FIGURE_7_OF_004,
        FIGURE_8,
        FIGURE_9,
    )
}


def chosen_figures(names: Iterable[str] | None) -> list[PaperFigure]:
    """These, in the registry's order; all if none are named."""
    wanted = list(FIGURES) if names is None else list(names)
    for name in wanted:
        if name not in FIGURES:
            raise ConfigurationError(
                f"--only {name}: there is no such figure; give some of {', '.join(FIGURES)}"
            )
    return [figure for figure in FIGURES.values() if figure.name in wanted]


def studies_of(figures: Iterable[PaperFigure]) -> list[Study]:
    """Each once, though two figures may show it."""
    return list({figure.study.name: figure.study for figure in figures}.values())
