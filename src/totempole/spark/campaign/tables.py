"""The tables of a campaign, as any reader of Parquet sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from totempole.spark.campaign.attempt import Run

NAMES = pa.list_(pa.string())

RUNS = pa.schema(
    [
        ("kind", pa.string()),
        ("profile", pa.string()),
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("violated", NAMES),
        ("text", pa.string()),
        ("packet_events", pa.int64()),
        ("deliveries", pa.int64()),
        ("coverage", pa.map_(pa.string(), pa.int64())),
        ("elapsed_ms", pa.int64()),
    ]
)
"""One row for each run."""

RUNS_SQL = (
    "kind string, profile string, seed long, outcome string, violated array<string>, text string, "
    "packet_events long, deliveries long, coverage map<string, long>, elapsed_ms long"
)
"""The same as Spark says it."""

COVERAGE = pa.schema(
    [
        ("kind", pa.string()),
        ("profile", pa.string()),
        ("name", pa.string()),
        ("times", pa.int64()),
        ("runs", pa.int64()),
        ("first_seed", pa.int64()),
    ]
)
"""How often each fault, transition and branch was reached, in how many runs, and first by which seed. What a
search of the kind is expected to reach and has not has zero times."""

FAILURES = pa.schema(
    [
        ("kind", pa.string()),
        ("profile", pa.string()),
        ("seed", pa.int64()),
        ("outcome", pa.string()),
        ("violated", NAMES),
        ("text", pa.string()),
        ("replay", pa.string()),
    ]
)
"""Runs that did not hold, with the command that repeats each."""


def rows_of(runs: Iterable[Run]) -> list[dict[str, Any]]:
    return [asdict(run) for run in runs]


def batch_of(runs: Iterable[Run]) -> Any:
    return pa.RecordBatch.from_pylist(rows_of(runs), schema=RUNS)
