"""What a host does with snapshots: holds one after the other, and an object that nobody calls."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ledgers import Bank, ObjectInLog
from serving import serving
from totempole.client.log_endpoints import log_endpoints
from totempole.log.reader import LogReader
from totempole.log.snapshots import heads_in, snapshots_of
from totempole.objects import snapshotting
from totempole.objects.commands import ObjectType
from totempole.objects.snapshotting import Hold, ObjectSnapshots, is_held_back
from totempole.session.log_frames import ReplicaStatus, SnapshotStored
from written_logs import WrittenLog

STATUS = ReplicaStatus(
    7, 1, 5, 6, 0, 100_000, 50_000, 0, 0, 0, 0, 1, (1,), {1: (6, 1)}, "majority", {}, 1, 10**9, 1
)


def status(first: int, **holds: int) -> ReplicaStatus:
    named = {name.replace("_", "@").replace("at", "object:", 1): held for name, held in holds.items()}
    return msgspec.structs.replace(STATUS, first=first, holds=named)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (status(0), False),
        (status(0, atbank_1=0), True),
        (status(0, atbank_1=49_999), True),
        (status(0, atbank_1=60_000), False),
        (status(0, atbank_2=0), False),
        (status(0, atbank_1=10, atqueue_1=5), False),
        (status(50_000, atbank_1=0), True),
        (status(95_000, atbank_1=0), False),
    ],
)
def test_whose_hold_keeps_the_log_back(seen: ReplicaStatus, expected: bool) -> None:
    assert is_held_back(seen, "bank") is expected


def make(directory: Path, name: str = "bank") -> ObjectSnapshots[Bank]:
    endpoints = log_endpoints(directory / "clients-log.sock")
    return ObjectSnapshots(ObjectType.of(Bank), name, endpoints, run=lambda work: work())


def test_holds_are_asked_for_one_after_the_other(tmp_path: Path) -> None:
    snapshots = make(tmp_path)
    assert snapshots.next_hold() is None
    snapshots._stored(SnapshotStored(1, (10,)))
    assert snapshots.next_hold() is None, "of one alone the hold does not move"
    snapshots._stored(SnapshotStored(1, (20, 10)))
    assert snapshots.next_hold() == Hold("object:bank@1", 10)
    snapshots._stored(SnapshotStored(1, (30, 20)))
    assert snapshots.next_hold() is None, "the first is not answered"
    snapshots.hold_answered(False)
    assert snapshots.next_hold() == Hold("object:bank@1", 20), "the later one is enough"
    snapshots.hold_answered(False)
    assert snapshots.next_hold() == Hold("object:bank@1", 20)
    snapshots.hold_answered(True)
    assert snapshots.next_hold() is None


@pytest.mark.nodes
def test_an_object_that_nobody_calls_lets_the_log_be_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshotting, "LOOK_S", 0.0)
    monkeypatch.setattr(snapshotting, "HELD_POSITIONS_MIN", 100)
    bank = ObjectInLog(WrittenLog(tmp_path / "log"), Bank)
    bank.call("put", "a", 5)
    log = bank.log
    log.hold("object:bank@1", 0)
    with serving(log.directory, tmp_path / "clients-log.sock"):
        snapshots = make(tmp_path)
        begun = snapshots.open_blocking()
        assert begun.start == 0
        snapshots.settle(5)
        for record in LogReader(log.directory).records(log="objects/bank"):
            begun.machine.apply(record.payload, record.position, record.time_us)
        snapshots.applied(begun.machine, 10, 2)
        for _ in range(4):
            bank.others(1_000)
            behind = log.zones.green_runs - 1
            for place in (behind, behind, *[log.zones.green_runs] * 6):
                snapshots.settle(place)
        heads, _ = heads_in(snapshots_of(log.directory))
        assert len(heads) == 2
        assert heads[0].position > heads[1].position > 1_000
        hold = snapshots.next_hold()
        assert hold is not None
        assert hold.position == heads[1].position
        again = make(tmp_path).open_blocking()
        assert again.machine.state.accounts == {"a": 5}
        assert again.start == heads[0].position
