"""`simulate`: a user's own class under faults. A good one holds, and what is wrong with others is found."""

from __future__ import annotations

import time
from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from totempole.objects.commands import Refused, command
from totempole.testing import Operation, SimulationFailed, simulate


class Bank:
    def __init__(self) -> None:
        self.accounts = {"ann": 100, "bob": 100}

    @command
    def transfer(self, source: str, target: str, amount: int) -> int:
        if self.accounts[source] < amount:
            raise Refused("not enough")
        self.accounts[source] -= amount
        self.accounts[target] += amount
        return self.accounts[source]

    def total(self) -> int:
        return sum(self.accounts.values())


def transfers(random: Random, caller: str) -> Generator[Operation, Any, None]:
    while True:
        source, target = random.sample(["ann", "bob"], 2)
        yield (Bank.transfer, source, target, random.randint(1, 90))
        total = yield (Bank.total,)
        assert total == 200


def test_a_good_class_holds() -> None:
    report = simulate(Bank, transfers, seed=range(2))
    assert report.seeds == 2
    assert report.calls > 50
    assert report.answered > report.calls // 2
    assert not report.undecided
    assert "2 seeds" in str(report)


class Stamped(Bank):
    """Its state has the clock of each host in it."""

    object_name = "Bank"

    def __init__(self) -> None:
        super().__init__()
        self.changed = 0

    @command
    def transfer(self, source: str, target: str, amount: int) -> int:
        self.changed = time.monotonic_ns()
        return super().transfer(source, target, amount)


@pytest.mark.search
def test_hosts_that_differ_are_found() -> None:
    with pytest.raises(SimulationFailed, match=r"seed 0: .*object-states"):
        simulate(Stamped, lambda random: (Stamped.transfer, "ann", "bob", 1), seed=0)


class Counted:
    """Its read changes it: at the host that reads, and nowhere else."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0

    @command
    def put(self, value: int) -> int:
        self.value = value
        return self.reads

    def get(self) -> int:
        self.reads += 1
        return self.value


@pytest.mark.search
def test_a_read_that_changes_something_is_found() -> None:
    def use(random: Random) -> Operation:
        return (Counted.put, random.randrange(100)) if random.random() < 0.5 else (Counted.get,)

    with pytest.raises(SimulationFailed, match="object-states"):
        simulate(Counted, use, seed=range(3), faults="calm")


def test_what_is_asked_for_must_be_there() -> None:
    with pytest.raises(ValueError, match="from 1 to 9"):
        simulate(Bank, transfers, hosts=0)
    with pytest.raises(ValueError, match="give one of"):
        simulate(Bank, transfers, faults="earthquake")
