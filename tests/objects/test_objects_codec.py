"""Values come back as what they were, and the same value is the same bytes in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from math import inf, nan
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.errors import CannotCarryError
from totempole.objects.codec import DEPTH_MAX, LARGE, Codec, differs


class Colour(Enum):
    RED = "red"


class Pair(NamedTuple):
    left: set[int]
    right: Any


class Options(TypedDict):
    names: set[str]
    size: int


@dataclass
class Tree:
    value: int
    tags: set[str] = field(default_factory=set)
    children: list[Tree] = field(default_factory=list)


class Shape(msgspec.Struct, tag="shape", rename={"corners": "c"}):
    corners: frozenset[int]
    parts: list[Shape | Line] = []


class Line(msgspec.Struct, tag="line"):
    ends: tuple[int, Any]


class Row(msgspec.Struct, tag="row", array_like=True):
    cells: set[int]
    rest: Any = None


V = TypeVar("V")


class Holder(msgspec.Struct, Generic[V]):
    numbers: set[int]
    value: V


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
)
KEYS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text(), st.binary()),
    lambda inner: st.tuples(inner, inner),
    max_leaves=3,
)
HASHABLE = st.recursive(
    st.one_of(st.integers(), st.text(), st.binary(), st.none()),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(HASHABLE, max_size=4),
        st.frozensets(HASHABLE, max_size=4),
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_values_come_back_as_what_they_were(value: Any) -> None:
    codec: Codec[Any] = Codec()
    content = codec.encode_exact(value)
    assert differs(codec.decode(content), value) is None
    assert codec.encode(codec.decode(content)) == content


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 2**64),
        (int, -(2**100)),
        (float, nan),
        (float, -inf),
        (list[float], [nan, 0.0, -0.0]),
        (set[int], {3, 1, 2**70}),
        (set[tuple[int, str]], {(1, "a"), (0, "b")}),
        (frozenset[frozenset[int]], frozenset({frozenset({1, 2}), frozenset()})),
        (dict[str, set[str]], {"b": {"x", "y"}, "a": set()}),
        (dict[tuple[int, int], int], {(2, 1): 1, (1, 2): 2}),
        (dict[int, Any], {3: (1, [2, {3}]), 1: None}),
        (dict[str, int], {"b": 1, "a": 2**80}),
        (tuple[int, ...], (1, 2)),
        (list[Any], [(1,), [1], {1}, 2**90, nan]),
        (Tree, Tree(1, {"x", "y"}, [Tree(2), Tree(2**70, {"z"})])),
        (Shape, Shape(frozenset({3, 1}), [Line((1, (2, 3))), Shape(frozenset())])),
        (Shape | Line | None, Line((4, {"a": {1}}))),
        (Shape | Line | None, None),
        (Line, Line((2**77, {2**66}))),
        (Row, Row({2, 1}, (2**70,))),
        (Pair, Pair({2, 1}, (1, 2))),
        (Options, {"names": {"a", "b"}, "size": 3}),
        (set[int] | int | None, {2, 1}),
        (list[set[int]] | None, [{2, 1}, set()]),
        (dict[str, Any] | int, {"a": (1, {2})}),
        (tuple[set[int], ...] | str, ({2, 1},)),
        (tuple[set[int], int] | None, ({2, 1}, 3)),
        (frozenset[str] | None, frozenset({"b", "a"})),
        (Pair | None, Pair({2**70, 1}, {3})),
        (Options | None, {"names": {"b"}, "size": 2**70}),
        (Tree | None, Tree(1, {"a"})),
        (Annotated[set[int], msgspec.Meta(max_length=3)], {1, 2}),
        (Annotated[set[int], msgspec.Meta(max_length=3)] | None, {1, 2}),
        (Holder[int], Holder({1, 2}, 3)),
        (Holder[set[str]], Holder({1, 2}, {"b", "a"})),
        (dict[Any, set[int]], {(1, "a"): {1}, None: set()}),
        (Colour, Colour.RED),
        (dict[Colour, int], {Colour.RED: 1}),
        (datetime, datetime(2026, 11, 17, tzinfo=UTC)),
        (list[datetime | int], [datetime(2026, 11, 17), 2**70]),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (bytes, b"\xc1"),
        (None, None),
    ],
)
def test_typed_values_come_back_as_what_they_were(annotation: Any, value: Any) -> None:
    codec: Codec[Any] = Codec(annotation)
    content = codec.encode_exact(value)
    again = codec.decode(content)
    assert differs(again, value) is None
    assert codec.encode(again) == content


def test_large_numbers_have_a_form_of_their_own() -> None:
    assert Codec(int).encode(2**64 - 1)[:1] != LARGE
    assert Codec(int).encode(2**64)[:1] == LARGE
    with pytest.raises(CannotCarryError):
        Codec(str).decode(Codec(int).encode(2**64))


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (float, 1, "an int would come back as a float"),
        (tuple[int, ...], [1], "a list would come back as a tuple"),
        (list[set[int]], [[1]], r"\[0\]: a list would come back as a set"),
        (int, "1", "Expected `int`, got `str`"),
        (int, True, "Expected `int`, got `bool`"),
        (dict[str, int], {"a": "b"}, "Expected `int`, got `str`"),
        (
            dict[str, dict[str, float]],
            {"{x}": {"{}": 1}},
            r"\['{x}'\]\['{}'\]: an int would come back as a float",
        ),
        (dict[str, int], OrderedDict(a=1), "an OrderedDict would come back as a dict"),
        (Tree, Tree(1, ["x"]), r"\.tags: a list would come back as a set"),  # type: ignore[arg-type]
        (Tree, {"value": 1}, "a dict where a Tree should be"),
        (Any, datetime(2026, 1, 1), "a datetime without an annotation"),
        (Any, [defaultdict(int)], "a defaultdict without an annotation"),
        (Any, Colour.RED, "a Colour without an annotation"),
        (Any, {frozenset(): 1}, "a frozenset as the key"),
        (Any, {2**64: 1}, "an int as the key"),
        (Any, Tree(1), "a Tree without an annotation"),
        (Any, bytearray(), "a bytearray without an annotation"),
        (Any, "\ud800", "surrogates not allowed"),
        (str, "\ud800", "surrogates not allowed"),
        (Any, lambda: 1, "a function without an annotation"),
        (Any, object(), "an object without an annotation"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(CannotCarryError, match=why):
        Codec(annotation).encode_exact(value)


@pytest.mark.parametrize(
    "annotation",
    [object, deque[int], list[deque[int]], dict[str, test_large_numbers_have_a_form_of_their_own]],
)
def test_types_that_cannot_be_carried_are_refused(annotation: Any) -> None:
    with pytest.raises(CannotCarryError, match="cannot be carried"):
        Codec(annotation)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_bounded_alike_everywhere() -> None:
    """How deep msgspec could go depends on the stack."""
    codec: Codec[Any] = Codec()
    codec.encode_exact(nested(DEPTH_MAX))
    circle: list[Any] = []
    circle.append(circle)
    for value in (nested(DEPTH_MAX + 1), nested(5_000), circle):
        with pytest.raises(CannotCarryError, match="nested"):
            codec.encode(value)
    for depth in (DEPTH_MAX + 2, 600, 100_000):
        with pytest.raises(CannotCarryError, match="nested"):
            codec.decode(b"\x91" * depth + b"\x90")
    tree = Tree(0)
    for _ in range(DEPTH_MAX):
        tree = Tree(1, children=[tree])
    for annotation in (Tree, Any):
        with pytest.raises(CannotCarryError, match=r"nested|without an annotation"):
            Codec(annotation).encode(tree)


def test_only_plain_values_come_where_there_is_no_annotation() -> None:
    """msgpack has instants of its own. A state that held one could not be written any more."""
    content = msgspec.msgpack.encode([datetime(2026, 11, 17, tzinfo=UTC)])
    with pytest.raises(CannotCarryError, match="datetime"):
        Codec(list[Any]).decode(content)
    assert Codec(list[datetime]).decode(content)
    assert Codec(tuple[datetime | None]).decode(content)


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(content: bytes) -> None:
    for annotation in (Any, int, Tree, Shape | Line, tuple[int, Any], dict[str, set[int]]):
        for start in (b"", LARGE):
            try:
                value = Codec(annotation).decode(start + content)
            except CannotCarryError:
                continue
            Codec(annotation).encode(value)


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    program = (
        "import sys; from typing import Any\n"
        "from totempole.objects.codec import Codec\n"
        "names = {'ann', 'bob', 'eve', 'joe', 'kim'}\n"
        "parts = [Codec(set[str]).encode(names), Codec().encode({'k': (names, frozenset(names))})]\n"
        "sys.stdout.write(b''.join(parts).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
