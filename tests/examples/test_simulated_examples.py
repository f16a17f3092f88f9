"""The examples on simulated nodes: their own functions and classes, through partitions and crashes."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import totempole
from totempole.objects import ReplicatedDict
from totempole.testing import (
    ClassModel,
    Cluster,
    History,
    Program,
    assert_linearizable,
    cluster,
    run,
    seeds,
)

pytestmark = pytest.mark.search

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def helping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples find what they share."""
    monkeypatch.syspath_prepend(str(EXAMPLES))


def example(name: str, lines: list[tuple[str, ...]]) -> ModuleType:
    """A module of its own for each program. `lines` gets what it would print."""
    spec = spec_from_file_location(f"simulated_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.show = lambda *words: lines.append(tuple(map(str, words)))  # type: ignore[attr-defined]
    return module


async def typed(lines: Iterable[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


# The counter


@asynccontextmanager
async def counting() -> AsyncIterator[tuple[totempole.Group, object]]:
    module = example("counter", [])
    counter = module.Counter()
    async with (
        totempole.connect() as mine,
        mine.join("counter", state=counter.snapshot, want_state=True) as group,
    ):
        work = asyncio.create_task(module.count(mine, group, counter))
        try:
            yield group, counter
        finally:
            work.cancel()


async def add(running: tuple[totempole.Group, object], *amounts: int) -> int:
    group, counter = running
    await example("counter", []).ask(group, counter, typed(map(str, amounts)))
    return counter.value  # type: ignore[attr-defined, no-any-return]


def value(program: Program[tuple[totempole.Group, object]]) -> int:
    return program.value[1].value  # type: ignore[attr-defined, no-any-return]


def test_a_counter_leaves_when_all_that_was_typed_is_counted() -> None:
    async def test() -> None:
        async with cluster(1) as c:
            counter = await c.start(1, counting)
            assert await counter.run(add, 3, -2) == 1

    run(test)


async def counters_agree_after_a_partition_and_a_crash() -> None:
    async with cluster(3) as c:
        counters = [await c.start(node, counting) for node in c.nodes]
        await counters[0].run(add, 100)
        c.part([1], [2, 3])
        await c.settled()
        await counters[0].run(add, 10)
        await counters[1].run(add, 1)
        await c.until(lambda: value(counters[2]) == 101)
        assert value(counters[0]) == 110
        c.heal()
        await c.settled()
        await c.until(lambda: {value(each) for each in counters} == {111})
        c.crash(2)
        await c.settled()
        assert await counters[2].run(add, 1000) == 1111
        c.restart(2)
        await c.settled()
        await counters[1].ready()
        await c.until(lambda: {value(each) for each in counters} == {1111})


test_counters_agree_after_a_partition_and_a_crash = seeds(5)(counters_agree_after_a_partition_and_a_crash)


# The chat


@asynccontextmanager
async def chatting(name: str, lines: list[tuple[str, ...]]) -> AsyncIterator[totempole.Group]:
    module = example("chat", lines)
    async with totempole.connect() as mine, mine.join("chat.lobby") as group:
        work = asyncio.create_task(module.listen(mine, group, name))
        try:
            yield group
        finally:
            work.cancel()


async def say(group: totempole.Group, name: str, *words: str) -> None:
    await example("chat", []).talk(group, name, typed(words))


def test_a_chat_reads_alike_on_each_side_of_a_partition_and_after_it() -> None:
    async def test() -> None:
        lines: dict[str, list[tuple[str, ...]]] = {"ann": [], "bob": [], "cyd": []}
        async with cluster(3) as c:
            people = {
                name: await c.start(node, chatting, name, lines[name]) for node, name in enumerate(lines, 1)
            }
            await c.until(lambda: all(len(seen) >= 3 for seen in lines.values()))
            c.part([1], [2, 3])
            await c.settled()
            await people["ann"].run(say, "ann", "anybody?")
            await people["bob"].run(say, "bob", "she is gone")
            await c.settled()
            for seen in lines.values():
                assert (("<ann>", "anybody?") in seen) is (seen is lines["ann"])
            assert ("*", "ann", "is gone") in lines["bob"]
            c.heal()
            await c.settled()
            await c.until(lambda: lines["bob"].count(("*", "ann", "is here")) == 2)
            c.crash(3)
            await c.settled()
            await c.until(lambda: ("*", "cyd", "is gone") in lines["bob"][-3:])

    run(test)


# The work queue


@asynccontextmanager
async def working(done: list[tuple[str, ...]]) -> AsyncIterator[totempole.Session]:
    module = example("work_queue", done)
    worker = None
    async with totempole.connect() as mine:
        group = mine.join("tasks", state=lambda: worker.snapshot() if worker else b"{}", want_state=True)
        async with group:
            worker = module.Worker(mine, group, 0.2)
            work = asyncio.create_task(worker.take_part())
            try:
                yield mine
            finally:
                work.cancel()


def finished(lines: list[tuple[str, ...]]) -> list[str]:
    return [words[1] for words in lines if words[0] == "done"]


async def every_task_is_done_through_a_crash_and_a_partition() -> None:
    lines: list[list[tuple[str, ...]]] = [[], [], []]
    tasks = [b'{"task": "%d"}' % number for number in range(12)]
    async with cluster(3) as c:
        workers = [await c.start(node, working, seen) for node, seen in zip(c.nodes, lines, strict=True)]
        await c.settled()
        await workers[0].run(totempole.Session.multicast_many, "tasks", tasks)
        await c.sleep(0.3)
        c.crash(2)
        await c.settled()
        c.restart(2)
        c.part([1], [2, 3])
        await c.sleep(0.5)
        c.heal()
        await c.settled()
        await c.until(lambda: await_all(lines, len(tasks)))
        # What one side has done is told to the other as a whole, so each has seen a part of it.
        assert len(set(finished(lines[0])) | set(finished(lines[1])) | set(finished(lines[2]))) == len(tasks)


def await_all(lines: list[list[tuple[str, ...]]], count: int) -> bool:
    return len({task for seen in lines for task in finished(seen)}) == count


test_every_task_is_done_through_a_crash_and_a_partition = seeds(5)(
    every_task_is_done_through_a_crash_and_a_partition
)


async def every_task_has_one_winner_where_nothing_parts() -> None:
    lines: list[list[tuple[str, ...]]] = [[], [], []]
    async with cluster(3) as c:
        workers = [await c.start(node, working, seen) for node, seen in zip(c.nodes, lines, strict=True)]
        await c.settled()
        tasks = [b'{"task": "%d"}' % number for number in range(6)]
        await workers[0].run(totempole.Session.multicast_many, "tasks", tasks)
        await c.until(lambda: all(len(finished(seen)) == len(tasks) for seen in lines))
        assert finished(lines[0]) == finished(lines[1]) == finished(lines[2])


test_every_task_has_one_winner_where_nothing_parts = seeds(5)(every_task_has_one_winner_where_nothing_parts)


# The whiteboard


@asynccontextmanager
async def drawing() -> AsyncIterator[tuple[totempole.Group, Any]]:
    module = example("whiteboard", [])
    board = module.Board()
    async with (
        totempole.connect() as mine,
        mine.join("whiteboard", state=board.snapshot, want_state=True) as group,
    ):
        work = asyncio.create_task(module.watch(mine, group, board))
        try:
            yield group, board
        finally:
            work.cancel()


async def draw(running: tuple[totempole.Group, Any], *lines: str) -> None:
    await example("whiteboard", []).draw(*running, typed(lines))


def drawn(program: Program[tuple[totempole.Group, Any]]) -> dict[str, str]:
    """What is on each spot."""
    return {spot: ink for spot, (_, ink) in program.value[1].spots.items()}


async def boards_are_equal_after_a_partition_and_a_crash() -> None:
    async with cluster(3) as c:
        boards = [await c.start(node, drawing) for node in c.nodes]
        await boards[0].run(draw, "put 0 0 a", "put 1 0 a")
        await c.until(lambda: all(len(drawn(each)) == 2 for each in boards))
        c.part([1], [2, 3])
        await c.settled()
        await boards[0].run(draw, "put 1 0 m", "put 2 0 m")
        await boards[1].run(draw, "put 3 0 M")
        await c.until(lambda: len(drawn(boards[2])) == 3)
        assert drawn(boards[0]) == {"0 0": "a", "1 0": "m", "2 0": "m"}
        c.heal()
        await c.settled()
        both = {"0 0": "a", "1 0": "m", "2 0": "m", "3 0": "M"}
        await c.until(lambda: [drawn(each) for each in boards] == [both] * 3)
        c.crash(2)
        await boards[2].run(draw, "put 4 0 z")
        c.restart(2)
        await c.settled()
        await boards[1].ready()
        await c.until(lambda: [drawn(each) for each in boards] == [both | {"4 0": "z"}] * 3)


test_boards_are_equal_after_a_partition_and_a_crash = seeds(5)(boards_are_equal_after_a_partition_and_a_crash)


def test_on_a_spot_that_both_sides_drew_the_same_stroke_stays_everywhere() -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            boards = [await c.start(node, drawing) for node in c.nodes]
            c.part([1], [2, 3])
            await c.settled()
            await boards[0].run(draw, "put 5 5 m")
            await boards[1].run(draw, "put 5 5 M")
            await c.until(lambda: all(len(drawn(each)) == 1 for each in boards))
            assert len({drawn(each)["5 5"] for each in boards}) == 2
            c.heal()
            await c.settled()
            await c.until(lambda: len({drawn(each)["5 5"] for each in boards}) == 1)

    run(test)


# The bank


@asynccontextmanager
async def banking() -> AsyncIterator[tuple[ModuleType, totempole.Replica[Any]]]:
    module = example("bank", [])
    async with totempole.connect() as mine, mine.replica(module.Bank, "bank") as bank:
        yield module, bank


Branch = tuple[ModuleType, totempole.Replica[Any]]


async def transfer(branch: Branch, count: int) -> int:
    module, bank = branch
    made: int = await module.transfer(bank, count)
    return made


async def total(branch: Branch) -> tuple[int, int]:
    module, bank = branch
    found: tuple[int, int] = await bank.read(module.Bank.total)
    return found


async def the_total_of_a_bank_never_changes_and_nothing_is_done_twice() -> None:
    transfers = 40
    async with cluster(3) as c:
        branches = [await c.start(node, banking) for node in c.nodes]
        full = (await branches[0].run(total))[0]
        work = [asyncio.create_task(branches[0].run(transfer, transfers))]
        await c.sleep(0.03)
        c.part([1], [2, 3])
        await c.settled()
        work.append(asyncio.create_task(branches[2].run(transfer, transfers)))
        await c.sleep(0.03)
        assert (await branches[2].run(total))[0] == full
        c.crash(2)
        await c.sleep(0.5)
        assert not any(task.done() for task in work), "nobody has a majority"
        c.heal()
        c.restart(2)
        made = sum(await asyncio.gather(*work))
        await c.settled()
        assert {await each.run(total) for each in branches} == {(full, made)}
        assert made > transfers


test_the_total_of_a_bank_never_changes_and_nothing_is_done_twice = seeds(3)(
    the_total_of_a_bank_never_changes_and_nothing_is_done_twice
)


# The key-value store


@asynccontextmanager
async def serving(host: str) -> AsyncIterator[None]:
    module = example("key_value", [])
    async with (
        totempole.connect() as mine,
        mine.replica(ReplicatedDict, "store") as replica,
        await asyncio.start_server(
            partial(sys.modules["http_store"].answer, module.Store(replica)), host, 8080
        ),
    ):
        yield


async def ask_http(host: str, method: str, key: str, content: bytes = b"") -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(host, 8080)
    try:
        writer.write(f"{method} {key} HTTP/1.1\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def client(c: Cluster, name: str, history: History) -> None:
    for turn in range(10):
        key, content = random.choice(("/a", "/b")), f"{name} {turn}".encode()
        host, is_write = c.host(random.choice(c.nodes)), random.random() < 0.5
        call = history.begin(name, *(("set", key, content) if is_write else ("get", key)))
        try:
            status, body = await ask_http(host, *(("PUT", key, content) if is_write else ("GET", key)))
        except (OSError, IndexError):  # the host is down, or went down: nobody has answered
            status = 0
        if status in (200, 404):
            call.returned(None if is_write or status == 404 else body)
        elif not is_write:
            call.without_effect()
        await asyncio.sleep(random.uniform(0, 0.3))


async def the_store_is_linearisable_for_its_http_clients() -> None:
    async with cluster(3, log=True) as c:
        for node in c.nodes:
            await c.start(node, serving, c.host(node))
        history = History()
        clients = [asyncio.create_task(client(c, f"client {number}", history)) for number in range(4)]
        await c.storm(3)
        await asyncio.gather(*clients)
        await c.settled()
        assert len([call for call in history.calls() if not call.is_pending]) > 15
        assert_linearizable(history.calls(), ClassModel(ReplicatedDict, key=lambda call: call.arguments[0]))


test_the_store_is_linearisable_for_its_http_clients = seeds(3)(the_store_is_linearisable_for_its_http_clients)


@pytest.mark.long
def test_the_store_is_linearisable_through_two_hundred_storms() -> None:
    seeds(200)(the_store_is_linearisable_for_its_http_clients)()


# What is typed to them


class Values(dict[str, bytes]):
    """A store without nodes."""

    async def put(self, key: str, value: bytes) -> None:
        self[key] = value

    async def get(self, key: str) -> bytes | None:  # type: ignore[override]
        return dict.get(self, key)


@asynccontextmanager
async def served(store: object) -> AsyncIterator[int]:
    import http_store

    server = await asyncio.start_server(partial(http_store.answer, store), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("name", ["key_value", "key_value_in_memory"])
def test_the_commands_that_a_store_shows_put_and_get(name: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    put, get = re.findall(r"^    (curl .*?) +#", (EXAMPLES / f"{name}.py").read_text(), re.MULTILINE)

    async def typed_to_a_shell() -> bytes:
        async with served(Values()) as port:
            for command in (put, get):
                at = re.sub(r"localhost:\d+", f"127.0.0.1:{port}", command)
                shell = await asyncio.create_subprocess_shell(f"{at} -sS", stdout=asyncio.subprocess.PIPE)
                said, _ = await shell.communicate()
            return said

    assert asyncio.run(typed_to_a_shell()) == b"red"


def test_a_put_without_a_length_is_refused_and_puts_nothing() -> None:
    """It has chunks, which these few lines of HTTP do not read."""
    store = Values()

    async def put_chunks() -> bytes:
        async with served(store) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nred\r\n0\r\n\r\n")
            said = await reader.read()
            writer.close()
            return said

    assert asyncio.run(put_chunks()).startswith(b"HTTP/1.1 411 ")
    assert store == {}
