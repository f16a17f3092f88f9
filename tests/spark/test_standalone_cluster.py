"""A real cluster, a master and two workers on loopback: a worker killed half-way changes no result."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from standalone import POLL_S, READY_S, Cluster, standalone

from totempole.spark.campaign.attempt import run_here
from totempole.spark.campaign.cases import Campaign, try_case
from totempole.spark.campaign.tables import RUNS, batch_of

CAMPAIGN = Campaign(range(30))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def totem(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "totempole", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


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


def wait_for_wave(out: Path, command: subprocess.Popen[str]) -> None:
    end_s = time.monotonic() + READY_S
    while not list(out.glob("runs/wave-*.parquet")):
        assert command.poll() is None, command.communicate()[0]
        assert time.monotonic() < end_s, "no wave came back"
        time.sleep(POLL_S)


def test_a_campaign_outlives_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    out, file = tmp_path / "hunt", tmp_path / "found.json"
    seeds = f"{CAMPAIGN.seeds.start}:{CAMPAIGN.seeds.stop}"
    command = totem(
        *("campaign", "--seeds", seeds, "--master", cluster.url, "--out", str(out), "--json", str(file))
    )
    try:
        wait_for_wave(out, command)
        victim = cluster.workers[1]
        victim.wait_for(r"Asked to launch (executor)")
        assert command.poll() is None, "it was to be half-way"
        victim.kill()
        text, _ = command.communicate(timeout=2 * READY_S)
    finally:
        command.kill()
        command.wait()
    assert command.returncode == 0, text
    cluster.master.wait_for(r"(Removing worker)")
    assert comparable(pq.read_table(out / "runs")) == comparable(in_processes())
    found = json.loads(file.read_text())
    assert (found["done"], found["failed"], found["holds"]) == (len(CAMPAIGN), 0, True)
