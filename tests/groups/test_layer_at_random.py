"""Whatever happens to a few processors and their processes, what virtual synchrony promises holds.

The order is conducted by hand (layers_by_hand.py), so that every interleaving of sending, ordering,
delivering and changing configurations can come up, and a failure shrinks to a few steps.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from layers_by_hand import Cluster

from sweeps import examples
from totempole.groups.commands import Disconnect, GiveState, LeaveGroup
from totempole.groups.events import (
    BecameSafe,
    GroupMessages,
    GroupView,
    StateAsked,
    StateBegins,
    StateChunk,
)
from totempole.groups.packing import Batch
from totempole.types import ConfigurationKind, Place, ProcessId, Service

PROCESSORS = 4
PER_PROCESSOR = 2
GROUPS = ("g", "h")
SIZES = (0, 40, 700, 3_000)
PIECES = 3

processors = st.integers(1, PROCESSORS)
slots = st.tuples(processors, st.integers(0, PER_PROCESSOR - 1))
groups = st.sampled_from([("g",), ("h",), ("g", "h")])
components = st.lists(st.integers(0, 2), min_size=PROCESSORS, max_size=PROCESSORS)

steps = st.one_of(
    st.tuples(st.just("come"), slots),
    st.tuples(st.just("go"), slots),
    st.tuples(st.just("join"), slots, st.sampled_from(GROUPS), st.booleans(), st.booleans()),
    st.tuples(st.just("give"), slots),
    st.tuples(st.just("leave"), slots, st.sampled_from(GROUPS)),
    st.tuples(st.just("send"), slots, groups, st.sampled_from(SIZES), st.sampled_from(Service)),
    st.tuples(st.just("send"), slots, groups, st.sampled_from(SIZES), st.sampled_from(Service)),
    st.tuples(st.just("originate"), processors, st.integers(1, 5)),
    st.tuples(st.just("deliver"), processors, st.integers(1, 5)),
    st.just(("run",)),
    st.tuples(st.just("change"), components, st.sets(st.integers(0, 2), max_size=1)),
    st.tuples(st.just("restart"), processors),
)


def piece_of(donor: ProcessId, joiner: ProcessId, place: Place, piece: int) -> bytes:
    return f"{donor} gives {joiner} as of {place}: {piece} ".encode() + b"." * 800


class Segment(NamedTuple):
    """What a process was told in one view of a group."""

    view: GroupView
    messages: list[tuple[ProcessId, int]]


class History:
    def __init__(self) -> None:
        self.cluster = Cluster(PROCESSORS, packet_bytes_max=1_200, packets_ahead=2)
        self._lives = dict.fromkeys(range(1, PROCESSORS + 1), 1)
        self._numbers = dict.fromkeys(range(1, PROCESSORS + 1), 0)
        self._slots: dict[tuple[int, int], ProcessId] = {}
        self._joined: set[tuple[ProcessId, str]] = set()
        self.sent: dict[tuple[ProcessId, int], bytes] = {}
        self._sent_by: dict[ProcessId, int] = {}
        self._given: dict[tuple[ProcessId, StateAsked], int] = {}
        for me in self._lives:
            for slot in range(PER_PROCESSOR):
                self.come((me, slot))
                self.join((me, slot), "g")
        self.cluster.run()

    # Steps

    def come(self, slot: tuple[int, int]) -> None:
        if slot not in self._slots:
            me = slot[0]
            self._numbers[me] += 1
            self._slots[slot] = self.cluster.connect(me, self._numbers[me])

    def go(self, slot: tuple[int, int]) -> None:
        if slot in self._slots:
            process = self._slots.pop(slot)
            self._forget(process)
            self.cluster.ask(process.processor, Disconnect(process.number))

    def _forget(self, process: ProcessId) -> None:
        self._joined = {(member, group) for member, group in self._joined if member != process}

    def join(self, slot: tuple[int, int], group: str, donor: bool = False, wants_state: bool = False) -> None:
        process = self._slots.get(slot)
        if process is not None and (process, group) not in self._joined:
            self._joined.add((process, group))
            self.cluster.join(process, group, donor, wants_state)

    def give(self, slot: tuple[int, int]) -> None:
        """The next piece of everything that a process was asked for."""
        process = self._slots.get(slot)
        for asked in self.cluster.told(process, StateAsked) if process is not None else ():
            piece = self._given.get((process, asked), 0)
            if piece < PIECES:
                self._given[process, asked] = piece + 1
                content, last = piece_of(process, asked.joiner, asked.place, piece), piece == PIECES - 1
                arguments = (process.number, asked.group, asked.joiner, asked.place, content, last)
                self.cluster.ask(process.processor, GiveState(*arguments))

    def leave(self, slot: tuple[int, int], group: str) -> None:
        process = self._slots.get(slot)
        if process is not None and (process, group) in self._joined:
            self._joined.discard((process, group))
            self.cluster.ask(process.processor, LeaveGroup(process.number, group))

    def send(self, slot: tuple[int, int], names: tuple[str, ...], size: int, service: Service) -> None:
        process = self._slots.get(slot)
        if process is not None:
            number = self._sent_by[process] = self._sent_by.get(process, 0) + 1
            payload = self.sent[process, number] = f"{process}:{number} ".encode() + b"." * size
            self.cluster.multicast(process, names, payload, service=service, notice=number % 2 == 0)

    def originate(self, me: int, packets: int) -> None:
        self.cluster.originate(me, packets)

    def deliver(self, me: int, packets: int) -> None:
        self.cluster.deliver(me, packets)

    def run(self) -> None:
        self.cluster.run()

    def change(self, component_of: list[int], cut_off: set[int]) -> None:
        found: dict[int, list[int]] = {}
        for me, component in enumerate(component_of, 1):
            found.setdefault(component, []).append(me)
        missed = [me for me, component in enumerate(component_of, 1) if component in cut_off]
        self.cluster.change(found.values(), missed)

    def restart(self, me: int) -> None:
        for slot in [slot for slot in self._slots if slot[0] == me]:
            self._forget(self._slots.pop(slot))
        self._lives[me] += 1
        self._numbers[me] = 0
        self.cluster.crash(me)
        self.cluster.start(me, self._lives[me])

    # What must hold

    def check(self) -> None:
        self.cluster.merge()
        for process in self.cluster.events:
            self._check_stream(process)
        for group in GROUPS:
            segments = {process: self._segments(process, group) for process in self.cluster.events}
            for process, own in segments.items():
                for before, after in pairwise(own):
                    self._check_company(segments, process, before, after)
            self._check_end(group)
        self._check_state()

    def _check_stream(self, process: ProcessId) -> None:
        """Places grow; each message comes at most once, whole, in its sender's order."""
        places: list[Place] = []
        numbers: dict[ProcessId, int] = {}
        for event in self.cluster.events[process]:
            if isinstance(event, BecameSafe):
                assert event.place in places
                continue
            if isinstance(event, StateAsked | StateBegins):
                assert event.place == places[-1]  # of the view that brought the joiner, or its donor's end
                continue
            assert not places or places[-1] < event.place
            places.append(event.place)
            if isinstance(event, GroupMessages):
                assert event.number > numbers.get(event.sender, 0)
                numbers[event.sender] = event.number
                assert list(Batch(event.batch)) == [self.sent[event.sender, event.number]]

    def _segments(self, process: ProcessId, group: str) -> list[Segment]:
        segments: list[Segment] = []
        for event in self.cluster.events[process]:
            if isinstance(event, GroupView) and event.group == group:
                assert process in event.members
                assert set(event.together) <= set(event.members)
                segments.append(Segment(event, []))
            elif isinstance(event, GroupMessages) and group in event.groups and segments:
                segments[-1].messages.append((event.sender, event.number))
        return segments

    def _check_company(
        self, segments: dict[ProcessId, list[Segment]], process: ProcessId, before: Segment, after: Segment
    ) -> None:
        """Who came along from the view before has had the same messages in it."""
        for other in set(after.view.together) - {process}:
            theirs = segments[other]
            places = [segment.view.place for segment in theirs]
            if after.view.place not in places:
                continue  # it left before it was told
            at = places.index(after.view.place)
            assert theirs[at].view.members == after.view.members
            if process in theirs[at].view.together:
                assert theirs[at].view == after.view
                assert theirs[at - 1].messages == before.messages
                assert theirs[at - 1].view.place == before.view.place

    def _check_end(self, group: str) -> None:
        """One table; its members have it as their view; nobody's own messages are missing."""
        members = tuple(sorted(process for process, joined in self._joined if joined == group))
        for layer in self.cluster.layers.values():
            assert layer.views_in_force
            assert layer.waiting_bytes == 0
            assert layer.groups.get(group, ()) == members
            assert not layer.dropped
        for process in members:
            last = self.cluster.views(process, group)[-1]
            assert (last.kind, last.members) == (ConfigurationKind.REGULAR, members)

    def _check_state(self) -> None:
        """Each joiner has what the donor that it was told of last has given, piece by piece, to the end."""
        for _ in range(PIECES):
            for slot in self._slots:
                self.give(slot)
            self.cluster.run()
        for joiner in self.cluster.events:
            for group in GROUPS:
                begun: StateBegins | None = None
                got: list[bytes] = []
                for event in self.cluster.events[joiner]:
                    if isinstance(event, StateBegins) and event.group == group:
                        begun, got = event, []
                    elif isinstance(event, StateChunk) and event.group == group:
                        assert begun is not None
                        assert event.donor == begun.donor
                        assert event.content == piece_of(event.donor, joiner, begun.place, len(got))
                        got.append(bytes(event.content))
                        assert event.last == (len(got) == PIECES)
                if (joiner, group) in self._joined and begun is not None and begun.donor is not None:
                    assert len(got) == PIECES

    def check_own(self) -> None:
        """What a process sends to a group after it joined it, and before it leaves, comes back to it."""
        for process in self._slots.values():
            if (process, "g") in self._joined:
                before = len(self.cluster.messages(process))
                payload = f"last of {process}".encode()
                self.cluster.multicast(process, "g", payload)
                self.cluster.run()
                assert self.cluster.messages(process)[before:] == [payload]


@settings(max_examples=examples(200))
@given(st.lists(steps, max_size=40))
def test_whatever_happens(happened: list[tuple[object, ...]]) -> None:
    history = History()
    for name, *arguments in happened:
        getattr(history, str(name))(*arguments)
    history.check()
    history.check_own()


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=12),
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), components, st.sets(st.integers(0, 2), max_size=1)),
        max_size=6,
    ),
)
def test_a_member_gets_all_its_own_messages_once_in_order_whatever_changes(
    sizes: list[int], changes: list[tuple[int, int, list[int], set[int]]]
) -> None:
    history = History()
    for size in sizes:
        history.send((1, 0), ("g",), size, Service.AGREED)
    for originated, delivered, component_of, cut_off in changes:
        history.originate(1, originated)
        history.deliver(1, delivered)
        history.change(component_of, cut_off)
        for me in (2, 3, 4):
            history.originate(me, delivered)
    history.check()
    own = history.cluster.messages(ProcessId(1, 1, 1))
    assert own == list(history.sent.values())
