"""A run: records that were appended together, the unit that is sent, logged, acknowledged and ordered.

COReL speaks of messages. Sending, logging and acknowledging cost per run, so many records share one. A run
has the id ⟨origin, life, number⟩ (COReL §5.2), and the stamp that the group layer gave it when it was first
delivered (Property 3.3). Some runs are the log's own: a new primary component, a change of the replica set, a
reader's hold. They have a place in the order, and take no position.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from totempole.corel.quorum import Formation, ReplicaSet
from totempole.errors import CodecError
from totempole.groups.packing import Batch, pack
from totempole.types import Fence, Place


class RunId(NamedTuple):
    """Names a run forever. A life is one opening of one replica's log."""

    origin: int
    life: int
    number: int

    def __str__(self) -> str:
        return f"{self.origin}.{self.life}.{self.number}"


class Stamp(NamedTuple):
    """Sorts as the causal order does (Property 3.3): a `Place` of the group layer in four numbers."""

    ring: int
    representative: int
    seq: int
    index: int  # type: ignore[assignment]

    @classmethod
    def of(cls, place: Place) -> Stamp:
        ring_id, seq, _ = place.key
        return cls(ring_id.seq, ring_id.representative, seq, place.index)

    def __str__(self) -> str:
        return f"{self.ring}@{self.representative}:{self.seq}:{self.index}"


NO_STAMP = Stamp(0, 0, 0, 0)


class RunKind(IntEnum):
    RECORDS = 0
    PRIMARY = 1
    """A new primary component and its members. Its origin is 0: all members make it."""
    CHANGE = 2
    """Of the replica set."""
    HOLD = 3
    """A reader's: nothing from this position on is trimmed."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: RunId
    stamp: Stamp
    time_us: int
    """The origin's wall clock. In the order it never runs backwards (`zones`)."""
    kind: RunKind
    count: int
    """Records in it."""
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + RUN_WEIGHT


class ViewedRun(Run, frozen=True, array_like=True, gc=False):
    """A run whose body is not copied from what it is decoded from, and keeps all of that."""

    body: memoryview  # type: ignore[assignment]


RUN_WEIGHT = 64
"""What a run costs beside its body, where bytes are counted."""


class Records(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body of a run of records: all of them for one log."""

    log: str
    batch: bytes
    """As `groups.packing` packs it."""
    keys: tuple[str, ...] = ()
    """One for each record, or none at all. An empty key is none."""
    fence: Fence | None = None

    @property
    def payloads(self) -> Batch:
        return Batch(self.batch)


class RecordsHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The same, with a view of the batch: what orders runs does not copy it."""

    log: str
    batch: memoryview
    keys: tuple[str, ...] = ()
    fence: Fence | None = None


class _LogName(msgspec.Struct, array_like=True, gc=False):
    """The first field of `Records`. What follows is passed over, not copied."""

    log: str


class Primary(msgspec.Struct, frozen=True, array_like=True):
    """The body of a PRIMARY run."""

    number: int
    disks: dict[int, int]
    """Its members, and the disk of each: a disk that was replaced counts from here on."""
    voters: tuple[int, ...]
    """Those of its members whose disks counted when it formed."""
    founding: ReplicaSet | None = None
    """Of the log's first primary: the replica set that the log begins with."""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """The body of a CHANGE run."""

    processor: int
    disk: int
    """0: the processor is removed."""
    weight: int = 1


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """The body of a HOLD run."""

    reader: str
    position: int
    """-1: it is given up."""


_encode = msgspec.msgpack.encode
_records = msgspec.msgpack.Decoder(Records)
_records_head = msgspec.msgpack.Decoder(RecordsHead)
_log_name = msgspec.msgpack.Decoder(_LogName)
_primary = msgspec.msgpack.Decoder(Primary)
_change = msgspec.msgpack.Decoder(Change)
_hold = msgspec.msgpack.Decoder(Hold)


def pack_records(
    log: str, payloads: list[bytes], keys: tuple[str, ...] = (), fence: Fence | None = None
) -> bytes:
    return _encode(Records(log, pack(payloads), keys, fence))


def pack_body(body: Records | RecordsHead | Primary | Change | Hold) -> bytes:
    return _encode(body)


def records_of(run: Run) -> Records:
    return _records.decode(run.body)


def head_of(run: Run) -> RecordsHead:
    """The log of a run of records, their keys and their fence, without a copy of the records."""
    return _records_head.decode(run.body)


def log_name_of(run: Run) -> str:
    """The log that its records are for; empty for the log's own runs."""
    if run.kind is not RunKind.RECORDS:
        return ""
    name: _LogName = _log_name.decode(run.body)
    return name.log


def primary_of(run: Run) -> Primary:
    return _primary.decode(run.body)


def change_of(run: Run) -> Change:
    return _change.decode(run.body)


def hold_of(run: Run) -> Hold:
    return _hold.decode(run.body)


def primary_run(formation: Formation, disks: dict[int, int], founding: ReplicaSet | None = None) -> Run:
    """The same at every member: it is made by all of them, and sent by none."""
    number, voters = formation.number, formation.members
    body = pack_body(Primary(number, dict(sorted(disks.items())), voters, founding))
    return Run(RunId(0, number, 1), NO_STAMP, 0, RunKind.PRIMARY, 0, body)


_run = msgspec.msgpack.Decoder(Run)


def pack_run(run: Run) -> bytes:
    return _encode(run)


def unpack_run(content: bytes) -> Run:
    run: Run = _run.decode(content)
    return run


def is_sound(run: Run) -> bool:
    """Whether all of it can be read. What cannot be is nobody's record."""
    try:
        if run.kind is RunKind.RECORDS:
            head = head_of(run)
            is_fit = head.fence is None or not head.fence.problem
            return is_fit and len(Batch(head.batch)) == run.count and len(head.keys) in (0, run.count)
        if run.kind is RunKind.CHANGE:
            change_of(run)
        elif run.kind is RunKind.HOLD:
            hold_of(run)
    except (msgspec.MsgspecError, UnicodeDecodeError, CodecError):
        return False
    return run.kind is not RunKind.PRIMARY and not run.count
