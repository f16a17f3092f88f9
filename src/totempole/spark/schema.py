"""The trace's columns as Spark has them, declared from `trace.schema.Row`, so that there is one schema."""

from __future__ import annotations

from typing import get_type_hints

from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from totempole.trace.schema import Row

_TYPES: dict[type, DataType] = {int: LongType(), str: StringType()}

EVENTS = StructType(
    [
        StructField(name, _TYPES.get(hint, ArrayType(LongType(), containsNull=False)), nullable=False)
        for name, hint in get_type_hints(Row).items()
    ]
)
"""Bronze: one row for each event, just as a node or the simulator wrote it."""
