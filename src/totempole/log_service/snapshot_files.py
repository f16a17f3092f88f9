"""Keeps snapshots of objects as files. Blocking: the service calls it on threads of its own.

A snapshot is written to an unfinished file, in steps that are synced, so that the log, on the same disk,
never waits for more than a step. When all of it is there and fits its checksum, it is synced, renamed, and
its directory synced: only then is it said to be kept, and only then are older ones removed. The newest `KEPT`
of each object stay.

What was written by a put that broke off is gone on with, if the snapshot is the same. Whoever puts it is told
the checksum of that part: after a power cut the disk may have anything there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from isal.isal_zlib import crc32

from totempole.errors import LogDamagedError, StorageError, TotemError
from totempole.log.snapshots import (
    CHUNK_BYTES,
    DAMAGED,
    HEAD_BYTES,
    RESCUES,
    UNFINISHED,
    Rescue,
    SnapshotFile,
    StoredHead,
    adopted,
    check_directory,
    hash_of,
    heads_in,
    pack_head,
    pack_rescues,
    position_of,
    problem_of,
    read_rescues,
    snapshot_files,
    snapshot_name,
    unpack_head,
)

KEPT = 2
"""Of each object: if the newest cannot be read, there is another."""
SYNC_STEP_BYTES = 16 * 1024 * 1024
OBJECTS_MAX = 10_000
BYTES_MAX = 256 * 2**30
"""Of all snapshots together."""
RESERVE_BYTES = 2**30
RESERVE_PART = 0.05
"""So much of the disk, or RESERVE_BYTES if that is less, is left to the log."""
DAMAGED_MAX = 2
"""Of each object that are set aside: enough to find out why."""
VERIFIED_MAX = 10_000


class RefusedError(TotemError):
    """A snapshot that is not kept: `session.log_frames.SnapshotRefused`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Unfinished:
    """A put that is under way."""

    def __init__(self, head: StoredHead, path: Path, file: int, offset: int, crc: int) -> None:
        self.head = head
        self.offset = offset
        """So much of the content is written,"""
        self.crc = crc
        """with this checksum,"""
        self.synced = 0
        """and so much was synced: of what an earlier put has left that is not known."""
        self._path = path
        self._file = file

    def write(self, content: bytes) -> bool:
        """Appends. Whether more has become durable. Raises RefusedError: then nothing is left of it."""
        if self.offset + len(content) > self.head.size:
            self.remove()
            raise RefusedError("content", f"it has more than {self.head.size} bytes, as its head says")
        try:
            _write_all(self._file, content, HEAD_BYTES + self.offset)
            self.crc = crc32(content, self.crc)
            self.offset += len(content)
            if self.offset - self.synced < SYNC_STEP_BYTES:
                return False
            self.sync()
            return True
        except OSError as error:
            raise self._failed(error) from None

    def sync(self) -> None:
        """After a sync that fails, what was written may be lost, and no later sync tells: it is removed."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise self._failed(error) from None
        self.synced = self.offset

    def restart(self) -> None:
        """What an earlier put has left is not of this snapshot."""
        try:
            os.ftruncate(self._file, HEAD_BYTES)
        except OSError as error:
            raise self._failed(error) from None
        self.offset = self.synced = self.crc = 0

    def publish(self) -> Path:
        """All of it is there: gives it its name. Raises RefusedError."""
        if self.offset != self.head.size or self.crc != self.head.crc:
            self.remove()
            raise RefusedError("content", f"it does not fit its checksum {self.head.crc:08x}")
        self.sync()
        try:
            path = self._path.with_name(self._path.name.removesuffix(UNFINISHED))
            os.rename(self._path, path)
            sync_directory(path.parent)
        except OSError as error:
            raise self._failed(error) from None
        finally:
            self.close()
        return path

    def remove(self) -> None:
        self.close()
        with suppress(OSError):
            os.unlink(self._path)

    def close(self) -> None:
        """What is written stays, and can be gone on with."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _failed(self, error: OSError) -> RefusedError:
        self.remove()
        return _refusal(error)


class SnapshotFiles:
    """One directory. The methods may be called from several threads, not twice at a time for one object."""

    def __init__(
        self,
        directory: Path,
        complain: Callable[[str], object],
        *,
        bytes_max: int = BYTES_MAX,
        objects_max: int = OBJECTS_MAX,
    ) -> None:
        """`complain` is told what was set aside, and why."""
        self.directory = directory
        self._complain = complain
        self._bytes_max = bytes_max
        self._objects_max = objects_max
        self.log = 0
        """The log's own name: that of the snapshots that are kept for it."""
        self._verified: set[tuple[int, int, int]] = set()
        """Files whose content was found to fit, by this process."""

    def heads(self, object_name: str = "") -> list[StoredHead]:
        """The newest first, of one object or of all by name. What is no snapshot is named."""
        self._check()
        heads, problems = heads_in(self.directory, object_name, self.log)
        for problem in problems:
            self._complain(problem)
        return heads

    def open(self, object_name: str, position: int) -> SnapshotFile | None:
        """None: there is none. It is to be verified before anything of it is given out."""
        self._check()
        path = self.directory / snapshot_name(object_name, position)
        try:
            file = SnapshotFile(path)
        except FileNotFoundError:
            return None
        except LogDamagedError as error:
            self._set_aside(path, str(error))
            return None
        if (file.head.object, file.head.position) != (object_name, position):
            file.close()
            self._set_aside(path, f"{path} is a snapshot of object {file.head.object!r}")
            return None
        with suppress(StorageError):  # it has been named by `heads`
            file.head = adopted(file.head, self.log, read_rescues(self.directory))
        return file

    def verify(self, file: SnapshotFile) -> bool:
        """Whether its content fits its checksum; reads all of it, once. If not, it is set aside."""
        identity = file.identity
        if identity in self._verified:
            return True
        try:
            file.check()
        except (LogDamagedError, OSError) as error:
            if _is_there(file):
                self._set_aside(file.path, str(error))
            return False
        if len(self._verified) >= VERIFIED_MAX:
            self._verified.clear()
        self._verified.add(identity)
        return True

    def begin(self, head: StoredHead, *, again: bool = False) -> Unfinished | None:
        """None: this snapshot is kept already. Raises RefusedError."""
        if problem := problem_of(head):
            raise RefusedError("head", problem)
        try:
            self._make_directory()
            kept = self.heads(head.object)
            if head in kept and self._is_good(head):
                make_durable(self.directory / snapshot_name(head.object, head.position))
                return None
            newer = [each for each in kept if each.position > head.position and each.log == head.log]
            if len(newer) >= KEPT:
                raise RefusedError("old", f"newer ones are kept, at positions {_positions(newer)}")
            path = self.directory / (snapshot_name(head.object, head.position) + UNFINISHED)
            self._remove_unfinished(head.object, path)
            self._check_room(head)
            return _opened(path, head, again=again)
        except OSError as error:
            raise _refusal(error) from None
        except StorageError as error:
            raise RefusedError("disk", str(error)) from None

    def finish(self, unfinished: Unfinished) -> tuple[int, ...]:
        """It is durable when this returns: the positions that are kept, the newest first."""
        path = unfinished.publish()
        with suppress(OSError), SnapshotFile(path) as file:
            self._verified.add(file.identity)
        return self.prune(unfinished.head)

    def prune(self, head: StoredHead) -> tuple[int, ...]:
        """Removes all but the newest of the object. Those of another log are not counted, and go. One whose
        head is damaged is set aside: nobody who goes by heads would ask for it."""
        kept: list[int] = []
        heads = self.heads(head.object)
        readable = {snapshot_name(each.object, each.position) for each in heads}
        for path in snapshot_files(self.directory):
            if path.name.startswith(hash_of(head.object)) and path.name not in readable:
                with suppress(OSError, StorageError):  # of a newer version, perhaps
                    if file := self.open(head.object, position_of(path)):
                        file.close()
        for each in heads:
            if each.log == head.log and len(kept) < KEPT:
                kept.append(each.position)
            else:
                with suppress(OSError):  # it is removed next time
                    os.unlink(self.directory / snapshot_name(each.object, each.position))
        return tuple(kept)

    # Within

    def _check(self) -> None:
        with suppress(FileNotFoundError):
            check_directory(self.directory, os.geteuid())

    def _make_directory(self) -> None:
        try:
            os.mkdir(self.directory, 0o700)
        except FileExistsError:
            return
        sync_directory(self.directory.parent)

    def _is_good(self, head: StoredHead) -> bool:
        file = self.open(head.object, head.position)
        if file is None:
            return False
        with file:
            return self.verify(file)

    def _remove_unfinished(self, object_name: str, but: Path) -> None:
        """An object has one put at a time: what older ones have left is of no use."""
        for path in self.directory.glob(f"{hash_of(object_name)}-*{UNFINISHED}"):
            if path != but:
                os.unlink(path)

    def _check_room(self, head: StoredHead) -> None:
        objects = set()
        size = 0
        own = snapshot_name(head.object, head.position) + UNFINISHED
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.name[16:17] == "-":
                    objects.add(entry.name[:16])
                if entry.name != own:
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_size
        if hash_of(head.object) not in objects and len(objects) >= self._objects_max:
            raise RefusedError("room", f"snapshots of {self._objects_max} objects are kept, and no more")
        if size + head.size > self._bytes_max:
            raise RefusedError(
                "room",
                f"snapshots of {size} bytes are kept, and with this one of {head.size} it would be more than "
                f"{self._bytes_max}",
            )
        disk = os.statvfs(self.directory)
        reserve = min(RESERVE_BYTES, int(RESERVE_PART * disk.f_blocks * disk.f_frsize))
        if disk.f_bavail * disk.f_frsize - head.size < reserve:
            raise RefusedError("room", f"the disk would have less than {reserve} bytes left for the log")

    def _set_aside(self, path: Path, why: str) -> None:
        with suppress(FileNotFoundError):
            os.rename(path, path.with_name(path.name + DAMAGED))
            self._complain(f"{why}; it is set aside as {path.name}{DAMAGED}")
        older = sorted(self.directory.glob(f"{path.name[:16]}-*{DAMAGED}"))[:-DAMAGED_MAX]
        for each in older:
            each.unlink(missing_ok=True)


def _is_there(file: SnapshotFile) -> bool:
    """Whether its name still leads to it. While it was read, a put may have written it again."""
    try:
        return os.lstat(file.path).st_ino == file.identity[0]
    except OSError:
        return False


def _opened(path: Path, head: StoredHead, *, again: bool) -> Unfinished:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not again and (left := _left(file, path, head)) is not None:
            return Unfinished(head, path, file, *left)
        os.ftruncate(file, 0)
        _write_all(file, pack_head(head), 0)
        return Unfinished(head, path, file, 0, 0)
    except BaseException:
        os.close(file)
        raise


def _left(file: int, path: Path, head: StoredHead) -> tuple[int, int] | None:
    """How much an earlier put of the same snapshot has left, and its checksum.

    It is written again: if a sync of it has failed, and the service was killed before it heard of that, the
    kernel shows what the disk has not got, and no later sync would write it.
    """
    begun = os.pread(file, HEAD_BYTES, 0)
    try:
        if unpack_head(begun, path) != head:
            return None
    except StorageError:
        return None
    _write_all(file, begun, 0)
    offset = crc = 0
    while offset < head.size:
        content = os.pread(file, min(CHUNK_BYTES, head.size - offset), HEAD_BYTES + offset)
        if not content:
            break
        _write_all(file, content, HEAD_BYTES + offset)
        crc = crc32(content, crc)
        offset += len(content)
    return None if offset == head.size and crc != head.crc else (offset, crc)


def note_rescue(directory: Path, rescue: Rescue) -> None:
    """Before the log gets its new name: if that does not come to be, the note is of no effect. Raises
    StorageError."""
    if not directory.is_dir():
        return
    path = directory / (RESCUES + UNFINISHED)
    try:
        rescues = (*read_rescues(directory), rescue)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _write_all(file, pack_rescues(rescues), 0)
            os.fdatasync(file)
        finally:
            os.close(file)
        os.rename(path, directory / RESCUES)
        sync_directory(directory)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror})") from None


def _write_all(file: int, content: bytes, at: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, at)
        at += written
        rest = rest[written:]


def make_durable(path: Path) -> None:
    """A service that was killed may have given a file its name, and not synced that."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(file)
    finally:
        os.close(file)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _refusal(error: OSError) -> RefusedError:
    kind = "room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk"
    return RefusedError(kind, f"it cannot be written: {error.strerror or error}")


def _positions(heads: list[StoredHead]) -> str:
    return ", ".join(str(head.position) for head in heads)
