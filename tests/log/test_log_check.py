"""log.check: it finds what is wrong with a log, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from log_writing import LoggingReplica

from totempole.corel.frames import Colour
from totempole.errors import StorageError
from totempole.log.check import check
from totempole.log.segments import FRAME, HEADER_BYTES, SegmentReader, segment_name, segment_numbers


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lives, several segments, red and yellow runs left over."""
    directory = tmp_path_factory.mktemp("log")
    for life in (1, 2):
        replica = LoggingReplica(directory, life=life)
        for _ in range(60):
            replica.write(1, size=300)
            replica.sync()  # a sync for every run
        replica.write(2, keys=tuple(f"k{i}" for i in range(10)))
        replica.place([b"red"], colour=Colour.RED)
        replica.place([b"yellow"])
        replica.flush()
        replica.close()
    return directory


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "backup"))


def frame_offsets(path: Path) -> list[tuple[int, int]]:
    with SegmentReader(path) as reader:
        return [(stored.at, stored.end) for stored in reader.frames()]


def overwrite(path: Path, at: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(content)


def flip(path: Path, at: int) -> None:
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 0x10]))


def test_a_copy_of_a_good_log_is_good(directory: Path) -> None:
    report = check(directory)
    assert report.is_good, report.all_problems
    assert len(report.segments) >= 6
    assert not any(segment.notes for segment in report.segments)
    # The keys repeat; the run that the first life left yellow became green in the second.
    assert (report.position, report.green_runs) == (120 * 10 + 10 + 1, 1 + 124 + 1)
    assert (report.yellow_runs, report.red_runs) == (1, 2)


def test_a_flipped_bit_amid_the_last_segment_is_damage(directory: Path) -> None:
    path = directory / segment_name(segment_numbers(directory)[-1])
    at, end = frame_offsets(path)[1]
    flip(path, (at + end) // 2)
    (problem,) = check(directory).all_problems
    assert "whole ones follow" in problem


def test_a_flipped_bit_in_the_last_frame_is_a_torn_tail(directory: Path) -> None:
    path = directory / segment_name(segment_numbers(directory)[-1])
    flip(path, frame_offsets(path)[-1][1] - 1)
    report = check(directory)
    assert report.is_good, report.all_problems
    assert "torn tail" in report.segments[-1].notes[0]


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_flipped_bit_in_an_older_segment_is_damage(directory: Path, which: int) -> None:
    """In the last frame too: the next segment shows that it was there."""
    path = directory / segment_name(segment_numbers(directory)[1])
    flip(path, frame_offsets(path)[which][0] + FRAME.size)
    problems = check(directory).all_problems
    assert len(problems) == 1, problems
    assert path.name in problems[0]
    assert "cannot be read" in problems[0]


def test_every_bit_of_a_header_counts(directory: Path) -> None:
    path = directory / segment_name(segment_numbers(directory)[1])
    for at in range(0, HEADER_BYTES, 5):
        flip(path, at)
        assert not check(directory).is_good
        flip(path, at)
    assert check(directory).is_good


def test_a_missing_segment(directory: Path) -> None:
    (directory / segment_name(segment_numbers(directory)[2])).unlink()
    (problem,) = check(directory).all_problems
    assert "missing" in problem


def test_a_segment_under_anothers_name(directory: Path) -> None:
    numbers = segment_numbers(directory)
    shutil.copy(directory / segment_name(numbers[0]), directory / segment_name(numbers[-1] + 1))
    assert any("under another's name" in problem for problem in check(directory).all_problems)


def test_the_first_segments_may_be_gone(directory: Path) -> None:
    first, second, *_ = segment_numbers(directory)
    (directory / segment_name(first)).unlink()
    (directory / segment_name(second)).unlink()
    report = check(directory)
    assert report.is_good
    assert report.first_position > 0


def test_a_state_that_does_not_follow_from_the_frames(directory: Path) -> None:
    """A frame taken out, and all behind it numbered anew: every checksum fits."""
    from totempole.log.segments import frame_head, seed_of

    number = segment_numbers(directory)[1]
    path = directory / segment_name(number)
    with SegmentReader(path) as reader:
        stored = [bytes(each.content) for each in reader.frames()]
        header, first = reader.header, reader.header.sequence
    stored[-2] = stored[-1] = b"\x92\x07" + b"\x05"  # Identified(5)
    seed = seed_of(number)
    content = b"".join(frame_head(seed, first + i, 0, each) + each for i, each in enumerate(stored))
    path.write_bytes(header.pack() + content)
    problems = check(directory).all_problems
    assert any("not the state that the frames before it give" in problem for problem in problems)


def test_no_log(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no log in it"):
        check(tmp_path)
    with pytest.raises(StorageError, match="name its directory"):
        check(tmp_path / "nowhere")
