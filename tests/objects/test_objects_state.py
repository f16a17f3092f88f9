"""States are written whole and read back the same; what cannot be is refused with the attribute's name."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pytest

from totempole.errors import CannotCarryError, ObjectError, ObjectVersionError
from totempole.objects.commands import command
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Calls, encode
from totempole.objects.snapshots import MAGIC, Snapshot
from totempole.objects.state import StateCodec, attributes, first_difference

T = TypeVar("T")


class Base:
    @command
    def go(self) -> None: ...


class Plain(Base):
    limit: ClassVar[int] = 3
    typed: dict[str, tuple[int, ...]]

    def __init__(self) -> None:
        self.typed = {"b": (1, 2), "a": ()}
        self.untyped = {"b": (1, {2}), "a": [2**70]}
        self.__private = frozenset({1})


class Slotted(Base):
    __slots__ = ("__hidden", "value")

    def __init__(self) -> None:
        self.value = [1]
        self.__hidden = (1,)


@dataclass
class Data(Base):
    names: set[str] = field(default_factory=lambda: {"x", "y"})
    size: float = 1.0


class Fields(msgspec.Struct):
    size: int = 3
    parts: list[bytes] = []

    @command
    def go(self) -> None: ...


class Box(Generic[T]):
    def __init__(self) -> None:
        self.items: list[Any] = [1]

    @command
    def go(self) -> None: ...


class Own(Base):
    def __init__(self, value: int = 7) -> None:
        self.value = value
        self.lock = Lock()

    def snapshot(self) -> bytes:
        return str(self.value).encode()

    @classmethod
    def restore(cls, content: bytes) -> Own:
        return cls(int(content))

    def digest(self) -> bytes:
        return b"%d" % self.value


@pytest.mark.parametrize("cls", [Plain, Slotted, Data, Fields, Box])
def test_a_state_comes_back_the_same(cls: type) -> None:
    codec: StateCodec[Any] = StateCodec(cls)
    state = cls()
    again = codec.decode(codec.encode_exact(state))
    assert type(again) is cls
    assert attributes(again) == attributes(state)
    assert first_difference(again, state) is None
    assert codec.encode(again) == codec.encode(state)
    assert codec.digest(again) == codec.digest(state)


def test_attributes_are_all_there() -> None:
    assert list(attributes(Plain())) == ["typed", "untyped", "_Plain__private"]
    assert sorted(attributes(Slotted())) == ["_Slotted__hidden", "value"]


def test_a_class_that_writes_itself() -> None:
    codec = StateCodec(Own)
    assert codec.is_own
    assert codec.decode(codec.encode_exact(Own(9))).value == 9
    assert codec.digest(Own(9)) != codec.digest(Own(8))


def test_the_order_of_attributes_does_not_count() -> None:
    one, other = Box[int](), Box[int]()
    one.first, one.second = 1, 2  # type: ignore[attr-defined]
    other.second, other.first = 2, 1  # type: ignore[attr-defined]
    assert StateCodec(Box).encode(one) == StateCodec(Box).encode(other)


# What is refused


class HasLock(Base):
    def __init__(self) -> None:
        self.lock = Lock()


class HasQueue(Base):
    waiting: deque[int]


class IsDict(dict[str, int]):
    @command
    def go(self) -> None: ...


class IsOrdered(OrderedDict[str, int]):
    @command
    def go(self) -> None: ...


class IntForFloat(Base):
    size: float

    def __init__(self) -> None:
        self.size = 0


class SharesAList(Base):
    rates: ClassVar[dict[str, int]] = {"a": 1}
    names = ("a", "b")
    items: list[int] = []  # noqa: RUF012


class NeedsArguments(Base):
    def __init__(self, size: int) -> None:
        self.size = size


class HalfOwn(Base):
    def snapshot(self) -> bytes:
        return b""


class NoBytes(Own):
    def snapshot(self) -> Any:
        return 7


class Raises(Own):
    def snapshot(self) -> bytes:
        raise OSError("no disk")


class Forgets(Own):
    @classmethod
    def restore(cls, content: bytes) -> Own:
        return cls(0)


class GivesAnother(Own):
    @classmethod
    def restore(cls, content: bytes) -> Any:
        return 3


class NotAClassMethod(Base):
    def snapshot(self) -> bytes:
        return b""

    def restore(self, content: bytes) -> None: ...


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (HasLock, "HasLock, attribute 'lock': a lock without an annotation cannot be carried"),
        (HasQueue, "HasQueue, attribute 'waiting': .*deque.* cannot be carried"),
        (IsDict, "IsDict is a dict: what that holds would be lost"),
        (IsOrdered, "IsOrdered is a OrderedDict"),
        (IntForFloat, "IntForFloat, attribute 'size': an int would come back as a float"),
        (SharesAList, "SharesAList, attribute 'items': it belongs to the class"),
        (NeedsArguments, r"NeedsArguments\(\) raised TypeError"),
        (HalfOwn, r"HalfOwn has snapshot\(\): give it both"),
        (NoBytes, r"NoBytes\.snapshot\(\) gave a int: give bytes"),
        (Raises, r"Raises\.snapshot\(\) raised OSError: no disk"),
        (Forgets, r"Forgets\.restore\(snapshot\(\)\) is not the same"),
        (GivesAnother, r"GivesAnother\.restore\(\) gave a int"),
        (NotAClassMethod, "restore must be a class method"),
    ],
)
def test_a_state_that_cannot_be_carried_is_refused_when_it_is_opened(cls: type, why: str) -> None:
    with pytest.raises(ObjectError, match=why):
        ObjectMachine(cls)


class Grows(Base):
    def __init__(self) -> None:
        self.things: list[Any] = []

    @command
    def spoil(self) -> int:
        self.things.append(Lock())
        return len(self.things)

    @command
    def mend(self) -> None:
        self.things.clear()


def test_a_state_that_is_spoilt_later_goes_on_without_snapshots() -> None:
    machine = ObjectMachine(Grows)
    opening = machine.opening()
    assert opening is not None
    machine.apply(opening, 0, 0)
    of = machine.object_type

    def record(first: int, *names: str) -> bytes:
        calls = tuple([of.encode_call(name, number=first + at) for at, name in enumerate(names)])
        return encode(Calls("a", 0, first - 1, 1, calls))

    machine.apply(record(1, *["spoil"] * 4_096), 1, 0)
    assert "attribute 'things'" in str(machine.take_events()[-1])
    assert machine.checkpoint is not None
    assert machine.checkpoint.state == b""
    for take in (machine.snapshot, machine.digest):
        with pytest.raises(CannotCarryError, match="Grows, attribute 'things': a lock"):
            take()
    machine.apply(record(5_000, "mend"), 2, 0)
    assert ObjectMachine.restore(Grows, machine.snapshot()).applied == 3


# Stored bytes


def a_snapshot() -> bytes:
    machine = ObjectMachine(Plain)
    opening = machine.opening()
    assert opening is not None
    machine.apply(opening, 5, 0)
    return machine.snapshot().encode()


def test_a_snapshot_in_pieces() -> None:
    content = a_snapshot()
    snapshot = Snapshot.decode(memoryview(content))
    assert b"".join(snapshot.pieces()) == content
    assert snapshot.applied == 6
    assert ObjectMachine.restore(Plain, snapshot).snapshot().encode() == content


def test_no_snapshot_before_the_object_is_open() -> None:
    with pytest.raises(ObjectError, match="not open"):
        ObjectMachine(Plain).snapshot()


def test_damaged_snapshots_are_refused() -> None:
    content = a_snapshot()
    for cut in range(len(content)):
        with pytest.raises(ObjectError):
            ObjectMachine.restore(Plain, Snapshot.decode(content[:cut]))
    with pytest.raises(ObjectError):
        Snapshot.decode(content + b"x")
    newer = bytearray(content)
    newer[len(MAGIC)] = 2
    with pytest.raises(ObjectVersionError, match="format 2"):
        Snapshot.decode(bytes(newer))


def test_any_byte_of_a_state_may_be_wrong() -> None:
    """A host gets an error, or a state that it can work with; never another exception."""
    codec = StateCodec(Plain)
    content = codec.encode(Plain())
    for at in range(len(content)):
        for flip in (0x01, 0x80, 0xFF):
            spoilt = bytearray(content)
            spoilt[at] ^= flip
            try:
                codec.decode(bytes(spoilt))
            except ObjectError:
                continue
