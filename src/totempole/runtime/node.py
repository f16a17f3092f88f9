"""A node embedded in an asyncio program, with groups: the session that `connect` gives with a daemon.

    async with Node(config) as session:
        async with session.join("orders") as group:
            await group.multicast(b"…")
            async for event in group: ...

The node runs on a thread or in a process of its own (`placement`), so that a program that is busy does not
lose the token; the program talks to it as a client talks to a daemon, through a pair of sockets. Leaving the
block ends the session, then leaves the ring: what was accepted is delivered first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from totempole.client.session import Session
from totempole.errors import SessionError, TotemError
from totempole.runtime.config import NodeConfig
from totempole.runtime.ring_node import Placement, RingNode


class Node:
    def __init__(
        self, config: NodeConfig, *, placement: Placement = "thread", logger: logging.Logger | None = None
    ) -> None:
        self._ring_node = RingNode(config, placement=placement, logger=logger)
        self._session: Session | None = None
        self._passing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Session:
        ours, theirs = socket.socketpair()
        try:
            await self._ring_node.start_with(theirs)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        self._passing = asyncio.create_task(_pass_over(self._ring_node))
        self._session = Session.over(ours)
        try:
            return await self._session.__aenter__()
        except BaseException:
            self._ring_node.stop_at_once()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is None or self._passing is None:
            raise SessionError("the node is not running")
        try:
            await self._session.__aexit__(kind, error, traceback)
        finally:
            await self._ring_node.__aexit__(kind, error, traceback)
            with suppress(TotemError):  # the session has told why the node had to stop
                await self._passing

    async def status(self) -> dict[str, Any]:
        """What `totem status` shows."""
        return await self._ring_node.status()

    async def reload_keys(self) -> None:
        """Reads the key file again, as a daemon does upon SIGHUP; raises if it cannot be used."""
        await self._ring_node.reload_keys()


async def _pass_over(events: AsyncIterator[object]) -> None:
    """What nodes send to nodes past all groups is not for a session."""
    async for _ in events:
        pass
