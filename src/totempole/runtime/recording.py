"""A node's inputs in a file: what was fed to its stack, in order, to be fed again (`replaying`).

    TOTEMREC, version u32
    frames: length u32, CRC-32 u32, body
        first: the header, JSON: the stack's description, stable values, kinds traced, ids of keys
        then each input: kind u8 (its place in the header's list), own time i64, CRC-32 of the effects
            that it had u32, its fields
        last: 255 and why it ended. A file without it was cut off, which makes it a legal prefix.

A field is a letter and its value: I, a number (length u8, two's complement); B, bytes (length u32); T, a
tuple (count u32, fields); S, text (length u32, UTF-8); N, nothing; K, a keyring (count u8, ids u8). Never a
key. But what was submitted is in it as it was, so the file is its owner's alone.

All numbers are big-endian.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from struct import Struct, error
from types import NoneType, TracebackType, UnionType
from typing import IO, Any, NamedTuple, Self, TypeVar, get_args, get_type_hints

from msgspec import structs

from totempole.core.effects import Effect, Records, Send
from totempole.core.inputs import Appended, Arrived, Expired, Input, Narrowed, Recalled, Start, Written
from totempole.core.order import Leave, Submit
from totempole.core.records import record_text, record_value
from totempole.corel.commands import (
    AppendRecords,
    ChangeReplicas,
    CloseLog,
    FindRun,
    Forget,
    OpenLog,
    ReadBarrier,
    SetHold,
    TellGreen,
)
from totempole.corel.config import LogConfig
from totempole.corel.run import Run
from totempole.corel.zones import Zones
from totempole.errors import ConfigurationError, TraceError
from totempole.groups import GroupConfig
from totempole.groups.commands import Connect, Disconnect, GiveState, JoinGroup, LeaveGroup, Multicast
from totempole.networks.commands import Drain, Restore
from totempole.rrp.commands import AddNetwork, NetworkBack, NetworkLost, RemoveNetwork
from totempole.rrp.config import RedundancyConfig
from totempole.srp.commands import Rekey
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, RingSpec, StackSpec
from totempole.wire.seal import Keyring

MAGIC = b"TOTEMREC"
VERSION = 5

INPUTS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Start, Arrived, Expired, Written, Narrowed, Submit, Leave, Rekey),
        *(Connect, Disconnect, JoinGroup, LeaveGroup, Multicast, GiveState),
        *(NetworkLost, NetworkBack, Drain, Restore, AddNetwork, RemoveNetwork),
        *(Appended, Recalled, OpenLog, CloseLog, AppendRecords, SetHold, ChangeReplicas, Forget, FindRun),
        *(TellGreen, ReadBarrier),
    )
}
"""All that a stack can be fed. The header lists those that its file was written with."""

BYTES_MAX = 2**30
"""A recording stops at so many bytes, with a mark and a line in the log."""
BUFFER_BYTES = 262_144
"""Gathered before they are written: what a killed node loses of its recording, at most."""
FRAME_BYTES_MAX = BYTES_MAX
"""A frame that claims more is damaged. The longest is the opening of a log, with a segment's frames."""

ENDED_CLOSED = "closed"
ENDED_FULL = "bytes_max was reached"
ENDED_CUT = "cut off"

_END = 255
_U8 = Struct(">B")
_U32 = Struct(">I")
_FRAME = Struct(">II")
_INPUT = Struct(">BqI")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """What it takes to build the stack that was recorded, but for its keys."""

    spec: StackSpec
    stable: Records
    trace_kinds: frozenset[str]
    key_ids: tuple[int, ...] = ()
    """The ids of the keyring at the start, the active one first; none: unsealed."""


class RecordedInput(NamedTuple):
    given: Input
    """A keyring is KeyIds."""
    now_us: int
    digest: int


class KeyIds(tuple[int, ...]):
    """Stands in a recording for the keyring of these keys."""

    __slots__ = ()


def effects_digest(effects: Iterable[Effect]) -> int:
    """CRC-32 over a canonical text of the effects, in order; bytes count as they are, not as text.

    A transmission's `packet` is left out: its bytes say the same.
    """
    crc = 0
    for effect in effects:
        crc = _digest(effect._replace(packet=None) if type(effect) is Send else effect, crc)
    return crc


def _digest(value: Any, crc: int) -> int:
    if isinstance(value, (bytes, memoryview)):
        return zlib.crc32(value, crc)
    if isinstance(value, tuple):
        crc = zlib.crc32(f"{type(value).__name__} {len(value)}".encode(), crc)
        for item in value:
            crc = _digest(item, crc)
        return crc
    if isinstance(value, Run):
        return _digest(structs.astuple(value), crc)
    return zlib.crc32(repr(value).encode(), crc)


# Writing


class InputRecorder:
    """Appends inputs to a new file. `ended` says why it takes no more; None while it does."""

    def __init__(self, path: Path, header: RecordingHeader, bytes_max: int = BYTES_MAX) -> None:
        self.path = path
        self.ended: str | None = None
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._written_bytes = 0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot_write(path, error) from error
        self._put(MAGIC + _U32.pack(VERSION))
        self._put(_framed(_header_bytes(header)))
        self.flush()

    def record(self, now_us: int, given: Input, effects: Iterable[Effect]) -> None:
        """One input and what it led to. Does nothing once the recording has ended."""
        if self.ended is not None:
            return
        number = _NUMBERS[type(given).__name__]
        body = _INPUT.pack(number, now_us, effects_digest(effects)) + b"".join(_encoded(_fields(given)))
        if self._written_bytes + self._waiting_bytes + _FRAME.size + len(body) > self._bytes_max:
            _log.warning("%s: %d bytes recorded, and bytes_max allows no more", self.path, self._bytes_max)
            self._end(ENDED_FULL)
            return
        self._put(_framed(body))
        if self._waiting_bytes >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hands to the kernel what is gathered. After a failure the file ends where the last flush did."""
        if self.ended is not None:
            return
        data = memoryview(b"".join(self._pieces))
        end = self._written_bytes + len(data)
        self._pieces.clear()
        self._waiting_bytes = 0
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            os.ftruncate(self._file, self._written_bytes)
            self._close(ENDED_CUT)
            raise _cannot_write(self.path, error) from error
        self._written_bytes = end

    def close(self) -> None:
        if self.ended is None:
            self._end(ENDED_CLOSED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting_bytes += len(data)

    def _end(self, why: str) -> None:
        self._put(_framed(_U8.pack(_END) + why.encode()))
        self.flush()
        self._close(why)

    def _close(self, why: str) -> None:
        self.ended = why
        os.close(self._file)


_NUMBERS = {name: number for number, name in enumerate(INPUTS)}


def _framed(body: bytes) -> bytes:
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _header_bytes(header: RecordingHeader) -> bytes:
    spec = header.spec
    values = {
        "processor": spec.processor,
        "networks": [asdict(network) for network in spec.networks],
        "rings": [
            {
                "engine": ring.engine,
                "networks": ring.networks,
                "redundancy": None if ring.redundancy is None else _settings(ring.redundancy),
                "config": _settings(ring.config),
            }
            for ring in spec.rings
        ],
        "groups": None if spec.groups is None else _settings(spec.groups),
        "log": None if spec.log is None else _settings(spec.log),
        "stable": {name: record_text(value) for name, value in header.stable.items()},
        "trace_kinds": sorted(header.trace_kinds),
        "key_ids": header.key_ids,
        "inputs": list(INPUTS),
    }
    return json.dumps(values, sort_keys=True).encode()


def _settings(config: RingConfig | GroupConfig | RedundancyConfig | LogConfig) -> dict[str, Any]:
    values = ((item.name, getattr(config, item.name)) for item in fields(config))
    return {name: value if isinstance(value, (str, tuple)) else int(value) for name, value in values}


def _fields(given: Input) -> Sequence[Any]:
    return given if isinstance(given, tuple) else [getattr(given, item.name) for item in fields(given)]  # type: ignore[arg-type]


def _encoded(values: Sequence[Any]) -> Iterator[bytes]:
    for value in values:
        if isinstance(value, int):
            size = value.bit_length() // 8 + 1
            yield b"I" + _U8.pack(size) + value.to_bytes(size, "big", signed=True)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            yield b"B" + _U32.pack(len(value))
            yield bytes(value)
        elif isinstance(value, str):
            text = value.encode()
            yield b"S" + _U32.pack(len(text)) + text
        elif isinstance(value, (tuple, list)):
            yield b"T" + _U32.pack(len(value))
            yield from _encoded(value)
        elif value is None or isinstance(value, Zones):  # which a replay works out from the frames
            yield b"N"
        elif isinstance(value, Keyring):
            yield b"K" + bytes([len(value.keys), *(key.id for key in value.keys)])
        else:
            raise TypeError(f"a recording has no place for a field of type {type(value).__name__}")


def _cannot_write(path: Path, error: OSError) -> TraceError:
    return TraceError(
        f"{path}: inputs cannot be recorded ({error}): free some space, or name another directory"
    )


# Reading


class RecordingReader:
    """The header at once, then each input by iterating; after the last, `ended` says why it is the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended: str | None = None
        self._file: IO[bytes] = _open(path)
        try:
            self.header, self._kinds = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[RecordedInput]:
        with self._file:
            while self.ended is None:
                body = self._frame()
                if body is None:
                    self.ended = ENDED_CUT
                elif body[0] == _END:
                    self.ended = body[1:].decode("utf-8", "replace")
                else:
                    yield self._input(body)

    def close(self) -> None:
        self._file.close()

    def _input(self, body: bytes) -> RecordedInput:
        try:
            return _decoded_input(body, self._kinds)
        except (error, IndexError, TypeError, ValueError) as problem:
            raise self._damaged(str(problem)) from None

    def _frame(self) -> bytes | None:
        """None at the end of the file, also if that is in the middle of a frame."""
        prefix = self._file.read(_FRAME.size)
        if len(prefix) < _FRAME.size:
            return None
        length, checksum = _FRAME.unpack(prefix)
        if length > FRAME_BYTES_MAX:
            raise self._damaged(f"a frame of {length} bytes")
        body = self._file.read(length)
        # No frame is empty: zeros are room that a power cut left unwritten.
        if not length or len(body) < length:
            return None
        if zlib.crc32(body) != checksum:
            raise self._damaged("a wrong checksum")
        return body

    def _read_header(self) -> tuple[RecordingHeader, list[str]]:
        start = self._file.read(len(MAGIC) + _U32.size)
        if len(start) < len(MAGIC) + _U32.size or not start.startswith(MAGIC):
            raise TraceError(f"{self.path}: not a recording of a node's inputs")
        (version,) = _U32.unpack_from(start, len(MAGIC))
        if version != VERSION:
            raise TraceError(
                f"{self.path}: the recording has version {version} and this program reads version {VERSION}; "
                "read it with the version that wrote it"
            )
        body = self._frame()
        if body is None:
            raise TraceError(f"{self.path}: cut off within its header; nothing can be replayed")
        return _decoded_header(body, self.path)

    def _damaged(self, what: str) -> TraceError:
        return TraceError(f"{self.path}: damaged before byte {self._file.tell()} ({what})")


def _open(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error


def _decoded_header(body: bytes, path: Path) -> tuple[RecordingHeader, list[str]]:
    try:
        values = json.loads(body)
        header = RecordingHeader(
            _decoded_spec(values),
            {name: record_value(text) for name, text in values["stable"].items()},
            frozenset(values["trace_kinds"]),
            tuple(values["key_ids"]),
        )
        kinds = list(values["inputs"])
    except (KeyError, TypeError, ValueError, ConfigurationError) as problem:
        raise TraceError(f"{path}: its header cannot be used ({problem})") from None
    unknown = sorted(set(kinds) - set(INPUTS))
    if unknown:
        raise TraceError(f"{path}: it has inputs {unknown[0]!r}, which this version's stack does not take")
    return header, kinds


def _decoded_spec(values: dict[str, Any]) -> StackSpec:
    rings = [
        RingSpec(
            _config(RingConfig, ring["config"]),
            tuple(ring["networks"]),
            ring["redundancy"] and _config(RedundancyConfig, ring["redundancy"]),
            ring["engine"],
        )
        for ring in values["rings"]
    ]
    groups, log = values["groups"], values["log"]
    return StackSpec(
        values["processor"],
        tuple(NetworkSpec(**network) for network in values["networks"]),
        tuple(rings),
        None if groups is None else _config(GroupConfig, groups),
        None if log is None else _config(LogConfig, log),
    )


Config = TypeVar("Config", RingConfig, GroupConfig, RedundancyConfig, LogConfig)


def _config(kind: type[Config], values: dict[str, Any]) -> Config:
    """Every setting must be there: a default of today may not be the default that was recorded."""
    types: dict[str, Any] = {item.name: type(item.default) for item in fields(kind)}
    for name in sorted(types.keys() ^ values.keys()):
        whose = "the recording" if name in values else "this version"
        raise ValueError(f"only {whose} has the setting {name!r}")
    return kind(**{name: types[name](value) for name, value in values.items()})


def _decoded_input(body: bytes, kinds: Sequence[str]) -> RecordedInput:
    number, now_us, digest = _INPUT.unpack_from(body)
    kind = INPUTS[kinds[number]]
    place, found = _INPUT.size, []
    while place < len(body):
        value, place = _decoded(body, place)
        found.append(value)
    return RecordedInput(_typed(kind, found), now_us, digest)


def _typed(kind: Any, values: Sequence[Any]) -> Any:
    """A named tuple or dataclass of these fields, with each of them as its annotation says."""
    hints = _HINTS.setdefault(kind, [*get_type_hints(kind, None, {"Keyring": Keyring}).values()])
    return kind(*[_typed_value(hint, value) for hint, value in zip(hints, values, strict=True)])


def _typed_value(hint: Any, value: Any) -> Any:
    if isinstance(hint, UnionType) and value is not None:
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if not isinstance(hint, type) or isinstance(value, KeyIds):
        return value
    if issubclass(hint, Enum) or hint is bool:
        return hint(value)
    return _typed(hint, value) if issubclass(hint, tuple) and hasattr(hint, "_fields") else value


_HINTS: dict[type, list[Any]] = {}


def _decoded(body: bytes, place: int) -> tuple[Any, int]:
    """The field that begins here, and where the next one does."""
    tag, place = body[place : place + 1], place + 1
    if tag == b"T":
        (count,) = _U32.unpack_from(body, place)
        place += _U32.size
        items = []
        for _ in range(count):
            item, place = _decoded(body, place)
            items.append(item)
        return tuple(items), place
    if tag == b"N":
        return None, place
    length = _U32 if tag in (b"B", b"S") else _U8
    (size,) = length.unpack_from(body, place)
    place += length.size
    data = body[place : place + size]
    if len(data) < size:
        raise ValueError("a field longer than its frame")
    match tag:
        case b"B":
            return data, place + size
        case b"S":
            return data.decode(), place + size
        case b"I":
            return int.from_bytes(data, "big", signed=True), place + size
        case b"K":
            return KeyIds(data), place + size
    raise ValueError(f"a field of unknown type {tag!r}")
