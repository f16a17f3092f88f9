"""Snapshots of objects: the format of their files, in `snapshots/` of a log's directory, and their reader.

    head, 4096 bytes:
        magic 8 bytes, version u32, bytes of the description u32, description (MessagePack), zeros, CRC-32 u32
    content: as many bytes as the description says

All numbers are big-endian. The description has the CRC-32 of the content. A file appears under its name when
it is complete and durable; the log service writes it (`log_service.snapshot_files`). Names have a hash of the
object's name, since that may be longer than a file's, or have a slash:

    0123456789abcdef-00000000000000004711.snapshot            complete
    0123456789abcdef-00000000000000004711.snapshot.part       a put that has broken off, or goes on
    0123456789abcdef-00000000000000004711.snapshot.damaged    set aside: never given out
    rescues                                                    logs that this one goes on from

A log that is rescued has a new name. Snapshots of what was green at the rescue are good in the new log, too:
the file `rescues` says so.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Self

import msgspec
from isal.isal_zlib import crc32

from totempole.errors import LogDamagedError, StorageError

VERSION = 1
MAGIC = b"TOTEMSNP"
HEAD_BYTES = 4096
UNFINISHED, DAMAGED = ".part", ".damaged"
CHUNK_BYTES = 1024 * 1024
"""What is read, checked or sent at once."""

OBJECT_NAME_BYTES_MAX = 255
CLASS_NAME_BYTES_MAX = 1024
SIZE_MAX = 2**40
POSITION_MAX = 2**63 - 1

RESCUES = "rescues"
"""A file's name."""

_FIXED = Struct(">8sII")
_CRC = Struct(">I")
_NAME = re.compile(r"^([0-9a-f]{16})-(\d{20})\.snapshot$")


class StoredHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a snapshot is of. Two with equal heads have the same content."""

    object: str
    """The object's name."""
    position: int
    """Of the first record that is not in it: whoever has it reads the log from there on."""
    class_name: str
    version: int
    """Of the class."""
    size: int
    """Of the content, in bytes."""
    crc: int
    """CRC-32 of the content."""
    log: int = 0
    """The log's own name: of no other is it a snapshot."""


_decoder = msgspec.msgpack.Decoder(StoredHead)
_encode = msgspec.msgpack.Encoder().encode


def problem_of(head: StoredHead) -> str:
    """What is wrong with a head that somebody sends; empty if nothing is."""
    if not head.object or not head.object.isprintable():
        return f"object name {head.object[:40]!r}: give letters that can be printed"
    if len(head.object.encode()) > OBJECT_NAME_BYTES_MAX:
        return f"object name {head.object[:40]!r}: give at most {OBJECT_NAME_BYTES_MAX} bytes"
    if len(head.class_name.encode()) > CLASS_NAME_BYTES_MAX:
        return f"class name {head.class_name[:40]!r}: give at most {CLASS_NAME_BYTES_MAX} bytes"
    numbers = (
        ("position", head.position, POSITION_MAX),
        ("version", head.version, 2**32 - 1),
        ("size", head.size, SIZE_MAX),
        ("CRC", head.crc, 2**32 - 1),
        ("log", head.log, 2**64 - 1),
    )
    for name, value, most in numbers:
        if not 0 <= value <= most:
            return f"{name} {value}: a snapshot has one from 0 to {most}"
    return ""


def pack_head(head: StoredHead) -> bytes:
    description = _encode(head)
    fixed = _FIXED.pack(MAGIC, VERSION, len(description)) + description
    assert len(fixed) <= HEAD_BYTES - _CRC.size, "its names are bounded"
    fixed = fixed.ljust(HEAD_BYTES - _CRC.size, b"\0")
    return fixed + _CRC.pack(crc32(fixed))


def unpack_head(content: bytes, path: Path) -> StoredHead:
    """Raises LogDamagedError if it is none, and StorageError if a newer version has written it."""
    if len(content) < HEAD_BYTES or not content.startswith(MAGIC):
        raise LogDamagedError(f"{path} does not begin like a snapshot")
    (check,) = _CRC.unpack_from(content, HEAD_BYTES - _CRC.size)
    if check != crc32(content[: HEAD_BYTES - _CRC.size]):
        raise LogDamagedError(f"{path}: its head does not fit its checksum")
    _, version, length = _FIXED.unpack_from(content)
    if version != VERSION:
        raise StorageError(
            f"{path} has format {version} and this program knows format {VERSION}: use the version of "
            "totempole that wrote it"
        )
    try:
        head: StoredHead = _decoder.decode(content[_FIXED.size : _FIXED.size + length])
    except msgspec.MsgspecError as error:
        raise LogDamagedError(f"{path}: its description cannot be read ({error})") from None
    if problem := problem_of(head):
        raise LogDamagedError(f"{path}: {problem}")
    return head


# Rescues


class Rescue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A log that goes on as another one, from one replica."""

    before: int
    after: int
    """The new log's name."""
    position: int
    """Records before it were green, and are the same in both."""


_rescues = msgspec.msgpack.Decoder(tuple[Rescue, ...])


def read_rescues(directory: Path) -> tuple[Rescue, ...]:
    """Raises StorageError if the file is there and cannot be read."""
    path = directory / RESCUES
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror})") from None
    body = content[: -_CRC.size]
    if len(content) < _CRC.size or content[-_CRC.size :] != _CRC.pack(crc32(body)):
        raise LogDamagedError(
            f"{path} does not fit its checksum: snapshots from before a rescue are not used"
        )
    try:
        found: tuple[Rescue, ...] = _rescues.decode(body)
    except msgspec.MsgspecError as error:
        raise LogDamagedError(f"{path} cannot be read ({error})") from None
    return found


def pack_rescues(rescues: tuple[Rescue, ...]) -> bytes:
    body = _encode(rescues)
    return body + _CRC.pack(crc32(body))


def adopted(head: StoredHead, log: int, rescues: tuple[Rescue, ...]) -> StoredHead:
    """As one of this log, if it goes on from the log that the snapshot was taken of."""
    names = {head.log}
    for rescue in rescues:  # in their order; one may never have come to be
        if rescue.before in names and head.position <= rescue.position:
            names.add(rescue.after)
    return msgspec.structs.replace(head, log=log) if log in names else head


# Names


def snapshots_of(log_directory: Path) -> Path:
    return log_directory / "snapshots"


def hash_of(object_name: str) -> str:
    return blake2b(object_name.encode(), digest_size=8).hexdigest()


def snapshot_name(object_name: str, position: int) -> str:
    return f"{hash_of(object_name)}-{position:020d}.snapshot"


def position_of(path: Path) -> int:
    """Of a complete one."""
    match = _NAME.match(path.name)
    assert match is not None, "it has the name of a snapshot"
    return int(match[2])


def snapshot_files(directory: Path) -> list[Path]:
    """Those that are complete, in the order of their names; none if there is no such directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{directory}: snapshots cannot be read ({error.strerror})") from None
    return [directory / name for name in sorted(names) if _NAME.match(name)]


def check_directory(directory: Path, user: int) -> None:
    """Raises StorageError unless it is a directory of this user that nobody else can write to."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise StorageError(f"{directory} is no directory: move it away, and snapshots can be kept")
    if found.st_uid != user:
        raise StorageError(
            f"{directory} belongs to user {found.st_uid}, and the node runs as user {user}: correct its owner"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(
            f"{directory} can be written to by others (permissions {stat.S_IMODE(found.st_mode):04o}): chmod "
            "700 it"
        )


# Reading


class SnapshotFile:
    """A complete snapshot, open. It can be read to its end, also when its name is removed meanwhile."""

    def __init__(self, path: Path) -> None:
        """Raises FileNotFoundError; LogDamagedError if its head cannot be read or its size is not right."""
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self.head = unpack_head(os.pread(self._file, HEAD_BYTES, 0), path)
            size = os.fstat(self._file).st_size - HEAD_BYTES
            if size != self.head.size:
                raise LogDamagedError(f"{path} has {size} bytes of content instead of {self.head.size}")
        except BaseException:
            os.close(self._file)
            raise

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def identity(self) -> tuple[int, int, int]:
        """Another file, or a changed one, has another."""
        found = os.fstat(self._file)
        return found.st_ino, found.st_mtime_ns, found.st_size

    def chunk(self, offset: int, size: int = CHUNK_BYTES) -> bytes:
        """Of the content; empty behind its end."""
        return os.pread(self._file, min(size, max(0, self.head.size - offset)), HEAD_BYTES + offset)

    def chunks(self, offset: int = 0) -> Iterator[bytes]:
        while chunk := self.chunk(offset):
            yield chunk
            offset += len(chunk)

    def check(self) -> None:
        """Reads all of it. Raises LogDamagedError."""
        crc = size = 0
        for chunk in self.chunks():
            crc = crc32(chunk, crc)
            size += len(chunk)
        if size != self.head.size or crc != self.head.crc:
            raise LogDamagedError(
                f"{self.path}: the content of this snapshot of object {self.head.object!r} at position "
                f"{self.head.position} does not fit its checksum"
            )


def heads_in(directory: Path, object_name: str = "", log: int = 0) -> tuple[list[StoredHead], list[str]]:
    """Of the complete snapshots, of one object or of all, the newest first; and what is wrong with others.
    Their contents are not read. `log`: the present one; snapshots of those that it goes on from are its own.
    """
    heads: list[StoredHead] = []
    problems: list[str] = []
    rescues: tuple[Rescue, ...] = ()
    try:
        rescues = read_rescues(directory)
    except StorageError as error:
        problems.append(str(error))
    wanted = hash_of(object_name) if object_name else ""
    for path in snapshot_files(directory):
        if not path.name.startswith(wanted):
            continue
        try:
            with SnapshotFile(path) as file:
                head = file.head
        except FileNotFoundError:
            continue  # it has just been removed
        except (StorageError, OSError) as error:
            problems.append(str(error))
            continue
        if path.name != snapshot_name(head.object, head.position):
            problems.append(f"{path} is a snapshot of object {head.object!r} at position {head.position}")
        elif not object_name or head.object == object_name:
            heads.append(adopted(head, log, rescues))
    return sorted(heads, key=lambda head: (head.object, -head.position)), problems
