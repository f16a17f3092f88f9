"""A snapshot on its way between a program and a log service. No I/O.

Both ways can break off and go on: a `Getting` at any service that has the same snapshot, a `Putting` at the
service that has the first part of it.
"""

from __future__ import annotations

from typing import Protocol

from isal.isal_zlib import crc32

from totempole.client.log_endpoints import unexpected
from totempole.errors import ObjectError, SessionError
from totempole.log.snapshots import StoredHead
from totempole.session.log_frames import (
    PUT_BYTES_MAX,
    Answer,
    GetSnapshot,
    PutChunk,
    PutFrom,
    PutReached,
    PutSnapshot,
    SnapshotChunk,
    SnapshotFound,
    SnapshotMissing,
    SnapshotRefused,
    SnapshotStored,
)

PREFIX_STEP_BYTES = 1024 * 1024


class SnapshotError(ObjectError):
    """A snapshot that cannot be had, or cannot be kept. The text says why."""


class SnapshotDamagedError(SnapshotError):
    """Its content does not fit its checksum."""


class SnapshotRefusedError(SnapshotError):
    """The log service does not keep it. `kind` as `session.log_frames.SnapshotRefused` has it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Content(Protocol):
    """The bytes of a snapshot, which can be read again when a put breaks off."""

    @property
    def size(self) -> int: ...

    @property
    def crc(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...


class Getting:
    def __init__(self, head: StoredHead) -> None:
        self.head = head
        self.offset = 0
        """So much has come."""
        self.missing = ""
        """Why the service that was asked last has it not."""
        self._crc = 0
        self._is_found = False

    @property
    def is_done(self) -> bool:
        """All of it has come, and been asked for."""
        return self.offset >= self.head.size

    def request(self) -> GetSnapshot:
        self._is_found = False
        self.missing = ""
        return GetSnapshot(self.head.object, self.head.position, self.offset)

    def take(self, answer: Answer) -> bytes:
        """The content that has come; it may be empty. `missing` is set if the service has it not."""
        match answer:
            case SnapshotFound(head, offset) if not self._is_found:
                self._is_found = True
                if head != self.head or offset != self.offset:
                    self.missing = "it has another snapshot at that position"
                return b""
            case SnapshotChunk(content) if self._is_found:
                if len(content) > self.head.size - self.offset:
                    raise SessionError("the log service sends more of a snapshot than there is")
                self.offset += len(content)
                self._crc = crc32(content, self._crc)
                return content
            case SnapshotMissing(text):
                self.missing = text
                return b""
            case _:
                raise unexpected(answer)

    def check(self) -> None:
        """Raises SnapshotDamagedError."""
        assert self.is_done, "all of it has come"
        if self._crc != self.head.crc:
            raise SnapshotDamagedError(
                f"the snapshot of object {self.head.object!r} at position {self.head.position} has come with "
                "a content that does not fit its checksum"
            )


class Putting:
    def __init__(self, head: StoredHead, content: Content) -> None:
        self.head = head
        self.stored: SnapshotStored | None = None
        """It is durable."""
        self._content = content
        self._offset: int | None = None
        """Of the next chunk; None before the service has said from where on."""

    def request(self) -> PutSnapshot:
        self._offset = None
        return PutSnapshot(self.head)

    def take(self, answer: Answer) -> PutSnapshot | None:
        """A request to be made, if the answer asks for one. Raises SnapshotRefusedError."""
        match answer:
            case PutFrom(offset, crc) if self._offset is None:
                if offset > self.head.size or crc != self._crc_of(offset):
                    return PutSnapshot(self.head, again=True)  # what is there is not of this snapshot
                self._offset = offset
            case PutReached():
                pass
            case SnapshotStored():
                self.stored = answer
            case SnapshotRefused(kind, text):
                raise SnapshotRefusedError(kind, text)
            case _:
                raise unexpected(answer)
        return None

    def chunk(self) -> PutChunk | None:
        """The next to be sent; None if the service has to answer first."""
        if self._offset is None or self._offset >= self.head.size:
            return None
        content = self._content.read(self._offset, min(PUT_BYTES_MAX, self.head.size - self._offset))
        if not content:
            raise SnapshotError(f"the snapshot of object {self.head.object!r} ends before its size")
        self._offset += len(content)
        return PutChunk(content)

    def _crc_of(self, stop: int) -> int:
        crc = at = 0
        while at < stop:
            content = self._content.read(at, min(PREFIX_STEP_BYTES, stop - at))
            if not content:
                break
            crc = crc32(content, crc)
            at += len(content)
        return crc
