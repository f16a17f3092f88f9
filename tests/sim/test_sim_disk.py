"""A write is durable when it is acknowledged; a crash may lose, keep or tear what was not."""

from __future__ import annotations

from random import Random

from totempole.sim.clock import Scheduler
from totempole.sim.conditions import DiskSpeed
from totempole.sim.disk import Disk, Fate, encode_record, read_log


def disk_and_clock(seed: int = 1) -> tuple[Disk, Scheduler]:
    scheduler = Scheduler()
    return Disk(scheduler, Random(seed), DiskSpeed(latency_us=(100, 100))), scheduler


def test_a_write_is_durable_exactly_when_it_is_acknowledged() -> None:
    disk, scheduler = disk_and_clock()
    done: list[int] = []
    disk.write({"ring_seq": 4}, lambda: done.append(scheduler.now_us))
    scheduler.run_until(99)
    assert (disk.recover(), done) == ({}, [])
    scheduler.run_until(100)
    assert (disk.recover(), done) == ({"ring_seq": 4}, [100])


def test_writes_complete_in_order_and_later_records_win() -> None:
    disk, scheduler = disk_and_clock()
    done: list[int] = []
    disk.write({"ring_seq": 4, "incarnation": 1}, done.append, 1)
    disk.write({"ring_seq": 8}, done.append, 2)
    scheduler.run_until(150)
    assert done == [1]
    scheduler.run_until(200)
    assert done == [1, 2]
    assert disk.recover() == {"ring_seq": 8, "incarnation": 1}


def written_then_crashed(fate: Fate | None, seed: int = 1) -> tuple[Disk, list[str]]:
    disk, scheduler = disk_and_clock(seed)
    done: list[str] = []
    disk.write({"ring_seq": 4}, done.append, "first")
    scheduler.run_until(100)
    disk.write({"ring_seq": 8}, done.append, "second")
    scheduler.run_until(150)
    disk.crash(fate)
    scheduler.run_until(1_000)
    return disk, done


def test_an_unacknowledged_write_is_lost() -> None:
    disk, done = written_then_crashed(Fate.LOST)
    assert (disk.recover(), done) == ({"ring_seq": 4}, ["first"])


def test_an_unacknowledged_write_may_survive_without_ever_being_acknowledged() -> None:
    disk, done = written_then_crashed(Fate.KEPT)
    assert (disk.recover(), done) == ({"ring_seq": 8}, ["first"])


def test_a_torn_write_falls_back_to_the_record_before() -> None:
    whole = len(encode_record({"ring_seq": 4}))
    disk, _ = written_then_crashed(Fate.TORN)
    assert whole < len(disk.log) < 2 * whole
    assert disk.torn_writes == 1
    assert disk.recover() == {"ring_seq": 4}
    assert len(disk.log) == whole


def test_chance_gives_all_three_fates() -> None:
    found = set()
    for seed in range(60):
        disk, _ = written_then_crashed(None, seed)
        found.add((disk.torn_writes, disk.recover()["ring_seq"]))
    assert found == {(0, 4), (1, 4), (0, 8)}


def test_writes_after_a_torn_one_are_read_again() -> None:
    disk, _ = written_then_crashed(Fate.TORN)
    disk.recover()
    disk.log += encode_record({"ring_seq": 12})
    assert disk.recover() == {"ring_seq": 12}


def test_every_cut_of_a_log_reads_as_a_prefix_of_its_records() -> None:
    first, second = encode_record({"a": 1}), encode_record({"a": 2})
    log = first + second
    for length in range(len(log) + 1):
        expected = {} if length < len(first) else {"a": 1} if length < len(log) else {"a": 2}
        assert read_log(log[:length])[0] == expected


def test_a_flipped_bit_ends_the_log() -> None:
    log = bytearray(encode_record({"a": 1}) + encode_record({"a": 2}))
    log[-1] ^= 1
    assert read_log(bytes(log))[0] == {"a": 1}
