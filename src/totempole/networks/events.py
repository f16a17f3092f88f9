"""What is told of a ring's networks, at every member in the same order."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from totempole.types import OrderKey


class NetworkState(IntEnum):
    IN_SERVICE = 0
    SICK = 1
    """It loses too much: it carries only what is sent again."""
    FAULTY = 2
    """On some path nothing comes through. It carries only what is sent again."""
    DRAINED = 3
    """Taken out of service by people. It carries no data."""
    PROBATION = 4
    """It seems to be whole again. It waits."""


class NetworkChanged(NamedTuple):
    """A network's state has changed, or what is known of its fault."""

    network: int
    name: str
    old: NetworkState
    new: NetworkState
    why: str
    """What is wrong, in words; or why nothing is any more."""
    key: OrderKey
    """The place in the total order at which this is so."""


class NetworkRefused(NamedTuple):
    """What this processor asked for cannot be done."""

    network: int
    name: str
    why: str
