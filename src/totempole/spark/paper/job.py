"""The Spark job: a table of experiments spread over executors, each point a simulation of the real stack.

Points know their seeds, so that who runs what, and in which order, changes nothing. Samples go to Parquet
first and are read from there: asked for twice, a table that is computed would be simulated twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from totempole.sim.paper.experiments import run_experiment
from totempole.spark.paper.studies import Point

TASKS_MAX = 2_000

POINTS = (
    "place bigint, study string, series string, x double, seed bigint, experiment string, parameters string"
)
SAMPLES = "study string, series string, x double, seed bigint, measure string, value double, problem string"
"""`problem` says why an experiment gave no samples; else it is empty."""

_SAMPLES_ARROW = pa.schema(
    [
        ("study", pa.string()),
        ("series", pa.string()),
        ("x", pa.float64()),
        ("seed", pa.int64()),
        ("measure", pa.string()),
        ("value", pa.float64()),
        ("problem", pa.string()),
    ]
)


def points_table(spark: SparkSession, points: Sequence[Point]) -> DataFrame:
    """One row for each point, and a partition for each, since one takes seconds."""
    rows = [
        (
            place,
            each.study,
            each.series,
            float(each.x),
            each.seed,
            each.experiment,
            json.dumps(each.parameters),
        )
        for place, each in enumerate(points)
    ]
    tasks = max(1, min(len(rows), TASKS_MAX))
    return spark.createDataFrame(rows, POINTS).repartitionByRange(tasks, "place")


def run_points(points: DataFrame) -> DataFrame:
    """The samples of all experiments; whoever asks for them has them run."""
    return points.mapInArrow(_run_batches, SAMPLES)


def measure(spark: SparkSession, points: Sequence[Point], samples: Path) -> DataFrame:
    """Runs all points, keeps the samples in a directory by study, and gives them."""
    run_points(points_table(spark, points)).write.partitionBy("study").mode("overwrite").parquet(str(samples))
    studies = sorted({point.study for point in points})
    return spark.read.schema(SAMPLES).parquet(str(samples)).where(F.col("study").isin(studies))


def problems(samples: DataFrame) -> list[str]:
    """What went wrong, a line for each experiment that failed."""
    failed = samples.where("problem != ''").orderBy("study", "series", "x", "seed").collect()
    return [f"{row.study}, {row.series}, x = {row.x:g}, seed {row.seed}: {row.problem}" for row in failed]


# On the executors


def _run_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for point in batch.to_pylist():
            yield from _run_point(point)


def _run_point(point: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """One that fails must not take the others' results with it."""
    try:
        measures = run_experiment(point["experiment"], point["seed"], json.loads(point["parameters"]))
    except Exception as error:
        yield _samples(point, "", [float("nan")], f"{type(error).__name__}: {error}")
        return
    for name, values in measures.items():
        yield _samples(point, name, values)


def _samples(
    point: dict[str, Any], measure: str, values: Sequence[float], problem: str = ""
) -> pa.RecordBatch:
    count = len(values)
    same = [point["study"], point["series"], point["x"], point["seed"], measure]
    columns = [
        pa.repeat(pa.scalar(value, each.type), count)
        for value, each in zip(same, _SAMPLES_ARROW, strict=False)
    ]
    columns += [pa.array(values, pa.float64()), pa.repeat(problem, count)]
    return pa.RecordBatch.from_arrays(columns, schema=_SAMPLES_ARROW)
