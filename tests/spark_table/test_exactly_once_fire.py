"""Exactly once, in both directions, while drivers, executors and replicas are killed and power fails.

Three nodes keep a log. Programs append rows to the log "in". A Spark program reads it as a stream, keeps what
it reads as a table, and writes a row to the log "out" for each. Everything is killed with -9, at points that
a seed names or at any time, and comes back; replicas lose their power, and with it what they had not synced
(tests/log/powercut.py). After each round "in" has all that was appended once, "out" has one row for each row
of "in", the table is equal to "in" row for row, and all replicas have the same.

The same rounds find what is wrong with sinks and sources that are broken on purpose.
"""

from __future__ import annotations

import re
from pathlib import Path

import fire_points as points
import pytest
from fire_plan import LARGE, SMALL, TINY, Burst, Campaign, Round, Shot
from fire_points import COMMITTER, DRIVER, EXECUTOR, REPLICA, Start
from fire_stage import HERE, Stage, staged
from powercut import build, compiler
from standalone import standalone

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(compiler() is None, reason="no C compiler: scripts/system-packages test"),
]

ROUNDS = 10
SEEDS = range(100, 124)
"""Of the long test: 240 rounds, in about an hour and a half on two cores with nothing else to do."""
CLUSTER_ROUNDS = 12


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("powercut"))


def cut_differently(_: int, stage: Stage, number: int, **more: str) -> Start:
    """Batches of fifty rows are large, and every other driver cuts them into shorter runs."""
    parts, run_records = ((1, 40), (3, 8))[number % 2]
    return Start(number, ",".join(stage.sockets), parts, 150, TINY, run_records, 2, **more)


def test_each_row_is_there_once_though_a_driver_an_executor_and_replicas_die(
    library: Path, tmp_path: Path
) -> None:
    staged_round = Round(
        bursts=[Burst(0, LARGE[0])],
        aims=[(points.TASK_STAGED, EXECUTOR, 1), (points.STEP, DRIVER, 2)],
        shots=[Shot(0.3, REPLICA, (2,), power=True, down_s=1), Shot(1.5, REPLICA, (3,), down_s=0.5)],
    )
    small_round = Round(bursts=[Burst(0, SMALL)], aims=[(points.DIRECT, COMMITTER, 1)], shots=[])
    with staged(tmp_path, library, seed=1) as stage:
        campaign = Campaign(stage, seed=1, draw=cut_differently)
        assert not campaign.play(staged_round)
        assert not campaign.play(small_round)
        assert not campaign.end()
    print(campaign.summary())
    for victim in (DRIVER, COMMITTER, EXECUTOR, "replica", "replica's power"):
        assert stage.fired[victim], f"no {victim} was killed"
    for way in ("staged", "direct", "WRITTEN", "REPEATED", "FINISHED"):
        assert campaign.published[way], f"no batch was {way}"


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_rounds_that_a_seed_draws(library: Path, tmp_path: Path, seed: int) -> None:
    with staged(tmp_path, library, seed) as stage:
        campaign = Campaign(stage, seed)
        try:
            assert not campaign.run(ROUNDS)
            assert not campaign.end()
        finally:
            print(campaign.summary())
    assert campaign.unfired <= ROUNDS // 2, "it shoots at what does not come"


@pytest.mark.long
def test_rounds_on_a_cluster_whose_executors_die(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    (tmp_path / "cluster").mkdir()
    with standalone(tmp_path / "cluster", workers=2) as spark, staged(tmp_path, library, seed=1) as stage:
        campaign = Campaign(stage, seed=1, master=spark.url)
        try:
            executors = Round(
                bursts=[Burst(0, LARGE[0])],
                aims=[(points.TASK_STAGED, EXECUTOR, 1), (points.READING, EXECUTOR, 1)],
                shots=[Shot(3, EXECUTOR)],
            )
            assert not campaign.play(executors)
            assert not campaign.run(CLUSTER_ROUNDS)
            assert not campaign.end()
        finally:
            print(campaign.summary())
        assert stage.fired[EXECUTOR]


# What is broken on purpose

MUTANTS = {
    # Rows come in without their fence: an attempt that comes second writes them again.
    "unfenced": Round([Burst(0, SMALL)], [(points.DIRECT, COMMITTER, 1)], []),
    # Nobody decides which staged runs count: the second driver goes on with its own, cut differently.
    "undecided": Round([Burst(0, LARGE[0])], [(points.STEP, DRIVER, 1)], []),
    # The source does not go on where it was.
    "forgetful": Round([Burst(0, SMALL)], [(points.COMMITTING, COMMITTER, 1)], []),
}


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_same_rounds_find(mutant: str, library: Path, tmp_path: Path) -> None:
    warm_up = Round([Burst(0, SMALL)], [], [])
    with staged(tmp_path, library, seed=1) as stage:
        campaign = Campaign(stage, seed=1, mutant=mutant, draw=cut_differently)
        assert not campaign.play(warm_up)
        wrong = campaign.play(MUTANTS[mutant])
    assert any(re.search(r"rows are (not answered|answered twice)", each) for each in wrong), wrong
