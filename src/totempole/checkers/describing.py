"""What an object holds, as text that two processes can compare: it has no addresses and no hash order in
it."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any

from totempole.checkers.class_model import attributes_of, hides_its_content

TEXT_MAX = 1_000
"""Of one attribute. What is longer ends with the digest of the whole."""
DEPTH_MAX = 30


def described(value: Any) -> str:
    """The value as text, with its types. Equal texts: the processes cannot tell the values apart, but for the
    order of sets, which is nobody's to rely on."""
    text = _text(value, ())
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}… ({len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:16]})"


def described_attributes(value: Any) -> dict[str, str]:
    """Of an object, by name; a value that has no attributes is described as a whole."""
    attributes = None if isinstance(value, dict | list | set) else attributes_of(value)
    if attributes is None:
        return {"": described(value)}
    return {name: described(held) for name, held in attributes.items()}


def _text(value: Any, above: tuple[int, ...]) -> str:
    if value is None or (
        isinstance(value, int | float | complex | str | bytes) and not isinstance(value, Enum)
    ):
        kind = type(value)
        plain = kind in (type(None), bool, int, float, complex, str, bytes)
        return repr(value) if plain else f"{kind.__qualname__}({value!r})"
    if id(value) in above or len(above) > DEPTH_MAX:
        return "…"
    inside = (*above, id(value))
    name = type(value).__qualname__
    prefix = "" if type(value) in (dict, list, tuple, set) else name
    if isinstance(value, Enum):
        return f"{name}.{value.name}"
    if isinstance(value, dict):
        return (
            prefix
            + "{"
            + ", ".join(f"{_text(key, inside)}: {_text(held, inside)}" for key, held in value.items())
            + "}"
        )
    if isinstance(value, set | frozenset):
        return prefix + "{" + ", ".join(sorted(_text(each, inside) for each in value)) + "}"
    if isinstance(value, tuple):
        return prefix + "(" + ", ".join(_text(each, inside) for each in value) + ")"
    if isinstance(value, list) or type(value).__name__ == "deque":
        return prefix + "[" + ", ".join(_text(each, inside) for each in value) + "]"
    if isinstance(value, type) or callable(value):
        return f"<{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', name)}>"
    if hides_its_content(type(value)):
        reduced = value.__reduce__()
        return f"{name}{reduced if isinstance(reduced, str) else _text(reduced[1:], inside)}"
    attributes = attributes_of(value)
    if attributes is not None:
        return (
            f"{name}(" + ", ".join(f"{key}={_text(held, inside)}" for key, held in attributes.items()) + ")"
        )
    return f"{name}({value})"
