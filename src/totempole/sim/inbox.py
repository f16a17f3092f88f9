"""Receive buffers of bounded size, one for each network. What does not fit is dropped, as by a socket.

Reads are taken in the order in which they came, whatever their network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class Inbox:
    __slots__ = ("bytes_max", "datagrams", "datagrams_max", "reads", "sizes")

    def __init__(self, bytes_max: int, datagrams_max: int, networks: int = 1) -> None:
        self.bytes_max = bytes_max
        self.datagrams_max = datagrams_max
        self.sizes = [0] * networks
        self.datagrams = [0] * networks
        self.reads: deque[tuple[Sequence[bytes], int, int, int]] = deque()
        """What has come: datagrams, their size, the address that they came from, and the network."""

    def put(self, datagrams: Sequence[bytes], size: int, source: int = 0, network: int = 0) -> int:
        """Keep what fits, from the first on; say how many datagrams were dropped."""
        arrived = len(datagrams)
        full = self.datagrams[network] + arrived > self.datagrams_max
        if full or self.sizes[network] + size > self.bytes_max:
            datagrams, size = self._fitting(datagrams, network)
            if not datagrams:
                return arrived
        self.force(datagrams, size, source, network)
        return arrived - len(datagrams)

    def force(self, datagrams: Sequence[bytes], size: int, source: int = 0, network: int = 0) -> None:
        self.reads.append((datagrams, size, source, network))
        self.sizes[network] += size
        self.datagrams[network] += len(datagrams)

    def take(self) -> tuple[Sequence[bytes], int, int, int]:
        """The first of the reads."""
        read = self.reads.popleft()
        self.sizes[read[3]] -= read[1]
        self.datagrams[read[3]] -= len(read[0])
        return read

    def clear(self) -> None:
        self.reads.clear()
        self.sizes = [0] * len(self.sizes)
        self.datagrams = [0] * len(self.sizes)

    def _fitting(self, datagrams: Sequence[bytes], network: int) -> tuple[Sequence[bytes], int]:
        kept: list[bytes] = []
        size = 0
        for datagram in datagrams:
            full = self.datagrams[network] + len(kept) >= self.datagrams_max
            if full or self.sizes[network] + size + len(datagram) > self.bytes_max:
                break
            kept.append(datagram)
            size += len(datagram)
        return kept, size
