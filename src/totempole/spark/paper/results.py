"""What the drawings and the comparison look up: the small tables that Spark has made of the samples."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Row

Line = tuple[list[float], list[float]]
Place = tuple[str, str, float, str]
"""A study, a series of it, x, and what was measured."""


class Results:
    """Means and percentiles of every point, and the densities."""

    def __init__(self, summary_rows: Sequence[Row], density_rows: Sequence[Row]) -> None:
        self._summaries: dict[Place, Row] = {_place(row): row for row in summary_rows}
        self._densities: dict[Place, list[Row]] = {}
        for row in sorted(density_rows, key=lambda row: int(row.bin)):
            self._densities.setdefault(_place(row), []).append(row)

    def statistic(self, study: str, series: str, x: float, measure: str, name: str = "mean") -> float | None:
        """None if there is no such point: it was not asked for, or it failed."""
        row = self._summaries.get((study, series, x, measure))
        return None if row is None else float(row[name])

    def xs(self, study: str, series: str) -> list[float]:
        return sorted({place[2] for place in self._summaries if place[:2] == (study, series)})

    def line(self, study: str, series: str, measure: str, name: str = "mean") -> Line:
        found = [(x, self.statistic(study, series, x, measure, name)) for x in self.xs(study, series)]
        kept = [(x, y) for x, y in found if y is not None]
        return [x for x, _ in kept], [y for _, y in kept]

    def density(self, study: str, series: str, x: float, measure: str) -> Line:
        """The middles of the bins that have samples, and the density there."""
        rows = self._densities.get((study, series, x, measure), [])
        rows = [row for row in rows if row.density is not None]
        return [float(row.middle) for row in rows], [float(row.density) for row in rows]


def _place(row: Row) -> Place:
    return row.study, row.series, row.x, row.measure
