"""One index of what the group layer wrote into a trace, built once and shared by all checks of groups.

A process is a program on a processor, for the time of one connection. A membership is its time in one group,
from asking to join; it is a list of views. Every view has a place in the total order, and so has every
delivery; a message has one place wherever it is delivered. Nothing here judges: wrong traces are indexed as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from totempole.checkers.history import History, ran_out_of_time
from totempole.checkers.terms import Terms
from totempole.errors import TraceError
from totempole.trace.lives import Life
from totempole.trace.schema import Row
from totempole.types import NO_RING, OrderKey, Place, ProcessorId, RingId

INDEX_MAX = 2**62
"""Behind all places within a packet."""

NO_DIGEST = 0
"""Stands where a level of the trace does not compare contents."""

ViewId = tuple[str, Place, str]
"""Group, place and configuration in force. The same packet may be delivered by some in a regular
configuration and by others, cut off from them, in a transitional one: they see different views there."""


@dataclass(slots=True, eq=False)
class Message:
    """What one call of a process sent: one message or several, which travel as one."""

    name: str
    sender: str
    number: int
    sent: Row | None = None
    again: list[Row] = field(default_factory=list)
    """Further rows that claim to send it."""
    floor: Place | None = None
    """Sent when its processor had come so far: its own place is later."""
    first: Delivery | None = None

    @property
    def end(self) -> int:
        """The number that the sender's next message has."""
        row = self.sent or (self.first.row if self.first else None)
        return self.number + (row.count if row else 1)


class Delivery(NamedTuple):
    row: Row
    place: Place
    message: Message
    views: tuple[View, ...]
    """The receiver's views, at that time, of the groups that the message was sent to."""


@dataclass(slots=True, eq=False)
class View:
    row: Row
    id: ViewId
    members: frozenset[str]
    together: frozenset[str]
    membership: Membership
    before: View | None
    """The one before it, in the same membership."""
    deliveries: list[Delivery] = field(default_factory=list)

    @property
    def group(self) -> str:
        return self.row.group

    @property
    def changed(self) -> str:
        return self.row.reason

    @property
    def place(self) -> Place:
        return self.id[1]

    @property
    def regular(self) -> bool:
        return self.row.configuration_kind == "regular"

    @property
    def owner(self) -> str:
        return self.row.process


class StateRow(NamedTuple):
    """A row of a state transfer: at which stage it is, as of which place, with whom, and a digest."""

    row: Row
    place: Place

    @property
    def stage(self) -> str:
        return self.row.groups.stage

    @property
    def peer(self) -> str:
        return self.row.groups.peer

    @property
    def digest(self) -> int:
        return self.row.digest


@dataclass(slots=True, eq=False)
class Membership:
    process: Process
    group: str
    index: int
    """Among the process's memberships of the group."""
    join: Row | None
    """None: the trace does not have the request."""
    left: Row | None = None
    """It asked to leave; it is a member until the order says so."""
    views: list[View] = field(default_factory=list)
    states: list[StateRow] = field(default_factory=list)

    @property
    def offers_state(self) -> bool:
        return self.join is not None and self.join.groups.offers_state

    @property
    def wants_state(self) -> bool:
        return self.join is not None and self.join.groups.wants_state


@dataclass(slots=True, eq=False)
class Process:
    name: str
    node: ProcessorId
    life: Life
    disconnected: Row | None = None
    memberships: dict[str, list[Membership]] = field(default_factory=dict)
    """By group, in the order of asking."""
    active: dict[str, Membership] = field(default_factory=dict)
    """By group, the membership that views are told in."""
    events: list[View | Delivery] = field(default_factory=list)
    sends: list[Message] = field(default_factory=list)
    notices: list[tuple[Row, Place]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.disconnected is not None or self.life.ended

    def asked(self, group: str) -> Membership | None:
        """What it asked for last."""
        mine = self.memberships.get(group)
        return mine[-1] if mine else None

    @property
    def deliveries(self) -> Iterable[Delivery]:
        return (event for event in self.events if type(event) is Delivery)

    @property
    def views(self) -> Iterable[View]:
        return (event for event in self.events if type(event) is View)


class GroupHistory:
    """The group layer's rows of one run, by process, by view and by message."""

    def __init__(self, rows: Iterable[Row], ring: History) -> None:
        self.ring = ring
        self.processes: list[Process] = []
        self.by_name: dict[str, Process] = {}
        """The last process of each name."""
        self.messages: dict[str, Message] = {}
        self.states: list[StateRow] = []
        self.hurried: set[tuple[ProcessorId, int]] = set()
        """The nodes and incarnations that ran out of time when they left."""
        self._reached: dict[ProcessorId, Place] = {}
        """How far in the order each processor has come."""
        self._sets: dict[tuple[str, ...], frozenset[str]] = {}
        handlers = self._handlers()
        rows = list(rows)
        for row in rows:
            if row.kind == "state" and ran_out_of_time(row):
                self.hurried.add((row.node, row.incarnation))
        if not any(row.kind in handlers for row in rows):
            return
        mine = [row for row in rows if row.kind in handlers or row.kind == "deliver"]
        mine.sort(key=itemgetter(1, 3))  # by node and step
        for row in mine:
            if row.kind == "deliver":
                self._pass(row)
            else:
                handlers[row.kind](self._process(row), row)

    def absent(self, names: Iterable[str]) -> list[ProcessorId]:
        """The processors of these processes whose traces are not here at all."""
        return self.ring.absent(sorted({processor_of(name) for name in names}))

    def must_tell(self, terms: Terms, name: str, since: Row) -> bool:
        """Whether the trace of that process's processor has by now all that led to the row `since`.

        That of a killed life lacks its last rows. The simulator writes down everything up to a crash.
        """
        node = processor_of(name)
        if node not in self.ring.by_node:
            return False
        life = self._latest_life(node, incarnation_of(name))
        if life is not None and life.cut_short:
            return terms.same_clock and life.last is not None and life.last.at_us >= since.at_us
        if terms.complete:
            return terms.same_clock or (life is not None and not life.ended)
        return terms.same_clock and self.ring.last_at.get(node, -1) >= since.at_us

    def _latest_life(self, node: ProcessorId, incarnation: int) -> Life | None:
        lives = reversed(self.ring.by_node[node])
        return next((life for life in lives if life.incarnation == incarnation), None)

    def _handlers(self) -> dict[str, Callable[[Process, Row], None]]:
        return {
            "process": self._connection,
            "group_join": self._join,
            "group_leave": self._leave,
            "group_send": self._send,
            "group_deliver": self._deliver,
            "group_view": self._view,
            "group_safe": self._safe,
            "group_state": self._state,
        }

    def _process(self, row: Row) -> Process:
        process = self.by_name.get(row.process)
        if process is None or (row.kind == "process" and row.reason == "connect"):
            # A life that ended before its first write leaves its incarnation, and so its names, to the next.
            process = self.by_name[row.process] = Process(row.process, row.node, self._life(row))
            self.processes.append(process)
        return process

    def _life(self, row: Row) -> Life:
        lives = self.ring.by_node[row.node]
        return next(life for life in lives if life.last is not None and life.last.step >= row.step)

    def _connection(self, process: Process, row: Row) -> None:
        if row.reason == "disconnect":
            process.disconnected = row

    def _join(self, process: Process, row: Row) -> None:
        mine = process.memberships.setdefault(row.group, [])
        mine.append(Membership(process, row.group, len(mine), row))

    def _leave(self, process: Process, row: Row) -> None:
        asked = process.asked(row.group)
        if asked is not None and asked.left is None:
            asked.left = row

    def _send(self, process: Process, row: Row) -> None:
        if not process.life.stays:
            return  # it was never in a configuration: nothing of it can have left the processor
        message = self._message(row.message)
        if message.sent is not None:
            message.again.append(row)
            return
        message.sent = row
        message.floor = self._floor(row)
        process.sends.append(message)

    def _floor(self, row: Row) -> Place | None:
        reached = self._reached.get(row.node)
        change = self.ring.configurations.get(row.configuration)
        if change is None or change.configuration_kind != "regular":
            return reached
        start = Place(OrderKey(self.ring.ring(row.configuration), 0, NO_RING), -1)
        return start if reached is None else max(start, reached)

    def _deliver(self, process: Process, row: Row) -> None:
        place = self._place(row)
        active = process.active
        views = tuple([active[group].views[-1] for group in row.groups.to if group in active])
        message = self._message(row.message)
        delivery = Delivery(row, place, message, views)
        for view in views:
            view.deliveries.append(delivery)
        if message.first is None:
            message.first = delivery
        process.events.append(delivery)
        self._reach(row.node, place)

    def _message(self, name: str) -> Message:
        message = self.messages.get(name)
        if message is None:
            sender, _, number = name.rpartition(":")
            message = self.messages[name] = Message(name, sender, _number(number, name))
        return message

    def _view(self, process: Process, row: Row) -> None:
        members, together = self._set(row.groups.processes), self._set(row.groups.together)
        conf_id = NO_RING
        if row.configuration_kind == "transitional" and row.reason == "configuration":
            conf_id = self.ring.ring(row.configuration)
        place = Place(OrderKey(self.ring.ring(row.ring), row.seq, conf_id), row.groups.index)
        membership = self._active(process, row, together)
        before = membership.views[-1] if membership.views else None
        id = (row.group, place, row.configuration)
        view = View(row, id, members, together, membership, before)
        membership.views.append(view)
        process.events.append(view)
        self._reach(row.node, place)

    def _set(self, names: tuple[str, ...]) -> frozenset[str]:
        """Each once: many are told of one view."""
        known = self._sets.get(names)
        if known is None:
            known = self._sets[names] = frozenset(names)
        return known

    def _active(self, process: Process, row: Row, together: frozenset[str]) -> Membership:
        """The membership that a view belongs to.

        A process that left and asked to join again is in the old one until a view has it as newly come.
        """
        mine = process.memberships.setdefault(row.group, [])
        active = process.active.get(row.group)
        if active is None:
            active = mine[0] if mine else Membership(process, row.group, 0, None)
        elif active.left is not None and active.index + 1 < len(mine) and process.name not in together:
            active = mine[active.index + 1]
        if not mine:
            mine.append(active)
        process.active[row.group] = active
        return active

    def _safe(self, process: Process, row: Row) -> None:
        process.notices.append((row, self._place(row)))

    def _state(self, process: Process, row: Row) -> None:
        state = StateRow(row, self._place(row))
        self.states.append(state)
        membership = process.active.get(row.group) or process.asked(row.group)
        if membership is not None:
            membership.states.append(state)

    def _place(self, row: Row) -> Place:
        return Place(OrderKey(self.ring.ring(row.ring), row.seq, NO_RING), row.groups.index)

    def _pass(self, row: Row) -> None:
        """The processor has come past this packet of its ring, be it of groups or not."""
        self._reach(row.node, Place(OrderKey(self.ring.ring(row.ring), row.seq, NO_RING), INDEX_MAX))

    def _reach(self, node: ProcessorId, place: Place) -> None:
        reached = self._reached.get(node)
        if reached is None or place > reached:
            self._reached[node] = place


def processor_of(name: str) -> ProcessorId:
    return _number(name.partition(".")[0], name)


def incarnation_of(name: str) -> int:
    return _number(name.split(".")[1] if name.count(".") == 2 else "", name)


def order_of(name: str) -> tuple[int, int, int]:
    """Names sort as processes do, by number."""
    return processor_of(name), incarnation_of(name), _number(name.rpartition(".")[2], name)


def ring_of(place: Place) -> RingId:
    return place.key.ring_id


def _number(text: str, within: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise TraceError(
            f"{within!r} of the group layer's rows has {text!r} where a number belongs"
        ) from None
