"""The members of a primary group: by hand, rule by rule, and under faults in the simulator.

Each rule that is taken out (`primary_mutants`) makes a test fail.
"""

from __future__ import annotations

import primary_mutants as mutants
import pytest
from primary_world import MS, SECOND, Cluster, Journal, Member, stormy

from sweeps import daily, first_of, first_row_of
from totempole.client.primary_member import Answer, Phase, PrimaryMember
from totempole.errors import NotPrimary, SessionError, Unknown
from totempole.types import NO_RING, OrderKey, Place, ProcessId, RingId, Service

STORMS = 200
NODES = (3, 3, 5, 4)


def nodes_of(seed: int) -> int:
    return NODES[seed % len(NODES)]


# In the simulator


@pytest.mark.search
@pytest.mark.parametrize("seed", daily(range(STORMS), 12))
def test_what_is_done_stays_done_in_one_order_under_faults(seed: int) -> None:
    cluster = stormy(seed, nodes_of(seed))
    assert cluster.judge() == []
    assert cluster.done
    assert cluster.acts["partition"]
    assert cluster.acts["heal"]


def test_the_storms_bring_all_faults_and_all_answers() -> None:
    storms = [stormy(seed, nodes_of(seed)) for seed in range(2)]
    acts = sum((storm.acts for storm in storms), start=storms[0].acts.__class__())
    assert all(acts[name] for name in ("crash", "kill", "drop", "partition", "heal", "primary"))
    assert all(any(getattr(storm, name) for storm in storms) for name in ("done", "refused", "unknown"))


@pytest.mark.search
@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        (mutants.CountsTheForgetful, 34),
        (mutants.ForgetsTheTransitional, 0),
        (mutants.DoneInTransition, 29),
        (mutants.AnyBase, 6),
        (mutants.NoDigest, 2),
        (mutants.UncertainIsDone, 29),
        (mutants.HoldsNothing, 3),
        (mutants.SentAgainTooEarly, 0),
    ],
)
def test_without_a_rule_a_storm_does_harm(mutant: type[Member], seed: int) -> None:
    assert stormy(seed, nodes_of(seed), mutant).judge()


def test_agreed_messages_would_not_do() -> None:
    assert stormy(35, nodes_of(35), service=Service.AGREED).judge()


def founded(nodes: int, make: type[Member] = Member) -> Cluster:
    cluster = Cluster(7, nodes, make)
    cluster.start()
    cluster.run_until_primary(*cluster.world.hosts)
    return cluster


def done(cluster: Cluster, me: int, name: str) -> None:
    cluster.do(me, name)
    cluster.run(SECOND)
    assert name in cluster.done


def majority_forgets(make: type[Member] = Member) -> Cluster:
    """Two of three lose their memory while the third is elsewhere."""
    cluster = founded(3, make)
    done(cluster, 1, "kept by 3 alone")
    cluster.world.partition([[3], [1, 2]])
    cluster.run(SECOND)
    for me in (1, 2):
        cluster.crash(me, 20 * MS)
    cluster.run(3 * SECOND)
    cluster.do(1, "by those who forgot")
    cluster.do(3, "by a minority")
    cluster.run(SECOND)
    cluster.heal()
    return cluster


def test_a_majority_that_has_forgotten_waits_for_all_and_goes_on_with_what_is_left() -> None:
    cluster = majority_forgets()
    assert {"by those who forgot", "by a minority"} == cluster.refused
    assert cluster.programs[1].member.machine.commands == ["kept by 3 alone"]
    assert {problem.partition(" goes on ")[2] for problem in cluster.judge()} == {
        "with a state that may lack something"
    }, "and it says so"


def test_a_first_state_by_a_majority_would_hide_the_old_one() -> None:
    cluster = majority_forgets(mutants.FoundsWithAMajority)
    assert "by those who forgot" in cluster.done


def snapshot_under_way(make: type[Member] = Member, uncertain: bool = False) -> Cluster:
    """Nodes 1 to 3 are ahead of 4 and 5. 1 and 2 meet 4, go on, and crash. `uncertain`: their command is on
    its way while the network parts."""
    cluster = founded(5, make)
    for number in range(4):
        done(cluster, 4, f"{number} " + "x" * 1_000_000)
    cluster.world.partition([[1, 2, 3], [4, 5]])
    cluster.run(SECOND)
    done(cluster, 1, "with 1 2 3")
    before = cluster.programs[2].member.epoch
    cluster.world.partition([[1, 2, 4], [3], [5]])
    if uncertain:
        cluster.do(2, "fresh")
    for _ in range(20_000):
        cluster.run(100)
        member = cluster.programs[2].member
        if member.phase is Phase.PRIMARY and member.epoch != before and "fresh" not in cluster.sent:
            cluster.do(2, "fresh")
        if "fresh" in cluster.done:
            break
    cluster.crash(1, 20 * MS)
    cluster.crash(2, 20 * MS)
    cluster.world.partition([[3, 4, 5], [1], [2]])
    cluster.run(5 * SECOND)
    cluster.world.heal()
    cluster.heal()
    return cluster


@pytest.mark.parametrize("uncertain", first_of([False, True]))
def test_a_primary_waits_until_a_majority_has_the_state(uncertain: bool) -> None:
    cluster = snapshot_under_way(uncertain=uncertain)
    assert cluster.judge() == []
    assert "fresh" in cluster.done


@pytest.mark.parametrize(
    ("mutant", "uncertain"),
    first_row_of([(mutants.DoesNotWaitForAMajority, False), (mutants.DoneAtFormation, True)]),
)
def test_one_that_does_not_wait_loses_what_was_done(mutant: type[Member], uncertain: bool) -> None:
    assert any("fresh" in problem for problem in snapshot_under_way(mutant, uncertain).judge())


def session_lost(make: type[Member] = Member) -> Cluster:
    """Node 1 of the primary {1 2 3} misses a command, with its session. Then it meets 4 and 5."""
    cluster = founded(5, make)
    cluster.world.partition([[1, 2, 3], [4, 5]])
    cluster.run(SECOND)
    cluster.do(2, "missed by 1")
    while "missed by 1" not in cluster.done:
        cluster.run(20)
    assert "missed by 1" not in cluster.programs[1].member.machine.commands
    cluster.drop(1)
    cluster.world.partition([[1, 4, 5], [2], [3]])
    cluster.run(2 * SECOND)
    cluster.do(1, "without it")
    cluster.run(SECOND)
    cluster.heal()
    return cluster


def test_a_session_that_was_lost_is_a_memory_that_was_lost() -> None:
    cluster = session_lost()
    assert cluster.judge() == []
    assert cluster.refused == {"without it"}
    assert any("missed by 1" in problem for problem in session_lost(mutants.KeepsItsMemory).judge())


# By hand

A, B, C, D = (ProcessId(number, 1, 1) for number in (1, 2, 3, 4))


class Table:
    """A total order by hand: what members say waits until it is delivered to all of the view."""

    def __init__(self, *ids: ProcessId, expected: int = 3, make: type[Member] = Member) -> None:
        self.members = {each: make(Journal, expected) for each in ids}
        self.places = 0
        self.view_of: tuple[ProcessId, ...] = ()

    def add(self, each: ProcessId, expected: int = 3, make: type[Member] = Member) -> Member:
        self.members[each] = make(Journal, expected)
        return self.members[each]

    def view(self, *ids: ProcessId, kind: str = "regular") -> None:
        self.places += 1
        self.view_of = ids
        place = Place(OrderKey(RingId(self.places, 1), 0, NO_RING), 0)
        for each in ids:
            self.members[each].view(each, kind, ids, place)

    def said(self, each: ProcessId) -> list[bytes]:
        out, self.members[each].out = self.members[each].out, []
        return out

    def deliver(self, sender: ProcessId, *payloads: bytes) -> None:
        for payload in payloads:
            for each in self.view_of:
                self.members[each].message(sender, payload)

    def settle(self) -> None:
        """All that is said, until nobody says anything more."""
        while any(self.members[each].out for each in self.view_of):
            for each in self.view_of:
                self.deliver(each, *self.said(each))

    def answers(self, each: ProcessId) -> list[Answer]:
        answers, self.members[each].answers = self.members[each].answers, []
        return answers

    def journals(self) -> list[list[str]]:
        return [self.members[each].machine.commands for each in self.view_of]


def found(make: type[Member] = Member) -> Table:
    table = Table(A, B, C, make=make)
    table.view(A, B, C)
    table.settle()
    assert {member.phase for member in table.members.values()} == {Phase.PRIMARY}
    return table


def test_the_first_state_takes_all_and_a_command_is_applied_by_all() -> None:
    table = Table(A, B, C)
    table.view(A, B)
    table.settle()
    member = table.members[A]
    assert (member.phase, member.problem) == (
        Phase.OUTSIDE,
        "2 of 3 nodes are here: no state has been founded yet, which takes all of them",
    )
    member.do(b"early")
    ((_, _, error),) = table.answers(A)
    assert isinstance(error, NotPrimary)
    table.view(A, B, C)
    member.do(b"soon")
    assert not table.answers(A), "it waits while members say hello"
    table.settle()
    assert table.answers(A) == [(2, 0, None)]
    assert table.journals() == [["soon"]] * 3


def test_what_a_command_raises_is_its_result_everywhere() -> None:
    class Fussy(Journal):
        def apply(self, command: bytes) -> int:
            if command == b"stop":
                raise StopIteration
            if command == b"bad":
                raise KeyError(command)
            return super().apply(command)

    table = Table()
    for each in (A, B, C):
        table.members[each] = PrimaryMember(Fussy, 3)
    table.view(A, B, C)
    table.settle()
    for command in (b"bad", b"stop", b"good"):
        table.members[A].do(command)
    table.settle()
    bad, stop, good = table.answers(A)
    assert isinstance(bad.error, KeyError)
    assert isinstance(stop.error, RuntimeError)
    assert good.value == 0
    assert table.journals() == [["good"]] * 3


def late(make: type[Member] = Member) -> Table:
    """C has no memory, and is slow to say so."""
    table = found(make)
    table.add(C, make=make)
    table.view(A, B, C)
    hello = table.said(C)
    table.settle()
    assert table.members[A].phase is Phase.PRIMARY, "two of three suffice"
    table.members[A].do(b"before its hello")
    table.settle()
    table.deliver(C, *hello)
    table.members[B].do(b"before its snapshot")
    table.deliver(B, *table.said(B))
    table.settle()
    return table


def test_who_is_slow_to_say_hello_holds_nobody_up_and_gets_the_state_as_of_then() -> None:
    table = late()
    assert table.journals() == [["before its hello", "before its snapshot"]] * 3
    assert late(mutants.GivesUpLate).journals() != table.journals()


def test_what_is_meant_for_another_view_is_passed_over_and_a_command_is_sent_again() -> None:
    def parted(make: type[Member]) -> Table:
        table = found(make)
        table.members[A].do(b"late")
        command = table.said(A)
        table.view(A, B)
        stale = table.said(A)
        table.view(A, B, C)
        table.deliver(A, *command, *stale)
        assert not table.answers(A)
        table.settle()
        return table

    table = parted(Member)
    assert table.journals() == [["late"]] * 3
    assert table.answers(A) == [(1, 0, None)]


def test_a_hello_of_another_view_does_not_count() -> None:
    def parted(make: type[Member]) -> Phase:
        table = found(make)
        table.view(A, B)
        stale = table.said(A)
        table.add(A, make=make)
        table.view(A, B)
        table.deliver(A, *stale)
        table.deliver(B, *table.said(B))
        return table.members[B].phase

    assert parted(Member) is Phase.EXCHANGING
    assert parted(mutants.AnyView) is Phase.PRIMARY, "of those two, one has no memory"


def test_uncertain_is_done_if_its_sender_is_like_the_base_and_unknown_if_not() -> None:
    def parted(*base: ProcessId) -> list[Answer]:
        table = found()
        table.members[A].do(b"half")
        command = table.said(A)
        table.view(A, kind="transitional")
        table.deliver(A, *command)
        assert not table.answers(A)
        for each in base:
            table.members[each].message(A, command[0])
        table.view(A, B, C)
        table.deliver(B, *table.said(B))
        table.deliver(C, *table.said(C))
        table.settle()
        assert len({tuple(journal) for journal in table.journals()}) == 1
        return table.answers(A)

    assert parted(B) == [(1, 0, None)]
    ((_, _, error),) = parted()
    assert isinstance(error, Unknown)


def test_in_a_minority_what_is_uncertain_is_unknown_and_the_rest_refused() -> None:
    table = found()
    table.members[A].do(b"half")
    table.view(A, kind="transitional")
    table.deliver(A, *table.said(A))
    table.members[A].do(b"waits")
    table.view(A)
    errors = {answer.ticket: type(answer.error) for answer in table.answers(A)}
    assert errors == {1: Unknown, 2: NotPrimary}
    assert table.members[A].problem == "1 of 3 nodes are here: no majority"


def test_one_member_of_each_node_takes_part() -> None:
    table = found()
    second = ProcessId(1, 1, 2)
    table.add(second)
    table.view(A, B, C, second)
    table.settle()
    member = table.members[second]
    assert (member.phase, member.epoch) == (Phase.OUTSIDE, None)
    assert "node 1 has another member" in member.problem
    table.members[A].do(b"x")
    table.settle()
    assert member.machine.commands == []
    table.view(B, C, second)
    table.settle()
    assert member.machine.commands == ["x"], "it takes part when the other is gone"


def test_a_node_that_did_not_found_the_group_gets_no_part_in_it() -> None:
    table = found()
    table.add(D)
    table.view(A, B, D)
    table.settle()
    assert table.members[A].phase is Phase.PRIMARY
    assert table.members[D].epoch is None
    assert "founded by nodes 1 2 3" in table.members[D].problem
    table.members[A].do(b"x")
    table.settle()
    assert not table.members[D]._round.held  # type: ignore[union-attr]
    table.view(A, D)
    table.settle()
    assert table.members[A].phase is Phase.OUTSIDE


def test_members_that_expect_other_numbers_and_two_foundings_are_named() -> None:
    table = Table(A, B, expected=2)
    table.add(C, expected=3)
    table.view(A, B, C)
    table.settle()
    assert "do not agree on how many" in table.members[A].problem
    four = Table(A, B, expected=2)
    four.view(A, B)
    four.settle()
    for each in (C, D):
        four.add(each, expected=2)
    four.view(C, D)
    four.settle()
    four.view(A, B, C, D)
    for each in (A, C, B, D):
        four.deliver(each, *four.said(each))
    assert {member.phase for member in four.members.values()} == {Phase.OUTSIDE}
    assert "two groups have been founded" in four.members[A].problem
    too_many = Table(A, B, C, expected=2)
    too_many.view(A, B, C)
    too_many.settle()
    assert too_many.members[A].phase is Phase.OUTSIDE
    for wrong in (0, 1_001, "3"):
        with pytest.raises(SessionError, match="give the number of nodes"):
            PrimaryMember(Journal, wrong)  # type: ignore[arg-type]


def test_a_snapshot_of_many_pieces_and_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.client.primary_member.SNAPSHOT_PIECE_BYTES", 10)
    table = found()
    for number in range(9):
        table.members[A].do(b"command %d" % number)
    table.settle()
    table.add(C)
    table.view(A, B, C)
    table.settle()
    assert table.journals() == [[f"command {number}" for number in range(9)]] * 3

    class Empty(Journal):
        def snapshot(self) -> bytes:
            return b""

        def restore(self, snapshot: bytes) -> None:
            assert snapshot == b""

    empty = Table()
    for each in (A, B, C):
        empty.members[each] = PrimaryMember(Empty, 3)
    empty.view(A, B, C)
    empty.settle()
    empty.members[C] = PrimaryMember(Empty, 3)
    empty.view(A, B, C)
    empty.settle()
    assert empty.members[C].epoch is not None


def test_of_two_nodes_the_one_that_remembers_gives_its_state() -> None:
    table = Table(A, B, expected=2)
    table.view(A, B)
    table.settle()
    table.members[A].do(b"x")
    table.settle()
    table.add(B, expected=2)
    table.view(A, B)
    table.settle()
    assert table.journals() == [["x"]] * 2
    assert table.members[A].certain


@pytest.mark.parametrize(
    "junk", [b"", b"H", b"C" + bytes(5), b"H" + bytes(36), b"S" + bytes(36), b"nonsense"]
)
def test_what_others_send_to_the_group_is_passed_over(junk: bytes) -> None:
    table = found()
    table.deliver(B, junk, junk[:1] + _place(table) + junk[1:])
    table.deliver(D, junk[:1] + _place(table))
    table.members[A].do(b"x")
    table.settle()
    assert table.journals() == [["x"]] * 3


def _place(table: Table) -> bytes:
    from totempole.client.primary_member import pack_place

    assert table.members[A]._round is not None
    return pack_place(table.members[A]._round.place)


def test_who_gives_up_is_told_whether_the_command_may_be_applied() -> None:
    table = Table(A, B, C)
    table.view(A, B, C)
    member = table.members[A]
    waiting = member.do(b"waits")
    assert isinstance(member.give_up(waiting, "too late"), NotPrimary)
    table.settle()
    assert table.journals() == [[]] * 3
    sent = member.do(b"sent")
    assert isinstance(member.give_up(sent, "too late"), Unknown)
    table.settle()
    assert table.journals() == [["sent"]] * 3
    assert not table.answers(A)
