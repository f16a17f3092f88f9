"""A node's state as one plain document, for `totem status`, metrics and programs (fields: status.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from totempole.runtime.driver import Driver, now_us
from totempole.runtime.network import Network
from totempole.runtime.network_shown import documents
from totempole.types import Configuration, ProcessorId


def snapshot(driver: Driver) -> dict[str, Any]:
    """May be taken on any thread: every value is read once, and none is changed."""
    config, meters, ring, network = driver.config, driver.meters, driver.ring, driver.networks[0]
    sockets = network.sockets
    rates, configuration = meters.rates, driver.configuration
    members = configuration.members if configuration else ()
    return {
        "processor": config.processor,
        "cluster_id": config.ring.cluster_id,
        "version": version("totempole"),
        "state": ring.state.name.lower(),
        "ring": str(ring.machine.installed.ring_id),
        "ring_kind": config.ring.ring_kind.name.lower(),
        "members": list(members),
        "expected": driver.attendance.document(now_us(), members),
        "addresses": _addresses(driver, members),
        "metrics": {"address": config.metrics.address, "port": config.metrics.port},
        "uptime_s": (now_us() - driver.started_us) // 1_000_000,
        "transport": config.network.transport,
        "address": f"{sockets.own[0]} port {sockets.own[1]}",
        "sealed": driver.sealed,
        "key_ids": list(driver.key_ids),
        "segment_bytes": network.segment_bytes,
        "offload": {
            "send": sockets.offload.send,
            "receive": sockets.offload.receive,
            "reason": sockets.offload.reason,
        },
        "rotation_us": meters.rotations.summary(),
        "rotation_histogram": meters.rotations.histogram(),
        "rates": {
            "messages_per_s": rates["messages_delivered"],
            "packets_per_s": rates["packets_delivered"],
            "bytes_per_s": rates["bytes_delivered"],
            "tokens_per_s": rates["tokens"],
            "retransmissions_per_s": rates["retransmissions"],
        },
        "totals": dict(meters.totals()),
        "dropped": dict(ring.dropped + driver.layer.dropped),
        "kernel_refused": _refused(driver.networks),
        "queue": {
            "send": ring.queued,
            "send_max": driver.ring_config.send_queue_max,
            "application": driver.outbox.bytes + driver.layer.waiting_bytes,
        },
        "groups": {"count": driver.layer.group_count, "ready": driver.layer.views_in_force},
        "clients": driver.clients.snapshot(),
        "timeouts_us": ring.timeouts,
        "lag": {
            "last_ms": meters.lag.last_us / 1000,
            "max_ms": meters.lag.longest_us / 1000,
            "alarms": meters.lag.alarms,
        },
        "receive_buffer_bytes": {
            "asked": config.network.receive_buffer_bytes,
            "got": sockets.receive_buffer_bytes,
            "window": driver.ring_config.window_bytes,
        },
        "configuration_changes": meters.configuration_changes,
        "last_configuration": _configuration(configuration, driver),
        "trace": {
            "level": config.trace.level,
            "inputs": config.trace.inputs,
            "failure": driver.record.failure,
        },
        **_redundancy(driver, members),
        **({} if driver.log is None else {"log": driver.log.document()}),
        **({} if driver.receiver.filter is None else {"packet_filter": driver.receiver.filter.document()}),
    }


def _addresses(driver: Driver, members: Sequence[ProcessorId]) -> dict[str, list[str]]:
    """Of the members, and of those who are expected."""
    known = sorted({driver.config.processor, *members, *driver.attendance.expected.processors})
    return {str(processor): driver.network_set.addresses_of(processor) for processor in known}


def _refused(networks: Sequence[Network]) -> dict[str, int]:
    refused: Counter[str] = Counter()
    for network in networks:
        refused.update(dict(network.sockets.refused))
        overflowed = network.sockets.overflowed()
        if overflowed:
            refused["receive buffer full"] += overflowed
    return dict(refused)


def _redundancy(driver: Driver, members: Sequence[ProcessorId]) -> dict[str, Any]:
    """Of a ring on several networks."""
    stack, networks = driver.stack, driver.networks
    if not stack.networks:
        return {}
    copies, agreed = stack.replicators[0].copies, stack.networks[0].service.is_agreed
    redundancy = {"style": driver.config.redundancy.style, "copies": copies, "agreed": agreed}
    return {"redundancy": redundancy, "networks": documents(stack, networks, members)}


def _configuration(configuration: Configuration | None, driver: Driver) -> dict[str, Any]:
    if configuration is None:
        return {}
    return {
        "kind": configuration.kind.value,
        "id": str(configuration.id),
        "members": list(configuration.members),
        "ago_s": (now_us() - driver.installed_us) // 1_000_000,
    }
