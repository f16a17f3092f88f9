"""A limit on complaints about clients.

Whoever comes back again and again with rubbish must not fill the log: an interval has a number of lines for
clients' troubles; the rest are counted, and the count is told with the next interval's first line.
"""

from __future__ import annotations

import logging
from typing import Any

from totempole.structured_log import event

COMPLAINTS_MAX = 20
"""Lines in an interval."""
INTERVAL_US = 1_000_000


class Complaints:
    """Warnings about clients, so many in an interval."""

    def __init__(self, logger: logging.Logger) -> None:
        self.left_out = 0
        """Since the last line."""
        self._logger = logger
        self._ends_us = 0
        self._written = 0

    def write(self, now_us: int, name: str, /, **fields: Any) -> None:
        if now_us >= self._ends_us:
            self._ends_us = now_us + INTERVAL_US
            self._written = 0
        if self._written >= COMPLAINTS_MAX:
            self.left_out += 1
            return
        self._written += 1
        if self.left_out:
            fields["left_out_before"] = self.left_out
            self.left_out = 0
        event(self._logger, logging.WARNING, name, **fields)
