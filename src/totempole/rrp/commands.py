"""What a node tells the layer of its interfaces, and of networks that come and go for good."""

from __future__ import annotations

from dataclasses import dataclass

from totempole.core.inputs import Command


@dataclass(frozen=True, slots=True)
class NetworkLost(Command):
    """The interface of a network is down or gone: nothing can be heard on it."""

    network: int


@dataclass(frozen=True, slots=True)
class NetworkBack(Command):
    network: int


@dataclass(frozen=True, slots=True)
class AddNetwork(Command):
    """A further network, the last of the ring's. Nothing is sent on it first before all members have it."""

    network: int
    segment_bytes: int
    name: str
    capacity: int = 1
    ring: int = 0


@dataclass(frozen=True, slots=True)
class RemoveNetwork(Command):
    """The last of the ring's networks is taken away."""

    network: int
