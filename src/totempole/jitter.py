"""The random numbers of one life of a processor.

Protocol packages draw none by themselves (docs/decisions/0001-protocols-without-io.md): whoever makes an
endpoint hands it this. The numbers follow from the processor and its life, so that a replay gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from totempole.types import ProcessorId


def jitter(me: ProcessorId, stable: Mapping[str, int]) -> Callable[[], float]:
    """`stable` is what stable storage held at the start of that life."""
    return Random(f"{me}/{stable.get('incarnation', 0)}").random
