"""Workers that end quietly with their session, and others that do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from totempole.spark.quiet_daemon import CLOSED, quiet


def test_a_connection_that_java_has_closed_ends_a_worker_without_a_word() -> None:
    def worker(*_: object) -> int:
        raise BrokenPipeError

    assert quiet(worker)(None, True) == CLOSED


def test_any_other_trouble_is_told() -> None:
    def worker(*_: object) -> int:
        raise ValueError("bad record")

    with pytest.raises(ValueError, match="bad record"):
        quiet(worker)(None, True)


def test_workers_are_forked_by_it(spark: SparkSession) -> None:
    def command_of_parent(_: object) -> bytes:
        return Path(f"/proc/{os.getppid()}/cmdline").read_bytes()

    assert b"totempole.spark.quiet_daemon" in spark.range(1).rdd.map(command_of_parent).collect()[0]
