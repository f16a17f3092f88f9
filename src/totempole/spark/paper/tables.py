"""From samples to what a figure shows: means and percentiles of each point, and densities."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from totempole.spark.paper.studies import Study

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
POINT = ("study", "series", "x", "measure")


def good(samples: DataFrame) -> DataFrame:
    """Without the experiments that failed."""
    return samples.where("problem = ''")


def summaries(samples: DataFrame) -> DataFrame:
    """One row for each measure of each point, all seeds together: percentiles are exact."""
    shares = F.array([F.lit(share) for share in PERCENTILES.values()])
    found = (
        good(samples)
        .groupBy(*POINT)
        .agg(
            F.count("value").alias("count"),
            F.countDistinct("seed").alias("seeds"),
            F.avg("value").alias("mean"),
            F.coalesce(F.stddev_samp("value"), F.lit(0.0)).alias("deviation"),
            F.min("value").alias("least"),
            F.max("value").alias("most"),
            F.percentile("value", shares).alias("shares"),
        )
    )
    named = [F.col("shares")[place].alias(name) for place, name in enumerate(PERCENTILES)]
    return found.select(*POINT, "count", "seeds", "mean", "deviation", "least", "most", *named)


def bins_table(spark: SparkSession, studies: Iterable[Study]) -> DataFrame:
    rows = [
        (study.name, bins.measure, float(bins.low), float(bins.high), bins.count)
        for study in studies
        for bins in study.bins
    ]
    return spark.createDataFrame(rows, "study string, measure string, low double, high double, bins bigint")


def densities(samples: DataFrame, bins: DataFrame) -> DataFrame:
    """One row for each bin that has samples: how many, and the probability per unit of the measure.

    Bin 0 is what lies below the first, `bins` + 1 what lies above the last. They have no density, but they
    count: the densities of the others times their width need not add up to one.
    """
    width = (F.col("high") - F.col("low")) / F.col("bins")
    counted = (
        good(samples)
        .join(F.broadcast(bins), ["study", "measure"])
        .withColumn("bin", F.width_bucket("value", "low", "high", "bins"))
        .groupBy(*POINT, "low", "high", "bins", "bin")
        .agg(F.count("value").alias("count"))
    )
    totals = counted.groupBy(*POINT).agg(F.sum("count").alias("all"))
    inside = F.col("bin").between(F.lit(1), F.col("bins"))
    return counted.join(totals, list(POINT)).select(
        *POINT,
        "bin",
        F.when(inside, F.col("low") + (F.col("bin") - 0.5) * width).alias("middle"),
        "count",
        F.when(inside, F.col("count") / F.col("all") / width).alias("density"),
    )
