"""What `totem load` sends, and how it judges what comes back: a stamp in each message, and who misses what.

A message begins with its run, its client, its number, the time it was sent and a check over all of it. A
client counts its messages from 0 without a gap, so a receiver knows what is lost, repeated or out of order.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple
from zlib import crc32

STAMP = Struct(">8sIQQI")
CHECKED = Struct(">8sIQQ")
STAMP_BYTES = STAMP.size
CHECK_AT = CHECKED.size
_FILL = bytes(range(256)) * 256


class Stamp(NamedTuple):
    client: int
    number: int
    sent_ns: int


def stamped(run: bytes, client: int, number: int, sent_ns: int, size: int) -> bytes:
    """A message of `size` bytes, at least those of the stamp."""
    rest = size - STAMP_BYTES
    fill = _FILL[:rest] if rest <= len(_FILL) else (_FILL * (rest // len(_FILL) + 1))[:rest]
    check = crc32(fill, crc32(CHECKED.pack(run, client, number, sent_ns)))
    return STAMP.pack(run, client, number, sent_ns, check) + fill


def read_stamp(run: bytes, payload: bytes) -> Stamp | None:
    """None: not a message of this run, or not as it was sent."""
    if len(payload) < STAMP_BYTES:
        return None
    found, client, number, sent_ns, check = STAMP.unpack_from(payload)
    view = memoryview(payload)
    if found != run or crc32(view[STAMP_BYTES:], crc32(view[:CHECK_AT])) != check:
        return None
    return Stamp(client, number, sent_ns)


class Received:
    """What one client has received from one sender."""

    __slots__ = ("count", "late", "missing", "next", "repeated")

    def __init__(self) -> None:
        self.next = 0
        """The number that should come now."""
        self.count = 0
        """Different messages received."""
        self.repeated = 0
        self.late = 0
        """Received after one with a higher number."""
        self.missing: list[range] = []

    def note(self, number: int) -> None:
        if number == self.next:
            self.next += 1
            self.count += 1
        elif number > self.next:
            self.missing.append(range(self.next, number))
            self.next = number + 1
            self.count += 1
        elif self._take_missing(number):
            self.late += 1
            self.count += 1
        else:
            self.repeated += 1

    def _take_missing(self, number: int) -> bool:
        for index, gap in enumerate(self.missing):
            if number in gap:
                parts = (range(gap.start, number), range(number + 1, gap.stop))
                self.missing[index : index + 1] = [part for part in parts if part]
                return True
        return False

    def lost(self, accepted: int) -> list[range]:
        """Those that were accepted from the sender and have not come."""
        gaps = [range(gap.start, min(gap.stop, accepted)) for gap in self.missing]
        return [gap for gap in (*gaps, range(self.next, accepted)) if gap]


def judge(receiver: int, sender: int, received: Received, accepted: int) -> list[str]:
    """A line for each thing that is wrong."""
    told = f"client {receiver} of client {sender}'s"
    lines = []
    lost = received.lost(accepted)
    if lost:
        shown = ", ".join(_numbers(gap) for gap in lost[:3]) + (", …" if len(lost) > 3 else "")
        lines.append(f"{told} {accepted:,} messages: {sum(map(len, lost)):,} lost ({shown})")
    if received.repeated:
        lines.append(f"{told} messages: {received.repeated:,} delivered more than once")
    if received.late:
        lines.append(f"{told} messages: {received.late:,} out of order")
    return lines


def _numbers(gap: range) -> str:
    return str(gap.start) if len(gap) == 1 else f"{gap.start}..{gap.stop - 1}"


class Latencies:
    """A histogram with about 1 % of error, however many there are."""

    __slots__ = ("counts", "longest_us", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.total = 0
        self.longest_us = 0

    def note(self, latency_us: int) -> None:
        # The seven leading bits, and how many follow them.
        shift = max(0, latency_us.bit_length() - 7)
        key = (shift << 8) + (latency_us >> shift)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.total += 1
        self.longest_us = max(self.longest_us, latency_us)

    def add(self, other: Latencies) -> None:
        for key, count in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
        self.total += other.total
        self.longest_us = max(self.longest_us, other.longest_us)

    def percentile(self, percent: float) -> int | None:
        """At most so long took so many of them; None when there is none."""
        rank, seen = self.total * percent / 100, 0
        for key in sorted(self.counts, key=_upper_us):
            seen += self.counts[key]
            if seen >= rank:
                return min(_upper_us(key), self.longest_us)
        return None


def _upper_us(key: int) -> int:
    shift = key >> 8
    return (((key & 255) + 1) << shift) - 1
