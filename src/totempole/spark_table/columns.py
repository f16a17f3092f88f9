"""The columns of the table, as Spark wants them. Without Arrow: Spark asks for the schema in a process that
it starts for each `load()`, which imports everything anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from totempole.spark_table.options import ReadOptions

TYPES: dict[str, DataType] = {
    "position": LongType(),
    "time": TimestampType(),
    "origin": LongType(),
    "log": StringType(),
    "message": StringType(),
    "colour": StringType(),
    "key": StringType(),
    "payload": BinaryType(),
}


def schema_of(options: Mapping[str, str]) -> StructType:
    """Of the table that these options ask for, which are checked."""
    columns = ReadOptions.of(options).columns
    return StructType([StructField(name, TYPES[name], nullable=name == "key") for name in columns])
