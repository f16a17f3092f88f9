"""log.blocks: memory is used again, and never while somebody can still see what is in it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from log_writing import LoggingReplica

from totempole.corel.frames import Colour, Promoted
from totempole.corel.run import ViewedRun
from totempole.log import segments
from totempole.log.arrow import SCHEMA, to_batches
from totempole.log.blocks import BLOCK_BYTES, BLOCKS_MAX, Blocks
from totempole.log.reader import LogReader, records_in


def test_a_block_is_used_again_once_nobody_has_a_view_of_it() -> None:
    blocks = Blocks()
    first = blocks.take(100)
    first[:] = b"x" * 100
    part = first[10:20][2:]
    del first
    assert bytes(blocks.take(100)) == bytes(100), "another one, as it was made"
    assert bytes(part) == b"x" * 8
    del part
    assert bytes(blocks.take(BLOCK_BYTES)[:101]) == b"x" * 100 + b"\0"


def test_what_arrow_holds_counts_too() -> None:
    blocks = Blocks()
    view = blocks.take(8)
    view[:] = b"contents"
    array = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(b"\0\0\0\0\x08\0\0\0"), pa.py_buffer(view)]
    )
    del view
    blocks.take(8)[:] = b"another!"
    assert array.to_pylist() == [b"contents"]


def test_large_blocks_and_many_are_not_kept() -> None:
    blocks = Blocks()
    blocks.take(BLOCK_BYTES + 1)[0] = 99
    views = [blocks.take(1) for _ in range(BLOCKS_MAX + 3)]
    for number, view in enumerate(views, start=1):
        assert view[0] == 0
        view[0] = number
    del views, view
    again = [blocks.take(1) for _ in range(BLOCKS_MAX + 3)]
    assert sorted(view[0] for view in again) == [0, 0, 0, *range(1, BLOCKS_MAX + 1)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several segments, frames across the ends of blocks, and a run that is red for long."""
    directory = tmp_path_factory.mktemp("log")
    random = Random(3)
    replica = LoggingReplica(directory, sync=False)
    red = replica.place([b"red"], colour=Colour.RED)
    for number in range(200):
        replica.place([random.randbytes(random.randrange(2000)) for _ in range(random.randrange(1, 5))])
        if number % 7 == 0:
            replica.green()
    replica.step(Promoted((red.id,)))
    replica.green()
    replica.close()
    return directory


@pytest.mark.parametrize("block_bytes", [4096, 65_536])
def test_runs_that_are_kept_stay_what_they_are(
    directory: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(segments, "BLOCK_BYTES_MIN", block_bytes)
    monkeypatch.setattr(segments, "BLOCK_BYTES_MAX", block_bytes)
    expected = list(LogReader(directory).records())
    with LogReader(directory).at_position(0, Blocks()) as cursor:
        kept = list(cursor.runs())
    assert [record for ordered in kept for record in records_in(ordered)] == expected
    assert any(isinstance(ordered.run, ViewedRun) for ordered in kept), "nothing was copied"
    red = [ordered.run for ordered in kept if any(each.payload == b"red" for each in records_in(ordered))]
    assert [type(run.body) for run in red] == [bytes], "it would keep a block for as long as it is red"


def test_batches_that_are_kept_stay_what_they_are(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.log.arrow.BYTES_MAX", 10_000)
    expected = pa.Table.from_batches(to_batches(LogReader(directory).runs()), SCHEMA)
    blocks = Blocks()
    with LogReader(directory).at_position(0, blocks) as cursor:
        kept = list(to_batches(cursor.runs(), blocks=blocks))
    assert len(kept) > BLOCKS_MAX
    assert pa.Table.from_batches(kept, SCHEMA).equals(expected)
