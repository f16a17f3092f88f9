"""A processor's own clock: it starts somewhere and runs a little fast or slow."""

from __future__ import annotations

MILLION = 1_000_000


class LocalClock:
    """Maps global virtual time to a processor's time and back. Both ways are exact and monotone."""

    __slots__ = ("_rate", "drift_ppm", "offset_us")

    def __init__(self, offset_us: int = 0, drift_ppm: int = 0) -> None:
        assert drift_ppm > -MILLION, "a clock does not run backwards"
        self.offset_us = offset_us
        self.drift_ppm = drift_ppm
        self._rate = MILLION + drift_ppm

    def local(self, global_us: int) -> int:
        return self.offset_us + global_us * self._rate // MILLION

    def to_global(self, local_us: int) -> int:
        """The first global instant at which this clock shows at least `local_us`: timers never fire early."""
        return -((self.offset_us - local_us) * MILLION // self._rate)
