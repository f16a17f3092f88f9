"""A segment: one file of the log. A header, then frames (`corel.frames`), then zeros.

    header, 128 bytes:
        magic 8 bytes, version u32, processor u32, cluster u64, log u64, disk u64, segment number u64,
        and of its first frame, a mark: sequence u64, green runs u64, position u64, time u64;
        the first green run that the replica has u64; zeros; CRC-32 u32
    frame, 24 bytes and its content:
        magic 4 bytes, CRC-32 u32, length u32, frames before it since the last sync u32, sequence u64

All numbers are big-endian. A frame's CRC covers the segment's number and all of the frame behind the CRC, so
that no frame of another segment passes for one of this.

A segment appears under its name when its header and its mark are durable. Every opening of the log begins a
new one. So what follows the last whole frame of a segment is one of two things, and they can be told apart:

- A torn tail: the writer was cut off before it had synced. Any part of what it wrote since its last sync may
  be there.
- Damage: a whole frame is behind it that was written after a later sync.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
from isal.isal_zlib import crc32

from totempole.errors import CodecError, LogDamagedError, StorageError
from totempole.log.blocks import Blocks

VERSION = 1
MAGIC = b"TOTEMLOG"
HEADER_BYTES = 128
FRAME_MAGIC = b"\xf5\x9aTP"

FRAME = Struct(">4sIIIQ")
_HEADER = Struct(">8sII9Q")
_CHECKED = Struct(">IIQ")
_NUMBER = Struct(">Q")
_CRC = Struct(">I")
_CHECKED_AT = 8
"""From here on a frame's head is covered by its CRC."""

BLOCK_BYTES_MIN = 64 * 1024
BLOCK_BYTES_MAX = 4 * 1024 * 1024
"""What is read at once: little at the end of a log that grows, much where there is much."""

_NAME = re.compile(r"^(\d{12})\.segment$")


def segment_name(number: int) -> str:
    return f"{number:012d}.segment"


class Header(NamedTuple):
    processor: int
    cluster: int
    log: int
    """The log's own name, as of the mark; 0 before it is founded."""
    disk: int
    """Likewise."""
    number: int
    """Segments are numbered from 1, without gaps."""
    sequence: int
    """Of the mark that the segment begins with: frames are counted from 1, over all segments."""
    green_runs: int
    """Before the mark, as all that follows."""
    position: int
    time_us: int
    kept_from: int
    """The first green run that this replica had: it may have begun with a mark of another's."""

    def pack(self) -> bytes:
        fixed = _HEADER.pack(MAGIC, VERSION, *self).ljust(HEADER_BYTES - _CRC.size, b"\0")
        return fixed + _CRC.pack(crc32(fixed))


def unpack_header(content: bytes, path: Path) -> Header:
    """Raises LogDamagedError if it is none, and StorageError if a newer version has written it."""
    if len(content) < HEADER_BYTES or not content.startswith(MAGIC):
        raise LogDamagedError(f"{path} does not begin like a segment of a log")
    _, version, *fields = _HEADER.unpack_from(content)
    (check,) = _CRC.unpack_from(content, HEADER_BYTES - _CRC.size)
    if check != crc32(content[: HEADER_BYTES - _CRC.size]):
        raise LogDamagedError(f"{path}: its header does not fit its checksum")
    if version != VERSION:
        raise StorageError(
            f"{path} has format {version} and this program knows format {VERSION}: use the version of "
            "totempole that wrote it"
        )
    return Header(*fields)


class MarkHead(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    """The first fields of `corel.frames.Mark`: what follows them can be large, and is passed over."""

    format: int
    log: int
    disk: int
    frames: int
    green_runs: int
    position: int
    time_us: int


_mark_head = msgspec.msgpack.Decoder(MarkHead)


def mark_head(content: bytes | memoryview) -> MarkHead:
    try:
        head: MarkHead = _mark_head.decode(content)
        return head
    except msgspec.MsgspecError:
        raise CodecError("log mark malformed") from None


# Frames


def seed_of(number: int) -> int:
    """What the CRC of every frame of this segment begins with."""
    return crc32(_NUMBER.pack(number))


def frame_head(seed: int, sequence: int, since_sync: int, content: bytes) -> bytes:
    checked = _CHECKED.pack(len(content), since_sync, sequence)
    return FRAME_MAGIC + _CRC.pack(crc32(content, crc32(checked, seed))) + checked


class Stored(NamedTuple):
    """A whole frame."""

    sequence: int
    since_sync: int
    """Frames before it that were written after the last sync."""
    content: memoryview
    at: int
    """Where it begins in the file."""

    @property
    def end(self) -> int:
        return self.at + FRAME.size + len(self.content)


def _parse(block: memoryview, used: int, seed: int, at: int) -> tuple[Stored | None, int]:
    """The frame that begins here, if it is whole; and how many bytes of the block it needs."""
    if len(block) < used + FRAME.size:
        return None, used + FRAME.size
    magic, check, length, since_sync, sequence = FRAME.unpack_from(block, used)
    if magic != FRAME_MAGIC:
        return None, 0
    start = used + FRAME.size
    if len(block) < start + length:
        return None, start + length
    content = block[start : start + length]
    if check != crc32(content, crc32(block[used + _CHECKED_AT : start], seed)):
        return None, 0
    return Stored(sequence, since_sync, content, at), 0


class SegmentReader:
    """Reads the frames of one segment, in their order, as far as they are whole. May go on later.

    It reads and does not map: a bad sector, or a file that gets shorter, is an error and not a signal.
    """

    def __init__(self, path: Path, blocks: Blocks | None = None) -> None:
        """`blocks`: what it reads into; not given, memory of its own."""
        self.path = path
        self._blocks = blocks
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.header = unpack_header(os.pread(self._file, HEADER_BYTES, 0), path)
        except BaseException:
            os.close(self._file)
            raise
        self.at = HEADER_BYTES
        """Where the next frame begins."""
        self.sequence = self.header.sequence
        """Of the next frame."""
        self._seed = seed_of(self.header.number)

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    @property
    def is_removed(self) -> bool:
        """It can still be read."""
        return os.fstat(self._file).st_nlink == 0

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

    def frames(self) -> Iterator[Stored]:
        """Ends at the first frame that is not whole (yet)."""
        block_bytes = BLOCK_BYTES_MIN
        while True:
            block = self._block(block_bytes)
            used = 0
            stored, need = _parse(block, used, self._seed, self.at)
            while stored is not None and stored.sequence == self.sequence:
                used += FRAME.size + len(stored.content)
                self.at = stored.end
                self.sequence += 1
                yield stored
                stored, need = _parse(block, used, self._seed, self.at)
            if stored is not None or not need:
                return
            if used == 0 and need <= block_bytes:
                return  # the file ends within it
            if need - used > self.size - self.at:
                return
            block_bytes = max(need - used, min(2 * block_bytes, BLOCK_BYTES_MAX))
            del block, stored  # its memory may be read into again

    def _block(self, size: int) -> memoryview:
        """What the file has behind the last frame that was read."""
        if self._blocks is None:
            return memoryview(os.pread(self._file, size, self.at))
        block = self._blocks.take(size)
        return block[: os.preadv(self._file, [block], self.at)]

    def has_more(self) -> bool:
        """Whether something has been written behind what was read. It may not be whole yet."""
        return os.pread(self._file, len(FRAME_MAGIC), self.at) == FRAME_MAGIC

    def mark(self) -> bytes:
        """The frame that the segment begins with."""
        with SegmentReader(self.path) as first:
            for stored in first.frames():
                return bytes(stored.content)
        raise LogDamagedError(f"{self.path}: its mark does not fit its checksum")

    def has_tail(self) -> bool:
        """Asked where `frames` has ended: whether anything but zeros follows."""
        at = self.at
        while block := os.pread(self._file, BLOCK_BYTES_MAX, at):
            if block.count(0) != len(block):
                return True
            at += len(block)
        return False

    def lost_frame(self) -> Stored | None:
        """Asked where `frames` has ended: a whole frame behind this place which shows that what is missing
        here had been synced once. None: what follows is a torn tail."""
        for stored in self._later_frames():
            if stored.sequence - stored.since_sync > self.sequence:
                return stored
        return None

    def _later_frames(self) -> Iterator[Stored]:
        at = self.at + 1
        while block := os.pread(self._file, BLOCK_BYTES_MAX, at):
            found = block.find(FRAME_MAGIC)
            while found >= 0:
                stored = self._frame_at(at + found)
                if stored is not None and stored.sequence > self.sequence:
                    yield stored
                found = block.find(FRAME_MAGIC, found + 1)
            if len(block) < len(FRAME_MAGIC):
                return
            at += len(block) - len(FRAME_MAGIC) + 1

    def _frame_at(self, at: int) -> Stored | None:
        head = os.pread(self._file, FRAME.size, at)
        stored, need = _parse(memoryview(head), 0, self._seed, at)
        if need <= FRAME.size or need > self.size - at:
            return stored
        return _parse(memoryview(os.pread(self._file, need, at)), 0, self._seed, at)[0]


# Directories


def segment_numbers(directory: Path) -> list[int]:
    """Of the segments in the directory, ascending."""
    return sorted(int(found[1]) for name in os.listdir(directory) if (found := _NAME.match(name)))


def last_in_a_row(numbers: list[int]) -> list[int]:
    """The segments that can be read one after the other up to the last: what is before a gap cannot."""
    start = len(numbers) - 1
    while start > 0 and numbers[start - 1] == numbers[start] - 1:
        start -= 1
    return numbers[max(start, 0) :]


def read_header(path: Path) -> Header:
    with open(path, "rb") as file:
        return unpack_header(file.read(HEADER_BYTES), path)
