"""What a node counts, cheaply enough to count always: a few additions per packet, and rates once a second."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from statistics import quantiles
from typing import Any

ROTATION_BUCKETS_US = (
    *(50, 100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000),
    *(30_000, 50_000, 75_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000),
)
RECENT_ROTATIONS = 512
RATED = ("messages_delivered", "packets_delivered", "bytes_delivered", "tokens", "retransmissions")


class Rotations:
    """Times between two visits of the token, as a histogram of all and the latest ones as they are."""

    __slots__ = ("_last_visit_us", "_recent", "counts", "last_us", "longest_us", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(ROTATION_BUCKETS_US) + 1)
        self.sum_us = 0
        self.last_us = 0
        self.longest_us = 0
        self._recent: deque[int] = deque(maxlen=RECENT_ROTATIONS)
        self._last_visit_us = 0

    def visit(self, now_us: int) -> None:
        if self._last_visit_us:
            rotation_us = now_us - self._last_visit_us
            self.counts[bisect_left(ROTATION_BUCKETS_US, rotation_us)] += 1
            self.sum_us += rotation_us
            self.last_us = rotation_us
            if rotation_us > self.longest_us:
                self.longest_us = rotation_us
            self._recent.append(rotation_us)
        self._last_visit_us = now_us

    def forget_visit(self) -> None:
        """The ring is gone: the time until the next token is no rotation."""
        self._last_visit_us = 0

    def summary(self) -> dict[str, int]:
        recent = list(self._recent)
        marks = quantiles(recent, n=100, method="inclusive") if len(recent) > 1 else [self.last_us] * 99
        return {
            "last": self.last_us,
            "p50": round(marks[49]),
            "p99": round(marks[98]),
            "max": self.longest_us,
        }

    def histogram(self) -> dict[str, Any]:
        return {
            "buckets_us": list(ROTATION_BUCKETS_US),
            "counts": list(self.counts),
            "sum_us": self.sum_us,
            "count": sum(self.counts),
        }


class Lag:
    """How late the node was for what it had to do: starved of CPU, or blocked by its program."""

    __slots__ = ("_alarm_us", "alarms", "last_us", "longest_us")

    def __init__(self, alarm_us: int) -> None:
        self._alarm_us = alarm_us
        self.alarms = 0
        self.last_us = 0
        self.longest_us = 0

    def note(self, late_us: int) -> bool:
        """True when it is worth an alarm."""
        self.last_us = late_us
        self.longest_us = max(self.longest_us, late_us)
        if late_us < self._alarm_us:
            return False
        self.alarms += 1
        return True


class Meters:
    """Totals since the start; `tick` makes rates of them."""

    __slots__ = (
        "_last_totals",
        "_last_us",
        "bytes_delivered",
        "bytes_received",
        "bytes_sent",
        "configuration_changes",
        "lag",
        "messages_delivered",
        "packets_delivered",
        "packets_received",
        "packets_sent",
        "rates",
        "retransmissions",
        "rotations",
        "token_retransmissions",
        "tokens",
    )

    def __init__(self, lag_alarm_us: int) -> None:
        self.packets_sent = self.bytes_sent = 0
        self.packets_received = self.bytes_received = 0
        self.messages_delivered = self.packets_delivered = self.bytes_delivered = 0
        self.tokens = self.token_retransmissions = self.retransmissions = self.configuration_changes = 0
        self.rotations = Rotations()
        self.lag = Lag(lag_alarm_us)
        self.rates = dict.fromkeys(RATED, 0.0)
        self._last_us = 0
        self._last_totals = dict.fromkeys(RATED, 0)

    def totals(self) -> Counter[str]:
        names = (
            "packets_sent",
            "bytes_sent",
            "packets_received",
            "bytes_received",
            "messages_delivered",
            "packets_delivered",
            "bytes_delivered",
            "tokens",
            "token_retransmissions",
            "retransmissions",
            "configuration_changes",
        )
        return Counter({name: getattr(self, name) for name in names})

    def tick(self, now_us: int) -> None:
        elapsed_us = now_us - self._last_us
        if self._last_us and elapsed_us:
            self.rates = {
                name: (getattr(self, name) - self._last_totals[name]) * 1e6 / elapsed_us for name in RATED
            }
        self._last_us = now_us
        self._last_totals = {name: getattr(self, name) for name in RATED}
