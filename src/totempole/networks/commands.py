"""What people ask of a ring's networks. Networks are counted from 0, in the order of the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from totempole.core.inputs import Command


@dataclass(frozen=True, slots=True)
class Drain(Command):
    """Take a network out of service on all processors, unless somebody would be cut off."""

    network: int


@dataclass(frozen=True, slots=True)
class Restore(Command):
    """Put a drained network into service again."""

    network: int
