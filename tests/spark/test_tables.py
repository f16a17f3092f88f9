"""The tables on disk: partitioned by run, the same when made again; only what has changed is made anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from totempole.checkers import PROPERTIES
from totempole.checkers.terms import Terms
from totempole.checkers.terms_file import read_terms
from totempole.sim.saving import save_run
from totempole.sim.script_parser import parse
from totempole.sim.script_runner import Outcome, run
from totempole.spark.bronze import find_files
from totempole.spark.tables import Tables

SCENARIO = """\
processors p=1 q=2 r=3
seed {seed}
at 300ms send p 5 safe
at 400ms partition (p q) (r)
at 600ms heal
end 1500ms
expect settled 1s
"""


def simulate(name: str, seed: int) -> Outcome:
    return run(parse(SCENARIO.format(seed=seed), name), level="protocol")


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return simulate("one", 1)


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, outcome: Outcome, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Tables]:
    traces = tmp_path_factory.mktemp("traces")
    save_run(traces, outcome)
    tables = Tables(spark, tmp_path_factory.mktemp("tables"))
    assert update(tables, traces) == ["one"]
    return traces, tables


def update(tables: Tables, traces: Path) -> list[str]:
    return tables.update(find_files([traces]), read_terms(traces), Terms())


def test_every_table_is_partitioned_by_run(made: tuple[Path, Tables]) -> None:
    _, tables = made
    places = {place.parent.relative_to(tables.directory) for place in tables.directory.glob("*/*/run=one")}
    assert {str(place) for place in places} >= {
        "bronze/events",
        "silver/messages",
        "silver/configurations",
        "silver/token_visits",
        "gold/verdicts",
        "gold/runs",
        "gold/stays",
        "gold/latency",
        "gold/rotation",
    }


def test_a_message_has_one_row_with_all_that_became_of_it(
    made: tuple[Path, Tables], outcome: Outcome
) -> None:
    rows = made[1].read("silver/messages").where("run = 'one'").collect()
    submitted = {row.message for row in outcome.rows if row.kind == "submit"}
    assert {row["message"] for row in rows} == submitted
    for row in rows:
        delivered = [
            (each.node, each.step, each.at_us, each.configuration)
            for each in outcome.rows
            if each.kind == "deliver" and each.message == row["message"]
        ]
        assert sorted(tuple(each) for each in row["delivered"]) == sorted(delivered)
        assert row["origin"] == 1
        assert row["service"] == "safe"
        assert row["originated"]["at_us"] <= min(each["at_us"] for each in row["delivered"])
        assert row["broadcasts"] >= 1


def test_a_configuration_has_one_row_for_each_node(made: tuple[Path, Tables], outcome: Outcome) -> None:
    rows = made[1].read("silver/configurations").where("run = 'one'").collect()
    installed = {
        (row.node, row.configuration, row.at_us) for row in outcome.rows if row.kind == "configuration"
    }
    assert {(row["node"], row["configuration"], row["from_us"]) for row in rows} == installed
    assert all(row["to_us"] is None or row["to_us"] >= row["from_us"] for row in rows)


def test_rotations_are_measured(made: tuple[Path, Tables], outcome: Outcome) -> None:
    rows = made[1].read("silver/token_visits").where("run = 'one'").collect()
    assert len(rows) == sum(row.kind == "token" for row in outcome.rows)
    assert all(row["rotation_us"] is None or row["rotation_us"] > 0 for row in rows)


def test_the_figures_are_of_the_same_events(made: tuple[Path, Tables], outcome: Outcome) -> None:
    (row,) = made[1].read("gold/runs").where("run = 'one'").collect()
    assert row["delivered"] == sum(each.kind == "deliver" for each in outcome.rows)
    own = "run = 'one' and scope = 'own' and service = 'safe' and percentile = 50"
    (latency,) = made[1].read("gold/latency").where(own).collect()
    assert latency["deliveries"] == len({each.message for each in outcome.rows if each.kind == "submit"})


def test_what_has_not_changed_is_not_made_again(made: tuple[Path, Tables], spark: SparkSession) -> None:
    traces, tables = made
    assert update(tables, traces) == []
    before = tables.read("gold/verdicts").where("run = 'one'").orderBy("property").collect()
    assert len(before) == len(PROPERTIES)
    save_run(traces, simulate("two", 2))
    assert update(tables, traces) == ["two"]
    assert tables.read("gold/verdicts").where("run = 'one'").orderBy("property").collect() == before
    assert tables.read("gold/verdicts").where("run = 'two'").count() == len(PROPERTIES)
    assert {row["run"] for row in tables.read("gold/runs").collect()} == {"one", "two"}


@pytest.mark.long
def test_a_run_that_is_made_again_leaves_nothing_of_the_old(
    spark: SparkSession, tmp_path: Path, outcome: Outcome
) -> None:
    """First broken, then whole: the finding goes away with the rows that showed it."""
    traces = tmp_path / "traces"
    save_run(traces, outcome)
    whole = (traces / "run=one" / "part-00000.parquet").read_bytes()
    delivery = next(row for row in outcome.rows if row.kind == "deliver")
    broken = Outcome(outcome.scenario, outcome.world)
    broken.world.rows.append(delivery._replace(step=max(row.step for row in outcome.rows) + 1))
    save_run(traces, broken)
    outcome.world.rows.pop()
    tables = Tables(spark, tmp_path / "tables")
    update(tables, traces)
    violated = "run = 'one' and outcome = 'violated'"
    assert tables.read("gold/verdicts").where(violated).count() > 0
    assert tables.read("gold/findings").where("violated").count() > 0
    (traces / "run=one" / "part-00000.parquet").write_bytes(whole)
    assert update(tables, traces) == ["one"]
    assert tables.read("gold/verdicts").where(violated).count() == 0
    assert tables.read("gold/findings").where("violated").count() == 0
