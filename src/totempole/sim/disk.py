"""A disk: an append-only log of records with length and checksum, written slowly and cut off by crashes.

A write is durable exactly when its completion is reported, never before. One that was under way at a crash
may have survived whole, may be gone, or may be torn: its first bytes are on the disk, its checksum does not
fit, and the restart falls back to the record before it (000 §4.2 needs the ring sequence number to survive).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Any

from totempole.sim.clock import Scheduler
from totempole.sim.conditions import DiskSpeed

HEADER = struct.Struct(">II")
"""Length and CRC-32 of the record that follows."""


class Fate(StrEnum):
    """What becomes of the oldest write under way at a crash; younger ones are lost."""

    KEPT = "kept"
    TORN = "torn"
    LOST = "lost"


def encode_record(values: Mapping[str, int]) -> bytes:
    body = json.dumps(dict(values), sort_keys=True, separators=(",", ":")).encode()
    return HEADER.pack(len(body), zlib.crc32(body)) + body


def read_log(log: bytes) -> tuple[dict[str, int], int]:
    """The values of all good records, the later over the earlier, and where the last good one ends."""
    values: dict[str, int] = {}
    end = 0
    while end + HEADER.size <= len(log):
        length, checksum = HEADER.unpack_from(log, end)
        body = log[end + HEADER.size : end + HEADER.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        values.update(json.loads(body))
        end += HEADER.size + length
    return values, end


class Disk:
    __slots__ = ("_free_us", "_random", "_scheduler", "_under_way", "log", "speed", "torn_writes")

    def __init__(self, scheduler: Scheduler, random: Random, speed: DiskSpeed | None = None) -> None:
        self.log = bytearray()
        self.speed = speed or DiskSpeed()
        self.torn_writes = 0
        self._scheduler = scheduler
        self._random = random
        self._free_us = 0
        self._under_way: deque[tuple[int, bytes]] = deque()

    @property
    def writes_under_way(self) -> int:
        return len(self._under_way)

    def write(self, values: Mapping[str, int], done: Callable[..., object], *args: Any) -> None:
        """Append a record; `done(*args)` runs at the instant it is durable. Writes complete in order."""
        start_us = max(self._free_us, self._scheduler.now_us)
        self._free_us = start_us + self._random.randint(*self.speed.latency_us)
        record = encode_record(values)
        ticket = self._scheduler.at(self._free_us, self._complete, done, args)
        self._under_way.append((ticket, record))

    def _complete(self, done: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.log += self._under_way.popleft()[1]
        done(*args)

    def crash(self, fate: Fate | None = None) -> None:
        """Power off: a prefix of the writes under way survives, the next may be torn; or as `fate` says."""
        pending = [record for _, record in self._under_way]
        for ticket, _ in self._under_way:
            self._scheduler.cancel(ticket)
        self._under_way.clear()
        self._free_us = 0
        if not pending:
            return
        kept = self._random.randint(0, len(pending)) if fate is None else int(fate is Fate.KEPT)
        for record in pending[:kept]:
            self.log += record
        if kept < len(pending) and self._is_torn(fate):
            self._tear(pending[kept])

    def _is_torn(self, fate: Fate | None) -> bool:
        return self._random.random() < self.speed.torn if fate is None else fate is Fate.TORN

    def _tear(self, record: bytes) -> None:
        self.torn_writes += 1
        self.log += record[: self._random.randint(1, len(record) - 1)]

    def recover(self) -> dict[str, int]:
        """What a restart finds: the good records. A torn tail is cut off, or it would hide what follows."""
        values, end = read_log(bytes(self.log))
        del self.log[end:]
        return values
