"""What the switch saw."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from totempole.lab import commands


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Seen from the host at the other end of the cable. A frame may be an offloaded burst."""

    sent_frames: int
    sent_bytes: int
    received_frames: int
    received_bytes: int
    dropped: int
    """By a full queue in front of the host, or because the frame was larger than the host's MTU."""


@dataclass(frozen=True, slots=True)
class Counters:
    lost: int
    cut: int
    marked: int
    """Frames that were sent to a slow lane, to be overtaken."""
    ports: dict[int, PortCounters]


def read_ports(namespace: str, devices: dict[str, int]) -> dict[int, PortCounters]:
    links = _json([commands.tool("ip"), "-n", namespace, "-j", "-s", "link", "show"])
    queues = _json([commands.tool("tc"), "-n", namespace, "-j", "-s", "qdisc", "show"])
    queued_drops = {item["dev"]: item["drops"] for item in queues if item.get("root")}
    return {
        devices[link["ifname"]]: _port(link["stats64"], queued_drops.get(link["ifname"], 0))
        for link in links
        if link["ifname"] in devices
    }


def _port(stats: dict[str, Any], queue_drops: int) -> PortCounters:
    # The switch receives what the host sends.
    return PortCounters(
        sent_frames=stats["rx"]["packets"],
        sent_bytes=stats["rx"]["bytes"],
        received_frames=stats["tx"]["packets"],
        received_bytes=stats["tx"]["bytes"],
        dropped=stats["tx"]["dropped"] + queue_drops,
    )


def _json(argv: list[str]) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(commands.run(argv) or "[]")
    return answer
