"""What `read` and `peek` do with a method and its result."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import NoneType
from typing import Any, TypeVar

from totempole.errors import ObjectError
from totempole.objects.commands import SINCE

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_UNCHANGING = frozenset({NoneType, bool, int, float, complex, str, bytes})


def check_reader(method: F) -> F:
    """Raises ObjectError if the method is a command: only the order may change the object."""
    if getattr(method, SINCE, None) is not None:
        name = getattr(method, "__qualname__", method)
        raise ObjectError(f"{name} is a command, which may change the object: use call or submit")
    return method


def detached(value: R) -> R:
    """The value, without a part of the object's state in it: a caller may change what it was given."""
    if type(value) in _UNCHANGING:
        return value
    try:
        return deepcopy(value)
    except Exception as error:
        raise ObjectError(
            f"what was read is a {type(value).__name__}, which cannot be copied ({error}): have the method "
            "return plain values"
        ) from error
