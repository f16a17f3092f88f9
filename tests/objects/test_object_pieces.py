"""A large state in pieces: the same bytes as in one, the same refusals, and a rest between two of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import CannotCarryError
from totempole.objects import pieces as module
from totempole.objects import spool
from totempole.objects.codec import Codec
from totempole.objects.commands import command
from totempole.objects.machine import ObjectMachine
from totempole.objects.pieces import IndivisibleError, Measured, pieces
from totempole.objects.resting import REST, REST_S_MAX, Rest
from totempole.objects.snapshots import Snapshot
from totempole.objects.state import StateCodec

PLAIN = st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), st.tuples(st.booleans()))


def written(codec: Codec[Any], value: Any, **options: Any) -> bytes:
    return b"".join(pieces(codec, value, **options))


# One value


@given(st.one_of(st.lists(PLAIN), st.dictionaries(PLAIN, PLAIN)), st.integers(1, 9), st.booleans())
def test_the_pieces_are_what_the_codec_writes(value: Any, items: int, is_exact: bool) -> None:
    codec: Codec[Any] = Codec()
    assert written(codec, value, items=items, is_exact=is_exact) == codec.encode(value)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536, 70_000])
def test_every_count_has_its_own_beginning(count: int) -> None:
    numbers = list(range(count))
    for codec, value in (
        (Codec(list[int]), numbers),
        (Codec(dict[int, int]), dict.fromkeys(numbers, 7)),
        (Codec(), dict.fromkeys(numbers)),
    ):
        for items in (13, 1_000):
            assert written(codec, value, items=items) == codec.encode(value)


def test_a_piece_has_some_of_the_items() -> None:
    value = {str(number): bytes(1_000) for number in range(100)}
    sizes = [len(piece) for piece in pieces(Codec(), value, items=10)]
    assert len(sizes) == 1 + 10
    assert max(sizes) < 11_000


def test_what_the_annotation_says_of_the_whole_is_not_divided() -> None:
    short = Codec(Annotated[list[int], msgspec.Meta(min_length=5)])
    either = Codec(dict[str, int] | list[int])
    for codec in (short, either):
        assert [*pieces(codec, [1, 2, 3, 4, 5, 6, 7], items=2, is_exact=True)] == [
            codec.encode([1, 2, 3, 4, 5, 6, 7])
        ]


def test_some_items_are_compared_as_all_of_them_are() -> None:
    for codec, value in (
        (Codec(list[list[int]]), [[1], [2], (3,)]),
        (Codec(dict[str, float]), {"a": 1.0, "b": 2.0, "c": 3}),
    ):
        with pytest.raises(CannotCarryError, match="would come back as"):
            written(codec, value, items=1, is_exact=True)


def test_large_integers_are_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_ITEMS", 2)
    codec = Codec(list[int])
    value = [1, 2, 3, 4, 2**70]
    with pytest.raises(IndivisibleError):
        written(codec, value, items=2)
    for is_exact in (False, True):
        measured = Measured(codec, value)
        assert set(measured.measure(is_exact)) == {b""}
        content = b"".join(measured)
        assert content == codec.encode(value)
        assert measured.size == len(content)


# A state, and a snapshot


class Many:
    names: dict[str, int]

    def __init__(self) -> None:
        self.names = {str(number): number for number in range(5_000)}
        self.things: list[Any] = [(number, {number}) for number in range(5_000)]
        self.large = [2**70, *range(5_000)]
        self.empty: list[Any] = []

    @command
    def go(self) -> None: ...


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_state_in_pieces_is_the_same_bytes(is_exact: bool) -> None:
    codec = StateCodec(Many)
    told: list[int] = []

    def before(size: int) -> bytes:
        told.append(size)
        return b"before"

    written = [bytes(piece) for piece in codec.pieces(Many(), before, is_exact=is_exact)]
    content = codec.encode(Many())
    assert told == [len(content)]
    assert b"".join(written) == b"before" + content
    at = written.index(b"before")
    assert at > 10, "there is a piece for each that was measured"
    assert not any(written[:at]), "nothing is written before the size is known"


def test_a_snapshot_in_pieces_is_the_same_bytes() -> None:
    machine = ObjectMachine(Many)
    opening = machine.opening()
    assert opening is not None
    machine.apply(opening, 0, 0)
    content = b"".join(machine.pieces())
    assert content == machine.snapshot().encode()
    assert ObjectMachine.restore(Many, Snapshot.decode(content)).state.names == machine.state.names


def test_what_cannot_be_carried_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Many()
    state.names["x"] = 1.5  # type: ignore[assignment]
    codec = StateCodec(Many)
    with pytest.raises(CannotCarryError, match="Many, attribute 'names'"):
        list(codec.pieces(state, lambda size: b"", is_exact=True))
    state.names["x"] = object()  # type: ignore[assignment]
    with pytest.raises(CannotCarryError, match="Many, attribute 'names'"):
        list(codec.pieces(state, lambda size: b""))


# A rest


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def test_a_rest_is_some_times_as_long_as_its_step() -> None:
    clock = Clock()
    rest = Rest(clock, clock.sleep)
    clock.now_s += 0.25
    rest.end()
    clock.now_s += 0.125
    rest.end()
    clock.now_s += 50  # somebody was waited for
    rest.begin()
    rest.end()
    clock.now_s += 50
    rest.end()
    assert clock.slept == [REST * 0.25, REST * 0.125, 0.0, REST_S_MAX]


def test_a_child_rests_after_each_piece_until_half_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(spool, "time", clock)
    monkeypatch.setattr(clock, "monotonic", clock, raising=False)
    monkeypatch.setattr(spool, "Rest", lambda: Rest(clock, clock.sleep))
    given = []
    for piece in spool.resting([b"a", b"b", b"c", b"d"], deadline_s=2.0):
        given.append(piece)
        clock.now_s += 0.125  # it is written
    assert given == [b"a", b"b", b"c", b"d"]
    assert clock.slept == [REST * 0.125, REST * 0.125], "the third one is written after a second"
