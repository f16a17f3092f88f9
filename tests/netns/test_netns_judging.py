"""The judge of this directory is itself judged: what it must not let pass, it does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from netns_stage import StageMaker

from totempole.trace.schema import Row


def nothing(rows: list[Row]) -> list[Row]:
    return []


def nothing_delivered_by_one(rows: list[Row]) -> list[Row]:
    return [row for row in rows if not (row.kind == "deliver" and row.node == 2)]


def one_delivery_missing(rows: list[Row]) -> list[Row]:
    gone = next(row for row in rows if row.kind == "deliver" and row.node == 2)
    return [row for row in rows if row is not gone]


def two_deliveries_exchanged(rows: list[Row]) -> list[Row]:
    first, second = [row for row in rows if row.kind == "deliver" and row.node == 2][:2]
    moved = {first.step: second._replace(step=first.step), second.step: first._replace(step=second.step)}
    return [moved.get(row.step, row) if row.node == 2 else row for row in rows]


def one_sent_by_nobody(rows: list[Row]) -> list[Row]:
    gone = next(row for row in rows if row.kind == "originate")
    return [row for row in rows if row is not gone]


def safe_before_all_had_received_it(rows: list[Row]) -> list[Row]:
    """The receipt comes a microsecond after somebody else's delivery: only its time is wrong."""
    first = next(row for row in rows if row.kind == "deliver" and row.service == "safe")
    delivered_us = min(row.at_us for row in rows if row.kind == "deliver" and row.message == first.message)
    late = next(
        row for row in rows if row.kind == "receive" and (row.ring, row.seq) == (first.ring, first.seq)
    )
    return [row._replace(at_us=delivered_us + 1) if row is late else row for row in rows]


def test_broken_traces_are_found(stage: StageMaker) -> None:
    with stage(hosts=3) as ring:
        ring.load()
        ring.deliver(30)
    rows, up = ring.rows, (1, 2, 3)
    ring.judge(rows, up)
    breakers: tuple[Callable[[list[Row]], list[Row]], ...] = (
        nothing,
        nothing_delivered_by_one,
        one_delivery_missing,
        two_deliveries_exchanged,
        one_sent_by_nobody,
    )
    for broken in breakers:
        with pytest.raises(AssertionError):
            ring.judge(broken(rows), up)
    with pytest.raises(AssertionError, match=r"as safe in .* had not received it"):
        ring.judge(safe_before_all_had_received_it(rows), up)
