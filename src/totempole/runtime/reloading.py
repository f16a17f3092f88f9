"""What a node takes from its settings while it runs, and what it does not.

A ring on several networks takes further networks at the end of the list, and does without the last ones.
Whatever else has changed needs a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from totempole.errors import ConfigurationError
from totempole.runtime.config import NodeConfig
from totempole.runtime.network_config import table_title
from totempole.settings import sections_of, settings_of

NOT_RELOADED = "settings not reloaded"
NEEDS_RESTART = "settings have changed that need a restart"


def with_networks_of(old: NodeConfig, new: NodeConfig) -> NodeConfig:
    """The settings that a node goes on with: the old ones, on the networks that it can take from the new.
    Raises ConfigurationError if it cannot have these."""
    common = min(len(old.networks), len(new.networks))
    if not (old.is_redundant and new.is_redundant) or old.networks[:common] != new.networks[:common]:
        return old
    return replace(old, more_networks=new.more_networks)


def differences(old: NodeConfig, new: NodeConfig) -> list[str]:
    """The settings that differ, as a file names them: `processor`, `[ring] window_bytes`."""
    return [*_differing("", old, new), *_in_sections(old, new)]


def _in_sections(old: NodeConfig, new: NodeConfig) -> Iterator[str]:
    for name in sections_of(NodeConfig):
        mine, theirs = _tables(old, name), _tables(new, name)
        for number, (here, there) in enumerate(zip(mine, theirs, strict=False)):
            title = table_title(name, number, max(len(mine), len(theirs)))
            yield from _differing(f"{title.rstrip(':')} ", here, there)
        if len(mine) != len(theirs):
            yield f"the number of [[{name}]] tables"


def _tables(config: NodeConfig, section: str) -> tuple[Any, ...]:
    if section == "network":
        return config.networks
    return config.rings if section == "ring" else (getattr(config, section),)


def _differing(title: str, here: Any, there: Any) -> Iterator[str]:
    for name in settings_of(type(here)):
        if getattr(here, name) != getattr(there, name):
            yield f"{title}{name}"


def check_window(received_bytes: int, window_bytes: int, name: str) -> None:
    """The window of a ring that runs stays as it is: a new network must have room for it."""
    if received_bytes < window_bytes:
        raise ConfigurationError(
            f"network {name}: the kernel gives receive buffers of {received_bytes} bytes, and the window of "
            f"the ring has {window_bytes}: raise net.core.rmem_max and receive_buffer_bytes"
        )
