"""A daemon that is told to stop while another one dies: what it has accepted arrives."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import totempole
from daemons import cluster
from totempole import Messages

SLOW_TO_NOTICE = "token_loss_us = 1500000\ntoken_retransmission_us = 150000\nleave_us = 30000000\n"
"""The ring stands still for long enough after a death to accept messages, and to be told to stop."""

SENT = [b"%06d" % number + bytes(2_000) for number in range(40)]


async def take(group: totempole.Group, count: int) -> list[bytes]:
    received: list[bytes] = []
    async for event in group:
        if isinstance(event, Messages):
            received += event.payloads
        if len(received) >= count:
            break
    return received


async def accepted(session: totempole.Session) -> None:
    """Until the daemon has told the session that the ring has taken all it sent."""
    while session.protocol.sending.unacknowledged:
        await asyncio.sleep(0.01)


@pytest.mark.nodes
def test_all_that_was_accepted_arrives_though_another_daemon_is_killed(tmp_path: Path) -> None:
    with cluster(3, tmp_path, SLOW_TO_NOTICE) as daemons:

        async def scene() -> None:
            async with (
                asyncio.timeout(60),
                totempole.connect(daemons[1].socket) as near,
                near.join("g") as group,
                totempole.connect(daemons[2].socket, reconnect=False) as far,
            ):
                daemons[3].end(signal.SIGKILL)
                await far.multicast_many("g", SENT)
                await accepted(far)
                daemons[2].process.send_signal(signal.SIGTERM)
                assert await take(group, len(SENT)) == SENT

        asyncio.run(scene())
        assert daemons[2].process.wait(60) == 0
        assert "may be lost" not in daemons[2].log()
