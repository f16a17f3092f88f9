"""Many messages in one ring packet: the ring's cost is per packet, an application's traffic is per message.
And the names of the groups that they are for.

A body is a count, the messages' lengths, and their bytes back to back. Lengths that are all the same are
written once. Packing and unpacking are a few calls of C per packet, and a receiver that only counts messages
never cuts them out.

    kind u8, count u32; UNIFORM: length u32, VARIED: count lengths u32; the bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct, pack_into, unpack_from
from typing import NamedTuple, overload

from totempole.errors import CodecError, ConfigurationError
from totempole.types import Payload

_HEAD = Struct(">BII")
_VARIED_HEAD = Struct(">BI")
_UNIFORM, _VARIED = 1, 2
LENGTH_BYTES = 4

OVERHEAD_MAX = _HEAD.size
"""What packing adds to a single message."""

MESSAGES_MAX = 65_536
"""Messages of one body. Empty ones take no room, so that room alone does not bound them."""

LAYOUTS_MAX = 256
LAYOUT_MESSAGES_MAX = 1024
"""Layouts are remembered, each as large as it has messages; this many are cut out at once."""

NAME_BYTES_MOST = 255
"""What the formats have room for in a group's name."""
NAMES_CACHED_MAX = 1024
INFO_BYTES_MAX = 512
"""What a member may say of itself to the others of a group."""

MESSAGE_WEIGHT = 64
"""What a message costs beside its bytes. Queues are bounded by weight, for empty messages weigh too."""


def packed_bytes(count: int, size: int) -> int:
    """No body of so many messages with so many bytes together is longer."""
    return _HEAD.size + LENGTH_BYTES * count + size


def weight(payloads: Sequence[bytes]) -> int:
    return sum(map(len, payloads)) + MESSAGE_WEIGHT * len(payloads)


def pack(payloads: Sequence[bytes]) -> bytes:
    """The body that carries these messages, of which there is at least one."""
    lengths = list(map(len, payloads))
    assert lengths, "a body has at least one message"
    if lengths.count(lengths[0]) == len(lengths):
        return b"".join((_HEAD.pack(_UNIFORM, len(lengths), lengths[0]), *payloads))
    head = bytearray(_VARIED_HEAD.size + LENGTH_BYTES * len(lengths))
    _VARIED_HEAD.pack_into(head, 0, _VARIED, len(lengths))
    pack_into(f">{len(lengths)}I", head, _VARIED_HEAD.size, *lengths)
    return b"".join((head, *payloads))


def pack_joined(count: int, length: int, lengths: bytes | None, contents: Sequence[Payload]) -> bytes:
    """The same for messages that are back to back already, in one piece or several: each has `length` bytes,
    or `lengths` has the length of each, u32."""
    if lengths is None:
        return b"".join((_HEAD.pack(_UNIFORM, count, length), *contents))
    return b"".join((_VARIED_HEAD.pack(_VARIED, count), lengths, *contents))


class Batch(Sequence[bytes]):
    """The messages of one body, in their order. Each is cut out when it is asked for."""

    __slots__ = ("_count", "_length", "_starts", "body")

    def __init__(self, body: Payload) -> None:
        """A body that is not one raises CodecError."""
        if len(body) < _HEAD.size:
            raise CodecError("batch truncated")
        kind, count, length = _HEAD.unpack_from(body)
        self._count: int = count
        self._length: int = length
        self.body = body
        self._starts: list[int] | None = None
        if not 1 <= self._count <= MESSAGES_MAX:
            raise CodecError("batch malformed")
        if kind == _UNIFORM:
            stop = _HEAD.size + self._count * self._length
        elif kind == _VARIED:
            stop = self._index_lengths()
        else:
            raise CodecError("batch malformed")
        if stop != len(body):
            raise CodecError("batch malformed")

    def _index_lengths(self) -> int:
        first = _VARIED_HEAD.size + LENGTH_BYTES * self._count
        if first > len(self.body):
            raise CodecError("batch truncated")
        lengths = unpack_from(f">{self._count}I", self.body, _VARIED_HEAD.size)
        self._starts = list(accumulate(lengths, initial=first))
        return self._starts[-1]

    @property
    def lengths(self) -> Sequence[int]:
        if self._starts is None:
            return [self._length] * self._count
        return [stop - start for start, stop in pairwise(self._starts)]

    @property
    def size(self) -> int:
        """Bytes of all messages together."""
        if self._starts is None:
            return self._count * self._length
        return self._starts[-1] - self._starts[0]

    @property
    def weight(self) -> int:
        return self.size + MESSAGE_WEIGHT * self._count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        if self._starts is None:
            return self._iterate_uniform()
        body, starts = self.body, self._starts
        return iter([bytes(body[start:stop]) for start, stop in pairwise(starts)])

    def _iterate_uniform(self) -> Iterator[bytes]:
        body, length = self.body, self._length
        for first in range(0, self._count, LAYOUT_MESSAGES_MAX):
            count = min(LAYOUT_MESSAGES_MAX, self._count - first)
            yield from _uniform(count, length).unpack_from(body, _HEAD.size + first * length)

    def views(self) -> Iterator[memoryview]:
        """As iterating, without a copy of each. A view keeps the whole body."""
        view, length = memoryview(self.body), self._length
        if self._starts is not None:
            return iter([view[start:stop] for start, stop in pairwise(self._starts)])
        starts = [_HEAD.size + place * length for place in range(self._count)]
        return iter([view[start : start + length] for start in starts])

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._count)[index]
        if self._starts is None:
            start = _HEAD.size + place * self._length
            return bytes(self.body[start : start + self._length])
        return bytes(self.body[self._starts[place] : self._starts[place + 1]])


class BatchLayout(NamedTuple):
    """Where a body's messages are, for those who take them as columns."""

    count: int  # type: ignore[assignment]
    length: int
    """Of each message, if they are all of one length."""
    lengths: memoryview | None
    """Otherwise: of each, u32."""
    contents: memoryview
    """Of all messages, back to back."""


def layout_of(body: Payload) -> BatchLayout:
    """A body that is not one raises CodecError."""
    if len(body) < _HEAD.size:
        raise CodecError("batch truncated")
    kind, count, length = _HEAD.unpack_from(body)
    view = memoryview(body)
    first = _HEAD.size if kind == _UNIFORM else _VARIED_HEAD.size + LENGTH_BYTES * count
    if kind not in (_UNIFORM, _VARIED) or not 1 <= count <= MESSAGES_MAX or first > len(body):
        raise CodecError("batch malformed")
    if kind == _UNIFORM:
        layout, size = BatchLayout(count, length, None, view[first:]), count * length
    else:
        layout = BatchLayout(count, 0, view[_VARIED_HEAD.size : first], view[first:])
        size = sum(unpack_from(f">{count}I", body, _VARIED_HEAD.size))
    if len(layout.contents) != size:
        raise CodecError("batch malformed")
    return layout


@lru_cache(LAYOUTS_MAX)
def _uniform(count: int, length: int) -> Struct:
    return Struct(f"{length}s" * count)


# The names of groups, each with its length u8


@lru_cache(NAMES_CACHED_MAX)
def pack_names(names: tuple[str, ...]) -> bytes:
    """Raises ConfigurationError for a name that cannot be written. What a group may be called is the layer's
    to say."""
    parts = []
    for name in names:
        text = _encoded(name)
        parts += [bytes((len(text),)), text]
    return b"".join(parts)


def _encoded(name: str) -> bytes:
    try:
        text = name.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"group name {name[:40]!r}: it cannot be written as UTF-8") from None
    if len(text) > NAME_BYTES_MOST:
        raise ConfigurationError(
            f"group name {name[:40]!r} has {len(text)} bytes: give at most {NAME_BYTES_MOST}"
        )
    return text


@lru_cache(NAMES_CACHED_MAX)
def unpack_names(data: bytes) -> tuple[str, ...]:
    names = []
    at = 0
    while at < len(data):
        stop = at + 1 + data[at]
        if stop > len(data):
            raise CodecError("group name truncated")
        try:
            names.append(data[at + 1 : stop].decode())
        except UnicodeDecodeError:
            raise CodecError("group name malformed") from None
        at = stop
    return tuple(names)
