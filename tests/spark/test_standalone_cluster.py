"""A real cluster, a master and two workers on loopback: one killed half-way does not change the result."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from standalone import POLL_S, Cluster, Member, standalone

from totempole.checkers.terms import Terms
from totempole.cli import verify
from totempole.cli.mutants import find_mutant
from totempole.sim.fuzz.mutants import mutated_stack
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.trial import try_scenario
from totempole.sim.saving import save_run
from totempole.spark.campaign.attempt import run_here
from totempole.spark.campaign.cases import Campaign, try_case
from totempole.spark.campaign.tables import RUNS, batch_of
from totempole.spark.verdicts import judge_files
from totempole.spark.verify import Judge

CAMPAIGN = Campaign(range(30))
BROKEN = "safe delivered as agreed"
PATIENCE_S = 600.0
"""Far more than it takes, on a machine that has much else to do."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of one worker; each test adds the one that it kills."""
    with standalone(tmp_path_factory.mktemp("cluster"), workers=1) as running:
        yield running


def totem_losing(
    cluster: Cluster, victim: Member, half_way: Callable[[], bool], *arguments: str
) -> tuple[int, str]:
    """The command's exit code and what it said. The worker is killed half-way."""
    command = subprocess.Popen(
        [sys.executable, "-m", "totempole", *arguments, "--master", cluster.url],
        env=cluster.users_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not half_way():
            assert command.poll() is None, command.communicate()[0]
            assert time.monotonic() < end_s, "it did not come half-way"
            time.sleep(POLL_S)
        assert command.poll() is None, "it was to be half-way"
        victim.kill()
        said, _ = command.communicate(timeout=PATIENCE_S)
        return command.returncode, said
    finally:
        command.kill()
        command.wait()


# A campaign


def in_processes() -> Any:
    """The same cases without Spark."""
    trial = partial(run_here, trial=try_case, limit_s=CAMPAIGN.limit_s)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pa.Table.from_batches([batch_of(pool.map(trial, CAMPAIGN.cases(), chunksize=1))])


def comparable(runs: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        runs.select(RUNS.names).drop_columns(["elapsed_ms"]).sort_by("seed").to_pylist()
    )
    return rows


@pytest.mark.long
def test_a_campaign_outlives_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    out, file = tmp_path / "hunt", tmp_path / "found.json"
    seeds = f"{CAMPAIGN.seeds.start}:{CAMPAIGN.seeds.stop}"
    command = ("campaign", "--seeds", seeds, "--out", str(out), "--json", str(file))
    victim = cluster.add_worker()

    def a_wave_is_there() -> bool:
        return any(out.glob("runs/wave-*.parquet"))

    code, said = totem_losing(cluster, victim, a_wave_is_there, *command)
    assert code == 0, said
    assert "Asked to launch executor" in victim.log.read_text()
    cluster.master.wait_for(r"(Removing worker)")
    assert comparable(pq.read_table(out / "runs")) == comparable(in_processes())
    found = json.loads(file.read_text())
    assert (found["done"], found["failed"], found["holds"]) == (len(CAMPAIGN), 0, True)


# A verification


def save_traces(directory: Path) -> None:
    """Two good runs and one of a broken protocol."""
    endpoints = {2: None, 3: None, 1: mutated_stack(find_mutant(BROKEN))}
    for seed, endpoint in endpoints.items():
        _, outcome = try_scenario(plan(seed), endpoint)
        assert outcome is not None
        save_run(directory, outcome)


@pytest.mark.long
def test_a_verification_outlives_a_worker(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    traces, file = tmp_path / "traces", tmp_path / "found.json"
    save_traces(traces)
    victim = cluster.add_worker()

    def it_has_something_to_lose() -> bool:
        """Results of tasks that others still need."""
        return any(victim.scratch.rglob("shuffle_*.data"))

    command = ("verify", str(traces), "--judge", "statements", "--json", str(file))
    code, said = totem_losing(cluster, victim, it_has_something_to_lose, *command)
    assert code == 1, said
    here = json.loads(json.dumps(verify.data(judge_files(spark, [traces], Terms(), by=Judge.STATEMENTS))))
    found = json.loads(file.read_text())
    assert found == here
    assert found["properties"]["safe-delivery"] == {"holds": 2, "violated": 1}
