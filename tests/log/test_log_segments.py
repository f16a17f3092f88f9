"""log.segments: the bytes of a segment, and which frames of a damaged one are believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_writing import LoggingReplica

from totempole.corel.frames import Colour, Greened, Placed, encode
from totempole.corel.run import Run, RunId, RunKind, Stamp, pack_records
from totempole.errors import LogDamagedError, StorageError
from totempole.log.segments import (
    FRAME,
    HEADER_BYTES,
    Header,
    SegmentReader,
    frame_head,
    last_in_a_row,
    seed_of,
    segment_name,
)

HEADER = Header(
    processor=3,
    cluster=77,
    log=4711,
    disk=99,
    number=5,
    sequence=1001,
    green_runs=400,
    position=12_345,
    time_us=1_700_000_000_000_000,
    kept_from=17,
)

GOLDEN_HEADER = (
    "544f54454d4c4f47" "00000001" "00000003" "000000000000004d" "0000000000001267" "0000000000000063"
    "0000000000000005" "00000000000003e9" "0000000000000190" "0000000000003039" "00060a24181e4000"
    "0000000000000011" + "00" * 36 + "7e1360f1"
)  # fmt: skip

RUN = Run(RunId(3, 9, 2), Stamp(4, 1, 7, 0), 1_000, RunKind.RECORDS, 2, pack_records("orders", [b"ab", b"c"]))
GOLDEN_FRAME = (
    "f59a5450" "e53746b1" "00000030" "00000003" "00000000000003ea"
    "9301" "96930309029404010700cd03e80002c41c" "94a66f7264657273c410"
    "0200000002000000020000000161626390c001"
)  # fmt: skip


def segment_of(path: Path, contents: list[bytes], since_sync: list[int] | None = None) -> Path:
    """A segment with these frames, each synced, or as told."""
    seed = seed_of(HEADER.number)
    since_sync = since_sync or [0] * len(contents)
    frames = [
        frame_head(seed, HEADER.sequence + index, since, content) + content
        for index, (content, since) in enumerate(zip(contents, since_sync, strict=True))
    ]
    path.write_bytes(HEADER.pack() + b"".join(frames) + bytes(5000))
    return path


def contents_of(path: Path) -> list[bytes]:
    with SegmentReader(path) as reader:
        return [bytes(stored.content) for stored in reader.frames()]


def test_golden_header() -> None:
    assert HEADER.pack().hex() == GOLDEN_HEADER


def test_golden_frame() -> None:
    content = encode(Placed(RUN, Colour.YELLOW))
    assert (frame_head(seed_of(5), 1002, 3, content) + content).hex() == GOLDEN_FRAME


def test_frames_come_back(tmp_path: Path) -> None:
    contents = [b"", b"x", bytes(100_000), encode(Greened(4)), b"y" * 5_000_000, b"z"]
    path = segment_of(tmp_path / "a", contents)
    assert contents_of(path) == contents
    with SegmentReader(path) as reader:
        assert reader.header == HEADER
        assert [stored.sequence for stored in reader.frames()] == list(range(1001, 1007))
        assert reader.lost_frame() is None
        assert not reader.has_tail()


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"T"])
def test_a_tail_torn_at_every_byte(tmp_path: Path, filler: bytes) -> None:
    """What is before it stays; the torn frame is not believed, whatever is in its place."""
    path = segment_of(tmp_path / "a", [b"first", b"second", b"the last frame"])
    whole = path.read_bytes()
    with SegmentReader(path) as reader:
        at, end = [(stored.at, stored.end) for stored in reader.frames()][-1]
    for cut in range(at, end):
        for torn in (whole[:cut], whole[:cut] + filler * (end - cut) + whole[end:]):
            if torn == whole:
                continue
            path.write_bytes(torn)
            with SegmentReader(path) as reader:
                assert [bytes(stored.content) for stored in reader.frames()] == [b"first", b"second"]
                assert reader.sequence == HEADER.sequence + 2
                assert reader.lost_frame() is None


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = segment_of(tmp_path / "a", [b"first", b"second", b"third"])
    whole = bytearray(path.read_bytes())
    with SegmentReader(path) as reader:
        _, (at, end), _ = ((stored.at, stored.end) for stored in reader.frames())
    for bit in range(8 * at, 8 * end):
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        with SegmentReader(path) as reader:
            assert [bytes(stored.content) for stored in reader.frames()] == [b"first"]
            lost = reader.lost_frame()
            assert lost is not None, "the third was written after the second was synced"
            assert bytes(lost.content) == b"third"
        whole[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize(
    ("bad", "since_sync", "is_damage"),
    [
        (2, [0, 0, 0, 1, 2, 3], False),  # one sync: any part of it may be missing
        (4, [0, 0, 0, 1, 2, 3], False),
        (1, [0, 0, 0, 1, 2, 3], True),
        (2, [0, 0, 0, 1, 0, 1], True),
        (3, [0, 0, 0, 1, 0, 1], True),
        (4, [0, 0, 0, 1, 0, 1], False),
        (5, [0, 0, 0, 0, 0, 0], False),
        (1, [0, 1, 2, 3, 4, 5], False),  # never synced
    ],
)
def test_a_torn_tail_is_told_from_damage(
    tmp_path: Path, bad: int, since_sync: list[int], is_damage: bool
) -> None:
    path = segment_of(tmp_path / "a", [b"%d" % index * 50 for index in range(6)], since_sync)
    content = bytearray(path.read_bytes())
    with SegmentReader(path) as reader:
        at = [stored.at for stored in reader.frames()][bad]
    content[at + FRAME.size + 7] ^= 1
    path.write_bytes(content)
    with SegmentReader(path) as reader:
        assert len(list(reader.frames())) == bad
        assert (reader.lost_frame() is not None) is is_damage
        assert reader.has_tail()


def test_a_frame_of_another_segment_is_not_believed(tmp_path: Path) -> None:
    """Recycled space, or a block that a disk has put in the wrong place: number and sequence fit, the segment
    does not."""
    path = segment_of(tmp_path / "a", [b"first"])
    stale = frame_head(seed_of(HEADER.number - 1), HEADER.sequence + 1, 0, b"stale") + b"stale"
    content = bytearray(path.read_bytes())
    with SegmentReader(path) as reader:
        list(reader.frames())
        content[reader.at : reader.at + len(stale)] = stale
    path.write_bytes(content)
    assert contents_of(path) == [b"first"]


def test_a_frame_out_of_sequence_is_not_believed(tmp_path: Path) -> None:
    seed = seed_of(HEADER.number)
    for sequence in (HEADER.sequence, HEADER.sequence + 2):
        frames = b"".join(
            frame_head(seed, each, 0, content) + content
            for each, content in ((HEADER.sequence, b"first"), (sequence, b"other"))
        )
        path = tmp_path / "a"
        path.write_bytes(HEADER.pack() + frames)
        assert contents_of(path) == [b"first"]


def test_a_length_beyond_the_file(tmp_path: Path) -> None:
    path = segment_of(tmp_path / "a", [b"first", b"second"])
    content = bytearray(path.read_bytes())
    with SegmentReader(path) as reader:
        at = [stored.at for stored in reader.frames()][1]
    content[at + 8 : at + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    assert contents_of(path) == [b"first"]


def test_headers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for content in (b"", b"TOTEMLOG", bytes(HEADER_BYTES), HEADER.pack()[:-1] + b"\1"):
        path.write_bytes(content)
        with pytest.raises(LogDamagedError):
            SegmentReader(path)


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.log.segments.VERSION", 2)
    (tmp_path / "a").write_bytes(HEADER.pack())
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"format 2 .* use the version") as caught:
        SegmentReader(tmp_path / "a")
    assert not isinstance(caught.value, LogDamagedError)


def test_segments_in_a_row() -> None:
    assert last_in_a_row([]) == []
    assert last_in_a_row([4]) == [4]
    assert last_in_a_row([1, 2, 5, 6, 7]) == [5, 6, 7]


def test_frames_that_are_larger_than_a_block_next_to_small_ones(tmp_path: Path) -> None:
    replica = LoggingReplica(tmp_path, sync=False)
    replica.write(3, size=10, records=1)
    replica.write(1, size=3_000_000, records=2)
    replica.write(3, size=10, records=1)
    replica.close()
    sizes = []
    for number in (1, 2):
        with SegmentReader(tmp_path / segment_name(number)) as reader:
            sizes += [len(stored.content) for stored in reader.frames()]
    assert max(sizes) > 6_000_000
