"""The trace directory of a running cluster as a stream: the format `totem-trace`.

A node appends to an Arrow spool, which becomes Parquet when it is full. The rows of a part stay the same, in
the same order, whichever of the two it is; so a place in the stream is, for each part, how many of its rows
have been read. Parts that appear later begin at nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from totempole.errors import TraceError
from totempole.spark.schema import EVENTS
from totempole.trace.arrow import open_parquet, open_spool, parquet_batches
from totempole.trace.spool import part_of

FORMAT = "totem-trace"


class TraceStream(DataSource):
    """`spark.readStream.format("totem-trace").option("path", DIRECTORY)`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return EVENTS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        path = self.options.get("path")
        if not path:
            raise TraceError(f"format {FORMAT!r}: give the trace directory as the option path")
        return TraceReader(Path(path))


@dataclass(frozen=True)
class Slice(InputPartition):
    """Rows of one part."""

    part: str
    start: int
    stop: int


class TraceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._until: dict[str, int] | None = None
        """Where to end, if only what is there now is wanted."""

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:
        return dict(start) | (self._until if self._until is not None else rows_there(self._directory))

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = rows_there(self._directory)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        new = ((part, start.get(part, 0), rows) for part, rows in sorted(end.items()))
        return [Slice(part, begin, rows) for part, begin, rows in new if rows > begin]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Slice)
        at = 0
        for batch in _batches(self._directory / partition.part):
            begin, stop = max(partition.start, at), min(partition.stop, at + batch.num_rows)
            if begin < stop:
                yield _plain(batch.slice(begin - at, stop - begin))
            at += batch.num_rows
            if at >= partition.stop:
                return
        raise TraceError(f"{self._directory / partition.part}: it had {partition.stop} rows and now has {at}")


def rows_there(directory: Path) -> dict[str, int]:
    """How many rows each part has by now; a part is named by its Parquet file."""
    parts = {part_of(spool) for spool in directory.rglob(".part-*.arrows")} | set(
        directory.rglob("part-*.parquet")
    )
    return {str(part.relative_to(directory)): _count(part) for part in sorted(parts)}


def _count(part: Path) -> int:
    if part.exists():
        with open_parquet(part) as file:
            return int(file.metadata.num_rows)
    return sum(batch.num_rows for batch in _batches(part))


def _batches(part: Path) -> Iterator[Any]:
    """Of the Parquet file, or as long as there is none of the spool."""
    spool = part.with_name(f".{part.stem}.arrows")
    if not part.exists():
        try:
            return iter(list(open_spool(spool)))
        except FileNotFoundError:  # it has just become Parquet
            pass
    return parquet_batches(part)


def _plain(batch: Any) -> Any:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    table = pa.Table.from_batches([batch]).replace_schema_metadata(None).cast(to_arrow_schema(EVENTS))
    return table.combine_chunks().to_batches()[0]
