"""`twins` finds what differs from process to process, and says where. Each case starts two processes."""

from __future__ import annotations

from functools import partial

import pytest
from twins_subjects import (
    BornAtATime,
    CountsOutside,
    DrawsOwnRandom,
    DrawsRandom,
    Good,
    IteratesSet,
    Loops,
    MakesNames,
    Named,
    Prints,
    RaisesTime,
    ReadsClock,
    ReadsDay,
    ReadsNow,
    ReturnsSetOrder,
    UsesAddress,
    UsesHash,
)

from sweeps import first_row_of
from totempole.errors import ObjectError
from totempole.objects.commands import command
from totempole.testing.twins import TwinsDiffer, twins

SOME = ("ann", "bob", "cid", "dan", "eve", "fay")


def test_a_good_class_is_the_same() -> None:
    commands = [(Good.put, name) for name in SOME] + [(Good.put, ""), (Good.broken,), (Good.listed,)] * 4
    assert twins(Good, [*commands, (partial(Good.put, value=2.5), "key")]) == len(commands) + 1


@pytest.mark.parametrize(
    ("cls", "attribute", "suspect"),
    first_row_of(
        [
            (ReadsClock, "last", "time.time"),
            (ReadsDay, None, "date.today"),
            (ReadsNow, "last", "datetime.now"),
            (DrawsRandom, "last", "random"),
            (DrawsOwnRandom, None, None),
            (MakesNames, None, "urandom"),
            (IteratesSet, "last", None),
            (ReturnsSetOrder, None, None),
            (UsesAddress, "last", "id()"),
            (UsesHash, None, "hash()"),
            (RaisesTime, None, "time.time"),
        ],
        4,
    ),
)
def test_what_differs_is_found(cls: type[Named], attribute: str | None, suspect: str | None) -> None:
    with pytest.raises(TwinsDiffer) as caught:
        twins(cls, [*((cls.add, name) for name in SOME), (cls.odd,), (cls.add, "zoe")])  # type: ignore[attr-defined]
    difference = caught.value.difference
    assert (difference.number, difference.command) == (len(SOME) + 1, "odd()")
    assert list(difference.attributes) == ([] if attribute is None else [attribute])
    assert (difference.outcomes is None) == (attribute is not None)
    if suspect is not None:
        assert suspect in str(difference)
    assert f"{cls.__name__} is not the same in two processes after command 7, odd()" in str(difference)


def test_a_new_object_that_differs() -> None:
    with pytest.raises(TwinsDiffer, match=r"before any command.*\n.*born") as caught:
        twins(BornAtATime, [(BornAtATime.add, "ann")])
    assert caught.value.difference.number == 0


def test_what_a_snapshot_loses() -> None:
    with pytest.raises(TwinsDiffer) as caught:
        twins(CountsOutside, [(CountsOutside.add, name) for name in SOME] * 2, restore_every=3)
    assert caught.value.difference.is_restored
    assert "restored from its snapshot" in str(caught.value)


def test_a_command_that_never_ends() -> None:
    with pytest.raises(ObjectError, match="have not ended within 2 s"):
        twins(Loops, [(Loops.odd,)], timeout=2)


def test_what_a_command_prints_is_no_answer() -> None:
    assert twins(Prints, [(Prints.odd,)] * 2) == 2


def test_a_class_in_a_function_is_refused() -> None:
    class Local:
        @command
        def act(self) -> None: ...

    with pytest.raises(ObjectError, match="cannot be imported by another process"):
        twins(Local, [])
