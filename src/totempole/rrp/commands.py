"""What a node tells the layer of its interfaces."""

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
