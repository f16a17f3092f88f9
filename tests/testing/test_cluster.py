"""A user's programs on simulated nodes: what they see, what faults do to them, and that a seed is a run."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

import totempole
from totempole import Gap, Messages, ProcessId, Reconnected, State, View, blocking
from totempole.errors import SessionError
from totempole.testing import (
    Cluster,
    Crashed,
    Fault,
    NotSimulated,
    Program,
    TimeOver,
    Unsettled,
    Violated,
    cluster,
    run,
)

Seen = list[tuple[object, ...]]


async def chatter(name: str, seen: Seen) -> None:
    """Says its name, and tells all that it hears."""
    async with totempole.connect() as session, session.join("chat") as group:
        await group.multicast(name.encode())
        async for event in group:
            match event:
                case Messages(payloads=payloads):
                    seen += [(name, bytes(payload).decode()) for payload in payloads]
                case View():
                    seen.append((name, event.kind, tuple(member.processor for member in event.members)))
                case Reconnected():
                    seen.append((name, "reconnected"))


async def three(c: Cluster) -> Seen:
    seen: Seen = []
    for node in c.nodes:
        await c.start(node, chatter, f"p{node}", seen)
    await c.settled()
    return seen


def test_programs_meet_in_their_groups() -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            seen = await three(c)
            await c.sleep(0.1)
            assert {row for row in seen if len(row) == 2} >= {(f"p{n}", "p3") for n in c.nodes}
            assert [row for row in seen if row[0] == "p1"][-1] == ("p1", "p3")

    run(test)


def test_each_side_of_a_partition_sees_the_other_go_and_come_back() -> None:
    async def test() -> None:
        async with cluster(3, seed=2) as c:
            seen = await three(c)
            seen.clear()
            c.part([1], [2, 3])
            await c.settled()
            assert ("p1", "regular", (1,)) in seen
            assert ("p2", "regular", (2, 3)) in seen
            c.heal()
            await c.settled()
            assert seen[-1][1:] == ("regular", (1, 2, 3))

    run(test)


def test_a_host_that_crashes_takes_its_programs_along_and_brings_them_back() -> None:
    async def test() -> None:
        async with cluster(3, seed=3) as c:
            seen = await three(c)
            seen.clear()
            c.crash(2)
            await c.settled()
            assert ("p1", "regular", (1, 3)) in seen
            assert not [row for row in seen if row[0] == "p2"]
            c.restart(2)
            await c.settled()
            await c.sleep(0.1)
            assert [row for row in seen if row[0] == "p2"][-1] == ("p2", "p2")

    run(test)


def test_a_program_outlives_its_daemon() -> None:
    async def test() -> None:
        async with cluster(3, seed=4) as c:
            seen = await three(c)
            c.crash_daemon(3)
            await c.sleep(1)
            assert not [row for row in seen if row[1] == "reconnected"]
            c.restart(3)
            await c.settled()
            await c.sleep(5)
            assert [row for row in seen if row[1] == "reconnected"] == [("p3", "reconnected")]
            assert [row for row in seen if row[0] == "p3"][-1] == ("p3", "regular", (1, 2, 3))

    run(test)


def test_a_daemon_that_leaves_sends_what_it_was_given_and_its_program_comes_back() -> None:
    async def test() -> None:
        async with cluster(3, seed=4, log=True) as c:
            one, two = await c.start(1, Board), await c.start(2, Board)
            await c.until(lambda: one.value.has_state and two.value.has_state)
            await one.value.group.multicast(b"last words")
            await asyncio.sleep(0.0005)
            c.leave(1)
            await c.until(lambda: two.value.notes == ["last words"])
            await c.until(lambda: len(two.value.group.members) == 1)
            c.restart(1)
            await c.settled()
            await c.until(lambda: len(two.value.group.members) == 2)

    run(test)


class Board:
    """A replicated list, with state for those who come later."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.has_state = False

    async def __aenter__(self) -> Board:
        self.session = await totempole.connect().__aenter__()
        self.group = self.session.join("board", state=self.encoded, want_state=True)
        await self.group.__aenter__()
        self.listening = asyncio.create_task(self.listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listening.cancel()
        await self.session.close()

    async def listen(self) -> None:
        async for event in self.group:
            match event:
                case State(data=data):
                    self.notes = json.loads(data or b"[]")
                    self.has_state = True
                case Messages(payloads=payloads):
                    self.notes += [bytes(payload).decode() for payload in payloads]

    def encoded(self) -> bytes:
        return json.dumps(self.notes).encode()

    async def pin(self, note: str) -> ProcessId:
        await self.group.multicast(note.encode())
        while note not in self.notes:
            await asyncio.sleep(0.01)
        return self.session.process


def test_one_that_comes_later_is_given_the_state() -> None:
    async def test() -> None:
        async with cluster(3, seed=5) as c:
            first = await c.start(1, Board)
            assert (await first.run(Board.pin, "milk")).processor == 1
            second = await c.start(2, Board)
            await c.until(lambda: second.value.notes == ["milk"])
            c.crash(1)
            await second.run(Board.pin, "bread")
            c.restart(1)
            await c.settled()
            await c.until(lambda: first.value.notes == ["milk", "bread"])

    run(test)


def test_a_call_into_a_program_whose_host_crashes_raises_crashed() -> None:
    async def test() -> None:
        async with cluster(2, seed=6) as c:
            board = await c.start(1, Board)
            call = asyncio.create_task(board.run(Board.pin, "milk"))
            await asyncio.sleep(0)
            c.crash(1)
            with pytest.raises(Crashed):
                await call
            with pytest.raises(Crashed):
                await board.run(Board.pin, "bread")

    run(test)


def test_a_program_that_is_stopped_leaves_its_groups_in_good_order() -> None:
    async def test() -> None:
        async with cluster(2, seed=6) as c:
            seen: Seen = []
            one, two = [await c.start(node, chatter, f"p{node}", seen) for node in c.nodes]
            await c.settled()
            await one.stop()
            await c.sleep(0.1)
            assert seen[-1] == ("p2", "regular", (2,))
            assert not one.is_running
            assert two.is_running

    run(test)


def test_a_paused_daemon_falls_out_of_the_ring_and_its_program_hears_of_it_later() -> None:
    async def test() -> None:
        async with cluster(3, seed=7) as c:
            seen = await three(c)
            seen.clear()
            c.pause(3)
            await c.sleep(1)
            assert ("p1", "regular", (1, 2)) in seen
            assert not [row for row in seen if row[0] == "p3"]
            c.resume(3)
            await c.settled()
            assert seen[-1][1:] == ("regular", (1, 2, 3))

    run(test)


def test_loss_and_slowness_change_the_run_and_nothing_else() -> None:
    async def test(loss: float, factor: float) -> str:
        async with cluster(3, seed=8) as c:
            c.loss(loss)
            c.slow(2, factor)
            board = await c.start(1, Board)
            other = await c.start(3, Board)
            for number in range(20):
                await board.run(Board.pin, str(number))
            c.loss(0)
            await c.until(lambda: other.value.notes == [*map(str, range(20))])
            return c.digest

    assert run(lambda: test(0.1, 1)) != run(lambda: test(0, 1)) != run(lambda: test(0, 5))


def test_faults_that_are_named_are_played_and_mended() -> None:
    async def test() -> None:
        async with cluster(3, seed=9) as c:
            seen = await three(c)
            seen.clear()
            await c.play(Fault(0.1, "part", [1], [2, 3], lasts=1), Fault(0.5, "crash", 3, lasts=1))
            await c.settled()
            assert ("p1", "regular", (1,)) in seen
            assert ("p2", "regular", (2,)) in seen
            assert seen[-1][1:] in [("regular", (1, 2, 3)), ("p3",)]

    run(test)


# Servers of programs


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with closing(writer):
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()


async def serving(host: str) -> None:
    async with totempole.connect(), await asyncio.start_server(echo, host, 8080) as server:
        await server.serve_forever()


async def call(host: str, line: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, 8080)
    writer.write(line)
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


async def call_when_it_serves(host: str, line: bytes) -> bytes:
    while True:
        with suppress(ConnectionRefusedError):
            return await call(host, line)
        await asyncio.sleep(0.02)


async def served() -> None:
    async with cluster(2) as c:
        for node in c.nodes:
            await c.start(node, serving, c.host(node))
        assert await call_when_it_serves(c.host(1), b"one\n") == b"ONE\n"
        assert await call_when_it_serves(c.host(2), b"two\n") == b"TWO\n"
        reader, writer = await asyncio.open_connection(c.host(2), 8080)
        c.crash(2)
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await call(c.host(2), b"two\n")
        c.restart(2)
        assert await call_when_it_serves(c.host(2), b"two\n") == b"TWO\n"


def test_a_program_may_serve_clients_of_its_own() -> None:
    run(served)


def test_a_program_does_not_reach_the_servers_of_other_nodes() -> None:
    async def test() -> None:
        async with cluster(2) as c:
            await c.start(1, serving, "localhost")
            await c.sleep(0.1)
            other = await c.start(2, call, c.host(1), b"hello\n")
            with pytest.raises(NotSimulated, match="connection to node1"):
                await other.finished()
            same = await c.start(1, call, "127.0.0.1", b"hello\n")
            assert await same.finished() == b"HELLO\n"

    run(test)


def test_a_slow_reader_is_told_what_it_has_missed() -> None:
    async def test() -> None:
        seen: list[object] = []

        async def slow() -> None:
            async with totempole.connect() as session, session.join("chat", policy="shed") as group:
                await asyncio.sleep(2)
                async for event in group:
                    seen.append(event)  # noqa: PERF401

        async def flood() -> None:
            async with totempole.connect() as session:
                for _ in range(80):
                    await session.multicast("chat", bytes(300_000))

        async with cluster(2) as c:
            await c.start(1, slow)
            await (await c.start(2, flood)).finished()
            await c.until(lambda: any(isinstance(event, Gap) for event in seen))

    run(test)


# A seed is a run


async def stormy(seed: int | None = None) -> tuple[str, str, str]:
    async with cluster(3, seed=seed) as c:
        seen = await three(c)
        await c.storm(5)
        await c.settled()
        return c.digest, json.dumps(seen), str(random.random())


def test_a_seed_is_a_run_twice_in_one_process_and_in_another() -> None:
    program = (
        "import json, logging; logging.disable(); from test_cluster import *; "
        "print(json.dumps(run(stormy(11))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": str(sys.path[0])},  # here it is another
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = run(stormy(11))
    assert found == run(stormy(11)) == tuple(json.loads(done.stdout))
    assert found[0] != run(stormy(12))[0]


def test_what_programs_draw_at_random_comes_from_the_seed_and_the_tests_own_state_is_kept() -> None:
    async def test() -> float:
        async with cluster(1):
            return random.random()

    random.seed(5)
    first = random.random()
    random.seed(5)
    assert run(test, seed=1) == run(test, seed=1) != run(test, seed=2)
    assert random.random() == first


# What there is not


def test_what_is_not_simulated_is_refused() -> None:
    async def test() -> None:
        async with cluster(1) as c:

            async def threaded() -> None:
                await asyncio.to_thread(print)

            async def networked() -> None:
                await asyncio.open_connection("example.org", 80)

            async def spawned() -> None:
                await asyncio.create_subprocess_exec("true")

            async def blocked() -> None:
                with blocking.connect():
                    pass

            for program, error, text in (
                (threaded, NotSimulated, "a thread"),
                (networked, NotSimulated, "a connection to example.org"),
                (spawned, NotSimulated, "subprocess_exec"),
                (blocked, SessionError, "asyncio programs only"),
            ):
                started: Program[object] = await c.start(1, program)
                with pytest.raises(error, match=text):
                    await started.finished()

    run(test)


def test_the_test_itself_is_on_no_node_and_names_one() -> None:
    async def test() -> None:
        async with cluster(2) as c:
            with pytest.raises(SessionError, match="no simulated daemon here"):
                await totempole.connect("elsewhere").__aenter__()
            async with totempole.connect(c.socket(2)) as session:
                assert session.process.processor == 2
            with pytest.raises(ValueError, match="nodes 1 to 2"):
                c.crash(3)

    run(test)


def test_a_cluster_in_real_time_says_what_to_do() -> None:
    async def test() -> None:
        async with cluster(3):
            pass

    with pytest.raises(RuntimeError, match=r"totempole\.testing\.run"):
        asyncio.run(test())


# What goes wrong


def test_a_program_that_fails_fails_the_test() -> None:
    async def failing() -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError("mine")

    async def test() -> None:
        async with cluster(2, seed=3) as c:
            await c.start(2, failing)
            c.part([1], [2])
            await c.sleep(2)

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        run(test)
    notes = "".join(caught.value.__notes__)
    assert "on node 2" in notes
    assert "seed 3" in notes
    assert "part([1], [2])" in notes


def test_a_program_that_cannot_begin_fails_its_start() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    async def test() -> None:
        async with cluster(1) as c:
            with pytest.raises(ZeroDivisionError):
                await c.start(1, broken)

    run(test)


def test_a_test_that_waits_for_ever_is_told_where() -> None:
    async def waits_for_godot() -> None:
        await asyncio.get_running_loop().create_future()

    async def test() -> None:
        async with cluster(1) as c:
            await (await c.start(1, waits_for_godot)).finished()

    with pytest.raises(TimeOver, match="waits_for_godot"):
        run(test, limit=20)


def test_a_cluster_that_does_not_come_to_rest_is_told_of() -> None:
    async def test() -> None:
        async with cluster(3) as c:
            c.loss(1)
            await c.settled(within=5)

    with pytest.raises(Unsettled, match="in a ring of"):
        run(test)


def test_what_never_holds_is_told_of() -> None:
    async def test() -> None:
        async with cluster(1) as c:
            await c.until(lambda: False, within=2)

    with pytest.raises(Unsettled, match="after 2 s it does not hold"):
        run(test)


def test_the_checkers_judge_the_run() -> None:
    async def test() -> None:
        async with cluster(3) as c:
            await three(c)
            rows = c._nodes.world.rows  # type: ignore[attr-defined]
            delivery = next(place for place, row in enumerate(rows) if row.kind == "deliver")
            rows.insert(delivery, rows[delivery])

    with pytest.raises(Violated, match=r"deliver"):
        run(test)


def test_a_program_that_only_spins_does_not_stop_time() -> None:
    async def test() -> None:
        async with cluster(2) as c:
            c.crash(1)
            began = c.now
            while c.now < began + 0.02:
                await asyncio.sleep(0)

    run(test)
