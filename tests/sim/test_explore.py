"""Small systems searched whole: the true protocol holds, broken ones do not, a path can be taken again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeps import first_of
from totempole.cli import main
from totempole.cli.exhaustive import ExhaustiveReport, Searched
from totempole.cli.output import Screen
from totempole.errors import TotemError
from totempole.sim.explore.cases import CASES, Case, explorer_of, load_path, retell, save_path, search_case
from totempole.sim.explore.explorer import Explorer, Result
from totempole.sim.explore.mutants import CHOSEN, NOTICED_BY
from totempole.sim.explore.processor import Cabinet, Processor
from totempole.sim.explore.roots import small_config
from totempole.sim.explore.snapshot import copy_of, fingerprint
from totempole.sim.explore.space import Bounds
from totempole.sim.fuzz.mutants import mutated_stack
from totempole.sim.fuzz.trial import RAISED
from totempole.sim.stacks import RealStack
from totempole.srp.engine import SingleRing

STATES = 1_000
"""So many of each case, or all: the whole of them takes minutes."""

MUTANTS = {mutant.name: mutant for mutant in CHOSEN}

CLEAN = (
    Case(2, "cold"),
    Case(2, "busy", Bounds(losses=1, timeouts=1)),
    Case(1, "ring", Bounds(messages=2, crashes=1, stalls=1)),
    Case(3, "busy"),
)


@pytest.mark.parametrize("case", first_of(CLEAN), ids=lambda case: case.name)
def test_the_protocol_holds_in_every_order(case: Case) -> None:
    result = search_case(case)
    assert result.found is None
    assert result.exhausted
    assert result.ends > 0
    assert result.judged > 0


def test_there_are_ten_mutants_of_the_present_source() -> None:
    assert len(CHOSEN) >= 10
    assert set(MUTANTS) == set(NOTICED_BY)
    for mutant in CHOSEN:
        assert mutated_stack(mutant).parts.engines["totem"] is not SingleRing


@pytest.mark.search
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_broken_protocol_is_noticed(name: str) -> None:
    found = search_case(NOTICED_BY[name], mutated_stack(MUTANTS[name])).found
    assert found is not None
    assert {one.property for one in found.violations} != {RAISED}, "noticed by an exception, not by a check"


@pytest.mark.search
@pytest.mark.parametrize(
    "case", sorted(set(NOTICED_BY.values()), key=lambda case: case.name), ids=lambda case: case.name
)
def test_the_true_protocol_holds_where_broken_ones_do_not(case: Case) -> None:
    assert search_case(case, states_max=STATES).found is None


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_command_searches_is_searched_whole(case: Case) -> None:
    result = search_case(case)
    assert result.found is None
    assert result.exhausted


def test_a_search_is_the_same_each_time() -> None:
    case = Case(2, "busy", Bounds(losses=1))
    first, second = search_case(case), search_case(case)
    assert (first.states, first.steps, first.depth) == (second.states, second.steps, second.depth)


def test_a_search_that_is_cut_short_says_so() -> None:
    case = Case(3, "busy", Bounds(losses=1))
    assert not search_case(case, states_max=20).exhausted
    assert not search_case(case, depth_max=3).exhausted
    report = ExhaustiveReport()
    report.add(Searched(case, Result(states=20), 1.0))
    assert report.holds
    assert not report.whole


def test_a_copy_is_equal_until_it_goes_its_own_way() -> None:
    cabinet = Cabinet(RealStack(), small_config())
    one = Processor(1)
    cabinet.feed(one, ("restart",))
    twin = one.copy()
    assert twin.stack is not one.stack
    assert twin.fingerprint() == one.fingerprint()
    before = one.fingerprint()
    cabinet.feed(twin, ("written",))
    assert one.fingerprint() == before != twin.fingerprint()


def test_copies_share_what_they_shared() -> None:
    class Node:
        def __init__(self) -> None:
            self.items = [1]
            self.again = self.items
            self.act = self.grow

        def grow(self) -> None:
            self.items.append(2)

    node = Node()
    copied = copy_of(node)
    copied.act()
    assert (node.items, copied.items) == ([1], [1, 2])
    assert copied.again is copied.items
    assert fingerprint(node) != fingerprint(copied)


def test_the_order_in_which_things_were_learned_does_not_matter() -> None:
    assert fingerprint({1: "a", 2: "b"}, {3, 1}) == fingerprint({2: "b", 1: "a"}, {1, 3})
    assert fingerprint([1, 2]) != fingerprint([2, 1])


def test_a_path_is_taken_again_from_its_file(tmp_path: Path) -> None:
    name = "safe delivered as agreed"
    endpoint = mutated_stack(MUTANTS[name])
    case = NOTICED_BY[name]
    found = search_case(case, endpoint).found
    assert found is not None
    file = tmp_path / "found.path"
    save_path(file, case, found.path, name)
    assert load_path(file) == (case, found.path, name)
    told = retell(case, found.path, endpoint)
    assert {one.property for one in told.violations} & {one.property for one in found.violations}
    assert len(told.lines) == len(found.path)
    file.write_text("{}")
    with pytest.raises(TotemError, match="not a path"):
        load_path(file)


def test_a_path_that_does_not_fit_is_refused() -> None:
    with pytest.raises(TotemError, match="does not fit"):
        retell(Case(2, "busy"), (("crash", 1, 0),))


def verbs_at_first(explorer: Explorer) -> set[str]:
    """The resting token first waits for a write, and where no disk stalls little goes before that."""
    steps = list(explorer.space.steps(explorer.root.state))
    written = next(step for step in steps if step.action[0] == "written")
    steps += explorer.space.steps(written.state)
    return {step.action[0] for step in steps} - {"written"}


def test_a_fault_that_is_not_within_the_bounds_does_not_happen() -> None:
    explorer = explorer_of(Case(2, "busy", Bounds(partitions=1)))
    assert verbs_at_first(explorer) == {"deliver", "part"}


@pytest.mark.parametrize(
    ("bounds", "verb"),
    [
        (Bounds(losses=1), "lose"),
        (Bounds(copies=1), "copy"),
        (Bounds(strays=1), "stray"),
        (Bounds(crashes=1), "crash"),
        (Bounds(early=1), "expire"),
        (Bounds(messages=1), "submit"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_bound_allows_its_fault(bounds: Bounds, verb: str) -> None:
    assert verb in verbs_at_first(explorer_of(Case(3, "busy", bounds)))


def test_a_disk_stalls_and_writes_later() -> None:
    explorer = explorer_of(Case(1, "cold", Bounds(stalls=1)))
    steps = {step.action: step.state for step in explorer.space.steps(explorer.root.state)}
    assert set(steps) == {("written", 1), ("stall", 1)}
    assert ("written", 1) in {step.action for step in explorer.space.steps(steps["stall", 1])}


def unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written, however wide the terminal is."""
    return " ".join(capsys.readouterr().out.split())


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    command = ["fuzz", "--exhaustive", "--losses", "1", "--timeouts", "1", "--json", str(file)]
    assert main(command) == 0
    assert "No property can be violated within these bounds" in unwrapped(capsys)
    data = json.loads(file.read_text())
    assert (data["holds"], data["exhausted"], len(data["cases"])) == (True, True, 1)


def test_a_violation_is_told_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "violation.path"
    command = ["fuzz", "--exhaustive", "--mutant", "safe delivered as agreed", "--out", str(path)]
    assert main(command) == 1
    text = capsys.readouterr().out
    assert "safe-delivery" in text
    assert "arrives at" in text
    assert main(["fuzz", "--replay", str(path)]) == 1
    assert "safe-delivery" in capsys.readouterr().out


def test_a_report_shows_what_it_proves(capsys: pytest.CaptureFixture[str]) -> None:
    report = ExhaustiveReport()
    report.add(Searched(CLEAN[0], Result(states=7, exhausted=True), 0.5))
    report.add(Searched(CLEAN[1], Result(states=9), 0.5))
    report.show(Screen())
    assert "1 of 2 cases were searched whole" in unwrapped(capsys)
