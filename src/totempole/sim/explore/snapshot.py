"""Copies of a protocol object, and fingerprints that tell two of them apart.

An exhaustive search goes on from one state in many ways, so it needs copies; and it must know a state that it
has seen. Both walk the object graph by its attributes and know nothing else about the protocol, so that they
stay right when it changes.

Two things are left out of account:
- the order of a dictionary: the protocol sorts before it iterates, or fills in sorted order. Where it forgets
  the oldest entry, it does so beyond thousands of them;
- counters of dropped packets, which the protocol never reads, and how a stack is put together, which never
  changes (`OUTSIDE`).

All else is compared as it is: clocks, counters and token numbers too. So two states that differ only in a
counter count as two. That costs states; in return no state is taken for another.
"""

from __future__ import annotations

import marshal
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from totempole.wire import Codec

DIGEST_BYTES = 16

_ATOMS = (int, str, bytes, float, bool, type(None), type, frozenset, tuple, FunctionType, BuiltinFunctionType)
_SHARED = (Codec, Enum)
"""Used by all copies together: they keep nothing between two calls."""

OUTSIDE = frozenset(
    {"dropped", "drops", "spec", "_commands", "_by_name", "_settling", "_receivers", "_on_network"}
)


@cache
def _attributes(cls: Hashable) -> tuple[str, ...]:
    """The slots of a class and its bases; what stands in `__dict__` is added by the caller."""
    found: dict[str, None] = {}
    assert isinstance(cls, type)
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        found.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
    return tuple(found)


@cache
def _is_shared(cls: Hashable) -> bool:
    """Immutable, by its type. Tuples are: the protocol's hold packets, numbers and sets that never change."""
    assert isinstance(cls, type)
    frozen = is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return issubclass(cls, _ATOMS + _SHARED) or frozen


def copy_of(original: Any) -> Any:
    """A deep copy that shares what cannot change."""
    return _copy(original, {})


def _copy(value: Any, seen: dict[int, Any]) -> Any:
    cls: Any = type(value)
    if _is_shared(cls):
        return value
    known = seen.get(id(value))
    if known is not None:
        return known
    if cls is MethodType:
        return MethodType(value.__func__, _copy(value.__self__, seen))
    if issubclass(cls, dict):
        return _copy_dict(value, seen)
    if cls in (list, deque, set, bytearray):
        copied = cls(value) if cls in (set, bytearray) else cls(_copy(item, seen) for item in value)
        seen[id(value)] = copied
        return copied
    return _copy_object(value, seen)


def _copy_dict(value: dict[Any, Any], seen: dict[int, Any]) -> dict[Any, Any]:
    assert type(value) in (dict, Counter, OrderedDict), f"no copies of {type(value).__name__}"
    copied = seen[id(value)] = type(value)()
    for key, item in value.items():
        copied[key] = _copy(item, seen)
    return copied


def _copy_object(value: Any, seen: dict[int, Any]) -> Any:
    cls: Any = type(value)
    copied = seen[id(value)] = object.__new__(cls)
    for name in _attributes(cls):
        if hasattr(value, name):
            object.__setattr__(copied, name, _copy(getattr(value, name), seen))
    for name, item in getattr(value, "__dict__", {}).items():
        copied.__dict__[name] = _copy(item, seen)
    return copied


def fingerprint(*values: Any) -> bytes:
    """The same for equal states, whichever way they came about and whatever process asks."""
    seen: dict[int, int] = {}
    # Version 2 of the format writes values only, and not which of them are one object.
    data = marshal.dumps(tuple([_plain(value, seen) for value in values]), 2)
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def _plain(value: Any, seen: dict[int, int]) -> Any:
    cls = type(value)
    plain = _PLAIN.get(cls)
    if plain is not None:
        return plain(value, seen)
    if issubclass(cls, tuple):
        return tuple([_plain(item, seen) for item in value])
    if issubclass(cls, int):
        return int(value)
    if issubclass(cls, str):
        return str.__str__(value)
    if issubclass(cls, dict):
        return _plain_dict(value, seen)
    if issubclass(cls, (type, FunctionType, BuiltinFunctionType, *_SHARED)):
        return getattr(value, "__qualname__", cls.__qualname__)
    known = seen.get(id(value))
    if known is not None:
        return ("again", known)
    seen[id(value)] = len(seen)
    return _plain_object(value, seen)


def _plain_object(value: Any, seen: dict[int, int]) -> Any:
    cls: Any = type(value)
    names = (*_attributes(cls), *sorted(getattr(value, "__dict__", {})))
    known = [name for name in names if name not in OUTSIDE and hasattr(value, name)]
    return (cls.__name__, *[_plain(getattr(value, name), seen) for name in known])


def _plain_dict(value: dict[Any, Any], seen: dict[int, int]) -> Any:
    return tuple([(_plain(key, seen), _plain(value[key], seen)) for key in sorted(value)])


def _as_is(value: Any, _seen: dict[int, int]) -> Any:
    return value


def _sequence(value: Any, seen: dict[int, int]) -> Any:
    return tuple([_plain(item, seen) for item in value])


def _sorted(value: Any, seen: dict[int, int]) -> Any:
    return ("set", *[_plain(item, seen) for item in sorted(value)])


def _method(value: Any, seen: dict[int, int]) -> Any:
    return (value.__name__, _plain(value.__self__, seen))


_PLAIN: dict[type, Callable[[Any, dict[int, int]], Any]] = {
    **dict.fromkeys((int, str, bytes, float, bool, type(None)), _as_is),
    **dict.fromkeys((tuple, list, deque), _sequence),
    **dict.fromkeys((set, frozenset), _sorted),
    dict: _plain_dict,
    bytearray: lambda value, _seen: bytes(value),
    memoryview: lambda value, _seen: bytes(value),
    MethodType: _method,
}
