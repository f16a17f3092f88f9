"""Time in bins: of one round width for a run, chosen so that a plot has about a hundred."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

BINS_MAX = 120
"""Points on a time axis: more than that nobody sees on a phone."""

STEPS_US = tuple(digit * 10**power for power in range(13) for digit in (1, 2, 5))
"""The widths to choose from; the last ones are a bin of two months."""


def bin_us(length_us: Column) -> Column:
    """The narrowest width with which a run of such a length has at most BINS_MAX bins."""
    wide_enough = F.filter(
        F.array(*(F.lit(step).cast("long") for step in STEPS_US)),
        lambda step: step * BINS_MAX > length_us,
    )
    return F.coalesce(F.element_at(wide_enough, 1), F.lit(STEPS_US[-1]).cast("long"))


def binned(rows: DataFrame, runs: DataFrame) -> DataFrame:
    """Adds the columns `bin`, from 0, and `from_us`, when that bin begins, counted from the run's start."""
    spans = F.broadcast(runs.select("run", "start_us", "bin_us"))
    return (
        rows.join(spans, "run")
        .withColumn("bin", F.expr("(at_us - start_us) div bin_us"))
        .withColumn("from_us", F.col("bin") * F.col("bin_us"))
    )
