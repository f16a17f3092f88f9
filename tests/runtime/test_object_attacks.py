"""What may happen to a replicated object in a real node, and what its programs see then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from test_log_node import LIMIT_S, log_of

import totempole
from daemons import PATIENT, Cluster, cluster, wait_until
from totempole import blocking, command
from totempole.client.log import ask_appending
from totempole.errors import ObjectBrokenError, SessionError
from totempole.objects.records import Limits

pytestmark = pytest.mark.nodes

LOG = "[log]\nenabled = true\nreplicas = [1]\n"


class Sum:
    def __init__(self) -> None:
        self.value = 0

    @command
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    @command
    def dig(self, depth: int) -> int:
        return self.dig(depth - 1) + 1 if depth else 0

    def get(self) -> int:
        return self.value


class CrowdedSum(Sum):
    object_limits = Limits(clients_max=3)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(1, tmp_path_factory.mktemp("attacks"), PATIENT + LOG) as found:
        wait_until(lambda: log_of(found[1]).get("standing") == "primary", found[1].log)
        yield found


def run(attack: Any) -> None:
    asyncio.run(asyncio.wait_for(attack, LIMIT_S))


def test_a_program_cannot_append_to_the_log_of_an_object(node: Cluster) -> None:
    async def attack() -> None:
        async with totempole.connect(node[1].socket) as session, session.replica(Sum, "ours") as ours:
            await ours.call(Sum.add, 1)
            async with session.log("objects/ours") as log:
                for until in ("green", "red"):
                    with pytest.raises(SessionError, match=r"nothing was appended.*session\.replica"):
                        await log.append(b"rubbish", until=until)
                with pytest.raises(SessionError, match="nothing was appended"):
                    await log.append_many([b"rubbish"])
                async for _ in log.read(follow=True):
                    break  # whoever wants may read it

    run(attack())
    with (
        blocking.connect(node[1].socket) as session,
        pytest.raises(SessionError, match="nothing was appended"),
    ):
        session.log("objects/ours").append(b"rubbish")


def test_rubbish_in_the_log_of_an_object_stops_nobody(node: Cluster) -> None:
    """Of a program that speaks to the daemon by itself; before the object has its class, and behind."""

    async def attack() -> None:
        async with totempole.connect(node[1].socket) as session:

            async def write(rubbish: bytes) -> None:
                log = "objects/littered"
                await ask_appending(
                    session.connection, lambda appending: appending.append(log, (rubbish,), (), "green"), None
                )

            await write(b"rubbish")
            async with session.replica(Sum, "littered") as mine:
                for number, rubbish in enumerate((b"", b"\xc1", b"\x94" * 1_000, b"\x92\x02\xc0"), 1):
                    await write(rubbish)
                    assert await mine.call(Sum.add, 1) == number
            async with session.replica(Sum, "littered") as again:
                assert again.peek(Sum.get) == 4

    run(attack())


def test_peek_never_goes_back_while_an_object_is_read_again(node: Cluster) -> None:
    async def attack() -> None:
        async with totempole.connect(node[1].socket) as session, session.replica(Sum, "deep") as deep:
            primaries: list[object] = []
            deep.on_primary(primaries.append)
            await deep.call_many(Sum.add, [(1,)] * 300)
            digging = asyncio.create_task(deep.call(Sum.dig, 100_000))
            broken = 0
            while not digging.done():
                await asyncio.sleep(0)
                try:
                    assert deep.peek(Sum.get) == 300
                except ObjectBrokenError:
                    broken += 1
            assert broken, "it was read again"
            with pytest.raises(totempole.CommandRaisedError, match="RecursionError"):
                await digging
            assert deep.peek(Sum.get) == 300
            assert not primaries, "the node's only primary component was there before"

    run(attack())


def test_receipts_through_a_table_that_is_too_small_for_its_clients(node: Cluster) -> None:
    """Calls are too old again and again, and are called anew: each is applied once, and its receipt waits for
    that."""
    told: list[int] = []

    async def call() -> None:
        async with (
            totempole.connect(node[1].socket) as session,
            session.replica(CrowdedSum, "crowded") as crowded,
        ):
            for _ in range(8):
                told.append(await crowded.call(CrowdedSum.add, 1))
                receipt = await crowded.submit(CrowdedSum.add, 1)
                told.append(await receipt.result(LIMIT_S))

    async def attack() -> None:
        await asyncio.gather(*[call() for _ in range(8)])

    run(attack())
    assert sorted(told) == list(range(1, 129))
