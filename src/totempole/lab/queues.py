"""Queues on the cables, as tc commands: links of a set speed, one shared medium, and a slow lane.

What a shaper counts: each frame's bytes with its Ethernet header (14), but neither preamble (8), checksum (4)
nor the gap between frames (12). `overhead_bytes=24` has it count those, too. A burst that is longer than the
bucket is cut into its segments first, as a network card would do; each segment then counts with its headers.
"""

from __future__ import annotations

from dataclasses import dataclass

BUCKET_BYTES = 8_000
"""Five full frames: short enough that offloaded bursts are cut and trickle, long enough for few wake-ups."""

SENDER_QUEUE_BYTES = 64_000_000
"""Behind a host's own shaper: more than any send buffer, so that a full one has the sender wait."""

ROOT = "handle 1: root"
SLOW_LANE = "1:20"
SLOW_LANE_FRAMES_MAX = 1_000
"""What the slow lane holds; more is dropped."""
FAST_RATE = "32gbit"


@dataclass(frozen=True, slots=True)
class Shape:
    """A rate in tc's notation, and what a queue in front of it holds."""

    rate: str = "100mbit"
    queue_bytes: int = 1_000_000
    overhead_bytes: int = 0

    def queue(self) -> str:
        bucket = f"burst {BUCKET_BYTES} overhead {self.overhead_bytes}"
        return f"tbf rate {self.rate} {bucket} limit {self.queue_bytes}"

    def add(self, device: str) -> str:
        return f"qdisc add dev {device} {ROOT} {self.queue()}"


def remove(device: str) -> str:
    return f"qdisc del dev {device} root"


def two_lanes(device: str, slow_rate: str) -> list[str]:
    """A fast lane for all, a slow one for frames of priority SLOW_LANE: these are overtaken.

    The slow lane's bucket holds no more than a frame, so that the second frame in it already waits.
    """
    lane = f"class add dev {device} parent 1: classid"
    return [
        f"qdisc add dev {device} {ROOT} htb default 10",
        f"{lane} 1:10 htb rate {FAST_RATE} quantum 60000",
        f"{lane} {SLOW_LANE} htb rate {slow_rate} burst 1600 cburst 1600 quantum 60000",
        f"qdisc add dev {device} parent {SLOW_LANE} handle 20: pfifo limit {SLOW_LANE_FRAMES_MAX}",
    ]


def detour(device: str, medium: str) -> list[str]:
    """All that enters by the device goes through the queue of `medium` before it goes on."""
    return [
        f"qdisc add dev {device} ingress",
        f"filter add dev {device} parent ffff: protocol all u32 match u32 0 0 "
        f"action mirred egress redirect dev {medium}",
    ]


def end_detour(device: str) -> str:
    return f"qdisc del dev {device} ingress"
