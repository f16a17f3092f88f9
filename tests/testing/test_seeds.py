"""A test over many seeds: the one that fails is named, and its storm is reduced to what matters."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import totempole
from totempole import Messages
from totempole.testing import Fault, SeedFailed, cluster, run, seeds
from totempole.testing.faults import code, draw, shrink


class NaiveStore:
    """What one writes first: it forgets that a network may part."""

    def __init__(self) -> None:
        self.notes: list[bytes] = []

    async def __aenter__(self) -> NaiveStore:
        self.session = await totempole.connect().__aenter__()
        self.group = await self.session.join("store").__aenter__()
        self.listening = asyncio.create_task(self.listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listening.cancel()
        await self.session.close()

    async def listen(self) -> None:
        async for event in self.group:
            if isinstance(event, Messages):
                self.notes += map(bytes, event.payloads)

    async def write_on(self) -> None:
        for number in range(30):
            await self.group.multicast(b"%d" % number)
            await asyncio.sleep(0.1)


async def stores_agree_after_a_storm() -> None:
    async with cluster(3) as c:
        stores = [await c.start(node, NaiveStore) for node in c.nodes]
        writing = asyncio.create_task(stores[0].value.write_on())
        await c.storm(3, down_max=0)
        await c.settled()
        writing.cancel()
        assert stores[0].value.notes == stores[1].value.notes == stores[2].value.notes


def test_a_store_that_diverges_is_found_and_its_storm_reduced() -> None:
    with pytest.raises(SeedFailed) as caught:
        seeds(20)(stores_agree_after_a_storm)()
    text = str(caught.value)
    assert f"TOTEMPOLE_SEED={caught.value.seed} pytest" in text
    assert "test_seeds.py::stores_agree_after_a_storm" in text
    assert "this one is enough" in text
    assert text.count("Fault(") == 1
    assert "'part'" in text


def test_what_is_printed_can_be_pasted() -> None:
    faults = [Fault(0.3, "part", [1], [2, 3], lasts=1.5), Fault(1, "slow", 2, 10.0, lasts=0.25)]
    printed = code(faults).removeprefix("await c.play")
    assert list(eval(printed, {"Fault": Fault})) == faults


def test_a_storm_that_does_no_harm_passes_with_every_seed() -> None:
    ran = []

    @seeds(range(3, 6))
    async def test() -> None:
        async with cluster(2) as c:
            ran.append(c.seed)
            await c.storm(0.5)
            await c.settled()

    test()
    assert ran == [3, 4, 5]


def test_a_seed_of_the_clusters_own_would_make_all_runs_the_same() -> None:
    @seeds(3)
    async def test() -> None:
        async with cluster(1, seed=7):
            pass

    with pytest.raises(SeedFailed, match=r"leave seed= out here"):
        test()


def test_one_seed_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    @seeds(10)
    async def test() -> None:
        async with cluster(1) as c:
            ran.append(c.seed)

    monkeypatch.setenv("TOTEMPOLE_SEED", "77")
    test()
    assert ran == [77]


def test_storms_have_every_kind_of_fault_and_a_minority_down() -> None:
    found = set()
    for seed in range(30):
        faults = draw(Random(seed), (1, 2, 3, 4, 5), 10, 2)
        found |= {fault.verb for fault in faults}
        for at in (fault.at for fault in faults):
            there = [fault for fault in faults if fault.at <= at < fault.at + fault.lasts]
            down = [fault for fault in there if fault.verb in ("crash", "crash_daemon", "pause")]
            assert len(down) <= 2
            assert len({fault.arguments[0] for fault in down}) == len(down)
    assert found == {"part", "crash", "crash_daemon", "pause", "loss", "slow"}


def test_shrinking_finds_the_two_that_are_needed() -> None:
    faults = [[Fault(at, "crash", 1, lasts=1) for at in range(8)], [Fault(9, "pause", 1, lasts=1)]]

    def fails(fewer: list[list[Fault]]) -> bool:
        return len(fewer) == 2 and {5.0, 9.0} <= {fault.at for storm in fewer for fault in storm}

    assert shrink(faults, fails, 100) == [[faults[0][5]], faults[1]]


@seeds(2)
async def test_the_decorator_makes_an_ordinary_test() -> None:
    async with cluster(1) as c:
        assert c.seed in (0, 1)


# pytest's plugin


def pytest_in(directory: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_mine.py").write_text(content)
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)


MINE = """
import asyncio, pytest
from totempole.testing import cluster

async def test_virtual(tmp_path):
    async with cluster(2) as c:
        await asyncio.sleep(10)
        assert c.seed == 5 and tmp_path.is_dir()

async def test_wrong():
    async with cluster(1) as c:
        c.pause(1)
        assert c.now < 0

def test_plain():
    pass

@pytest.mark.asyncio
async def test_theirs():
    pass

@pytest.mark.asyncio
@pytest.mark.totem
async def test_taken_back():
    await asyncio.sleep(100)
"""


def test_the_plugin_runs_asynchronous_tests_in_virtual_time(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, MINE, "--totem-seed=5")
    assert "2 failed, 3 passed" in done.stdout, done.stdout
    assert "FAILED test_mine.py::test_theirs" in done.stdout, "left to a plugin that is not there"
    assert "seed 5" in done.stdout
    assert "pause(1)" in done.stdout
    assert "_run_virtual" not in done.stdout, "the lines of a failure are the test's"


def test_run_takes_a_coroutine_too() -> None:
    async def test() -> float:
        await asyncio.sleep(1_000)
        return asyncio.get_running_loop().time()

    assert run(test(), limit=10_000) == 1_000
