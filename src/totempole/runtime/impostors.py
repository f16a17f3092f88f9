"""What a node does when another one uses its number: it gives way, or begins a new life above the other's."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

from totempole.errors import ConfigurationError, NumberInUseError
from totempole.identity import LEAP_MAX, PROBATION_US, Answer, Identity
from totempole.types import ProcessorId
from totempole.wire.layout import INCARNATION_MAX


class Impostors:
    """Decides; the driver acts. `identity` has the rules."""

    def __init__(self, number: ProcessorId) -> None:
        self._number = number
        self._identity = Identity(PROBATION_US)

    def meet(self, incarnation: int, own: int, now_us: int, up_us: int, has_spoken: bool) -> Answer:
        return self._identity.meet(incarnation, own, now_us, up_us, has_spoken)

    def in_use(self, where: str) -> NumberInUseError:
        return NumberInUseError(
            f"processor = {self._number}: the node at {where} has this number already, or repeats what one "
            "has said; give each node a number of its own, then start this one again"
        )

    def next_life(self, above: int, now_us: int, draw: Callable[[int], int] = randrange) -> int:
        """What stable storage is to hold as the last incarnation, so that the next one is above the other's.
        Raises ConfigurationError if there is none left."""
        self._identity.begin_life(now_us)
        incarnation = above + draw(LEAP_MAX)
        if incarnation >= INCARNATION_MAX:
            raise ConfigurationError(
                f"processor = {self._number} has no incarnations left: give the node another number, or "
                "restart the whole cluster with empty directories"
            )
        return incarnation
