"""The table in docs/groups.md: what is lost when hosts crash, for messages of groups."""

from __future__ import annotations

import pytest

import totempole
from totempole import Messages, Service
from totempole.testing import Cluster, cluster, run


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


@pytest.mark.parametrize("seed", range(5))
def test_a_safe_message_that_one_has_received_outlives_all_but_one(seed: int) -> None:
    async def test() -> None:
        async with cluster(3, seed=seed) as c:
            heard: list[bytes] = []
            delivered: list[str] = []
            await c.start(3, hear, heard)
            await c.settled()
            await c.start(1, send, Service.SAFE, delivered)
            await told(c, delivered)
            c.crash(1)
            c.crash(2)
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
