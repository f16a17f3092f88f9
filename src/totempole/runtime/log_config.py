"""The section `[log]` of a node's settings: whether it keeps a replica of the durable log, and where."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path

from totempole.corel.config import LogConfig
from totempole.daemon.config import ClientsConfig, parse_address
from totempole.errors import ConfigurationError
from totempole.groups import GroupConfig
from totempole.settings import FLAG, MAYBE_PATH, TEXT, setting, whole
from totempole.types import ProcessorId

MESSAGE_BYTES_LEAST = 8 * 1024 * 1024
"""Replicas fetch what they lack in messages of some megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection(LogConfig):
    """Whether the node keeps a replica of the durable log, and where."""

    enabled: bool = field(
        default=False, metadata=setting(FLAG, "whether this node keeps a replica of the durable log")
    )
    directory: Path | None = field(
        default=None,
        metadata=setting(MAYBE_PATH, "where the log is kept; not given: log in the node's directory"),
    )
    sync: bool = field(
        default=True,
        metadata=setting(
            FLAG, "wait for the disk; without it a power cut of several hosts may lose what was acknowledged"
        ),
    )

    serve: bool = field(
        default=True, metadata=setting(FLAG, "let programs read the log, from a process of its own")
    )
    listen: str = field(
        default="",
        metadata=setting(
            TEXT, "ADDRESS:PORT for readers on other hosts, with the TLS files of [clients]; empty: none"
        ),
    )

    snapshots_bytes_max: int = field(
        default=256 * 1024**3,
        metadata=setting(
            whole(1024**2, 2**50), "snapshots of replicated objects that are kept beside the log, together"
        ),
    )

    def check_with(self, processor: ProcessorId, groups: GroupConfig, clients: ClientsConfig) -> None:
        """What can be wrong only beside other settings."""
        if self.enabled and groups.message_bytes_max < MESSAGE_BYTES_LEAST:
            raise ConfigurationError(
                f"[groups] message_bytes_max = {groups.message_bytes_max}: the log needs at least "
                f"{MESSAGE_BYTES_LEAST}; raise it, or set [log] enabled = false"
            )
        if self.listen:
            self._check_listen(clients)
        if self.replicas and not self.enabled and processor in self.replicas:
            raise ConfigurationError(
                f"[log] replicas = {list(self.replicas)}: processor {processor}, this node, is one of them; "
                "set enabled = true, or name another"
            )

    def _check_listen(self, clients: ClientsConfig) -> None:
        try:
            parse_address(self.listen)
        except ConfigurationError as error:
            raise ConfigurationError(f"[log] {error}") from None
        if not clients.listen:
            raise ConfigurationError(
                f'[log] listen = "{self.listen}": without TLS nobody is let in: give listen and the TLS '
                "files in [clients], which readers of the log use too"
            )

    @property
    def protocol(self) -> LogConfig | None:
        """What the stack is built with."""
        if not self.enabled:
            return None
        return LogConfig(**{item.name: getattr(self, item.name) for item in fields(LogConfig)})
