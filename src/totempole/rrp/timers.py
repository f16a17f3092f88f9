"""The timers of a redundant ring."""

from __future__ import annotations

from enum import IntEnum


class Timer(IntEnum):
    GATE = 0
    HELLO = 1
