"""Messages that wait for a place in a ring packet. They leave in the order in which they came.

Packing is by need: as long as the ring takes packets at once, a message travels alone and without delay;
while it does not, what has come in the meantime shares the next packet, as much as fits and asks for one
service.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from totempole.errors import ConfigurationError
from totempole.groups.packing import LENGTH_BYTES, MESSAGES_MAX, OVERHEAD_MAX, pack
from totempole.types import Service


class Packed(NamedTuple):
    """The body of one ring packet."""

    body: bytes
    service: Service


class _Run:
    """Messages that came in one call. `ends` says where each ends when all lie there with their lengths."""

    __slots__ = ("ends", "next", "payloads", "service")

    def __init__(self, payloads: Sequence[bytes], service: Service) -> None:
        self.payloads = tuple(payloads)  # the caller may use its list again
        self.service = service
        self.ends = list(accumulate([len(payload) + LENGTH_BYTES for payload in payloads]))
        self.next = 0

    @property
    def start(self) -> int:
        return self.ends[self.next - 1] if self.next else 0

    @property
    def next_bytes(self) -> int:
        return self.ends[self.next] - self.start

    def take(self, room: int, messages: int) -> list[bytes]:
        """As many as fit."""
        first = self.next
        self.next = min(bisect_right(self.ends, self.start + room, lo=first), first + messages)
        return list(self.payloads[first : self.next])


class Outbox:
    """Bounded by bytes: `accepts` says whether there is room, and who adds has asked."""

    def __init__(self, packet_bytes_max: int, bytes_max: int) -> None:
        self.message_bytes_max = packet_bytes_max - OVERHEAD_MAX
        self.bytes = 0
        """Waiting, lengths included."""
        self.packet_bytes = packet_bytes_max
        """How large the next packets should be; a single message may need more."""
        self._bytes_max = bytes_max
        self._runs: deque[_Run] = deque()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __len__(self) -> int:
        """Messages."""
        return sum(len(run.payloads) - run.next for run in self._runs)

    @property
    def accepts(self) -> bool:
        return self.bytes < self._bytes_max

    def add(self, payloads: Sequence[bytes], service: Service) -> None:
        if not payloads:
            return
        longest = max(map(len, payloads))
        if longest > self.message_bytes_max:
            raise ConfigurationError(
                f"a message of {longest} bytes: one message has at most {self.message_bytes_max}, "
                "what packet_bytes_max leaves; cut it up"
            )
        run = _Run(payloads, service)
        self._runs.append(run)
        self.bytes += run.ends[-1]

    def take(self) -> Packed:
        """The next packet. There must be one."""
        assert self._runs, "something waits"
        service = self._runs[0].service
        room = max(self.packet_bytes - OVERHEAD_MAX + LENGTH_BYTES, self._runs[0].next_bytes)
        chosen: list[bytes] = []
        while self._runs and self._runs[0].service is service and len(chosen) < MESSAGES_MAX:
            run = self._runs[0]
            start = run.start
            taken = run.take(room, MESSAGES_MAX - len(chosen))
            used = run.start - start
            self.bytes -= used
            room -= used
            assert room >= 0, "a packet holds what was put into it"
            chosen += taken
            if run.next < len(run.payloads):
                break
            self._runs.popleft()
        assert chosen, "each packet takes something"
        assert self._runs or not self.bytes, "where nothing waits there are no bytes"
        return Packed(pack(chosen), service)
