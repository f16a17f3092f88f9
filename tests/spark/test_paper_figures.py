"""The papers' figures: the job that runs their experiments, what becomes of the samples, what is drawn."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from totempole.cli import figures, options
from totempole.errors import ConfigurationError
from totempole.sim.paper.experiments import run_experiment
from totempole.spark.paper.comparison import DIFFERS, MEETS, NOT_RUN, Compared, compare
from totempole.spark.paper.figures import FIGURES, chosen_figures, studies_of
from totempole.spark.paper.job import SAMPLES, points_table, problems, run_points
from totempole.spark.paper.page import page
from totempole.spark.paper.published import PUBLISHED, Ours, Published
from totempole.spark.paper.rerun import points_of
from totempole.spark.paper.results import Results
from totempole.spark.paper.studies import Bins, Point, Scale, Study
from totempole.spark.paper.tables import bins_table, densities, summaries

QUICK = Scale(repeats=1, quick=True)


def sample(value: float, series: str = "a", seed: int = 1, problem: str = "") -> tuple[object, ...]:
    return ("made up", series, 7.0, seed, "wait_us", value, problem)


# The job


def short(size: int, seed: int = 1, machine: str = "sun-4-ipc") -> Point:
    parameters = {"machine": machine, "size": size, "duration_us": 200_000}
    return Point("throughput", "all send", size, seed, "throughput", parameters)


def test_points_run_on_executors_as_they_would_here(spark: SparkSession) -> None:
    points = [short(4), short(1_024), short(1_024, seed=2)]
    rows = run_points(points_table(spark, points)).orderBy("x", "seed").collect()
    assert [(row.study, row.series, row.x, row.seed, row.measure) for row in rows] == [
        ("throughput", "all send", point.x, point.seed, "messages_per_s") for point in points
    ]
    here = [run_experiment(each.experiment, each.seed, each.parameters)["messages_per_s"] for each in points]
    assert [[row.value] for row in rows] == here


def test_an_experiment_that_fails_leaves_the_others_alone(spark: SparkSession) -> None:
    samples = run_points(points_table(spark, [short(4), short(600, machine="abacus")])).cache()
    assert problems(samples) == ["throughput, all send, x = 600, seed 1: KeyError: 'abacus'"]
    assert [row.x for row in summaries(samples).collect()] == [4]
    samples.unpersist()


# Tables


def test_summaries(spark: SparkSession) -> None:
    rows = [sample(float(value), seed=value % 2) for value in range(1, 101)]
    rows += [sample(5.0, series="b"), sample(float("nan"), series="b", problem="no ring")]
    a, b = summaries(spark.createDataFrame(rows, SAMPLES)).orderBy("series").collect()
    assert (a["count"], a.seeds, a["mean"], a.least, a.most) == (100, 2, 50.5, 1, 100)
    assert (a.p50, a.p90, a.p99) == pytest.approx((50.5, 90.1, 99.01))
    assert (b["count"], b["mean"], b.deviation) == (1, 5, 0)


def test_densities(spark: SparkSession) -> None:
    """Four bins of 10: two below 10, one in the second, one beyond the last."""
    samples = spark.createDataFrame([sample(value) for value in (0.0, 9.9, 10.0, 40.0)], SAMPLES)
    study = Study("made up", lambda _scale: iter(()), [Bins("wait_us", 40, 4)])
    rows = densities(samples, bins_table(spark, [study])).orderBy("bin").collect()
    found = [(row.bin, row.middle, row["count"], row.density) for row in rows]
    assert found == [(1, 5, 2, 0.05), (2, 15, 1, 0.025), (5, None, 1, None)]


# From end to end


def parsed(*words: str) -> argparse.Namespace:
    parser = options.Parser(prog="totem figures")
    figures.add(parser)
    return parser.parse_args([*words])


def test_figures_from_end_to_end(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "out", tmp_path / "data.json"
    arguments = parsed("--only", "4.19,4.18", "--quick", "--out", str(out), "--json", str(data))
    assert arguments.run(arguments) == 0
    assert "about 810" in capsys.readouterr().out  # the rest may be on the next line

    found = json.loads(data.read_text(encoding="utf-8"))
    assert found["holds"]
    assert not found["problems"]
    assert [each["figure"] for each in found["comparison"]] == ["4.18"] * 4 + ["4.19"] * 2
    assert [each["ratio"] for each in found["comparison"] if each["calibration"]] == pytest.approx(
        [1, 1], rel=0.03
    )
    for name in ("figure-totem-4.18.svg", "figure-totem-4.19.svg"):
        text = (out / name).read_text(encoding="utf-8")
        assert text.rstrip().endswith("</svg>")
        assert "paper: about" in text
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "about 810 messages/s" in page
    rows = {
        name: spark.read.parquet(str(out / name)).count() for name in ("samples", "summary", "comparison")
    }
    assert rows == {"samples": 8, "summary": 8, "comparison": 6}


def test_figures_must_be_named_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed("--only", " , ")
    assert "names no figure: give some, like 4.18,7" in capsys.readouterr().err
    arguments = parsed("--only", "4.17")
    with pytest.raises(ConfigurationError, match=r"--only 4\.17: there is no such figure"):
        arguments.run(arguments)


# What is published, without Spark


def every_place(scale: Scale) -> set[tuple[str, str, float]]:
    return {(point.study, point.series, point.x) for point in points_of(list(FIGURES.values()), scale)}


@pytest.mark.parametrize("scale", [QUICK, Scale()])
def test_every_stated_value_has_a_counterpart_that_is_run(scale: Scale) -> None:
    places = every_place(scale)
    for each in PUBLISHED:
        for ours in (each.ours, each.per):
            assert ours is None or (ours.study, ours.series, ours.x) in places, each.what


def test_the_table_has_what_the_papers_state() -> None:
    stated = {(each.figure, each.kind, each.value) for each in PUBLISHED}
    assert stated >= {
        ("4.18", "about", 810),
        ("4.18", "over", 900),
        ("4.18", "about", 1_130),
        ("4.19", "about", 70),
        ("4.20", "under", 10),
        ("4.20", "about", 13),
        ("4.20", "about", 0.5),
        ("4.20", "about", 2),
        ("token-loss", "about", 40),
        ("token-loss", "about", 16),
        ("crash", "under", 50),
        ("crash", "under", 20),
        ("rrp-6", "about", 10_272),
        ("rrp-8", "about", 12_764),
        ("rrp-9", "about", 1.51),
    }
    assert {each.figure for each in PUBLISHED} == set(FIGURES)


def test_points_differ_and_repeat_with_the_seeds() -> None:
    points = points_of(list(FIGURES.values()), Scale(repeats=3))
    keys = {(each.study, each.series, each.x, each.seed) for each in points}
    assert len(keys) == len(points)
    assert {each.seed for each in points if each.study == "density"} == {1, 2, 3}


def test_figures_are_chosen_by_name() -> None:
    assert [figure.name for figure in chosen_figures(None)] == list(FIGURES)
    assert [figure.name for figure in chosen_figures(["7", "4.18"])] == ["4.18", "7"]
    assert [study.name for study in studies_of(chosen_figures(["4.18", "4.19"]))] == ["throughput"]
    assert [figure.number for figure in chosen_figures(["7", "rrp-7", "crash"])] == ["7", "", "7"]
    with pytest.raises(ConfigurationError, match=r"--only 9\.9: there is no such figure; give some of 4\.18"):
        chosen_figures(["9.9"])


# The comparison and the drawings, on made-up results


def summary(study: str, series: str, x: float, measure: str, value: float) -> Row:
    names = ("mean", "least", "most", "p50", "p90", "p99", "p999")
    return Row(study=study, series=series, x=x, measure=measure, **dict.fromkeys(names, value))


def density(study: str, series: str, x: float, measure: str, bin: int, middle: float) -> Row:
    return Row(study=study, series=series, x=x, measure=measure, bin=bin, middle=middle, density=0.0001)


MEASURES = {
    "throughput": ["messages_per_s"],
    "load": ["to_all_us", "rotation_us"],
    "token-loss": ["gone_us"],
    "density": ["each_us"],
    "crash": ["detection_us", "recovery_us"],
    "replication-4": ["messages_per_s", "kb_per_s"],
    "replication-6": ["messages_per_s", "kb_per_s"],
}


def made_up() -> Results:
    places = [(*place, measure) for place in sorted(every_place(QUICK)) for measure in MEASURES[place[0]]]
    summaries = [summary(*place, value=5_000.0 + place[2]) for place in places]
    return Results(
        summaries, [density(*place, bin=bin, middle=bin * 1_000.0) for place in places for bin in (3, 1, 2)]
    )


@pytest.mark.parametrize(
    ("kind", "used", "ours", "ratio", "verdict"),
    [
        ("about", False, 109.0, 1.09, MEETS),
        ("about", False, 111.0, 1.11, DIFFERS),
        ("about", True, 105.0, 1.05, DIFFERS),
        ("under", False, 99.0, 0.99, MEETS),
        ("under", False, 101.0, 1.01, DIFFERS),
        ("over", False, 101.0, 1.01, MEETS),
        ("over", True, 99.0, 0.99, DIFFERS),
        ("about", True, None, None, NOT_RUN),
    ],
)
def test_verdicts(kind: str, used: bool, ours: float | None, ratio: float | None, verdict: str) -> None:
    place = Ours("throughput", "all send", 4, "messages_per_s")
    stated = Published("4.18", "Totem §4.4", "made up", kind, 100, "ms", place, used=used)  # type: ignore[arg-type]
    compared = Compared(stated, ours)
    assert compared.verdict == verdict
    assert compared.ratio == (None if ratio is None else pytest.approx(ratio))


def test_ours_is_scaled_and_divided_as_the_statement_is() -> None:
    results = Results([summary("s", "a", 1, "m", 142_000.0), summary("s", "b", 1, "m", 21_000.0)], [])
    after = Ours("s", "a", 1, "m", scale=0.001, less=100_000)
    stated = Published("4.18", "", "", "about", 2, "", after, per=Ours("s", "b", 1, "m", scale=0.001))
    assert after.found_in(results) == pytest.approx(42)
    assert stated.found_in(results) == pytest.approx(2)
    assert compare(Results([], []), ["4.18"])[0].verdict == NOT_RUN


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws(name: str) -> None:
    """Also when nothing was measured."""
    figure = FIGURES[name]
    drawn = figure.draw(made_up())
    assert all(axes.get_xlabel() for axes in drawn.axes)
    assert any("(" in axes.get_ylabel() or "per second" in axes.get_ylabel() for axes in drawn.axes)
    assert figure.draw(Results([], [])).axes


def test_the_page_is_as_wide_as_what_is_on_it() -> None:
    """`where` had two lines in every row, and figures left half of the page's width empty."""
    results = made_up()
    shown = page([*FIGURES.values()], results, compare(results, FIGURES))
    style, _, body = shown.partition("</style>")
    assert re.search(r"^th, td \{[^}]*white-space: nowrap", style, re.MULTILINE)
    assert re.findall(r"^td\.(\w+) \{ white-space: normal", style, re.MULTILINE) == ["words"]
    assert "<td>Totem CACM Performance</td>" in body
    assert "<td class=words>to detect a crash, at most</td>" in body
    assert re.search(r"^svg \{[^}]*\bwidth: 100%", style, re.MULTILINE)
    assert body.partition("<div class=figures>")[2].count("<section>") == len(FIGURES)


def test_densities_are_drawn_in_order() -> None:
    assert made_up().density("crash", "crash", 0, "recovery_us") == ([1_000, 2_000, 3_000], [0.0001] * 3)
