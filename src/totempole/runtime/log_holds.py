"""What readers' holds keep on disk. A hold that never moves keeps the log growing until its disk is full, so
the status and the metrics name the oldest one, and how much would go without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def oldest_hold(
    holds: Mapping[str, int], position: int, held_bytes: Callable[[int, int], int]
) -> dict[str, Any] | None:
    """For the status. `position`: where the log ends. `held_bytes`: of a hold on a position, as
    `LogStore.held_bytes` has it."""
    if not holds:
        return None
    reader, where = min(holds.items(), key=lambda hold: (hold[1], hold[0]))
    return {
        "reader": reader,
        "position": where,
        "behind": max(0, position - where),
        "kept_bytes": held_bytes(where, position),
    }


def holds_in_words(holds: Mapping[str, int]) -> str:
    """For the failure of a full disk: what to release."""
    if not holds:
        return ""
    reader, where = min(holds.items(), key=lambda hold: (hold[1], hold[0]))
    more = f", the oldest of {len(holds)} holds" if len(holds) > 1 else ""
    return f". Reader {reader!r} holds all from position {where} on{more}"
