"""Small values as text: times, ranges, and the fields of a settings class as key=value words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from decimal import Decimal
from typing import Any, TypeVar

from totempole.errors import ConfigurationError

T = TypeVar("T")

UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)$")
_SUFFIXES = ("_us", "_ns", "_bytes_per_s")


class BadValue(ValueError):
    """The text says what was found and what is allowed."""


def parse_time(text: str) -> int:
    """`1.5s`, `20ms` or `300us`, in microseconds."""
    match = _TIME.match(text)
    if not match:
        raise BadValue(f"{text!r} is not a time: give a number with a unit, us, ms or s, like 1.5s")
    value = Decimal(match[1]) * UNITS_US[match[2]]
    if value != round(value):
        raise BadValue(f"{text!r} is finer than a microsecond: give whole microseconds")
    return round(value)


def time_text(at_us: int) -> str:
    for unit in ("s", "ms"):
        if at_us and at_us % UNITS_US[unit] == 0:
            return f"{at_us // UNITS_US[unit]}{unit}"
    return f"{at_us}us"


def parse_number(text: str, least: float = 0, whole: bool = False) -> Any:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = least - 1
    if not least <= value < float("inf"):
        kind = "a whole number" if whole else "a number"
        raise BadValue(f"{text!r} is not {kind} of at least {least}")
    return value


def short_names(kind: type) -> dict[str, str]:
    """The key that a scenario uses for each field: its name less the unit, unless another has that name."""
    taken = {item.name for item in fields(kind)}
    names = {}
    for item in fields(kind):
        short = next(
            (item.name.removesuffix(tail) for tail in _SUFFIXES if item.name.endswith(tail)), item.name
        )
        names[item.name if short in taken else short] = item.name
    return names


def split_pair(word: str, allowed: Iterable[str]) -> tuple[str, str]:
    key, separator, text = word.partition("=")
    if not separator or key not in allowed or not text:
        raise BadValue(f"{word!r} is not allowed here: give key=value, with a key of {', '.join(allowed)}")
    return key, text


def parse_fields(kind: type[T], words: Iterable[str], base: T) -> T:
    """`base` with the fields that the words name."""
    names = short_names(kind)
    values = {item.name: getattr(base, item.name) for item in fields(kind)}  # type: ignore[arg-type]
    types = {item.name: str(item.type) for item in fields(kind)}  # type: ignore[arg-type]
    for word in words:
        key, text = split_pair(word, names)
        values[names[key]] = _parse_value(text, types[names[key]])
    try:
        return kind(**values)
    except ConfigurationError as error:
        raise BadValue(str(error)) from error


def _parse_value(text: str, kind: str) -> Any:
    if kind == "bool":
        return _parse_flag(text)
    if kind == "Range":
        return parse_range(text)
    if text == "same" and kind.endswith("None"):
        return None
    if kind == "str":
        return text
    if kind == "int":
        return parse_number(text, whole=True)
    return parse_number(text)


def _parse_flag(text: str) -> bool:
    if text not in ("yes", "no"):
        raise BadValue(f"{text!r} is neither yes nor no")
    return text == "yes"


def parse_range(text: str) -> tuple[int, int]:
    """`1ms..20ms`, or one time."""
    low, separator, high = text.partition("..")
    return _parse_span(low), _parse_span(high if separator else low)


def _parse_span(text: str) -> int:
    """A time, in microseconds when it has no unit."""
    return int(text) if text.isdecimal() else parse_time(text)


def fields_text(value: Any, base: Any) -> str:
    """The fields that differ from `base`, as parse_fields reads them."""
    words = []
    for short, name in short_names(type(value)).items():
        mine = getattr(value, name)
        if mine != getattr(base, name):
            words.append(f"{short}={value_text(mine)}")
    return " ".join(words)


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "same"
    if isinstance(value, tuple):
        return f"{value[0]}..{value[1]}"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(value)
