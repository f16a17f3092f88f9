"""What programs saw is judged, too: records that must fail do."""

from __future__ import annotations

from typing import Any

import pytest
from group_stage import Record, compare, with_trace

from totempole.trace.layers.groups import GroupColumns
from totempole.trace.schema import Row

P, Q = "1.1.1", "2.1.1"


def place(seq: int, index: int = 0) -> list[Any]:
    return [[[4, 1], seq, [0, 0]], index]


def message(seq: int, number: int = 1, digest: int = 7) -> list[Any]:
    return ["messages", place(seq), P, number, 1, "a", "agreed", digest]


def view(seq: int, members: str = f"{P} {Q}", together: str = f"{P} {Q}") -> list[Any]:
    return ["view", place(seq), "regular", "a", members.split(), together.split(), "join"]


def seen(*events: list[Any], of: str = P) -> dict[str, Record]:
    return {of: Record([(of, list(events))])}


GOOD = (view(1, together=""), message(2, 1), message(3, 2), view(4), message(5, 3))


def test_what_all_saw_alike_is_right() -> None:
    compare(seen(*GOOD) | seen(*GOOD, of=Q))
    with_trace(seen(*GOOD) | seen(*GOOD[:3], of=Q), [*told(P), *told(Q)])


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("another content", (*GOOD[:2], message(3, 2, digest=8), *GOOD[3:])),
        ("a message missing", (*GOOD[:2], *GOOD[3:])),
        ("out of order", (GOOD[0], GOOD[2], GOOD[1], *GOOD[3:])),
        ("another message there", (*GOOD[:2], message(3, 9), *GOOD[3:])),
        ("another view", (*GOOD[:3], view(4, members=Q), GOOD[4])),
    ],
)
def test_programs_that_saw_something_else(what: str, other: tuple[list[Any], ...]) -> None:
    with pytest.raises(AssertionError):
        compare(seen(*GOOD) | seen(*other, of=Q))


@pytest.mark.parametrize("other", [(*GOOD[:2], *GOOD[3:]), (*GOOD[:2], message(9, 2)), (message(3, 2),)])
def test_programs_that_saw_what_they_were_not_told(other: tuple[list[Any], ...]) -> None:
    with pytest.raises(AssertionError, match="did not see what"):
        with_trace(seen(*other), told(P))


def test_who_shed_messages_saw_no_others() -> None:
    gap = ["gap", "a", 1, 100]
    with_trace(seen(GOOD[0], gap, *GOOD[2:]), told(P))
    with pytest.raises(AssertionError, match="was not told"):
        with_trace(seen(GOOD[0], gap, message(9, 2)), told(P))


def told(process: str) -> list[Row]:
    """The rows of its daemon."""
    return [
        Row(
            run="lab",
            node=int(process[0]),
            incarnation=1,
            step=seq,
            at_us=seq,
            layer="groups",
            kind="group_deliver",
            process=process,
            message=f"{P}:{number}",
            ring="4@1",
            seq=seq,
            count=1,
            digest=7,
            groups=GroupColumns(to=("a",)),
        )
        for number, seq in ((1, 2), (2, 3), (3, 5))
    ]
