"""Pieces put together: whole or not at all, apart for each sender and for state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import CodecError
from totempole.groups.body import Run, RunKind
from totempole.groups.partial import Partials
from totempole.types import ProcessId

ONE, OTHER = ProcessId(1, 1, 1), ProcessId(2, 1, 1)


def piece(content: bytes, offset: int, total: int, kind: RunKind = RunKind.MESSAGES, number: int = 1) -> Run:
    return Run(kind, 0, 1, number, 1, offset, total, ("g",), content)


@given(st.binary(min_size=1, max_size=100), st.data())
def test_pieces_become_what_was_cut(content: bytes, data: st.DataObject) -> None:
    partials = Partials()
    at = 0
    while at < len(content):
        stop = data.draw(st.integers(at + 1, len(content)))
        whole = partials.add(ONE, piece(content[at:stop], at, len(content)))
        assert (whole is not None) == (stop == len(content))
        at = stop
    assert whole == piece(content, 0, len(content))
    assert len(partials) == partials.bytes == 0


def test_what_is_whole_is_passed_on_as_it_is() -> None:
    run = piece(b"abc", 0, 3)
    assert Partials().add(ONE, run) is run


def test_what_has_no_content_is_whole() -> None:
    run = piece(b"", 0, 0, RunKind.JOIN)
    assert Partials().add(ONE, run) is run


def test_senders_and_state_are_kept_apart() -> None:
    partials = Partials()
    lanes = [(ONE, RunKind.MESSAGES), (ONE, RunKind.STATE), (OTHER, RunKind.MESSAGES), (OTHER, RunKind.STATE)]
    for sender, kind in lanes:
        assert partials.add(sender, piece(b"a", 0, 2, kind)) is None
    assert (len(partials), partials.bytes) == (4, 4)
    for sender, kind in lanes:
        whole = partials.add(sender, piece(b"b", 1, 2, kind))
        assert whole is not None
        assert whole.content == b"ab"


@pytest.mark.parametrize(
    "wrong",
    [
        piece(b"c", 2, 5),  # one before it is missing
        piece(b"b", 1, 6),  # of something longer
        piece(b"b", 1, 5, number=2),  # of something else
        piece(b"", 1, 5),
    ],
)
def test_a_piece_that_does_not_follow_is_refused_and_the_others_stay(wrong: Run) -> None:
    partials = Partials()
    partials.add(ONE, piece(b"a", 0, 5))
    with pytest.raises(CodecError):
        partials.add(ONE, wrong)
    whole = partials.add(ONE, piece(b"bcde", 1, 5))
    assert whole is not None
    assert whole.content == b"abcde"


def test_what_is_begun_again_replaces_what_was_under_way() -> None:
    partials = Partials()
    partials.add(ONE, piece(b"xx", 0, 5))
    partials.add(ONE, piece(b"a", 0, 3, number=2))
    whole = partials.add(ONE, piece(b"bc", 1, 3, number=2))
    assert whole is not None
    assert whole.content == b"abc"


def test_after_a_change_nothing_goes_on() -> None:
    partials = Partials()
    partials.add(ONE, piece(b"a", 0, 2))
    partials.clear()
    with pytest.raises(CodecError):
        partials.add(ONE, piece(b"b", 1, 2))


def test_whoever_goes_leaves_nothing_behind() -> None:
    partials = Partials()
    partials.add(ONE, piece(b"a", 0, 2))
    partials.add(ONE, piece(b"a", 0, 2, RunKind.STATE))
    partials.add(OTHER, piece(b"a", 0, 2))
    partials.forget(ONE)
    assert len(partials) == 1


def test_a_piece_does_not_keep_the_packet_that_it_came_in() -> None:
    partials = Partials()
    packet = memoryview(bytearray(b"a" * 60_000))
    partials.add(ONE, piece(packet[:10], 0, 20))  # type: ignore[arg-type]
    packet.release()  # would fail if a view of it were left
