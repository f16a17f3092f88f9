"""The examples of docs/spark-table.md that decode payloads do so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from replicated_logs import replicated

PAGE = (Path(__file__).parents[2] / "docs/spark-table.md").read_text(encoding="utf-8")


def example(word: str) -> str:
    """The program that has this word."""
    programs = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (found,) = [text for text in programs if word in text]
    return found


def arrow_stream(*rows: tuple[str, float]) -> bytes:
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, ["symbol", "price"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("word", ["from_json", "mapInArrow"])
def test_payloads_are_decoded(spark: SparkSession, tmp_path: Path, word: str) -> None:
    with replicated(tmp_path) as replicas:
        orders = [
            {"id": name, "amount": amount, "price": 2.5}
            for name, amount in zip("abab", range(4), strict=True)
        ]
        replicas.append([json.dumps(order).encode() for order in orders])
        replicas.append([arrow_stream(("x", 1.5), ("y", 2.0)), arrow_stream(("x", 3.0))], log="ticks")
        space: dict[str, Any] = {"spark": spark, "REPLICAS": replicas.option}
        exec(compile(example(word), "spark-table.md", "exec"), space)
        if word == "from_json":
            assert sorted(map(tuple, space["sums"].collect())) == [("a", 2), ("b", 4)]
        else:
            assert list(map(tuple, space["prices"].collect())) == [("x", 1.5), ("y", 2.0), ("x", 3.0)]
