"""Which logs of the order are read, and how far a number of records or bytes of them reaches. No I/O."""

from __future__ import annotations

from typing import NamedTuple


class LogSelection(NamedTuple):
    logs: tuple[str, ...] = ()
    """Only these; none: all."""
    without: str = ""
    """Not those whose names begin so. Empty: none is left out."""

    def has(self, log: str) -> bool:
        if self.logs and log not in self.logs:
            return False
        return not self.without or not log.startswith(self.without)


ALL_LOGS = LogSelection()


class Meter:
    """Takes runs in their order, until one of the bounds is reached."""

    def __init__(
        self, start: int, stop: int, selection: LogSelection, *, rows_max: int = 0, bytes_max: int = 0
    ) -> None:
        """Of positions from `start` to `stop`. 0: no bound."""
        self.position = start
        """Records before it are within the bounds."""
        self.rows = 0
        self.bytes = 0
        self._stop = stop
        self._selection = selection
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    @property
    def is_done(self) -> bool:
        return self.position >= self._stop

    def take(self, log: str, position: int, stop: int, size: int) -> bool:
        """A run of this log with records at these positions, and its bytes. Whether there is room for more. A
        record counts as its share of its run."""
        first, last = max(position, self.position), min(stop, self._stop)
        if first < last and self._selection.has(log):
            rows, record_bytes = last - first, size / (stop - position)
            fit = min(rows, self._room(record_bytes))
            self.rows += fit
            self.bytes += round(fit * record_bytes)
            self.position = first + fit
            return fit == rows and not self.is_done
        self.position = max(self.position, last)
        return not self.is_done

    def _room(self, record_bytes: float) -> int:
        """For so many records more. The first one always has room."""
        room = 2**62
        if self._rows_max:
            room = self._rows_max - self.rows
        if self._bytes_max:
            room = min(room, int((self._bytes_max - self.bytes) / record_bytes))
        return max(room, 0 if self.rows else 1)
