"""What Spark asks for when a query names the format "totem"."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class TotemDataSource(DataSource):
    """Options have the names of Kafka's source, where they mean the same: docs/spark-table.md has all."""

    @classmethod
    def name(cls) -> str:
        return "totem"

    def schema(self) -> StructType:
        from totempole.spark_table.columns import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from totempole.spark_table.reading import OrderReader

        return OrderReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from totempole.spark_table.streaming import OrderStreamReader

        return OrderStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from totempole.spark_table.staging import OrderWriter

        return OrderWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from totempole.spark_table.staging import OrderStreamWriter

        return OrderStreamWriter(self.options, schema, overwrite)
