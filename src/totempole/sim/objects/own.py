"""The objects that `totem fuzz --objects` searches: the ready-made dict, lock and queue of work, and small
ones of its own that show more: a key-value store, a first-in-first-out queue, an account book."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

from totempole.checkers.class_model import Raised
from totempole.checkers.linearizability import Call
from totempole.objects import containers, locks
from totempole.objects.commands import Refused, command
from totempole.objects.containers import ReplicatedDict
from totempole.objects.records import Limits
from totempole.sim.objects.subject import Operation, Subject

KEYS = ("x", "y", "z")
READS = 0.45
"""The share of reads."""


class Store:
    """Values that were written are unique, so that a read names the write that it has seen."""

    object_limits = Limits(digest_every=8)

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}

    @command
    def put(self, key: str, value: int) -> int | None:
        """What was there before."""
        before = self.entries.get(key)
        self.entries[key] = value
        return before

    @command
    def add(self, key: str, count: int) -> int:
        self.entries[key] = self.entries.get(key, 0) + count
        return self.entries[key]

    @command
    def delete(self, key: str) -> bool:
        return self.entries.pop(key, None) is not None

    @command
    def replace(self, key: str, old: int, new: int) -> bool:
        if self.entries.get(key) != old:
            return False
        self.entries[key] = new
        return True

    def get(self, key: str) -> int | None:
        return self.entries.get(key)


class SmallStore(Store):
    """Its table of clients is so small that clients are forgotten."""

    object_name = "Store"
    object_limits = Limits(clients_max=3, table_bytes_max=6_000, client_bytes_max=2_000, digest_every=4)


def _use_store(random: Random, caller: str) -> Generator[Operation, Any, None]:
    seen = 0
    while True:
        key = random.choice(KEYS)
        if random.random() < READS:
            seen = yield (Store.get, key)
        else:
            operations: tuple[Operation, ...] = (
                (Store.put, key, random.getrandbits(40)),
                (Store.add, key, 1),
                (Store.add, key, 1),
                (Store.delete, key),
                (Store.replace, key, seen if isinstance(seen, int) else 0, random.getrandbits(40)),
            )
            yield random.choice(operations)


class Dict(ReplicatedDict):
    object_name = "ReplicatedDict"
    object_limits = Limits(digest_every=8)


def _use_dict(random: Random, caller: str) -> Generator[Operation, Any, None]:
    seen: Any = None
    while True:
        key = random.choice(KEYS)
        if random.random() < READS:
            seen = yield (Dict.get, key)
        else:
            operations: tuple[Operation, ...] = (
                (Dict.set, key, random.getrandbits(40)),
                (Dict.set_default, key, random.getrandbits(40)),
                (Dict.compare_and_set, key, seen if isinstance(seen, int) else None, random.getrandbits(40)),
                (Dict.pop, key),
            )
            yield random.choice(operations)


class Lock(locks.Lock):
    object_name = "Lock"
    object_limits = Limits(digest_every=8)


def _use_lock(random: Random, caller: str) -> Generator[Operation, Any, None]:
    """Some leases end before they are released."""
    while True:
        name = random.choice(KEYS)
        token = yield (Lock.acquire, name, caller, random.choice((0.02, 0.5, 2.0)))
        if random.random() < READS:
            yield (Lock.holder, name)
        if isinstance(token, int):
            if random.random() < 0.3:
                yield (Lock.renew, name, token, 1.0)
            if random.random() < 0.8:
                yield (Lock.release, name, token)


class WorkQueue(containers.Queue):
    object_name = "Queue"
    object_limits = Limits(digest_every=8)


def _use_work_queue(random: Random, caller: str) -> Generator[Operation, Any, None]:
    while True:
        choice = random.random()
        if choice < READS / 2:
            yield (WorkQueue.size,)
        elif choice < 0.6:
            yield (WorkQueue.put, random.getrandbits(40))
        else:
            work = yield (WorkQueue.take, random.choice((0.02, 1.0)))
            if isinstance(work, containers.Work):
                end = random.choice((WorkQueue.done, WorkQueue.done, WorkQueue.give_back, WorkQueue.keep))
                yield (end, work.item, work.token)


class Queue:
    object_limits = Limits(digest_every=8)

    def __init__(self) -> None:
        self.items: list[int] = []

    @command
    def put(self, item: int) -> int:
        self.items.append(item)
        return len(self.items)

    @command
    def take(self) -> int | None:
        return self.items.pop(0) if self.items else None

    def size(self) -> int:
        return len(self.items)

    def first(self) -> int | None:
        return self.items[0] if self.items else None


def _use_queue(random: Random, caller: str) -> Generator[Operation, Any, None]:
    while True:
        choice = random.random()
        if choice < READS / 2:
            yield (Queue.size,)
        elif choice < READS:
            yield (Queue.first,)
        elif choice < 0.75:
            yield (Queue.put, random.getrandbits(40))
        else:
            yield (Queue.take,)


class Bank:
    """The sum of all accounts never changes, once they are opened."""

    object_limits = Limits(digest_every=8)

    def __init__(self) -> None:
        self.accounts = dict.fromkeys(KEYS, 100)
        self.paid = 0

    @command
    def transfer(self, source: str, target: str, amount: int) -> int:
        if self.accounts[source] < amount:
            raise Refused(f"{source} has {self.accounts[source]}")
        self.accounts[source] -= amount
        self.accounts[target] += amount
        self.paid += 1
        return self.accounts[source]

    def balance(self, account: str) -> int:
        return self.accounts[account]

    def total(self) -> int:
        return sum(self.accounts.values())


def _use_bank(random: Random, caller: str) -> Generator[Operation, Any, None]:
    while True:
        choice = random.random()
        if choice < READS / 2:
            yield (Bank.balance, random.choice(KEYS))
        elif choice < READS:
            total = yield (Bank.total,)
            assert total == len(KEYS) * 100 or isinstance(total, Exception), f"the bank has {total}"
        else:
            source, target = random.sample(KEYS, 2)
            yield (Bank.transfer, source, target, random.randint(1, 60))


def _has_no_effect(call: Call) -> bool:
    """With such a result these commands have changed nothing."""
    return call.result is False or (call.result is None and call.operation == "take")


def _is_refused(call: Call) -> bool:
    return isinstance(call.result, Raised)


def _by_key(call: Call) -> Any:
    return call.arguments[0]


OWN = {
    subject.name: subject
    for subject in (
        Subject("store", Store, _use_store, _by_key, _has_no_effect),
        Subject("small-store", SmallStore, _use_store, _by_key, _has_no_effect),
        Subject("dict", Dict, _use_dict, _by_key, lambda call: call.result is False),
        Subject("lock", Lock, _use_lock, _by_key, _is_refused),
        Subject("queue", Queue, _use_queue, None, _has_no_effect),
        Subject("work-queue", WorkQueue, _use_work_queue),
        Subject("bank", Bank, _use_bank, None, _is_refused),
    )
}
