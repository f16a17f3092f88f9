"""What each network should have brought of each sender's messages, and what it brought.

A message's route says what was sent on which network. What came is counted by the segments' headers, copies
and all, before anything is put together. A rotation after a message was due the two are compared; later, if
the token is faster than a slow network. If the ring had to ask for the message, they are compared as of then,
since what comes later is a repetition, which goes on every network.

Headers are not sealed: what a stranger sends can make a network look better than it is, never worse.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from totempole.rrp.config import NETWORKS_MAX
from totempole.rrp.route import carried_bytes, stripes
from totempole.segment.header import PacketName, data_name
from totempole.types import ProcessorId, RingId

ARRIVED_MAX = 4_096
"""Messages of which it is remembered what came where; the oldest is forgotten first."""


VISITS_MAX = 64
"""Visits of the token that are remembered."""


class Taken(NamedTuple):
    """A message that has come."""

    sender: ProcessorId
    route: int
    """0: not known."""
    total: int


class Share(NamedTuple):
    """Of one rotation: what part of a sender's bytes a network has lost."""

    sender: ProcessorId
    network: int
    lost: float
    messages: int


class Accounts:
    __slots__ = ("_arrived", "_asked", "_capacities", "_copies", "_due", "_ring", "_taken", "_visits")

    def __init__(self, capacities: tuple[int, ...], copies: int) -> None:
        self._capacities = capacities
        self._copies = copies
        self._ring: RingId | None = None
        self._arrived: OrderedDict[PacketName, list[int]] = OrderedDict()
        self._asked: dict[PacketName, list[int]] = {}
        """What had come of a message when the ring asked for it."""
        self._taken: dict[int, Taken] = {}
        self._due: dict[tuple[ProcessorId, int], list[int]] = {}
        """By sender and network, of this rotation: bytes that were sent there, those that came, messages."""
        self._visits: deque[tuple[int, int]] = deque()
        """When the token came, and up to where messages were due then."""

    def change(self, capacities: tuple[int, ...], copies: int) -> None:
        """Networks have been added at the end, or the last ones removed. What came on these says nothing of
        the others."""
        is_less = len(capacities) < len(self._capacities)
        self._capacities, self._copies = capacities, copies
        if is_less:
            for known in (self._arrived, self._asked, self._taken, self._due):
                known.clear()

    def note(self, name: PacketName, network: int, length: int) -> None:
        """So many bytes of a message have come on a network."""
        counts = self._arrived.get(name)
        if counts is None:
            if name in self._asked:
                return
            counts = self._arrived[name] = [0] * NETWORKS_MAX
            if len(self._arrived) > ARRIVED_MAX:
                self._arrived.popitem(last=False)
        counts[network] += length

    def take(self, ring_id: RingId, seq: int, taken: Taken) -> None:
        """A message has come, all of it."""
        if ring_id != self._ring:
            return
        asked = self._asked.pop(data_name(ring_id, seq), None)
        if asked is not None:
            self._charge(taken, asked)
        else:
            self._taken[seq] = taken

    def visit(
        self, ring_id: RingId, seq: int, missing: Iterable[int], now_us: int, late_us: int
    ) -> Iterator[Share]:
        """The token has come, and the ring asks for what is missing. Gives what was lost of the messages that
        were due when it came at least a rotation, and at least so long, before."""
        if ring_id != self._ring:
            self._begin(ring_id)
        due_seq = 0
        while self._visits and (now_us - self._visits[0][0] >= late_us or len(self._visits) >= VISITS_MAX):
            due_seq = self._visits.popleft()[1]
        self._visits.append((now_us, seq))
        for place in [place for place in self._taken if place <= due_seq]:
            arrived = self._arrived.pop(data_name(ring_id, place), None)
            taken = self._taken.pop(place)
            if arrived is not None:  # else it was forgotten, and nothing can be said
                self._charge(taken, arrived)
        for place in missing:
            name = data_name(ring_id, place)
            if name not in self._asked:
                arrived = self._arrived.pop(name, None)
                self._asked[name] = arrived or [0] * NETWORKS_MAX
        due, self._due = self._due, {}
        for (sender, network), (sent, came, messages) in due.items():
            yield Share(sender, network, (sent - came) / sent, messages)

    def _begin(self, ring_id: RingId) -> None:
        self._ring = ring_id
        for known in (self._arrived, self._asked, self._taken, self._due, self._visits):
            known.clear()

    def _charge(self, taken: Taken, arrived: list[int]) -> None:
        sender, route, total = taken
        if not route:
            return  # it makes no sense here: the sender has other networks
        for network, ranges in stripes(total, route, self._capacities, self._copies):
            sent = carried_bytes(total, ranges)
            if sent:
                due = self._due.setdefault((sender, network), [0, 0, 0])
                due[0] += sent
                due[1] += min(sent, arrived[network])
                due[2] += 1
