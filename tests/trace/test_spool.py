"""What is spooled is read back; every prefix of a spool is legal; what cannot be read says which file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import totempole
from sweeps import examples
from totempole.errors import TraceError
from totempole.trace import reader
from totempole.trace import spool as spool_module
from totempole.trace.arrow import SCHEMA, VERSION_KEY, to_batch
from totempole.trace.ndjson import write_ndjson
from totempole.trace.reader import read_trace, trace_files
from totempole.trace.recorder import Recorder
from totempole.trace.schema import COLUMNS, SCHEMA_VERSION, Row
from totempole.trace.spool import BATCHES_MAX, Spool, convert


def row(step: int, node: int = 1, run: str = "r") -> Row:
    members = tuple(range(step % 4))
    return Row(run, node, 1, step, 10 * step, "srp", "deliver", f"1.1.{step}", 1, members=members, bytes=64)


def rows(count: int, node: int = 1, first: int = 1) -> list[Row]:
    return [row(step, node) for step in range(first, first + count)]


def spooled(directory: Path, found: list[Row], **options: int) -> Spool:
    """Left open, as a node that runs leaves it, with every whole batch written."""
    spool = Spool(directory, "r", 1, **options)
    for each in found:
        spool(each)
    spool._writer.wait()
    return spool


def names(directory: Path) -> list[str]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path.relative_to(directory)) for path in files)


def kill(spool: Spool) -> None:
    """Whole batches have been written, nothing is flushed or closed, and the kernel gives the lock back."""
    spool._writer.stop()
    spool._unlock()


# The ordinary


def test_the_columns_are_the_schema_s() -> None:
    assert SCHEMA.names == [column.name for column in COLUMNS]
    assert SCHEMA.metadata == {VERSION_KEY: str(SCHEMA_VERSION).encode()}


int64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: int64,
    str: st.text(max_size=20),
    bool: st.booleans(),
    tuple[int, ...]: st.lists(int64, max_size=4).map(tuple),
    tuple[str, ...]: st.lists(st.text(max_size=20), max_size=4).map(tuple),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """A tuple of columns; of a layer's own, mostly the empty one."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: any_value(hint) for name, hint in hints.items()})


def any_value(hint: Any) -> st.SearchStrategy[Any]:
    return VALUES[hint] if hint in VALUES else any_own(hint)


def any_own(kind: Any) -> st.SearchStrategy[Any]:
    return st.just(kind()) | st.just(kind()) | any_of(kind)


any_row = any_of(Row)


@given(st.lists(any_row, max_size=20), st.integers(1, 7), st.integers(5, 30))
@settings(max_examples=examples(30))
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, found: list[Row], batch_rows: int, part_rows: int
) -> None:
    found = [each._replace(run="r", node=1, step=step) for step, each in enumerate(found)]
    directory = tmp_path_factory.mktemp("trace")
    spool = spooled(directory, found, batch_rows=batch_rows, part_rows=part_rows)
    spool.drain()
    assert found == [] or read_trace(directory) == found
    spool.close()
    assert found == [] or read_trace(directory) == found
    assert not [name for name in names(directory) if not name.endswith(".parquet")]


def test_the_layout_and_the_parquet_file(tmp_path: Path) -> None:
    spool = spooled(tmp_path, rows(10), batch_rows=4)
    assert names(tmp_path) == ["run=r/node=1/.part-00000.arrows"]
    spool.close()
    spool.close()
    assert names(tmp_path) == ["run=r/node=1/part-00000.parquet"]
    with pq.ParquetFile(tmp_path / names(tmp_path)[0]) as file:
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        assert file.schema_arrow.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()


def test_a_run_s_name_may_be_anything_but_nothing(tmp_path: Path) -> None:
    with Spool(tmp_path, "../a b=%", 1) as spool:
        spool(row(1, run="../a b=%"))
    assert names(tmp_path) == ["run=..%2Fa%20b%3D%25/node=1/part-00000.parquet"]
    assert read_trace(tmp_path) == [row(1, run="../a b=%")]
    with pytest.raises(TraceError, match="run = ''"):
        Spool(tmp_path, "", 1)


def test_a_recorder_s_rows_arrive(tmp_path: Path) -> None:
    with Spool(tmp_path, "r", 1) as spool:
        recorder = Recorder("r", 1, "delivery", spool)
        recorder.record(5, "crash", reason="why")
    assert [(each.kind, each.step) for each in read_trace(tmp_path)] == [("crash", 1)]


def test_no_rows_make_no_files(tmp_path: Path) -> None:
    Spool(tmp_path, "r", 1).close()
    assert names(tmp_path) == []


def test_rows_wait_for_a_batch_or_a_flush(tmp_path: Path) -> None:
    spool = spooled(tmp_path, rows(3), batch_rows=4)
    assert names(tmp_path) == []
    spool.drain()
    assert read_trace(tmp_path) == rows(3)
    spool.close()


def test_a_long_trace_has_many_parts_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "GROUP_ROWS", 20)
    spool = spooled(tmp_path, rows(250), batch_rows=10, part_rows=100)
    spool.close()
    assert names(tmp_path) == [f"run=r/node=1/part-0000{number}.parquet" for number in range(3)]
    with pq.ParquetFile(tmp_path / names(tmp_path)[0]) as file:
        assert file.metadata.num_row_groups == 5
    assert read_trace(tmp_path) == rows(250)


def test_the_nodes_and_files_of_a_directory_are_merged(tmp_path: Path) -> None:
    write_ndjson(tmp_path / "more.ndjson", rows(2, node=9))
    for node in (2, 1):
        with Spool(tmp_path, "r", node) as spool:
            for each in rows(3, node=node):
                spool(each)
    left = Spool(tmp_path, "r", 3, batch_rows=2)
    for each in rows(3, node=3):
        left(each)
    kill(left)
    assert read_trace(tmp_path) == rows(3, 1) + rows(3, 2) + rows(2, 3) + rows(2, 9)
    assert read_trace(tmp_path / "run=r" / "node=2") == rows(3, 2)
    assert read_trace(tmp_path / "more.ndjson") == rows(2, 9)


def test_a_trace_is_read_whole_while_its_node_converts_it(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "r", 1, batch_rows=5, part_rows=10)
    for step in range(1, 101):
        spool(row(step))
        if step % 5 == 0:
            spool.drain()
            assert read_trace(tmp_path) == rows(step)
    spool.close()
    assert read_trace(tmp_path) == rows(100)


@pytest.mark.parametrize("when", ["before the listing", "amid it", "after it"])
def test_a_spool_that_is_converted_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    kill(spooled(tmp_path, rows(4), batch_rows=4))
    place = tmp_path / "run=r" / "node=1"
    spool, glob = place / ".part-00000.arrows", Path.rglob

    def rglob(path: Path, pattern: str) -> list[Path]:
        if when == "amid it" and pattern == "part-*.parquet":
            convert(spool)
        return list(glob(path, pattern))

    monkeypatch.setattr(Path, "rglob", rglob)
    if when == "before the listing":
        convert(spool)
    files = trace_files(tmp_path)
    if when == "after it":
        convert(spool)
    monkeypatch.setattr(reader, "trace_files", lambda _: files)
    assert read_trace(tmp_path) == rows(4)


# Lives after the first


def test_a_restart_makes_the_leftover_parquet_and_goes_on(tmp_path: Path) -> None:
    first = spooled(tmp_path, rows(11), batch_rows=4)
    assert first.last_step == 0
    kill(first)
    (first.place / ".part-00000.parquet.tmp").write_bytes(b"half a fi")
    second = Spool(tmp_path, "r", 1, batch_rows=4)
    assert second.last_step == 8
    assert names(tmp_path) == ["run=r/node=1/part-00000.parquet"]
    for each in rows(4, first=9):
        second(each)
    second.close()
    assert read_trace(tmp_path) == rows(12)
    assert Spool(tmp_path, "r", 1).last_step == 12


def test_a_crash_between_the_rename_and_the_removal(tmp_path: Path) -> None:
    spool = spooled(tmp_path, rows(4), batch_rows=4)
    data = (spool.place / ".part-00000.arrows").read_bytes()
    spool.close()
    (spool.place / ".part-00000.arrows").write_bytes(data)
    assert read_trace(tmp_path) == rows(4)
    assert Spool(tmp_path, "r", 1).last_step == 4
    assert names(tmp_path) == ["run=r/node=1/part-00000.parquet"]


def test_a_leftover_without_rows_is_removed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "r", 1)
    kill(spool)
    (spool.place / ".part-00000.arrows").write_bytes(b"")
    assert read_trace(tmp_path) == []
    assert Spool(tmp_path, "r", 1).last_step == 0
    assert names(tmp_path) == []


def test_two_nodes_may_not_write_the_same_trace(tmp_path: Path) -> None:
    with Spool(tmp_path, "r", 1):
        with pytest.raises(TraceError, match="another process is writing this trace"):
            Spool(tmp_path, "r", 1)
        Spool(tmp_path, "r", 2).close()
    Spool(tmp_path, "r", 1).close()


WRITER = """
import os, sys
from pathlib import Path
from totempole.trace.schema import Row
from totempole.trace.spool import Spool
spool = Spool(Path(sys.argv[1]), "r", 1, batch_rows=16, part_rows=200)
for step in range(spool.last_step + 1, 1_000_000):
    spool(Row("r", 1, 1, step, 10 * step, "srp", "deliver", detail="x" * (step % 50)))
    if step % 16 == 0:
        spool.drain()
        os.write(1, b"%d\\n" % step)
"""


@pytest.mark.nodes
def test_a_killed_node_leaves_a_legal_prefix(tmp_path: Path) -> None:
    """Killed at any time, also while parts are being converted; restarted with the same run's name."""
    flushed = 0
    for lines in (2, 30, 80):
        environment = {**os.environ, "PYTHONPATH": str(Path(totempole.__file__).parents[1])}
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                flushed = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                flushed = int(line)
        steps = [each.step for each in read_trace(tmp_path)]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= flushed


# Cuts and damage


@pytest.fixture
def cut(tmp_path: Path) -> tuple[Path, bytes, list[int]]:
    """A spool of two batches, its bytes, and where its batches end."""
    spool = Spool(tmp_path, "r", 1)
    path = spool.place / ".part-00000.arrows"
    ends = []
    for first in (1, 4):
        for each in rows(3, first=first):
            spool(each)
        spool.drain()
        ends.append(path.stat().st_size)
    kill(spool)
    return path, path.read_bytes(), ends


@pytest.mark.search
def test_every_cut_of_a_spool_is_a_legal_prefix(cut: tuple[Path, bytes, list[int]]) -> None:
    path, whole, ends = cut
    edges = {edge + step for edge in (0, *ends) for step in range(-80, 80)}
    for length in sorted({*range(0, len(whole), 23), *edges, len(whole)} & {*range(len(whole) + 1)}):
        path.write_bytes(whole[:length])
        expected = 3 * sum(end <= length for end in ends)
        assert read_trace(path) == rows(expected), length


def test_every_cut_is_recovered(cut: tuple[Path, bytes, list[int]]) -> None:
    path, whole, ends = cut
    for length in (*range(0, len(whole), 97), *ends, ends[0] - 1, ends[0] + 1, len(whole)):
        path.write_bytes(whole[:length])
        expected = 3 * sum(end <= length for end in ends)
        convert(path)
        part = path.with_name("part-00000.parquet")
        assert part.exists() == (expected > 0)
        if expected:
            assert read_trace(path.parent) == rows(expected)
            part.unlink()


def refuses(path: Path, match: str, name: Path | None = None) -> None:
    with pytest.raises(TraceError, match=match) as caught:
        read_trace(path)
    assert str(name or path) in str(caught.value)


def test_damage_in_the_middle_is_not_a_cut(cut: tuple[Path, bytes, list[int]]) -> None:
    path, whole, ends = cut
    damaged = bytearray(whole)
    damaged[ends[0] + 8 : ends[0] + 40] = b"\xff" * 32  # the second batch's metadata
    path.write_bytes(bytes(damaged))
    refuses(path, r"damaged before byte \d+ of")
    with pytest.raises(TraceError, match="damaged before byte"):
        Spool(path.parents[2], "r", 1)
    assert path.read_bytes() == bytes(damaged)


def test_another_program_s_stream(tmp_path: Path) -> None:
    path = tmp_path / "x.arrows"
    path.write_bytes(b"nothing of ours, and long enough to be sure of it")
    refuses(path, "not an Arrow IPC stream")


@pytest.fixture
def part(tmp_path: Path) -> Path:
    with Spool(tmp_path, "r", 1) as spool:
        for each in rows(100):
            spool(each)
    return spool.place / "part-00000.parquet"


@pytest.mark.parametrize("length", [0, 3, 100, 4_000, -1])
def test_a_truncated_parquet_file(part: Path, length: int) -> None:
    part.write_bytes(part.read_bytes()[:length])
    refuses(part, "not a whole Parquet file", part)
    refuses(part.parents[2], "not a whole Parquet file", part)
    with pytest.raises(TraceError, match="not a whole Parquet file"):
        Spool(part.parents[2], "r", 1)


def test_a_damaged_parquet_file(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[200:400] = b"\xff" * 200
    part.write_bytes(bytes(data))
    refuses(part, "damaged")


def rewritten(path: Path, table: Any) -> None:
    pq.write_table(table, path)


def test_another_schema_version(part: Path) -> None:
    table = pq.ParquetFile(part).read()
    rewritten(part, table.replace_schema_metadata({VERSION_KEY: b"99"}))
    refuses(part, f"the trace has schema 99 and this program reads schema {SCHEMA_VERSION}")


def test_an_older_trace_is_refused_with_the_way_out(part: Path) -> None:
    table = pq.ParquetFile(part).read().drop_columns(["reason", "groups_to"])
    rewritten(part, table.replace_schema_metadata({VERSION_KEY: b"3"}))
    refuses(part, "has schema 3 .* reads schema 4; read it with the version that wrote it, or trace the run")
    spool = part.with_name(".part-00001.arrows")
    with pa.ipc.new_stream(str(spool), table.schema.with_metadata({VERSION_KEY: b"3"})) as writer:
        writer.write_table(table.replace_schema_metadata({VERSION_KEY: b"3"}))
    refuses(spool, "has schema 3 .* reads schema 4; read it with the version that wrote it")


def test_no_schema_version(part: Path) -> None:
    rewritten(part, pq.ParquetFile(part).read().replace_schema_metadata({}))
    refuses(part, "does not name a schema")


def test_a_missing_column(part: Path) -> None:
    rewritten(part, pq.ParquetFile(part).read().drop_columns(["ring"]))
    refuses(part, "column 'ring' is missing")


def test_an_unknown_column(part: Path) -> None:
    table = pq.ParquetFile(part).read()
    rewritten(part, table.append_column("colour", pa.array(["red"] * table.num_rows)))
    refuses(part, f"column 'colour' is not in schema {SCHEMA_VERSION}")


def test_a_column_of_another_type(part: Path) -> None:
    table = pq.ParquetFile(part).read()
    column = table.column("seq").cast(pa.string())
    rewritten(part, table.set_column(table.schema.get_field_index("seq"), "seq", column))
    refuses(part, "column 'seq' holds string, not int64")


def test_empty_places(part: Path) -> None:
    table = pq.ParquetFile(part).read()
    column = pa.array([None] * table.num_rows, pa.int64())
    rewritten(part, table.set_column(table.schema.get_field_index("seq"), "seq", column))
    refuses(part, "column 'seq' has empty places")


def test_where_there_is_no_trace(tmp_path: Path) -> None:
    refuses(tmp_path, "no trace here")
    refuses(tmp_path / "nowhere", "no such file or directory")
    (tmp_path / "x.txt").write_text("hello")
    refuses(tmp_path / "x.txt", "not a trace's name")


# What cannot be written


def test_a_number_that_does_not_fit(tmp_path: Path) -> None:
    """The trace ends there, as a legal prefix: one without a hole."""
    spool = spooled(tmp_path, rows(5), batch_rows=2)
    with pytest.raises(TraceError, match="column 'seq' cannot hold what was recorded"):
        spool(row(6)._replace(seq=2**63))
    spool(row(7))
    with pytest.raises(TraceError, match="column 'seq'"):
        spool.flush()
    spool.close()
    assert read_trace(tmp_path) == rows(4)
    assert Spool(tmp_path, "r", 1).last_step == 4


def test_a_batch_has_every_column(tmp_path: Path) -> None:
    assert to_batch(rows(3), tmp_path).num_columns == len(COLUMNS)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that the disk still takes; a write that does not fit is done in part."""
    room = [10**9]
    write = os.write

    def limited(handle: int, data: memoryview) -> int:
        taken = write(handle, data[: room[0]]) if room[0] else 0
        room[0] -= taken
        if not taken:
            raise OSError(28, "No space left on device")
        return taken

    monkeypatch.setattr(spool_module.os, "write", limited)
    return room


def test_a_full_disk_ends_the_trace_with_a_legal_prefix(tmp_path: Path, full_disk: list[int]) -> None:
    spool = spooled(tmp_path, rows(4), batch_rows=4)
    full_disk[0] = 100
    for each in rows(4, first=5):
        spool(each)
    with pytest.raises(TraceError, match=r"cannot be written \(.*No space left.*free some space"):
        spool.drain()
    full_disk[0] = 10**9
    with pytest.raises(TraceError, match="cannot be written"):
        spool.flush()
    assert read_trace(tmp_path) == rows(4)
    spool.close()
    assert read_trace(tmp_path) == rows(4)
    assert Spool(tmp_path, "r", 1).last_step == 4


def test_a_failure_that_no_flush_told_is_told_at_the_end(tmp_path: Path, full_disk: list[int]) -> None:
    spool = spooled(tmp_path, rows(4), batch_rows=4)
    spool(row(5))
    full_disk[0] = 0
    with pytest.raises(TraceError, match="cannot be written"):
        spool.close()
    spool.close()
    assert read_trace(tmp_path) == rows(4)


def test_a_disk_that_stands_still_ends_the_trace_and_never_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    append = spool_module._Part.append

    def slow(part: Any, data: bytes) -> None:
        assert go.wait(60)
        append(part, data)

    monkeypatch.setattr(spool_module._Part, "append", slow)
    spool = Spool(tmp_path, "r", 1, batch_rows=1)
    with pytest.raises(TraceError, match=f"{BATCHES_MAX} batches wait for the disk"):
        spool_all(spool, rows(BATCHES_MAX + 2))  # one is under way
    go.set()
    spool.close()
    found = read_trace(tmp_path)
    assert len(found) >= BATCHES_MAX
    assert found == rows(len(found))


def spool_all(spool: Spool, found: list[Row]) -> None:
    for each in found:
        spool(each)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "run=r").write_text("a file")
    with pytest.raises(TraceError, match="the trace cannot be written"):
        Spool(tmp_path, "r", 1)
