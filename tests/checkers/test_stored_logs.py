"""Logs on disk beside traces: good ones, incomplete ones, and a broken input for each property."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tracebuilder import changed, without

from totempole.checkers import stored_logs
from totempole.checkers.stored import STORED
from totempole.checkers.stored_logs import StoredRun
from totempole.checkers.verdict import Outcome, Report
from totempole.corel import zones
from totempole.corel.fences import FenceMark, Fences
from totempole.corel.zones import Zones
from totempole.errors import ConfigurationError, StorageError
from totempole.log.segments import segment_name
from totempole.spark.log_files import find_logs
from totempole.spark.log_ranges import END
from totempole.trace.schema import Row
from totempole.types import Fence
from traced_logs import Replicas, good, judged, stored, violated
from written_logs import WrittenLog

NAMES = {item.name for item in STORED}


def fine(directories: Sequence[Path], rows: Sequence[Row] = (), **terms: Any) -> None:
    for runs_max in (0, 1, 2, 5):
        report = judged(directories, rows, runs_max, **{"complete": True, **terms})
        assert {verdict.outcome for verdict in report.verdicts} == {Outcome.HOLDS}, str(report)


def broken(
    directories: Sequence[Path],
    rows: Sequence[Row],
    name: str,
    nodes: Sequence[int],
    only: Sequence[str] = (),
    **terms: Any,
) -> Report:
    """Just these properties are violated, and `name` by these nodes; in ranges the same is found."""
    whole = judged(directories, rows, **{"complete": True, **terms})
    assert violated(whole) == {f"log-{each}" for each in (name, *only)}, str(whole)
    verdict = whole[f"log-{name}"]
    assert any(set(item.nodes) == set(nodes) for item in verdict.violations), str(verdict)
    for runs_max in (1, 2, 5):
        parts = judged(directories, rows, runs_max, **{"complete": True, **terms})
        for one, other in zip(whole.verdicts, parts.verdicts, strict=True):
            assert set(one.violations) == set(other.violations)
    return whole


def stored_runs(replicas: Replicas, node: int) -> list[StoredRun]:
    (log,) = find_logs(replicas.directories(node))
    return list(stored(log, 0, END).runs.values())


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return good(tmp_path)


def test_good_logs_and_traces(replicas: Replicas) -> None:
    fine(replicas.directories(), replicas.rows())
    fine(replicas.directories(2), replicas.rows())
    fine(replicas.directories(), replicas.rows(1))
    fine(replicas.directories())


# What is no violation


def test_a_trimmed_log(replicas: Replicas) -> None:
    rows = replicas.rows()
    replicas.logs[2].trim(2)
    fine(replicas.directories(), rows)
    replicas.logs[2].trim(3)
    fine(replicas.directories(), rows)
    assert find_logs(replicas.directories(2))[0].first_position > 0


def test_a_log_that_begins_with_the_state_of_another(replicas: Replicas, tmp_path: Path) -> None:
    late = WrittenLog(tmp_path / "node4", processor=4)
    late.begin_anew(replicas.logs[1])
    late._run = replicas.logs[1]._run
    replicas.append(b"after")
    late.append([b"after"], origin=1)
    late.begin_segment()
    rows = replicas.rows()
    fine([*replicas.directories(), late.directory], rows)


def test_a_trace_that_ends_early_or_begins_late(replicas: Replicas) -> None:
    """A killed node's trace lacks its last rows; a trace may be of a later run of the node."""
    rows = replicas.rows()
    mine = [row for row in rows if row.node == 2]
    fine(replicas.directories(), [*(row for row in rows if row.node != 2), *mine[: len(mine) // 2]])
    opening = mine[0]._replace(corel=mine[0].corel._replace(green_runs=4))
    later = [opening, *(row for row in mine[1:] if row.corel.place >= 4)]
    fine(replicas.directories(), [*(row for row in rows if row.node != 2), *later])


def test_a_log_that_was_copied_earlier(replicas: Replicas) -> None:
    copied = len(list(replicas.logs[3].directory.iterdir()))
    (replicas.logs[3].directory / segment_name(copied)).unlink()
    fine(replicas.directories(), replicas.rows(1, 2))
    fine(replicas.directories(3), replicas.rows(1, 2), complete=False)


def test_a_torn_tail(replicas: Replicas) -> None:
    rows = replicas.rows()
    path = replicas.logs[1].directory / segment_name(3)
    os.truncate(path, path.stat().st_size - 3)
    fine(replicas.directories(), rows)


def test_a_trace_without_digests(replicas: Replicas) -> None:
    fine(replicas.directories(), [row._replace(digest=0) for row in replicas.rows()])


def test_empty_logs(tmp_path: Path) -> None:
    fine(Replicas(tmp_path).directories())


# log-intact


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("segment", [2, 3])
def test_a_byte_that_changed(replicas: Replicas, segment: int) -> None:
    rows = replicas.rows()
    flip(replicas.logs[2].directory / segment_name(segment), -200 if segment == 2 else -240)
    report = broken(replicas.directories(), rows, "intact", [2])
    (violation,) = report["log-intact"].violations
    assert segment_name(segment) in violation.text


def test_a_segment_that_is_missing(replicas: Replicas) -> None:
    rows = replicas.rows()
    (replicas.logs[2].directory / segment_name(2)).unlink()
    report = broken(replicas.directories(), rows, "intact", [2])
    assert "000000000002.segment are missing" in str(report["log-intact"])


def test_a_header_that_cannot_be_read(replicas: Replicas) -> None:
    rows = replicas.rows()
    flip(replicas.logs[2].directory / segment_name(2), 40)
    report = broken(replicas.directories(), rows, "intact", [2])
    assert "the header of 000000000002.segment" in str(report["log-intact"])


def test_a_mark_that_cannot_be_read(replicas: Replicas) -> None:
    rows = replicas.rows()
    flip(replicas.logs[2].directory / segment_name(3), 170)
    broken(replicas.directories(), rows, "intact", [2])


# log-positions, log-time, log-once-per-key: a state that a replica got wrong goes on from its mark


def test_a_segment_that_begins_with_another_position(replicas: Replicas) -> None:
    replicas.logs[2].zones.position += 5
    replicas.begin_segment()
    broken(replicas.directories(2), [], "positions", [2])
    replicas.append(b"next")
    report = broken(replicas.directories(), [], "positions", [2], ["replicas-agree"])
    assert report["log-positions"].count == 1


def test_a_segment_that_begins_with_an_earlier_time(replicas: Replicas) -> None:
    log = replicas.logs[1]
    log.zones.time_us -= 1_000
    log.begin_segment()
    broken(replicas.directories(1), [], "time", [1])


def test_a_key_that_a_mark_has_lost(replicas: Replicas) -> None:
    log = replicas.logs[1]
    del log.zones.keys["orders", "k3"]
    log.begin_segment()
    report = broken(replicas.directories(1), [], "once-per-key", [1])
    assert "key 'k3' of log 'orders' is not there; it has position 3" in str(report["log-once-per-key"])


@pytest.mark.parametrize(
    ("repeats", "said"),
    [
        ((), "key 'k' of log 'orders' has position 1, in run"),
        (((0, 7),), "said to repeat position 7; its key 'k'"),
    ],
)
def test_a_replica_that_treats_a_repeated_key_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: tuple[tuple[int, int], ...], said: str
) -> None:
    log = WrittenLog(tmp_path / "log")
    true = Zones._repeats

    def wrong(self: Zones, log: str, keys: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
        return true(self, log, keys) and repeats

    monkeypatch.setattr(Zones, "_repeats", wrong)
    log.append([b"first"], ("k",))
    log.append([b"second"], ("k",))
    report = broken([log.directory], [], "once-per-key", [1])
    assert said in str(report["log-once-per-key"])


def test_keys_are_forgotten_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are promised, and not one more: a mark says so, too."""
    monkeypatch.setattr(zones, "KEYS_MAX", 3)
    monkeypatch.setattr(stored_logs, "KEYS_MAX", 3)
    log = WrittenLog(tmp_path / "log")
    for number in (1, 2, 3, 1, 4, 1, 2):
        log.append([b"x"], (f"k{number}",))
        log.begin_segment()
    assert log.zones.position == 6
    fine([log.directory])
    monkeypatch.setattr(stored_logs, "KEYS_MAX", 4)
    assert violated(judged([log.directory])) == {"log-once-per-key"}


# log-fences


def fenced(log: WrittenLog, *numbers: int) -> None:
    """Appends whose fence lets in all lower marks."""
    for number in numbers:
        log.append([b"x", b"y"], ("f", ""), fence=Fence("query", number, 0, number - 1), origin=1)


def test_fences(replicas: Replicas) -> None:
    """The second and the last are kept out, and take neither positions nor keys."""
    replicas.each(lambda log: fenced(log, 1, 1, 2))
    replicas.begin_segment()
    replicas.each(lambda log: fenced(log, 2, 5))
    assert [run.positions for run in stored_runs(replicas, 1)[-5:]] == [2, 0, 1, 0, 1]
    rows = replicas.rows()
    fine(replicas.directories(), rows)
    kept_out = [row for row in rows if row.corel.kept_out]
    assert len(kept_out) == 2 * 3
    wrong = changed(rows, {"node": 2, "place": kept_out[0].corel.place, "new_state": "green"}, kept_out=())
    broken(replicas.directories(2), [row for row in wrong if row.node == 2], "matches-trace", [2])


def test_a_fence_that_a_mark_has_lost(replicas: Replicas) -> None:
    log = replicas.logs[2]
    fenced(log, 3)
    log.zones.fences = Fences()
    log.begin_segment()
    report = broken(replicas.directories(2), [], "fences", [2])
    assert "fence 'query' has mark 0, set at -1; it has 3, set at 56" in str(report["log-fences"])


@pytest.mark.parametrize("is_let_in", [True, False])
def test_a_replica_that_ignores_a_fence(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, is_let_in: bool
) -> None:
    wrong = (lambda self, fence: None) if is_let_in else (lambda self, fence: FenceMark(9, 4))
    monkeypatch.setattr(Fences, "keeps_out", wrong)
    log = replicas.logs[2]
    for number in (3, 3) if is_let_in else (3,):
        log.append([b"x"], fence=Fence("query", number, 0, number - 1))
    report = broken(replicas.directories(2), [], "fences", [2])
    said = (
        "is let in. Its fence: 'query' lets in 0 to 2; the mark is 3" if is_let_in else "kept out by mark 9"
    )
    assert said in str(report["log-fences"])


# log-replicas-agree, log-matches-trace


def test_a_record_with_another_payload(replicas: Replicas) -> None:
    """With a checksum that fits: the digests of contents tell, those of other logs and those of the trace."""
    rows = replicas.rows()
    replicas.append(b"same")
    rows = replicas.rows()
    for node, log in replicas.logs.items():
        log.append([b"what" if node == 2 else b"that"], origin=1)
    both = replicas.rows(1, 3) + [row for row in rows if row.node == 2]
    broken(replicas.directories(), both, "replicas-agree", [1, 2])
    told = replicas.rows(1)[len([row for row in rows if row.node == 1]) :]
    mine = [row._replace(node=2, step=row.step + 10_000) for row in told if row.kind == "colour"]
    broken(replicas.directories(2), [*both, *mine], "matches-trace", [2])
    silent = [row._replace(digest=0) for row in [*both, *mine]]
    fine(replicas.directories(2), silent)


def test_runs_in_another_order(replicas: Replicas) -> None:
    for node, log in replicas.logs.items():
        for payload, origin in ((b"x", 3), (b"y", 2)) if node == 3 else ((b"y", 2), (b"x", 3)):
            log.append([payload], origin=origin)
    rows = replicas.rows()
    report = broken(replicas.directories(), rows, "replicas-agree", [1, 3], ["keeps-told"])
    assert report["log-replicas-agree"].count == 2
    mixed = [row._replace(node=3) if row.node == 1 else row for row in replicas.rows(1)]
    broken(replicas.directories(3), mixed, "matches-trace", [3], ["keeps-told"])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("position", 7),
        ("stamp", "4@1:99:0"),
        ("run_kind", "hold"),
        ("repeats", (1,)),
        ("count", 3),
        ("bytes", 1),
    ],
)
def test_a_trace_that_says_otherwise(replicas: Replicas, column: str, value: Any) -> None:
    rows = replicas.rows()
    where = {"kind": "colour", "node": 2, "place": 2, "new_state": "green"}
    wrong = changed(rows, where, **{column: value})
    assert wrong != rows
    also = ["keeps-told"] if column == "position" else []
    broken(replicas.directories(2), [row for row in wrong if row.node == 2], "matches-trace", [2], also)


def test_a_run_that_the_trace_does_not_tell_of(replicas: Replicas) -> None:
    rows = without(replicas.rows(), kind="colour", node=2, place=3, new_state="green")
    report = broken(replicas.directories(), rows, "matches-trace", [2])
    assert "at place 3; its trace tells of places 0 to 6" in str(report["log-matches-trace"])


# log-keeps-told


def test_another_log_has_another_run(replicas: Replicas) -> None:
    """The replica left no trace; what was told elsewhere is not in its log."""
    for node, log in replicas.logs.items():
        log.append([b"x"], origin=3 if node == 3 else 1)
    broken(replicas.directories(3), replicas.rows(1), "keeps-told", [1, 3])


def test_a_run_that_no_log_has(replicas: Replicas) -> None:
    before = replicas.directories()
    rows = replicas.rows()
    last = [row for row in rows if row.corel.place == 6]
    more = [
        row._replace(
            message="1.1048576.9", step=row.step + 10, corel=row.corel._replace(place=7, position=56)
        )
        for row in last
    ]
    broken(before, rows + more, "keeps-told", [1])
    fine(before[:2], rows + more)
    (reason,) = judged(before, rows + more)["log-keeps-told"].reasons
    assert "no replica's log reaches so far" in reason


def test_a_run_that_is_yellow_on_disk(replicas: Replicas) -> None:
    """The green line is written a moment after it is told: the run itself is there."""
    before = replicas.rows()
    replicas.each(lambda log: log.place([b"x"], origin=1))
    assert find_logs(replicas.directories())[0].pending
    rows = list(before)
    for row in before:
        if row.corel.place == 6 and row.kind == "colour":
            of_run = {"message": find_logs(replicas.directories())[0].pending[0], "step": row.step + 10}
            rows.append(row._replace(**of_run, corel=row.corel._replace(place=7, position=56)))
    fine(replicas.directories(), rows)


# Wrong input


def test_logs_that_do_not_belong_together(tmp_path: Path) -> None:
    mine = WrittenLog(tmp_path / "mine", processor=1)
    with pytest.raises(StorageError, match="has no log in it"):
        find_logs([tmp_path])
    with pytest.raises(StorageError, match="cannot be read as a log"):
        find_logs([tmp_path / "nowhere"])
    again = WrittenLog(tmp_path / "again", processor=1)
    with pytest.raises(ConfigurationError, match="both of node 1: name one of them"):
        find_logs([mine.directory, again.directory])
    rescued = WrittenLog(tmp_path / "rescued", processor=2, log=0xB0B)
    rescued.append([b"x"])
    mine.append([b"x"])
    with pytest.raises(ConfigurationError, match="two logs"):
        find_logs([mine.directory, rescued.directory])


def test_every_property_has_a_broken_input() -> None:
    """Those above name them all."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in NAMES if f'"{name.removeprefix("log-")}"' in text} == NAMES
