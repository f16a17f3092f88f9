"""What a replica writes to its log. One frame is one atomic step (COReL §5.5.2); replaying all frames since
the last `Mark` gives the state (zones.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from totempole.corel.fences import FenceRow
from totempole.corel.quorum import Formation, ReplicaSet
from totempole.corel.run import Run, RunId, ViewedRun
from totempole.errors import CodecError

FORMAT = 1
"""The version of frames and marks."""


class Colour(IntEnum):
    """COReL §5.2.1."""

    RED = 0
    YELLOW = 1
    GREEN = 2


class _Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Placed(_Frame, frozen=True, tag=1):
    """A run that the replica did not have. Green: fetched from another replica's green prefix."""

    run: Run
    colour: Colour


class ViewedPlaced(Placed, frozen=True, tag=1):
    """The same, as whoever only reads takes it: the run's body is a view of what it was decoded from."""

    run: ViewedRun


class Promoted(_Frame, frozen=True, tag=2):
    """Red runs that the primary component has delivered again: they become yellow, behind all yellow ones."""

    runs: tuple[RunId, ...]


class Greened(_Frame, frozen=True, tag=3):
    """The green line: so many runs are green, in all. Written behind what is next, never waited for."""

    runs: int


class Agreed(_Frame, frozen=True, tag=4):
    """Steps 3 to 6 of recovery: the representative's green and yellow runs from `base` on.

    What the replica holds beside these becomes red.
    """

    base: int
    order: tuple[RunId, ...]
    green: int
    """So many runs are green, in all."""
    committed: Formation
    log: int
    records: tuple[Run, ...] = ()
    """Of primaries, within that order. No one sends these as messages."""


class Attempted(_Frame, frozen=True, tag=5):
    formation: Formation


class Committed(_Frame, frozen=True, tag=6):
    """All yellow runs stay so. Behind them come the new primary's record and these red runs, which all its
    members have."""

    formation: Formation
    record: Run
    runs: tuple[RunId, ...]


class Shown(NamedTuple):
    """What a replica has shown of its disk: so many frames, in this life."""

    processor: int
    disk: int
    life: int
    frames: int


class Opening(NamedTuple):
    """A life began, and found so many frames. A disk that lost some when its power failed, or that comes from
    a backup, found fewer than it had shown in the life before."""

    life: int
    frames: int


class Identified(_Frame, frozen=True, tag=7):
    """This disk's own name. A disk that finds itself rolled back takes a new one."""

    disk: int


class Heard(_Frame, frozen=True, tag=8):
    """What the others have shown of their disks."""

    disks: tuple[Shown, ...]


class Begun(_Frame, frozen=True, tag=9):
    """The replica's green prefix begins here: it got the state as of a place that others had trimmed before.
    Its own red runs stay."""

    mark: Mark


class Mark(_Frame, frozen=True, tag=10):
    """The whole state. A segment begins with one, so that older segments can go."""

    format: int
    log: int
    disk: int
    frames: int
    green_runs: int
    position: int
    time_us: int
    attempted: int
    attempts: tuple[Formation, ...]
    committed: Formation
    established: Formation
    """The last primary whose record is green."""
    replicas: ReplicaSet
    vector: tuple[RunId, ...]
    keys: tuple[tuple[str, str, int], ...]
    """(log, key, position), the oldest first."""
    fences: tuple[FenceRow, ...]
    """The one that was moved longest ago is the first."""
    holds: dict[str, int]
    heard: tuple[Shown, ...]
    yellow: tuple[Run, ...]
    red: tuple[Run, ...]
    openings: tuple[Opening, ...]
    """The last ones."""


class Opened(_Frame, frozen=True, tag=11):
    """The first frame of a life."""

    opening: Opening


class Rescued(_Frame, frozen=True, tag=12):
    """People have given up the other replicas: this one alone goes on, as a log of another name, so that what
    the others may have never mixes with it. Written while the node is stopped."""

    processor: int
    log: int
    disk: int


_NotPlaced = (
    Promoted | Greened | Agreed | Attempted | Committed | Identified | Heard | Begun | Mark | Opened | Rescued
)
Frame = Placed | _NotPlaced

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)
_viewing_decoder = msgspec.msgpack.Decoder(ViewedPlaced | _NotPlaced)


def encode(frame: Frame) -> bytes:
    return _encoder.encode(frame)


def decode(content: bytes | memoryview) -> Frame:
    """Raises CodecError if it is no frame of this format."""
    return _decoded(_decoder, content)


def decode_viewed(content: memoryview) -> Frame:
    """The same. A run that is placed yellow or green is a view of the content, and keeps it. Red ones may
    stay for long, so they are copied."""
    frame = _decoded(_viewing_decoder, content)
    if isinstance(frame, Placed) and frame.colour is Colour.RED:
        return decode(content)
    return frame


def _decoded(decoder: msgspec.msgpack.Decoder[Frame], content: bytes | memoryview) -> Frame:
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise CodecError("log frame malformed") from None
