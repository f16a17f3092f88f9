"""Totempole: totally ordered, fault-tolerant multicast, after the Totem protocols.

docs/architecture.md says how the parts stand on each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from totempole.types import Service

if TYPE_CHECKING:
    from totempole.runtime.config import NetworkConfig, NodeConfig, SecurityConfig
    from totempole.runtime.events import Messages, View
    from totempole.runtime.node import Node, run

AGREED, SAFE = Service.AGREED, Service.SAFE

_PLACES = {
    "Messages": "totempole.runtime.events",
    "NetworkConfig": "totempole.runtime.config",
    "Node": "totempole.runtime.node",
    "run": "totempole.runtime.node",
    "NodeConfig": "totempole.runtime.config",
    "SecurityConfig": "totempole.runtime.config",
    "View": "totempole.runtime.events",
}

__all__ = [
    "AGREED",
    "SAFE",
    "Messages",
    "NetworkConfig",
    "Node",
    "NodeConfig",
    "SecurityConfig",
    "Service",
    "View",
    "run",
]


def __getattr__(name: str) -> Any:
    """Loads what is asked for: whoever wants the simulator alone need not load sockets and seals."""
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
