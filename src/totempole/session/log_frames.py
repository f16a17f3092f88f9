"""The language between a program and a log service, which serves what a replica has on disk as green.

A frame is length u32 (big-endian) and MessagePack. A program says `Hello`, and `Welcome` or `Failed` answers.
Then it asks one thing at a time:

    Read        `Runs` and `Reached` follow, then `Finished` or `Failed`. With `follow` there is no end: the
                program hangs up. While nothing is ordered, a `Reached` comes every `BEAT_S`.
    Locate      `Located` or `Missing`
    AskStatus   `ReplicaStatus`
    AskSegments `Segments`: what a program that reads in parallel cuts the order by
    Measure     `Measured`, with `Reached` before it while it takes long; or `Failed`
    ListSnapshots  `Snapshots`
    GetSnapshot    `SnapshotFound` and `SnapshotChunk`s, up to the content's size; or `SnapshotMissing`
    PutSnapshot    `PutFrom`: the program goes on from there with `PutChunk`s. Now and then a `PutReached`
                   says how much is on disk; at the end comes `SnapshotStored`, once it is durable.
                   `SnapshotStored` at once: it is there already. `SnapshotRefused`: nothing becomes of it.

Whoever does not read is not sent more: the socket pushes back. Runs travel whole, as the log has them; the
program cuts off what lies before its start and behind its stop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from struct import Struct
from typing import Generic, TypeVar

import msgspec

from totempole.corel.fences import FenceMark
from totempole.corel.run import Run, RunId, ViewedRun
from totempole.corel.zones import Ordered
from totempole.errors import CodecError
from totempole.log.blocks import Blocks
from totempole.log.snapshots import StoredHead

VERSION = 1
HEAD = Struct(">I")

REQUEST_BYTES_MAX = 16_384
PUT_BYTES_MAX = 256 * 1024
"""Of content in one `PutChunk`."""
PUT_REQUEST_BYTES_MAX = PUT_BYTES_MAX + REQUEST_BYTES_MAX
"""A request while a put is under way."""
FRAME_BYTES_MAX = 2**30
"""As far as a program believes a service. A frame has one run at least, however large."""
BUFFER_BYTES = 1024 * 1024

BEAT_S = 1.0
SILENCE_S = 15.0
"""A service that says nothing for so long while it is followed is gone."""

EARLIEST, LATEST = -1, -2
"""In place of a position."""

COLUMNS = ("position", "time_us", "origin", "run", "log", "key", "payload")
"""What a record has. Payloads and keys are only sent to those who ask for them."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# From the program


class Hello(_Frame, frozen=True, tag=1):
    version: int = VERSION
    name: str = ""
    """For logs: what the program calls itself."""
    log: int = 0
    """The log that it has read before: it wants no other. 0: any."""


class Read(_Frame, frozen=True, tag=2):
    log: str = ""
    """Only records of this log; empty: of all."""
    start: int = EARLIEST
    """A position, or EARLIEST (that is kept) or LATEST (only what comes)."""
    place: int = 0
    """Runs before this one are not wanted: who has read part of the order goes on exactly there."""
    stop: int = -1
    """Records from this position on are not wanted. -1: all that are green when this is asked."""
    bytes_max: int = 0
    """End after so many bytes, but not without any run. 0: no bound."""
    follow: bool = False
    notices: bool = False
    """The log's own runs too: new primaries, changes of the replica set, holds."""
    columns: tuple[str, ...] = COLUMNS
    logs: tuple[str, ...] = ()
    """Only records of these logs; none: of all. A service that is older sends those of all."""
    without: str = ""
    """No records of logs whose names begin so. Empty: of all. Likewise."""


class Locate(_Frame, frozen=True, tag=3):
    run: RunId


class AskStatus(_Frame, frozen=True, tag=4):
    pass


class ListSnapshots(_Frame, frozen=True, tag=5):
    object: str = ""
    """Only those of this object; empty: of all."""


class GetSnapshot(_Frame, frozen=True, tag=6):
    object: str
    position: int
    offset: int = 0
    """Content before it is not wanted: who has got part of it goes on there."""


class PutSnapshot(_Frame, frozen=True, tag=7):
    head: StoredHead
    again: bool = False
    """Begin at 0: what an earlier put has left is not what it was."""


class PutChunk(_Frame, frozen=True, tag=8):
    content: bytes


class AskSegments(_Frame, frozen=True, tag=9):
    pass


class Measure(_Frame, frozen=True, tag=10):
    """How far a program may read without exceeding a number of records, or of bytes."""

    start: int
    stop: int
    rows_max: int = 0
    """0: no bound."""
    bytes_max: int = 0
    """Likewise. A record counts as its share of its run."""
    logs: tuple[str, ...] = ()
    """As in `Read`."""
    without: str = ""


# From the service


class Welcome(_Frame, frozen=True, tag=16):
    version: int
    cluster_id: int
    processor: int
    log: int
    """The log's own name; 0: it is not founded yet."""
    first: int
    """The earliest position that is kept."""
    position: int
    """Of the next record to become green, as the replica has it on disk."""
    snapshots: bool = False
    """Whether it keeps snapshots of objects."""
    measures: bool = False
    """Whether it answers `AskSegments` and `Measure`. Older services hang up then."""


class OrderedRun(_Frame, frozen=True):
    """A green run. `corel.zones.Ordered` says what each field means."""

    place: int
    position: int
    time_us: int
    repeats: tuple[tuple[int, int], ...]
    run: Run
    fenced: FenceMark | None = None

    @classmethod
    def of(cls, ordered: Ordered) -> OrderedRun:
        run, place, position, repeats, time_us, fenced = ordered
        return cls(place, position, time_us, repeats, run, fenced)

    @property
    def ordered(self) -> Ordered:
        return Ordered(self.run, self.place, self.position, self.repeats, self.time_us, self.fenced)

    @property
    def stop(self) -> int:
        """The position behind its last record."""
        if self.fenced is not None:
            return self.position
        return self.position + self.run.count - len(self.repeats)


class Runs(_Frame, frozen=True, tag=17):
    runs: tuple[OrderedRun, ...]


class _ViewedOrderedRun(OrderedRun, frozen=True):
    run: ViewedRun


class _ViewedRuns(Runs, frozen=True, tag=17):
    """The same, with views of what the frame was decoded from."""

    runs: tuple[_ViewedOrderedRun, ...]


class EncodedRuns(_Frame, frozen=True, tag=17):
    """The same, as a service sends it. What goes to many readers is encoded already."""

    runs: list[OrderedRun | msgspec.Raw]


class Reached(_Frame, frozen=True, tag=18):
    """All records before this position were sent, or are not wanted."""

    position: int
    place: int
    green: int
    """The replica's own position: how far the reader is behind."""


class Finished(_Frame, frozen=True, tag=19):
    """The end of what was asked for."""

    position: int
    place: int


class Located(_Frame, frozen=True, tag=20):
    ordered: OrderedRun
    """Without the body of its run."""


class Missing(_Frame, frozen=True, tag=21):
    run: RunId
    why: str
    """"unknown": this replica has not got it, at least not yet. "pending": it has it, and it is not green.
    "trimmed": it may have been before what is kept."""


class ReplicaStatus(_Frame, frozen=True, tag=22):
    cluster_id: int
    processor: int
    log: int
    disk: int
    first: int
    position: int
    runs: int
    """Green runs of the whole order."""
    time_us: int
    """Of the last record."""
    yellow_runs: int
    red_runs: int
    pending_bytes: int
    primary: int
    members: tuple[int, ...]
    """Of the last primary component that it knows."""
    replicas: dict[int, tuple[int, int]]
    """By processor: disk and weight."""
    rule: str
    holds: dict[str, int]
    segments: int
    bytes: int
    readers: int
    """Programs connected to this service."""


class Failed(_Frame, frozen=True, tag=23):
    """The connection ends, unless it is "trimmed"."""

    kind: str
    """"trimmed", "log" (it is another one), "request", "version", "user", "closed" (it may be there later),
    "damaged" (it will not be, until somebody mends the replica)."""
    text: str
    earliest: int = 0
    """Of "trimmed": the first position that is kept."""


class Snapshots(_Frame, frozen=True, tag=24):
    heads: tuple[StoredHead, ...]
    """By object, the newest first."""


class SnapshotFound(_Frame, frozen=True, tag=25):
    """Its content follows, in chunks."""

    head: StoredHead
    offset: int


class SnapshotChunk(_Frame, frozen=True, tag=26):
    content: bytes


class SnapshotMissing(_Frame, frozen=True, tag=27):
    text: str


class PutFrom(_Frame, frozen=True, tag=28):
    offset: int
    """So much is there from an earlier put."""
    crc: int
    """CRC-32 of that much."""


class PutReached(_Frame, frozen=True, tag=29):
    offset: int
    """So much is on the disk."""


class SnapshotStored(_Frame, frozen=True, tag=30):
    """It is durable."""

    processor: int
    positions: tuple[int, ...]
    """Of the snapshots of this object that are kept, the newest first."""


class SnapshotRefused(_Frame, frozen=True, tag=31):
    kind: str
    """"head" (it is malformed), "log" (it is of another log), "position" (the replica has not got so far),
    "old" (newer ones are kept), "busy" (another program puts one of this object), "room" (too many, too large
    or the disk is full), "content" (it does not fit its checksum), "disk"."""
    text: str


class Segments(_Frame, frozen=True, tag=32):
    first: int
    """The earliest position that is kept."""
    position: int
    """Of the next record to become green."""
    sizes: tuple[tuple[int, int], ...]
    """Of each segment, ascending: its first position, and its bytes. The first may have some before it."""


class Measured(_Frame, frozen=True, tag=33):
    position: int
    """Records before it are within the bounds. At least one record is, if there is one."""
    rows: int
    bytes: int
    """Of those records."""


Request = (
    Hello
    | Read
    | Locate
    | AskStatus
    | ListSnapshots
    | GetSnapshot
    | PutSnapshot
    | PutChunk
    | AskSegments
    | Measure
)
_NotRuns = (
    Welcome
    | Reached
    | Finished
    | Located
    | Missing
    | ReplicaStatus
    | Failed
    | Snapshots
    | SnapshotFound
    | SnapshotChunk
    | SnapshotMissing
    | PutFrom
    | PutReached
    | SnapshotStored
    | SnapshotRefused
    | Segments
    | Measured
)
Answer = Runs | _NotRuns

Frame = TypeVar("Frame")

_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(Request)
_answer = msgspec.msgpack.Decoder(Answer)
_viewed_answer = msgspec.msgpack.Decoder(_ViewedRuns | _NotRuns)


def encode(frame: Request | Answer | EncodedRuns) -> bytearray:
    out = bytearray(HEAD.size)
    _encoder.encode_into(frame, out, HEAD.size)
    HEAD.pack_into(out, 0, len(out) - HEAD.size)
    return out


def encode_run(ordered: OrderedRun) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(ordered))


def decode_request(body: bytes | memoryview) -> Request:
    """Raises CodecError for what is none."""
    try:
        request: Request = _request.decode(body)
        return request
    except msgspec.MsgspecError as error:
        raise CodecError("frame malformed", f"a request that this version cannot read: {error}") from None


def decode_answer(body: bytes | memoryview) -> Answer:
    """Raises CodecError for what is none."""
    return _decoded_answer(_answer, body)


def decode_viewed_answer(body: memoryview) -> Answer:
    """The same. Bodies of runs are views."""
    return _decoded_answer(_viewed_answer, body)


def _decoded_answer(decoder: msgspec.msgpack.Decoder[Answer], body: bytes | memoryview) -> Answer:
    try:
        return decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise CodecError("frame malformed", f"an answer that this version cannot read: {error}") from None


class FrameBuffer(Generic[Frame]):
    """Puts frames together: what the socket gives is read into `room`, and `filled` gives whole frames."""

    def __init__(
        self,
        decode: Callable[[memoryview], Frame],
        bytes_max: int,
        size: int = BUFFER_BYTES,
        blocks: Blocks | None = None,
    ) -> None:
        """`blocks`: what it reads into, if `decode` leaves views of it."""
        self._decode = decode
        self._bytes_max = bytes_max
        self._size = size
        self._blocks = blocks
        self._view = memoryview(bytearray(size)) if blocks is None else blocks.take(size)
        self._start = 0
        self._stop = 0

    def room(self) -> memoryview:
        return self._view[self._stop :]

    def filled(self, count: int) -> list[Frame]:
        """Raises CodecError for what is no frame."""
        self._stop += count
        frames: list[Frame] = []
        need = HEAD.size
        while self._stop - self._start >= HEAD.size:
            (length,) = HEAD.unpack_from(self._view, self._start)
            if length > self._bytes_max:
                raise CodecError(
                    "frame too long", f"a frame of {length} bytes: the most is {self._bytes_max}"
                )
            body = self._start + HEAD.size
            if self._stop - body < length:
                need = HEAD.size + length
                break
            frames.append(self._decode(self._view[body : body + length]))
            self._start = body + length
        self._make_room(need)
        return frames

    def _make_room(self, need: int) -> None:
        """The frame that has begun fits behind what there is of it."""
        left = self._stop - self._start
        if not left and self._blocks is None:
            self._start = self._stop = 0
        if self._start + need <= len(self._view):
            return
        if self._blocks is not None:
            self._move(self._blocks.take(max(need, self._size)), left)
        elif need > len(self._view):
            self._move(memoryview(bytearray(need + BUFFER_BYTES)), left)
        else:
            self._view[:left] = bytes(self._view[self._start : self._stop])
        self._start, self._stop = 0, left

    def _move(self, view: memoryview, left: int) -> None:
        view[:left] = self._view[self._start : self._stop]
        self._view = view


def log_socket_of(clients_socket: PurePath) -> PurePath:
    """The log service's socket is beside that of the daemon: `clients-log.sock`."""
    return clients_socket.with_name(f"{clients_socket.stem}-log{clients_socket.suffix}")
