"""Rescue: one replica goes on as a log of its own, with all that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.corel.frames import Colour, Placed, decode
from totempole.corel.run import Change, RunKind, pack_body
from totempole.corel.zones import replay
from totempole.errors import StorageError
from totempole.log.check import check
from totempole.log.reader import LogReader
from totempole.log.snapshots import StoredHead, snapshots_of
from totempole.log_service.snapshot_files import SnapshotFiles
from totempole.runtime.log_rescue import Standing, rescue
from totempole.runtime.log_store import LogStore
from written_logs import CLUSTER, LOG, WrittenLog


def open_store(directory: Path) -> LogStore:
    return LogStore.open(
        directory, 1, CLUSTER, appended=lambda _: None, recalled=lambda _: None, failed=lambda _: None
    )


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    """Three green records, one yellow and one red run, and a change of the set that is not green."""
    log = WrittenLog(tmp_path / "log")
    log.append([b"a", b"b", b"c"])
    log.place([b"yellow"])
    log.write(Placed(log.run(RunKind.CHANGE, 0, pack_body(Change(3, 0))), Colour.YELLOW))
    body = log.run(RunKind.RECORDS, 1, log.place([b"second yellow"]).body)
    log.write(Placed(body, Colour.RED))
    return log


def test_it_says_first_what_there_is_and_does_nothing_unasked(log: WrittenLog) -> None:
    seen: list[Standing] = []

    def refuse(standing: Standing) -> bool:
        seen.append(standing)
        return False

    before = sorted(path.name for path in log.directory.glob("*.segment"))
    assert rescue(log.directory, refuse) is None
    (standing,) = seen
    assert standing.others == [2, 3]
    assert (standing.zones.position, len(standing.zones.yellow), len(standing.zones.red)) == (3, 3, 1)
    assert sorted(path.name for path in log.directory.glob("*.segment")) == before


def test_the_replica_becomes_the_only_one_of_a_new_log(log: WrittenLog) -> None:
    outcome = rescue(log.directory, lambda _: True)
    assert outcome is not None
    assert outcome.log not in (0, LOG)
    store = open_store(log.directory)
    zones = replay(map(decode, store.opened.frames))
    store.close()
    assert (zones.log, zones.disk) == (outcome.log, outcome.disk)
    assert set(zones.replicas.voters) == {1}
    assert zones.replicas.is_majority({1: outcome.disk})
    assert zones.committed.members == (1,)
    assert zones.committed.number == outcome.primary == 2
    assert [run.kind for run in (*zones.yellow, *zones.red)] == [RunKind.RECORDS] * 3, "no old change"
    assert zones.heard == {}


def test_positions_go_on_and_the_directory_is_good(log: WrittenLog) -> None:
    rescue(log.directory, lambda _: True)
    assert check(log.directory).all_problems == []
    assert [record.payload for record in LogReader(log.directory).records()] == [b"a", b"b", b"c"]


def test_a_log_that_a_node_has_open_is_left_alone(log: WrittenLog) -> None:
    store = open_store(log.directory)
    try:
        with pytest.raises(StorageError):
            rescue(log.directory, lambda _: True)
    finally:
        store.close()


def test_an_empty_directory_has_nothing_to_rescue(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no log in it"):
        rescue(tmp_path, lambda _: True)
    with pytest.raises(StorageError, match="cannot be read"):
        rescue(tmp_path / "nowhere", lambda _: True)


def test_snapshots_of_objects_go_on_with_the_new_log(log: WrittenLog) -> None:
    """Those of what is green here. A later one may have what is lost."""
    files = SnapshotFiles(snapshots_of(log.directory), lambda text: None)
    for position in (3, 4):
        unfinished = files.begin(StoredHead("bank", position, "Bank", 1, 0, 0, LOG))
        assert unfinished is not None
        files.finish(unfinished)
    outcome = rescue(log.directory, lambda _: True)
    assert outcome is not None
    files.log = outcome.log
    assert [(head.position, head.log == outcome.log) for head in files.heads()] == [(4, False), (3, True)]
