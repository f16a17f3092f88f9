"""What each network should have brought of each sender's messages, and what it brought.

A message's route says what was sent on which network. What came is counted by the segments' headers, copies
and all, before anything is put together. A rotation after a message was due the two are compared; later, if
the token is faster than a slow network. If the ring had to ask for the message, they are compared as of then,
since what comes later is a repetition, which goes on every network.

Headers are not sealed: what a stranger sends can make a network look better than it is, never worse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from totempole.rrp.config import NETWORKS_MAX
from totempole.rrp.route import WHOLE, carried_bytes, networks_in
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
    __slots__ = (
        "_arrived",
        "_asked",
        "_capacities",
        "_copies",
        "_due",
        "_heard",
        "_ring",
        "_taken",
        "_visits",
    )

    def __init__(self, capacities: tuple[int, ...], copies: int) -> None:
        self._capacities = capacities
        self._copies = copies
        self._heard = 0
        """The networks that have brought anything of a message since that was asked last."""
        self._ring: RingId | None = None
        self._arrived: dict[PacketName, list[int]] = {}
        self._asked: dict[PacketName, list[int]] = {}
        """What had come of a message when the ring asked for it."""
        self._taken: list[tuple[int, Taken]] = []
        """Messages that have come since the last visit, by seq."""
        self._due: dict[tuple[ProcessorId, int], list[int]] = {}
        """By sender and network, of this rotation: bytes that were sent there, those that came, messages."""
        self._visits: deque[tuple[int, int, list[tuple[int, Taken]]]] = deque()
        """When the token came, up to where messages were due then, and those that had come since the last."""

    def change(self, capacities: tuple[int, ...], copies: int) -> None:
        """Networks have been added at the end, or the last ones removed. What came on these says nothing of
        the others."""
        is_less = len(capacities) < len(self._capacities)
        self._capacities, self._copies = capacities, copies
        if is_less:
            self._forget()

    def note(self, name: PacketName, network: int, length: int) -> None:
        """So many bytes of a message have come on a network."""
        self._heard |= 1 << network
        counts = self._arrived.get(name)
        if counts is None:
            if name in self._asked:
                return
            counts = self._arrived[name] = [0] * NETWORKS_MAX
            if len(self._arrived) > ARRIVED_MAX:
                del self._arrived[next(iter(self._arrived))]
        counts[network] += length

    def take_heard(self) -> int:
        heard, self._heard = self._heard, 0
        return heard

    def take(self, ring_id: RingId, seq: int, taken: Taken) -> None:
        """A message has come, all of it."""
        if ring_id != self._ring:
            return
        asked = self._asked.pop(data_name(ring_id, seq), None) if self._asked else None
        if asked is not None:
            self._charge(taken, asked)
        else:
            self._taken.append((seq, taken))

    def visit(
        self, ring_id: RingId, seq: int, missing: Iterable[int], now_us: int, late_us: int
    ) -> Iterator[Share]:
        """The token has come, and the ring asks for what is missing. Gives what was lost of the messages that
        were due when it came at least a rotation, and at least so long, before."""
        if ring_id != self._ring:
            self._begin(ring_id)
        visits, newest = self._visits, self._taken
        self._taken = []
        while visits and (now_us - visits[0][0] >= late_us or len(visits) >= VISITS_MAX):
            _, due_seq, come = visits.popleft()
            for place, taken in come:
                if place > due_seq:
                    self._taken.append((place, taken))
                elif (arrived := self._arrived.pop(data_name(ring_id, place), None)) is not None:
                    self._charge(taken, arrived)  # else it was forgotten, and nothing can be said
        visits.append((now_us, seq, newest))
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
        self._visits.clear()
        self._forget()

    def _forget(self) -> None:
        for known in (self._arrived, self._asked, self._taken, self._due):
            known.clear()

    def _charge(self, taken: Taken, arrived: list[int]) -> None:
        sender, route, total = taken
        if not route:
            return  # it makes no sense here: the sender has other networks
        carried: Sequence[tuple[int, int]]
        if route & WHOLE:
            carried = [(network, total) for network in networks_in(route)]
        else:
            carried = carried_bytes(total, route, self._capacities, self._copies)
        for network, sent in carried:
            due = self._due.get((sender, network))
            if due is None:
                due = self._due[sender, network] = [0, 0, 0]
            due[0] += sent
            due[1] += min(sent, arrived[network])
            due[2] += 1
