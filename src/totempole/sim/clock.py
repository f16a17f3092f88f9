"""Virtual time: a heap of callbacks, in integer microseconds, the same on every run.

Events of the same instant run in the order in which they were scheduled, so nothing depends on hashes or
addresses. This is the simulator's hot loop; it does nothing that it need not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any

Event = tuple[int, int, Callable[..., object], tuple[Any, ...]]


class Scheduler:
    __slots__ = ("_cancelled", "_heap", "_ticket", "events_run", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.events_run = 0
        self._ticket = 0
        self._heap: list[Event] = []
        self._cancelled: set[int] = set()

    def at(self, at_us: int, callback: Callable[..., object], *args: Any) -> int:
        """Run `callback(*args)` at an instant, at once when it has passed. The ticket cancels it."""
        self._ticket = ticket = self._ticket + 1
        heappush(self._heap, (at_us, ticket, callback, args))
        return ticket

    def cancel(self, ticket: int) -> None:
        """Forget an event that has not run yet: it stays in the heap and is skipped when its time comes."""
        self._cancelled.add(ticket)

    def cancel_calls(self, callbacks: Iterable[Callable[..., object]]) -> list[tuple[Any, ...]]:
        """Forget every event that waits to call one of these very objects; gives their arguments."""
        wanted = {id(callback) for callback in callbacks}
        found = [
            (ticket, args)
            for _, ticket, callback, args in self._heap
            if id(callback) in wanted and ticket not in self._cancelled
        ]
        self._cancelled.update(ticket for ticket, _ in found)
        return [args for _, args in found]

    def run_until(self, until_us: int) -> None:
        """Run every event up to and including `until_us`, and stand there."""
        heap, cancelled = self._heap, self._cancelled
        run = 0
        try:
            while heap and heap[0][0] <= until_us:
                at_us, ticket, callback, args = heappop(heap)
                if cancelled and ticket in cancelled:
                    cancelled.remove(ticket)
                    continue
                if at_us > self.now_us:
                    self.now_us = at_us
                run += 1
                callback(*args)
        finally:
            self.events_run += run
        if until_us > self.now_us:
            self.now_us = until_us

    def step(self, until_us: int) -> bool:
        """Run the next event up to and including `until_us`. False when there is none: time stands there."""
        heap, cancelled = self._heap, self._cancelled
        while heap and heap[0][0] <= until_us:
            at_us, ticket, callback, args = heappop(heap)
            if cancelled and ticket in cancelled:
                cancelled.remove(ticket)
                continue
            if at_us > self.now_us:
                self.now_us = at_us
            self.events_run += 1
            callback(*args)
            return True
        if until_us > self.now_us:
            self.now_us = until_us
        return False

    def __len__(self) -> int:
        """Events waiting."""
        return len(self._heap) - len(self._cancelled)
