"""Snapshots as files: what is kept, resumed, refused, and set aside."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import pytest

from totempole.errors import LogDamagedError, StorageError
from totempole.log.snapshots import (
    CLASS_NAME_BYTES_MAX,
    HEAD_BYTES,
    OBJECT_NAME_BYTES_MAX,
    Rescue,
    SnapshotFile,
    StoredHead,
    heads_in,
    pack_head,
    problem_of,
    snapshot_name,
    unpack_head,
)
from totempole.log_service import snapshot_files
from totempole.log_service.snapshot_files import RefusedError, SnapshotFiles, note_rescue

LOG = 7


def head_of(position: int, content: bytes = b"state", name: str = "bank", log: int = LOG) -> StoredHead:
    return StoredHead(name, position, "Bank", 1, len(content), crc32(content), log)


class Kept:
    """A directory and what it complained of."""

    def __init__(self, directory: Path, **bounds: int) -> None:
        self.said: list[str] = []
        self.files = SnapshotFiles(directory / "snapshots", self.said.append, **bounds)
        self.directory = directory / "snapshots"

    def put(
        self, position: int, content: bytes = b"state", name: str = "bank", log: int = LOG
    ) -> tuple[int, ...]:
        head = head_of(position, content, name, log)
        unfinished = self.files.begin(head)
        if unfinished is None:
            return self.files.prune(head)
        unfinished.write(content[unfinished.offset :])
        return self.files.finish(unfinished)

    def get(self, position: int, name: str = "bank") -> bytes | None:
        file = self.files.open(name, position)
        if file is None:
            return None
        with file:
            return b"".join(file.chunks()) if self.files.verify(file) else None

    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


# Heads


def test_a_head_comes_back_as_it_was() -> None:
    head = StoredHead("bänk/1", 2**63 - 1, "module.Bank", 3, 2**40, 2**32 - 1, 2**64 - 1)
    assert unpack_head(pack_head(head), Path("x")) == head
    assert len(pack_head(head)) == HEAD_BYTES


def test_the_longest_names_fit_a_head() -> None:
    head = StoredHead("n" * OBJECT_NAME_BYTES_MAX, 1, "c" * CLASS_NAME_BYTES_MAX, 1, 1, 1, 1)
    assert not problem_of(head)
    assert unpack_head(pack_head(head), Path("x")) == head


@pytest.mark.parametrize("at", [0, 7, 9, 20, 500, HEAD_BYTES - 1])
def test_a_changed_bit_of_a_head_is_found(at: int) -> None:
    content = bytearray(pack_head(head_of(5)))
    content[at] ^= 4
    with pytest.raises(LogDamagedError):
        unpack_head(bytes(content), Path("x"))


def test_a_head_of_a_later_format_is_named() -> None:
    content = bytearray(pack_head(head_of(5)))
    content[11] = 9
    content[-4:] = crc32(content[:-4]).to_bytes(4, "big")
    with pytest.raises(StorageError, match="format 9"):
        unpack_head(bytes(content), Path("x"))


@pytest.mark.parametrize(
    "head",
    [
        head_of(1, name=""),
        head_of(1, name="a\nb"),
        head_of(1, name="n" * 256),
        StoredHead("bank", 1, "c" * 1025, 1, 1, 1, LOG),
        head_of(-1),
        head_of(2**63),
        StoredHead("bank", 1, "Bank", -1, 1, 1, LOG),
        StoredHead("bank", 1, "Bank", 1, 2**40 + 1, 1, LOG),
        StoredHead("bank", 1, "Bank", 1, -1, 1, LOG),
        StoredHead("bank", 1, "Bank", 1, 1, 2**32, LOG),
        StoredHead("bank", 1, "Bank", 1, 1, 1, -1),
    ],
)
def test_a_strangers_head_is_refused(kept: Kept, head: StoredHead) -> None:
    with pytest.raises(RefusedError) as refused:
        kept.files.begin(head)
    assert refused.value.kind == "head"


# Keeping


def test_the_newest_two_of_each_object_are_kept(kept: Kept) -> None:
    assert kept.put(10) == (10,)
    assert kept.put(20) == (20, 10)
    assert kept.put(5, name="queue") == (5,)
    assert kept.put(30, b"thirty") == (30, 20)
    assert [head.position for head in kept.files.heads("bank")] == [30, 20]
    assert [(head.object, head.position) for head in kept.files.heads()] == [
        ("bank", 30),
        ("bank", 20),
        ("queue", 5),
    ]
    assert kept.get(30) == b"thirty"
    assert kept.get(10) is None
    assert len(kept.names()) == 3


def test_one_that_is_older_than_two_is_refused(kept: Kept) -> None:
    kept.put(20)
    assert kept.put(10) == (20, 10)
    with pytest.raises(RefusedError, match="20, 10") as refused:
        kept.put(9)
    assert refused.value.kind == "old"


def test_one_that_is_kept_already_is_not_written_again(kept: Kept) -> None:
    kept.put(10)
    assert kept.files.begin(head_of(10)) is None


def test_one_that_is_found_under_its_name_is_made_durable_first(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that was killed may have renamed it, and not synced the directory. (Found by power cuts.)"""
    kept.put(10)
    synced: list[str] = []
    real = os.fsync

    def fsync(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    assert kept.files.begin(head_of(10)) is None
    assert synced == [str(kept.directory)]


def test_one_that_is_kept_already_and_damaged_is_written_again(kept: Kept, tmp_path: Path) -> None:
    kept.put(10)
    _flip(kept.directory / snapshot_name("bank", 10))
    again = Kept(tmp_path)
    assert again.put(10) == (10,)
    assert again.get(10) == b"state"


def test_one_that_is_written_again_while_it_is_read_stays(kept: Kept, tmp_path: Path) -> None:
    kept.put(10)
    _flip(kept.directory / snapshot_name("bank", 10))
    again = Kept(tmp_path)
    damaged = again.files.open("bank", 10)
    assert damaged is not None
    with damaged:
        assert again.put(10) == (10,)
        assert not again.files.verify(damaged)
    assert again.get(10) == b"state"
    assert len(again.said) == 1


def test_snapshots_of_another_log_go_and_do_not_count(kept: Kept) -> None:
    kept.put(100, log=LOG + 1)
    kept.put(200, log=LOG + 1)
    assert kept.put(10) == (10,)


def test_a_name_may_be_long_and_have_slashes(kept: Kept) -> None:
    name = "../../etc/" + "x" * 240
    kept.put(3, name=name)
    assert kept.get(3, name) == b"state"
    assert all("/" not in each for each in kept.names())


# Putting


def test_a_put_that_broke_off_goes_on(kept: Kept) -> None:
    content = os.urandom(5_000)
    first = kept.files.begin(head_of(10, content))
    assert first is not None
    first.write(content[:3_000])
    first.close()
    second = kept.files.begin(head_of(10, content))
    assert second is not None
    assert (second.offset, second.crc) == (3_000, crc32(content[:3_000]))
    second.write(content[3_000:])
    assert kept.files.finish(second) == (10,)
    assert kept.get(10) == content


def test_what_a_put_has_left_is_written_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync of it may have failed, and nobody have heard of it: then no later sync would write it."""
    content = os.urandom(5_000)
    first = kept.files.begin(head_of(10, content))
    assert first is not None
    first.write(content[:3_000])
    first.close()
    written: list[tuple[int, int]] = []
    real = os.pwrite

    def pwrite(file: int, data: bytes, at: int) -> int:
        written.append((at, len(data)))
        return real(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    second = kept.files.begin(head_of(10, content))
    assert second is not None
    second.close()
    assert written == [(0, HEAD_BYTES), (HEAD_BYTES, 3_000)]


def test_a_put_that_broke_off_before_its_name_is_only_finished(kept: Kept) -> None:
    first = kept.files.begin(head_of(10))
    assert first is not None
    first.write(b"state")
    first.close()
    assert kept.put(10) == (10,)


def test_another_snapshot_of_the_position_begins_anew(kept: Kept) -> None:
    first = kept.files.begin(head_of(10, b"other"))
    assert first is not None
    first.write(b"oth")
    first.close()
    second = kept.files.begin(head_of(10))
    assert second is not None
    assert second.offset == 0
    second.close()


def test_a_part_that_is_garbled_can_be_begun_again(kept: Kept) -> None:
    content = bytes(3_000)
    first = kept.files.begin(head_of(10, content))
    assert first is not None
    first.write(b"x" * 2_000)
    first.close()
    second = kept.files.begin(head_of(10, content))
    assert second is not None
    assert second.crc != crc32(content[:2_000])
    second.restart()
    second.write(content)
    kept.files.finish(second)
    assert kept.get(10) == content


def test_a_whole_part_that_is_garbled_begins_anew_by_itself(kept: Kept) -> None:
    first = kept.files.begin(head_of(10))
    assert first is not None
    first.write(b"stote")
    first.close()
    second = kept.files.begin(head_of(10))
    assert second is not None
    assert second.offset == 0
    second.close()


def test_what_an_older_put_has_left_is_removed(kept: Kept) -> None:
    for position in (10, 20):
        unfinished = kept.files.begin(head_of(position))
        assert unfinished is not None
        unfinished.close()
    assert kept.names() == [snapshot_name("bank", 20) + ".part"]


@pytest.mark.parametrize("content", [b"stote", b"stat"])
def test_a_content_that_does_not_fit_is_not_kept(kept: Kept, content: bytes) -> None:
    unfinished = kept.files.begin(head_of(10))
    assert unfinished is not None
    unfinished.write(content)
    with pytest.raises(RefusedError, match="checksum") as refused:
        kept.files.finish(unfinished)
    assert refused.value.kind == "content"
    assert kept.names() == []


def test_more_than_its_size_is_refused(kept: Kept) -> None:
    unfinished = kept.files.begin(head_of(10))
    assert unfinished is not None
    with pytest.raises(RefusedError, match="more than 5"):
        unfinished.write(b"states")
    assert kept.names() == []


# Room


def test_snapshots_are_bounded_in_bytes(tmp_path: Path) -> None:
    kept = Kept(tmp_path, bytes_max=3 * HEAD_BYTES)
    kept.put(10, bytes(HEAD_BYTES // 2))
    with pytest.raises(RefusedError, match="more than 12288") as refused:
        kept.put(20, bytes(2 * HEAD_BYTES))
    assert refused.value.kind == "room"


def test_objects_are_bounded_in_number(tmp_path: Path) -> None:
    kept = Kept(tmp_path, objects_max=2)
    kept.put(1, name="a")
    kept.put(1, name="b")
    kept.put(2, name="b")
    with pytest.raises(RefusedError, match="2 objects"):
        kept.put(1, name="c")


def test_the_log_keeps_some_of_the_disk(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(kept.directory.parent)
    full = os.statvfs_result((*real[:4], 0, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(RefusedError, match="left for the log") as refused:
        kept.put(10)
    assert refused.value.kind == "room"


@contextmanager
def _failing(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> Iterator[None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        yield


@pytest.mark.parametrize(
    ("call", "number", "kind"),
    [
        ("pwrite", errno.ENOSPC, "room"),
        ("pwrite", errno.EIO, "disk"),
        ("fdatasync", errno.EIO, "disk"),
        ("fdatasync", errno.EDQUOT, "room"),
        ("fsync", errno.EIO, "disk"),
        ("rename", errno.EROFS, "disk"),
    ],
)
def test_a_disk_that_fails_leaves_nothing_unfinished(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, call: str, number: int, kind: str
) -> None:
    kept.put(5)
    unfinished = kept.files.begin(head_of(10))
    assert unfinished is not None

    def go_on() -> None:
        unfinished.write(b"state")
        kept.files.finish(unfinished)

    with _failing(monkeypatch, call, number), pytest.raises(RefusedError) as refused:
        go_on()
    assert refused.value.kind == kind
    assert not [name for name in kept.names() if name.endswith(".part")]
    assert kept.get(5) == b"state"


# Damage


def _flip(path: Path, at: int = HEAD_BYTES + 2) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_damaged_content_is_set_aside_and_named(kept: Kept, tmp_path: Path) -> None:
    kept.put(10)
    kept.put(20)
    _flip(kept.directory / snapshot_name("bank", 20))
    again = Kept(tmp_path)
    assert again.get(20) is None
    assert "'bank' at position 20 does not fit its checksum" in again.said[0]
    assert snapshot_name("bank", 20) + ".damaged" in again.said[0]
    assert [head.position for head in again.files.heads("bank")] == [10]
    assert again.get(10) == b"state"


def test_a_content_that_is_damaged_while_the_service_runs_is_found_too(kept: Kept) -> None:
    kept.put(10)
    assert kept.get(10) == b"state"
    _flip(kept.directory / snapshot_name("bank", 10))
    assert kept.get(10) is None


def test_a_damaged_head_is_set_aside_when_it_is_asked_for(kept: Kept) -> None:
    kept.put(10)
    _flip(kept.directory / snapshot_name("bank", 10), 30)
    assert kept.files.heads("bank") == []
    assert "does not fit its checksum" in kept.said[0]
    assert kept.get(10) is None
    assert kept.names() == [snapshot_name("bank", 10) + ".damaged"]


def test_a_damaged_head_is_set_aside_though_nobody_asks_for_it(kept: Kept) -> None:
    """Otherwise its file would stay for good, and be complained of whenever snapshots are listed."""
    for position in (10, 20):
        kept.put(position)
    _flip(kept.directory / snapshot_name("bank", 20), 100)
    assert kept.put(30) == (30, 10)
    assert kept.put(40) == (40, 30)
    names = [snapshot_name("bank", 20) + ".damaged", *(snapshot_name("bank", each) for each in (30, 40))]
    assert kept.names() == names
    del kept.said[:]
    assert [head.position for head in kept.files.heads("bank")] == [40, 30]
    assert not kept.said


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_length_is_set_aside(kept: Kept, change: int) -> None:
    kept.put(10)
    path = kept.directory / snapshot_name("bank", 10)
    os.truncate(path, path.stat().st_size + change)
    assert kept.get(10) is None
    assert "instead of 5" in kept.said[0]


def test_a_file_under_a_wrong_name_is_not_given(kept: Kept) -> None:
    kept.put(10)
    os.rename(kept.directory / snapshot_name("bank", 10), kept.directory / snapshot_name("bank", 99))
    assert kept.files.heads("bank") == []
    assert kept.get(99) is None


def test_few_that_are_set_aside_stay(kept: Kept) -> None:
    for position in range(10, 60, 10):
        kept.put(position)
        _flip(kept.directory / snapshot_name("bank", position))
        assert kept.get(position) is None
    assert len([name for name in kept.names() if name.endswith(".damaged")]) == 2


def test_a_snapshot_that_is_removed_can_be_read_to_its_end(kept: Kept) -> None:
    kept.put(10)
    file = kept.files.open("bank", 10)
    assert file is not None
    kept.put(20)
    kept.put(30)
    assert kept.get(10) is None
    with file:
        assert b"".join(file.chunks()) == b"state"


# The directory


def test_a_directory_that_others_can_write_to_is_refused(kept: Kept) -> None:
    kept.put(10)
    kept.directory.chmod(0o770)
    with pytest.raises(RefusedError, match="0770"):
        kept.put(20)
    with pytest.raises(StorageError, match="chmod"):
        kept.files.heads("bank")
    with pytest.raises(StorageError, match="chmod"):
        kept.files.open("bank", 10)


def test_a_link_in_the_place_of_the_directory_is_refused(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    kept.directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="no directory"):
        kept.put(10)


def test_another_users_directory_is_refused(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.put(10)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(RefusedError, match="user 4711"):
        kept.put(20)


def test_a_link_in_the_place_of_a_snapshot_is_not_followed(kept: Kept, tmp_path: Path) -> None:
    kept.put(10)
    path = kept.directory / snapshot_name("bank", 10)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    heads, problems = heads_in(kept.directory)
    assert heads == []
    assert len(problems) == 1


def test_no_directory_is_no_snapshot(kept: Kept) -> None:
    assert kept.files.heads() == []
    assert kept.get(1) is None


def test_a_file_that_shrinks_while_it_is_read_ends_early(kept: Kept) -> None:
    kept.put(10, bytes(10_000))
    with SnapshotFile(kept.directory / snapshot_name("bank", 10)) as file:
        os.truncate(file.path, HEAD_BYTES + 100)
        with pytest.raises(LogDamagedError):
            file.check()


# Rescues


def test_snapshots_of_what_was_green_at_a_rescue_go_on(kept: Kept) -> None:
    kept.put(10)
    kept.put(20)
    note_rescue(kept.directory, Rescue(LOG, 99, 15))  # this one never came to be
    note_rescue(kept.directory, Rescue(LOG, 8, 15))
    kept.files.log = 8
    assert [(head.position, head.log) for head in kept.files.heads("bank")] == [(20, LOG), (10, 8)]
    file = kept.files.open("bank", 10)
    assert file is not None
    with file:
        assert file.head == head_of(10, log=8)
    note_rescue(kept.directory, Rescue(8, 9, 12))
    kept.files.log = 9
    assert [head.log for head in kept.files.heads("bank")] == [LOG, 9]
    assert kept.put(12, log=9) == (12, 10), "the one that may have what is lost goes"


def test_a_rescue_without_snapshots_notes_nothing(tmp_path: Path) -> None:
    note_rescue(tmp_path / "snapshots", Rescue(1, 2, 3))
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize("content", [b"", b"abc", b"\xc0" + crc32(b"\xc0").to_bytes(4, "big")])
def test_a_damaged_note_of_rescues_is_named(kept: Kept, content: bytes) -> None:
    kept.put(10)
    (kept.directory / "rescues").write_bytes(content)
    assert [head.position for head in kept.files.heads("bank")] == [10]
    assert "rescues" in kept.said[0]
    assert kept.get(10) == b"state"
    with pytest.raises(StorageError):
        note_rescue(kept.directory, Rescue(1, 2, 3))


# Mistakes that these tests must find


def _set_aside_check(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put(10)
    _flip(kept.directory / snapshot_name("bank", 10))
    assert kept.get(10) is None


def _two_check(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for position in (10, 20, 30):
        kept.put(position)
    assert [head.position for head in kept.files.heads()] == [30, 20]


def _content_check(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    unfinished = kept.files.begin(head_of(10))
    assert unfinished is not None
    unfinished.write(b"stote")
    with pytest.raises(RefusedError):
        kept.files.finish(unfinished)


MUTANTS = {
    "CRC not checked": (_set_aside_check, lambda patch: patch.setattr(SnapshotFile, "check", lambda _: None)),
    "kept one": (_two_check, lambda patch: patch.setattr(snapshot_files, "KEPT", 1)),
    "kept three": (_two_check, lambda patch: patch.setattr(snapshot_files, "KEPT", 3)),
    "content not checked": (
        _content_check,
        lambda patch: patch.setattr(
            snapshot_files, "crc32", lambda content, crc=0: crc32(b"state") if content else crc
        ),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    check, make = MUTANTS[mutant]
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    check(tmp_path / "good")
    make(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(tmp_path / "bad")
