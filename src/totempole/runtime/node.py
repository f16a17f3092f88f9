"""A node of the ring within a program: the session that `connect` gives with a daemon.

    async with Node("node.toml") as session:
        async with session.join("orders") as group:
            await group.multicast(b"…")
            async for event in group: ...

It is a daemon in all but its process (`embedding`). The program talks to it as a client does, through a pair
of sockets; other programs may connect to it, and `totem status`, `groups`, `listen` and `send` work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from types import TracebackType
from typing import Any

from totempole.client import blocking
from totempole.client.session import Session
from totempole.errors import ConfigurationError, SessionError
from totempole.runtime.config import NodeConfig
from totempole.runtime.embedding import Placement, embedding
from totempole.runtime.service import key_file_again
from totempole.runtime.status import read_status
from totempole.session.log_frames import log_socket_of

KEYS_WAIT_S = 5.0
"""How long a program waits for its node to use the keys that were read."""
KEYS_STEP_S = 0.02

NOT_RUNNING = "the node is not running: use it inside `async with`"
ENTERED_ONCE = "a node is entered once: make another one"


def config_of(settings: NodeConfig | str | os.PathLike[str]) -> NodeConfig:
    if isinstance(settings, NodeConfig):
        return settings
    if isinstance(settings, (str, os.PathLike)):
        return NodeConfig.load(os.fspath(settings))
    raise ConfigurationError(f"a node wants a NodeConfig, or the name of a file with one, not {settings!r}")


class Node:
    """A node of the ring within an asyncio program, without a daemon: `async with Node("node.toml") as
    session`.

    Entering starts the node, waits until it has met another one, or for a second if there is none, and gives
    a `Session`, the same that `connect` gives with a daemon. Leaving the block ends the session, then leaves
    the ring: what was accepted is delivered first.
    """

    def __init__(
        self,
        config: NodeConfig | str | os.PathLike[str],
        *,
        placement: Placement = "thread",
        logger: logging.Logger | None = None,
    ) -> None:
        """`config`: settings, or the name of their file. `placement`: "thread", or "process" for a program
        that computes for long stretches. `logger`: where a node on a thread logs; not given: "totempole"."""
        self._config = config_of(config)
        self._embedding = embedding(self._config, placement, logger)
        self._session: Session | None = None

    async def __aenter__(self) -> Session:
        if self._session is not None:
            raise SessionError(ENTERED_ONCE)
        ours, theirs = socket.socketpair()
        self._session = session = Session.over(ours, log_socket=_log_socket(self._config))
        try:
            await asyncio.to_thread(self._embedding.start, theirs)  # it reads and checks the disk
        except BaseException:
            self._embedding.leave()
            ours.close()
            raise
        try:
            return await session.__aenter__()
        except BaseException:
            self._embedding.leave()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        session = self._entered()
        try:
            await session.__aexit__(kind, error, traceback)
        finally:
            self._embedding.leave()
            await asyncio.to_thread(self._embedding.wait)

    async def status(self) -> dict[str, Any]:
        """The status document of the node: what `totem status --json` gives."""
        self._entered()
        return await asyncio.to_thread(read_status, self._config.directory)

    async def reload_keys(self) -> None:
        """Reads the key file again, as a daemon does upon SIGHUP. Raises if it cannot be used; returns when
        the node uses it."""
        self._entered()
        await asyncio.to_thread(self._reload_keys)

    def _reload_keys(self) -> None:
        wanted = [key.id for key in key_file_again(self._config).keys]
        give_up_s = time.monotonic() + KEYS_WAIT_S
        read_status(self._config.directory)  # raises for a node that has left
        self._embedding.reload()
        while read_status(self._config.directory)["key_ids"] != wanted:
            if time.monotonic() > give_up_s:
                raise SessionError(f"the node has not taken its keys for {KEYS_WAIT_S:g} s: look at its log")
            time.sleep(KEYS_STEP_S)

    def _entered(self) -> Session:
        if self._session is None:
            raise SessionError(NOT_RUNNING)
        return self._session


class BlockingNode:
    """A node of the ring within a program without asyncio: `with totempole.blocking.Node("node.toml") as
    session`. It is as `totempole.Node` is; the session is a `totempole.blocking.Session`.
    """

    def __init__(
        self,
        config: NodeConfig | str | os.PathLike[str],
        *,
        placement: Placement = "thread",
        logger: logging.Logger | None = None,
    ) -> None:
        """As `totempole.Node` takes them."""
        self._config = config_of(config)
        self._embedding = embedding(self._config, placement, logger)
        self._session: blocking.Session | None = None

    def __enter__(self) -> blocking.Session:
        if self._session is not None:
            raise SessionError(ENTERED_ONCE)
        ours, theirs = socket.socketpair()
        self._session = blocking.Session.over(ours, log_socket=_log_socket(self._config))
        try:
            self._embedding.start(theirs)
            return self._session.__enter__()
        except BaseException:
            self._embedding.leave()
            ours.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is None:
            raise SessionError(NOT_RUNNING)
        try:
            self._session.__exit__(kind, error, traceback)
        finally:
            self._embedding.leave()
            self._embedding.wait()

    def status(self) -> dict[str, Any]:
        """The status document of the node: what `totem status --json` gives."""
        if self._session is None:
            raise SessionError(NOT_RUNNING)
        return read_status(self._config.directory)


def _log_socket(config: NodeConfig) -> str:
    return str(log_socket_of(config.clients_socket))
