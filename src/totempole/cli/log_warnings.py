"""What a person should look at in the status of a log: for `totem status` and `totem log status`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from totempole.cli.event_text import on_one_line


def log_warnings(log: Mapping[str, Any]) -> Iterator[str]:
    yield from hold_warnings(log)
    yield from clock_warnings(log.get("clocks", {}))


def clock_warnings(clocks: Mapping[str, Any]) -> Iterator[str]:
    for who, ahead_us in clocks.get("ahead_us", {}).items():
        yield (
            f"the clock of replica {who}'s host is {_seconds(ahead_us)} ahead of this host's: correct the "
            "one that is wrong"
        )
    ahead_us = clocks.get("order_ahead_us", 0)
    if ahead_us > clocks.get("ahead_us_max", 0):
        yield (
            f"the order's time is {_seconds(ahead_us)} ahead of this host's clock: records get that time, "
            "and no lease ends, until the hosts' clocks have come so far (docs/log.md, Times)"
        )


def _seconds(time_us: int) -> str:
    return f"{time_us / 1_000_000:,.1f} s"


def hold_warnings(log: Mapping[str, Any]) -> Iterator[str]:
    """A hold that keeps as much again as the log should have in all."""
    oldest, retention = log.get("oldest_hold"), log.get("retention_bytes", 0)
    if oldest and retention and oldest["kept_bytes"] > retention:
        reader = oldest["reader"]
        yield (
            f"reader {on_one_line(reader)} holds all from position {oldest['position']:,} on, "
            f"{oldest['behind']:,} behind: it keeps {oldest['kept_bytes']:,} bytes more than "
            f"retention_bytes = {retention:,}. If nobody needs them: totem log hold "
            f"{on_one_line(shlex.quote(reader))} --release"
        )
