"""How values are written: typed by annotations, compact, never pickle.

A `Codec` is made of an annotation. What msgspec carries as it is takes one call in C. Three things need more:

- Sets have no order, and their iteration differs between processes. They are written sorted, so that the same
  set is the same bytes everywhere.
- Where there is no annotation (or `Any`), tuples, sets and large integers are marked, and come back as what
  they were. Only plain values are taken there: None, bool, int, float, str, bytes, list, tuple, dict, set,
  frozenset.
- Integers of more than 64 bits: the value is then written in a second form, which begins with a byte that no
  msgpack begins with.

The order of a dict's keys is part of the value: commands can see it. So it is kept, and two dicts with
another order are different bytes. A float that is not a number is kept; where there is no annotation all of
them are one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect
from msgspec.msgpack import Ext

from totempole.errors import CannotCarryError

T = TypeVar("T")
Transform = Callable[[Any], Any]

TUPLE, SET, FROZEN_SET, BIG_INT = 1, 2, 3, 4
"""Codes of msgpack extensions."""

LARGE = b"\xc1"
"""Begins the second form."""

DEPTH_MAX = 200
"""Values that are nested deeper are refused, however large the stack of a process is."""

TOO_DEEP = f"it is nested more than {DEPTH_MAX} deep, or contains itself"

ENCODE_ERRORS = (TypeError, ValueError, OverflowError, AttributeError, RecursionError, msgspec.MsgspecError)

write = msgspec.msgpack.Encoder().encode
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_NAN = math.nan


class Codec(Generic[T]):
    """Raises CannotCarryError when it is made of an annotation that cannot be carried."""

    __slots__ = (
        "_decode",
        "_has_times",
        "_may_nest",
        "_transform",
        "annotation",
        "decode_quickly",
        "is_divisible",
        "quick",
    )

    def __init__(self, annotation: Any = Any) -> None:
        self.annotation = annotation
        try:
            info = inspect.type_info(annotation)
            _refuse_custom(info, [])
            self._transform = _build(info, {})
            self._may_nest = _may_nest(info, ())
            self._has_times = _has_times(info, [])
            self._decode: Callable[[Any], T] = msgspec.msgpack.Decoder(annotation, ext_hook=_extension).decode
        except (TypeError, ValueError, NotImplementedError) as error:
            raise CannotCarryError(f"{_shown(annotation)} cannot be carried: {error}") from None
        self.decode_quickly = self._decode_shallow if self._may_nest else self._decode
        """Raises whatever msgspec raises, also for the second form: then `decode` does it."""
        self.is_divisible = _is_divisible(info)
        """Some items of a dict or a list are carried as all of them are."""
        self.quick = _quick(annotation)
        """Values of exactly these types are carried as they are: msgspec's encoder does, and no check is
        needed."""

    def encode(self, value: T) -> bytes:
        """The same bytes for the same value, in every process. Does not check it against the annotation.
        Raises CannotCarryError."""
        try:
            if self._may_nest:
                _refuse_deep(value, self._has_times)
            shown = value if self._transform is None else self._transform(value)
            try:
                return write(shown)
            except OverflowError:
                return LARGE + write(_mark_big_ints(shown, 0))
        except CannotCarryError:
            raise
        except ENCODE_ERRORS as error:
            raise CannotCarryError(_reason(error)) from None

    def _decode_shallow(self, content: bytes | memoryview) -> T:
        """How deep msgspec can go depends on the stack of the process: what is deeper than all can go is
        refused by all."""
        value = self._decode(content)
        _refuse_deep(value, self._has_times)
        return value

    def decode(self, content: bytes | memoryview) -> T:
        """Raises CannotCarryError, which says where in the value, if it does not fit the annotation."""
        try:
            return self.decode_quickly(content)
        except CannotCarryError:
            raise
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if bytes(content[:1]) != LARGE:
                raise CannotCarryError(_reason(error)) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise CannotCarryError(_reason(error)) from None
        return self._decode_large(content[1:])

    def _decode_large(self, content: bytes | memoryview) -> T:
        try:
            value: T = msgspec.convert(_decode_plain(content), self.annotation)
            if self._may_nest:
                _refuse_deep(value, self._has_times)
            return value
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise CannotCarryError(_reason(error)) from None

    def encode_checked(self, value: T) -> bytes:
        """The same, and what is read back fits the annotation."""
        content = self.encode(value)
        self.decode(content)
        return content

    def encode_exact(self, value: T) -> bytes:
        """The same, and what is read back is the same value of the same types, so that a host that reads it
        goes on exactly as one that has kept it."""
        content = self.encode(value)
        again = self.decode(content)
        try:
            difference = differs(value, again)
        except RecursionError:
            raise CannotCarryError(TOO_DEEP) from None
        if difference is not None:
            raise CannotCarryError(difference)
        return content


_NONE = type(None)
SCALARS: frozenset[type] = frozenset({int, str, bool, float, bytes, _NONE})


def _quick(annotation: Any) -> frozenset[type]:
    if annotation is Any:
        return SCALARS - {float}
    return frozenset({annotation}) if isinstance(annotation, type) and annotation in SCALARS else frozenset()


_PLAIN_AS_IT_IS = frozenset({str, bool, bytes, _NONE})


def plain(value: Any, depth: int = 0) -> Any:
    """A value without annotation, as msgpack that comes back as what it was. Raises CannotCarryError."""
    kind = type(value)
    if kind in _PLAIN_AS_IT_IS:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else _big_int(value)
    if kind is float:
        return value if value == value else _NAN
    if depth > DEPTH_MAX:
        raise CannotCarryError(TOO_DEEP)
    depth += 1
    if kind is list:
        return [plain(item, depth) for item in value]
    if kind is dict:
        return {_key(key, depth): plain(item, depth) for key, item in value.items()}
    if kind is tuple:
        return Ext(TUPLE, write([plain(item, depth) for item in value]))
    if kind is set or kind is frozenset:
        items = sorted([plain(item, depth) for item in value], key=write)
        return Ext(SET if kind is set else FROZEN_SET, write(items))
    raise CannotCarryError(
        f"{_a(kind)} without an annotation cannot be carried: annotate it, or use plain values"
    )


def _a(kind: type) -> str:
    name = kind.__qualname__
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


def _key(key: Any, depth: int) -> Any:
    """Ext objects cannot be compared, and none is the key of a dict: a tuple as a key needs no mark, an array
    there is read as a tuple."""
    kind = type(key)
    if kind is tuple:
        return tuple([_key(item, depth) for item in key])
    if kind in _PLAIN_AS_IT_IS or (kind is int and _INT_MIN <= key <= _INT_MAX) or kind is float:
        return key
    raise CannotCarryError(f"{_a(kind)} as the key of a dict cannot be carried without an annotation")


def _big_int(value: int) -> Ext:
    return Ext(BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _extension(code: int, data: memoryview) -> Any:
    if code == BIG_INT:
        return int.from_bytes(data, "big", signed=True)
    if code not in (TUPLE, SET, FROZEN_SET):
        raise ValueError(f"extension {code} is unknown")
    items = _decode_plain(data)
    if code == TUPLE:
        return tuple(items)
    return set(items) if code == SET else frozenset(items)


_decode_plain = msgspec.msgpack.Decoder(ext_hook=_extension).decode


def _mark_big_ints(value: Any, depth: int) -> Any:
    """The second form. What it is read with knows the annotation: fields may be a dict."""
    kind = type(value)
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else _big_int(value)
    if depth > DEPTH_MAX:
        raise CannotCarryError(TOO_DEEP)
    depth += 1
    if kind is dict:
        return {key: _mark_big_ints(item, depth) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mark_big_ints(item, depth) for item in value]
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        return _mark_big_ints(_fields_transform(inspect.type_info(kind), {})(value), depth)
    return value


# What an annotation needs

HAS_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)


def _children(info: inspect.Type) -> list[inspect.Type]:
    match info:
        case inspect.CollectionType(item_type=item):
            return [item]
        case inspect.TupleType(item_types=items):
            return list(items)
        case inspect.DictType(key_type=key, value_type=value):
            return [key, value]
        case inspect.UnionType(types=types):
            return list(types)
        case inspect.Metadata(type=inner):
            return [inner]
    return [field.type for field in info.fields] if isinstance(info, HAS_FIELDS) else []


def _refuse_custom(info: inspect.Type, seen: list[int]) -> None:
    if id(info) in seen:
        return
    seen.append(id(info))
    if isinstance(info, inspect.CustomType | inspect.ExtType | inspect.RawType):
        cls = getattr(info, "cls", type(info))
        raise CannotCarryError(f"{_shown(cls)} cannot be carried: make it a dataclass or a msgspec.Struct")
    for child in _children(info):
        _refuse_custom(child, seen)


def _is_divisible(info: inspect.Type) -> bool:
    """Whether an annotation says nothing of a dict or a list as a whole, as a length or a union would."""
    if isinstance(info, inspect.DictType | inspect.ListType):
        return info.min_length is None and info.max_length is None
    return isinstance(info, inspect.AnyType)


def _may_nest(info: inspect.Type, above: tuple[int, ...]) -> bool:
    """Whether its values may be nested to any depth."""
    if id(info) in above or isinstance(info, inspect.AnyType):
        return True
    return any(_may_nest(child, (*above, id(info))) for child in _children(info))


def _refuse_deep(value: Any, has_times: bool, left: int = DEPTH_MAX) -> None:
    """`has_times`: the annotation has instants. Otherwise msgspec makes them where it says nothing."""
    kind = type(value)
    if kind in SCALARS:
        return
    if left < 0:
        raise CannotCarryError(TOO_DEEP)
    if kind.__module__ == "datetime" and not has_times:
        raise CannotCarryError(f"{_a(kind)} without an annotation cannot be carried")
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif (names := _field_names(value)) is not None:
        inner = [getattr(value, name) for name in names if hasattr(value, name)]
    for each in inner:
        if type(each) not in SCALARS:
            _refuse_deep(each, has_times, left - 1)


def _has_times(info: inspect.Type, seen: list[int]) -> bool:
    if id(info) in seen:
        return False
    seen.append(id(info))
    is_time = isinstance(
        info, inspect.DateTimeType | inspect.DateType | inspect.TimeType | inspect.TimeDeltaType
    )
    return is_time or any(_has_times(child, seen) for child in _children(info))


def _needs_transform(info: inspect.Type, seen: list[int]) -> bool:
    """Whether a set or an unknown value may be in it."""
    if id(info) in seen:
        return False
    seen.append(id(info))
    if isinstance(info, inspect.SetType | inspect.FrozenSetType | inspect.AnyType):
        return True
    return any(_needs_transform(child, seen) for child in _children(info))


def _build(info: inspect.Type, made: dict[int, Transform]) -> Transform | None:
    """None: msgspec does it."""
    if not _needs_transform(info, []):
        return None
    if id(info) in made:
        return lambda value: made[id(info)](value)
    made[id(info)] = _identity
    transform = _transform_for(info, made)
    made[id(info)] = transform
    return transform


def _identity(value: Any) -> Any:
    return value


def _transform_for(info: inspect.Type, made: dict[int, Transform]) -> Transform:
    match info:
        case inspect.AnyType():
            return plain
        case inspect.SetType(item_type=item) | inspect.FrozenSetType(item_type=item):
            inner = _build(item, made) or _identity
            return lambda value: sorted([inner(each) for each in value], key=_sort_key)
        case inspect.CollectionType(item_type=item):
            each_item = _build(item, made) or _identity
            return lambda value: [each_item(each) for each in value]
        case inspect.TupleType(item_types=items):
            parts = [_build(item, made) or _identity for item in items]
            return lambda value: [part(each) for part, each in zip(parts, value, strict=True)]
        case inspect.DictType(key_type=key, value_type=content):
            of_key, of_value = _key_transform(key), _build(content, made) or _identity
            return lambda value: {of_key(name): of_value(each) for name, each in value.items()}
        case inspect.UnionType(types=types):
            return _union(types, made)
        case inspect.Metadata(type=inner_type):
            return _build(inner_type, made) or _identity
    return _fields_transform(info, made)


def _sort_key(item: Any) -> bytes:
    try:
        return write(item)
    except OverflowError:
        return write(_mark_big_ints(item, 0))


def _key_transform(info: inspect.Type) -> Transform:
    if isinstance(info, inspect.AnyType):
        return lambda key: _key(key, 0)
    if _needs_transform(info, []):
        raise CannotCarryError("a dict whose keys have sets in them cannot be carried")
    return _identity


def _union(types: tuple[inspect.Type, ...], made: dict[int, Transform]) -> Transform:
    """By what the value is: unions that msgspec takes are told apart by it."""
    by_class: dict[type, Transform] = {}
    for each in types:
        for cls in _classes_of(each):
            by_class[cls] = _build(each, made) or _identity

    def transform(value: Any) -> Any:
        for cls in type(value).__mro__:
            if cls in by_class:
                return by_class[cls](value)
        return value

    return transform


def _classes_of(info: inspect.Type) -> tuple[type, ...]:
    match info:
        case inspect.SetType():
            return (set,)
        case inspect.FrozenSetType():
            return (frozenset,)
        case inspect.DictType() | inspect.TypedDictType():
            return (dict,)
        case inspect.ListType():
            return (list,)
        case inspect.VarTupleType() | inspect.TupleType():
            return (tuple,)
        case inspect.StructType(cls=cls) | inspect.DataclassType(cls=cls) | inspect.NamedTupleType(cls=cls):
            return (cls,)
        case inspect.Metadata(type=inner):
            return _classes_of(inner)
    return ()


def _fields_transform(info: inspect.Type, made: dict[int, Transform]) -> Transform:
    """As msgspec would write it, with each field transformed."""
    if not isinstance(info, HAS_FIELDS):
        return _identity
    fields = [(field.name, field.encode_name, _build(field.type, made) or _identity) for field in info.fields]
    if isinstance(info, inspect.TypedDictType):
        by_name = {name: transform for name, _, transform in fields}
        return lambda value: {name: by_name.get(name, _identity)(each) for name, each in value.items()}
    if isinstance(info, inspect.NamedTupleType):
        return lambda value: [each[2](item) for each, item in zip(fields, value, strict=True)]
    cls = getattr(info.cls, "__origin__", info.cls)

    def to_dict(value: Any) -> dict[Any, Any]:
        if not isinstance(value, cls):
            raise CannotCarryError(f"{_a(type(value))} where {_a(cls)} should be")
        return {written: transform(getattr(value, name)) for name, written, transform in fields}

    if not isinstance(info, inspect.StructType):
        return to_dict
    tag, tag_field = info.tag, info.tag_field
    if info.array_like:
        return lambda value: [*([] if tag is None else [tag]), *to_dict(value).values()]
    return lambda value: to_dict(value) if tag is None else {tag_field: tag, **to_dict(value)}


# Whether two values are the same, types included


def differs(one: Any, other: Any, where: str = "") -> str | None:
    """Says where and how."""
    place = f"{where}: " if where else ""
    if type(one) is not type(other):
        return f"{place}{_a(type(one))} would come back as {_a(type(other))}"
    if isinstance(one, dict):
        if list(one) != list(other) or list(map(type, one)) != list(map(type, other)):
            return f"{place}keys would come back as others"
        return _first_difference(one.items(), other.values(), where, "[{!r}]")
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return f"{place}{len(one)} items would come back as {len(other)}"
        return _first_difference(enumerate(one), other, where, "[{}]")
    names = _field_names(one)
    if names is not None:
        fields = [(name, getattr(one, name)) for name in names]
        return _first_difference(fields, [getattr(other, name) for name in names], where, ".{}")
    if one == other or (isinstance(one, float) and one != one and other != other):
        return None
    return f"{place}{one!r:.80} would come back as {other!r:.80}"


def _first_difference(
    ones: Iterable[tuple[Any, Any]], others: Iterable[Any], where: str, style: str
) -> str | None:
    """The names of places are made where something is different, or larger: states have many items."""
    for (name, one), other in zip(ones, others, strict=True):
        if type(one) is type(other) and type(one) in SCALARS and one == other:
            continue
        found = differs(one, other, where + style.format(name))
        if found is not None:
            return found
    return None


def _field_names(value: Any) -> list[str] | None:
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    return None


def _shown(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or str(annotation)


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return TOO_DEEP
    return str(error)
