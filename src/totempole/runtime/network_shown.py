"""What is shown of a redundant ring's networks: to programs, in the status document, and in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from totempole.networks.events import NetworkChanged, NetworkRefused, NetworkState
from totempole.networks.layer import Networks
from totempole.rrp.layer import Replicator
from totempole.runtime.network import Network
from totempole.session import NetworkStatus
from totempole.stack import ProcessorStack
from totempole.types import ProcessorId

IN_SERVICE = NetworkState.IN_SERVICE


class LogLine(NamedTuple):
    level: int
    name: str
    fields: dict[str, Any]


def log_line(told: NetworkChanged | NetworkRefused) -> LogLine:
    """A warning when a network leaves service or its fault is known better, an info when it comes back."""
    if isinstance(told, NetworkRefused):
        return LogLine(logging.WARNING, "network request refused", {"network": told.name, "reason": told.why})
    fields: dict[str, Any] = {
        "network": told.name,
        "state": told.new.name.lower(),
        "before": told.old.name.lower(),
        "fault": told.why or "none",
        "ring": str(told.key.ring_id),
        "seq": told.key.seq,
    }
    is_well = not told.why and told.new in (IN_SERVICE, NetworkState.PROBATION)
    return LogLine(logging.INFO if is_well else logging.WARNING, _NAMES[told.new], fields)


_NAMES = {
    NetworkState.IN_SERVICE: "network in service",
    NetworkState.SICK: "network out of service",
    NetworkState.FAULTY: "network out of service",
    NetworkState.DRAINED: "network drained",
    NetworkState.PROBATION: "network on probation",
}


# For any thread: every value is read once, and none is changed


def standing(stack: ProcessorStack) -> tuple[NetworkStatus, ...]:
    """Each network's state and fault as all members have agreed; empty for a ring on one network."""
    return tuple(
        NetworkStatus(name, layer.service.state_of(number).name.lower(), layer.service.why_of(number))
        for layer in stack.networks[:1]
        for number, name in enumerate(layer.service.names)
    )


def documents(
    stack: ProcessorStack, networks: Sequence[Network], members: Sequence[ProcessorId]
) -> list[dict[str, Any]]:
    """For the status document (fields: status.py); empty for a ring on one network."""
    if not stack.networks:
        return []
    layer, replicator = stack.networks[0], stack.replicators[0]
    networks, names = list(networks), layer.service.names
    numbers = [number for number in replicator.networks if number < len(networks)][: len(names)]
    sent_bytes = [networks[number].bytes_sent for number in numbers]
    whole = sum(sent_bytes)
    return [
        {
            **_standing(layer, place),
            **_socket(networks[number]),
            "capacity": networks[number].config.capacity,
            "loss": _loss(replicator, place, [other for other in members if other != stack.me]),
            "bytes_sent": sent_bytes[place],
            "share_sent": sent_bytes[place] / whole if whole else 0.0,
        }
        for place, number in enumerate(numbers)
    ]


def _standing(layer: Networks, place: int) -> dict[str, Any]:
    service = layer.service
    return {
        "name": service.name_of(place),
        "number": place + 1,
        "state": service.state_of(place).name.lower(),
        "why": service.why_of(place),
        "bad_paths": [
            {"sender": finding.sender, "receiver": receiver, "dead": finding.dead}
            for receiver, row in sorted(dict(service.rows).items())
            for finding in row.findings
            if finding.network == place
        ],
    }


def _socket(network: Network) -> dict[str, Any]:
    sockets = network.sockets
    return {
        "transport": network.config.transport,
        "address": f"{network.own[0]} port {network.own[1]}",
        "interface": sockets.interface.name,
        "absence": network.absence,
        "segment_bytes": network.segment_bytes,
        "packets_sent": network.packets_sent,
        "packets_received": network.packets_received,
        "bytes_received": network.bytes_received,
        "refused": dict(sockets.refused),
    }


def _loss(replicator: Replicator, place: int, senders: Sequence[ProcessorId]) -> dict[str, float]:
    return {str(sender): round(replicator.watch.loss(sender, place), 4) for sender in senders}
