"""The body of a ring packet that carries group traffic.

    kind u8, epoch: ring seq u64, representative u32; then runs, back to back, of any senders:
    run: kind u8, flags u8, process u32, number u64, count u32, offset u32, total u32, names u16, length u32;
         the groups' names, each with its length u8; the content

A run is what one process asked for in one call, or a piece of it: `length` bytes from `offset` on of `total`.
The content of MESSAGES is a batch as `packing` makes it, so that a daemon forwards it without unpacking it.
The epoch names the configuration whose views the packet was sent in (layer.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from totempole.errors import CodecError
from totempole.groups.packing import INFO_BYTES_MAX, NAME_BYTES_MOST, unpack_names
from totempole.types import OrderKey, Payload, Place, ProcessId, ProcessorId, RingId

GROUPED = 3
"""The first byte of such a body. `packing` has the others."""

_HEAD = Struct(">BQI")
_RUN = Struct(">BBIQIIIHI")
HEAD_BYTES = _HEAD.size
RUN_BYTES = _RUN.size

PROCESS_NUMBER_MAX = 2**32 - 1
"""What the formats have room for."""

_new = tuple.__new__

_TRANSFER = Struct(">IQIQIQQII")
TRANSFER_BYTES = _TRANSFER.size


class RunKind(IntEnum):
    MESSAGES = 1
    JOIN = 2
    LEAVE = 3
    DISCONNECT = 4
    """`count`: how many groups it leaves."""
    TABLE = 5
    """A processor's own part of the table of groups, after a change of configuration."""
    STATE = 6
    """A piece of a group's state for one joiner."""


NOTICE = 1
"""Of MESSAGES: tell the receivers when it has become safe."""
DONOR, WANTS_STATE = 1, 2
"""Of JOIN."""
LAST = 1
"""Of STATE."""


class Run(NamedTuple):
    kind: int
    flags: int
    process: int
    number: int
    count: int  # type: ignore[assignment]
    offset: int
    total: int
    names: tuple[str, ...]
    content: Payload


def is_grouped(body: Payload) -> bool:
    return len(body) > 0 and body[0] == GROUPED


def head(epoch: RingId) -> bytes:
    return _HEAD.pack(GROUPED, *epoch)


def run_head(
    kind: int,
    flags: int,
    process: int,
    number: int,
    count: int,
    offset: int,
    total: int,
    names: bytes,
    length: int,
) -> bytes:
    return _RUN.pack(kind, flags, process, number, count, offset, total, len(names), length) + names


def epoch_of(body: Payload) -> RingId:
    if len(body) < HEAD_BYTES:
        raise CodecError("group packet truncated")
    _, seq, representative = _HEAD.unpack_from(body)
    return RingId(seq, representative)


def runs_of(body: Payload) -> Iterator[Run]:
    """The runs of a body, each with its content cut out but not copied where the body is a view."""
    at, size = HEAD_BYTES, len(body)
    while at < size:
        if at + RUN_BYTES > size:
            raise CodecError("group run truncated")
        kind, flags, process, number, count, offset, total, names_bytes, length = _RUN.unpack_from(body, at)
        names_at = at + RUN_BYTES
        at = names_at + names_bytes
        stop = at + length
        if stop > size or offset + length > total:
            raise CodecError("group run malformed")
        names = unpack_names(bytes(body[names_at:at]))
        # By tuple's own constructor: a third of the time, for every run.
        yield _new(Run, (kind, flags, process, number, count, offset, total, names, body[at:stop]))
        at = stop


# State for a joiner


def pack_transfer(joiner: ProcessId, place: Place) -> bytes:
    """What stands before the content of a piece of state: for whom, and as of where it was asked for."""
    ring, seq, configuration = place.key
    return _TRANSFER.pack(*joiner, *ring, seq, *configuration, place.index)


def unpack_transfer(content: Payload) -> tuple[ProcessId, Place, Payload]:
    if len(content) < TRANSFER_BYTES:
        raise CodecError("group state truncated")
    values = _TRANSFER.unpack_from(content)
    key = OrderKey(RingId(values[3], values[4]), values[5], RingId(values[6], values[7]))
    return ProcessId(*values[:3]), Place(key, values[8]), content[TRANSFER_BYTES:]


# A processor's part of the table


class Entry(NamedTuple):
    """A process's membership of a group."""

    donor: bool = False
    """It can give the group's state to others."""
    source: ProcessId | None = None
    """Who is giving it the state that it waits for,"""
    asked: Place | None = None
    """and as of where."""
    info: bytes = b""
    """What it says of itself to the other members."""


class Part(NamedTuple):
    """What a processor says of its own processes, and who has come along with it since the last table."""

    together: frozenset[ProcessorId]
    processes: Mapping[int, Mapping[str, Entry]]


def pack_part(part: Part) -> bytes:
    processes = {
        number: {name: _fields(entry) for name, entry in sorted(groups.items())}
        for number, groups in sorted(part.processes.items())
    }
    return json.dumps(
        {"together": sorted(part.together), "processes": processes}, separators=(",", ":")
    ).encode()


def _fields(entry: Entry) -> list[Any]:
    told = [entry.info.hex()] if entry.info else []
    return [entry.donor, entry.source, entry.asked, *told]


def unpack_part(content: Payload) -> Part:
    try:
        read = json.loads(bytes(content))
        processes = {
            _number(number): {_name(name): _entry(*fields) for name, fields in groups.items()}
            for number, groups in read["processes"].items()
        }
        return Part(frozenset(map(int, read["together"])), processes)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise CodecError("group table malformed") from None


def _number(text: str) -> int:
    number = int(text)
    if not 1 <= number <= PROCESS_NUMBER_MAX:
        raise ValueError(number)
    return number


def _name(text: str) -> str:
    if not 1 <= len(text.encode()) <= NAME_BYTES_MOST:
        raise ValueError(text)
    return text


def _entry(
    donor: bool, source: list[int] | None, asked: list[list[list[int]]] | None, told: str = ""
) -> Entry:
    info = check_info(bytes.fromhex(told))
    if source is None or asked is None:
        return Entry(bool(donor), info=info)
    (ring, seq, configuration), index = asked
    if not all(type(number) is int for number in (*source, *ring, seq, *configuration, index)):
        raise ValueError(source)
    key = OrderKey(RingId(*ring), int(seq), RingId(*configuration))  # type: ignore[call-overload]
    return Entry(bool(donor), ProcessId(*source), Place(key, int(index)), info)  # type: ignore[call-overload]


def check_info(info: Payload) -> bytes:
    """What a member says of itself, if it is not too long."""
    if len(info) > INFO_BYTES_MAX:
        raise CodecError("group member info too long")
    return bytes(info)
