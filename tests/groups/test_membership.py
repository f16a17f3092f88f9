"""Group membership alone: several that are fed the same order agree, on views, places and donors."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.groups.body import Entry, Part, pack_part, unpack_part
from totempole.groups.events import GroupEvent, GroupView, StateAsked, StateBegins, StateChunk
from totempole.groups.membership import Membership, Places
from totempole.types import (
    NO_RING,
    Configuration,
    ConfigurationKind,
    OrderKey,
    Place,
    ProcessId,
    ProcessorId,
    RingId,
)

REGULAR, TRANSITIONAL = ConfigurationKind.REGULAR, ConfigurationKind.TRANSITIONAL
P1, P2, P3 = (ProcessId(me, 1, 1) for me in (1, 2, 3))


class Fellows:
    """One Membership per processor, each with processes 1 to 3, and the events that they are told."""

    def __init__(self, processors: Iterable[ProcessorId] = (1, 2, 3)) -> None:
        self.told: dict[ProcessId, list[GroupEvent]] = {}
        self.all: dict[ProcessorId, Membership] = {}
        self._seq = 0
        self._ring = 0
        self._ring_of: dict[ProcessorId, RingId] = {}
        for me in processors:
            self.all[me] = Membership(me, 1, self._teller(me))
            for number in (1, 2, 3):
                self.all[me].connect(number)
        self.change(list(self.all))

    def _teller(self, me: ProcessorId) -> Callable[[tuple[int, ...], GroupEvent], None]:
        def tell(numbers: tuple[int, ...], event: GroupEvent) -> None:
            for number in numbers:
                self.told.setdefault(ProcessId(me, 1, number), []).append(event)

        return tell

    def order(self, method: str, *arguments: object, among: Iterable[ProcessorId] | None = None) -> OrderKey:
        """The same at the same place, for all."""
        self._seq += 1
        key = OrderKey(RingId(self._ring, 1), self._seq, NO_RING)
        for me in among or self.all:
            getattr(self.all[me], method)(Places(key), *arguments)
        return key

    def transitional(self, members: Iterable[ProcessorId]) -> None:
        companions = tuple(sorted(members))
        id_ = RingId(self._ring + 2, companions[0])
        for me in companions:
            key = OrderKey(self._ring_of[me], self._seq, id_)
            configuration = Configuration(TRANSITIONAL, id_, companions, key.ring_id, key.seq, NO_RING)
            assert self.all[me].install(configuration, key) is None

    def regular(self, members: Iterable[ProcessorId]) -> dict[ProcessorId, Part]:
        """What each of them tells the others."""
        members = tuple(sorted(members))
        self._ring += 4
        self._seq = 0
        id_ = RingId(self._ring, members[0])
        self._ring_of |= dict.fromkeys(members, id_)
        configuration = Configuration(REGULAR, id_, members, id_, 0, NO_RING)
        parts = {me: self.all[me].install(configuration, OrderKey(id_, 0, NO_RING)) for me in members}
        return {me: part for me, part in parts.items() if part is not None}

    def exchange(self, parts: dict[ProcessorId, Part]) -> None:
        for at, (me, part) in enumerate(sorted(parts.items(), reverse=True), 1):
            part = unpack_part(pack_part(part))
            self._seq += 1
            key = OrderKey(RingId(self._ring, 1), self._seq, NO_RING)
            for other in parts:
                assert self.all[other].add_part(Places(key), me, 1, part) == (at == len(parts))

    def change(self, members: list[ProcessorId], *companions: list[ProcessorId]) -> None:
        for each in companions:
            self.transitional(each)
        self.exchange(self.regular(members))

    def views(self, process: ProcessId) -> list[GroupView]:
        return [event for event in self.told.get(process, []) if isinstance(event, GroupView)]

    def agree(self) -> None:
        tables = [membership.groups for membership in self.all.values()]
        assert all(table == tables[0] for table in tables)


steps = st.lists(
    st.tuples(
        st.sampled_from(("join", "leave", "disconnect")),
        st.builds(ProcessId, st.integers(1, 3), st.just(1), st.integers(1, 3)),
        st.sampled_from(("g", "h")),
        st.booleans(),
        st.booleans(),
    ),
    max_size=30,
)


@given(steps)
def test_all_who_are_fed_the_same_order_tell_the_same(
    happened: list[tuple[str, ProcessId, str, bool, bool]],
) -> None:
    fellows = Fellows()
    for what, process, group, donor, wants_state in happened:
        if what == "join":
            fellows.order("join", process, group, donor, wants_state)
        elif what == "leave":
            fellows.order("leave", process, group)
        else:
            fellows.order("disconnect", process, 2)
        fellows.agree()
    views: dict[tuple[str, Place], GroupView] = {}
    for process in fellows.told:
        for view in fellows.views(process):
            assert views.setdefault((view.group, view.place), view) == view
            assert process in view.members


def test_a_view_tells_who_came_along() -> None:
    fellows = Fellows()
    key = fellows.order("join", P1, "g", False, False)
    assert fellows.views(P1) == [GroupView("g", REGULAR, (P1,), (), Place(key, 0), "join")]
    key = fellows.order("join", P2, "g", False, False)
    expected = GroupView("g", REGULAR, (P1, P2), (P1,), Place(key, 0), "join")
    assert fellows.views(P1)[-1] == fellows.views(P2)[-1] == expected
    key = fellows.order("leave", P1, "g")
    assert fellows.views(P2)[-1] == GroupView("g", REGULAR, (P2,), (P2,), Place(key, 0), "leave")
    assert len(fellows.views(P1)) == 2


def test_joining_twice_and_leaving_what_was_not_joined_tell_nothing() -> None:
    fellows = Fellows()
    fellows.order("join", P1, "g", False, False)
    fellows.told.clear()
    fellows.order("join", P1, "g", True, True)
    fellows.order("leave", P2, "g")
    fellows.order("leave", P2, "nothing")
    fellows.order("disconnect", P3, 0)
    assert fellows.told == {}


def test_whoever_disconnects_leaves_each_group_at_a_place_of_its_own() -> None:
    fellows = Fellows()
    for group in ("h", "g"):
        for process in (P1, P2):
            fellows.order("join", process, group, False, False)
    fellows.told.clear()
    key = fellows.order("disconnect", P1, 2)
    assert [(view.group, view.place, view.changed) for view in fellows.views(P2)] == [
        ("g", Place(key, 0), "disconnect"),
        ("h", Place(key, 1), "disconnect"),
    ]


def test_what_follows_a_disconnect_has_one_place_also_for_those_who_had_the_process_out_already() -> None:
    """Found by `totem fuzz --groups --seed 2017`: a message behind it in the packet had two places."""
    fellows = Fellows()
    for group in ("h", "g"):
        fellows.order("join", P1, group, False, False)
    fellows.transitional([2])
    key = OrderKey(RingId(9, 1), 1, NO_RING)
    following = []
    for me in (1, 2):
        places = Places(key)
        fellows.all[me].disconnect(places, P1, 2)
        following.append(places.next())
    assert following == [Place(key, 2), Place(key, 2)]


def test_whoever_is_forgotten_is_told_nothing_though_it_is_still_in_the_table() -> None:
    fellows = Fellows()
    fellows.order("join", P1, "g", False, False)
    fellows.all[1].forget(1)
    fellows.told.clear()
    fellows.order("join", P2, "g", False, False)
    assert P1 not in fellows.told
    assert fellows.views(P2)[0].members == (P1, P2)
    assert fellows.all[1].local("g") == ()


def test_only_groups_that_lose_someone_get_a_transitional_view_and_places_are_the_same_for_all() -> None:
    fellows = Fellows()
    for process, group in ((P1, "a"), (P1, "g"), (P2, "g"), (P3, "g"), (P1, "z"), (P2, "z")):
        fellows.order("join", process, group, False, False)
    fellows.told.clear()
    fellows.transitional([1, 2])
    assert [(view.group, view.kind, view.place.index) for view in fellows.views(P1)] == [
        ("g", TRANSITIONAL, 1)
    ]
    assert fellows.views(P1) == fellows.views(P2)
    fellows.exchange(fellows.regular([1, 2]))
    assert [(view.group, view.kind) for view in fellows.views(P1)[1:]] == [("g", REGULAR)]


def test_no_views_are_in_force_until_the_last_part_is_there() -> None:
    fellows = Fellows()
    epoch = fellows.all[1].epoch
    assert epoch is not None
    fellows.transitional([1, 2, 3])
    assert fellows.all[1].epoch == epoch
    parts = fellows.regular([1, 2, 3])
    assert fellows.all[1].epoch is None
    assert fellows.all[1].exchanging == RingId(8, 1)
    fellows.exchange(parts)
    assert fellows.all[1].epoch == RingId(8, 1)
    assert fellows.all[1].exchanging is None


def test_parts_tell_only_of_a_processors_own_processes() -> None:
    fellows = Fellows()
    fellows.order("join", P1, "g", True, False)
    fellows.order("join", P2, "g", False, False)
    fellows.transitional([1, 2])
    parts = fellows.regular([1, 2])
    assert parts[1] == Part(frozenset((1, 2)), {1: {"g": Entry(True)}})
    assert parts[2] == Part(frozenset((1, 2)), {1: {"g": Entry()}})


def test_who_came_along_is_who_came_along_through_all_changes_since_the_last_table() -> None:
    fellows = Fellows()
    for process in (P1, P2, P3):
        fellows.order("join", process, "g", False, False)
    fellows.transitional([1, 2])
    fellows.transitional([3])
    fellows.regular([1, 2])
    fellows.regular([3])
    fellows.transitional([1])
    fellows.transitional([2])
    fellows.transitional([3])
    parts = fellows.regular([1, 2, 3])
    assert {me: part.together for me, part in parts.items()} == {1: {1}, 2: {2}, 3: {3}}
    fellows.exchange(parts)
    for process in (P1, P2, P3):
        last = fellows.views(process)[-1]
        assert (last.members, last.together) == ((P1, P2, P3), (process,))


def test_who_went_apart_and_came_back_before_any_table_did_not_come_along() -> None:
    fellows = Fellows([1, 2])
    fellows.transitional([1])
    fellows.transitional([2])
    fellows.regular([1])
    fellows.regular([2])
    fellows.transitional([1])
    fellows.transitional([2])
    fellows.regular([1, 2])
    fellows.transitional([1, 2])
    parts = fellows.regular([1, 2])
    assert {me: part.together for me, part in parts.items()} == {1: {1}, 2: {2}}


def test_a_new_life_does_not_inherit_the_groups_of_the_old_one() -> None:
    fellows = Fellows([1, 2])
    fellows.order("join", P2, "g", False, False)
    fellows.all[2] = Membership(2, 2, lambda numbers, event: None)
    fellows.transitional([1])
    parts = fellows.regular([1, 2])
    assert parts[2] == Part(frozenset((2,)), {})
    fellows.exchange(parts)
    assert fellows.all[1].groups == {}


# State for joiners


def asked(fellows: Fellows, donor: ProcessId) -> StateAsked:
    event = fellows.told[donor][-1]
    assert isinstance(event, StateAsked)
    return event


def begun(fellows: Fellows, joiner: ProcessId) -> ProcessId | None:
    event = next(event for event in reversed(fellows.told[joiner]) if isinstance(event, StateBegins))
    return event.donor


def test_state_comes_only_from_whom_it_is_expected_as_of_where() -> None:
    fellows = Fellows()
    fellows.order("join", P1, "g", True, False)
    fellows.order("join", P2, "g", False, True)
    place = asked(fellows, P1).place
    assert all(each.expects(P1, "g", P2, place) for each in fellows.all.values())
    fellows.told.clear()
    fellows.order("state", P3, "g", P2, place, b"of another", False)
    fellows.order("state", P1, "h", P2, place, b"of another group", False)
    fellows.order("state", P1, "g", P3, place, b"for another", False)
    fellows.order("state", P1, "g", P2, place._replace(index=7), b"of another place", False)
    assert fellows.told == {}
    fellows.order("state", P1, "g", P2, place, b"first", False)
    fellows.order("state", P1, "g", P2, place, b"last", True)
    fellows.order("state", P1, "g", P2, place, b"after the last", False)
    chunks = [event for event in fellows.told[P2] if isinstance(event, StateChunk)]
    assert [(chunk.content, chunk.last) for chunk in chunks] == [(b"first", False), (b"last", True)]
    assert not fellows.all[1].expects(P1, "g", P2, place)


def test_a_joiner_that_has_its_state_can_give_it() -> None:
    fellows = Fellows()
    fellows.order("join", P3, "g", True, False)
    fellows.order("join", P1, "g", True, True)
    assert begun(fellows, P1) == P3
    fellows.order("join", P2, "g", False, True)
    assert begun(fellows, P2) == P3
    fellows.order("state", P3, "g", P1, asked_of(fellows, P3, P1).place, b"", True)
    fellows.order("leave", P3, "g")
    assert begun(fellows, P2) == P1


def asked_of(fellows: Fellows, donor: ProcessId, joiner: ProcessId) -> StateAsked:
    return next(
        event for event in fellows.told[donor] if isinstance(event, StateAsked) and event.joiner == joiner
    )


@pytest.mark.parametrize("comes_along", [True, False])
def test_a_donor_goes_on_giving_if_it_came_along(comes_along: bool) -> None:
    fellows = Fellows()
    fellows.order("join", P1, "g", True, False)
    fellows.order("join", P3, "g", True, False)
    fellows.order("join", P2, "g", False, True)
    place = asked(fellows, P1).place
    companions = ([1, 2], [3]) if comes_along else ([1], [2, 3])
    fellows.change([1, 2, 3], *companions)
    assert fellows.all[2].expects(P1, "g", P2, place) == comes_along
    assert begun(fellows, P2) == (P1 if comes_along else P3)
    fellows.agree()


def test_processors_that_did_not_see_the_join_know_who_gives() -> None:
    """Processor 3 was away when it was decided; the table tells it."""
    fellows = Fellows()
    fellows.transitional([1, 2])
    fellows.transitional([3])
    fellows.exchange(fellows.regular([3]))
    fellows.exchange(fellows.regular([1, 2]))
    fellows.order("join", P1, "g", True, False, among=(1, 2))
    fellows.order("join", P2, "g", False, True, among=(1, 2))
    place = asked(fellows, P1).place
    fellows.change([1, 2, 3], [1, 2], [3])
    assert all(each.expects(P1, "g", P2, place) for each in fellows.all.values())
    fellows.order("join", P3, "g", True, True)
    assert begun(fellows, P3) == P1
