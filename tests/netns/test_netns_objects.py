"""Replicated objects with real daemons and programs on hosts of their own, while the network parts, daemons
stand still, and daemons and programs are killed: histories are linearisable, every call is applied once, and
all hosts hold the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from object_stage import ObjectStage, Power, fire, object_staged
from powercut import build, compiler

from totempole.testing import NotLinearizable

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler: scripts/system-packages test")


def test_objects_through_a_pause_a_partition_and_kills(tmp_path: Path) -> None:
    with object_staged(tmp_path, 3) as stage:
        stage.start_programs()
        stage.more(10)
        stage.read_in_old_primary(1, calls=10)
        stage.more(10)
        stage.kill_program(2)
        stage.daemons.kill(3)
        stage.start_program(2)
        stage.daemons.start(3)
        stage.wait_primary()
        stage.more(10)
    assert all(len(calls) > 50 for calls in stage.histories.values())


@pytest.mark.parametrize("fault", ["paused", pytest.param("parted", marks=pytest.mark.long)])
def test_programs_that_peek_instead_of_reading_are_found_out(tmp_path: Path, fault: str) -> None:
    with object_staged(tmp_path, 3, finish=False) as stage:
        stage.peek()
        stage.start_programs()
        stage.more(10)
        stage.tell(1, "rest")
        if fault == "paused":
            with stage.paused(1) as others:
                stage.more(10, others)
                stage.tell(1, "read")
        else:
            stage.partition([1], [2, 3])
            stage.more(10, [2, 3])
            stage.tell(1, "read")
        with pytest.raises(NotLinearizable, match=r"get|owner|size"):
            stage.finish()


@pytest.mark.long
@pytest.mark.parametrize(("hosts", "seed"), [(3, 1), (3, 2), (5, 3)])
def test_objects_under_fire(tmp_path: Path, hosts: int, seed: int) -> None:
    random = Random(seed)
    with object_staged(tmp_path, hosts) as stage:
        stage.start_programs(pause_ms=40)
        for _ in range(12):
            stage.more(5)
            print(fire(stage, random), flush=True)
    _print(stage)


@pytest.mark.long
@needs_compiler
def test_objects_when_the_power_of_all_daemons_fails(tmp_path: Path) -> None:
    """Programs live on: they retry what is in doubt. One of them is killed beside, each time."""
    random = Random(4)
    power = Power(build(tmp_path), random)
    with object_staged(tmp_path, 3, settings=["log.segment_bytes=65536"], prepare=power.prepare) as stage:
        stage.start_programs()
        for cut in range(8):
            stage.more(10)
            if cut % 3:
                stage.kill_program(cut % 3)
            power.fail(stage)
            if cut % 3:
                stage.start_program(cut % 3)
            stage.wait_primary()
    assert power.taken_back
    _print(stage)


def _print(stage: ObjectStage) -> None:
    """For whoever runs it with -s."""
    for name, calls in stage.histories.items():
        print(f"{name}: {stage.judgements[name]}, {sum(call.is_pending for call in calls)} not known")
