"""What the layer warns its node of."""

from __future__ import annotations

from typing import NamedTuple

from totempole.types import ProcessorId


class WaysDiffer(NamedTuple):
    """Another processor uses the networks in another way: it has another number or order of them, other names
    or capacities, or another style. `name` is the setting; digests of names and capacities say only that."""

    processor: ProcessorId
    name: str
    theirs: int
    mine: int
