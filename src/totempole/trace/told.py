"""A row in words, for eyes: stories, timelines, coverage and whoever waits for a state or a branch."""

from __future__ import annotations

from totempole.trace.schema import Row


def transition(old_state: str, new_state: str, reason: str) -> str:
    return f"{old_state}>{new_state} {reason}"


def told(row: Row) -> str:
    """What a state, branch, drop, fault or end says."""
    if row.kind == "state":
        return transition(row.old_state, row.new_state, row.reason)
    if row.kind == "phase":
        return f"log {row.new_state}"
    return f"{row.reason} {row.detail}".strip()
