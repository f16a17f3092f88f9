"""Figures 4.15 and 4.16 of Totem hold, and are drawn as the paper draws them."""

from __future__ import annotations

from functools import cache

import pytest

from totempole import scenarios
from totempole.cli.figure import draw
from totempole.cli.sim import SimReport
from totempole.cli.timeline import Timeline
from totempole.sim.scenario import parse, run
from totempole.trace.lives import Stay
from totempole.trace.schema import Row

S, T = 104, 105
FIGURES_END_US = 2_200_000


@cache
def report(name: str) -> SimReport:
    return SimReport(run(parse(scenarios.read(f"{name}.scenario"), name), level="checked"), 0.0)


def segments(name: str, processor: int) -> dict[str, Stay]:
    found = report(name)
    return {
        " ".join(found.names[member] for member in part.members): part
        for part in found.timeline.stays(processor)
        if part.at_us < FIGURES_END_US and not part.regular
    }


def drawing(name: str) -> list[str]:
    found = report(name)
    return draw(found.timeline, found.names, 100, until_us=FIGURES_END_US).plain.splitlines()


@pytest.mark.parametrize("name", ["figure-4-15", "figure-4-16"])
def test_the_scenario_meets_its_expectations(name: str) -> None:
    assert report(name).outcome.failures == []
    assert report(name).holds


def test_messages_are_delivered_in_the_transitional_configuration() -> None:
    parts = [segments("figure-4-15", me)["q r s t"] for me in (102, 103, 104, 105)]
    assert len({part.delivered for part in parts}) == 1
    assert parts[0].safe >= 12


def test_what_was_promised_is_delivered_in_the_smaller_configurations() -> None:
    promised = segments("figure-4-16", S)["q r s t"].origins
    assert promised[S] >= 10
    assert promised[T] >= 10
    assert segments("figure-4-16", 102)["q"].origins == promised
    assert segments("figure-4-16", 103)["r"].origins == promised


def test_figure_4_15_as_drawn() -> None:
    lines = drawing("figure-4-15")
    assert lines[0].split() == list("pqrstuv")
    changes = [line for line in lines if "╌╌" in line and "Change" not in line]
    assert all(label in changes[0] for label in ("{p q r s t}", "{u v}"))
    assert all(label in changes[1] for label in ("[p]", "[q r s t]", "[u v]"))
    assert all(label in changes[2] for label in ("{p}", "{q r s t u v}"))
    assert len(changes) == 3


def test_figure_4_16_as_drawn() -> None:
    changes = [line for line in drawing("figure-4-16") if "╌╌" in line and "Change" not in line]
    assert all(label in changes[1] for label in ("[p]", "[(q) (r) s t]", "[u v]"))
    assert all(label in changes[2] for label in ("{p}", "┃ (q)", "┃ (r)", "{(q) (r) s t u v}"))
    assert all(label in changes[3] for label in ("[q]", "[r]", "[s t u v]"))
    assert changes[4].count("{q s t u v}") == 2
    assert "{r}" in changes[4]
    assert len(changes) == 5


def test_the_lines_of_a_figure_fit() -> None:
    assert max(map(len, drawing("figure-4-16"))) <= 100


# Timelines by hand


def row(node: int, at_us: int, kind: str, **columns: object) -> Row:
    return Row("run", node, 1, at_us, at_us, "srp", kind, **columns)  # type: ignore[arg-type]


def installs(node: int, at_us: int, name: str, *members: int, kind: str = "regular") -> Row:
    return row(node, at_us, "configuration", configuration=name, configuration_kind=kind, members=members)


def two_who_part() -> list[Row]:
    return [
        row(1, 0, "restart"),
        row(2, 0, "restart"),
        installs(1, 1_000, "a", 1),
        installs(1, 2_000, "b", 1, 2),
        installs(2, 2_100, "b", 1, 2),
        row(1, 3_000, "deliver", origin=1, service="safe", count=1),
        row(0, 900_000, "fault", reason="crash", detail="2"),
        row(2, 900_000, "crash"),
        installs(1, 950_000, "c", 1, kind="transitional"),
        row(1, 950_000, "deliver", origin=2, service="agreed", count=1),
        installs(1, 950_000, "d", 1),
    ]


def test_a_timeline_counts_by_configuration() -> None:
    timeline = Timeline(two_who_part())
    parts = timeline.stays(1)
    assert [(part.name, part.delivered, part.safe) for part in parts] == [
        ("a", 0, 0),
        ("b", 1, 1),
        ("c", 1, 0),
        ("d", 0, 0),
    ]
    assert timeline.lives(2) == 1


def test_bands_leave_out_the_start_and_tell_of_ends() -> None:
    first, second = Timeline(two_who_part()).bands()
    assert {node: change.regular.name for node, change in first.changes.items()} == {1: "b", 2: "b"}
    assert second.ends == {2: "crash"}
    assert second.notes == [(900_000, "crash 2")]
    assert [part.name for part in second.changes[1].stays] == ["c", "d"]


def test_a_crash_ends_its_line() -> None:
    lines = draw(Timeline(two_who_part()), {1: "x", 2: "y"}, 100).plain.splitlines()
    assert lines[0].split() == ["x", "y"]
    assert any("✗ crash" in line for line in lines)
    assert lines[-2].count("┃") == 1


def test_a_configuration_stands_in_one_band_even_if_some_install_another_first() -> None:
    rows = [
        *(row(node, 0, "restart") for node in (1, 2)),
        installs(1, 1_000, "a", 1, 2),
        installs(2, 500_000, "b", 2),
        row(2, 500_001, "deliver", origin=2, count=1),
        installs(2, 500_002, "a", 1, 2),
    ]
    bands = Timeline(rows).bands()
    assert [sorted(band.changes) for band in bands] == [[2], [1, 2]]


def test_orders_that_contradict_each_other_are_drawn_all_the_same() -> None:
    rows = [row(node, 0, "restart") for node in (1, 2)]
    rows += [installs(1, 1_000_000, "a", 1, 2), installs(1, 2_000_000, "b", 1, 2)]
    rows += [installs(2, 1_000_000, "b", 1, 2), installs(2, 2_000_000, "a", 1, 2)]
    assert sum(len(band.changes) for band in Timeline(rows).bands()) == 4


def test_too_many_processors_make_a_list() -> None:
    rows = [row(node, 0, "restart") for node in range(1, 31)]
    rows += [installs(node, 1_000, "a", *range(1, 31)) for node in range(1, 31)]
    names = {node: f"n{node}" for node in range(1, 31)}
    assert len(draw(Timeline(rows), names, 100).plain.splitlines()) == 30
