"""A campaign runs every case once, whatever single cases do, and goes on where it was stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from totempole.bench.spark_campaign import measure_campaign
from totempole.cli import main
from totempole.errors import TotemError
from totempole.sim.fuzz.coverage import EXPECTED
from totempole.sim.fuzz.trial import Verdict
from totempole.spark.campaign import attempt, job, limits, store
from totempole.spark.campaign.attempt import Run, Trial, run_all, run_apart, run_here
from totempole.spark.campaign.cases import CHUNK_MAX, Campaign, Case, try_case, waves
from totempole.spark.campaign.job import Sender, search_cases
from totempole.spark.campaign.store import Store
from totempole.spark.campaign.summary import COVERAGE_SEEDS_MIN, Summary
from totempole.spark.campaign.tables import RUNS, batch_of

LIMIT_S = 2.0


def table_of(runs: list[Run]) -> Any:
    return pa.Table.from_batches([batch_of(runs)], RUNS)


def ring(*seeds: int) -> list[Case]:
    return [Case("ring", "all", seed) for seed in seeds]


def without_time(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.drop_columns(["elapsed_ms"]).to_pylist()
    return sorted(rows, key=lambda row: (row["kind"], row["profile"], row["seed"]))


def quick_trial() -> Trial:
    """Takes no time; seeds that end in seven fail. Made here, so that it travels to Spark's workers whole."""

    def trial(case: Case) -> Verdict:
        violated = ("agreed-order",) if case.seed % 10 == 7 else ()
        return Verdict("", violated, "why", 3, 2, Counter({"fault: crash": 1, f"branch: {case.seed % 2}": 2}))

    return trial


def slow_trial(marks: Path) -> Trial:
    """Takes a minute, with a mark before and a mark after."""

    def trial(_case: Case) -> Verdict:
        (marks / "begun").touch()
        time.sleep(60)
        (marks / "ended").touch()
        return Verdict("")

    return trial


def wicked_trial() -> Trial:
    def trial(case: Case) -> Verdict:
        match case.seed:
            case 3:
                raise ValueError("a checker's own mistake")
            case 5:
                os._exit(7)
            case 7:
                while True:
                    pass
            case 9:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 11:
                bytearray(1 << 40)
            case 13:
                return Verdict("", ("agreed-order",), "seen twice", 8, 4)
        return Verdict("", deliveries=case.seed)

    return trial


# On Spark


def test_what_executors_find_is_what_the_same_seeds_give_here(spark: SparkSession) -> None:
    campaign = Campaign(range(1, 2), ("ring", "groups"), ("all", "crashes"))
    cases = list(campaign.cases())[1:]
    kept: list[Any] = []
    search_cases(spark, cases, campaign.limit_s, kept.append)
    here = table_of(list(run_all(cases, try_case, campaign.limit_s, apart=False)))
    assert without_time(pa.concat_tables(kept)) == without_time(here)
    assert {row["outcome"] for row in without_time(here)} == {"holds"}


def test_bad_seeds_never_end_the_job(spark: SparkSession) -> None:
    kept: list[Any] = []
    search_cases(spark, ring(*range(40)), LIMIT_S, kept.append, trial=wicked_trial())
    rows = {row["seed"]: row for row in without_time(pa.concat_tables(kept))}
    assert sorted(rows) == list(range(40))
    bad = {seed: row["outcome"] for seed, row in rows.items() if row["outcome"] != "holds"}
    assert bad == {3: "raised", 5: "died", 7: "time limit", 9: "died", 11: "raised", 13: "violated"}
    assert "a checker's own mistake" in rows[3]["text"]
    assert rows[5]["text"].endswith("exit code 7")
    assert rows[9]["text"].endswith("SIGSEGV")
    assert rows[13]["violated"] == ["agreed-order"]
    assert all(rows[seed]["deliveries"] == seed for seed in rows.keys() - bad.keys())


def test_a_campaign_that_is_stopped_goes_on_with_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    campaign = Campaign(range(300))
    with Store.opened(tmp_path / "c", LIMIT_S) as kept:

        def keep_one(runs: Any) -> None:
            kept.keep(runs)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            search_cases(spark, kept.pending(campaign), LIMIT_S, keep_one, trial=quick_trial())
        done = kept.runs(campaign).num_rows
        assert 0 < done < 300
    with Store.opened(tmp_path / "c", LIMIT_S) as kept:
        left = kept.pending(campaign)
        assert len(left) == 300 - done
        search_cases(spark, left, LIMIT_S, kept.keep, trial=quick_trial())
        assert kept.runs(campaign)["seed"].to_pylist() == list(range(300))
        assert kept.pending(campaign) == []
        assert kept.sum_up(campaign).failed == 30


def test_what_is_stopped_does_not_run_on(spark: SparkSession, tmp_path: Path) -> None:
    def press_ctrl_c() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press_ctrl_c).start()
        with pytest.raises(KeyboardInterrupt):
            search_cases(spark, ring(*range(100)), 300.0, lambda _runs: None, trial=slow_trial(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "ended").exists()
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def test_the_same_as_in_the_process_pool(spark: SparkSession) -> None:
    rates = measure_campaign(spark, range(4, 6), rounds=1, cores=1)
    assert rates.same
    assert (rates.runs, len(rates.pool_s), len(rates.spark_s)) == (2, 1, 1)


@pytest.fixture
def quick(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The command, with seeds that take no time. How many cases each search was given."""
    searched: list[int] = []
    quick_search = partial(search_cases, trial=quick_trial())

    def search(spark: SparkSession, cases: list[Case], *rest: Any, **more: Any) -> None:
        searched.append(len(cases))
        quick_search(spark, cases, *rest, **more)

    monkeypatch.setattr(job, "search_cases", search)
    return searched


def test_the_command(quick: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, file = tmp_path / "hunt", tmp_path / "found.json"
    command = [
        "campaign",
        "--seeds",
        "0:20",
        "--profiles",
        "lossy,all",
        "--out",
        str(out),
        "--json",
        str(file),
    ]
    assert main(command) == 1
    text = capsys.readouterr().out
    assert "totem fuzz --profile lossy --seed 17" in text
    assert "Seeds 0:20: 40 runs, 4 failed; 40 in" in text
    assert "Not reached yet (ring): fault: partition," in text
    first = json.loads(file.read_text())
    assert (first["done"], first["failed"], first["holds"]) == (40, 4, False)
    assert first["failures"][1] == {
        "kind": "ring",
        "profile": "all",
        "seed": 17,
        "outcome": "violated",
        "violated": ["agreed-order"],
        "text": "why",
        "replay": "totem fuzz --seed 17",
    }
    assert first["coverage"]["ring"]["fault: crash"] == 40
    assert "fault: crash" not in first["missing"]["ring"]
    assert first["missing"]["ring"] == [name for name in EXPECTED if name != "fault: crash"]

    assert main(command) == 1
    again = json.loads(file.read_text())
    assert quick == [40], "what is done is not run again"
    assert {**again, "runs_per_s": 0} == {**first, "runs_per_s": 0}
    assert main([*command[:2], "0:30", *command[3:]]) == 1
    assert quick == [40, 20]
    assert json.loads(file.read_text())["done"] == 60


def test_its_tables_are_for_any_reader(quick: list[int], spark: SparkSession, tmp_path: Path) -> None:
    assert main(["campaign", "--seeds", "0:10", "--out", str(tmp_path)]) == 1
    runs = spark.read.parquet(str(tmp_path / "runs"))
    assert runs.filter("outcome = 'violated'").select("seed").collect() == [(7,)]
    assert runs.filter("coverage['branch: 1'] = 2").count() == 5
    coverage = spark.read.parquet(str(tmp_path / "coverage.parquet")).filter("times > 0").orderBy("name")
    assert [tuple(row) for row in coverage.collect()] == [
        ("ring", "all", "branch: 0", 10, 5, 0),
        ("ring", "all", "branch: 1", 10, 5, 1),
        ("ring", "all", "fault: crash", 10, 10, 0),
    ]
    failures = spark.read.parquet(str(tmp_path / "failures.parquet"))
    assert [tuple(row) for row in failures.select("seed", "replay").collect()] == [(7, "totem fuzz --seed 7")]


def test_ctrl_c_says_how_to_go_on(
    quick: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = Store.keep

    def keep_one(self: Store, runs: Any) -> None:
        keep(self, runs)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "keep", keep_one)
    assert main(["campaign", "--seeds", "0:200", "--out", str(tmp_path)]) == 130
    assert f"the same command goes on from there ({tmp_path})" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(Store, "keep", keep)
    assert main(["campaign", "--seeds", "0:200", "--out", str(tmp_path)]) == 1
    assert 0 < quick[1] < quick[0] == 200


# Without Spark


@pytest.mark.parametrize(("cases", "cores"), [(0, 2), (1, 4), (60, 2), (61, 3), (1_000, 2), (5_000, 16)])
def test_waves_hold_every_case_once(cases: int, cores: int) -> None:
    wanted = ring(*range(cases))
    found = list(waves(wanted, lambda: cores))
    assert [case for wave in found for chunk in wave for case in chunk] == wanted
    assert all(1 <= len(chunk) <= CHUNK_MAX for wave in found for chunk in wave)


def test_a_wave_that_spark_gives_up_is_sent_once_more_with_care() -> None:
    sent: list[bool] = []

    def send(wave: Any, apart: bool) -> Any:
        sent.append(apart)
        if not apart or wave[0][0].seed == 1:
            raise RuntimeError("a worker died\nand more")
        return table_of([Run(*case, "holds") for chunk in wave for case in chunk])

    sender = Sender(send)
    assert [runs.num_rows for runs in sender.runs([(tuple(ring(2, 3)),)])] == [2]
    assert sent == [False, True]
    with pytest.raises(TotemError, match=r"Spark gave up: a worker died$"):
        list(sender.runs([(tuple(ring(1)),)]))
    sender.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "An error occurred while calling o1.getResult.\n: org.apache.spark.SparkException: Job aborted\n"
            "Traceback:\nModuleNotFoundError: No module named 'pyarrow'\n\n\tat org.apache.spark",
            "ModuleNotFoundError: No module named 'pyarrow'",
        ),
        (
            "An error occurred.\nCaused by: Job aborted: Task 3 failed\n\tat org",
            "Caused by: Job aborted: Task 3 failed",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_telling_line_of_an_error(said: str, told: str) -> None:
    assert job.reason_of(RuntimeError(said)) == told


def test_runs_that_are_missing_are_noticed() -> None:
    sender = Sender(lambda wave, _apart: table_of([Run(*wave[0][0], "holds")]))
    with pytest.raises(TotemError, match="1 runs of 2"):
        list(sender.runs([(tuple(ring(1, 2)),)]))
    sender.close()


def test_a_run_that_never_comes_back_to_python_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAST_S", 0.5)
    monkeypatch.setattr(attempt, "LAST_S", 0.5)

    def trial(_case: Case) -> Verdict:
        sum(range(1 << 60))
        return Verdict("")

    case = ring(1)[0]
    assert run_apart(case, trial, 0.5).outcome == "time limit"
    process = multiprocessing.get_context("fork").Process(target=run_here, args=(case, trial, 0.1))
    process.start()
    process.join()
    assert process.exitcode == 1


def test_an_alarm_is_not_taken_for_the_protocols_own_failure() -> None:
    def trial(_case: Case) -> Verdict:
        try:
            while True:
                pass
        except Exception:
            return Verdict("", ("no-exception",))

    assert run_here(ring(1)[0], trial, 0.1).outcome == "time limit"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_directory_is_for_one_code_and_one_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.opened(tmp_path, 5.0), pytest.raises(TotemError, match="another campaign is at work"):
        Store.opened(tmp_path, 5.0).__enter__()
    with pytest.raises(TotemError, match="--limit 5"):
        Store.opened(tmp_path, 6.0).__enter__()
    monkeypatch.setattr(store, "fingerprint", lambda: "another")
    with pytest.raises(TotemError, match="runs of other code"):
        Store.opened(tmp_path, 5.0).__enter__()


def test_files_that_are_no_campaigns_are_named(tmp_path: Path) -> None:
    with Store.opened(tmp_path, 5.0) as kept:
        kept.keep(table_of([Run("ring", "all", 4, "holds")]))
        assert kept.pending(Campaign(range(3, 6))) == ring(3, 5)
        file = tmp_path / "runs" / "wave-000000.parquet"
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(TotemError, match=f"{file} cannot be read"):
            kept.pending(Campaign(range(3, 6)))
    (tmp_path / "campaign.json").write_text("[]")
    with pytest.raises(TotemError, match=r"campaign.json is not the file of a campaign"):
        Store.opened(tmp_path, 5.0).__enter__()
    (tmp_path / "campaign.json").unlink()
    with pytest.raises(TotemError, match=r"campaign.json is missing"):
        Store.opened(tmp_path, 5.0).__enter__()


def test_a_wave_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.opened(tmp_path, 5.0) as kept:
        write = pq.write_table

        def cut_short(table: Any, where: Path, **more: Any) -> None:
            write(table, where, **more)
            raise OSError("no space")

        monkeypatch.setattr(pq, "write_table", cut_short)
        with pytest.raises(OSError, match="no space"):
            kept.keep(table_of([Run("ring", "all", 4, "holds")]))
        assert kept.pending(Campaign(range(4, 5))) == ring(4)


def test_a_large_campaign_must_have_reached_everything() -> None:
    everything = tuple((name, 1) for name in EXPECTED)

    def summary(runs: int, coverage: tuple[tuple[str, int], ...], profile: str = "all") -> Summary:
        found = [Run("ring", profile, seed, "holds", coverage=coverage) for seed in range(runs)]
        return Summary(Campaign(range(runs), profiles=(profile,)), table_of(found))

    assert summary(COVERAGE_SEEDS_MIN, everything).holds
    assert summary(COVERAGE_SEEDS_MIN - 1, everything[1:]).holds
    blind = summary(COVERAGE_SEEDS_MIN, everything[1:])
    assert not blind.holds
    assert blind.missing("ring") == [EXPECTED[0]]
    assert blind.coverage.to_pylist()[-1]["name"] == EXPECTED[0]
    assert summary(COVERAGE_SEEDS_MIN, (), "calm").holds


def test_a_campaign_that_is_not_done_does_not_hold() -> None:
    done = table_of([Run("ring", "all", 0, "holds")])
    assert Summary(Campaign(range(1)), done).holds
    assert not Summary(Campaign(range(2)), done).holds
    assert not Summary(Campaign(range(1)), table_of([Run("ring", "all", 0, "time limit")])).holds
    assert not Summary(Campaign(range(2)), table_of([])).holds


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kinds", "square"], "there is no kind 'square'; there are ring, groups"),
        (["--profiles", "all,none"], "there is no profile 'none'"),
        (["--limit", "0"], "at least 1"),
        (["--out", "hdfs://there/hunt"], "a directory of this machine"),
    ],
)
def test_mistakes_in_the_arguments(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", *arguments]) == 2
    assert told in capsys.readouterr().err
