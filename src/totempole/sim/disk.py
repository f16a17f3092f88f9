"""A disk: an append-only log of records with length and checksum, written slowly and cut off by crashes.

A write is durable exactly when its completion is reported, never before. One that was under way at a crash
may have survived whole, may be gone, or may be torn: its first bytes are on the disk, its checksum does not
fit, and the restart falls back to the record before it (Totem §4.2 needs the ring sequence number to
survive).

Totem §3.2 has the loss of all or part of stable storage in its fault model. `damage` arranges for one: the
next start finds nothing, lacks some numbers, or finds an old state. Numbers that a loss has taken come from
the clock, as at the first start of a real node. A disk may also be slow, or stop answering until it is mended
or its processor restarts.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random
from typing import Any

from totempole.core.effects import Records
from totempole.core.records import record_text, record_value
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import DiskSpeed, Range
from totempole.srp.stable import first_numbers

HEADER = struct.Struct(">II")
"""Length and CRC-32 of the record that follows."""


STORED = ("incarnation", "ring_seq", "future_ring_seq", "timestamp")
"""The numbers that a processor keeps on its disk."""

SECOND_US = 1_000
"""A run lasts seconds, so that for the numbers of a lost disk a millisecond is a real node's second."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What the next start finds changed."""

    lost: tuple[str, ...] = ()
    """Stored numbers that are gone."""
    records: int = 0
    """So many of the last writes are gone, as after a restored backup. docs/node.md forbids that."""


WIPED = Damage(lost=STORED)


class Fate(StrEnum):
    """What becomes of the oldest write under way at a crash; younger ones are lost."""

    KEPT = "kept"
    TORN = "torn"
    LOST = "lost"


def encode_record(values: Records) -> bytes:
    plain = {name: record_text(each) if isinstance(each, bytes) else each for name, each in values.items()}
    body = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    return HEADER.pack(len(body), zlib.crc32(body)) + body


def read_log(log: bytes) -> tuple[dict[str, Any], int]:
    """The values of all good records, the later over the earlier, and where the last good one ends."""
    values: dict[str, Any] = {}
    end = 0
    while end + HEADER.size <= len(log):
        length, checksum = HEADER.unpack_from(log, end)
        body = log[end + HEADER.size : end + HEADER.size + length]
        if len(body) < length or zlib.crc32(body) != checksum:
            break
        for name, each in json.loads(body).items():
            values[name] = record_value(each) if isinstance(each, str) else each
        end += HEADER.size + length
    return values, end


@dataclass(slots=True)
class Write:
    """One that is under way; without a ticket it is stuck."""

    record: bytes
    done: Callable[..., object]
    args: tuple[Any, ...]
    ticket: int | None = None


class Disk:
    __slots__ = (
        "_damage",
        "_free_us",
        "_random",
        "_scheduler",
        "_stuck",
        "_under_way",
        "first_numbers",
        "healthy_speed",
        "log",
        "report",
        "speed",
        "torn_writes",
    )

    def __init__(self, scheduler: Scheduler, random: Random, speed: DiskSpeed | None = None) -> None:
        self.log = bytearray()
        self.speed = speed or DiskSpeed()
        self.torn_writes = 0
        self.first_numbers: Callable[[int], Mapping[str, int]] = first_numbers
        """What a processor starts with whose disk has been lost."""
        self.report: Callable[[Damage], None] = lambda _damage: None
        """Told when a start finds the damage."""
        self.healthy_speed = self.speed
        """What `mend` returns to."""
        self._damage: list[Damage] = []
        self._stuck = False
        self._scheduler = scheduler
        self._random = random
        self._free_us = 0
        self._under_way: deque[Write] = deque()

    @property
    def writes_under_way(self) -> int:
        return len(self._under_way)

    def write(self, values: Records, done: Callable[..., object], *args: Any) -> None:
        """Append a record; `done(*args)` runs at the instant it is durable. Writes complete in order."""
        write = Write(encode_record(values), done, args)
        self._under_way.append(write)
        if not self._stuck:
            self._begin(write)

    def _begin(self, write: Write) -> None:
        start_us = max(self._free_us, self._scheduler.now_us)
        self._free_us = start_us + self._random.randint(*self.speed.latency_us)
        write.ticket = self._scheduler.at(self._free_us, self._complete)

    def _complete(self) -> None:
        write = self._under_way.popleft()
        self.log += write.record
        write.done(*write.args)

    # Trouble

    def damage(self, damage: Damage) -> None:
        """The next start finds it."""
        self._damage.append(damage)

    def slow(self, latency_us: Range) -> None:
        """Writes that begin from now on take so long."""
        self.speed = replace(self.speed, latency_us=latency_us)

    def stick(self) -> None:
        """Nothing is written from now on: not what is under way either."""
        self._stuck = True
        for write in self._under_way:
            self._cancel(write)

    def mend(self) -> None:
        """Its own speed again; what had got stuck is written now."""
        self.speed = self.healthy_speed
        if self._stuck:
            self._stuck = False
            self._free_us = 0
            for write in self._under_way:
                self._begin(write)

    def _cancel(self, write: Write) -> None:
        if write.ticket is not None:
            self._scheduler.cancel(write.ticket)
            write.ticket = None

    def crash(self, fate: Fate | None = None) -> None:
        """Power off: a prefix of the writes under way survives, the next may be torn; or as `fate` says."""
        pending = [write.record for write in self._under_way]
        for write in self._under_way:
            self._cancel(write)
        self._under_way.clear()
        self._free_us = 0
        if not pending:
            return
        if self._stuck:
            fate = Fate.LOST
        kept = self._random.randint(0, len(pending)) if fate is None else int(fate is Fate.KEPT)
        for record in pending[:kept]:
            self.log += record
        if kept < len(pending) and self._is_torn(fate):
            self._tear(pending[kept])

    def close(self) -> None:
        """The process ends in good order: what is under way is written, unless the disk is stuck."""
        for write in self._under_way:
            self._cancel(write)
            if not self._stuck:
                self.log += write.record
        self._under_way.clear()
        self._free_us = 0

    @property
    def latest(self) -> dict[str, Any]:
        """What its process has written, whether it is durable yet or not."""
        under_way = b"".join([write.record for write in self._under_way])
        return read_log(bytes(self.log) + under_way)[0]

    def _is_torn(self, fate: Fate | None) -> bool:
        return self._random.random() < self.speed.torn if fate is None else fate is Fate.TORN

    def _tear(self, record: bytes) -> None:
        self.torn_writes += 1
        self.log += record[: self._random.randint(1, len(record) - 1)]

    def recover(self) -> dict[str, Any]:
        """What a restart finds: the good records. A torn tail is cut off, or it would hide what follows."""
        if self._stuck:
            self._stuck = False
            self._under_way.clear()  # of a process that has ended; none of them began
        values, end = read_log(bytes(self.log))
        del self.log[end:]
        for damage in self._damage:
            values = self._damaged(values, damage)
            self.report(damage)
        self._damage.clear()
        return values

    def _damaged(self, values: dict[str, Any], damage: Damage) -> dict[str, Any]:
        if damage.records:
            del self.log[_end_without(bytes(self.log), damage.records) :]
            return read_log(bytes(self.log))[0]
        kept = {name: value for name, value in values.items() if name not in damage.lost}
        missing = {"ring_seq" if name == "future_ring_seq" else name for name in damage.lost}
        numbers = self.first_numbers(max(1, self._scheduler.now_us // SECOND_US))
        found = {**kept, **{name: number for name, number in numbers.items() if name in missing}}
        self.log[:] = encode_record(found)
        return found


def _end_without(log: bytes, records: int) -> int:
    """Where the log ends without its last so many records."""
    ends = [0]
    while ends[-1] < len(log):
        ends.append(ends[-1] + HEADER.size + HEADER.unpack_from(log, ends[-1])[0])
    return ends[max(0, len(ends) - 1 - records)]
