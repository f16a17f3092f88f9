"""How a layer declares the kinds of rows that it writes."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """How much is traced, from least to most; each level has all that the lower ones have."""

    DELIVERY = 0
    """Cheap enough to leave on."""
    CHECKED = 1
    """All that the checkers read."""
    PROTOCOL = 2
    """Everything."""


class Kind(NamedTuple):
    name: str
    level: Level
    """The lowest level that has rows of this kind."""
    means: str
    """What happened, and what the columns say of it where their names do not."""
