"""Requests to the log as frames: what the daemon answers, and how it pushes back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import Daemon, Program, daemon

from totempole.corel.commands import CloseLog
from totempole.corel.config import LogConfig
from totempole.corel.layer import OUTBOX_BYTES_MAX
from totempole.corel.run import RunId
from totempole.daemon.connection import FRAMES_PER_TURN, REQUESTS_MAX, TURN_US, Connection
from totempole.groups import pack
from totempole.session import (
    FRAME_BYTES_MAX,
    NO_RUN,
    Append,
    AskBarrier,
    FindRun,
    HoldLog,
    Refused,
    RunAccepted,
    RunDurable,
    RunFenced,
    RunLost,
    RunPlaced,
    RunUnknown,
)
from totempole.types import Fence

ALONE = LogConfig(replicas=(1,), segment_bytes=2**30)
MINORITY = LogConfig(replicas=(1, 2, 3))
BATCH = pack([b"a", b"b"])


def set_disk(it: Daemon, works: bool) -> None:
    def do() -> None:
        it.loop.disk_works = works

    it.loop.ask(do)


def test_accepted_durable_placed(tmp_path: Path) -> None:
    with daemon(tmp_path, log=ALONE) as it, it.program() as program:
        program.write(Append(7, "log", BATCH, b"", True))
        accepted, *rest = [program.next() for _ in range(3)]
        assert isinstance(accepted, RunAccepted)
        assert (accepted.request, accepted.position) == (7, 0)
        assert rest == [RunDurable(7, accepted.run), RunPlaced(7, accepted.run, 0, 2, ())]
        program.write(Append(8, "log", BATCH, pack([b"k", b"k"])))
        placed = program.expect(RunPlaced)
        assert placed == RunPlaced(8, placed.run, 2, 1, ((1, 2),))


def test_a_run_is_found_or_not(tmp_path: Path) -> None:
    with daemon(tmp_path, log=ALONE) as it, it.program() as program, it.program() as other:
        program.write(Append(7, "log", BATCH))
        run = program.expect(RunPlaced).run
        other.write(FindRun(1, run))
        assert other.next() == RunPlaced(1, run, 0, 2, ())
        other.write(FindRun(2, (1, 2, 3)))
        assert other.next() == RunUnknown(2, (1, 2, 3), False)
        set_disk(it, False)
        program.write(Append(8, "log", BATCH))  # which is told a moment later
        run = program.expect(RunAccepted).run
        other.write(FindRun(3, run))
        assert other.next() == RunUnknown(3, run, True)
        set_disk(it, True)
        assert other.next() == RunPlaced(3, run, 2, 2, ())


def test_a_run_that_its_fence_keeps_out(tmp_path: Path) -> None:
    fence = Fence("q", 5, 0, 0)
    with daemon(tmp_path, log=ALONE) as it, it.program() as program, it.program() as other:
        program.write(Append(7, "log", BATCH))
        program.write(Append(8, "log", BATCH, fence=fence))
        assert [program.expect(RunPlaced).position for _ in range(2)] == [0, 2]
        other.write(Append(9, "log", BATCH, b"", True, fence))
        accepted, durable, fenced = other.next(), other.next(), other.next()
        assert isinstance(accepted, RunAccepted)
        assert isinstance(durable, RunDurable)
        assert fenced == RunFenced(9, accepted.run, 5, 2)
        program.write(FindRun(1, accepted.run))
        assert program.next() == RunFenced(1, accepted.run, 5, 2), "by its receipt, too"
        set_disk(it, False)
        other.write(Append(10, "log", BATCH, fence=Fence("q", 9, 7, 8)))
        run = other.expect(RunAccepted).run
        program.write(FindRun(2, run))
        assert program.next() == RunUnknown(2, run, True)
        set_disk(it, True)
        assert program.next() == RunFenced(2, run, 5, 2), "once it is known"
        program.write(Append(11, "log", BATCH))
        assert program.expect(RunPlaced).position == 4


def test_what_is_refused(tmp_path: Path) -> None:
    def refused(program: Program, frame: Any) -> str:
        program.write(frame)
        answer = program.next()
        assert isinstance(answer, Refused)
        assert answer.request == 5
        return answer.text

    with daemon(tmp_path, log=ALONE) as it, it.program() as program:
        assert "1 to 100 bytes" in refused(program, Append(5, "x" * 101, BATCH))
        assert "not packed" in refused(program, Append(5, "log", b"no batch"))
        assert "1 keys for 2 records" in refused(program, Append(5, "log", BATCH, pack([b"k"])))
        assert "at most 255" in refused(program, Append(5, "log", BATCH, pack([b"k" * 256, b"l"])))
        assert "low 0, high 2, number 2" in refused(
            program, Append(5, "log", BATCH, fence=Fence("q", 2, 0, 2))
        )
        assert "1 to 100 bytes" in refused(program, HoldLog(5, "r" * 200, 1))
        program.write(Append(6, "log", BATCH))
        assert program.expect(RunPlaced).request == 6


def test_keys_that_are_no_text_end_the_session(tmp_path: Path) -> None:
    with daemon(tmp_path, log=ALONE) as it, it.program() as program:
        program.write(Append(5, "log", BATCH, pack([b"\xff", b"\xff"])))
        assert "keys that cannot be read" in program.last().text


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    with daemon(tmp_path, log=ALONE) as it, it.program() as program:
        set_disk(it, False)
        program.write(Append(5, "log", BATCH))
        run = program.expect(RunAccepted).run
        it.loop.ask(lambda: it.loop.feed(CloseLog("the disk is full")))
        lost = program.next()
        assert isinstance(lost, RunLost)
        assert (lost.request, lost.run) == (5, run)
        assert "the disk is full" in lost.why
        program.write(Append(6, "log", BATCH))
        assert isinstance(lost := program.next(), RunLost)
        assert (lost.request, lost.run) == (6, NO_RUN)


def test_a_program_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    with daemon(tmp_path, log=ALONE) as it:
        set_disk(it, False)
        with it.program() as program:
            program.write(Append(5, "log", BATCH))
            program.expect(RunAccepted)
        it.wait_for(lambda status: status["clients"] == 0)
        replica = it.loop.replica
        assert replica is not None
        assert not it.loop.ask(lambda: replica.requests._waiting)


def test_a_daemon_whose_log_is_full_does_not_listen(tmp_path: Path) -> None:
    """It holds a bounded number of bytes, and takes the rest when its disk has caught up."""
    batch, count = pack([bytes(FRAME_BYTES_MAX - 4096)]), 40
    with daemon(tmp_path, log=ALONE) as it, it.program() as program:
        set_disk(it, False)
        sending = threading.Thread(
            target=lambda: program.write(*(Append(number, "log", batch) for number in range(1, count + 1)))
        )
        sending.start()
        replica = it.loop.replica
        assert replica is not None
        it.wait_for(lambda _status: it.loop.ask(lambda: replica.outbox.bytes) >= OUTBOX_BYTES_MAX)
        sending.join(1.0)
        assert sending.is_alive(), "the socket does not take all"
        assert it.loop.ask(lambda: replica.outbox.bytes) < OUTBOX_BYTES_MAX + 2 * len(batch)
        set_disk(it, True)
        placed = [program.expect(RunPlaced) for _ in range(count)]
        sending.join()
        assert [(each.request, each.position) for each in placed] == [(n + 1, n) for n in range(count)]


@pytest.mark.parametrize("second", [Append(7, "log", BATCH), FindRun(7, (0, 0, 0)), AskBarrier(7)])
def test_a_request_that_is_open_is_not_made_again(tmp_path: Path, second: Any) -> None:
    """The answer to the second would count for the first: more than its bounds could wait."""
    with daemon(tmp_path, log=ALONE) as it, it.program() as program:
        set_disk(it, False)
        program.write(Append(7, "log", BATCH), second)
        assert "request 7" in program.last().text
        it.wait_for(lambda status: status["disconnected"] == {"request in use": 1})


def test_a_barrier_that_is_open_is_not_asked_for_again(tmp_path: Path) -> None:
    with daemon(tmp_path, log=MINORITY) as it, it.program() as program:
        program.write(*[AskBarrier(7)] * 100)
        assert "request 7" in program.last().text


def test_frames_that_take_long_have_a_turn_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """36 bytes append 65,536 empty records with as many empty keys: the ring is seen to between any two."""
    turns: list[int] = []
    take_turn, append = Connection.take_turn, Connection._append

    def counted(self: Connection) -> None:
        turns.append(0)
        take_turn(self)

    with daemon(tmp_path, log=ALONE) as it, it.program() as program:

        def slow(self: Connection, frame: Append, size: int) -> None:
            turns[-1] += 1
            it.loop.skew_us += TURN_US
            append(self, frame, size)

        monkeypatch.setattr(Connection, "take_turn", counted)
        monkeypatch.setattr(Connection, "_append", slow)
        program.write(*(Append(number, "log", BATCH) for number in range(1, 41)))
        assert [program.expect(RunPlaced).request for _ in range(40)] == list(range(1, 41))
        assert max(turns) == 1


def test_a_program_with_many_requests_open_is_not_listened_to(tmp_path: Path) -> None:
    with daemon(tmp_path, log=ALONE) as it, it.program() as program, it.program() as other:
        set_disk(it, False)
        other.write(Append(7, "log", BATCH))
        run = other.expect(RunAccepted).run
        program.write(*(FindRun(number, run) for number in range(1, 2 * REQUESTS_MAX + 1)))
        for _ in range(REQUESTS_MAX):
            program.expect(RunUnknown)
        replica = it.loop.replica
        assert replica is not None
        waiting = it.loop.ask(lambda: len(replica.requests._waiting[RunId(*run)]))
        assert REQUESTS_MAX < waiting <= REQUESTS_MAX + 1 + FRAMES_PER_TURN
        set_disk(it, True)
        assert sorted({program.expect(RunPlaced).request for _ in range(2 * REQUESTS_MAX)})[-1] == (
            2 * REQUESTS_MAX
        )
