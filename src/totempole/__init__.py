"""Totempole: totally ordered, fault-tolerant multicast, after the Totem protocols.

    async with totempole.connect() as session:
        async with session.join("orders") as group:
            await group.multicast(b"…")
            async for event in group: ...

docs/architecture.md says how the parts stand on each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from totempole.types import Fence, Place, ProcessId, RingKind, Service

if TYPE_CHECKING:
    from totempole.client import blocking
    from totempole.client.appending import FencedError
    from totempole.client.endpoint import Reconnect, Tls
    from totempole.client.events import Gap, Messages, NetworkChanged, Reconnected, Safe, State, View
    from totempole.client.feed import Feed
    from totempole.client.log import Log, Receipt
    from totempole.client.log_reader import LogReader, log_reader
    from totempole.client.log_records import LogBatch, Notice, Record
    from totempole.client.multicasting import MulticastReceipt
    from totempole.client.primary import Primary
    from totempole.client.running import run
    from totempole.client.sending import Delivered
    from totempole.client.session import Group, Session, SessionEvents, connect
    from totempole.daemon.config import ClientsConfig
    from totempole.errors import (
        ConfigurationError,
        LogError,
        NetworkError,
        NotPrimary,
        ObjectError,
        SessionError,
        StorageError,
        TlsError,
        TotemError,
        Unknown,
    )
    from totempole.groups.config import GroupConfig
    from totempole.objects import ordered
    from totempole.objects.commands import CommandRaisedError, Refused, command, migration
    from totempole.objects.hosting import PrimaryChanged
    from totempole.objects.replica import CallReceipt, Replica
    from totempole.rrp.config import RedundancyConfig
    from totempole.runtime.config import (
        LoggingConfig,
        MetricsConfig,
        NetworkConfig,
        NodeConfig,
        Peer,
        SecurityConfig,
        TraceConfig,
    )
    from totempole.runtime.log_config import LogSection
    from totempole.runtime.node import Node
    from totempole.session import NetworkStatus
    from totempole.srp.config import RingConfig

AGREED, SAFE = Service.AGREED, Service.SAFE

_MODULES = {"blocking": "totempole.client.blocking", "ordered": "totempole.objects.ordered"}

_PLACES = {
    "CallReceipt": "totempole.objects.replica",
    "ClientsConfig": "totempole.daemon.config",
    "CommandRaisedError": "totempole.objects.commands",
    "ConfigurationError": "totempole.errors",
    "Delivered": "totempole.client.sending",
    "Feed": "totempole.client.feed",
    "FencedError": "totempole.client.appending",
    "Gap": "totempole.client.events",
    "Group": "totempole.client.session",
    "GroupConfig": "totempole.groups.config",
    "Log": "totempole.client.log",
    "LogBatch": "totempole.client.log_records",
    "LogError": "totempole.errors",
    "LogReader": "totempole.client.log_reader",
    "LogSection": "totempole.runtime.log_config",
    "LoggingConfig": "totempole.runtime.config",
    "Messages": "totempole.client.events",
    "MetricsConfig": "totempole.runtime.config",
    "MulticastReceipt": "totempole.client.multicasting",
    "NetworkChanged": "totempole.client.events",
    "NetworkConfig": "totempole.runtime.config",
    "NetworkError": "totempole.errors",
    "NetworkStatus": "totempole.session",
    "Node": "totempole.runtime.node",
    "NodeConfig": "totempole.runtime.config",
    "NotPrimary": "totempole.errors",
    "Notice": "totempole.client.log_records",
    "ObjectError": "totempole.errors",
    "Peer": "totempole.runtime.config",
    "Primary": "totempole.client.primary",
    "PrimaryChanged": "totempole.objects.hosting",
    "Receipt": "totempole.client.log",
    "Reconnect": "totempole.client.endpoint",
    "Reconnected": "totempole.client.events",
    "Record": "totempole.client.log_records",
    "RedundancyConfig": "totempole.rrp.config",
    "Refused": "totempole.objects.commands",
    "Replica": "totempole.objects.replica",
    "RingConfig": "totempole.srp.config",
    "Safe": "totempole.client.events",
    "SecurityConfig": "totempole.runtime.config",
    "Session": "totempole.client.session",
    "SessionError": "totempole.errors",
    "SessionEvents": "totempole.client.session",
    "State": "totempole.client.events",
    "StorageError": "totempole.errors",
    "Tls": "totempole.client.endpoint",
    "TlsError": "totempole.errors",
    "TotemError": "totempole.errors",
    "TraceConfig": "totempole.runtime.config",
    "Unknown": "totempole.errors",
    "View": "totempole.client.events",
    "command": "totempole.objects.commands",
    "connect": "totempole.client.session",
    "log_reader": "totempole.client.log_reader",
    "migration": "totempole.objects.commands",
    "run": "totempole.client.running",
}

__all__ = [
    "AGREED",
    "SAFE",
    "CallReceipt",
    "ClientsConfig",
    "CommandRaisedError",
    "ConfigurationError",
    "Delivered",
    "Feed",
    "Fence",
    "FencedError",
    "Gap",
    "Group",
    "GroupConfig",
    "Log",
    "LogBatch",
    "LogError",
    "LogReader",
    "LogSection",
    "LoggingConfig",
    "Messages",
    "MetricsConfig",
    "MulticastReceipt",
    "NetworkChanged",
    "NetworkConfig",
    "NetworkError",
    "NetworkStatus",
    "Node",
    "NodeConfig",
    "NotPrimary",
    "Notice",
    "ObjectError",
    "Peer",
    "Place",
    "Primary",
    "PrimaryChanged",
    "ProcessId",
    "Receipt",
    "Reconnect",
    "Reconnected",
    "Record",
    "RedundancyConfig",
    "Refused",
    "Replica",
    "RingConfig",
    "RingKind",
    "Safe",
    "SecurityConfig",
    "Service",
    "Session",
    "SessionError",
    "SessionEvents",
    "State",
    "StorageError",
    "Tls",
    "TlsError",
    "TotemError",
    "TraceConfig",
    "Unknown",
    "View",
    "blocking",
    "command",
    "connect",
    "log_reader",
    "migration",
    "ordered",
    "run",
]


def __getattr__(name: str) -> Any:
    """Loads what is asked for: whoever wants the simulator alone need not load sockets and seals."""
    if name in _MODULES:
        from importlib import import_module

        return import_module(_MODULES[name])
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
