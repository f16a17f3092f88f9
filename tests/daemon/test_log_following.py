"""Programs that follow logs, as frames: a ring of one, the real layers, a disk that is a promise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from daemon_loop import Daemon, Program, daemon

from totempole.corel.commands import CloseLog, OpenLog
from totempole.corel.config import LogConfig
from totempole.corel.events import GreenLine
from totempole.corel.run import RunKind, records_of
from totempole.daemon.connection import BARRIERS_MAX, FOLLOWS_MAX
from totempole.groups import pack
from totempole.session import (
    Append,
    AskBarrier,
    BarrierPassed,
    FollowEnd,
    FollowEnded,
    Following,
    FollowLog,
    HoldLog,
    LogRuns,
    Refused,
    RunAccepted,
    RunFenced,
    RunPlaced,
    Unfollow,
)
from totempole.session.log_frames import OrderedRun
from totempole.types import Fence

ALONE = LogConfig(replicas=(1,))
MINORITY = LogConfig(replicas=(1, 2, 3))
BATCH = pack([b"a", b"b"])
THREE = ((1, "another"), (2, "one"), (3, "two"))
KIB = 1024


@contextmanager
def primary(directory: Path, **settings: Any) -> Iterator[Daemon]:
    """Its replica has formed a primary, whose record is the run at place 0."""
    with daemon(directory, log=ALONE, **settings) as it:
        it.wait_for(lambda _: green_runs(it) == 1)
        yield it


def green_runs(it: Daemon) -> int:
    replica = it.loop.replica
    assert replica is not None
    return it.loop.ask(lambda: replica.zones.green_runs)


def set_disk(it: Daemon, works: bool) -> None:
    def do() -> None:
        it.loop.disk_works = works

    it.loop.ask(do)


def runs_of(frame: LogRuns) -> list[OrderedRun]:
    return msgspec.msgpack.decode(frame.runs, type=list[OrderedRun])


def logs_of(frame: LogRuns) -> list[str]:
    return [records_of(ordered.run).log for ordered in runs_of(frame)]


def told(program: Program) -> Any:
    """The next frame, whether or not the log had to say first that it has taken the records."""
    while isinstance(frame := program.next(), RunAccepted):
        pass
    return frame


def follow(program: Program, log: str, request: int = 1) -> Following:
    program.write(FollowLog(request, log))
    answer: Following = program.expect(Following)
    assert answer.request == request
    return answer


def append(program: Program, log: str, batch: bytes = BATCH, request: int = 99) -> RunPlaced:
    program.write(Append(request, log, batch))
    return program.expect(RunPlaced)


def told_green(it: Daemon) -> bool:
    replica = it.loop.replica
    assert replica is not None
    return it.loop.ask(lambda: replica.member.tells_green)


def test_a_run_is_pushed_before_its_place_is_told(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program:
        line = follow(program, "log")
        assert (line.place, line.position) == (1, 0), "the primary's own run"
        for number in range(20):
            program.write(Append(7, "log", BATCH))
            pushed, placed = [told(program) for _ in range(2)]
            (ordered,) = runs_of(pushed)
            assert (ordered.place, ordered.position) == (1 + number, 2 * number)
            assert (pushed.log, pushed.place, pushed.position) == ("log", 2 + number, 2 * number + 2)
            assert placed == RunPlaced(7, ordered.run.id, ordered.position, 2, ())


def test_only_what_is_followed_is_pushed(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program, it.program() as other:
        follow(program, "log")
        append(other, "another")
        append(other, "log")
        assert logs_of(program.expect(LogRuns)) == ["log"]
        program.write(Unfollow("log"))
        follow(program, "another", 2)
        append(other, "log")
        append(other, "another")
        assert logs_of(program.expect(LogRuns)) == ["another"]


def test_a_run_that_its_fence_keeps_out_is_not_pushed(tmp_path: Path) -> None:
    fence = Fence("q", 1, 0, 0)
    with primary(tmp_path) as it, it.program() as program:
        follow(program, "log")
        program.write(Append(7, "log", BATCH, fence=fence))
        assert [type(told(program)) for _ in range(2)] == [LogRuns, RunPlaced]
        program.write(Append(8, "log", BATCH, fence=fence))
        fenced = told(program)
        assert fenced == RunFenced(8, fenced.run, 1, 0)
        program.write(Append(9, "log", BATCH))
        pushed, placed = told(program), told(program)
        assert [(ordered.place, ordered.position) for ordered in runs_of(pushed)] == [(3, 2)]
        assert (pushed.place, pushed.position) == (4, 4), "it has cost a place, and no position"
        assert isinstance(placed, RunPlaced)


def test_the_logs_own_runs_come_once_for_all_that_is_followed(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program:
        for request in range(1, 6):
            follow(program, f"log-{request}", request)
        program.write(HoldLog(7, "reader", 5))
        pushed, placed = [told(program) for _ in range(2)]
        assert pushed.log == ""
        (ordered,) = runs_of(pushed)
        assert ordered.run.kind is RunKind.HOLD
        assert isinstance(placed, RunPlaced)


def test_a_log_that_does_not_exist_is_followed_until_it_does(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program, it.program() as other:
        line = follow(program, "to come")
        append(other, "another")
        append(other, "to come")
        (ordered,) = runs_of(program.expect(LogRuns))
        assert ordered.place == line.place + 1


def test_many_follow_one_log_and_it_is_encoded_once(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as author:
        programs = [it.program() for _ in range(20)]
        for program in programs:
            follow(program, "log")
        append(author, "log", pack([bytes(100_000)]))
        frames = [program.expect(LogRuns) for program in programs]
        assert all(frame == frames[0] for frame in frames)
        for program in programs:
            program.socket.close()
        it.wait_for(lambda status: status["followers"] == 0)


def test_a_program_may_follow_many_logs_and_not_more(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program, it.program() as other:
        program.write(*(FollowLog(request, f"log-{request}") for request in range(1, 10_001)))
        for request in range(1, 10_001):
            answer = program.next()
            assert isinstance(answer, Following if request <= FOLLOWS_MAX else Refused)
            assert answer.request == request
        append(other, f"log-{FOLLOWS_MAX}")
        assert logs_of(program.expect(LogRuns)) == [f"log-{FOLLOWS_MAX}"]
        program.write(Unfollow("log-1"))
        follow(program, "one more", 10_001)


def test_following_twice_is_following_once(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program:
        follow(program, "log", 1)
        follow(program, "log", 2)
        program.write(Append(7, "log", BATCH))
        assert [type(told(program)) for _ in range(2)] == [LogRuns, RunPlaced]
        program.write(Unfollow("log"), Unfollow("log"), Unfollow("never followed"))
        append(program, "log")
        assert it.snapshot()["followers"] == 0


def test_a_slow_follower_is_ended_and_not_the_others(tmp_path: Path) -> None:
    with (
        primary(tmp_path, client_receive_bytes_max=512 * KIB) as it,
        it.program("slow") as slow,
        it.program("quick") as quick,
        it.program("author") as author,
    ):
        follow(slow, "log")
        follow(quick, "log")
        append(slow, "log")
        given = [quick.expect(LogRuns)]
        while not it.snapshot()["followers_too_slow"]:
            append(author, "log", pack([bytes(50_000)]))
            given.append(quick.expect(LogRuns))
            assert len(given) < 100
        for _ in range(5):
            append(author, "log")
            given.append(quick.expect(LogRuns))
        assert [frame.place for frame in given] == list(range(2, 2 + len(given)))
        assert it.snapshot()["followers"] == 1
        places = []
        while isinstance(frame := told(slow), LogRuns):
            places.append(frame.place)
        assert frame == FollowEnded(FollowEnd.TOO_SLOW)
        assert places == list(range(3, 3 + len(places))), "no gap before the end"
        line = follow(slow, "log", 2)
        append(slow, "log")
        assert it.snapshot()["disconnected"] == {}
        assert line.place == given[-1].place


def test_a_slow_follower_of_two_logs_is_ended_once(tmp_path: Path) -> None:
    """Runs of both become green at once: it is ended with the first, and nobody follows the second."""
    with (
        primary(tmp_path, client_receive_bytes_max=64 * KIB) as it,
        it.program("slow") as slow,
        it.program("author") as author,
    ):
        follow(slow, "one", 1)
        follow(slow, "two", 2)
        while not it.snapshot()["followers_too_slow"]:
            set_disk(it, False)
            author.write(*(Append(number, log, pack([bytes(20_000)])) for number, log in THREE))
            assert {author.expect(RunAccepted).request for _ in THREE} == {1, 2, 3}
            set_disk(it, True)
            assert {author.expect(RunPlaced).request for _ in THREE} == {1, 2, 3}
        assert it.snapshot()["followers"] == 0
        append(author, "two")


def test_a_program_that_never_reads_holds_up_nobody(tmp_path: Path) -> None:
    with primary(tmp_path, client_receive_bytes_max=64 * KIB) as it, it.program() as deaf:
        follow(deaf, "log")
        with it.program() as author:
            for _ in range(100):
                append(author, "log", pack([bytes(50_000)]))
        status = it.snapshot()
        assert status["followers_too_slow"] == 1
        assert status["queued_bytes"] < 256 * KIB


def test_a_large_run_comes_in_parts(tmp_path: Path) -> None:
    payload = bytes(range(256)) * (1024 * 1024 // 256 - 1)
    with primary(tmp_path, client_receive_bytes_max=64 * KIB) as it, it.program() as program:
        follow(program, "log")
        program.write(Append(7, "log", pack([payload])))
        pushed, placed = program.expect(LogRuns), program.next()
        (ordered,) = runs_of(pushed)
        assert list(records_of(ordered.run).payloads) == [payload]
        assert isinstance(placed, RunPlaced)
        assert it.snapshot()["followers"] == 1


def test_a_node_without_a_log_says_so(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        for frame in (FollowLog(5, "log"), AskBarrier(6)):
            program.write(frame)
            answer = program.next()
            assert isinstance(answer, Refused)
            assert (answer.request, "keeps no log" in answer.text) == (frame.request, True)
        program.write(Unfollow("log"))
        assert program.join("still there")


def test_the_log_closes_and_opens_again(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program, it.program() as late:
        follow(program, "log", 1)
        follow(program, "log", 2)
        append(program, "log")
        it.loop.ask(lambda: it.loop.feed(CloseLog("the disk is full")))
        assert program.next() == FollowEnded(FollowEnd.CLOSED)
        late.write(FollowLog(1, "log"))
        assert late.next() == FollowEnded(FollowEnd.CLOSED)
        it.loop.ask(lambda: it.loop.feed(OpenLog((), entropy=5)))
        for each, request in ((program, 2), (late, 1)):
            line = each.next()
            assert isinstance(line, Following)
            assert (line.request, line.place) == (request, 0), "this disk is empty"
        for each in (program, late):
            assert runs_of(each.expect(LogRuns))[0].run.kind is RunKind.PRIMARY
        append(late, "log")
        assert logs_of(program.expect(LogRuns)) == ["log"]


def test_a_replica_that_begins_anew_tells_from_where_on(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program:
        follow(program, "a", 1)
        follow(program, "b", 2)
        it.loop.ask(lambda: it.service.log_told(GreenLine(5, 70, 90)))
        assert program.next() == FollowEnded(FollowEnd.JUMPED)
        assert [program.next() for _ in range(2)] == [Following(1, 5, 70, 90), Following(2, 5, 70, 90)]


def test_how_far_the_order_is_is_told_now_and_then(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program, it.program() as other:
        line = follow(program, "log")
        append(other, "another")
        append(other, "another")
        it.skip(2)
        beat = program.next()
        assert (beat.log, runs_of(beat), beat.place, beat.position) == ("", [], line.place + 2, 4)
        it.skip(2)
        program.write(Append(7, "log", BATCH))
        assert logs_of(told(program)) == ["log"], "nothing had changed"


def test_the_replica_tells_of_green_runs_only_while_somebody_follows(tmp_path: Path) -> None:
    with primary(tmp_path) as it:
        with it.program() as program:
            assert not told_green(it)
            follow(program, "log")
            assert told_green(it)
        it.wait_for(lambda status: status["followers"] == 0)
        it.skip(1)
        it.wait_for(lambda _: not told_green(it))
        with it.program() as program:
            append(program, "log")
            assert follow(program, "log").place == 2


# Barriers


def test_a_barrier_passes_behind_the_runs_before_it(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program:
        follow(program, "log")
        for number in range(10):
            program.write(Append(7, "log", BATCH), AskBarrier(8))
            frames: dict[type, Any] = {}
            while len(frames) < 3:
                frame = told(program)
                frames[type(frame)] = frame
            program.write(AskBarrier(9))
            assert program.expect(BarrierPassed) == BarrierPassed(9, 2 + number)
            passed: BarrierPassed = frames[BarrierPassed]
            pushed: LogRuns = frames[LogRuns]
            order = list(frames)
            if passed.place >= pushed.place:
                assert order.index(LogRuns) < order.index(BarrierPassed)


def test_a_barrier_waits_for_a_majority(tmp_path: Path) -> None:
    with daemon(tmp_path, log=MINORITY) as it, it.program() as program:
        for request in range(1, BARRIERS_MAX + 2):
            program.write(AskBarrier(request))
        answer = program.next()
        assert isinstance(answer, Refused)
        assert answer.request == BARRIERS_MAX + 1
    with daemon(tmp_path, log=MINORITY) as it, it.program() as program:
        program.write(AskBarrier(1))
        assert program.join("still there")


def test_a_barrier_at_a_closed_log_says_so_and_waits(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as program:
        it.loop.ask(lambda: it.loop.feed(CloseLog("the disk is full")))
        program.write(AskBarrier(1))
        assert program.next() == FollowEnded(FollowEnd.CLOSED)
        it.loop.ask(lambda: it.loop.feed(OpenLog((), entropy=5)))
        assert program.next() == BarrierPassed(1, 1)


# What a stranger sends


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x00\x00\x01\x0e\x00",
        b"\x00\x00\x00\x04\x0e\x00\x00\x00\x01",
        b"\x00\x00\x00\x00\x0f",
        b"\x00\x00\x00\x05\x28abcde",
    ],
)
def test_frames_that_are_none_end_the_session_and_nobody_elses(tmp_path: Path, body: bytes) -> None:
    with primary(tmp_path) as it, it.program() as stranger, it.program() as program:
        follow(stranger, "log")
        follow(program, "log")
        stranger.socket.sendall(body)
        assert isinstance(stranger.last(), Refused)
        append(program, "log")
        assert it.snapshot()["followers"] == 1


def test_a_daemons_frames_are_refused_from_a_program(tmp_path: Path) -> None:
    with primary(tmp_path) as it, it.program() as stranger:
        stranger.write(LogRuns("log", b"", 1, 1))
        assert isinstance(stranger.last(), Refused)
