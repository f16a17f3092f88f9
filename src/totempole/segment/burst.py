"""Datagrams of one size back to back: what offload sends, or gives, in one call of the kernel."""

from __future__ import annotations

from typing import NamedTuple


class Burst(NamedTuple):
    """Every datagram but the last has `segment_bytes`; the last has at most that."""

    data: bytes
    segment_bytes: int

    @property
    def datagrams(self) -> tuple[bytes, ...]:
        data, step = self
        if len(data) <= step:
            return (data,)
        return tuple([data[start : start + step] for start in range(0, len(data), step)])
