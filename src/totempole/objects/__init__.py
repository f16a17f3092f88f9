"""Replicated objects: a plain class whose commands every host applies in the order of a log.

Read `machine` for what happens to a record, `clients` for why nothing is applied twice, `state` for how
values are written, `versions` for what an upgrade is, and `digests` for how hosts that differ are found. None
of these does I/O, reads a clock or starts a thread. `host` is what a program does for an object, `replica`
and `blocking` do it on a session; `containers`, `locks` and `sqlite` are ready-made objects.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from totempole.objects.containers import Counter, Queue, ReplicatedDict, Work
    from totempole.objects.locks import Election, Fence, Lease, Lock
    from totempole.objects.sqlite import SqliteObject

_PLACES = {
    "Counter": "containers",
    "Election": "locks",
    "Fence": "locks",
    "Lease": "locks",
    "Lock": "locks",
    "Queue": "containers",
    "ReplicatedDict": "containers",
    "SqliteObject": "sqlite",
    "Work": "containers",
}

__all__ = ["Counter", "Election", "Fence", "Lease", "Lock", "Queue", "ReplicatedDict", "SqliteObject", "Work"]


def __getattr__(name: str) -> Any:
    """Loads what is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
