"""The figures' tables, each number known beforehand from a trace of a few rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tracebuilder import move

from totempole.spark.report import latency, lives, timeline, token, traffic
from totempole.spark.report.bins import BINS_MAX, bin_us
from totempole.spark.schema import EVENTS
from totempole.trace.schema import Row, flat, in_layers

RING = "4@1"
NEXT = "8@1"


def row(run: str, node: int, step: int, at_us: int, kind: str, **columns: Any) -> Row:
    layer = "groups" if kind.startswith("group") else "srp"
    return Row(
        run, node, columns.pop("incarnation", 1), step, at_us, layer, kind, **in_layers(layer, columns)
    )


def installed(run: str, node: int, step: int, at_us: int, name: str, *members: int, **columns: Any) -> Row:
    kind = "transitional" if columns.pop("transitional", False) else "regular"
    columns |= {"configuration": name, "configuration_kind": kind, "ring": RING, "members": members}
    return row(run, node, step, at_us, "configuration", **columns)


def ring_row(node: int, step: int, at_us: int, kind: str, message: str, service: str) -> Row:
    columns: dict[str, Any] = {"message": message, "origin": 1, "service": service, "configuration": RING}
    if kind == "deliver":
        columns |= {"count": 1, "bytes": 100}
    return row("a", node, step, at_us, kind, **columns)


RUN_A = [
    row("a", 0, 1, 3_000, "fault", reason="partition", detail="(1) (2)", incarnation=0),
    row("a", 0, 2, 3_100, "fault", reason="dropped", detail="message from 1", incarnation=0),
    row("a", 1, 1, 0, "restart"),
    installed("a", 1, 2, 100, RING, 1, 2),
    # A life that left its number to the next one had submitted a message of this name.
    ring_row(1, 3, 900, "submit", "1.1.1", "agreed"),
    ring_row(1, 4, 1_000, "submit", "1.1.1", "agreed"),
    ring_row(1, 5, 1_500, "deliver", "1.1.1", "agreed"),
    ring_row(1, 6, 2_000, "submit", "1.1.2", "safe"),
    ring_row(1, 7, 4_000, "deliver", "1.1.2", "safe"),
    row("a", 1, 8, 4_100, "token", ring=RING),
    row("a", 1, 9, 4_500, "token", ring=RING),
    row("a", 1, 10, 5_100, "token", ring=RING),
    row("a", 1, 11, 5_200, "token", ring=NEXT),
    row("a", 1, 12, 5_300, "retransmit", ring=RING, seq=3, bytes=70),
    row("a", 1, 13, 5_400, "state", **move("operational>gather token loss")),
    row("a", 1, 14, 5_500, "state", **move("gather>commit consensus")),
    row("a", 1, 15, 5_900, "state", **move("recover>operational ring installed")),
    installed("a", 1, 16, 5_900, "8@0", 1, transitional=True),
    installed("a", 1, 17, 5_900, NEXT, 1),
    row("a", 1, 18, 10_000, "state", **move("operational>gather join")),
    row("a", 2, 1, 50, "restart"),
    installed("a", 2, 2, 150, RING, 1, 2),
    ring_row(2, 3, 1_800, "deliver", "1.1.1", "agreed"),
    row("a", 2, 4, 1_810, "drop", count=3, reason="overflow data"),
    row("a", 2, 5, 1_820, "drop", reason="foreign message"),
    ring_row(2, 6, 4_100, "deliver", "1.1.2", "safe"),
    row("a", 2, 7, 6_000, "crash"),
    row("a", 2, 8, 6_900, "fault", reason="restart", detail="2"),
    row("a", 2, 9, 7_000, "restart", incarnation=2),
]

KILLED = [
    row("killed", 1, 1, 0, "restart"),
    installed("killed", 1, 2, 10, RING, 1, 2),
    row("killed", 1, 3, 500, "deliver", configuration=RING, count=1),
    row("killed", 1, 4, 900, "restart", incarnation=2),
    installed("killed", 1, 5, 910, NEXT, 1, 2, incarnation=2),
    row("killed", 1, 6, 950, "receive", incarnation=2),
]


def sent(step: int, at_us: int, number: int, count: int) -> Row:
    columns = {"message": f"1.1.7:{number}", "process": "1.1.7", "to": ("orders",), "service": "agreed"}
    return row("groups", 1, step, at_us, "group_send", count=count, **columns)


def received(
    node: int, step: int, at_us: int, number: int, count: int, groups: tuple[str, ...] = ("orders",)
) -> Row:
    columns = {"message": f"1.1.7:{number}", "to": groups, "service": "agreed", "origin": 1}
    return row("groups", node, step, at_us, "group_deliver", count=count, bytes=10, **columns)


GROUPS = [
    sent(1, 100, 1, 3),
    sent(2, 150, 4, 1),
    received(1, 3, 250, 1, 4),
    received(2, 1, 300, 1, 2),
    received(2, 2, 400, 3, 1),
    received(2, 3, 450, 4, 1, ("orders", "stock")),
    received(2, 4, 500, 9, 1),
]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(map(flat, [*RUN_A, *KILLED, *GROUPS])), EVENTS).coalesce(2).cache()


@pytest.fixture(scope="module")
def of_lives(events: DataFrame) -> DataFrame:
    return lives.lives(events).cache()


@pytest.fixture(scope="module")
def runs(of_lives: DataFrame) -> DataFrame:
    return lives.runs(of_lives).cache()


def found(table: DataFrame, *columns: str, **wanted: Any) -> list[tuple[Any, ...]]:
    rows = [each.asDict() for each in table.collect()]
    kept = [each for each in rows if all(each[name] == value for name, value in wanted.items())]
    return sorted(tuple(each[name] for name in columns) for each in kept)


def test_bins_are_round_and_not_too_many(spark: SparkSession) -> None:
    lengths = (0, 1, 119, 120, 10_000, 3_000_000, 86_400_000_000)
    frame = spark.createDataFrame([(length,) for length in lengths], "length_us long")
    widths = {
        each.length_us: each.bin_us
        for each in frame.select("*", bin_us(frame.length_us).alias("bin_us")).collect()
    }
    assert widths == {
        0: 1,
        1: 1,
        119: 1,
        120: 2,
        10_000: 100,
        3_000_000: 50_000,
        86_400_000_000: 1_000_000_000,
    }
    assert all(length // width + 1 <= BINS_MAX for length, width in widths.items())


def test_runs_and_lives(of_lives: DataFrame, runs: DataFrame) -> None:
    columns = ("run", "start_us", "end_us", "bin_us", "level", "processors", "lives", "delivered", "rings")
    assert found(runs, *columns) == [
        ("a", 0, 10_000, 100, "protocol", 2, 3, 4, 2),
        ("groups", 100, 500, 5, "delivery", 2, 2, 0, 0),
        ("killed", 0, 950, 10, "checked", 1, 2, 1, 2),
    ]
    assert found(runs, "submitted", "crashes", "faults", "installed", "delivered_bytes", run="a") == [
        (3, 1, 3, 4, 400)
    ]
    # What is done to a node that is down is not its own doing.
    assert found(of_lives, "incarnation", "first_us", "last_us", run="a", node=2) == [
        (1, 50, 6_000),
        (2, 7_000, 7_000),
    ]


def test_latency_of_each_delivery(events: DataFrame) -> None:
    deliveries = latency.ring_latencies(events)
    assert found(deliveries, "node", "service", "latency_us", "own", run="a") == [
        (1, "agreed", 500, True),
        (1, "safe", 2_000, True),
        (2, "agreed", 800, False),
        (2, "safe", 2_100, False),
    ]


def test_latency_of_batches_in_groups(events: DataFrame) -> None:
    """One send in two deliveries, two sends in one, and one whose send the trace has lost."""
    deliveries = latency.group_latencies(events)
    assert found(deliveries, "node", "at_us", "latency_us", "own") == [
        (1, 250, 150, True),
        (2, 300, 200, False),
        (2, 400, 300, False),
        (2, 450, 300, False),
    ]


def test_latency_percentiles_and_time(spark: SparkSession, runs: DataFrame) -> None:
    rows = [("a", "ring", 1, "agreed", 100 * place, place, True) for place in range(1, 101)]
    rows.append(("a", "ring", 2, "agreed", 150, -5, False))
    schema = "run string, layer string, node long, service string, at_us long, latency_us long, own boolean"
    deliveries = spark.createDataFrame(rows, schema)
    curve = latency.percentiles(deliveries)
    own = dict(found(curve, "percentile", "latency_us", scope="own"))
    assert {p: own[p] for p in (50.0, 90.0, 99.0)} == {50.0: 50, 90.0: 90, 99.0: 99}
    assert set(found(curve, "scope", "deliveries", "negative", "max_us")) == {
        ("own", 100, 0, 100),
        ("all", 101, 1, 100),
    }
    over_time = latency.over_time(deliveries, runs)
    assert found(over_time, "from_us", "deliveries", "p50_us", "max_us", bin=1) == [
        (100, 1, 1, 1),
        (100, 2, -5, 1),
    ]


def test_throughput_counts_messages_and_bytes(events: DataFrame, runs: DataFrame) -> None:
    columns = ("node", "from_us", "messages", "bytes", "messages_per_s", "bytes_per_s")
    assert found(traffic.throughput(events, runs), *columns, run="a")[:2] == [
        (1, 1_500, 1, 100, 10_000.0, 1_000_000.0),
        (1, 4_000, 1, 100, 10_000.0, 1_000_000.0),
    ]
    of_groups = traffic.group_traffic(events, runs)
    assert found(of_groups, "group", "from_us", "messages") == [
        ("orders", 150, 4),
        ("orders", 200, 2),
        ("orders", 300, 1),
        ("orders", 350, 1),
        ("orders", 400, 1),
        ("stock", 350, 1),
    ]


def test_losses_by_reason(events: DataFrame, runs: DataFrame) -> None:
    assert found(traffic.losses(events, runs), "node", "kind", "reason", "bin", "packets", "bytes") == [
        (1, "retransmit", "", 53, 1, 70),
        (2, "drop", "foreign message", 18, 1, 0),
        (2, "drop", "overflow data", 18, 3, 0),
    ]


def test_rotation_is_between_visits_of_one_ring(events: DataFrame, runs: DataFrame) -> None:
    rotations = token.rotations(events)
    assert found(rotations, "node", "at_us", "rotation_us") == [(1, 4_500, 400), (1, 5_100, 600)]
    assert found(
        token.percentiles(rotations), "node", "visits", "mean_us", "rotation_us", percentile=99.0
    ) == [
        (token.EVERY_NODE, 2, 500.0, 600),
        (1, 2, 500.0, 600),
    ]
    assert found(token.over_time(rotations, runs), "bin", "visits", "p50_us") == [(45, 1, 400), (51, 1, 600)]


def test_stays_end_as_far_as_the_trace_tells(events: DataFrame, of_lives: DataFrame) -> None:
    stays = timeline.stays(events, of_lives).cache()
    columns = ("node", "configuration", "configuration_kind", "from_us", "until_us", "ended", "delivered")
    assert found(stays, *columns, run="a") == [
        (1, RING, "regular", 100, 5_900, "configuration", 2),
        (1, "8@0", "transitional", 5_900, 5_900, "configuration", 0),
        (1, NEXT, "regular", 5_900, 10_000, "open", 0),
        (2, RING, "regular", 150, 6_000, "crash", 2),
    ]
    assert found(stays, "configuration", "from_us", "until_us", "ended", run="killed") == [
        (RING, 10, 500, "restart"),
        (NEXT, 910, 950, "open"),
    ]


def test_outages_last_until_the_next_ring(events: DataFrame) -> None:
    outages = {(each.from_us, each.until_us, each.reason) for each in timeline.outages(events).collect()}
    assert outages == {(5_400, 5_900, "token loss"), (10_000, None, "join")}


def test_marks_are_what_happened_to_the_nodes(events: DataFrame) -> None:
    assert found(timeline.marks(events), "run", "node", "at_us", "kind", "told") == [
        ("a", 0, 3_000, "fault", "partition (1) (2)"),
        ("a", 2, 6_000, "crash", ""),
        ("a", 2, 6_900, "fault", "restart 2"),
        ("a", 2, 7_000, "restart", ""),
        ("killed", 1, 900, "restart", ""),
    ]
