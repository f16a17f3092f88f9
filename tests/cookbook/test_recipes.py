"""The recipes of docs/cookbook.md on simulated nodes, each with a partition and a crash. A variant with the
mistake that one makes first fails the same test."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from recipes import recipe

import totempole
from totempole.objects import Lock, Queue, ReplicatedDict
from totempole.testing import Cluster, Crashed, Program, cluster, run

election = recipe("leader_election")
lock = recipe("lock")
replicated_dict = recipe("replicated_dict")
work_queue = recipe("work_queue")
cache_invalidation = recipe("cache_invalidation")
presence = recipe("presence")

SEEDS = (1, 2)

pytestmark = pytest.mark.search


async def start(c: Cluster, program: Any, *given: Any) -> list[Program[Any]]:
    return [await c.start(node, program, *given) for node in c.nodes]


@asynccontextmanager
async def meanwhile(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Ends the work when the block is left. What it has raised is raised, but for the crash of its host."""
    tasks = [*map(asyncio.create_task, work)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, Crashed):
            raise result


# Leader election


class Stubborn(election.Candidate):  # type: ignore[name-defined,misc]
    """Leads until it hears that another one does: in a minority it hears nothing."""

    def leads(self) -> bool:
        return self.token > 0


class Watch:
    """Looks at all candidates, twenty times a second."""

    def __init__(self, candidates: list[Program[Any]]) -> None:
        self.candidates = candidates
        self.tokens: list[int] = []

    def leaders(self) -> list[Program[Any]]:
        leaders = [each for each in self.candidates if each.is_running and each.value.leads()]
        assert len(leaders) <= 1, "two lead"
        return leaders

    async def look_on(self) -> None:
        while True:
            self.tokens += [each.value.token for each in self.leaders()]
            await asyncio.sleep(0.05)

    async def leader(self) -> Program[Any]:
        while not self.leaders():
            await asyncio.sleep(0.05)
        return self.leaders()[0]


async def one_leads_at_a_time() -> None:
    async with cluster(3) as c:
        watch = Watch(await start(c, election.candidate))
        async with meanwhile(watch.look_on()):
            first = await watch.leader()
            c.part([first.node], [node for node in c.nodes if node != first.node])
            await c.sleep(10)
            second = await watch.leader()
            assert second is not first
            c.heal()
            await c.sleep(5)
            assert await watch.leader() is second
            c.crash(second.node)
            await c.sleep(0.1)
            third = await watch.leader()
            assert third is not second
            c.restart(second.node)
            await c.sleep(5)
        assert watch.tokens == sorted(watch.tokens)
        assert len(set(watch.tokens)) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_one_leads_at_a_time(seed: int) -> None:
    run(one_leads_at_a_time, seed=seed)


def test_a_leader_that_leads_until_it_hears_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "Candidate", Stubborn)
    with pytest.raises(AssertionError, match="two lead"):
        run(one_leads_at_a_time, seed=1)


# A lock with a fencing token


class Unfenced(lock.Account):  # type: ignore[name-defined,misc]
    """Trusts everybody who has had the lock."""

    def read(self, token: int) -> int:
        return int(self.balance)

    def write(self, token: int, balance: int) -> None:
        self.balance = balance


@asynccontextmanager
async def lock_service() -> AsyncIterator[totempole.Replica[Lock]]:
    async with totempole.connect() as session, session.replica(Lock, "locks") as locks:
        yield locks


class Depositor:
    """Reads, thinks, and writes one more. Sometimes it thinks for longer than its lease."""

    def __init__(self, account: Any) -> None:
        self.account = account
        self.done = self.refused = 0

    async def deposit(self, locks: totempole.Replica[Lock]) -> None:
        while True:
            async with lock.locked(locks, "account") as token:
                try:
                    balance = self.account.read(token)
                    await asyncio.sleep(random.choice((0.1, 0.3, 2 * lock.LEASE_S)))
                    self.account.write(token, balance + 1)
                    self.done += 1
                except totempole.ObjectError:
                    self.refused += 1
            await asyncio.sleep(random.uniform(0, 0.3))


async def no_deposit_is_lost(make: Any) -> None:
    account = make()
    depositors = [Depositor(account) for _ in range(3)]
    async with cluster(3) as c:
        services = await start(c, lock_service)
        async with meanwhile(*map(Program.run, services, [each.deposit for each in depositors])):
            await c.sleep(15)
            c.part([1], [2, 3])
            await c.sleep(15)
            c.heal()
            await c.sleep(5)
            c.crash(2)
            await c.sleep(15)
    assert all(each.done for each in depositors)
    assert sum(each.refused for each in depositors) or make is Unfenced
    assert account.balance == sum(each.done for each in depositors), "a deposit is lost"


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_writes_who_has_lost_the_lock(seed: int) -> None:
    run(no_deposit_is_lost(lock.Account), seed=seed)


def test_a_lock_without_a_fence_loses_a_deposit() -> None:
    with pytest.raises(AssertionError, match="a deposit is lost"):
        run(no_deposit_is_lost(Unfenced), seed=1)


# A replicated dict


class Hasty(replicated_dict.Settings):  # type: ignore[name-defined,misc]
    """Writes what it has computed, whatever has been written since."""

    async def change(self, key: str, change: Any) -> Any:
        after = change(await self.get(key))
        await self.replica.call(ReplicatedDict.set, key, after)
        return after


class Tally:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    async def count_on(self, settings: Program[Any], until: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            try:
                await settings.run(type(settings.value).change, "count", lambda count: (count or 0) + 1)
                self.counts["done"] += 1
            except (Crashed, totempole.Unknown):
                self.counts["unknown"] += 1
            except totempole.TotemError:
                self.counts["refused"] += 1
            await asyncio.sleep(random.uniform(0, 0.5))


async def no_change_is_lost() -> None:
    tally = Tally()
    async with cluster(3) as c:
        programs = await start(c, replicated_dict.settings)
        counting = [asyncio.create_task(tally.count_on(each, c.now + 16)) for each in programs]
        await c.sleep(2)
        c.part([1], [2, 3])
        await c.sleep(7)
        assert programs[0].value.peek("count") < programs[1].value.peek("count"), "a peek may be old"
        c.heal()
        await c.sleep(2)
        c.crash(2)
        await c.sleep(1)
        c.restart(2)
        await asyncio.gather(*counting)
        await c.settled()
        counts = {await each.run(type(each.value).get, "count") for each in programs}
    assert len(counts) == 1
    assert tally.counts["unknown"]
    assert tally.counts["refused"], "the minority was refused"
    least, most = tally.counts["done"], tally.counts["done"] + tally.counts["unknown"]
    assert least <= counts.pop() <= most, "a change is lost"


@pytest.mark.parametrize("seed", SEEDS)
def test_no_change_of_a_dict_is_lost(seed: int) -> None:
    run(no_change_is_lost, seed=seed)


def test_a_dict_that_is_read_and_then_set_loses_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicated_dict, "Settings", Hasty)
    with pytest.raises(AssertionError, match="a change is lost"):
        run(no_change_is_lost, seed=1)


# A work queue

ITEMS = 12


async def hasty_worker(do: Any) -> None:
    """Says that it is done, and then does it."""
    async with totempole.connect() as session, session.replica(Queue, "work") as queue:
        while True:
            work = await queue.call(Queue.take, work_queue.LEASE_S)
            if work is None:
                await asyncio.sleep(work_queue.IDLE_S)
                continue
            await queue.call(Queue.done, work.item, work.token)
            await do(work.value, work.token)


async def queue_size() -> int:
    async with totempole.connect() as session, session.replica(Queue, "work") as queue:
        size: int = await queue.read(Queue.size)
        return size


async def every_item_is_done(worker: Any) -> None:
    begun: list[tuple[int, int]] = []
    finished: list[tuple[int, int]] = []

    async def do(value: int, token: int) -> None:
        begun.append((value, token))
        await asyncio.sleep(random.uniform(0.5, 1.5))
        finished.append((value, token))

    async with cluster(3) as c:
        await (await c.start(1, work_queue.add, list(range(ITEMS)))).finished()
        await start(c, worker, do)
        await c.sleep(0.7)
        c.crash(3)
        c.part([1], [2, 3])
        await c.sleep(2)
        c.heal()
        while await (await c.start(1, queue_size)).finished():
            await c.sleep(1)
        await c.sleep(5)
    assert set(begun) > set(finished), "a worker died at its work"
    assert {value for value, _ in finished} == set(range(ITEMS)), "an item is lost"
    assert len(finished) < ITEMS + 3, "few were done again"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_item_is_done(seed: int) -> None:
    run(every_item_is_done(work_queue.worker), seed=seed)


def test_a_worker_that_says_done_too_early_loses_an_item() -> None:
    with pytest.raises(AssertionError, match="an item is lost"):
        run(every_item_is_done(hasty_worker), seed=1)


# Cache invalidation


BOUND_S = cache_invalidation.KEEP_S + 0.1


class Database:
    """One value, and when each was the newest."""

    def __init__(self) -> None:
        self.value = 0
        self.replaced: dict[int, float] = {}
        self.reads = 0

    async def fetch(self, key: str) -> bytes:
        self.reads += 1
        value = self.value
        await asyncio.sleep(0.02)
        return b"%d" % value

    def write(self) -> None:
        self.replaced[self.value] = asyncio.get_running_loop().time()
        self.value += 1

    def age(self, value: int, now: float) -> float:
        return now - self.replaced.get(value, now)


class Deaf(cache_invalidation.Cache):  # type: ignore[name-defined,misc]
    """Believes that it has heard of every change."""

    async def listen(self) -> None:
        async for event in self.group:
            for key in event.payloads if isinstance(event, totempole.Messages) else ():
                self.entries.pop(bytes(key).decode(), None)


async def caches_are_fresh() -> None:
    database = Database()
    ages: list[float] = []

    async def read_on(made: Any) -> None:
        while True:
            value = int(await made.get("price"))
            ages.append(database.age(value, asyncio.get_running_loop().time()))
            await asyncio.sleep(random.uniform(0, 0.1))

    async def write(program: Program[Any]) -> None:
        database.write()
        await program.run(type(program.value).changed, "price")

    async with cluster(3, log=False) as c:
        programs = await start(c, cache_invalidation.cache, database.fetch)
        async with meanwhile(*(each.run(read_on) for each in programs)):
            for turn in range(10):
                await write(programs[turn % 3])
                await c.sleep(0.3)
            assert max(ages) < 0.1, "all are told"
            c.part([1], [2, 3])
            await c.settled()
            for _ in range(60):
                await write(programs[0])
                await c.sleep(0.5)
            assert BOUND_S / 2 < max(ages) < BOUND_S, "a partition keeps news back for so long"
            c.heal()
            await c.settled()
            ages.clear()
            await c.sleep(1)
            assert max(ages) < 0.1, "old news after the partition"
            c.crash(3)
            await c.sleep(0.1)
            c.restart(3)
            await c.settled()
            await write(programs[2])
            await c.sleep(1)
            assert max(ages) < 0.1
        assert database.reads < 400, "most is read from memory"


@pytest.mark.parametrize("seed", SEEDS)
def test_caches_are_fresh(seed: int) -> None:
    run(caches_are_fresh, seed=seed)


def test_a_cache_that_does_not_look_at_views_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_invalidation, "Cache", Deaf)
    with pytest.raises(AssertionError, match="old news after the partition"):
        run(caches_are_fresh, seed=1)


def test_a_cache_that_keeps_entries_for_ever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_invalidation, "KEEP_S", 1e9)
    with pytest.raises(AssertionError, match="a partition keeps news back for so long"):
        run(caches_are_fresh, seed=1)


# Presence


class Forgetful(presence.Presence):  # type: ignore[name-defined,misc]
    """Counts who comes, and believes that all who go say so."""

    async def watch(self) -> None:
        async for event in self.group:
            if isinstance(event, totempole.View) and event.changed != "configuration":
                self.here = {name.decode() for name in event.info.values()}


async def everybody_knows_who_is_there() -> None:
    news: dict[str, list[tuple[set[str], set[str]]]] = {name: [] for name in ("ann", "bob", "cyd")}

    def seen() -> list[set[str]]:
        return [each.value.here for each in programs if each.is_running]

    async with cluster(3, log=False) as c:
        programs = [
            await c.start(node, presence.presence, name, lambda *what, name=name: news[name].append(what))
            for node, name in zip(c.nodes, news, strict=True)
        ]
        await c.settled()
        assert seen() == [set(news)] * 3
        c.part([1], [2, 3])
        await c.settled()
        assert seen() == [{"ann"}, {"bob", "cyd"}, {"bob", "cyd"}], "each side knows its own"
        c.heal()
        await c.settled()
        assert seen() == [set(news)] * 3
        c.crash(3)
        await c.settled()
        assert seen() == [{"ann", "bob"}] * 2
        c.restart(3)
        await c.settled()
        assert seen() == [set(news)] * 3
        await programs[1].stop()
        await c.settled()
        assert seen() == [{"ann", "cyd"}] * 2
        wanted = [({"bob", "cyd"}, "gone"), ({"bob", "cyd"}, "come"), ({"cyd"}, "gone"), ({"cyd"}, "come")]
        told = [(come or gone, "come" if come else "gone") for come, gone in news["ann"]]
        assert told[-5:] == [*wanted, ({"bob"}, "gone")]


@pytest.mark.parametrize("seed", SEEDS)
def test_everybody_knows_who_is_there(seed: int) -> None:
    run(everybody_knows_who_is_there, seed=seed)


def test_presence_that_waits_for_goodbyes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "Presence", Forgetful)
    with pytest.raises(AssertionError, match="each side knows its own"):
        run(everybody_knows_who_is_there, seed=1)
