"""The two key-value stores on simulated nodes, through crashes, restarts and partitions: what clients are
told is linearisable, and all copies are equal in the end."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import pytest
from recipes import EXAMPLES, load

import totempole
from totempole import NotPrimary, Primary
from totempole.objects import ReplicatedDict
from totempole.testing import (
    ClassModel,
    Cluster,
    Crashed,
    History,
    NotLinearizable,
    Program,
    assert_linearizable,
    cluster,
    run,
    seeds,
)

pytestmark = pytest.mark.search

sys.path.insert(0, str(EXAMPLES))
durable = load(EXAMPLES / "key_value.py")
in_memory = load(EXAMPLES / "key_value_in_memory.py")

KEYS = ("a", "b")
ANSWERS_MIN = 20
CLIENTS = 4


class Dictionary:
    """What a store should be."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


MODEL = ClassModel(Dictionary, key=lambda call: call.arguments[0])
Open = Callable[[], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def store_on_objects() -> AsyncIterator[Any]:
    async with totempole.connect() as session, session.replica(ReplicatedDict, "store") as replica:
        yield durable.Store(replica)


@asynccontextmanager
async def store_on_groups() -> AsyncIterator[Any]:
    async with (
        totempole.connect() as session,
        Primary(session, "store", in_memory.Table, expected=3) as primary,
    ):
        yield in_memory.Store(primary)


class Clients:
    """They call one copy after another, and write down what they are told."""

    def __init__(self, stores: list[Program[Any]]) -> None:
        self.stores = stores
        self.history = History()
        self.refused = self.unknown = 0
        self.over = False

    async def work(self, number: int) -> None:
        turn = 0
        while not self.over:
            turn += 1
            store, key = random.choice(self.stores), random.choice(KEYS)
            kind = random.choice(("get", "get", "put", "put", "delete"))
            value = (b"%d" % (number * 1000 + turn),) if kind == "put" else ()
            await self.call(f"client {number}", store, kind, key, *value)
            await asyncio.sleep(random.uniform(0, 0.6))

    async def call(self, client: str, store: Program[Any], kind: str, *given: Any) -> None:
        call = self.history.begin(client, kind, *given)
        try:
            call.returned(await store.run(lambda copy: getattr(copy, kind)(*given)))
        except (Crashed, totempole.Unknown):
            self.unknown += 1
            if kind == "get":
                call.without_effect()
        except totempole.TotemError:
            self.refused += 1
            call.without_effect()


async def contents(stores: list[Program[Any]]) -> list[dict[str, Any]]:
    return [{key: await read(each, key) for key in KEYS} for each in stores]


async def read(store: Program[Any], key: str) -> Any:
    """Asks until there is an answer: a program needs a moment to come back to its daemon."""
    while True:
        try:
            return await store.run(lambda copy: copy.get(key))
        except totempole.TotemError:
            await asyncio.sleep(0.1)


async def judged(c: Cluster, stores: list[Program[Any]], faults: Callable[[], Any]) -> Clients:
    clients = Clients(stores)
    working = [asyncio.create_task(clients.work(number)) for number in range(CLIENTS)]
    await faults()
    await c.sleep(3)
    clients.over = True
    await asyncio.gather(*working)
    await c.settled()
    found = await contents(stores)
    assert found[0] == found[1] == found[2]
    assert sum(not call.is_pending for call in clients.history.calls()) > ANSWERS_MIN
    for key, value in found[0].items():
        clients.history.begin("last", "get", key).returned(value)
    assert_linearizable(clients.history.calls(), MODEL)
    return clients


async def start(c: Cluster, store: Open) -> list[Program[Any]]:
    stores = [await c.start(node, store) for node in c.nodes]
    await contents(stores)
    return stores


# On replicated objects


async def the_durable_store_is_right() -> None:
    async with cluster(3) as c:
        stores = await start(c, store_on_objects)
        await judged(c, stores, lambda: c.storm(5))


test_the_durable_store_is_right = seeds(3)(the_durable_store_is_right)


@pytest.mark.long
def test_the_durable_store_is_right_for_two_hundred_seeds() -> None:
    seeds(200)(the_durable_store_is_right)()


def test_the_durable_store_has_everything_after_a_crash_of_all() -> None:
    async def test() -> None:
        async with cluster(3, seed=3) as c:
            stores = await start(c, store_on_objects)
            await stores[0].run(durable.Store.put, "a", b"1")
            for node in c.nodes:
                c.crash(node)
            for node in c.nodes:
                c.restart(node)
            await c.settled()
            assert await contents(stores) == [{"a": b"1", "b": None}] * 3

    run(test)


# On groups


async def trouble(c: Cluster, stores: list[Program[Any]]) -> None:
    """One copy at a time loses its memory, and has it again before the next one does. The network parts and
    loses packets before, meanwhile and after. That is what the store promises to survive."""
    for _ in range(3):
        if random.random() < 0.3:
            c.loss(0.05)
        alone, victim = random.choice(c.nodes), random.choice(c.nodes)
        if random.random() < 0.8:
            c.part([alone], [node for node in c.nodes if node != alone])
        await c.sleep(random.uniform(0, 1))
        random.choice((c.crash, c.crash_daemon))(victim)
        await c.sleep(random.uniform(0.05, 1.5))
        c.restart(victim)
        await c.sleep(random.uniform(0, 1))
        c.heal()
        c.loss(0)
        await c.settled()
        await contents(stores)


async def the_store_in_memory_is_right() -> Clients:
    async with cluster(3, log=False) as c:
        stores = await start(c, store_on_groups)
        return await judged(c, stores, lambda: trouble(c, stores))


test_the_store_in_memory_is_right = seeds(3)(the_store_in_memory_is_right)


@pytest.mark.long
def test_the_store_in_memory_is_right_for_two_hundred_seeds() -> None:
    seeds(200)(the_store_in_memory_is_right)()


def test_clients_meet_the_trouble() -> None:
    met = run(the_store_in_memory_is_right, seed=5)
    assert met.refused
    assert met.unknown


def test_a_minority_refuses_at_once_and_has_the_new_values_when_it_is_back() -> None:
    async def test() -> None:
        async with cluster(3, seed=5, log=False) as c:
            stores = await start(c, store_on_groups)
            c.part([1], [2, 3])
            await c.settled()
            began = c.now
            with pytest.raises(NotPrimary, match="no majority"):
                await stores[0].run(in_memory.Store.put, "a", b"minority")
            assert c.now - began < 0.01
            await stores[1].run(in_memory.Store.put, "a", b"majority")
            c.heal()
            await c.settled()
            assert await contents(stores) == [{"a": b"majority", "b": None}] * 3

    run(test)


# What one writes first


class NaiveStore:
    """As the newcomer wrote it: state for joiners, and no thought of partitions."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def __aenter__(self) -> Self:
        self.session = await totempole.connect().__aenter__()
        self.listening = asyncio.create_task(self.listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listening.cancel()
        await self.session.close()

    def snapshot(self) -> bytes:
        return json.dumps({key: value.decode() for key, value in self.values.items()}).encode()

    async def listen(self) -> None:
        async with self.session.join("store", state=self.snapshot, want_state=True) as group:
            async for event in group:
                self.take(event)

    def take(self, event: totempole.Event) -> None:
        match event:
            case totempole.State(data=data):
                self.values = {key: value.encode() for key, value in json.loads(data or "{}").items()}
            case totempole.Messages(payloads=payloads):
                for payload in payloads:
                    key, value = json.loads(payload)
                    self.values[key] = value.encode()

    async def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def put(self, key: str, value: bytes) -> None:
        content = json.dumps([key, value.decode()]).encode()
        await (await self.session.multicast("store", content)).delivered()


class OneSidedStore(NaiveStore):
    """What docs/groups.md says to do when sides come together: one of them counts."""

    async def listen(self) -> None:
        while True:
            async with self.session.join("store", state=self.snapshot, want_state=True) as group:
                async for event in group:
                    self.take(event)
                    match event:
                        case totempole.View(members=[first, *_], strangers=strangers) if first in strangers:
                            break


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_naive_store_has_its_state_again_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster(3, seed=6, log=False) as c:
            stores = await start(c, NaiveStore)
            await stores[0].run(NaiveStore.put, "a", b"1")
            c.crash(3)
            await c.sleep(1)
            await stores[0].run(NaiveStore.put, "b", b"2")
            c.restart(3)
            await c.settled()
            assert await contents(stores) == [{"a": b"1", "b": b"2"}] * 3

    run(test)
    assert warnings_in(caplog) == [], "a joiner with the state of the others does not differ"


def test_a_naive_store_has_its_state_again_after_a_crash_of_its_daemon() -> None:
    async def test() -> None:
        async with cluster(3, seed=6, log=False) as c:
            stores = await start(c, NaiveStore)
            c.crash_daemon(3)
            await c.sleep(1)
            await stores[0].run(NaiveStore.put, "a", b"1")
            c.restart(3)
            await c.settled()
            await c.until(lambda: [each.value.values for each in stores] == [{"a": b"1"}] * 3)

    run(test)


def test_what_a_naive_store_tells_in_a_partition_is_found_not_linearisable() -> None:
    async def test() -> None:
        async with cluster(3, seed=7, log=False) as c:
            clients = Clients(await start(c, NaiveStore))
            c.part([1], [2, 3])
            await c.settled()
            await clients.call("ann", clients.stores[0], "put", "a", b"minority")
            await clients.call("bob", clients.stores[1], "put", "a", b"majority")
            await clients.call("ann", clients.stores[0], "get", "a")
            assert_linearizable(clients.history.calls(), MODEL)

    with pytest.raises(NotLinearizable):
        run(test)


async def both_sides_write(c: Cluster, store: type[NaiveStore]) -> list[Program[Any]]:
    stores = await start(c, store)
    await c.settled()
    c.part([1], [2, 3])
    await c.settled()
    await stores[0].run(NaiveStore.put, "a", b"minority")
    await stores[1].run(NaiveStore.put, "a", b"majority")
    c.heal()
    await c.settled()
    return stores


def test_every_naive_store_that_has_diverged_says_so_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    """They cannot be made equal: each side has answered its clients. What their operators get is a warning
    that names the others, and says what to do."""
    met: list[set[str]] = []

    async def test() -> None:
        async with cluster(3, seed=8, log=False) as c:
            stores = await both_sides_write(c, NaiveStore)
            assert [found["a"] for found in await contents(stores)] == [b"minority", b"majority", b"majority"]
            one, two, three = (str(each.value.session.process) for each in stores)
            met.extend(({two, three}, {one}, {one}))

    run(test)
    said = warnings_in(caplog)
    for text in said:
        assert text.startswith("group 'store': sides of a partition have come together")
        for way_out in ("session.replica", "totempole.Primary", "View.strangers"):
            assert way_out in text
    named = [set(re.findall(r"\d+\.\d+\.\d+", text)) for text in said]
    assert sorted(map(sorted, named)) == sorted(map(sorted, met)), "each of the three, once"


@seeds(5)
async def test_a_store_that_takes_the_state_of_one_side_is_equal_everywhere() -> None:
    async with cluster(3, log=False) as c:
        stores = await both_sides_write(c, OneSidedStore)
        await c.until(lambda: [each.value.values for each in stores] == [{"a": b"minority"}] * 3)
        await stores[2].run(NaiveStore.put, "b", b"2")
        await c.until(lambda: [each.value.values.get("b") for each in stores] == [b"2"] * 3)


def test_it_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with cluster(3, seed=8, log=False) as c:
            await both_sides_write(c, OneSidedStore)

    run(test)
    assert warnings_in(caplog) == []
