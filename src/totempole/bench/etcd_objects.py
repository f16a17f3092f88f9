"""etcd's transactions and reads, as peers of an object's calls and reads.

A transaction is "if version(key) > 0 then put(key, value)": a compare and a put, one gRPC call of
`/etcdserverpb.KV/Txn`. A read is a Range of that key, linearisable (etcd's default: a quorum confirms the
leader) or serialisable (from the state of the member that is asked). All go to the leader, by `h2load`.
That transactions were done is checked by the revision, that reads gave the value by the bytes that came back.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

from totempole.bench.etcd import (
    KEY,
    Cluster,
    EtcdError,
    field,
    framed,
    number_field,
    streams_of,
    summary,
)
from totempole.bench.replicated import Load
from totempole.lab.loopback import LoopbackLab

TXN, RANGE = "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Range"
CALL = "gRPC Txn by h2load"
READ, LOCAL_READ = "Range, linearisable", "Range, serialisable"
GREATER = 1
"""Of etcd's CompareResult."""
SETTLING_S = 0.5
PUTS_MAX = 40
"""Each waits a quarter of a second for its answer."""

_DATA = re.compile(r"^traffic: .*\((\d+)\) data$", re.MULTILINE)


def txn_body(key: bytes, value: bytes) -> bytes:
    """TxnRequest (compare = 1, success = 2) with a Compare (result = 1, target = 2, of which 0 is VERSION,
    key = 3, version = 4) and a RequestOp (request_put = 2)."""
    compare = number_field(1, GREATER) + field(3, key) + number_field(4, 0)
    put = field(2, field(1, key) + field(2, value))
    return framed(field(1, compare) + field(2, put))


def range_body(key: bytes, is_local: bool) -> bytes:
    """RangeRequest (key = 1, serializable = 7)."""
    return framed(field(1, key) + (number_field(7, 1) if is_local else b""))


def data_bytes(said: str) -> int:
    """Of the answers, as h2load's summary has it."""
    found = _DATA.search(said)
    if found is None:
        raise EtcdError(f"h2load does not say how many bytes came back: {said[-500:]}")
    return int(found[1])


class EtcdObjects:
    def __init__(self, lab: LoopbackLab, directory: Path) -> None:
        self._cluster = Cluster(lab, directory)

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        try:
            self._put(b"first")
        except BaseException:
            self._cluster.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def calls(self, way: str, size: int, callers: int, seconds: float) -> Load:
        assert way == CALL, "there is one way to make transactions"
        meter = self._cluster.cpu_meter()
        requests = self._cluster.post_writes(TXN, txn_body(KEY, os.urandom(size)), _options(callers, seconds))
        return summary(requests, seconds, meter.spent_s(), callers)

    def reads(self, way: str, size: int, callers: int, seconds: float) -> Load:
        cluster = self._cluster
        self._put(os.urandom(size))
        meter = cluster.cpu_meter()
        body = range_body(KEY, way == LOCAL_READ)
        requests, said = cluster.post(cluster.leader, RANGE, body, _options(callers, seconds))
        if data_bytes(said) < len(requests) * size:
            raise EtcdError(f"{len(requests)} reads of {size} bytes gave {data_bytes(said)} bytes in all")
        return summary(requests, seconds, meter.spent_s(), callers)

    def _put(self, value: bytes) -> None:
        for _ in range(PUTS_MAX):
            if self._cluster.put(self._cluster.leader, value):
                return
        raise EtcdError("etcd does no put")


def _options(callers: int, seconds: float) -> list[str]:
    return [*streams_of(callers), f"--duration={round((SETTLING_S + seconds) * 1000)}ms"]
