"""The same tests on real daemons, by one option."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cluster import Board, served
from test_seeds import pytest_in
from test_simulated_objects import get, put, store

import totempole
from totempole.testing import Crashed, NotPossible, cluster, run

pytestmark = pytest.mark.nodes


async def boards_through_faults() -> None:
    async with cluster(3) as c:
        one, two, three = [await c.start(node, Board) for node in c.nodes]
        await one.run(Board.pin, "milk")
        c.part([1], [2, 3])
        await c.settled()
        await two.run(Board.pin, "bread")
        await c.until(lambda: three.value.notes == ["milk", "bread"])
        assert "bread" not in one.value.notes
        c.heal()
        await c.settled()
        c.crash(3)
        with pytest.raises(Crashed):
            await three.run(Board.pin, "salt")
        await c.settled()
        c.restart(3)
        await c.settled()
        await three.ready()
        await c.until(lambda: three.value.notes[:1] == ["milk"])
        c.leave(3)
        await c.settled()
        c.restart(3)
        await c.settled()
        c.pause(2)
        await c.settled()
        c.resume(2)
        await c.settled()


async def a_store_through_faults() -> None:
    async with cluster(3) as c:
        stores = [await c.start(node, store) for node in c.nodes]
        await stores[0].run(put, "colour", 1)
        for node in c.nodes:
            c.crash(node)
        for node in c.nodes:
            c.restart(node)
        await c.settled()
        for each in stores:
            assert await each.run(get, "colour") == 1
        c.part([3], [1, 2])
        await c.settled()
        await stores[1].run(put, "colour", 2)
        with pytest.raises(totempole.TotemError, match="no majority"):
            await stores[2].run(get, "colour")


@pytest.mark.parametrize("real", [False, True])
def test_boards_through_faults(real: bool) -> None:
    run(boards_through_faults, real=real)


@pytest.mark.parametrize("real", [False, True])
def test_a_store_through_faults(real: bool) -> None:
    run(a_store_through_faults, real=real)


def test_a_program_may_serve_clients_of_its_own() -> None:
    run(served, real=True)


MINE = """
from totempole.testing import cluster, seeds

async def test_lossy():
    async with cluster(1) as c:
        c.loss(0.1)

@seeds(100)
async def test_real():
    async with cluster(2) as c:
        c.crash_daemon(2)
        c.restart(2)
        await c.settled()
"""


def test_what_cannot_be_had_with_real_daemons_is_skipped(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, MINE, "--totem-real", "-rs")
    assert "1 passed, 1 skipped" in done.stdout, done.stdout
    assert "for the simulator only" in done.stdout
    with pytest.raises(NotPossible):
        run(lossy, real=True)


async def lossy() -> None:
    async with cluster(1) as c:
        c.slow(1, 2)
