"""Logs on disk beside traces, on Spark: verdicts in ranges, the table of records, and the command."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import totempole
from daemons import Cluster, cluster, wait_until
from totempole.checkers.stored_logs import StoredLogs
from totempole.checkers.terms import Terms
from totempole.cli import main
from totempole.errors import ConfigurationError, StorageError
from totempole.log.reader import LogReader
from totempole.log.segments import segment_name
from totempole.runtime.status import StatusError, read_status
from totempole.spark.bronze import find_files, read_events
from totempole.spark.log_files import find_logs
from totempole.spark.log_records import SCHEMA, log_records
from totempole.spark.report.latency import log_latencies
from totempole.spark.tables import Tables
from totempole.spark.verify_logs import run_of_logs, verify_logs
from totempole.trace.parquet import write_parquet
from totempole.trace.schema import Row
from totempole.types import Fence
from traced_logs import RUN, STEP_US, Replicas, good, judged

DOCS = (Path(__file__).parents[2] / "docs/spark.md").read_text(encoding="utf-8")
RANGE_RUNS = 2
Events = Callable[[Sequence[Row]], DataFrame]


@pytest.fixture
def events_of(spark: SparkSession, tmp_path: Path) -> Callable[[Sequence[Row]], DataFrame]:
    """What is read of these rows from a file."""
    count = itertools.count()

    def events(rows: Sequence[Row]) -> DataFrame:
        file = tmp_path / f"part-{next(count):05}.parquet"
        write_parquet(file, [rows])
        return read_events(spark, [file])

    return events


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    replicas = good(tmp_path)
    for number in (1, 1):  # the second is kept out
        fence = Fence("query", number, 0, number - 1)
        replicas.each(lambda log, fence=fence: log.append([b"x", b"y"], fence=fence, origin=2))  # type: ignore[misc]
    return replicas


def test_ranges_on_executors_say_what_the_whole_says(replicas: Replicas, events_of: Events) -> None:
    """Three logs, each wrong in another way, and a trace with a hole."""
    replicas.logs[1].zones.position += 5
    replicas.logs[2].zones.keys.clear()
    replicas.begin_segment()
    replicas.append(b"next")
    rows = [row for row in replicas.rows() if (row.node, row.corel.place, row.new_state) != (3, 4, "green")]
    directories = replicas.directories()
    whole = judged(directories, rows, complete=True)
    found = verify_logs(
        events_of(rows), RUN, Terms(complete=True), find_logs(directories), runs_max=RANGE_RUNS
    )
    outcomes = {row["property"]: (row["outcome"], row["count"]) for row in found.verdicts.collect()}
    assert outcomes == {verdict.property: (verdict.outcome, verdict.count) for verdict in whole.verdicts}
    texts = {(row["property"], row["text"], tuple(row["nodes"])) for row in found.findings.collect()}
    assert texts == {
        (verdict.property, violation.text, violation.nodes)
        for verdict in whole.verdicts
        for violation in verdict.violations
    }
    assert len({name for name, _, _ in texts}) == 5
    index = StoredLogs.whole([], rows)
    assert set(found.told.tellings) == set(index.tellings)
    assert found.told.replicas == index.replicas == {1, 2, 3}


def test_the_table_has_a_row_for_each_record_and_node(
    spark: SparkSession, replicas: Replicas, events_of: Events, tmp_path: Path
) -> None:
    """The log of node 3 is not given; that of node 2 is trimmed; the trace of node 1 ends early."""
    rows = [row for row in replicas.rows() if row.node != 1 or row.corel.place <= 4]
    (replicas.logs[2].directory / segment_name(1)).unlink()
    events = events_of(rows)
    logs = find_logs(replicas.directories(1, 2))
    found = {
        (row["position"], row["node"]): row
        for row in log_records(events, logs, payloads=True, runs_max=RANGE_RUNS).collect()
    }
    records = {record.position: record for record in LogReader(replicas.logs[1].directory).records()}
    assert found.keys() == {(position, node) for position in records for node in (1, 2, 3)}
    trimmed = logs[1].first_position
    for (position, node), row in found.items():
        record = records[position]
        is_there = node == 1 or (node == 2 and position >= trimmed)
        assert row["on_disk"] is (None if node == 3 else is_there)
        assert row["message"] == f"{record.run}.{record.index}"
        assert (row["origin"], row["log"], row["key"] or "") == (record.run.origin, record.log, record.key)
        assert row["payload"] == (record.payload if is_there else None)
        assert row["bytes"] == (len(record.payload) if is_there else None)
    place = {row.message: row.corel.place for row in rows if row.new_state == "green"}
    for (_, node), row in found.items():
        at_us = STEP_US * (place[row["message"].rpartition(".")[0]] + 1)
        is_told = node != 1 or at_us <= STEP_US * 5
        assert row["green_at_us"] == (at_us + 10 * node if is_told else None)
        assert row["yellow_at_us"] == (at_us + node if is_told else None)
        assert row["appended_at_us"] == at_us
        assert row["latency_us"] == (10 * node if is_told else None)
    told = log_records(events)
    assert told.schema == SCHEMA
    assert told.count() == 2 * len(records) + sum(
        1 for (_, node), row in found.items() if node == 1 and row["green_at_us"]
    )
    latencies = {(row["node"], row["latency_us"], row["own"]) for row in log_latencies(events).collect()}
    assert latencies == {(node, 10 * node, own) for node in (1, 2, 3) for own in (True, False)}
    kept = Tables(spark, tmp_path / "tables")
    events.write.partitionBy("run").parquet(str(tmp_path / "tables/bronze/events"))
    (tmp_path / "tables/gold/log_findings/run=written").mkdir(parents=True)
    (tmp_path / "tables/gold/log_findings/run=written/part-0.parquet").write_bytes(b"of an earlier log")
    kept.keep_logs(verify_logs(events, RUN, Terms(), logs))
    assert kept.read("silver/log_records").where("on_disk").count() == 2 * len(records) - trimmed
    assert kept.read("gold/log_verdicts").where("outcome = 'holds'").count() == 8
    assert kept.read("gold/log_findings").count() == 0


def test_a_trace_without_a_log(replicas: Replicas, events_of: Events) -> None:
    alone = replicas.rows()[0]._replace(layer="srp", kind="restart")
    assert log_records(events_of([alone])).collect() == []
    logs = find_logs(replicas.directories())
    assert (
        log_records(events_of([alone]), logs).where("on_disk and green_at_us is null").count()
        == 3 * logs[0].position
    )
    found = verify_logs(events_of([alone]), RUN, Terms(complete=True), logs)
    assert found.verdicts.where("outcome = 'holds'").count() == 8


def test_whose_logs_these_are(replicas: Replicas, events_of: Events) -> None:
    rows = replicas.rows(1)
    assert run_of_logs(events_of(rows)) == RUN
    other = [row._replace(run="other", layer="srp") for row in rows[:1]]
    assert run_of_logs(events_of(rows + other)) == RUN
    with pytest.raises(ConfigurationError, match=r"several runs \(other, written\); say with --run"):
        run_of_logs(events_of([*rows, *(row._replace(run="other") for row in rows)]))


def test_a_log_that_executors_cannot_read(replicas: Replicas, events_of: Events) -> None:
    logs = find_logs(replicas.directories(1))
    replicas.logs[1].directory.rename(replicas.logs[1].directory.with_name("moved"))
    with pytest.raises(StorageError, match="node1 cannot be read as a log"):
        verify_logs(events_of(replicas.rows(2)), RUN, Terms(), logs)


# The command, and what the documents say of it


def block(language: str) -> str:
    """The only one of this language, or the only one about logs."""
    (found,) = (
        text
        for text in re.findall(rf"^```{language}\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
        if "log" in text
    )
    return str(found)


def run_command(line: str, *more: str) -> int:
    program, *words = shlex.split(line)
    assert program == "totem"
    arguments: list[str] = []
    for word in words:
        arguments += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return main([*arguments, *more])


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The documents' run, simulated; and their command that judges it."""
    monkeypatch.chdir(tmp_path)
    Path("orders.scenario").write_text(block("scenario"), encoding="utf-8")
    simulate, verify = re.findall(r"^totem .* logs(?:/\*)?$", DOCS, re.MULTILINE)
    assert run_command(simulate) == 0
    return str(verify)


def test_the_documents_example(spark: SparkSession, saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(saved, "--json", "verdicts.json") == 0
    document = json.loads(Path("verdicts.json").read_text())
    assert document["holds"]
    assert [log["node"] for log in document["logs"]] == [1, 2, 3]
    assert [log["next_position"] for log in document["logs"]] == [6, 6, 6]
    names = re.findall(r"^\| (log-\S+) \|", DOCS, re.MULTILINE)
    assert [name for name in document["properties"] if name.startswith("log-")] == names
    assert all(document["properties"][name] == {"holds": 1} for name in names)
    capsys.readouterr()
    exec(compile(block("python"), "docs/spark.md", "exec"), {"spark": spark})
    shown = capsys.readouterr().out
    assert re.findall(r"\| +(\d)\| +\d+\| +true\|", shown) == ["1", "2", "3"], shown


def test_a_broken_log_is_found_by_the_command(
    spark: SparkSession, saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("logs/node2") / segment_name(1)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert run_command(saved, "--json", "verdicts.json") == 1
    document = json.loads(Path("verdicts.json").read_text())
    assert document["properties"]["log-intact"] == {"violated": 1}
    (finding,) = (row for row in document["findings"] if row["property"] == "log-intact")
    assert finding["nodes"] == [2]
    assert "000000000001.segment: frames" in finding["text"]
    assert run_command("totem verify traces --follow --log logs/*") == 2
    assert "--log: not with --follow" in capsys.readouterr().err
    assert run_command("totem verify traces --log traces") == 2
    assert "has no log in it" in capsys.readouterr().err


# Nodes


BRISK = "token_loss_us = 300000\ntoken_retransmission_us = 50000\nconsensus_us = 50000\n"
"""The others notice soon that a node was killed."""
TRACED = """
[log]
enabled = true
replicas = [1, 2, 3]
segment_bytes = 65536
[trace]
level = "checked"
"""


def wait_for_primary(them: Cluster, *numbers: int) -> None:
    def is_there(number: int) -> bool:
        try:
            log = read_status(them[number].directory).get("log", {})
        except StatusError:
            return False
        return bool(log.get("standing") == "primary" and log["members"] == [*numbers])

    wait_until(lambda: all(map(is_there, numbers)), lambda: "".join(them[number].log() for number in numbers))


@pytest.mark.nodes
def test_nodes_of_which_one_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Its trace is a prefix, and its log lacks what was ordered without it; a second life goes on in both."""

    def append(them: Cluster, node: int, name: str) -> None:
        with totempole.blocking.connect(them[node].socket) as session, session.log("orders") as log:
            log.append_many([b"x" * 100] * 500, [f"{name}-{number}" for number in range(500)], timeout=60)

    with cluster(3, tmp_path, BRISK + TRACED) as them:
        wait_for_primary(them, 1, 2, 3)
        append(them, 3, "before")
        them[3].end(signal.SIGKILL)
        append(them, 1, "without")
        them[3].start()
        wait_for_primary(them, 1, 2, 3)
        append(them, 2, "after")
        directories = [daemon.directory for daemon in them.daemons.values()]
        at_work = [directory / "log" for directory in directories]
        wait_until(lambda: {log.position for log in find_logs(at_work)} == {1500})
        for daemon in them.daemons.values():
            daemon.end(signal.SIGTERM)
    events = read_events(spark, find_files([directory / "trace" for directory in directories]))
    logs = find_logs(at_work)
    found = verify_logs(events, run_of_logs(events), Terms(complete=True), logs, runs_max=20)
    assert {row["outcome"] for row in found.verdicts.collect()} == {"holds"}, found.findings.collect()
    assert {telling.node for telling in found.told.tellings} == {1, 2, 3}
    told = (
        log_records(events, logs)
        .groupBy("node")
        .agg(
            F.count("*").alias("records"),
            F.count_if(F.col("on_disk")).alias("on_disk"),
            F.count("green_at_us").alias("green"),
            F.count_if(F.expr("node = origin and latency_us > 0")).alias("own"),
        )
    )
    rows = {row["node"]: row for row in told.collect()}
    assert all((row["records"], row["on_disk"]) == (1500, 1500) for row in rows.values())
    assert all((row["green"], row["own"]) == (1500, 500) for node, row in rows.items() if node != 3)
