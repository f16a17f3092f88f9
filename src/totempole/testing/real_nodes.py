"""The nodes of a real cluster: `totem node` processes on loopback addresses, without root. Programs run in
the test's own process, on its ordinary event loop."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from totempole.lab.local_cluster import LocalCluster
from totempole.testing.virtual_loop import placed

POLL_S = 0.02


class NotPossible(unittest.SkipTest):
    """This fault cannot be had with real daemons: the test is skipped."""


class RealNodes:
    storm_verbs: tuple[str, ...] = ("part", "crash", "crash_daemon")

    def __init__(self, nodes: Sequence[int]) -> None:
        self._directory = TemporaryDirectory(prefix="totempole-real-")
        self._cluster = LocalCluster(len(nodes), Path(self._directory.name))
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    async def open(self) -> None:
        self._loop.set_task_factory(_new_task)  # type: ignore[arg-type]
        await asyncio.to_thread(self._cluster.__enter__)

    def close(self) -> None:
        self._loop.set_task_factory(None)
        self._cluster.close()
        self._directory.cleanup()

    def host(self, me: int) -> str:
        return self._cluster.address(me)

    def socket(self, me: int) -> str:
        return str(self._cluster.socket(me))

    async def opened(self, me: int) -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_unix_connection(self.socket(me))
                writer.close()
                return
            await asyncio.sleep(POLL_S)

    # Faults

    def is_up(self, me: int) -> bool:
        return self._cluster.is_running(me)

    def part(self, components: Sequence[Sequence[int]]) -> None:
        self._cluster.part(*components)

    def heal(self) -> None:
        self._cluster.heal()

    def crash(self, me: int) -> None:
        if self.is_up(me):
            self._cluster.kill(me)

    def leave(self, me: int) -> None:
        self._cluster.stop(me)

    def restart(self, me: int) -> None:
        self._cluster.start(me)

    def pause(self, me: int) -> None:
        self._cluster.pause(me)

    def resume(self, me: int) -> None:
        self._cluster.resume(me)

    def loss(self, probability: float) -> None:
        if probability:
            _refuse("lost packets are")

    def slow(self, me: int, factor: float) -> None:
        if factor != 1:
            _refuse("a slow daemon is")

    # What there is

    @property
    def now(self) -> float:
        return self._loop.time() - self._began_s

    def unsettled(self) -> str:
        for ring in self._cluster.rings:
            for me in ring:
                status = self._cluster.status(me)
                members = tuple(status.get("members", ()))
                if status.get("state") != "operational" or members != ring:
                    return f"node {me} is in a ring of {members}, and {ring} can hear each other"
        return ""

    def violations(self) -> str:
        return ""  # there is no trace

    def digest(self) -> str:
        raise NotPossible("a real cluster has no trace to take a digest of")


def _refuse(what: str) -> NoReturn:
    raise NotPossible(f"{what} for the simulator only")


def _new_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """As that of the virtual loop: a program knows its tasks."""
    return placed(asyncio.Task(work, loop=loop, **options), options.get("context"))
