"""The trace's columns as Spark has them, declared from `trace.schema`, so that there is one schema."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from totempole.trace.schema import COLUMNS

_TYPES: dict[Any, DataType] = {
    int: LongType(),
    str: StringType(),
    bool: BooleanType(),
    tuple[int, ...]: ArrayType(LongType(), containsNull=False),
    tuple[str, ...]: ArrayType(StringType(), containsNull=False),
}

EVENTS = StructType([StructField(column.name, _TYPES[column.type], nullable=False) for column in COLUMNS])
"""Bronze: one row for each event, just as a node or the simulator wrote it."""
