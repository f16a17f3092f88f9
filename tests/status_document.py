"""A status document as a node in good health gives it."""

from __future__ import annotations

from typing import Any


def healthy() -> dict[str, Any]:
    return {
        "processor": 1,
        "cluster_id": 7,
        "version": "0.1.0",
        "state": "operational",
        "ring": "12@1",
        "ring_kind": "classic",
        "members": [1, 2, 3],
        "uptime_s": 3723,
        "transport": "multicast",
        "address": "10.0.0.1 port 5400",
        "sealed": True,
        "key_ids": [1, 2],
        "segment_bytes": 1472,
        "offload": {"send": True, "receive": True, "reason": ""},
        "rotation_us": {"last": 180, "p50": 200, "p99": 500, "max": 12_345},
        "rotation_histogram": {
            "buckets_us": [100, 1_000, 10_000],
            "counts": [5, 90, 4, 1],
            "sum_us": 62_345,
            "count": 100,
        },
        "rates": {
            "messages_per_s": 142_000.0,
            "packets_per_s": 2_400.0,
            "bytes_per_s": 95_000_000.0,
            "tokens_per_s": 5_000.0,
            "retransmissions_per_s": 0.0,
        },
        "totals": {"messages_delivered": 1_000_000, "bytes_delivered": 64_000_000, "packets_sent": 5_000},
        "dropped": {},
        "kernel_refused": {},
        "queue": {"send": 3, "send_max": 300, "application": 17_000},
        "timeouts_us": {"token_loss": 100_000, "token_retransmission": 30_000},
        "lag": {"last_ms": 0.2, "max_ms": 4.5, "alarms": 0},
        "receive_buffer_bytes": {"asked": 8_388_608, "got": 8_388_608, "window": 1_500_000},
        "configuration_changes": 3,
        "last_configuration": {"kind": "regular", "id": "12@1", "members": [1, 2, 3], "ago_s": 90},
        "trace": {"level": "off", "inputs": False},
    }


def on_two_networks() -> dict[str, Any]:
    """The same of a ring on two networks, one of which has failed."""
    network = {
        "name": "left",
        "number": 1,
        "state": "in_service",
        "why": "",
        "bad_paths": [],
        "transport": "multicast",
        "address": "10.0.1.1 port 5400",
        "interface": "eth1",
        "absence": "",
        "segment_bytes": 1472,
        "capacity": 1,
        "loss": {"2": 0.0, "3": 0.0},
        "packets_sent": 900,
        "bytes_sent": 750_000,
        "share_sent": 0.75,
        "packets_received": 1_800,
        "bytes_received": 2_000_000,
        "refused": {},
    }
    failed = network | {
        "name": "right",
        "number": 2,
        "state": "faulty",
        "why": "3 cannot send",
        "bad_paths": [{"sender": 3, "receiver": receiver, "dead": True} for receiver in (1, 2)],
        "address": "10.0.2.1 port 5400",
        "interface": "eth2",
        "loss": {"2": 0.01, "3": 0.875},
        "packets_sent": 300,
        "bytes_sent": 250_000,
        "share_sent": 0.25,
        "refused": {"ENETUNREACH": 7},
    }
    redundancy = {"style": "passive", "copies": 1, "agreed": True}
    return healthy() | {"redundancy": redundancy, "networks": [network, failed]}


def with_log() -> dict[str, Any]:
    """The same of a node that keeps the durable log, whose third replica is missing."""
    replicas = [
        {"processor": who, "disk": f"{who:016x}", "weight": who, "is_present": who < 3} for who in (1, 2, 3)
    ]
    log = {
        "standing": "primary",
        "failure": "",
        "log": "00000000000000aa",
        "disk": "0000000000000001",
        "primary": 4,
        "members": [1, 2],
        "position": 1_234,
        "green_runs": 77,
        "yellow_runs": 2,
        "yellow_bytes": 300,
        "red_runs": 5,
        "red_bytes": 6_000,
        "unsent_bytes": 10,
        "unwritten_bytes": 20,
        "replicas": replicas,
        "missing": [3],
        "holds": {"spark": 7, "late reader": 100},
        "oldest_hold": {"reader": "spark", "position": 7, "behind": 1_227, "kept_bytes": 5_000},
        "retention_bytes": 4_000,
        "clocks": {
            "ahead_us": {"2": 31_536_000_000_000},
            "order_ahead_us": 31_535_000_000_000,
            "ahead_us_max": 10_000_000,
        },
        "alarms": {"rolled-back": 1},
        "last_alarm": "replica 3 has an old disk: it does not vote",
    }
    return healthy() | {"log": log}
