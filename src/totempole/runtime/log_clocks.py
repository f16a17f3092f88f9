"""Clocks of replicas that are ahead.

A record has the time of the host that took it. The order's time never goes back: it is the latest time of all
records so far. So one record from a host whose clock is a year ahead stops the order's time for a year: all
records until then have the same time, and no lease of a replicated object ends. The order itself needs no
clocks. So nothing is refused, and the people who run the nodes are told which clock to correct.

The protocol reads no clock (`corel.layer.Replica.take_times` has what came), so its node compares. A run may
come late, and never before its time: a difference is that of the two clocks at least, however slow the
network is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from totempole.corel.events import LogAlarm
from totempole.types import ProcessorId

CLOCK_AHEAD_US_MAX = 10_000_000
"""The default lease of a lock: at worst a lock is kept for so much longer than its lease without an alarm.
Hosts that set their clocks by NTP differ by less than 0.1 s; a clock that nobody sets gains up to 10 s in a
day."""


class Clocks:
    def __init__(self) -> None:
        self.ahead_us: dict[ProcessorId, int] = {}
        """By processor, as its last run showed: those that are too far ahead of this host's clock."""
        self._order_is_ahead = False

    def compare(
        self, me: ProcessorId, times: Mapping[ProcessorId, int], order_us: int, now_us: int
    ) -> list[LogAlarm]:
        """`times`: by origin, of the last records that have come since the last comparison. `order_us`: the
        order's time. `now_us`: of this host's clock."""
        alarms = []
        for who, time_us in sorted(times.items()):
            ahead_us = time_us - now_us
            if ahead_us <= CLOCK_AHEAD_US_MAX:
                self.ahead_us.pop(who, None)  # it has been corrected
                continue
            if who not in self.ahead_us:
                alarms.append(LogAlarm("clock", who, _differ(me, who, ahead_us)))
            self.ahead_us[who] = ahead_us
        was_ahead = self._order_is_ahead
        self._order_is_ahead = order_us - now_us > CLOCK_AHEAD_US_MAX
        if self._order_is_ahead and not was_ahead and not self.ahead_us:
            # The run was there when this node started.
            alarms.append(LogAlarm("clock", me, _order_ahead(order_us - now_us)))
        return alarms

    def document(self, order_us: int, now_us: int) -> dict[str, Any]:
        """For the status."""
        return {
            "ahead_us": {str(who): ahead_us for who, ahead_us in sorted(self.ahead_us.copy().items())},
            "order_ahead_us": max(0, order_us - now_us),
            "ahead_us_max": CLOCK_AHEAD_US_MAX,
        }


def _differ(me: ProcessorId, who: ProcessorId, ahead_us: int) -> str:
    seconds = f"{ahead_us / 1_000_000:,.1f} s"
    if who == me:
        return f"this host's clock was {seconds} ahead of what it is now: the order's time is that far ahead"
    return (
        f"the clock of replica {who}'s host is {seconds} ahead of this host's: correct the one that is "
        "wrong. The order's time follows the clock that is ahead, and leases depend on it"
    )


def _order_ahead(ahead_us: int) -> str:
    return (
        f"the order's time is {ahead_us / 1_000_000:,.1f} s ahead of this host's clock: a replica's clock "
        "was ahead, or this one is behind. No lease ends until clocks have come so far"
    )
