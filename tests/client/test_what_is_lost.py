"""The table in docs/groups.md: what is lost when k of n hosts crash at once, row by row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import totempole
from sweeps import first_of
from totempole import Messages, NotPrimary, Primary, Service, Unknown
from totempole.client.log import Log
from totempole.objects import Counter
from totempole.testing import Cluster, Program, cluster, run

SIZES = (3, 5)


def minority(c: Cluster) -> range:
    """The most hosts that are fewer than half."""
    return c.nodes[: (len(c.nodes) - 1) // 2]


def half_or_more(c: Cluster) -> range:
    return c.nodes[: len(minority(c)) + 1]


def crash(c: Cluster, nodes: range) -> None:
    for node in nodes:
        c.crash(node)


async def restart(c: Cluster, nodes: range) -> None:
    for node in nodes:
        c.restart(node)
    await c.settled()


# Messages of groups


async def hear(heard: list[bytes]) -> None:
    async with totempole.connect() as session, session.join("g") as group:
        async for event in group:
            if isinstance(event, Messages):
                heard += [bytes(payload) for payload in event.payloads]


async def send(service: Service, delivered: list[str]) -> None:
    async with totempole.connect() as session, session.join("g") as group:
        await (await group.multicast(b"x", service)).delivered()
        delivered.append("yes")


async def told(c: Cluster, delivered: list[str]) -> None:
    while not delivered:
        await c.sleep(0.0001)


@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("seed", first_of(range(5)))
def test_a_safe_message_that_one_has_received_outlives_all_but_one(seed: int, nodes: int) -> None:
    async def test() -> None:
        async with cluster(nodes, seed=seed) as c:
            heard: list[bytes] = []
            delivered: list[str] = []
            await c.start(nodes, hear, heard)
            await c.settled()
            await c.start(1, send, Service.SAFE, delivered)
            await told(c, delivered)
            crash(c, c.nodes[:-1])
            await c.settled()
            assert heard == [b"x"]

    run(test)


def test_an_agreed_message_may_be_lost_with_its_sender() -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            heard: list[bytes] = []
            await c.start(3, hear, heard)
            await c.settled()
            async with totempole.connect(c.socket(1)) as session, session.join("g") as group:
                await c.settled()
                c.part([1], [2, 3])
                receipt = await group.multicast(b"x", Service.AGREED)
                _, view = await receipt.delivered()
                assert {member.processor for member in view.members} == {1, 3}, "as if 3 had it, too"
                c.crash(1)
                await c.settled()
            assert heard == []

    run(test)


@pytest.mark.parametrize("service", [Service.AGREED, Service.SAFE])
def test_a_message_is_lost_when_all_crash(service: Service) -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            delivered: list[str] = []
            first = await c.start(1, send, service, delivered)
            await first.finished()
            crash(c, c.nodes)
            heard: list[bytes] = []
            await restart(c, c.nodes)
            await c.start(2, hear, heard)
            await c.sleep(5)
            assert delivered
            assert heard == []

    run(test)


# Commands of `Primary`


class Values:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, command: bytes) -> dict[str, str]:
        self.values |= json.loads(command)
        return self.values

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, snapshot: bytes) -> None:
        self.values = json.loads(snapshot)


Store = Program[Primary[Values]]
PUT, READ = b'{"a": "1"}', b"{}"


@asynccontextmanager
async def store(expected: int) -> AsyncIterator[Primary[Values]]:
    async with totempole.connect() as session, Primary(session, "kv", Values, expected=expected) as primary:
        yield primary


async def stores_of(c: Cluster) -> list[Store]:
    stores = [await c.start(node, store, len(c.nodes)) for node in c.nodes]
    await asyncio.gather(*(each.run(Primary.primary) for each in stores))
    return stores


@pytest.mark.parametrize("nodes", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_a_command_of_a_primary_outlives_a_minority(seed: int, nodes: int) -> None:
    async def test() -> None:
        async with cluster(nodes, seed=seed, log=False) as c:
            *_, last = stores = await stores_of(c)
            assert await stores[0].run(Primary.do, PUT) == {"a": "1"}
            crash(c, minority(c))
            await c.settled()
            await last.run(Primary.primary)
            assert await last.run(Primary.do, READ) == {"a": "1"}
            assert last.value.is_certain

    run(test)


def test_a_command_of_a_primary_may_be_lost_with_half_of_the_nodes_and_the_others_wait_for_all() -> None:
    async def test() -> None:
        async with cluster(3, seed=1, log=False) as c:
            *_, last = stores = await stores_of(c)
            c.part([1, 2], [3])
            await c.settled()
            await stores[0].run(Primary.primary)
            assert await stores[0].run(Primary.do, PUT) == {"a": "1"}
            crash(c, half_or_more(c))
            c.heal()
            c.restart(1)
            await c.settled()
            with pytest.raises(NotPrimary):
                await last.run(Primary.do, READ)
            c.restart(2)
            await c.settled()
            await last.run(Primary.primary)
            assert await last.run(Primary.do, READ) == {}
            assert not last.value.is_certain, "and it says so"

    run(test)


def test_commands_of_a_primary_are_lost_when_all_crash() -> None:
    async def test() -> None:
        async with cluster(3, seed=1, log=False) as c:
            *_, last = stores = await stores_of(c)
            assert await stores[0].run(Primary.do, PUT) == {"a": "1"}
            crash(c, c.nodes)
            await restart(c, c.nodes)
            await last.run(Primary.primary)
            assert await last.run(Primary.do, READ) == {}

    run(test)


# The log


@asynccontextmanager
async def orders() -> AsyncIterator[Log]:
    async with totempole.connect() as session, session.log("orders") as log:
        yield log


async def records(log: Log) -> list[bytes]:
    return [bytes(record.payload) async for record in log.read()]


async def logs_of(c: Cluster) -> list[Program[Log]]:
    logs = [await c.start(node, orders) for node in c.nodes]
    await logs[0].run(Log.append, b"first")
    return logs


async def has(c: Cluster, logs: list[Program[Log]], *expected: bytes) -> None:
    """All of them, in the end."""
    for log in logs:
        await log.ready()
        while (found := await log.run(records)) != list(expected):
            assert len(found) < len(expected), found
            await c.sleep(0.1)


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("seed", first_of(range(3)))
def test_a_red_record_waits_on_its_disk_for_a_majority(seed: int, all_of_them: bool) -> None:
    async def test() -> None:
        async with cluster(3, seed=seed) as c:
            alone, *others = logs = await logs_of(c)
            c.part([1], [2, 3])
            await c.settled()
            receipt = await alone.run(lambda log: log.append(b"red", until="red"))
            with pytest.raises(Unknown):
                await receipt.position(timeout=2)
            crashed = c.nodes if all_of_them else c.nodes[:1]
            crash(c, crashed)
            c.heal()
            if not all_of_them:
                await c.settled()
                await has(c, others, b"first")
            await restart(c, crashed)
            await has(c, logs, b"first", b"red")

    run(test)


@pytest.mark.parametrize("nodes", SIZES)
def test_a_green_record_is_with_the_others_when_a_minority_crashes(nodes: int) -> None:
    async def test() -> None:
        async with cluster(nodes, seed=1) as c:
            logs = await logs_of(c)
            await logs[0].run(Log.append, b"green")
            crash(c, minority(c))
            await c.settled()
            await has(c, logs[len(minority(c)) :], b"first", b"green")

    run(test)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_green_record_is_there_again_when_half_or_more_are_back(all_of_them: bool) -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            logs = await logs_of(c)
            await logs[0].run(Log.append, b"green")
            crashed = c.nodes if all_of_them else half_or_more(c)
            crash(c, crashed)
            if not all_of_them:
                await c.settled()
                with pytest.raises(Unknown):  # nothing is appended until then
                    await logs[-1].run(lambda log: log.append(b"later", timeout=5))
            await restart(c, crashed)
            expected = [b"first", b"green"] + [b"later"] * (not all_of_them)
            await has(c, logs, *expected)

    run(test)


# Calls of replicated objects


@asynccontextmanager
async def counter() -> AsyncIterator[totempole.Replica[Counter]]:
    async with totempole.connect() as session, session.replica(Counter, "counter") as replica:
        yield replica


@pytest.mark.parametrize("crashed", [1, 2, 3])
def test_a_call_is_as_a_green_record(crashed: int) -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            counters = [await c.start(node, counter) for node in c.nodes]
            assert await counters[0].run(lambda it: it.call(Counter.add, 7)) == 7
            crash(c, c.nodes[:crashed])
            await c.settled()
            if crashed == 1:
                assert await counters[2].run(lambda it: it.read(Counter.get)) == 7
            if crashed == 2:
                with pytest.raises(totempole.TotemError):
                    await counters[2].run(lambda it: it.within(2).read(Counter.get))
            await restart(c, c.nodes[:crashed])
            for each in counters:
                await each.ready()
                assert await each.run(lambda it: it.read(Counter.get)) == 7

    run(test)
