"""The steered search: one seed, one search; what is rare breeds; children can be written down and run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from totempole.cli import steer as cli_steer
from totempole.cli.output import Screen
from totempole.cli.steer import SteerReport
from totempole.cli.tables import rarest_excluded, what_may_remain
from totempole.sim.fuzz.breeding import bred
from totempole.sim.fuzz.plan import CALM_US, END_US, MS, SETTLE_US, plan
from totempole.sim.fuzz.steer import Entry, Reached, Steered, features_of, plain, steer, try_reaching
from totempole.sim.fuzz.trial import Verdict
from totempole.sim.script import (
    Action,
    ExpectSettled,
    Heal,
    OnLink,
    OnProcessor,
    Partition,
    Scenario,
    Step,
    When,
)
from totempole.sim.script_faults import OnDisk, SetKeys
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import build, last_fault_us


def by_steps(scenarios: Sequence[Scenario]) -> Iterable[Reached]:
    """Runs that take no time: they reach what their number of steps says."""
    for scenario in scenarios:
        features = frozenset({"branch: any", f"pair: {len(scenario.steps) % 50}"})
        yield Reached(Verdict(scenario.name), features)


def test_one_seed_is_one_search() -> None:
    first, second = steer(3, 64, by_steps), steer(3, 64, by_steps)
    assert first.counts == second.counts
    assert [entry.scenario.to_text() for entry in first.corpus] == [
        entry.scenario.to_text() for entry in second.corpus
    ]
    assert first.bred > 0
    assert steer(4, 64, by_steps).counts != first.counts


def test_what_was_reached_often_is_no_reason_to_breed() -> None:
    steered = Steered(0)
    for seed in range(5):
        steered.add(plan(seed), Reached(Verdict(f"seed-{seed}"), frozenset({"branch: any"})))
    assert len(steered.corpus) == 2
    steered.add(plan(9), Reached(Verdict("seed-9"), frozenset({"branch: any", "branch: rare"})))
    assert steered.worth(steered.corpus[-1]) > steered.worth(steered.corpus[0])


def test_a_failing_scenario_is_kept_and_does_not_breed() -> None:
    steered = Steered(0)
    steered.add(plan(1), Reached(Verdict("seed-1", ("agreed-order",)), frozenset({"branch: new"})))
    assert [scenario.name for scenario, _ in steered.failures] == ["seed-1"]
    assert steered.corpus == []


@pytest.mark.parametrize("seed", range(40))
def test_a_child_can_be_written_down_and_ends_in_calm(seed: int) -> None:
    random = Random(seed)
    parent, other = plan(seed), plan(seed + 100)
    child = bred(random, "child", parent, other)
    build(child)
    assert parse(child.to_text(), "child").steps == child.steps
    assert last_fault_us(child) == last_fault_us(parent)
    assert isinstance(child.steps[-1].action, ExpectSettled)
    started = {step.action.processor for step in child.steps if step.action == OnProcessor("restart", 1)}
    assert started == {1}


def at(at_us: int, action: Action) -> Step:
    return Step(at_us, action)


CALM_STEPS = (at(CALM_US, Heal()), at(END_US, ExpectSettled(SETTLE_US)))
TWO = Scenario("parent", (("1", 1), ("2", 2)), END_US, steps=CALM_STEPS)


def children(parent: Scenario, other: Scenario) -> list[Scenario]:
    return [bred(Random(seed), "child", parent, other) for seed in range(100)]


def test_what_lasts_does_not_come_from_the_second_parent() -> None:
    """Severed links and disks put back promise less; new keys need a seal, and all must get them."""
    lasting = (
        OnLink("sever", 1, 2),
        OnDisk("rollback", 1, records=2),
        SetKeys(1, (2,)),
        When("promise given", When("gather>commit", OnLink("sever", 1, 2))),
    )
    passing = OnLink("cut", 1, 2)
    steps = tuple(at(MS * 1_000, action) for action in (*lasting, passing))
    actions = [
        step.action
        for child in children(TWO, replace(TWO, sealed=True, steps=(*steps, *CALM_STEPS)))
        for step in child.steps
    ]
    assert passing in actions
    assert not set(lasting).intersection(actions)


def test_keys_are_changed_as_the_first_parent_changes_them() -> None:
    keys = tuple(at(MS * 1_000 * number, SetKeys(me, (number,))) for number in (1, 2) for me in (1, 2))
    parent = replace(TWO, sealed=True, steps=(*keys, *CALM_STEPS))
    for child in children(parent, plan(0)):
        assert tuple(step for step in child.steps if isinstance(step.action, SetKeys)) == keys


def test_disks_work_from_the_calm_on() -> None:
    stuck = OnDisk("stick", 2)
    other = replace(TWO, steps=(at(MS * 1_000, stuck), *CALM_STEPS))
    harmed = [child for child in children(TWO, other) if stuck in (step.action for step in child.steps)]
    assert harmed
    assert all(at(CALM_US, OnDisk("mend", 2)) in child.steps for child in harmed)


def test_a_partition_stays_sharp_among_others() -> None:
    sharp = Partition(((1,), (2,)), sharp=True)
    other = replace(TWO, steps=(at(MS * 1_000, sharp), *CALM_STEPS))
    found = {
        step.action
        for child in children(TWO, other)
        for step in child.steps
        if isinstance(step.action, Partition)
    }
    assert found == {sharp}


def test_a_crash_after_the_calm_leaves_the_calm_where_it_was() -> None:
    """Long after the repairs of the parent, which no child may do without."""
    late = at(CALM_US + MS, OnProcessor("crash", 2))
    parent = replace(TWO, steps=(*CALM_STEPS[:1], late, *CALM_STEPS[1:]))
    for child in children(parent, plan(0)):
        assert set(parent.steps) <= set(child.steps)
        assert at(CALM_US, OnProcessor("restart", 2)) in child.steps


def test_a_child_is_run_and_judged_as_any_scenario() -> None:
    child = bred(Random(1), "child", plan(0), plan(2))
    reached = try_reaching(child)
    assert reached.verdict.violated == ()
    assert any(feature.startswith("pair: ") for feature in reached.features)
    assert any(feature.startswith("transition: ") for feature in reached.features)
    assert features_of(reached.verdict, None) == frozenset(reached.verdict.coverage)


def test_plain_seeds_beside_it() -> None:
    assert plain(0, 5, by_steps).done == 5


def test_the_report_tells_what_only_one_of_them_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steered, beside = Steered(0), Steered(0)
    steered.add(plan(1), Reached(Verdict("seed-1"), frozenset({"branch: here"})))
    beside.add(plan(1), Reached(Verdict("seed-1"), frozenset({"branch: there"})))
    report = SteerReport(steered, beside)
    assert (report.only_steered, report.only_plain, report.holds) == (
        ["branch: here"],
        ["branch: there"],
        True,
    )
    steered.failures.append((plan(2), Verdict("seed-2", ("agreed-order",), "why")))
    report.show(Screen())
    report.save_failures(Screen(), tmp_path, shrunk=False)
    assert "agreed-order" in capsys.readouterr().out
    assert parse((tmp_path / "seed-2.scenario").read_text(), "again").steps == plan(2).steps
    assert not report.holds
    assert report.data()["failures"][0]["violated"] == ["agreed-order"]


def test_the_rule_of_three() -> None:
    assert rarest_excluded(3_000) == 0.001
    assert rarest_excluded(2) is None
    assert "fewer than one of 1,000 runs (3/N = 0.001) may remain" in what_may_remain(3_000)
    assert "exclude nothing" in what_may_remain(1)


def test_the_corpus_has_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("totempole.sim.fuzz.steer.CORPUS_MAX", 3)
    steered = Steered(0)
    for seed in range(6):
        steered.add(plan(seed), Reached(Verdict("any"), frozenset({f"branch: {seed}"})))
    assert len(steered.corpus) == 3
    assert all(isinstance(entry, Entry) for entry in steered.corpus)


def test_quick_is_quick() -> None:
    assert cli_steer.QUICK_RUNS <= 40
