"""The tables on disk: bronze, silver and gold, each partitioned by run.

    DIR/bronze/events/run=…           raw events
    DIR/silver/messages/run=…         one row for each message: originated, received and delivered, by whom
    DIR/silver/configurations/run=…   one row for each configuration that a node installed
    DIR/silver/token_visits/run=…     one row for each visit of the token (traces of level `protocol`)
    DIR/silver/log_records/run=…      one row for each record of the durable order and node
    DIR/gold/verdicts/run=…           run, property, outcome, count
    DIR/gold/findings/run=…           violations with nodes, messages and steps; why something is undecided
    DIR/gold/log_verdicts/run=…       the same of logs on disk, as of the last time that these were given
    DIR/gold/log_findings/run=…
    DIR/gold/FIGURES/run=…            what a report draws: see `report.tables`
    DIR/sources.parquet               the trace files that they were made of, with size and time

A run is made anew, whole, when one of its files is new or has changed: what was there of it is removed first.
The list of sources is written last, so that work that was cut short is done again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from totempole.checkers.terms import Terms
from totempole.spark.bronze import read_events
from totempole.spark.findings import SCHEMA as FINDINGS
from totempole.spark.findings import VERDICTS
from totempole.spark.lifecycles import configurations, messages, token_visits
from totempole.spark.log_records import SCHEMA as LOG_RECORDS
from totempole.spark.log_records import log_records
from totempole.spark.report import tables as figures
from totempole.spark.run_files import runs_of
from totempole.spark.schema import EVENTS
from totempole.spark.silver import Silver
from totempole.spark.statements import Tell
from totempole.spark.terms import terms_of, terms_table
from totempole.spark.verify import verify
from totempole.spark.verify_logs import LogVerification

SILVER: dict[str, Callable[[Silver], DataFrame]] = {
    "messages": messages,
    "configurations": configurations,
    "token_visits": token_visits,
    "log_records": lambda silver: log_records(silver.bronze),
}

_SCHEMAS: dict[str, StructType | str] = {
    "bronze/events": EVENTS,
    "silver/log_records": LOG_RECORDS,
    "gold/verdicts": VERDICTS,
    "gold/findings": FINDINGS,
    "gold/log_verdicts": VERDICTS,
    "gold/log_findings": FINDINGS,
}

Stamp = tuple[int, int]
"""A file's size and time of change."""


class Tables:
    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.directory = directory
        self._spark = spark

    def read(self, name: str) -> DataFrame:
        """One of the tables, as `silver/messages`."""
        reader = self._spark.read
        if name in _SCHEMAS:  # also of a table that has no rows
            reader = reader.schema(_SCHEMAS[name])
        return reader.parquet(str(self.directory / name))

    def update(
        self,
        files: Sequence[Path],
        known: Mapping[str, Terms],
        otherwise: Terms,
        tell: Tell = lambda done, note: None,
    ) -> list[str]:
        """The runs that were made anew."""
        stamps = {str(file): _stamp(file) for file in files}
        sources = self._sources()
        changed = [file for file, stamp in stamps.items() if sources.get(file, (None,))[0] != stamp]
        if not changed:
            return []
        runs = {file: told[1] for file, told in sources.items() if file in stamps}
        stale = {run for file in changed for run in runs.get(file, ())}
        runs |= self._runs_in(changed)
        anew = sorted(stale | {run for file in changed for run in runs[file]})
        self._make(
            anew, [Path(file) for file in stamps if set(runs[file]) & set(anew)], known, otherwise, tell
        )
        self._save_sources({file: (stamp, runs[file]) for file, stamp in stamps.items()})
        return anew

    def _make(
        self,
        runs: list[str],
        files: Sequence[Path],
        known: Mapping[str, Terms],
        otherwise: Terms,
        tell: Tell,
    ) -> None:
        self._remove(set(runs))
        few = F.broadcast(self._spark.createDataFrame([(run,) for run in runs], "run string"))
        self._write("bronze/events", read_events(self._spark, files).join(few, "run", "left_semi"))
        events = self.read("bronze/events").join(few, "run", "left_semi")
        terms = terms_of(events, terms_table(self._spark, known), otherwise).persist()
        silver = Silver(events, terms)
        for name, make in SILVER.items():
            self._write(f"silver/{name}", make(silver))
        judged = verify(events, terms, tell)
        self._write("gold/verdicts", judged.verdicts)
        self._write("gold/findings", judged.findings)
        terms.unpersist()

        def keep(name: str, rows: DataFrame) -> DataFrame:
            self._write(f"gold/{name}", rows)
            kept = self._spark.read.schema(rows.schema).parquet(str(self.directory / "gold" / name))
            return kept.join(few, "run", "left_semi")

        figures.figures(events, *figures.summaries(events, keep), keep)

    def keep_logs(self, judged: LogVerification) -> None:
        """What logs on disk have, and what was found of them. A log grows: it is kept anew each time."""
        for name in ("silver/log_records", "gold/log_verdicts", "gold/log_findings"):
            self._remove({judged.run}, name)
        events = self.read("bronze/events").where(F.col("run") == judged.run)
        self._write("silver/log_records", log_records(events, judged.logs))
        self._write("gold/log_verdicts", judged.verdicts)
        self._write("gold/log_findings", judged.findings)

    def _remove(self, runs: set[str], table: str = "*/*") -> None:
        """A run that has no findings any more would otherwise keep the old ones."""
        for place in self.directory.glob(f"{table}/run=*"):
            if unquote(place.name.removeprefix("run=")) in runs:
                shutil.rmtree(place)

    def _write(self, name: str, rows: DataFrame) -> None:
        ordered = rows.repartition("run").sortWithinPartitions("run")
        ordered.write.partitionBy("run").mode("overwrite").parquet(str(self.directory / name))

    def _runs_in(self, files: Sequence[str]) -> dict[str, tuple[str, ...]]:
        names = self._spark.createDataFrame([(file,) for file in files], "file string")
        spread = names.repartition(min(len(files), 64))
        found: dict[str, list[str]] = {file: [] for file in files}
        for row in spread.mapInArrow(_runs_of, "file string, run string").collect():
            found[row["file"]].append(row["run"])
        return {file: tuple(sorted(runs)) for file, runs in found.items()}

    def _sources(self) -> dict[str, tuple[Stamp, tuple[str, ...]]]:
        file = self.directory / "sources.parquet"
        if not file.exists():
            return {}
        rows = pq.read_table(file).to_pylist()
        return {row["file"]: ((row["bytes"], row["changed_ns"]), tuple(row["runs"])) for row in rows}

    def _save_sources(self, sources: Mapping[str, tuple[Stamp, tuple[str, ...]]]) -> None:
        rows = [
            {"file": file, "bytes": stamp[0], "changed_ns": stamp[1], "runs": list(runs)}
            for file, (stamp, runs) in (self._sources() | dict(sources)).items()
        ]
        partial = self.directory / f".sources.{os.getpid()}"
        pq.write_table(pa.Table.from_pylist(rows), partial)
        os.replace(partial, self.directory / "sources.parquet")


def _stamp(file: Path) -> Stamp:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _runs_of(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for file in batch.column("file").to_pylist():
            runs = sorted(runs_of(Path(file)))
            yield pa.RecordBatch.from_pydict({"file": [file] * len(runs), "run": runs})
