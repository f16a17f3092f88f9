"""Group membership as the total order makes it: views, the exchange of tables, and who gives a joiner state.

Totem CACM "The Totem Process Group Interface": who joins or leaves a group says so in the total order. Every
processor keeps the table of all groups (the paper: of those that it has members of), so that any process may
send to any group and any processor can tell who is where.

A change of configuration, in the terms of extended virtual synchrony:

- The transitional configuration: those who did not come along are out of the table. Groups that lose
  someone get a transitional view.
- The regular one: each processor broadcasts what its own processes are in, and who came along with it. When
  the parts of all members are there, at one place in the order, they are the new table; regular views follow.
  A further change before that starts the exchange anew with the processors that are then there.

Between a regular configuration and the end of its exchange no view is in force and nothing is delivered
(layer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from totempole.errors import CodecError
from totempole.groups.body import Entry, Part
from totempole.groups.events import GroupEvent, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.table import Table
from totempole.types import (
    NO_RING,
    Configuration,
    ConfigurationKind,
    OrderKey,
    Payload,
    Place,
    ProcessId,
    ProcessorId,
    RingId,
)

Tell = Callable[[tuple[int, ...], GroupEvent], None]
"""An event for processes of this processor."""


class Places:
    """Gives out the places within one packet, or one change of configuration: the same at every processor."""

    __slots__ = ("_key", "_next")

    def __init__(self, key: OrderKey) -> None:
        self._key = key
        self._next = 0

    def next(self) -> Place:
        place = Place(self._key, self._next)
        self._next += 1
        return place

    def skip(self, count: int) -> None:
        assert count >= 0, "places only ascend"
        self._next += count


class Membership:
    def __init__(self, me: ProcessorId, incarnation: int, tell: Tell) -> None:
        self.epoch: RingId | None = None
        """The configuration whose views are in force."""
        self.exchanging: RingId | None = None
        """The configuration whose members are telling each other their parts of the table."""
        self._me = me
        self._incarnation = incarnation
        self._tell = tell
        self._table = Table()
        self._transitional = False
        self._lineage: frozenset[ProcessorId] | None = None
        """Who came along since the last table, if a configuration has changed since."""
        self._members: frozenset[ProcessorId] = frozenset()
        self._parts: dict[ProcessorId, tuple[int, Part]] = {}
        self._unsettled: set[str] = set()
        """Groups that have a transitional view."""
        self._connected: set[int] = set()
        self._local: dict[str, tuple[int, ...]] = {}
        self._reached = OrderKey(NO_RING, -1, NO_RING)
        """Where the order was last, for assertions."""

    # This processor's own processes

    def connect(self, number: int) -> None:
        assert number not in self._connected, "a number is given once"
        self._connected.add(number)

    def forget(self, number: int) -> None:
        """The process is told nothing any more, though the order may not have it out of its groups yet."""
        assert number in self._connected, "only who is connected is forgotten"
        self._connected.discard(number)
        self._local.clear()

    def local(self, group: str) -> tuple[int, ...]:
        """The processes of this processor that are in the group."""
        numbers = self._local.get(group)
        if numbers is None:
            if not self._table.entries(group):
                return ()  # and remember nothing of it: anyone may send to any name
            numbers = self._local[group] = tuple(
                process.number
                for process in self._table.members(group)
                if process.processor == self._me and process.number in self._connected
            )
        return numbers

    def local_of(self, groups: tuple[str, ...]) -> tuple[int, ...]:
        if len(groups) == 1:
            return self._local.get(groups[0]) or self.local(groups[0])
        return tuple(sorted({number for group in groups for number in self.local(group)}))

    @property
    def groups(self) -> dict[str, tuple[ProcessId, ...]]:
        return {group: self._table.members(group) for group in self._table.names}

    @property
    def info(self) -> dict[str, dict[ProcessId, bytes]]:
        """What members have said of themselves, where they have."""
        told: dict[str, dict[ProcessId, bytes]] = {}
        for group in self._table.names:
            for process, entry in self._table.entries(group).items():
                if entry.info:
                    told.setdefault(group, {})[process] = entry.info
        return told

    @property
    def group_count(self) -> int:
        return len(self._table)

    @property
    def transitional(self) -> bool:
        return self._transitional

    # What the order brings

    def follows(self, key: OrderKey) -> bool:
        """Whether the order has not been there yet. For assertions: asked once of each packet and change."""
        before, self._reached = self._reached, key
        return before < key

    def join(
        self,
        places: Places,
        process: ProcessId,
        group: str,
        donor: bool,
        wants_state: bool,
        info: bytes = b"",
    ) -> None:
        place = places.next()
        if self._is_out(process) or process in self._table.entries(group):
            return
        before = self._table.members(group)
        self._put(group, process, Entry(donor, info=info))
        self._tell_view(group, before, place, "join")
        if wants_state:
            self._find_source(group, process, place)

    def leave(self, places: Places, process: ProcessId, group: str, why: str = "leave") -> None:
        place = places.next()
        if process in self._table.entries(group):
            before = self._table.members(group)
            self._remove(group, process)
            self._tell_view(group, before, place, why)
            self._replace_source(group, process, place)

    def disconnect(self, places: Places, process: ProcessId, count: int) -> None:
        """`count`: how many groups it had asked to be in. So many places are taken, also where its processor
        did not come along and the table has it no more: what follows has one place for all."""
        groups = self._table.groups_of(process)
        for group in groups:
            self.leave(places, process, group, "disconnect")
        places.skip(max(0, count - len(groups)))

    def state(
        self,
        places: Places,
        sender: ProcessId,
        group: str,
        joiner: ProcessId,
        asked: Place,
        content: Payload,
        last: bool,
    ) -> None:
        """Only from whom the joiner expects it, as of where it does."""
        place = places.next()
        entry = self._table.entries(group).get(joiner)
        if entry is None or (entry.source, entry.asked) != (sender, asked):
            return
        assert self.epoch is not None, "state is given while views are in force"
        if last:
            self._put(group, joiner, Entry(entry.donor, info=entry.info))
        self._tell_one(joiner, StateChunk(group, sender, content, last, place))

    def expects(self, donor: ProcessId, group: str, joiner: ProcessId, asked: Place) -> bool:
        entry = self._table.entries(group).get(joiner)
        return entry is not None and (entry.source, entry.asked) == (donor, asked)

    # Changes of configuration

    def install(self, configuration: Configuration, key: OrderKey) -> Part | None:
        """What to broadcast of this processor's own, if it is a regular configuration."""
        assert self.follows(key), "a change comes after all that was delivered"
        assert self.epoch is None or self.exchanging is None, "views in force while tables are exchanged"
        assert (self.epoch or self.exchanging or NO_RING) < configuration.id, "names of configurations ascend"
        assert self._me in configuration.members, "a processor is in its own configurations"
        assert configuration.members == tuple(sorted(set(configuration.members))), "members are sorted"
        if configuration.kind is ConfigurationKind.TRANSITIONAL:
            self._install_transitional(frozenset(configuration.members), key)
            return None
        self._transitional = False
        self.epoch = None
        self.exchanging = configuration.id
        self._members = frozenset(configuration.members)
        self._lineage = self._lineage or frozenset((self._me,))
        self._parts.clear()
        assert self._me in self._lineage <= self._members, "who came along is in the configuration"
        return self._table.part_of(self._me, self._lineage)

    def _install_transitional(self, members: frozenset[ProcessorId], key: OrderKey) -> None:
        assert not self._transitional, "a regular configuration follows a transitional one"
        assert members <= self._members, "nobody joins in a transitional configuration"
        self._transitional = True
        self._lineage = members if self._lineage is None else self._lineage & members
        if self.epoch is None:
            self.exchanging = None  # and begin again with those who are there in the next
            return
        before = self.groups
        self._table.keep_processors(members)
        self._local.clear()
        places = Places(key)
        for group, old in before.items():
            place = places.next()
            if self._table.members(group) != old:
                self._tell_view(group, old, place, "configuration")

    def add_part(self, places: Places, origin: ProcessorId, incarnation: int, part: Part) -> bool:
        """Whether this was the last part: the new views are in force."""
        if self.exchanging is None or origin not in self._members:
            raise CodecError("group table out of place")
        self._parts[origin] = (incarnation, part)
        if self._parts.keys() != self._members:
            return False
        before, self._table = self._table, Table()
        for processor in sorted(self._parts):
            self._table.add_part(processor, *self._parts[processor])
        lineage = self._lineage or frozenset()
        self.epoch, self.exchanging, self._lineage = self.exchanging, None, None
        self._local.clear()
        self._tell_new_views(places, before, lineage)
        self._parts.clear()
        self._unsettled.clear()
        return True

    def _tell_new_views(self, places: Places, before: Table, lineage: frozenset[ProcessorId]) -> None:
        for group in self._table.names:
            place = places.next()
            old = before.members(group)
            new = self._table.members(group)
            entries = self._table.entries(group)
            together = tuple(
                process for process in old if process.processor in lineage and process in entries
            )
            if new != old or together != old or group in self._unsettled:
                self._tell_members(group, together, place, "configuration")
            for joiner, entry in list(self._table.entries(group).items()):
                if entry.source is not None:
                    self._check_source(group, joiner, entry, place)

    # Views

    def _tell_view(self, group: str, before: Iterable[ProcessId], place: Place, why: str) -> None:
        assert self.epoch is not None, "views change while views are in force"
        members = self._table.entries(group)
        self._tell_members(group, tuple(process for process in before if process in members), place, why)

    def _tell_members(self, group: str, together: tuple[ProcessId, ...], place: Place, why: str) -> None:
        if self._transitional:
            self._unsettled.add(group)  # also who joins or leaves in it: a regular view must follow
        numbers = self.local(group)
        if numbers:
            kind = ConfigurationKind.TRANSITIONAL if self._transitional else ConfigurationKind.REGULAR
            members = self._table.members(group)
            assert set(together) <= set(members), "who came along is in the view"
            info = self._info_of(group, members)
            self._tell(numbers, GroupView(group, kind, members, together, place, why, info))

    def _info_of(self, group: str, members: tuple[ProcessId, ...]) -> tuple[bytes, ...]:
        entries = self._table.entries(group)
        info = tuple(entries[process].info for process in members)
        return info if any(info) else ()

    def _is_out(self, process: ProcessId) -> bool:
        """A message of someone who did not come along may still be delivered; it does not bring him back."""
        return self._transitional and process.processor not in (self._lineage or ())

    def _put(self, group: str, process: ProcessId, entry: Entry) -> None:
        self._table.put(group, process, entry)
        self._local.pop(group, None)

    def _remove(self, group: str, process: ProcessId) -> None:
        self._table.remove(group, process)
        self._local.pop(group, None)

    # State for joiners

    def _find_source(
        self,
        group: str,
        joiner: ProcessId,
        place: Place,
        companions: frozenset[ProcessorId] = frozenset(),
    ) -> None:
        """The first member that can give the state and is not waiting for it itself: one who came along with
        the joiner if there is one, or else anyone, for the joiner has no state yet that could differ."""
        entries = self._table.entries(group)
        assert joiner in entries, "state is for members"
        source = min(
            (
                process
                for process, entry in entries.items()
                if process != joiner and entry.donor and entry.source is None
            ),
            key=lambda process: (process.processor not in companions, process),
            default=None,
        )
        asked = None if source is None else place
        self._put(group, joiner, entries[joiner]._replace(source=source, asked=asked))
        self._tell_one(joiner, StateBegins(group, source, place))
        if source is not None:
            self._tell_one(source, StateAsked(group, joiner, place))

    def _replace_source(self, group: str, gone: ProcessId, place: Place) -> None:
        assert gone not in self._table.entries(group), "whoever is replaced is gone"
        for joiner, entry in sorted(self._table.entries(group).items()):
            if entry.source == gone:
                self._find_source(group, joiner, place)

    def _check_source(self, group: str, joiner: ProcessId, entry: Entry, place: Place) -> None:
        """After a change of configuration: a source must have come along with its joiner."""
        assert joiner.processor in self._members, "the table holds processes of members"
        _, part = self._parts[joiner.processor]
        source = entry.source
        if source is not None and source.processor in part.together:
            there = self._table.entries(group).get(source)
            if there is not None and there.donor:
                return
        self._find_source(group, joiner, place, part.together)

    def _tell_one(self, process: ProcessId, event: GroupEvent) -> None:
        if process.processor == self._me and process.number in self._connected:
            self._tell((process.number,), event)
