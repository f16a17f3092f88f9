"""Reports on networks as payloads of the ring's messages.

    magic 4s, kind u8; then
    row: networks u8, out u8, drained u8, pairs u8, findings u16; each pair u8 u8;
         each finding: network u8, sender u32, dead u8, lost u8
    drain, restore, reinstate: network u8
    relapses: 7 u8, one for each network that there may be

A row is all that one processor finds wrong: it takes the place of the one before. It may be of fewer or more
networks than its receiver has. A report of a kind that its receiver does not know is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from totempole.rrp.config import NETWORKS_MAX, NETWORKS_MIN
from totempole.rrp.paths import Finding
from totempole.types import Payload

MAGIC = b"\xf4rrp"
"""The first bytes of a report. No payload of the layers above begins so."""

FINDINGS_MAX = 2_048
"""Of one row. A ring of so many members and networks is larger than any other."""

RELAPSES_MAX = 8
"""A probation doubles with each relapse, up to 256 times."""

_HEAD = Struct(">4sB")
_ROW = Struct(">BBBBH")
_FINDING = Struct(">BIBB")


class ReportKind(IntEnum):
    ROW = 1
    DRAIN = 2
    RESTORE = 3
    REINSTATE = 4
    RELAPSES = 5


class Row(NamedTuple):
    """What one processor says of all networks."""

    out: int
    """The networks that are out of service, as far as it knows."""
    drained: int
    crossed: tuple[tuple[int, int], ...]
    """Pairs of networks that are wired together."""
    findings: tuple[Finding, ...]
    networks: int
    """How many it has."""


class Request(NamedTuple):
    kind: ReportKind
    network: int


class Relapses(NamedTuple):
    counts: tuple[int, ...]
    """How often each network has come back from probation lately, as far as the sender knows."""


Report = Row | Request | Relapses


def is_report(payload: Payload) -> bool:
    return payload[:4] == MAGIC


def pack_row(row: Row) -> bytes:
    findings = row.findings[:FINDINGS_MAX]
    return b"".join(
        (
            _HEAD.pack(MAGIC, ReportKind.ROW),
            _ROW.pack(row.networks, row.out, row.drained, len(row.crossed), len(findings)),
            *(bytes(pair) for pair in row.crossed),
            *(_FINDING.pack(*finding) for finding in findings),
        )
    )


def pack_request(request: Request) -> bytes:
    return _HEAD.pack(MAGIC, request.kind) + bytes((request.network,))


def pack_relapses(relapses: Relapses) -> bytes:
    return _HEAD.pack(MAGIC, ReportKind.RELAPSES) + bytes(relapses.counts)


def unpack(payload: Payload) -> Report | None:
    """The report, or None if it is none that a processor can have made."""
    data = bytes(payload)
    try:
        _, kind = _HEAD.unpack_from(data)
        if kind == ReportKind.ROW:
            return _unpack_row(data)
        if kind in (ReportKind.DRAIN, ReportKind.RESTORE, ReportKind.REINSTATE):
            (network,) = data[_HEAD.size :]
            return Request(ReportKind(kind), network) if network < NETWORKS_MAX else None
        if kind == ReportKind.RELAPSES:
            return _unpack_relapses(data[_HEAD.size :])
    except (error, ValueError, IndexError):
        pass
    return None


def _unpack_row(data: bytes) -> Row | None:
    place = _HEAD.size
    networks, out, drained, pairs, findings = _ROW.unpack_from(data, place)
    place += _ROW.size
    crossed = tuple((data[place + 2 * n], data[place + 2 * n + 1]) for n in range(pairs))
    place += 2 * pairs
    if len(data) != place + findings * _FINDING.size or (out | drained) >> networks:
        return None
    if not NETWORKS_MIN <= networks <= NETWORKS_MAX:
        return None
    row = Row(out, drained, crossed, tuple(_findings(data[place:])), networks)
    sound = all(one < other < networks for one, other in crossed)
    return row if sound and all(finding.network < networks for finding in row.findings) else None


def _unpack_relapses(counts: bytes) -> Relapses | None:
    is_sound = len(counts) == NETWORKS_MAX and max(counts) <= RELAPSES_MAX
    return Relapses(tuple(counts)) if is_sound else None


def _findings(data: bytes) -> Iterator[Finding]:
    for network, sender, dead, lost in _FINDING.iter_unpack(data):
        yield Finding(network, sender, bool(dead), lost)
