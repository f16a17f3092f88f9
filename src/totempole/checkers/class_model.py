"""A plain class as the sequential model of a history: its methods are the operations.

A step copies the object and calls the method on the copy. States are compared by what they hold, the order of
dictionaries included: two objects that a method could tell apart are never taken for one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any, NamedTuple

from totempole.checkers.linearizability import Call


class Raised(NamedTuple):
    """The result of a call that raised."""

    kind: str
    """The name of the exception's class."""
    text: str


class State:
    """An object that nobody changes any more."""

    __slots__ = ("_hash", "held", "key")

    def __init__(self, held: Any) -> None:
        self.held = held
        self.key = frozen(held)
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._hash == other._hash and self.key == other.key

    def __repr__(self) -> str:
        return f"State({self.key!r})"


class ClassModel:
    """`make` gives a new object. `key`: calls with different keys are on different parts of the object, which
    never influence each other; each part is judged on an object of its own. `is_read`: whether a call, with
    its result, changes nothing in any state.

    `around` is entered for each step: for classes that ask where in an order they are.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        key: Callable[[Call], Hashable] | None = None,
        is_read: Callable[[Call], bool] = lambda _call: False,
        around: Callable[[Call], AbstractContextManager[Any]] = lambda _call: nullcontext(),
    ) -> None:
        self._make = make
        self._key = key
        self._is_read = is_read
        self._around = around

    def start(self) -> State:
        return State(self._make())

    def step(self, state: State, call: Call) -> tuple[State, Any]:
        held = copy.deepcopy(state.held)
        # A method may keep or change what it was given.
        arguments = copy.deepcopy(call.arguments)
        try:
            with self._around(call):
                answer = getattr(held, call.operation)(*arguments)
        except Exception as error:
            answer = Raised(type(error).__name__, str(error))
        after = State(held)
        return (state if after == state else after), answer

    def is_read(self, call: Call) -> bool:
        return self._is_read(call)

    def partition(self, call: Call) -> Hashable:
        return None if self._key is None else self._key(call)


def frozen(value: Any) -> Hashable:
    """The content of a value, hashable. Values of different types are different."""
    return _frozen(value, ())


_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})


def _frozen(value: Any, above: tuple[int, ...]) -> Hashable:
    kind = type(value)
    if kind in _PLAIN:
        # Beside its type: 1, 1.0 and True are equal, and not the same. NaN is itself.
        return kind.__name__, repr(value) if kind is float else value
    if id(value) in above:
        return "within itself", len(above) - above.index(id(value))
    inside = (*above, id(value))
    name = kind.__qualname__
    if isinstance(value, dict):
        return name, tuple([(_frozen(key, inside), _frozen(each, inside)) for key, each in value.items()])
    if isinstance(value, set | frozenset):
        return name, frozenset([_frozen(each, inside) for each in value])
    if isinstance(value, list | tuple) or kind.__name__ == "deque":
        return name, tuple([_frozen(each, inside) for each in value])
    if isinstance(value, Enum):
        return name, value.name
    if isinstance(value, type) or callable(value):
        return name, getattr(value, "__module__", ""), getattr(value, "__qualname__", value)
    if hides_its_content(kind):
        reduced = value.__reduce__()
        return name, reduced if isinstance(reduced, str) else _frozen(reduced[1:], inside)
    attributes = attributes_of(value)
    if attributes is not None:
        return name, tuple([(each, _frozen(held, inside)) for each, held in attributes.items()])
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"states with a {name} cannot be compared") from None
    return name, value


def hides_its_content(kind: type) -> bool:
    """As Random or Decimal do: what they hold is not in attributes, and they say how to make them anew."""
    own: Any = kind.__reduce__
    return own is not object.__reduce__


def attributes_of(value: Any) -> dict[str, Any] | None:
    """What an object holds, by name; None if it has no attributes."""
    slots = [
        _mangled(name, kind)
        for kind in reversed(type(value).__mro__)
        for name in _listed(kind.__dict__.get("__slots__", ()))
        if name not in ("__dict__", "__weakref__")
    ]
    if not slots and not hasattr(value, "__dict__"):
        return None
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return found | getattr(value, "__dict__", {})


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _mangled(name: str, kind: type) -> str:
    """As Python names a private attribute."""
    is_private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if is_private else name
