"""Totempole: totally ordered, fault-tolerant multicast, after the Totem protocols.

    async with totempole.connect() as session:
        async with session.join("orders") as group:
            await group.multicast(b"…")
            async for event in group: ...

docs/architecture.md says how the parts stand on each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from totempole.types import Place, ProcessId, Service

if TYPE_CHECKING:
    from totempole.client import blocking
    from totempole.client.endpoint import Reconnect, Tls
    from totempole.client.events import Gap, Messages, NetworkChanged, Reconnected, Safe, State, View
    from totempole.client.session import Group, Session, connect, run
    from totempole.errors import TotemError
    from totempole.runtime.config import NetworkConfig, NodeConfig, SecurityConfig
    from totempole.runtime.node import Node
    from totempole.runtime.ring_events import RingMessages, RingView
    from totempole.runtime.ring_node import RingNode
    from totempole.session import NetworkStatus

AGREED, SAFE = Service.AGREED, Service.SAFE

_PLACES = {
    "Gap": "totempole.client.events",
    "Group": "totempole.client.session",
    "Messages": "totempole.client.events",
    "NetworkChanged": "totempole.client.events",
    "NetworkConfig": "totempole.runtime.config",
    "NetworkStatus": "totempole.session",
    "Node": "totempole.runtime.node",
    "NodeConfig": "totempole.runtime.config",
    "Reconnect": "totempole.client.endpoint",
    "Reconnected": "totempole.client.events",
    "RingMessages": "totempole.runtime.ring_events",
    "RingNode": "totempole.runtime.ring_node",
    "RingView": "totempole.runtime.ring_events",
    "Safe": "totempole.client.events",
    "SecurityConfig": "totempole.runtime.config",
    "Session": "totempole.client.session",
    "State": "totempole.client.events",
    "Tls": "totempole.client.endpoint",
    "TotemError": "totempole.errors",
    "View": "totempole.client.events",
    "connect": "totempole.client.session",
    "run": "totempole.client.session",
}

__all__ = [
    "AGREED",
    "SAFE",
    "Gap",
    "Group",
    "Messages",
    "NetworkChanged",
    "NetworkConfig",
    "NetworkStatus",
    "Node",
    "NodeConfig",
    "Place",
    "ProcessId",
    "Reconnect",
    "Reconnected",
    "RingMessages",
    "RingNode",
    "RingView",
    "Safe",
    "SecurityConfig",
    "Service",
    "Session",
    "State",
    "Tls",
    "TotemError",
    "View",
    "blocking",
    "connect",
    "run",
]


def __getattr__(name: str) -> Any:
    """Loads what is asked for: whoever wants the simulator alone need not load sockets and seals."""
    if name == "blocking":
        from importlib import import_module

        return import_module("totempole.client.blocking")
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
