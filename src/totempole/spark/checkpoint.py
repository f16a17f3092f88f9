"""Materialises DataFrames to cut their lineage.

Spark looks through the whole plan of a DataFrame whenever something is added to it. Statements that stand on
tables that stand on tables would spend minutes on plans of which the work takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame


def checkpoint_all(tables: Any, names: Iterable[str]) -> None:
    """Works out these cached properties of `tables`, in this order, and puts the rows in their place."""
    for name in names:
        vars(tables)[name] = checkpointed(getattr(tables, name))


def checkpointed(rows: DataFrame) -> DataFrame:
    """In memory on one machine. A cluster may lose an executor: there they go to `spark.checkpoint.dir`."""
    if str(rows.sparkSession.conf.get("spark.master")).startswith("local"):
        return rows.localCheckpoint()
    return rows.checkpoint()
