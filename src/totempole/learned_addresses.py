"""Where processors are, from what they say themselves: the rules that real and simulated hosts share.

A processor is where its latest fresh Join came from (the effect `Reachable`). Where any other word of its own
came from, which somebody may have repeated, is a hint: good for Joins only, to get a fresh one from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from totempole.types import ProcessorId

LEARNED_MAX = 4_096
"""Processors whose address is remembered; the one heard first is forgotten first."""
STRANGER_US = 60_000_000
"""So long is one sent everything that is not on the ring, and has not been heard."""

Address = TypeVar("Address")


class LearnedAddresses(Generic[Address]):
    """Methods say whether something has changed."""

    __slots__ = ("_heard_us", "hints", "known")

    def __init__(self) -> None:
        self.known: dict[ProcessorId, Address] = {}
        self.hints: dict[ProcessorId, Address] = {}
        self._heard_us: dict[ProcessorId, int] = {}

    def learn(self, processor: ProcessorId, source: Address, just_now: bool, now_us: int) -> bool:
        """`just_now`: it is there. If not, it may have been."""
        if just_now:
            self.hints.pop(processor, None)
            self._heard_us[processor] = now_us
        book = self.known if just_now else self.hints
        if book.get(processor) == source or (not just_now and processor in self.known):
            return False
        book[processor] = source
        if len(book) > LEARNED_MAX:
            self._forget(next(iter(book)))
        return True

    def forget_strangers(self, now_us: int, members: Collection[ProcessorId]) -> bool:
        """Those who have gone for good: what comes after them at their address is not to be sent our data."""
        gone = [
            processor
            for processor, heard_us in self._heard_us.items()
            if processor not in members and now_us - heard_us > STRANGER_US
        ]
        for processor in gone:
            self._forget(processor)
        return bool(gone)

    def _forget(self, processor: ProcessorId) -> None:
        self.known.pop(processor, None)
        self.hints.pop(processor, None)
        self._heard_us.pop(processor, None)
