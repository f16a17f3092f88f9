"""Searches go on where they stopped; a failing scenario is reduced and still fails in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.errors import TotemError
from totempole.sim.fuzz import search as searching
from totempole.sim.fuzz import shrink as shrinking
from totempole.sim.fuzz.coverage import EXPECTED, missing
from totempole.sim.fuzz.mutants import MUTANTS, mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.search import Tally, search
from totempole.sim.fuzz.shrink import Shrinker
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.script import Scenario
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import build


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds that take no time; those that end in seven fail."""
    tried: list[int] = []

    def try_seed(seed: int) -> tuple[int, Verdict]:
        tried.append(seed)
        return seed, Verdict(f"seed-{seed}", ("agreed-order",) if seed % 10 == 7 else (), "why", 3, 2)

    monkeypatch.setattr(searching, "try_seed", try_seed)
    return tried


def test_a_search_counts_what_it_saw(quick: list[int]) -> None:
    tally = search(Tally(0, 20), jobs=1)
    assert (tally.done, tally.failed, tally.packet_events, tally.deliveries) == (20, 2, 60, 40)
    assert [seed for seed, _, _ in tally.failures] == [7, 17]


def test_a_search_goes_on_where_it_stopped(quick: list[int], tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    search(Tally.load(file, 0, 10), jobs=1, resume_file=file)
    quick.clear()
    tally = search(Tally.load(file, 0, 25), jobs=1, resume_file=file)
    assert quick == list(range(10, 25))
    assert (tally.done, tally.failed) == (25, 2)


def test_a_file_of_another_search_is_refused(quick: list[int], tmp_path: Path) -> None:
    file = tmp_path / "search.json"
    search(Tally.load(file, 0, 10), jobs=1, resume_file=file)
    with pytest.raises(TotemError, match="from seed 0"):
        Tally.load(file, 5, 10)
    file.write_text("{}")
    with pytest.raises(TotemError, match="not the file of a search"):
        Tally.load(file, 0, 10)


def test_what_was_never_reached_is_named() -> None:
    tally = Tally(0, 1)
    assert missing(tally.coverage) == list(EXPECTED)
    tally.coverage[EXPECTED[0]] += 1
    assert missing(tally.coverage) == list(EXPECTED[1:])


def test_a_failing_scenario_shrinks_to_a_small_file_that_still_fails() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "safe delivered as agreed")
    endpoint = mutated_stack(mutant)
    scenario = plan(mutant.seed)
    verdict, _ = try_scenario(scenario, endpoint)
    assert verdict.violated
    small = Shrinker(scenario, verdict.violated, endpoint, trials_max=60).shrink()
    assert len(small.steps) < len(scenario.steps) / 2
    again = parse(small.to_text(), "small")
    assert set(try_scenario(again, endpoint)[0].violated) & set(verdict.violated)
    assert not try_scenario(again)[0].violated, "the true protocol keeps what the broken one does not"


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_taken_away_the_rest_can_be_written_down(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []

    def fails(scenario: Scenario, _endpoint: object) -> tuple[Verdict, None]:
        build(scenario)  # refuses impossible settings, as a real trial does
        texts.append(scenario.to_text())
        return Verdict(scenario.name, ("agreed-order",) if len(texts) % 3 else ()), None

    monkeypatch.setattr(shrinking, "try_scenario", fails)
    small = Shrinker(plan(seed), ("agreed-order",), trials_max=200).shrink()
    assert len(small.steps) < len(plan(seed).steps)
    for text in texts:
        parse(text, "taken away")
