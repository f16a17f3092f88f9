"""The Spark session of a test run: one for all tests of a process, whichever directory they are in."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from totempole.spark.session import build_session

SHUFFLE_PARTITIONS = 2
MEMORY = os.environ.get("TOTEM_SPARK_MEMORY", "1g")
"""Enough for the tests of every day. Those of every mutant need more (`make long`)."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Small, quick to start, and with retries of tasks as on a cluster."""
    os.environ["SPARK_SUBMIT_OPTS"] = (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
    )
    session = build_session(
        "totempole tests",
        "local[2,3]",
        {"spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS), "spark.driver.memory": MEMORY},
    )
    yield session
    session.stop()
