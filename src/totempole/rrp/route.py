"""On which networks a packet goes, and how the packet says so itself.

A route is a byte of the packet's header: a bit for each network, and `WHOLE` if each of them carries all of
the packet. Otherwise the packet is striped: it is cut into as many ranges as it has networks, in proportion
to their capacities, and each range goes on `copies` of them. So passive replication (RRP §6) fills unequal
networks evenly, and a receiver knows what each network should have brought, and what it lost.

RRP sends whole packets round robin. Where a packet is too short to be striped, it goes on the networks that
have had the least of their capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from totempole.types import ByteRange
from totempole.wire.layout import ROUTE_AT

WHOLE = 0x80
"""The bit of a route that says: each network carries all of it."""

STRIPE_SEGMENTS = 2
"""A packet is striped if each network gets so many segments at least."""

UNIT = 256
STRIPE_UNITS = 64
"""Long packets are cut at multiples of a unit, so that their stripes begin, and mostly end, at few places,
whose layouts are remembered. Stripes are so long then that a receiver that expects them to be cut elsewhere,
as versions before did, misses too little of any to find a network sick."""

Ranges = tuple[ByteRange, ...]
"""No ranges: all of the packet."""


def route_of(data: bytes) -> int:
    """The route in an encoded packet's header."""
    return data[ROUTE_AT]


def sound_route(route: int, networks: int, copies: int) -> int:
    """The route of a packet from another processor; 0 if it makes no sense on these networks."""
    used = route & ~WHOLE
    sound = not used & ~networks and (route & WHOLE or used.bit_count() > copies)
    return route if sound else 0


@lru_cache(512)
def networks_in(route: int) -> tuple[int, ...]:
    return tuple(number for number in range(7) if route >> number & 1)


def bits_of(networks: Sequence[int]) -> int:
    return sum(1 << number for number in networks)


@lru_cache(1024)
def stripes(
    total: int, route: int, capacities: tuple[int, ...], copies: int
) -> tuple[tuple[int, Ranges], ...]:
    """What each network of the route carries of a packet of `total` bytes."""
    if route & WHOLE:
        return _whole(route)
    units = total // UNIT * UNIT
    if units * min(capacities) < STRIPE_UNITS * UNIT * sum(capacities):
        return _stripes(total, 1, route, capacities, copies)
    return tuple(
        [
            (number, tuple([(start, total if stop == units else stop) for start, stop in ranges]))
            for number, ranges in _stripes(units, UNIT, route, capacities, copies)
        ]
    )


@lru_cache(512)
def _whole(route: int) -> tuple[tuple[int, Ranges], ...]:
    return tuple((number, ()) for number in networks_in(route))


@lru_cache(1024)
def _stripes(
    total: int, unit: int, route: int, capacities: tuple[int, ...], copies: int
) -> tuple[tuple[int, Ranges], ...]:
    """Each part but the last ends at the multiple of `unit` that is next to its share."""
    networks = networks_in(route)
    count = len(networks)
    assert 0 < copies < count, "a packet is striped over more networks than carry each of its bytes"
    sum_, bounds = 0, [0]
    whole = sum(capacities[number] for number in networks)
    for number in networks:
        sum_ += capacities[number]
        bounds.append((total * sum_ // whole + unit // 2) // unit * unit)
    parts = [(bounds[place], bounds[place + 1]) for place in range(count)]
    carried = []
    for place, number in enumerate(networks):
        mine = sorted(parts[(place - back) % count] for back in range(copies))
        carried.append((number, _merged(mine)))
    return tuple(carried)


def _merged(parts: list[ByteRange]) -> Ranges:
    """Neighbours as one, so that each is one burst."""
    merged: list[ByteRange] = []
    for start, stop in parts:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        elif start < stop:
            merged.append((start, stop))
    return tuple(merged)


@lru_cache(1024)
def carried_bytes(
    total: int, route: int, capacities: tuple[int, ...], copies: int
) -> tuple[tuple[int, int], ...]:
    """How many bytes of a packet each network of the route carries; those that carry none are left out."""
    carried = stripes(total, route, capacities, copies)
    bytes_ = [sum([stop - start for start, stop in ranges]) for _, ranges in carried]
    return tuple([(number, sent) for (number, _), sent in zip(carried, bytes_, strict=True) if sent])


class Spread:
    """Chooses the networks of one sender's messages.

    `_due` is how much of its own time each network has had: bytes by capacity. Whoever has had least is next.
    """

    __slots__ = ("_capacities", "_copies", "_due", "_stripe_bytes")

    def __init__(self, capacities: tuple[int, ...], copies: int, segment_bytes: int) -> None:
        self._capacities = capacities
        self._copies = copies
        self._stripe_bytes = STRIPE_SEGMENTS * segment_bytes
        self._due = [0.0] * len(capacities)

    def route(self, length: int, service: int) -> int:
        """The route of a message of about so many bytes, on the networks in service."""
        networks = networks_in(service)
        copies = min(self._copies, len(networks))
        if copies == len(networks):
            return service | WHOLE
        if length >= self._stripe_bytes * len(networks):
            whole = sum(self._capacities[number] for number in networks)
            for number in networks:
                self._due[number] += copies * length / whole
            return service
        chosen = sorted(networks, key=self._due.__getitem__)[:copies]
        for number in chosen:
            self._due[number] += length / self._capacities[number]
        return bits_of(chosen) | WHOLE

    def change(self, capacities: tuple[int, ...], copies: int, segment_bytes: int) -> None:
        """Networks have been added at the end, or the last ones removed."""
        self._capacities = capacities
        self._copies = copies
        self._stripe_bytes = STRIPE_SEGMENTS * segment_bytes
        more = len(capacities) - len(self._due)
        self._due = [*self._due, *[max(self._due)] * more][: len(capacities)]

    def returned(self, number: int) -> None:
        """A network is in service again. It does not make up for the time that it was not."""
        self._due[number] = max(self._due)

    def settle(self) -> None:
        """Keeps the numbers small."""
        least = min(self._due)
        self._due = [due - least for due in self._due]
