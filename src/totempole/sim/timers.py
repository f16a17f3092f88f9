"""A host's timers. A timer that moves ahead at every token visit must cost next to nothing.

Each timer keeps at most one live event in the scheduler's heap. Moving a timer later only notes the new
deadline; the event finds out when it fires early, and is pushed again.
"""

from __future__ import annotations

from collections.abc import Callable

from totempole.core.effects import TimerName
from totempole.sim.clock import Scheduler


class Timers:
    __slots__ = ("_armed", "_fire", "_scheduler", "deadlines", "due")

    def __init__(self, scheduler: Scheduler, fire: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._fire = fire
        self.deadlines: dict[TimerName, int] = {}
        """Timers that are set, and their global instants."""
        self.due: dict[TimerName, None] = {}
        """Timers whose instant has come, in that order, for the host to expire when it can."""
        self._armed: dict[TimerName, int] = {}

    def set(self, timer: TimerName, at_us: int) -> None:
        self.deadlines[timer] = at_us
        if self.due:
            self.due.pop(timer, None)
        armed_us = self._armed.get(timer)
        if armed_us is None or at_us < armed_us:
            self._arm(timer, at_us)

    def cancel(self, timer: TimerName) -> None:
        self.deadlines.pop(timer, None)
        self.due.pop(timer, None)

    def take_due(self) -> TimerName:
        timer = next(iter(self.due))
        del self.due[timer]
        del self.deadlines[timer]
        return timer

    def clear(self) -> None:
        """Forget everything; events still in the heap find nothing armed."""
        self.deadlines.clear()
        self.due.clear()
        self._armed.clear()

    def _arm(self, timer: TimerName, at_us: int) -> None:
        self._armed[timer] = at_us
        self._scheduler.at(at_us, self._on_event, timer, at_us)

    def _on_event(self, timer: TimerName, armed_us: int) -> None:
        if self._armed.get(timer) != armed_us:
            return
        del self._armed[timer]
        deadline_us = self.deadlines.get(timer)
        if deadline_us is None:
            return
        if deadline_us > self._scheduler.now_us:
            self._arm(timer, deadline_us)
            return
        self.due[timer] = None
        self._fire()
