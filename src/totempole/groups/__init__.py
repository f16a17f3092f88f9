"""Process groups on the order interface (Totem CACM): joining, views, packing, pieces, state for joiners.

Programs need `events` and `packing` only, so that nothing else is loaded before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from totempole.groups.config import GroupConfig
    from totempole.groups.layer import GroupLayer
    from totempole.groups.outbox import Outbox
    from totempole.groups.packing import Batch, pack

_PLACES = {
    "Batch": "totempole.groups.packing",
    "GroupConfig": "totempole.groups.config",
    "GroupLayer": "totempole.groups.layer",
    "Outbox": "totempole.groups.outbox",
    "pack": "totempole.groups.packing",
}

__all__ = ["Batch", "GroupConfig", "GroupLayer", "Outbox", "pack"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
