"""What the ring warns its node of: what only the node, or the people who run it, can put right."""

from __future__ import annotations

from typing import NamedTuple

from totempole.types import ProcessorId


class Impostor(NamedTuple):
    """Another processor, in that life of its own, uses this one's identifier."""

    incarnation: int


class SettingsDiffer(NamedTuple):
    """Another processor has a setting that the members of a ring should have in common, and another value."""

    processor: ProcessorId
    name: str
    theirs: int
    mine: int


class DeadLink(NamedTuple):
    """The link between this processor and its successor is dead, one way at least. Tokens go by way of
    another member."""

    successor: ProcessorId
    through: ProcessorId


class FormerLife(NamedTuple):
    """A processor sends Joins in an incarnation below one that it has had: its storage was rolled back,
    or somebody repeats what it once said."""

    processor: ProcessorId
    incarnation: int
    latest: int
