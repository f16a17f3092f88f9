"""What a replica does at its limits, and with what it cannot use: it says so, and the others go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from corel_stage import Stage

from totempole.core.effects import TimerName
from totempole.core.inputs import Expired
from totempole.corel import submissions, view_handler
from totempole.corel.commands import AppendRecords, SetHold
from totempole.corel.config import LogConfig
from totempole.corel.layer import LAYER, RUN_BYTES_MAX
from totempole.corel.member import Timer
from totempole.corel.messages import GROUP, Data, State, encode
from totempole.corel.recovery import Plan
from totempole.corel.run import NO_STAMP, Run, RunId, RunKind, is_sound, pack_records
from totempole.errors import SessionError
from totempole.groups import pack


def test_a_disk_that_hangs_holds_up_nobody() -> None:
    """The replica steps aside, the others go on without it, and it comes back when all is written."""
    stage = Stage(3)
    stage.append(1, "one")
    stage.until(lambda: not stage.world.replica(3).journal.is_idle)
    stage.world.feed(3, Expired(TimerName(LAYER, 0, int(Timer.DISK))))
    assert stage.phase(3) in ("leaving", "closed")
    stage.world.run(disks=(1, 2))
    assert [stage.phase(me) for me in (1, 2)] == ["primary", "primary"]
    stage.append(2, "two")
    stage.world.run(disks=(1, 2))
    assert stage.order == ["one", "two"]
    stage.run()
    assert set(stage.phases().values()) == {"primary"}
    assert stage.world.replica(3).zones.green_runs == stage.world.replica(1).zones.green_runs


def test_an_order_that_has_forked_is_named_and_goes_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disks of a quorum were lost, one side's green runs are not in the other's order."""
    stage = Stage(3)
    true = view_handler.plan_for

    def forked(me: int, states: Mapping[int, State]) -> Plan:
        plan = true(me, states)
        return replace(plan, green=plan.length + 1)

    monkeypatch.setattr(view_handler, "plan_for", forked)
    stage.world.change((1, 2), (3,))
    stage.run()
    assert set(stage.phases().values()) == {"closed"}
    assert {alarm.kind for _, alarm in stage.world.alarms} == {"forked"}


def test_too_much_at_once_is_refused() -> None:
    stage = Stage(1)
    batch = pack([bytes(RUN_BYTES_MAX)])
    with pytest.raises(SessionError, match="bytes to be appended at once"):
        stage.world.feed(1, AppendRecords(1, 1, "log", batch, (), 0))


def test_more_readers_than_can_hold_the_log_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program could fill the memory of all replicas otherwise, and the beginning of each segment."""
    monkeypatch.setattr(submissions, "HOLDS_MAX", 2)
    stage = Stage(3)

    def hold(reader: str, position: int) -> None:
        stage.world.feed(1, SetHold(1, 1, reader, position))
        stage.run()

    hold("a", 1)
    hold("b", 2)
    with pytest.raises(SessionError, match="2 readers hold the log"):
        hold("c", 3)
    hold("a", 4)
    assert stage.world.replica(3).zones.holds == {"a": 4, "b": 2}
    hold("b", -1)
    hold("c", 3)
    assert stage.world.replica(3).zones.holds == {"a": 4, "c": 3}


def test_a_run_that_cannot_be_read_is_passed_over_by_all() -> None:
    stage = Stage(3)
    replica = stage.world.replica(1)
    garbage = Run(RunId(1, 77, 1), NO_STAMP, 0, RunKind.RECORDS, 1, b"\xff\x00")
    message = Data(replica.zones.log, garbage, False, replica.member.round, 0, 0)
    replica.member.send(message, GROUP)
    replica.settle()
    stage.append(2, "after it")
    stage.run()
    assert stage.order == ["after it"]
    assert set(stage.phases().values()) == {"primary"}
    assert encode(message)


def test_what_is_sound() -> None:
    def run(kind: RunKind, count: int, body: bytes) -> Run:
        return Run(RunId(1, 1, 1), NO_STAMP, 0, kind, count, body)

    good = pack_records("log", [b"a", b"b"], ("x", ""))
    assert is_sound(run(RunKind.RECORDS, 2, good))
    assert not is_sound(run(RunKind.RECORDS, 3, good))
    assert not is_sound(run(RunKind.RECORDS, 2, pack_records("log", [b"a", b"b"], ("x",))))
    assert not is_sound(run(RunKind.RECORDS, 2, b""))
    assert not is_sound(run(RunKind.CHANGE, 0, good))
    assert not is_sound(run(RunKind.PRIMARY, 0, b"\x90"))


def test_replicas_that_were_told_to_found_different_logs_say_so() -> None:
    stage = Stage(3, founded=False)
    object.__setattr__(stage.world.processors[3].config, "replicas", (1, 3))
    assert isinstance(stage.world.replica(3).config, LogConfig)
    stage.world.change((1, 2, 3))
    stage.run()
    assert set(stage.phases().values()) == {"minority"}
    assert any(alarm.kind == "founding" for _, alarm in stage.world.alarms)
