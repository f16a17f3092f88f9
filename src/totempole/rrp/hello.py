"""Hello: what a processor says on each network for itself, so that an idle network is known to work.

RRP's monitors never probe: they watch tokens and messages. An idle ring's token rests, only neighbours on the
ring see each other's tokens, and a network that is out of service carries neither. So each processor says now
and then, on every network, in a datagram as short as a token and in one as long as the network takes, which
network that is, and what its settings are. All of one round have the same counter.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from totempole.errors import CodecError
from totempole.rrp.config import NETWORKS_MAX, NETWORKS_MIN
from totempole.types import ProcessorId
from totempole.wire.codec import Format, Head, Written, accept, demand, fixed, verify
from totempole.wire.layout import DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, NUMBER_MAX

HELLO_TYPE = 32

_HELLO = Struct(">QBBBBIIIH")


class Ways(NamedTuple):
    """Settings of a ring on several networks, which all its processors should have in common."""

    networks: int
    copies: int
    """How many networks carry each message."""
    tokens: int
    """1 if tokens go on every network in service."""
    names: int
    """A digest of the networks' names."""
    capacities: int
    """A digest of their capacities."""


class Hello(NamedTuple):
    sender: ProcessorId
    incarnation: int
    counter: int
    network: int
    ways: Ways
    segment_bytes: int
    """The largest datagram that the sender can take on this network."""
    padding: int
    """Bytes that follow; none in a short one."""


def _is_sound(hello: Hello) -> bool:
    ways = hello.ways
    return (
        0 < hello.counter <= NUMBER_MAX
        and NETWORKS_MIN <= ways.networks <= NETWORKS_MAX
        and hello.network < ways.networks
        and 1 <= ways.copies <= ways.networks
        and ways.tokens in (0, 1)
        and DATAGRAM_BYTES_MIN <= hello.segment_bytes <= DATAGRAM_BYTES_MAX
    )


def _write(hello: Hello) -> Written:
    demand(_is_sound(hello), hello)
    networks, copies, tokens, names, capacities = hello.ways
    fields = _HELLO.pack(
        hello.counter,
        hello.network,
        networks,
        copies,
        tokens,
        names,
        capacities,
        hello.segment_bytes,
        hello.padding,
    )
    return 0, fields + bytes(hello.padding), b""


def _read(data: bytes, start: int, head: Head) -> Hello:
    flags, sender, incarnation, check = head
    counter, network, networks, copies, tokens, names, capacities, size, padding = fixed(_HELLO, data, start)
    stop = start + _HELLO.size + padding
    verify(data, start, stop, stop, check)
    if data.count(0, start + _HELLO.size, stop) != padding:
        raise CodecError("malformed")
    ways = Ways(networks, copies, tokens, names, capacities)
    hello = Hello(sender, incarnation, counter, network, ways, size, padding)
    accept(flags == 0 and _is_sound(hello))
    return hello


FORMATS = (Format(HELLO_TYPE, Hello, _write, _read),)
"""What this layer adds to the packets of the engine above it."""
