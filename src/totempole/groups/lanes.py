"""What waits to be sent: a lane for each process, emptied in turn into ring packets.

A process's messages keep their order; those of different processes share a packet fairly, so that one large
message does not starve the small ones of others. What does not fit is cut: the rest goes into the next
packet. Pieces are put together again by `partial`.

What has been handed to the ring is remembered until it comes back: after a change of configuration it may
have to be sent again (layer.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from totempole.groups.body import HEAD_BYTES, RUN_BYTES, RunKind, head, run_head
from totempole.types import Payload, RingId, Service

TURN_BYTES = 8_192
"""What a lane may put into a packet before the next has its turn, when several have something to send."""

WHOLE_BYTES = 32_768
"""Up to this a unit is not cut for the sake of others: every piece costs every receiver."""

PIECE_BYTES_MIN = 2_048
"""Less room than this at the end of a packet is not worth cutting for."""

FULL_PARTS = 16
"""A packet with less room than this part of it is full: no further lane is tried."""

LaneKey = tuple[int, bool]
"""A process's number, and whether the lane is the one for state that it gives to joiners."""

TABLE_LANE: LaneKey = (0, False)


class Unit:
    """What a process asked for in one call."""

    __slots__ = (
        "content",
        "count",
        "flags",
        "kind",
        "lane",
        "names",
        "number",
        "sent",
        "service",
        "taken",
        "weight",
    )

    def __init__(
        self,
        kind: RunKind,
        lane: LaneKey,
        *,
        names: bytes = b"",
        content: Payload = b"",
        service: Service = Service.AGREED,
        flags: int = 0,
        number: int = 0,
        count: int = 0,
    ) -> None:
        self.kind = kind
        self.lane = lane
        self.names = names
        self.content = content
        self.service = service
        self.flags = flags
        self.number = number
        self.count = count
        self.sent = 0
        """So many bytes of the content are in packets."""
        self.weight = RUN_BYTES + len(names) + len(content)
        assert count > 0 or kind is not RunKind.MESSAGES, "a unit of messages has at least one"
        self.taken = False

    @property
    def begun(self) -> bool:
        return 0 < self.sent < len(self.content)


class Packed(NamedTuple):
    """A body, and the units that it ends or carries a piece of."""

    body: bytes
    service: Service
    units: tuple[Unit, ...]
    finished: tuple[Unit, ...]


class Lanes:
    def __init__(self, packet_bytes: int, partial_bytes_max: int) -> None:
        self.packet_bytes = packet_bytes
        """How large the next packets may be."""
        self._partial_bytes_max = partial_bytes_max
        self._lanes: dict[LaneKey, deque[Unit]] = {}
        self._turns: deque[LaneKey] = deque()
        """Lanes with something in them. The first is next."""
        self._weights: dict[LaneKey, int] = {}
        self.waiting_bytes = 0
        """The weights of all lanes."""
        self._begun_bytes = 0
        """The lengths of all units that are under way in pieces."""

    def __bool__(self) -> bool:
        return bool(self._turns)

    def units(self) -> Iterator[Unit]:
        """All that waits, or has left in part."""
        return chain.from_iterable(self._lanes.values())

    def weight(self, lane: LaneKey) -> int:
        return self._weights.get(lane, 0)

    @property
    def under_way(self) -> bool:
        """Whether a unit has left in part."""
        return self._begun_bytes > 0

    def add(self, unit: Unit) -> None:
        self._queue(unit.lane).append(unit)
        self._weigh(unit)

    def _weigh(self, unit: Unit) -> None:
        self._weights[unit.lane] = self._weights.get(unit.lane, 0) + unit.weight
        self.waiting_bytes += unit.weight

    def _queue(self, lane: LaneKey) -> deque[Unit]:
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
            self._turns.append(lane)
        return queue

    def drop(self, lane: LaneKey) -> None:
        """Forgets what waits there."""
        if lane in self._lanes:
            self._begun_bytes -= sum(len(unit.content) for unit in self._lanes[lane] if unit.begun)
            assert self._begun_bytes >= 0, "what is dropped was counted when it was begun"
            self._close(lane)

    def _close(self, lane: LaneKey) -> None:
        del self._lanes[lane]
        self._turns.remove(lane)
        self.waiting_bytes -= self._weights.pop(lane)
        assert self.waiting_bytes > 0 if self._lanes else self.waiting_bytes == 0, (
            "lanes weigh what they hold"
        )

    def send_again(self, units: Iterable[Unit]) -> None:
        """These came back undelivered, in this order; they go before all else, from their first byte on.
        So do those of which a part was delivered in a configuration that is over."""
        for queue in self._lanes.values():
            queue[0].sent = 0
        assert len(self._turns) == len(self._lanes), "each lane has its turn"
        self._begun_bytes = 0
        for unit in reversed(list(dict.fromkeys(units))):
            assert unit.kind is not RunKind.TABLE, "a table is of its configuration alone"
            unit.sent = 0
            queue = self._queue(unit.lane)
            if not queue or queue[0] is not unit:  # it has not gone out whole, and waits there still
                queue.appendleft(unit)
                self._weigh(unit)

    def take(self, epoch: RingId, only: LaneKey | None = None) -> Packed | None:
        """The next packet; None when nothing waits, in that lane or at all."""
        turns = [only] if only is not None else list(self._turns)
        turns = [lane for lane in turns if lane in self._lanes]
        if not turns:
            return None
        packing = _Packing(epoch, self.packet_bytes)
        first = self._turns[0]
        while turns and packing.takes_more:
            turns = self._fill_from(packing, turns)
        if self._turns and self._turns[0] == first:
            self._turns.rotate(-1)
        packed = packing.packed()
        assert packed is None or 0 <= packing.room == self.packet_bytes - len(packed.body), (
            "a packet has its size"
        )
        return packed

    def _fill_from(self, packing: _Packing, turns: list[LaneKey]) -> list[LaneKey]:
        """A turn for each, as long as there is room. Those who may have another one."""
        more = []
        for lane in turns:
            if self._fill(packing, lane, len(turns) > 1):
                more.append(lane)
            if not packing.takes_more:
                break
        return more

    def _fill(self, packing: _Packing, lane: LaneKey, in_company: bool) -> bool:
        """A lane's turn. Whether it may have another one in this packet."""
        queue = self._lanes[lane]
        limit = packing.room - TURN_BYTES if in_company else -1
        while queue:
            unit = queue[0]
            if not packing.takes(unit):
                return False
            length = self._length_of_piece(unit, packing, in_company)
            if length is None:
                return False
            self._move(packing, unit, length)
            if unit.sent == len(unit.content):
                queue.popleft()
                self._weights[lane] -= unit.weight
                self.waiting_bytes -= unit.weight
            if packing.room <= limit:
                return bool(queue) or self._finish(lane)
        return self._finish(lane)

    def _finish(self, lane: LaneKey) -> bool:
        assert not self._weights[lane], "an empty lane weighs nothing"
        self._close(lane)
        return False

    def _length_of_piece(self, unit: Unit, packing: _Packing, in_company: bool) -> int | None:
        """How much of the unit goes into the packet; None when it has to wait for the next one."""
        room = packing.room - RUN_BYTES - len(unit.names)
        left = len(unit.content) - unit.sent
        turn = min(room, TURN_BYTES) if in_company and left > WHOLE_BYTES else room
        if left <= turn:
            return left
        if packing.units and (turn < PIECE_BYTES_MIN or room <= 0):
            return None
        assert turn > 0, "a piece has at least a byte"
        return turn if unit.sent or self._may_begin(unit) else None

    def _may_begin(self, unit: Unit) -> bool:
        if unit.lane == TABLE_LANE:
            return True  # what others have begun can go on only when tables have been exchanged
        return not self._begun_bytes or self._begun_bytes + len(unit.content) <= self._partial_bytes_max

    def _move(self, packing: _Packing, unit: Unit, length: int) -> None:
        total = len(unit.content)
        begun = unit.begun
        packing.add(unit, length)
        unit.sent += length
        if unit.begun and not begun:
            self._begun_bytes += total
        elif begun and not unit.begun:
            self._begun_bytes -= total
            assert self._begun_bytes >= 0, "what ends was counted when it was begun"


class _Packing:
    """A packet that is being filled."""

    def __init__(self, epoch: RingId, packet_bytes: int) -> None:
        self.room = packet_bytes - HEAD_BYTES
        self._room_least = packet_bytes // FULL_PARTS
        self.service = Service.AGREED
        self.units: list[Unit] = []
        self._finished: list[Unit] = []
        self._parts: list[Payload] = [head(epoch)]

    @property
    def takes_more(self) -> bool:
        return self.room >= self._room_least

    def takes(self, unit: Unit) -> bool:
        """A packet asks for one service, which the first to come into it decides."""
        if not self.units:
            self.service = unit.service
        return unit.service is self.service

    def add(self, unit: Unit, length: int) -> None:
        assert unit.service is self.service, "a packet asks for one service"
        total, at = len(unit.content), unit.sent
        process, number = unit.lane[0], unit.number
        self._parts.append(
            run_head(unit.kind, unit.flags, process, number, unit.count, at, total, unit.names, length)
        )
        self._parts.append(unit.content if length == total else memoryview(unit.content)[at : at + length])
        self.room -= RUN_BYTES + len(unit.names) + length
        self.units.append(unit)
        if at + length == total:
            self._finished.append(unit)

    def packed(self) -> Packed | None:
        if not self.units:
            return None
        return Packed(b"".join(self._parts), self.service, tuple(self.units), tuple(self._finished))
