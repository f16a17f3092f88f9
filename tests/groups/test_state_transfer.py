"""State for a joiner: as of its place in the order, from a donor that comes along, or from another one."""

from __future__ import annotations

import pytest
from layers_by_hand import Cluster

from totempole.errors import ConfigurationError, SessionError
from totempole.groups.commands import Disconnect, GiveState, LeaveGroup
from totempole.groups.events import (
    GroupEvent,
    GroupMessages,
    GroupView,
    StateAsked,
    StateBegins,
    StateChunk,
)
from totempole.groups.layer import STATE_CHUNK_BYTES_MAX
from totempole.groups.packing import Batch
from totempole.types import ProcessId


class Replicas:
    """Processes whose state is the list of all messages; donors give it as a client would."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._read: dict[ProcessId, int] = {}
        self.states: dict[ProcessId, list[bytes]] = {}
        self.snapshots: dict[tuple[ProcessId, ProcessId], tuple[StateAsked, bytes]] = {}
        """What a donor was asked for, by donor and joiner."""
        self._chunks: dict[ProcessId, bytes] = {}
        self.waiting: set[ProcessId] = set()

    def founder(self, me: int, number: int = 1) -> ProcessId:
        process = self.cluster.member(me, "g", number, donor=True)
        self.states[process] = []
        return process

    def joiner(self, me: int, number: int = 1, donor: bool = True) -> ProcessId:
        process = self.cluster.connect(me, number)
        self.cluster.join(process, "g", donor, wants_state=True)
        self.states[process] = []
        self.waiting.add(process)
        return process

    def read(self) -> None:
        """Every process takes in what it has been told since."""
        for process in self.states:
            events = self.cluster.events[process]
            for event in events[self._read.get(process, 0) :]:
                self._take(process, event)
            self._read[process] = len(events)

    def _take(self, process: ProcessId, event: GroupEvent) -> None:
        match event:
            case GroupMessages():
                self.states[process] += Batch(event.batch)
            case StateAsked():
                self.snapshots[process, event.joiner] = (event, b"".join(self.states[process]))
            case StateBegins(donor=donor):
                self._chunks[process] = b""
                self.states[process] = []
                if donor is None:
                    self.waiting.discard(process)
            case StateChunk(content=content, last=last):
                self._chunks[process] += bytes(content)
                if last:
                    self.states[process].insert(0, self._chunks.pop(process))
                    self.waiting.discard(process)

    def give(self, donor: ProcessId, joiner: ProcessId, pieces: int = 1, up_to: int | None = None) -> None:
        """The state in so many pieces, or only the first of them."""
        asked, state = self.snapshots[donor, joiner]
        size = -(-len(state) // pieces)
        for piece in range(pieces if up_to is None else up_to):
            content, last = state[piece * size : (piece + 1) * size], piece == pieces - 1
            arguments = (donor.number, "g", joiner, asked.place, content, last)
            self.cluster.ask(donor.processor, GiveState(*arguments))

    def state(self, process: ProcessId) -> bytes:
        self.read()
        return b"".join(self.states[process])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(4, packet_bytes_max=1_000, packets_ahead=2)


@pytest.fixture
def replicas(cluster: Cluster) -> Replicas:
    return Replicas(cluster)


def grown(cluster: Cluster, process: ProcessId) -> None:
    """So that the state has something in it: in several packets."""
    cluster.run()
    for letter in b"abcdef":
        cluster.multicast(process, "g", bytes([letter]) * 500)
    cluster.run()


def test_the_joiner_gets_the_state_as_of_its_place_while_the_donor_goes_on(
    cluster: Cluster, replicas: Replicas
) -> None:
    donor = replicas.founder(1)
    grown(cluster, donor)
    joiner = replicas.joiner(2)
    cluster.multicast(donor, "g", b"before or after")
    cluster.run()
    replicas.read()
    cluster.multicast(donor, "g", b"while it is given")
    replicas.give(donor, joiner, pieces=4)
    cluster.run()
    kinds = [type(event) for event in cluster.events[joiner]]
    assert kinds[:2] == [GroupView, StateBegins]
    assert kinds.count(StateChunk) == 4
    assert replicas.state(joiner) == replicas.state(donor)
    assert replicas.waiting == set()


def test_the_donor_is_asked_right_after_the_view_and_at_the_place_that_the_joiner_is_told(
    cluster: Cluster, replicas: Replicas
) -> None:
    donor = replicas.founder(1)
    joiner = replicas.joiner(2)
    cluster.run()
    view, asked = cluster.events[donor][-2:]
    assert isinstance(view, GroupView)
    assert asked == StateAsked("g", joiner, view.place)
    assert cluster.events[joiner] == [view, StateBegins("g", donor, view.place)]


def test_donor_and_joiner_on_one_processor(cluster: Cluster, replicas: Replicas) -> None:
    donor = replicas.founder(1)
    grown(cluster, donor)
    joiner = replicas.joiner(1, 2)
    cluster.run()
    replicas.read()
    replicas.give(donor, joiner, pieces=2)
    cluster.run()
    assert replicas.state(joiner) == replicas.state(donor) != b""


def test_no_donor_no_state(cluster: Cluster, replicas: Replicas) -> None:
    cluster.member(1, "g")
    joiner = replicas.joiner(2)
    cluster.run()
    assert cluster.told(joiner, StateBegins) == [StateBegins("g", None, cluster.events[joiner][0].place)]


def test_who_waits_for_state_itself_is_not_asked_for_it(cluster: Cluster, replicas: Replicas) -> None:
    donor = replicas.founder(4)
    cluster.run()
    first, second = replicas.joiner(1), replicas.joiner(2)
    cluster.run()
    assert [begins.donor for begins in cluster.told(first, StateBegins)] == [donor]
    assert [begins.donor for begins in cluster.told(second, StateBegins)] == [donor]


@pytest.mark.parametrize("how", ["leaves", "disconnects", "crashes", "is partitioned away"])
@pytest.mark.parametrize("given", [0, 2, 3])
def test_another_donor_takes_over(cluster: Cluster, replicas: Replicas, how: str, given: int) -> None:
    """Whatever the first one had given by then."""
    donor, other = replicas.founder(1), replicas.founder(3)
    grown(cluster, donor)
    joiner = replicas.joiner(2)
    cluster.run()
    replicas.read()
    replicas.give(donor, joiner, pieces=4, up_to=given)
    cluster.originate(1, 2)
    for me in cluster.layers:
        cluster.deliver(me)
    cluster.multicast(other, "g", b"meanwhile")
    _go(cluster, donor, how)
    cluster.run()
    replicas.read()
    assert cluster.told(joiner, StateBegins)[-1].donor == other
    replicas.give(other, joiner, pieces=3)
    cluster.multicast(other, "g", b"and on")
    cluster.run()
    assert replicas.state(joiner) == replicas.state(other)
    assert replicas.state(joiner).endswith(b"and on")
    assert replicas.waiting == set()


def _go(cluster: Cluster, process: ProcessId, how: str) -> None:
    me = process.processor
    others = [other for other in cluster.layers if other != me]
    match how:
        case "leaves":
            cluster.ask(me, LeaveGroup(process.number, "g"))
        case "disconnects":
            cluster.ask(me, Disconnect(process.number))
        case "crashes":
            cluster.crash(me)
            cluster.change([others])
        case "is partitioned away":
            cluster.change([[me], others])


@pytest.mark.parametrize("how", ["leaves", "disconnects", "crashes", "is partitioned away"])
def test_a_joiner_that_goes_before_it_has_the_state_disturbs_nobody(
    cluster: Cluster, replicas: Replicas, how: str
) -> None:
    donor = replicas.founder(1)
    grown(cluster, donor)
    joiner, other = replicas.joiner(2), replicas.joiner(3)
    cluster.run()
    replicas.read()
    replicas.give(donor, joiner, pieces=4, up_to=2)
    _go(cluster, joiner, how)
    replicas.give(donor, joiner, pieces=4)
    replicas.give(donor, other)
    cluster.run()
    assert replicas.state(other) == replicas.state(donor)
    assert len(cluster.told(joiner, StateChunk)) <= 6


def test_state_for_a_joiner_that_left_and_came_back_is_not_mixed_up(
    cluster: Cluster, replicas: Replicas
) -> None:
    donor = replicas.founder(1)
    grown(cluster, donor)
    joiner = replicas.joiner(2)
    cluster.run()
    replicas.read()
    first = replicas.snapshots[donor, joiner][0]
    cluster.ask(1, GiveState(1, "g", joiner, first.place, b"stale", False))
    cluster.ask(2, LeaveGroup(1, "g"))
    cluster.join(joiner, "g", True, True)
    cluster.originate(2, 2)
    cluster.run()
    cluster.ask(1, GiveState(1, "g", joiner, first.place, b"staler", True))
    cluster.run()
    replicas.read()
    replicas.give(donor, joiner)
    cluster.run()
    assert replicas.state(joiner) == replicas.state(donor)


@pytest.mark.parametrize("originated", range(5))
@pytest.mark.parametrize("delivered", range(3))
def test_a_transfer_goes_on_across_a_change_that_both_come_along_with(
    cluster: Cluster, replicas: Replicas, originated: int, delivered: int
) -> None:
    """Whatever was queued, on the ring or delivered when it came: each piece comes once, in order."""
    donor = replicas.founder(1)
    grown(cluster, donor)
    joiner = replicas.joiner(2)
    cluster.run()
    replicas.read()
    replicas.give(donor, joiner, pieces=5, up_to=3)
    cluster.originate(1, originated)
    cluster.deliver(1, delivered)
    cluster.change([[1, 2], [3, 4]])
    cluster.originate(1)
    cluster.change([[1, 2, 3], [4]])
    cluster.run()
    assert len(cluster.told(joiner, StateBegins)) == 1
    asked, state = replicas.snapshots[donor, joiner]
    size = -(-len(state) // 5)
    for piece in (3, 4):
        content = state[piece * size : (piece + 1) * size]
        cluster.ask(1, GiveState(1, "g", joiner, asked.place, content, piece == 4))
    cluster.run()
    assert replicas.state(joiner) == replicas.state(donor)
    assert len(cluster.told(joiner, StateChunk)) == 5


def test_a_donor_that_was_away_for_a_moment_does_not_go_on(cluster: Cluster, replicas: Replicas) -> None:
    """What it gave then, and what happened then, the other may have missed."""
    donor = replicas.founder(1)
    grown(cluster, donor)
    joiner = replicas.joiner(2)
    cluster.run()
    replicas.read()
    old = replicas.snapshots[donor, joiner][0]
    cluster.change([[1], [2, 3, 4]])
    cluster.merge()
    replicas.read()
    assert len(cluster.told(joiner, StateBegins)) == 2
    cluster.ask(1, GiveState(1, "g", joiner, old.place, b"stale", True))
    cluster.run()
    assert cluster.told(joiner, StateChunk) == []


def test_a_second_donor_that_goes_too(cluster: Cluster, replicas: Replicas) -> None:
    donors = [replicas.founder(1), replicas.founder(3), replicas.founder(4)]
    grown(cluster, donors[0])
    joiner = replicas.joiner(2)
    cluster.run()
    for donor in donors[:2]:
        replicas.read()
        replicas.give(donor, joiner, pieces=4, up_to=3)
        cluster.run()
        _go(cluster, donor, "disconnects")
        cluster.run()
    replicas.read()
    replicas.give(donors[2], joiner)
    cluster.run()
    assert [begins.donor for begins in cluster.told(joiner, StateBegins)] == donors
    assert replicas.state(joiner) == replicas.state(donors[2])


def test_all_donors_go_and_the_joiner_begins_afresh_and_then_gives_to_the_next(
    cluster: Cluster, replicas: Replicas
) -> None:
    donor = replicas.founder(1)
    grown(cluster, donor)
    first, second = replicas.joiner(2), replicas.joiner(3)
    cluster.run()
    _go(cluster, donor, "crashes")
    cluster.run()
    assert cluster.told(first, StateBegins)[-1].donor is None
    assert cluster.told(second, StateBegins)[-1].donor == first
    cluster.multicast(second, "g", b"afresh")
    replicas.read()
    replicas.give(first, second)
    cluster.run()
    assert replicas.state(first) == replicas.state(second) == b"afresh"


def test_too_large_a_piece_is_refused(cluster: Cluster, replicas: Replicas) -> None:
    donor = replicas.founder(1)
    joiner = replicas.joiner(2)
    cluster.run()
    place = cluster.told(donor, StateAsked)[0].place
    with pytest.raises(SessionError, match=f"give at most {STATE_CHUNK_BYTES_MAX} at once"):
        cluster.ask(1, GiveState(1, "g", joiner, place, b"x" * (STATE_CHUNK_BYTES_MAX + 1), True))
    assert cluster.layers[1].waiting_bytes == 0
    cluster.ask(1, GiveState(1, "g", joiner, place, b"x" * STATE_CHUNK_BYTES_MAX, True))
    cluster.run()
    assert [len(chunk.content) for chunk in cluster.told(joiner, StateChunk)] == [STATE_CHUNK_BYTES_MAX]


@pytest.mark.parametrize(
    ("group", "problem"),
    [("g" * 256, "256 bytes: give at most 255"), ("\ud800", "cannot be written as UTF-8")],
)
def test_state_for_a_name_that_no_packet_can_carry_is_refused(
    cluster: Cluster, replicas: Replicas, group: str, problem: str
) -> None:
    donor = replicas.founder(1)
    joiner = replicas.joiner(2)
    cluster.run()
    place = cluster.told(donor, StateAsked)[0].place
    with pytest.raises(ConfigurationError, match=problem):
        cluster.ask(1, GiveState(1, group, joiner, place, b"x", True))
    assert cluster.layers[1].waiting_bytes == 0


def test_state_that_nobody_expects_is_not_sent(cluster: Cluster, replicas: Replicas) -> None:
    donor = replicas.founder(1)
    joiner = replicas.joiner(2)
    cluster.run()
    place = cluster.told(donor, StateAsked)[0].place
    elsewhere = place._replace(index=place.index + 1)
    cluster.ask(1, GiveState(1, "g", joiner, elsewhere, b"x", True))
    cluster.ask(1, GiveState(1, "h", joiner, place, b"x", True))
    cluster.ask(1, GiveState(1, "g", donor, place, b"x", True))
    assert cluster.layers[1].waiting_bytes == 0


def test_a_donor_that_gives_faster_than_the_ring_takes_is_not_accepted_from(
    cluster: Cluster, replicas: Replicas
) -> None:
    donor = replicas.founder(1)
    joiner = replicas.joiner(2)
    cluster.run()
    place = cluster.told(donor, StateAsked)[0].place
    for _ in range(4):
        assert cluster.layers[1].accepts(1)
        cluster.ask(1, GiveState(1, "g", joiner, place, b"x" * STATE_CHUNK_BYTES_MAX, False))
    assert not cluster.layers[1].accepts(1)
    cluster.run()
    assert cluster.layers[1].accepts(1)
