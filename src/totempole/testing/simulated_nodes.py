"""The nodes of a simulated cluster: hosts of the simulator, each with its daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from totempole.checkers import check
from totempole.client.endpoint import SIMULATED
from totempole.corel.config import LogConfig
from totempole.corel.member import Phase
from totempole.daemon.config import ClientsConfig
from totempole.groups.config import GroupConfig
from totempole.log_service.server import LogService
from totempole.log_service.settings import ServiceSettings
from totempole.session.log_frames import log_socket_of
from totempole.sim.conditions import Condition
from totempole.sim.daemon import SimDaemon
from totempole.sim.log_files import CLUSTER, LogFiles
from totempole.sim.stacks import RealStack
from totempole.sim.world import World
from totempole.stack import ProcessorStack
from totempole.testing.faults import VERBS
from totempole.testing.programs import Life
from totempole.testing.virtual_loop import AtOnce, Enter, VirtualLoop
from totempole.trace.digest import trace_digest

LEAVING_US = 1_000
"""How often it is looked whether a daemon that leaves is gone."""


class SimulatedNodes:
    storm_verbs = tuple(VERBS)

    def __init__(self, nodes: Sequence[int], seed: int, loop: VirtualLoop, has_log: bool) -> None:
        self._loop = loop
        self._groups = GroupConfig()
        log = LogConfig(replicas=tuple(nodes)) if has_log else None
        stack = RealStack(groups=self._groups, log=log)
        self.world = World(seed, nodes, stack=stack, level="checked", scheduler=loop.scheduler)
        self._began_us = loop.scheduler.now_us
        logger = logging.getLogger("totempole.simulated")
        self._daemons = {
            me: SimDaemon(self.world, host, ClientsConfig(), self._groups, logger)
            for me, host in self.world.hosts.items()
        }
        self._opened: dict[int, list[asyncio.Future[None]]] = {me: [] for me in self._daemons}
        for me, daemon in self._daemons.items():
            daemon.on_open = lambda me=me: self._tell_opened(me)  # type: ignore[misc]
        self._components: list[list[int]] = []
        self._services: dict[int, Life] = {}
        self._disks = TemporaryDirectory(prefix="totempole-simulated-") if has_log else None

    # Life

    async def open(self) -> None:
        for me, daemon in self._daemons.items():
            self._loop.listeners[self.socket(me)] = daemon.connect
        for me, host in self.world.hosts.items():
            if host.log_disk is not None:
                self._log_directory(me).mkdir()
                host.log_disk.files = LogFiles(self._log_directory(me), me)
        start = self.world.random("start")
        for me in self._daemons:
            later_us = start.randint(0, 1_000)
            self.world.scheduler.at(self.world.now_us + later_us, self._start, me)
        await asyncio.gather(*[self.opened(me) for me in self._daemons])

    def close(self) -> None:
        for me, host in self.world.hosts.items():
            if host.alive:
                host.crash()
            self._end(me)
            if host.log_disk is not None and host.log_disk.files is not None:
                host.log_disk.files.close()
            del self._loop.listeners[self.socket(me)]
        if self._disks is not None:
            self._disks.cleanup()

    def _start(self, me: int) -> None:
        if not self.world.hosts[me].alive:
            self.world.hosts[me].start()
            self._begin(me)

    def _begin(self, me: int) -> None:
        """The processes of a host that has just started."""
        self._daemons[me].begin()
        if self._disks is not None:
            service = LogService(
                ServiceSettings(str(self._log_directory(me)), CLUSTER, me),
                logging.getLogger("totempole.simulated"),
                listen=partial(self._listen, me),
                now=self._loop.time,
                threads=AtOnce(),
            )
            self._services[me] = Life(self.host(me), self.socket(me))
            self._services[me].start(service.run(self._loop.create_future))

    def _listen(self, me: int, enter: Enter) -> AbstractContextManager[None]:
        return self._loop.listening(self._log_socket(me), enter, self._daemons[me].delay_us)

    def _log_socket(self, me: int) -> str:
        return str(log_socket_of(Path(self.socket(me))))

    def _log_directory(self, me: int) -> Path:
        assert self._disks is not None, "it has a log"
        return Path(self._disks.name) / f"node{me}"

    def _end(self, me: int) -> None:
        self._daemons[me].end()
        self._loop.listeners.pop(self._log_socket(me), None)
        if me in self._services:
            self._services.pop(me).end()

    def host(self, me: int) -> str:
        return f"node{me}"

    def socket(self, me: int) -> str:
        return f"{SIMULATED}/node{me}/clients.sock"

    async def opened(self, me: int) -> None:
        """Waits until programs may connect."""
        if not self._daemons[me].is_open:
            waiter = self._loop.create_future()
            self._opened[me].append(waiter)
            await waiter

    def _tell_opened(self, me: int) -> None:
        waiters, self._opened[me] = self._opened[me], []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Faults

    def is_up(self, me: int) -> bool:
        return self.world.hosts[me].alive

    def part(self, components: Sequence[Sequence[int]]) -> None:
        named = {me for component in components for me in component}
        rest = [me for me in self._daemons if me not in named]
        self._components = [sorted(each) for each in (*components, rest) if each]
        self.world.medium.heal()
        self.world.partition(components)

    def heal(self) -> None:
        self._components = []
        self.world.heal()

    def crash(self, me: int) -> None:
        self.world.crash(me)
        self._end(me)

    def leave(self, me: int) -> None:
        self._daemons[me].finish("the node leaves the ring")
        self.world.retire(me)
        self._end_when_gone(me, self.world.hosts[me].life)

    def _end_when_gone(self, me: int, life: int) -> None:
        """Its other processes end with the daemon."""
        host, scheduler = self.world.hosts[me], self.world.scheduler
        if host.alive and host.life == life:
            scheduler.at(scheduler.now_us + LEAVING_US, self._end_when_gone, me, life)
        elif not host.alive:
            self._end(me)

    def restart(self, me: int) -> None:
        if not self.is_up(me):
            self._end(me)
            self.world.restart(me)
            self._begin(me)

    def pause(self, me: int) -> None:
        self.world.pause(me)

    def resume(self, me: int) -> None:
        self.world.resume(me)

    def loss(self, probability: float) -> None:
        self.world.set_condition(Condition(loss=probability))

    def slow(self, me: int, factor: float) -> None:
        self.world.slow(me, factor)

    # What there is

    @property
    def now(self) -> float:
        return (self.world.now_us - self._began_us) / 1_000_000

    def unsettled(self) -> str:
        """Why nobody can be sure that the cluster has come to rest; or nothing."""
        hosts = self.world.hosts
        components = self._components or [sorted(hosts)]
        for component in components:
            up = tuple(me for me in component if hosts[me].alive and not hosts[me].paused)
            for me in up:
                configuration = hosts[me].regular_configuration
                members = tuple(sorted(configuration.members)) if configuration is not None else ()
                layer = cast(ProcessorStack, hosts[me].stack).groups
                assert layer is not None, "a daemon has groups"
                if members != up or not layer.views_in_force or not self._daemons[me].is_open:
                    return f"node {me} is in a ring of {members}, and {up} can hear each other"
                if layer.waiting_bytes:
                    return f"node {me} has messages that are not sent yet"
                replica = cast(ProcessorStack, hosts[me].stack).replica
                if replica is not None and 2 * len(up) > len(hosts) and replica.phase is not Phase.PRIMARY:
                    return f"node {me} has no log to append to: it is {replica.phase.value}"
        return ""

    def violations(self) -> str:
        """What the checkers find wrong with the run so far; or nothing."""
        return "\n".join(map(str, check(self.world.rows).violated))

    def digest(self) -> str:
        return trace_digest(self.world.rows)
