"""All of it: run, draw, compare, and leave everything in a directory.

index.html           figures and table, one file
figure-….svg         each figure
samples/             every sample, by study (Parquet)
summary/             means and percentiles of each point
densities/           the densities of figures that show some
comparison/          ours against theirs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from totempole.spark.drawing import save_svg
from totempole.spark.paper.comparison import Compared, calibrated, compare
from totempole.spark.paper.figures import studies_of
from totempole.spark.paper.figures.frame import PaperFigure
from totempole.spark.paper.job import measure, problems
from totempole.spark.paper.page import page
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import Point, Scale
from totempole.spark.paper.tables import bins_table, densities, summaries

COMPARISON = (
    "figure string, section string, what string, kind string, theirs double, unit string, ours double, "
    "ratio double, verdict string, calibration boolean"
)


@dataclass(frozen=True, slots=True)
class Rerun:
    figures: Sequence[PaperFigure]
    results: Results
    compared: Sequence[Compared]
    problems: Sequence[str]
    """Experiments that failed."""

    @property
    def holds(self) -> bool:
        """All was run, and the machines are what they were calibrated to be."""
        return not self.problems and calibrated(self.compared)


def points_of(figures: Sequence[PaperFigure], scale: Scale) -> list[Point]:
    return [point for study in studies_of(figures) for point in study.points(scale)]


def rerun(spark: SparkSession, figures: Sequence[PaperFigure], scale: Scale, out: Path) -> Rerun:
    out.mkdir(parents=True, exist_ok=True)
    samples = measure(spark, points_of(figures, scale), out / "samples")
    bins = bins_table(spark, studies_of(figures))
    results = Results(
        _kept(summaries(samples), out / "summary").collect(),
        _kept(densities(samples, bins), out / "densities").collect(),
    )
    compared = compare(results, [figure.name for figure in figures])
    _kept(spark.createDataFrame([each.data() for each in compared], COMPARISON), out / "comparison")
    found = Rerun(figures, results, compared, problems(samples))
    _publish(found, out)
    return found


def _kept(table: DataFrame, directory: Path) -> DataFrame:
    """The table as it now stands in a directory, in one file: it is small."""
    table.coalesce(1).write.mode("overwrite").parquet(str(directory))
    return table.sparkSession.read.parquet(str(directory))


def _publish(found: Rerun, out: Path) -> None:
    for figure in found.figures:
        save_svg(figure.draw(found.results), out / figure.file_name)
    text = page(found.figures, found.results, found.compared)
    (out / "index.html").write_text(text, encoding="utf-8")
