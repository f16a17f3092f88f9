"""Programs on the durable log and on replicated objects, on simulated nodes: through storms, nothing that a
client was told is taken back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import totempole
from totempole import Replica
from totempole.objects import ReplicatedDict
from totempole.objects.replica_base import ReplicaBase
from totempole.testing import (
    ClassModel,
    Cluster,
    Crashed,
    History,
    Program,
    assert_linearizable,
    cluster,
    run,
    seeds,
)

pytestmark = pytest.mark.search

Store = Replica[ReplicatedDict]


@asynccontextmanager
async def store() -> AsyncIterator[Store]:
    async with totempole.connect() as session, session.replica(ReplicatedDict, "store") as opened:
        yield opened


async def put(opened: Store, key: str, value: int) -> None:
    await opened.within(5).call(ReplicatedDict.set, key, value)


async def get(opened: Store, key: str) -> int | None:
    found: int | None = await opened.within(5).read(ReplicatedDict.get, key)
    return found


async def three(c: Cluster) -> list[Program[Store]]:
    return [await c.start(node, store) for node in c.nodes]


def test_a_method_that_is_called_directly_is_told_how() -> None:
    async def test() -> None:
        async with cluster(1, seed=1) as c:
            opened = (await c.start(1, store)).value
            for replica in (opened, opened.within(5)):
                with pytest.raises(AttributeError, match=r"use call\(ReplicatedDict\.set, …\) for a command"):
                    replica.set("colour", 1)  # type: ignore[attr-defined]
                assert not hasattr(replica, "colour")

    run(test)


def test_an_error_within_a_property_is_not_hidden() -> None:
    class Broken(ReplicaBase[ReplicatedDict]):
        @property
        def name(self) -> str:
            raise AttributeError("from within")

    with pytest.raises(AttributeError, match="from within"):
        Broken.__new__(Broken).name  # noqa: B018


def test_a_program_is_there_again_when_all_is_settled() -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            one, _, _ = await three(c)
            c.crash(1)
            c.restart(1)
            with pytest.raises(Crashed, match=r"`await c\.settled\(\)` waits"):
                await one.run(put, "colour", 1)
            await c.settled()
            await one.run(put, "colour", 1)

    run(test)


def test_a_minority_cannot_write_and_learns_of_what_the_others_wrote() -> None:
    async def test() -> None:
        async with cluster(3, seed=1) as c:
            one, two, three_ = await three(c)
            await one.run(put, "colour", 1)
            c.part([1], [2, 3])
            await c.settled()
            await two.run(put, "colour", 2)
            with pytest.raises(totempole.TotemError, match="no majority"):
                await one.run(get, "colour")
            assert await three_.run(get, "colour") == 2
            c.heal()
            await c.settled()
            assert await one.run(get, "colour") == 2

    run(test)


def test_a_peek_after_a_receipt_has_that_call_here_and_at_another_program() -> None:
    async def submit(opened: Store) -> str:
        return str(await opened.submit(ReplicatedDict.set, "colour", 1))

    async def peek_after(opened: Store, receipt: str) -> int | None:
        await opened.after(opened.receipt(receipt))
        found: int | None = opened.peek(ReplicatedDict.get, "colour")
        return found

    async def test() -> None:
        async with cluster(3, seed=4) as c:
            stores = await three(c)
            c.part([1], [2, 3])
            await c.settled()
            receipt = await stores[0].run(submit)
            await c.sleep(1)
            assert stores[0].value.peek(ReplicatedDict.get, "colour") is None, "on one disk, not yet ordered"
            c.heal()
            assert [await each.run(peek_after, receipt) for each in stores] == [1, 1, 1]

    run(test)


def test_what_was_answered_is_there_when_all_hosts_have_crashed() -> None:
    async def test() -> None:
        async with cluster(3, seed=2) as c:
            stores = await three(c)
            for number, each in enumerate(stores):
                await each.run(put, f"key {number}", number)
            for node in c.nodes:
                c.crash(node)
            for node in c.nodes:
                c.restart(node)
            await c.settled()
            for each in stores:
                assert [await each.run(get, f"key {number}") for number in range(3)] == [0, 1, 2]

    run(test)


def test_a_log_is_appended_to_and_read_and_followed_across_a_crash_of_the_daemon() -> None:
    async def test() -> None:
        followed: list[bytes] = []

        async def follower() -> None:
            async with totempole.connect() as session, session.log("orders") as log:
                async for batch in log.batches(follow=True):
                    followed.extend(bytes(record.payload) for record in batch)

        async def writer() -> list[int]:
            async with totempole.connect() as session, session.log("orders") as log:
                return [await log.append(b"%d" % number, key=f"order {number}") for number in range(20)]

        async with cluster(3, seed=3) as c:
            await c.start(2, follower)
            positions = asyncio.create_task((await c.start(1, writer)).finished())
            await c.sleep(0.01)
            c.crash_daemon(1)
            c.crash_daemon(2)
            await c.sleep(0.3)
            c.restart(1)
            c.restart(2)
            assert sorted(await positions) == await positions
            await c.sleep(10)
            assert followed == [b"%d" % number for number in range(20)]

    run(test)


async def client(number: int, stores: list[Program[Store]], history: History) -> None:
    """Writes and reads, each time at some store that is up."""
    for turn in range(12):
        key, value = random.choice("ab"), number * 100 + turn
        which = random.choice(stores)
        write = random.random() < 0.5
        call = history.begin(f"client {number}", "set" if write else "get", key, *([value] if write else []))
        try:
            call.returned(await (which.run(put, key, value) if write else which.run(get, key)))
        except (Crashed, TimeoutError, totempole.TotemError):
            if not write:
                call.without_effect()
        await asyncio.sleep(random.uniform(0, 0.3))


async def linearisable_through_a_storm() -> str:
    async with cluster(3) as c:
        stores = await three(c)
        history = History()
        clients = [asyncio.create_task(client(number, stores, history)) for number in range(4)]
        await c.storm(4)
        await asyncio.wait(clients)
        for each in clients:
            each.result()
        await c.settled()
        states = {str(sorted((await each.ready()).peek(ReplicatedDict.items))) for each in stores}
        assert len(states) == 1
        answered = [call for call in history.calls() if not call.is_pending]
        assert len(answered) > 20
        assert_linearizable(history.calls(), ClassModel(ReplicatedDict, key=lambda call: call.arguments[0]))
        return c.digest


test_the_store_is_linearisable_through_storms = seeds(4)(linearisable_through_a_storm)


def test_a_seed_with_objects_is_a_run() -> None:
    assert run(linearisable_through_a_storm, seed=5) == run(linearisable_through_a_storm, seed=5)


@pytest.mark.long
def test_the_store_is_linearisable_through_two_hundred_storms() -> None:
    seeds(200)(linearisable_through_a_storm)()
