"""A receive buffer of bounded size: what does not fit is dropped, as a socket's would be."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class Inbox:
    __slots__ = ("_bursts", "bytes_max", "datagrams", "datagrams_max", "size")

    def __init__(self, bytes_max: int, datagrams_max: int) -> None:
        self.bytes_max = bytes_max
        self.datagrams_max = datagrams_max
        self.size = 0
        self.datagrams = 0
        self._bursts: deque[tuple[Sequence[bytes], int, int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._bursts)

    def put(self, datagrams: Sequence[bytes], size: int, source: int = 0, network: int = 0) -> int:
        """Keep what fits, from the first on; say how many datagrams were dropped."""
        arrived = len(datagrams)
        if self.size + size > self.bytes_max or self.datagrams + arrived > self.datagrams_max:
            datagrams, size = self._fitting(datagrams)
            if not datagrams:
                return arrived
        self.force(datagrams, size, source, network)
        return arrived - len(datagrams)

    def force(self, datagrams: Sequence[bytes], size: int, source: int = 0, network: int = 0) -> None:
        self._bursts.append((datagrams, size, source, network))
        self.size += size
        self.datagrams += len(datagrams)

    def take(self) -> tuple[Sequence[bytes], int, int, int]:
        """One read: its datagrams, their size, the address that they came from, and the network."""
        burst = self._bursts.popleft()
        self.size -= burst[1]
        self.datagrams -= len(burst[0])
        return burst

    def clear(self) -> None:
        self._bursts.clear()
        self.size = self.datagrams = 0

    def _fitting(self, datagrams: Sequence[bytes]) -> tuple[Sequence[bytes], int]:
        kept: list[bytes] = []
        size = 0
        for datagram in datagrams:
            full = self.datagrams + len(kept) >= self.datagrams_max
            if full or self.size + size + len(datagram) > self.bytes_max:
                break
            kept.append(datagram)
            size += len(datagram)
        return kept, size
