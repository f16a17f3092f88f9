"""The page and its tables, from whole simulated runs and from traces that have hardly anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from totempole.checkers.properties import PROPERTIES
from totempole.cli import options
from totempole.cli import report as verb
from totempole.errors import TraceError
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.scenario import parse, run
from totempole.spark.drawing import PALETTE
from totempole.spark.report import plots
from totempole.spark.report.figures import STAYS_DRAWN, RunFigures, limited, natural
from totempole.spark.report.job import RUNS_DRAWN, chosen, write_report
from totempole.spark.report.lanes import faults, lane_nodes, timeline
from totempole.spark.report.overview import NOTHING_TO_JUDGE
from totempole.spark.report.page import render
from totempole.spark.report.shapes import Words
from totempole.spark.report.text import bytes_text, count_text, members_text, time_text
from totempole.spark.schema import EVENTS
from totempole.trace.ndjson import write_ndjson
from totempole.trace.schema import Row, flat

SCENARIO = """\
processors p=1 q=2 r=3
seed 4
at 200ms load p rate=200 size=50 safe=0.5 until=900ms
at 400ms crash r
at 700ms restart r
end 1s
"""
GROUP_SEED = 3


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """A run of the ring, one of groups, and one of a node that did nothing but start."""
    ring = run(parse(SCENARIO, "small"), level="protocol").rows
    groups = run(group_plan(GROUP_SEED)).rows
    alone = [row for row in ring if row.node == 1 and row.kind == "restart"]
    named = {"ring": ring, "groups": groups, "<alone>": alone}
    return [row._replace(run=name) for name, mine in named.items() for row in mine]


@pytest.fixture(scope="module")
def report(spark: SparkSession, rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command writes, where an earlier report has been."""
    place = tmp_path_factory.mktemp("report")
    write_ndjson(place / "all.ndjson", rows)
    (place / "out" / "tables" / "old").mkdir(parents=True)
    assert command(place / "all.ndjson", "--out", place / "out", "--json", place / "told.json") == 0
    return place


def command(*arguments: str | Path) -> int:
    parser = options.Parser(prog="totem report")
    verb.add(parser)
    parsed = parser.parse_args([*map(str, arguments)])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture(scope="module")
def page(report: Path) -> str:
    return (report / "out" / "index.html").read_text(encoding="utf-8")


def section(page: str, name: str) -> str:
    found = re.search(rf'<section id="run-\d+"><h2>{re.escape(name)}</h2>.*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


# The whole


def test_every_run_has_its_section(page: str) -> None:
    headings = re.findall(r"<h3>(.*?)</h3>", section(page, "ring"))
    assert headings == ["Configurations", "Latency", "Throughput and losses", "Token and ring", "Processors"]
    assert "Process groups" in section(page, "groups")
    assert section(page, "ring").count("<svg") == 10
    assert "&lt;alone&gt;" in page
    assert "<alone>" not in page


def test_the_page_needs_nothing_else(page: str) -> None:
    assert "<script" not in page
    assert "<link" not in page
    # Names of what SVG is, and no addresses of anything to fetch.
    assert {url for url in re.findall(r"https?://[^\"' <]+", page) if "www.w3.org" not in url} == set()
    assert "prefers-color-scheme: dark" in page
    assert "var(--line)" in page


def test_a_run_without_messages_says_so(page: str) -> None:
    alone = section(page, "&lt;alone&gt;")
    assert "<svg" not in alone
    for words in ("No configuration was installed", plots.NO_LATENCY, plots.NO_DELIVERY, "level “delivery”"):
        assert words in alone


def test_a_crash_and_its_faults_are_listed(page: str) -> None:
    ring = section(page, "ring")
    assert "Red cross: crash; green triangle: restart." in ring
    assert "crash r" in ring


def test_processors_have_one_name(page: str) -> None:
    """Faults are told by the scenario's names, so lanes, plots and tables have them too."""
    ring = section(page, "ring")
    letters = set(re.findall(r"<text[^>]*>([^<]*)</text>", ring))
    assert {"p", "q", "r", "{p q r}"} <= letters
    assert "{1 2 3}" not in letters
    rows = re.findall(r"<tr><td[^>]*>(\w+)</td>", ring.partition("<h3>Processors</h3>")[2])
    assert rows == ["p", "q", "r"]
    groups = section(page, "groups").partition("<h3>Processors</h3>")[2]
    assert re.findall(r"<tr><td[^>]*>(\w+)</td>", groups)[:2] == ["1", "2"]


def test_tables_are_parquet_by_run(report: Path, rows: list[Row]) -> None:
    """And nothing is left of an earlier report."""
    tables = report / "out" / "tables"
    assert sorted(path.name for path in (report / "out").iterdir()) == ["index.html", "tables"]
    assert sorted(path.name for path in tables.iterdir()) == [
        *("group_traffic", "latency", "latency_over_time", "lives", "losses", "marks", "outages"),
        *("rotation", "rotation_over_time", "runs", "stays", "throughput"),
    ]
    assert (tables / "runs" / "run=%3Calone%3E" / "runs.parquet").exists()
    delivered = sum(1 for row in rows if row.kind == "deliver")
    assert sum(pq.read_table(tables / "throughput")["messages"].to_pylist()) == delivered


def test_the_overview_as_data(report: Path) -> None:
    data = json.loads((report / "told.json").read_text(encoding="utf-8"))
    assert [row["run"] for row in data["runs"]] == data["drawn"] == ["<alone>", "groups", "ring"]
    assert {row["percentile"] for row in data["runs"][2]["latency"]} == {50.0, 99.0}


@pytest.mark.long
def test_the_same_rows_give_the_same_page(
    spark: SparkSession, rows: list[Row], page: str, report: Path, tmp_path: Path
) -> None:
    """In whatever order Spark has them."""
    events = spark.createDataFrame(list(map(flat, rows[::-1])), EVENTS)
    written = write_report(events, tmp_path, source="t", only=["ring"]).page.read_text(encoding="utf-8")
    assert section(written, "ring").partition(">")[2] == section(page, "ring").partition(">")[2]
    for part in sorted(tmp_path.rglob("*.parquet")):
        assert part.read_bytes() == (report / "out" / part.relative_to(tmp_path)).read_bytes()


def test_a_report_can_judge_too(report: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command(report / "all.ndjson", "--out", out, "--run", "ring", "--verify", "--same-clock") == 0
    verdicts = pq.read_table(out / "tables" / "verdicts").to_pylist()
    assert len(verdicts) == len(PROPERTIES)
    assert {row["outcome"] for row in verdicts} == {"holds", "undecided"}
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "In how many runs" in page
    assert "A complete run and an expectation are needed to tell." in section(page, "ring")


def test_a_run_that_is_not_there(report: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no run named nobody here"):
        command(report / "all.ndjson", "--out", tmp_path / "out", "--run", "nobody")
    assert list((tmp_path / "out").iterdir()) == []


# Parts of it, without Spark


def totals(name: str = "r", **known: Any) -> dict[str, Any]:
    sums = ("rows", "submitted", "delivered", "delivered_bytes", "installed", "crashes", "faults")
    return {
        "run": name,
        "start_us": 1_000,
        "end_us": 2_000_000,
        "bin_us": 20_000,
        "level": "delivery",
        "processors": 1,
        "lives": 1,
        "rings": 0,
        "group_delivered": 0,
        **dict.fromkeys(sums, 0),
        **known,
    }


def stay(node: int, start_us: int, stop_us: int, members: list[int], **known: Any) -> dict[str, Any]:
    return {
        "node": node,
        "incarnation": 1,
        "configuration": "4@1",
        "configuration_kind": "regular",
        "ring": "4@1",
        "members": members,
        "from_us": start_us,
        "until_us": stop_us,
        "ended": "open",
        **known,
    }


def test_nodes_that_left_no_trace_have_a_lane() -> None:
    life = {"node": 1, "first_us": 0, "last_us": 9, **dict.fromkeys(("submitted", "delivered"), 0)}
    life |= dict.fromkeys(("delivered_bytes", "installed", "crashes"), 0)
    figures = RunFigures("r", totals(), {"stays": [stay(1, 1_000, 900_000, [1, 2])], "lives": [life]})
    assert lane_nodes(figures) == [1, 2]
    drawn = timeline(figures)
    assert "2: no trace" in drawn
    assert "{1 (2)}" in drawn
    assert "no trace" in render([totals()], [figures], source="t")


def test_a_kill_that_nobody_recorded_is_marked() -> None:
    figures = RunFigures("r", totals(), {"stays": [stay(1, 1_000, 500_000, [1], ended="restart")]})
    assert "Orange cross: the trace was cut short" in render([totals()], [figures], source="t")


def test_faults_close_to_one_another_share_a_number() -> None:
    marks = [
        {"node": 0, "at_us": at_us, "kind": "fault", "told": str(at_us)} for at_us in (5_000, 6_000, 900_000)
    ]
    assert faults(RunFigures("r", totals(), {"marks": marks})) == [
        (4_000, ["5000", "6000"]),
        (899_000, ["900000"]),
    ]


def test_clocks_that_disagree_are_found_out() -> None:
    row = {"layer": "ring", "service": "agreed", "deliveries": 5, "percentile": 50.0, "latency_us": 30}
    row |= {"mean_us": 30.0, "max_us": 30}
    rows = [row | {"scope": "own", "negative": 0}, row | {"scope": "all", "negative": 2}]
    rows = [each | {"percentile": percent} for each in rows for percent in (50.0, 90.0, 95.0, 99.0, 99.9)]
    figures = RunFigures("r", totals(), {"latency": rows})
    assert plots.disagree(figures, "ring") == 2
    assert "do not agree. By them, so many deliveries came before their submission: 2." in render(
        [totals()], [figures], source="t"
    )


def test_percentiles_need_enough_deliveries() -> None:
    assert [plots.is_resolved(number, 99.9) for number in (999, 1_000)] == [False, True]
    assert plots.is_resolved(1, 50.0)


def test_what_is_not_recorded_is_not_drawn_as_nothing() -> None:
    quiet = RunFigures("r", totals(level="protocol"))
    assert plots.losses(quiet) == Words("Nothing was retransmitted and nothing dropped.")
    assert "level “checked”" in plots.losses(RunFigures("r", totals(level="checked")))
    assert "level “checked”" in plots.rotation_over_time(RunFigures("r", totals(level="checked")))


def test_a_table_that_is_wider_than_the_window_scrolls() -> None:
    """The last column of Processors was cut off."""
    life = {"node": 1, "first_us": 0, "last_us": 9, **dict.fromkeys(("submitted", "delivered"), 0)}
    life |= dict.fromkeys(("delivered_bytes", "installed", "crashes"), 0)
    page = render([totals()], [RunFigures("r", totals(), {"lives": [life]})], source="t")
    assert page.count("<table>") == page.count('<div class="scroll"><table>') > 1
    assert ".scroll { overflow-x: auto; }" in page


def widths(drawn: str) -> list[float]:
    """Of the lines of the first nodes; 1 is what SVG takes for nothing."""
    pattern = r"fill: none; stroke: {};(?: stroke-width: ([\d.]+))?"
    return [float(re.findall(pattern.format(colour), drawn)[0] or 1) for colour in PALETTE[:3]]


def test_lines_of_nodes_that_agree_are_all_seen() -> None:
    """Each lies within the one before it: five equal lines looked like one."""
    rates = {"bin": 3, "messages_per_s": 10.0, "bytes_per_s": 1.0}
    shares = [(50.0, 400), (90.0, 900)]
    tables = {
        "throughput": [rates | {"node": node} for node in (1, 2, 3)],
        "rotation": [
            {"node": node, "percentile": percent, "rotation_us": us, "visits": 1_000}
            for node in (1, 2, 3)
            for percent, us in shares
        ],
    }
    figures = RunFigures("r", totals(level="protocol"), tables)
    for drawn in (plots.throughput(figures, "messages_per_s"), plots.rotation_percentiles(figures)):
        first, second, third = widths(drawn)
        assert first > second > third
    page = render([totals()], [figures], source="t")
    assert page.count("lines that agree lie within one another") == 3


def test_a_latency_of_nothing_is_on_the_axis_and_explained() -> None:
    """In the simulator computing takes no time; a logarithmic axis has no place for 0."""
    row = {"layer": "ring", "scope": "own", "service": "agreed"}
    rows = [row | {"bin": 3, "p50_us": 0, "p99_us": 900}, row | {"bin": 4, "p50_us": 700, "p99_us": 900}]
    figures = RunFigures("r", totals(), {"latency_over_time": rows})
    drawn = plots.latency_over_time(figures, "ring", "own")
    assert "1 µs" in re.findall(r"<text[^>]*>([^<]*)</text>", drawn), "the floor has its tick"
    page = render([totals()], [figures], source="t")
    assert "at the instant of its submission is drawn at 1 µs" in " ".join(page.split())


def test_many_nodes_are_a_band() -> None:
    rows = [
        {"node": node, "bin": 3, "messages_per_s": 10.0 * node} for node in range(1, plots.NODES_DRAWN + 2)
    ]
    drawn = plots.throughput(RunFigures("r", totals(), {"throughput": rows}), "messages_per_s")
    assert "all 9 nodes" in drawn
    assert "the middle one" in drawn


def test_verdicts_have_their_place() -> None:
    verdicts = [
        ("r", "total order", "holds", ""),
        ("r", "safe delivery", "violated", "Node 3 <never> received it."),
        ("s", "safe delivery", "undecided", "Node 2 left no trace."),
    ]
    runs = [totals("r"), totals("s")]
    page = render(runs, [RunFigures("r", runs[0])], source="t", verdicts=verdicts)
    assert '<span class="violated">1 violated</span>' in page
    assert '<span class="undecided">1 undecided</span>' in page
    assert "Node 3 &lt;never&gt; received it." in page
    assert "1 of 2 runs are drawn below, 1 left out" in page
    assert "<h2>Properties</h2>" in page
    assert page.index("<h2>r</h2>") < page.index("<h2>Properties</h2>"), "pictures come first"
    assert "<h2>Properties</h2>" not in render(runs, [], source="t")


def test_a_property_without_anything_to_judge_does_not_hold() -> None:
    verdicts = [
        ("r", "total order", "holds", ""),
        ("r", "group-one-order", NOTHING_TO_JUDGE, ""),
        ("r", "corel-one-order", NOTHING_TO_JUDGE, ""),
        ("s", "total order", "holds", ""),
        ("s", "group-one-order", "holds", ""),
        ("s", "corel-one-order", NOTHING_TO_JUDGE, ""),
    ]
    page = render([totals("r"), totals("s")], [], source="t", verdicts=verdicts)
    assert '<span class="holds">1 holds</span>' in page, "of run r"
    assert '<span class="soft">1</span>' in page, "the groups of run r"
    assert "no run has what they are about: corel-one-order." in page


def test_runs_that_break_a_property_are_drawn_first() -> None:
    runs = [totals(str(number)) for number in range(RUNS_DRAWN + 5)]
    broken = [(str(RUNS_DRAWN + 3), "p", "violated", ""), ("1", "p", "holds", "")]
    drawn = [row["run"] for row in chosen(runs, [], False, broken)]
    assert drawn == [*map(str, range(RUNS_DRAWN - 1)), str(RUNS_DRAWN + 3)]
    assert len(chosen(runs, [], True, [])) == 1
    assert len(chosen(runs, [row["run"] for row in runs], False, [])) == len(runs)


def test_the_longest_stays_are_kept() -> None:
    stays = [stay(1, place, place + place % 7, [1]) for place in range(STAYS_DRAWN + 700)]
    kept = limited("stays", stays)
    assert len(kept) == STAYS_DRAWN
    assert min(row["until_us"] - row["from_us"] for row in kept) == 1
    assert [row["from_us"] for row in kept] == sorted(row["from_us"] for row in kept)


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (time_text(0), "0"),
        (time_text(850), "850 µs"),
        (time_text(1_250), "1.25 ms"),
        (time_text(999_700), "1 s"),
        (time_text(12_540_000), "12.5 s"),
        (count_text(12), "12"),
        (count_text(1_234_000), "1.23M"),
        (bytes_text(2_190_000), "2.19 MB"),
        (members_text([1, 2, 3], frozenset({2, 3})), "{(1) 2 3}"),
        (members_text(list(range(3, 12)), frozenset(range(3, 12))), "{3 .. 11}"),
        (members_text([1, 3, 5, 7, 9, 11, 13, 15], frozenset()), "{8 members}"),
    ],
)
def test_numbers_as_people_read_them(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_names_sort_as_people_count() -> None:
    assert sorted(["seed-10", "seed-9", "a", "10", "9"], key=natural) == ["9", "10", "a", "seed-9", "seed-10"]
