"""What a program receives: messages, views, and the rarer news, in the total order; and the streams in which
they wait until the program takes them.

A `place` sorts as the total order does, across all groups and at all processors: two programs that compare
places agree on what came first.

A program takes events from a group (`async for event in group`), or from all its groups in one order
(`session.events()`). Each of these is a `Stream`. An event for two groups is put into the streams of both,
and once into the session's.

A program that joined with `want_state` gets the state before the group's first message, although messages
are delivered while the state is on its way. So the state's place in the stream is kept (`Transfer`), and what
comes after waits behind it. In the session's stream everything waits, for it has one order; with one
exception: when another member asks this program for the state of some group, what does not concern the
waiting group goes on. Otherwise two programs could wait for each other's state for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from totempole.errors import SessionError
from totempole.groups.events import StateAsked
from totempole.types import Payload, Place, ProcessId, Service


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one sender that are next in the order, in the views last received."""

    sender: ProcessId
    """Who sent them: a program, which need not be a member of the group."""
    payloads: Sequence[bytes]
    """The messages, in their order. Each is cut out of the batch only when it is asked for."""
    groups: tuple[str, ...]
    """All that they were sent to, also groups that this program has not joined."""
    service: Service
    """What their sender asked for."""
    place: Place
    """Where in the total order they are. Places can be compared everywhere."""
    number: int
    """Counts what the sender has sent: the number of the first of these messages."""


@dataclass(frozen=True, slots=True)
class View:
    """Who is in the group from here on."""

    kind: Literal["regular", "transitional"]
    """Transitional: members were lost, and the messages that follow are only known to have reached those who
    are named here. A regular view follows."""
    group: str
    """Its name."""
    members: tuple[ProcessId, ...]
    """From here on, sorted: the same at all of them."""
    together: tuple[ProcessId, ...]
    """Those who came along from the view before: they have received the same messages in it."""
    place: Place
    """Where in the total order it begins."""
    changed: str
    """Why: join, leave, disconnect, or configuration (processors have come or gone)."""
    info: Mapping[ProcessId, bytes] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """What members said of themselves with `join(…, info=…)`. Those that said nothing are not in it."""
    _has_been_asked: bool = field(default=False, init=False, repr=False, compare=False)
    """For its strangers."""

    @property
    def strangers(self) -> tuple[ProcessId, ...]:
        """Members that were elsewhere in the meantime: their history is another one, and so may be their
        state. Empty unless sides have come together. A program that joined with state and does not look here
        is warned in the log."""
        object.__setattr__(self, "_has_been_asked", True)
        return _strangers_in(self)


def _strangers_in(view: View) -> tuple[ProcessId, ...]:
    if view.changed != "configuration":
        return ()
    together = set(view.together)
    return tuple(member for member in view.members if member not in together)


@dataclass(frozen=True, slots=True)
class Safe:
    """These messages, received before, are now at every processor of the configuration.

    Comes for messages that were sent with `safe_notice=True`.
    """

    sender: ProcessId
    """Who sent them."""
    number: int
    """Of the first of them, as in `Messages`."""
    count: int
    """How many they are."""
    groups: tuple[str, ...]
    """As in `Messages`."""
    place: Place
    """Where the messages were delivered: the `place` of their `Messages`."""


@dataclass(frozen=True, slots=True)
class State:
    """The group's state as of this place, for a program that joined with `want_state=True`.

    It comes once per join, after the view that brought the program in and before the first message. The
    state contains every message of the group up to `place`, and none after it.
    """

    group: str
    """Its name."""
    donor: ProcessId | None
    """The member that gave it."""
    data: bytes | None
    """None: no member had a state to give. Begin afresh, with the messages that follow."""
    place: Place
    """The state is that of this place in the total order."""


@dataclass(frozen=True, slots=True)
class Gap:
    """This program fell behind, and messages of the group were dropped here: it joined with policy="shed"."""

    group: str
    """Its name."""
    messages: int
    """How many were dropped,"""
    bytes: int
    """and how large they were together."""


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The daemon had gone away and is back. The program is a new process now, and in its groups again.

    What happened in a group between `seen[group]` and the view that follows was missed. A group that was
    joined with `want_state` brings its `State` again, after that view.
    """

    process: ProcessId
    """Who the program is from here on."""
    before: ProcessId
    """Who it was."""
    unacknowledged: int
    """So many messages were accepted from the program, but not known to have been taken by the ring: the
    last ones it multicast. They may have been delivered, or not, or the first of them only."""
    reason: str
    """Why the connection was lost."""
    seen: Mapping[str, Place | None] = field(default_factory=lambda: MappingProxyType({}))
    """For each group, the place of the last event that came before the loss. None: there was none."""


@dataclass(frozen=True, slots=True)
class NetworkChanged:
    """A network of a redundant ring has another state, or more is known of its fault.

    Comes to programs that take `session.events(networks=True)`, at every host in the same place of the order.
    """

    name: str
    """As the settings call the network, or its number."""
    state: str
    """in_service, sick, faulty, drained or probation."""
    before: str | None
    """The state before. None: nothing has changed, the program has just begun to listen, or come back."""
    why: str
    """What is wrong, in words; empty if nothing is."""
    place: Place | None
    """None where `before` is."""


Event = Messages | View | Safe | State | Gap | Reconnected | NetworkChanged
"""What iterating over a group or a session gives."""


# Events that the program has not taken yet

EVENT_WEIGHT = 512
"""What an event costs beside its messages. Queues are bounded by weight."""


class Transfer:
    """A group's state that is on its way to this program, and its place in the streams."""

    __slots__ = ("bytes", "chunks", "donor", "group", "place", "seen_before", "state")

    def __init__(self, group: str, seen_before: Place | None) -> None:
        self.group = group
        self.donor: ProcessId | None = None
        self.place: Place | None = None
        self.chunks: list[Payload] = []
        self.bytes = 0
        self.state: State | None = None
        """When it is complete."""
        self.seen_before = seen_before

    def begin(self, donor: ProcessId, place: Place) -> None:
        """Also begins anew, when a donor has failed and another takes over."""
        self.donor, self.place = donor, place
        self.chunks.clear()
        self.bytes = 0

    def add(self, content: Payload) -> None:
        self.chunks.append(content)
        self.bytes += len(content)

    def complete(self) -> None:
        assert self.place is not None
        self.state = State(self.group, self.donor, b"".join(self.chunks), self.place)
        self.chunks.clear()

    def give_up(self, place: Place) -> None:
        """Nobody has a state to give."""
        self.chunks.clear()
        self.bytes = 0
        self.state = State(self.group, None, None, place)


class Item(NamedTuple):
    """What a stream holds."""

    arrival: int
    """Counts what came from the daemon: the same event has the same number in every stream."""
    event: Event | StateAsked | Transfer | SessionError
    groups: tuple[str, ...]
    """Those that the program has joined, among the event's."""
    weight: int


@dataclass(slots=True)
class Meter:
    """What all streams of a session together hold ready, and which have news: they were empty."""

    bytes: int = 0
    news: list[Stream] = field(default_factory=list)


class Stream:
    """What one consumer has not taken yet."""

    __slots__ = (
        "_blocked",
        "_relaxed",
        "error",
        "held",
        "held_bytes",
        "merged",
        "meter",
        "name",
        "over",
        "ready",
        "waiters",
    )

    def __init__(self, name: str, meter: Meter) -> None:
        self.name = name
        self.meter = meter
        self.ready: deque[Item] = deque()
        self.held: list[Item] = []
        """Begins with the place of a state that is not complete."""
        self.held_bytes = 0
        self.over = False
        """Nothing more comes,"""
        self.error: SessionError | None = None
        """and this is why, unless the program wanted it so."""
        self.merged: View | None = None
        """The view that was taken last, if sides came together in it and the program has state."""
        self.waiters: list[Any] = []
        """For the session: how it wakes those who wait for news."""
        self._relaxed = False
        self._blocked: set[str] = set()

    # In

    def put(self, item: Item) -> None:
        if self.held and not (self._relaxed and self._blocked.isdisjoint(item.groups)):
            self._hold(item)
        else:
            self._make_ready(item)

    def _make_ready(self, item: Item) -> None:
        if not self.ready:
            self.meter.news.append(self)
        self.ready.append(item)
        self.meter.bytes += item.weight

    def _hold(self, item: Item) -> None:
        self.held.append(item)
        self.held_bytes += item.weight
        self._blocked.update(item.groups)
        if not self._relaxed and type(item.event) is StateAsked:
            self._relaxed = True
            self._release()

    def reserve(self, arrival: int, transfer: Transfer) -> None:
        """A state belongs here. What comes from now on waits for it."""
        self._hold(Item(arrival, transfer, (transfer.group,), 0))

    def settle(self, transfer: Transfer) -> None:
        """The state is complete: it takes its place, and what it contains is dropped."""
        state = transfer.state
        assert state is not None
        slots = [index for index, item in enumerate(self.held) if item.event is transfer]
        if not slots:
            return
        if state.data is not None:
            self._drop_contained(slots[0], state)
        self._release()

    def _drop_contained(self, first: int, state: State) -> None:
        slot, later = self.held[first], self.held[first + 1 :]
        kept = self.held[:first]
        at = first
        for item in later:
            place = getattr(item.event, "place", None)
            before = place is not None and place <= state.place
            if before and isinstance(item.event, Messages | Safe):
                item = item._replace(groups=tuple(name for name in item.groups if name != state.group))
                if not item.groups:
                    self.held_bytes -= item.weight
                    continue
            kept.append(item)
            if before:
                at = len(kept)
        kept.insert(at, slot)
        self.held = kept

    def abandon(self, transfer: Transfer) -> None:
        """The state will not come: what waited for it goes on."""
        self.held = [item for item in self.held if item.event is not transfer]
        self._release()

    def _release(self) -> None:
        """Moves on what does not wait any longer."""
        items, self.held, self.held_bytes = self.held, [], 0
        blocked: set[str] = set()
        self._blocked = blocked
        for item in items:
            transfer = item.event if type(item.event) is Transfer else None
            waits = not blocked.isdisjoint(item.groups) if self._relaxed else bool(blocked)
            if waits or (transfer and transfer.state is None):
                self.held.append(item)
                self.held_bytes += item.weight
                blocked.update(item.groups)
            elif transfer and transfer.state:
                state = transfer.state
                size = EVENT_WEIGHT + len(state.data or b"")
                self._make_ready(Item(item.arrival, state, item.groups, size))
            else:
                self._make_ready(item)
        if not self.held:
            self._relaxed = False

    # Out

    def take(self) -> Item | None:
        """The next one, if it is there."""
        if not self.ready:
            return None
        item = self.ready.popleft()
        self.meter.bytes -= item.weight
        return item

    def put_back(self, item: Item) -> None:
        if not self.ready:
            self.meter.news.append(self)
        self.ready.appendleft(item)
        self.meter.bytes += item.weight

    # Changes

    def clear(self) -> None:
        self.meter.bytes -= sum(item.weight for item in self.ready)
        self.ready.clear()
        self.held, self.held_bytes, self._relaxed = [], 0, False
        self._blocked = set()

    def cut(self) -> None:
        """The connection is lost: what waits for a state is void, and so is what others asked for."""
        self.held, self.held_bytes, self._relaxed = [], 0, False
        self._blocked = set()
        self.drop(lambda item: type(item.event) is StateAsked)

    def drop(self, unwanted: Callable[[Item], bool]) -> None:
        self.meter.bytes -= sum(item.weight for item in self.ready if unwanted(item))
        self.ready = deque(item for item in self.ready if not unwanted(item))

    def end(self, error: SessionError | None = None) -> None:
        if not self.over:
            self.over, self.error = True, error
            self.meter.news.append(self)


@dataclass(slots=True)
class Membership:
    """A group that the program is in, or is about to be in."""

    name: str
    own: Stream
    has_state: bool = False
    """Whether the program gives the group's state, or wanted it."""
    begun: bool = False
    """Whether its first view has come. What is for the group before that is of an earlier membership."""
    fed: bool = True
    """Whether its own stream gets its events: not while the program takes them from the session's alone."""
    iterated: bool = False
    members: tuple[ProcessId, ...] = ()
    """As of the event that was taken last."""
    view: View | None = None
    """The last that has come."""
    transfer: Transfer | None = None
    received: Place | None = None

    @property
    def seen(self) -> Place | None:
        """The place of the last event that the program has got, or will get without more from the daemon."""
        return self.transfer.seen_before if self.transfer else self.received


STRANGERS_NAMED_MAX = 5


def unheeded(view: View) -> str:
    """The warning to a program with state that did not look at the strangers of a view."""
    strangers = _strangers_in(view)
    more = len(strangers) - STRANGERS_NAMED_MAX
    named = ", ".join(map(str, strangers[:STRANGERS_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")
    return (
        f"group {view.group!r}: sides of a partition have come together, and this program has not looked at "
        f"View.strangers ({named}). They went on by themselves meanwhile, so their copies of the state may "
        "differ from this one, and nothing makes them equal again. Use what goes on in one side only: a "
        "replicated object (session.replica) or totempole.Primary. Or take the state of one side, or merge "
        'them, when View.strangers is not empty: see "When sides come together" in docs/groups.md'
    )


class Inbox:
    """Everything that the program has not taken yet. Puts events where they belong."""

    def __init__(self, state_bytes_max: int, warn: Callable[[str], None]) -> None:
        self.meter = Meter()
        self.memberships: dict[str, Membership] = {}
        self.whole: Stream | None = None
        """The session's own stream, once the program has asked for it."""
        self.networks_wanted = False
        """Whether that stream has changes of networks too."""
        self.transferring: set[str] = set()
        """Groups whose state is on its way."""
        self._state_bytes_max = state_bytes_max
        self._warn = warn
        self._arrivals = 0

    # Streams

    def add(self, name: str, *, has_state: bool = False) -> Membership:
        stream = Stream(f"group {name!r}", self.meter)
        membership = Membership(name, stream, has_state, fed=self.whole is None)
        self.memberships[name] = membership
        return membership

    def remove(self, name: str, error: SessionError | None = None) -> None:
        """The program has left the group, or (`error`) cannot stay in it."""
        membership = self.memberships.pop(name)
        self.transferring.discard(name)
        transfer = membership.transfer
        if error is None:
            membership.own.clear()
        elif membership.fed and transfer:
            membership.own.cut()
        membership.own.end(error)
        if self.whole is not None:
            if transfer:
                self.whole.abandon(transfer)
            self.whole.drop(lambda item: type(item.event) is StateAsked and item.groups == (name,))
            if error is not None:
                self.whole.put(Item(self._next_arrival(), error, (), EVENT_WEIGHT))

    def iterate(self, membership: Membership) -> None:
        """The program begins to take events from the group itself."""
        membership.iterated = True
        if not membership.fed:
            membership.fed = True
            if membership.transfer:
                membership.own.reserve(self._next_arrival(), membership.transfer)

    def open_whole(self) -> Stream:
        """The program begins to take events of all its groups in one order: all that were not taken yet of
        groups that it does not iterate over, and from now on all."""
        if self.whole is None:
            self.whole = Stream("session.events()", self.meter)
            unread = [item for item in self.memberships.values() if not item.iterated]
            for item in self._merged(unread):
                if type(item.event) is Transfer:
                    self.whole.reserve(item.arrival, item.event)
                else:
                    self.whole.put(item)
            for membership in unread:
                membership.own.clear()
                membership.fed = False
        return self.whole

    def close_whole(self) -> None:
        """The program takes events from its groups again, from here on."""
        if self.whole is not None:
            self.whole.clear()
            self.whole.end()
            self.whole = None
            self.networks_wanted = False
            for membership in self.memberships.values():
                if not membership.fed:
                    self.iterate(membership)
                    membership.iterated = False

    @staticmethod
    def _merged(memberships: list[Membership]) -> list[Item]:
        """What is in their streams, each event once, in its order."""
        merged: dict[int, Item] = {}
        for membership in memberships:
            for item in (*membership.own.ready, *membership.own.held):
                first = merged.get(item.arrival)
                if first is not None and first.event is item.event:
                    item = item._replace(groups=first.groups + item.groups)
                merged[item.arrival] = item
        return [merged[arrival] for arrival in sorted(merged)]

    # Events

    def view_of(self, groups: Sequence[str]) -> View | None:
        """The view in force in the first of them that the program is in."""
        for name in groups:
            membership = self.memberships.get(name)
            if membership is not None and membership.begun:
                return membership.view
        return None

    def _next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def spread(self, event: Messages | Safe, weight: int) -> None:
        """To every stream of a group that it is for."""
        mine = []
        arrival = self._arrivals = self._arrivals + 1
        for name in event.groups:
            membership = self.memberships.get(name)
            if membership is not None and membership.begun:
                mine.append(name)
                if type(event) is Messages:
                    membership.received = event.place
                if membership.fed:
                    membership.own.put(Item(arrival, event, (name,), weight))
        if self.whole is not None and mine:
            self.whole.put(Item(arrival, event, tuple(mine), weight))

    def tell(self, name: str, event: View | Gap | StateAsked) -> None:
        """To the streams of one group. The question for a state goes to one of them."""
        membership = self.memberships.get(name)
        if membership is None or not (membership.begun or type(event) is View):
            return  # left in the meantime
        if type(event) is View:
            membership.begun = True
            membership.view = event
            membership.received = event.place
            membership.members = membership.members or event.members
        item = Item(self._next_arrival(), event, (name,), EVENT_WEIGHT)
        if membership.fed:
            membership.own.put(item)
        if self.whole is not None and not (membership.fed and type(event) is StateAsked):
            self.whole.put(item)

    def network_changed(self, event: NetworkChanged) -> None:
        if self.whole is not None and self.networks_wanted:
            self.whole.put(Item(self._next_arrival(), event, (), EVENT_WEIGHT))

    def knows(self, view: View, me: ProcessId) -> bool:
        """Whether the view is of this membership: its first one does not have the program come along. Who
        leaves a group and joins it again may still hear of the earlier membership."""
        membership = self.memberships.get(view.group)
        return membership is not None and (membership.begun or me not in view.together)

    def state_begins(self, name: str, donor: ProcessId | None, place: Place) -> None:
        membership = self.memberships.get(name)
        if membership is None or not membership.begun:
            return
        transfer = membership.transfer
        if transfer is None:
            transfer = membership.transfer = Transfer(name, membership.received)
            self.transferring.add(name)
            arrival = self._next_arrival()
            for stream in self._streams_of(membership):
                stream.reserve(arrival, transfer)
        if donor is not None:
            transfer.begin(donor, place)
        else:
            transfer.give_up(place)
            self._settle(membership)

    def state_chunk(self, name: str, donor: ProcessId, content: Payload, last: bool) -> None:
        """A piece of the state. One of a donor that was given up is none."""
        membership = self.memberships.get(name)
        transfer = membership.transfer if membership else None
        if membership is None or transfer is None or donor != transfer.donor:
            return
        transfer.add(content)
        if last:
            transfer.complete()
            self._settle(membership)

    def _settle(self, membership: Membership) -> None:
        assert membership.transfer is not None
        for stream in self._streams_of(membership):
            stream.settle(membership.transfer)
        membership.transfer = None
        self.transferring.discard(membership.name)

    def _streams_of(self, membership: Membership) -> list[Stream]:
        streams = [membership.own] if membership.fed else []
        return streams if self.whole is None else [*streams, self.whole]

    def overfull(self) -> list[str]:
        """Groups whose state, with what waits for it, is more than may be kept."""
        return [name for name in self.transferring if self._kept_bytes(name) > self._state_bytes_max]

    def _kept_bytes(self, name: str) -> int:
        membership = self.memberships[name]
        assert membership.transfer is not None
        waiting = max((stream.held_bytes for stream in self._streams_of(membership)), default=0)
        return membership.transfer.bytes + waiting

    # The life of the session

    def cut(self) -> dict[str, Place | None]:
        """The connection is lost. Where each group's events ended."""
        self.transferring.clear()
        seen = {name: membership.seen for name, membership in self.memberships.items()}
        for membership in self.memberships.values():
            membership.transfer = None
            membership.begun = False
            membership.own.cut()
        if self.whole is not None:
            self.whole.cut()
        return seen

    def streams(self) -> list[Stream]:
        """All that get events."""
        streams = [membership.own for membership in self.memberships.values() if membership.fed]
        return streams if self.whole is None else [*streams, self.whole]

    def reconnected(self, event: Reconnected) -> None:
        arrival = self._next_arrival()
        for stream in self.streams():
            stream.put(Item(arrival, event, tuple(self.memberships), EVENT_WEIGHT))

    def end(self, error: SessionError | None) -> None:
        for name in list(self.memberships):
            self.memberships.pop(name).own.end(error)
        if self.whole is not None:
            self.whole.end(error)

    def take(self, stream: Stream) -> Item | None:
        """The next item of a stream, if it is there."""
        if stream.merged is not None:
            self._check_heeded(stream.merged)
            stream.merged = None
        item = stream.take()
        if item is not None and type(item.event) is View:
            view = item.event
            membership = self.memberships.get(view.group)
            if membership is not None:
                membership.members = view.members
                if membership.has_state and _strangers_in(view):
                    stream.merged = view
        return item

    def _check_heeded(self, view: View) -> None:
        """The program takes the next event: it is done with this view."""
        if not view._has_been_asked:
            self._warn(unheeded(view))
            object.__setattr__(view, "_has_been_asked", True)  # once, however many streams have it
