"""log.arrow: the same records as the plain reader gives, as columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec
import pyarrow as pa
import pytest
from log_writing import LoggingReplica

from sweeps import first_of
from totempole.corel.layer import LIVES_SHIFT
from totempole.corel.run import Records, Run, RunId, RunKind, Stamp, pack_body, pack_records, records_of
from totempole.corel.zones import Ordered
from totempole.errors import CodecError
from totempole.log.arrow import FIELDS, SCHEMA, to_batches
from totempole.log.reader import LogReader, Record
from totempole.log.selection import LogSelection
from totempole.session.log_frames import OrderedRun
from totempole.types import PROCESSOR_MAX
from totempole.wire.layout import INCARNATION_MAX

LOGS = ("orders", "häuser")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Uniform and varied runs, empty payloads, keys that repeat, two logs, several segments."""
    directory = tmp_path_factory.mktemp("log")
    random = Random(5)
    replica = LoggingReplica(directory, sync=False)
    for number in range(300):
        count = random.choice((1, 1, 7, 100))
        sizes = [random.randrange(60) for _ in range(count)] if number % 3 else [12] * count
        keys = (
            tuple(random.choice(("", f"k{random.randrange(2000)}")) for _ in sizes) if number % 4 == 0 else ()
        )
        replica.place([random.randbytes(size) for size in sizes], keys, log=random.choice(LOGS))
        if number % 5 == 0:
            replica.green()
    replica.green()
    replica.close()
    return directory


def rows_of(batch: object) -> list[Record]:
    rows = []
    for row in batch.to_pylist():  # type: ignore[attr-defined]
        time_us = int(row["time"].timestamp() * 1_000_000 + 0.5)
        run = (row["origin"], row["life"], row["number"])
        rows.append(
            Record(row["position"], time_us, row["log"], run, row["index"], row["key"] or "", row["payload"])
        )
    return rows


@pytest.mark.parametrize("log", first_of([None, "häuser", "orders", "nothing"], 2))
@pytest.mark.parametrize(("start", "stop"), [(0, None), (17, 18), (100, 4000), (2500, 2499), (5, 10**9)])
def test_columns_hold_what_the_records_hold(
    directory: Path, start: int, stop: int | None, log: str | None
) -> None:
    reader = LogReader(directory)
    expected = list(reader.records(start, stop, log))
    batches = list(to_batches(reader.runs(start, stop), start, stop, log))
    assert [row for batch in batches for row in rows_of(batch)] == expected
    for batch in batches:
        assert batch.schema == SCHEMA
        batch.validate(full=True)
    if (start, stop, log) == (0, None, None):
        positions = [record.position for record in expected]
        assert positions == list(range(len(positions)))
        assert len({record.run[2] for record in expected}) > 250


def test_the_largest_numbers() -> None:
    """A processor's number has 32 bits, a life's 52."""
    id = RunId(PROCESSOR_MAX, INCARNATION_MAX << LIVES_SHIFT, 2**62)
    run = Run(id, Stamp(1, 1, 1, 0), 2**52, RunKind.RECORDS, 1, pack_records("orders", [b"x"]))
    (batch,) = to_batches([Ordered(run, 0, 2**62, (), 2**52)])
    (row,) = batch.to_pylist()
    assert (row["origin"], row["life"], row["number"]) == id
    assert row["position"] == 2**62


def test_runs_that_take_no_position_give_no_rows(directory: Path) -> None:
    runs = list(LogReader(directory).runs())
    assert any(ordered.repeats for ordered in runs)
    assert runs[0].run.kind is RunKind.PRIMARY
    assert list(to_batches(runs[:1])) == []


@pytest.mark.parametrize("names", [("message", "position"), ("colour", "key"), ("index", "log", "payload")])
def test_only_the_columns_of_a_schema_are_there(directory: Path, names: tuple[str, ...]) -> None:
    schema = pa.schema([FIELDS[name] for name in names])
    records = list(LogReader(directory).records(100, 4000))
    rows = [
        row
        for batch in to_batches(LogReader(directory).runs(100, 4000), 100, 4000, schema=schema)
        for row in batch.to_pylist()
    ]
    expected = [
        {
            "message": f"{record.run}.{record.index}",
            "position": record.position,
            "colour": "green",
            "key": record.key or None,
            "index": record.index,
            "log": record.log,
            "payload": record.payload,
        }
        for record in records
    ]
    assert rows == [{name: each[name] for name in names} for each in expected]


def test_a_selection_of_logs(directory: Path) -> None:
    def positions(selection: LogSelection) -> list[int]:
        batches = to_batches(LogReader(directory).runs(), selection=selection)
        return [position for batch in batches for position in batch.column("position").to_pylist()]

    orders, houses = ([each.position for each in LogReader(directory).records(log=log)] for log in LOGS)
    assert positions(LogSelection(LOGS)) == sorted(orders + houses)
    assert positions(LogSelection(("orders", "nothing"))) == orders
    assert positions(LogSelection(without="or")) == houses


def test_runs_as_a_log_service_sends_them_give_the_same(directory: Path) -> None:
    """Without what the columns do not need, too."""
    runs = list(LogReader(directory).runs())
    sent = [OrderedRun.of(ordered) for ordered in runs]
    assert list(to_batches(sent)) == list(to_batches(runs))
    bare = [msgspec.structs.replace(each, run=_without_body(each.run)) for each in sent]
    schema = pa.schema([FIELDS[name] for name in ("position", "message", "time", "log")])
    assert list(to_batches(bare, schema=schema)) == list(to_batches(runs, schema=schema))


def _without_body(run: Run) -> Run:
    if run.kind is not RunKind.RECORDS:
        return run
    return msgspec.structs.replace(run, body=pack_body(Records(records_of(run).log, b"")))


def test_a_run_with_fewer_records_than_it_says_is_refused() -> None:
    run = Run(RunId(1, 1, 1), Stamp(1, 1, 1, 0), 5, RunKind.RECORDS, 3, pack_records("orders", [b"x", b"y"]))
    with pytest.raises(CodecError, match="2 records instead of 3"):
        list(to_batches([Ordered(run, 0, 0, (), 5)]))


def test_a_reader_needs_no_pandas(directory: Path) -> None:
    """Spark's workers would import it, each for itself."""
    program = f"""
import sys
from pathlib import Path
from totempole.log.arrow import FIELDS, to_batches
from totempole.log.reader import LogReader
import pyarrow as pa
runs = LogReader(Path({str(directory)!r})).runs()
rows = sum(each.num_rows for each in to_batches(runs, schema=pa.schema(FIELDS.values())))
assert rows > 1000, rows
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_key_or_a_log_that_is_empty() -> None:
    """No key is null. Names of logs are never null."""
    run = Run(
        RunId(1, 1, 1), Stamp(1, 1, 1, 0), 1, RunKind.RECORDS, 3, pack_records("", [b"x"] * 3, ("", "ä", "b"))
    )
    (batch,) = to_batches([Ordered(run, 0, 0, (), 1)])
    assert batch.column("key").to_pylist() == [None, "ä", "b"]
    assert batch.column("log").to_pylist() == [""] * 3
