"""How the state of an object is written: for snapshots, for digests, and for copies.

A class may have its own way: a method `snapshot() -> bytes`, and a class method `restore(content: bytes)`.
The bytes must be the same at every host that has applied the same commands. Every other class is written
attribute by attribute, those with an annotation in the class body (a dataclass, a `msgspec.Struct`) typed,
others as plain values: see `codec`. What cannot be carried is refused with the attribute's name.

An attribute that two places share is written twice: a host that has read it back has two. Attributes are all
of the state: what a closure or a global holds is none of it. `__init__` is not called when a state is read.
"""

from __future__ import annotations

import inspect
import struct
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, Generic, TypeVar, get_type_hints

import msgspec

from totempole.errors import CannotCarryError, ObjectError
from totempole.objects.codec import Codec, differs
from totempole.objects.commands import SINCE
from totempole.objects.digests import DIGEST_BYTES
from totempole.objects.pieces import Measured, Piece

T = TypeVar("T")

PY_TPFLAGS_HEAPTYPE = 1 << 9
"""Of a class that was made by a class statement."""

_PART = struct.Struct("<HQ")
"""How long an attribute's name is, and its content."""


class StateCodec(Generic[T]):
    """Raises ObjectError when it is made of a class whose annotations cannot be carried."""

    def __init__(self, cls: type[T]) -> None:
        self.cls = cls
        self._codecs: dict[str, Codec[Any]] = {}
        self._any: Codec[Any] = Codec()
        _refuse_builtin(cls)
        own = [name for name in ("snapshot", "restore") if _own(cls, name) is not None]
        if len(own) == 1:
            raise ObjectError(
                f"{cls.__name__} has {own[0]}(): give it both snapshot() and restore(), or none"
            )
        self.is_own = bool(own)
        """The class writes itself."""
        if self.is_own:
            if not inspect.ismethod(cls.restore):  # type: ignore[attr-defined]
                raise ObjectError(f"{cls.__name__}.restore must be a class method: it makes the object")
            return
        for name, annotation in _annotations(cls).items():
            try:
                self._codecs[name] = Codec(annotation)
            except CannotCarryError as error:
                raise CannotCarryError(f"{cls.__name__}, attribute {name!r}: {error}") from None

    def refuse_new(self, state: T) -> None:
        """Raises ObjectError if a new state of this class cannot be carried."""
        self.encode_exact(state)
        if self.is_own:
            return
        missing = self._codecs.keys() - attributes(state).keys()
        for name in sorted(missing):
            if isinstance(getattr(self.cls, name, None), list | dict | set | bytearray):
                raise CannotCarryError(
                    f"{self.cls.__name__}, attribute {name!r}: it belongs to the class, and all would share"
                    " it: set it in __init__, or annotate it as a ClassVar"
                )

    def encode(self, state: T) -> bytes:
        """Raises CannotCarryError, with the attribute's name."""
        if self.is_own:
            return self._encode_own(state)
        return self._join(state, Codec.encode)

    def encode_exact(self, state: T) -> bytes:
        """The same; and what is read back goes on exactly as the original. Costs a decoding."""
        if not self.is_own:
            return self._join(state, Codec.encode_exact)
        content = self._encode_own(state)
        if self._encode_own(self.decode(content)) != content:
            raise CannotCarryError(
                f"{self.cls.__name__}.restore(snapshot()) is not the same: its snapshot() gives other bytes"
            )
        return content

    def pieces(self, state: T, before: Callable[[int], bytes], *, is_exact: bool = False) -> Iterator[Piece]:
        """What `encode` gives, or `encode_exact`, piece by piece: a large attribute is never in memory a
        second time. Before them comes what `before` makes of their size. Empty ones come first, while the
        state is measured and compared: whoever writes them may rest between any two. Raises as those do.
        """
        if self.is_own:
            content = self.encode_exact(state) if is_exact else self.encode(state)
            yield before(len(content))
            yield content
            return
        parts: list[tuple[bytes, Measured]] = []
        for name, value in sorted(attributes(state).items()):
            measured = Measured(self._codecs.get(name, self._any), value)
            try:
                yield from measured.measure(is_exact)
            except CannotCarryError as error:
                raise CannotCarryError(f"{self.cls.__name__}, attribute {name!r}: {error}") from None
            written = name.encode()
            parts.append((_PART.pack(len(written), measured.size) + written, measured))
        yield before(sum([len(head) + measured.size for head, measured in parts]))
        for head, measured in parts:
            yield head
            yield from measured

    def decode(self, content: bytes | memoryview) -> T:
        """Raises ObjectError if it is no state of this class."""
        if self.is_own:
            return self._decode_own(content)
        values = {}
        for name, part in _parts(content):
            try:
                values[name] = self._codecs.get(name, self._any).decode(part)
            except CannotCarryError as error:
                raise CannotCarryError(f"{self.cls.__name__}, attribute {name!r}: {error}") from None
        return self._made(values)

    def digest(self, state: T) -> tuple[bytes, int]:
        """Of the state, and how many bytes it has cost. A class that writes itself may have a `digest()`."""
        own = _own(self.cls, "digest") if self.is_own else None
        if own is None:
            content = self.encode(state)
            return blake2b(content, digest_size=DIGEST_BYTES).digest(), len(content)
        try:
            return blake2b(bytes(own(state)), digest_size=DIGEST_BYTES).digest(), 0
        except Exception as error:
            text = f"{self.cls.__name__}.digest() raised {type(error).__name__}: {error}"
            raise CannotCarryError(text) from error

    def copy(self, state: T) -> T:
        return self.decode(self.encode(state))

    def _made(self, values: dict[str, Any]) -> T:
        try:
            if issubclass(self.cls, msgspec.Struct):
                return self.cls(**values)
            state = self.cls.__new__(self.cls)
            for name, value in values.items():
                object.__setattr__(state, name, value)
            return state
        except (TypeError, ValueError, AttributeError) as error:
            raise ObjectError(f"{self.cls.__name__} cannot be made of its stored state: {error}") from None

    def _join(self, state: T, encode: Callable[[Codec[Any], Any], bytes]) -> bytes:
        content = bytearray()
        for name, value in sorted(attributes(state).items()):
            try:
                part = encode(self._codecs.get(name, self._any), value)
            except CannotCarryError as error:
                raise CannotCarryError(f"{self.cls.__name__}, attribute {name!r}: {error}") from None
            written = name.encode()
            content += _PART.pack(len(written), len(part))
            content += written
            content += part
        return bytes(content)

    def _encode_own(self, state: T) -> bytes:
        try:
            content = state.snapshot()  # type: ignore[attr-defined]
        except Exception as error:
            text = f"{self.cls.__name__}.snapshot() raised {type(error).__name__}: {error}"
            raise CannotCarryError(text) from error
        if not isinstance(content, bytes):
            raise CannotCarryError(
                f"{self.cls.__name__}.snapshot() gave a {type(content).__name__}: give bytes"
            )
        return content

    def _decode_own(self, content: bytes | memoryview) -> T:
        try:
            state = self.cls.restore(bytes(content))  # type: ignore[attr-defined]
        except Exception as error:
            text = f"{self.cls.__name__}.restore() raised {type(error).__name__}: {error}"
            raise ObjectError(text) from error
        if not isinstance(state, self.cls):
            raise ObjectError(f"{self.cls.__name__}.restore() gave a {type(state).__name__}")
        return state


def _refuse_builtin(cls: type) -> None:
    """What a dict holds is none of its attributes: it would be lost."""
    if _own(cls, "snapshot") is not None:
        return
    for base in cls.__mro__:
        is_of_msgspec = issubclass(msgspec.Struct, base)
        is_ours = is_of_msgspec or base is Generic or base.__flags__ & PY_TPFLAGS_HEAPTYPE
        if not is_ours or base in (deque, OrderedDict, defaultdict):
            raise ObjectError(
                f"{cls.__name__} is a {base.__name__}: what that holds would be lost. Let it have one as an"
                " attribute, or write snapshot() and restore()"
            )


def _own(cls: type, name: str) -> Callable[..., Any] | None:
    """A method of the class that is not one of its commands."""
    method = getattr(cls, name, None)
    return method if callable(method) and not hasattr(method, SINCE) else None


def attributes(state: Any) -> dict[str, Any]:
    """By name: fields of a Struct, slots and the instance's own dict."""
    if isinstance(state, msgspec.Struct):
        return {name: getattr(state, name) for name in state.__struct_fields__}
    found: dict[str, Any] = {}
    for cls in type(state).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                mangled = f"_{cls.__name__.lstrip('_')}{name}" if _is_private(name) else name
                if hasattr(state, mangled):
                    found[mangled] = getattr(state, mangled)
    found.update(getattr(state, "__dict__", {}))
    found.pop("__orig_class__", None)  # What typing leaves behind: Box[int]()
    return found


def first_difference(one: Any, other: Any) -> str | None:
    """Between two states of a class that does not write itself: where, and how."""
    left, right = attributes(one), attributes(other)
    if left.keys() != right.keys():
        return f"attributes {sorted(left.keys() ^ right.keys())}"
    return next((found for name in left if (found := differs(left[name], right[name], name))), None)


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _annotations(cls: type) -> dict[str, Any]:
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise ObjectError(f"{cls.__name__}: its annotations cannot be read: {error}") from None
    return {name: annotation for name, annotation in hints.items() if not _is_of_class(annotation)}


def _is_of_class(annotation: Any) -> bool:
    return "ClassVar" in str(getattr(annotation, "__origin__", annotation))


def _parts(content: bytes | memoryview) -> list[tuple[str, memoryview]]:
    view = memoryview(content)
    parts, at = [], 0
    try:
        while at < len(view):
            name_bytes, part_bytes = _PART.unpack_from(view, at)
            at += _PART.size
            name = bytes(view[at : at + name_bytes]).decode()
            at += name_bytes
            if at + part_bytes > len(view):
                raise ObjectError("the stored state is cut short")
            parts.append((name, view[at : at + part_bytes]))
            at += part_bytes
    except (struct.error, UnicodeDecodeError):
        raise ObjectError("the stored state cannot be read") from None
    return parts
