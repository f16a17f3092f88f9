"""Work that nobody waits for, in steps, with a rest behind each: what others do on this machine goes first.

A rest that is as long as some steps bounds what others lose, however large the work is, and whatever it is
that they share with it: cores, memory, a disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable

REST = 3.0
"""So many times as long as the step before it."""
REST_S_MAX = 1.0
"""Whoever takes the steps may wait for the next one."""


class Rest:
    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._begun_s = clock()

    def begin(self) -> None:
        """A step begins here. What has passed since the last one is none of it."""
        self._begun_s = self._clock()

    def end(self) -> None:
        """The step is done. The next one begins when this returns."""
        self._sleep(min(REST * (self._clock() - self._begun_s), REST_S_MAX))
        self._begun_s = self._clock()
