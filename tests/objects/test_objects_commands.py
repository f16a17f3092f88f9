"""What a class may say, what a caller may give, and what is refused before anything is sent."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest

from totempole.errors import CannotCarryError, ObjectError
from totempole.objects import ordered
from totempole.objects.commands import (
    CallRefusedError,
    CommandRaisedError,
    ObjectType,
    Refused,
    TooOldError,
    command,
    migration,
)
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Kind, Limits, Outcome
from totempole.objects.versions import Version


@dataclass
class Order:
    item: str
    count: int = 1


class Shop:
    def __init__(self) -> None:
        self.orders: list[Any] = []

    @command
    def order(self, order: Order, note: str = "none", *, urgent: bool = False) -> tuple[int, str]:
        self.orders.append((order.item, order.count, note, urgent))
        return len(self.orders), note

    @command
    def anything(self, value, other=(1, 2)):  # type: ignore[no-untyped-def]
        self.orders.append(value)
        return other

    @command
    def nothing(self) -> None:
        self.orders.clear()

    def count(self) -> int:
        return len(self.orders)


SHOP = ObjectType.of(Shop)


def arguments(method: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return SHOP.command_of(method).decode(SHOP.encode_call(method, args, kwargs).arguments)  # type: ignore[no-any-return]


def test_the_mark_leaves_the_method_as_it_is() -> None:
    shop = Shop()
    assert shop.order(Order("tea"), urgent=True) == (1, "none")
    assert sorted(SHOP.commands) == ["anything", "nothing", "order"]


def test_arguments_in_every_way() -> None:
    tea = Order("tea", 2)
    assert arguments(Shop.order, tea) == (tea, "none", False)
    assert arguments(Shop.order, tea, "soon", urgent=True) == (tea, "soon", True)
    assert arguments("order", note="soon", order=tea) == (tea, "soon", False)
    assert arguments(Shop.nothing) == ()
    assert arguments(Shop.anything, {"a": [(1, 2), {3}, 2**80]}) == ({"a": [(1, 2), {3}, 2**80]}, (1, 2))


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "why"),
    [
        (Shop.order, ("tea",), {}, "Shop.order, parameter 'order': Expected `object`, got `str`"),
        (
            Shop.order,
            (Order("tea", "two"),),
            {},
            "parameter 'order': Expected `int`, got `str` - at `\\$.count`",
        ),  # type: ignore[arg-type]
        (Shop.order, (Order("tea"), 3), {}, "Shop.order, parameter 'note': Expected `str`, got `int`"),
        (Shop.order, (Order("tea"),), {"urgent": 1}, "parameter 'urgent': Expected `bool`, got `int`"),
        (Shop.order, (Order("tea"), "a", True), {}, "takes 2 positional arguments, and was given 3"),
        (Shop.order, (), {}, "parameter 'order' is not given"),
        (Shop.order, (Order("tea"),), {"order": Order("milk")}, "parameter 'order' is given twice"),
        (Shop.order, (Order("tea"),), {"when": 1}, "has no parameter 'when'"),
        (Shop.anything, (object(),), {}, "parameter 'value': an object without an annotation"),
        (Shop.anything, (1, [lambda: 1]), {}, "parameter 'other': a function without an annotation"),
        (Shop.count, (), {}, "Shop.count is no command: mark it with @command"),
        ("missing", (), {}, "Shop.missing is no command"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_name(method: Any, args: Any, kwargs: Any, why: str) -> None:
    with pytest.raises(ObjectError, match=why):
        SHOP.encode_call(method, args, kwargs)


def test_outcomes_become_results_and_errors() -> None:
    def outcome(kind: Kind, value: bytes) -> Outcome:
        return Outcome("a", 1, 1, kind, value)

    shop = ObjectMachine(Shop)
    content = shop.object_type.command_of(Shop.order).result.encode((1, "none"))
    assert SHOP.decode_result(Shop.order, outcome(Kind.DONE, content)) == (1, "none")
    for kind, error in (
        (Kind.REFUSED, Refused),
        (Kind.RAISED, CommandRaisedError),
        (Kind.TOO_OLD, TooOldError),
        (Kind.UNKNOWN_COMMAND, CallRefusedError),
        (Kind.WRONG_VERSION, CallRefusedError),
        (Kind.WRONG_ARGUMENTS, CallRefusedError),
    ):
        with pytest.raises(error, match="a text"):
            SHOP.decode_result(Shop.order, outcome(kind, b"a text"))


# Classes that cannot be objects


class NoCommands:
    def go(self) -> None: ...


class Waits:
    @command
    async def go(self) -> None: ...


class Yields:
    @command
    def go(self) -> Any:
        yield 1


class Star:
    @command
    def go(self, *all: int) -> None: ...


class Static:
    @command
    @staticmethod
    def go() -> None: ...


class ClassMethod:
    @classmethod
    @command
    def go(cls) -> None: ...


class BadParameter:
    @command
    def go(self, things: deque[int]) -> None: ...


class BadResult:
    @command
    def go(self) -> ObjectMachine[Any]: ...  # type: ignore[empty-body]


class NoSuchType:
    @command
    def go(self, thing: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Version0:
    object_version = 0

    @command
    def go(self) -> None: ...


class RunsTooMuch:
    object_version = 2
    object_runs_from = 3

    @command
    def go(self) -> None: ...


class OddLimits:
    object_limits = 3

    @command
    def go(self) -> None: ...


class OldClass:
    @command
    def go(self) -> None: ...


class MigratesItself:
    object_version = 2

    @command
    def go(self) -> None: ...

    @migration(1)
    def from_1(self, old: OldClass) -> None: ...


class MigratesNothing:
    object_version = 2

    @command
    def go(self) -> None: ...

    @migration(1)
    @staticmethod
    def from_1(old: dict[str, int]) -> None: ...


class MigratesAnother:
    object_version = 3

    @command
    def go(self) -> None: ...

    @migration(2)
    @staticmethod
    def from_1(old: OldClass) -> None: ...


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        ("Bank", r"'Bank' is no class: give the class itself, as in replica\(Bank"),
        (NoCommands, "NoCommands has no commands"),
        (Waits, r"Waits\.go: a command cannot be async"),
        (Yields, r"Yields\.go: a command cannot be a generator"),
        (Star, r"Star\.go: \*all cannot be carried"),
        (Static, r"Static\.go: a command is a plain method"),
        (ClassMethod, r"ClassMethod\.go: a command is a plain method"),
        (BadParameter, r"BadParameter\.go, parameter 'things': .*deque.* cannot be carried"),
        (BadResult, r"BadResult\.go, result: .*ObjectMachine.* cannot be carried"),
        (NoSuchType, r"NoSuchType\.go: its annotations cannot be read: name 'Missing'"),
        (Version0, "object_version = 0"),
        (RunsTooMuch, "object_runs_from = 3: it is a version from 1 to 2"),
        (OddLimits, "object_limits = 3"),
        (MigratesItself, "from_1: a migration is a static method"),
        (MigratesNothing, "annotate its one parameter with the class of the old version"),
        (MigratesAnother, r"migration\(2\) takes a class of version 1; it must be 2"),
    ],
)
def test_a_class_that_cannot_be_an_object(cls: type, why: str) -> None:
    with pytest.raises(ObjectError, match=why):
        Version.of(ObjectType.of(cls))


def test_names_and_versions_of_a_class() -> None:
    class Renamed(Shop):
        object_name = "Store"
        object_version = 4
        object_runs_from = 2
        object_limits = Limits(clients_max=7)

    of = ObjectType.of(Renamed)
    assert (of.name, of.version, of.runs_from, of.limits.clients_max) == ("Store", 4, 2, 7)
    assert of is ObjectType.of(Renamed)
    assert of.encode_call(Shop.nothing).method == "nothing"


# The order's values


def test_outside_a_command_there_is_no_order() -> None:
    for ask in (
        ordered.time,
        ordered.time_us,
        ordered.random,
        ordered.position,
        ordered.token,
        ordered.caller,
    ):
        with pytest.raises(ObjectError, match=r"outside a command.*ordered\.at"):
            ask()
    with pytest.raises(ObjectError):
        ordered.version()


def test_a_test_gives_the_order_by_hand() -> None:
    with ordered.at(position=7, time=1.5, caller="me", index=2, version=3):
        assert (ordered.position(), ordered.time(), ordered.time_us()) == (7, 1.5, 1_500_000)
        assert (ordered.caller(), ordered.token(), ordered.version()) == ("me", 7 * 65_536 + 2, 3)
        first, second = ordered.random().random(), ordered.random().random()
        assert first != second
        with ordered.at(position=8):
            assert ordered.random().random() != first
    with ordered.at(position=7, index=2):
        assert [ordered.random().random() for _ in range(2)] == [first, second]


def test_random_numbers_are_the_same_in_every_version_of_python() -> None:
    """Hosts may differ in their Python."""
    with ordered.at(position=1):
        assert ordered.random().randrange(10**9) == 446_724_247


def test_cannot_carry_is_an_object_error() -> None:
    assert issubclass(CannotCarryError, ObjectError)


class Mixed:
    @command
    def put(self, key: str, count: int, content: bytes) -> int:
        return count

    @command
    def pair(self, first: str, second: str) -> str:
        return first + second


def test_arguments_of_plain_types_are_carried_without_a_check_and_others_with_one() -> None:
    kind = ObjectType.of(Mixed)
    put, pair = kind.command_of("put"), kind.command_of("pair")
    values = ("k", 5, b"v")
    assert put.decode(put.encode("put", values, {})) == values
    assert put.encode("put", values[:2], {"content": b"v"}) == put.encode("put", list(values), {})
    assert put.decode(put.encode("put", ("k", 2**70, b""), {})) == ("k", 2**70, b"")
    assert put.decode(put.encode("put", ("k", -(2**63), b""), {})) == ("k", -(2**63), b"")
    for wrong in (
        ("k", True, b"v"),
        ("k", 1.5, b"v"),
        ("k", "5", b"v"),
        ("\ud800", 5, b"v"),
        (b"k", 5, b"v"),
    ):
        with pytest.raises(CannotCarryError):
            put.encode("put", wrong, {})
    with pytest.raises(ObjectError):
        put.encode("put", values[:2], {})
    assert pair.decode(pair.encode("pair", "ab", {})) == ("a", "b"), "any sequence is one of arguments"
