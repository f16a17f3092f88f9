"""The daemon of a simulated host: the true `ClientService` on the host's stack, with the world's time.

One `SimDaemon` is there for all lives of its host; a new service begins with each. It lets programs in when
a real daemon would: once the ring has more members than this one, or after a second alone. While the host is
paused nothing happens, and what was due is done when it goes on.
"""

from __future__ import annotations

import logging
import select
from collections.abc import Callable
from functools import partial
from typing import cast

from totempole.core.inputs import Command
from totempole.core.order import InstallConfiguration
from totempole.corel.events import (
    Fenced,
    GreenEnded,
    GreenLine,
    GreenRuns,
    LogAnswer,
    Placed,
    Unknown,
)
from totempole.corel.layer import Replica
from totempole.daemon.config import ClientsConfig
from totempole.daemon.service import ClientService
from totempole.groups import GroupLayer
from totempole.groups.config import GroupConfig
from totempole.groups.events import Taken, ToProcesses
from totempole.session import NetworkStatus
from totempole.sim.host import Host
from totempole.sim.streams import Channel, StreamSocket
from totempole.sim.world import World
from totempole.stack import ProcessorStack
from totempole.types import ConfigurationKind

ALONE_US = 1_000_000
"""So long after its start a node that meets nobody is taken to be alone, as `runtime.driver` has it."""
DELAY_US = (10, 60)
"""How long bytes take between two processes of one host."""
EPOCH_US = 1_700_000_000_000_000
"""What a simulated host's calendar says at the start of the world."""


class SimDaemon:
    def __init__(
        self,
        world: World,
        host: Host,
        clients: ClientsConfig,
        groups: GroupConfig,
        logger: logging.Logger,
    ) -> None:
        self.host = host
        self.is_open = False
        """Programs may connect."""
        self.on_open: Callable[[], None] = lambda: None
        self._config = clients
        self._groups = groups
        self._logger = logger
        self._scheduler = world.scheduler
        self._random = world.random(f"clients {host.me}")
        self._service: ClientService | None = None
        self._life = 0
        self._last_descriptor = 0
        self._sockets: dict[int, StreamSocket] = {}
        """By descriptor: those of this life."""
        self._watched: dict[int, tuple[Callable[[int], None], int]] = {}
        self._due: set[int] = set()
        """Descriptors that are looked at in a moment."""
        self._timers: dict[Callable[[], None], int] = {}
        self._late: list[Callable[[], None]] = []
        """What was due while the host was paused."""
        host.listener = self._listen
        host.ready_listeners.append(self._catch_up)

    # Life

    @property
    def is_alive(self) -> bool:
        return self.host.alive and self.host.life == self._life

    def begin(self) -> None:
        """The host has just started."""
        host = self.host
        self._life = host.life
        self._service = ClientService(
            self._config,
            self._groups,
            self._logger,
            processor=host.me,
            cluster_id=host.config.cluster_id,
            packet_bytes_max=host.config.packet_bytes_max,
            has_log=self.replica is not None,
        )
        self._service.attach(self)
        self.at(self.now_us() + ALONE_US, self._open)

    def end(self) -> None:
        """The process is gone. The kernel closes its sockets."""
        self.is_open = False
        self._service = None
        for ticket in self._timers.values():
            self._scheduler.cancel(ticket)
        self._timers.clear()
        self._late.clear()
        self._watched.clear()
        for socket in self._sockets.values():
            socket.close()
        self._sockets.clear()

    def finish(self, reason: str) -> None:
        """Lets nobody in any more, and tells all clients that it is over."""
        self.is_open = False
        if self._service is not None:
            self._service.finish(reason)

    def _open(self) -> None:
        if not self.is_open and self.is_alive:
            self.is_open = True
            self.on_open()

    def connect(self) -> tuple[Channel, Channel]:
        """What a program reads from and writes to. Raises ConnectionRefusedError."""
        if not self.is_open or self._service is None:
            raise ConnectionRefusedError(f"the daemon of node {self.host.me} does not run, or begins only")
        to_daemon, to_program = (Channel(self._scheduler, self.delay_us) for _ in range(2))
        self._last_descriptor += 1
        socket = StreamSocket(self._last_descriptor, to_daemon, to_program)
        socket.on_change = partial(self._look_soon, socket.fileno())
        self._sockets[socket.fileno()] = socket
        self._service.adopt(socket)
        return to_program, to_daemon

    def delay_us(self) -> int:
        return self._random.randint(*DELAY_US)

    # What the stack tells

    def _listen(self, _host: Host, event: object) -> None:
        service = self._service
        if service is None:
            return
        if isinstance(event, ToProcesses | Taken):
            service.grouped(event)
        elif isinstance(event, GreenRuns | GreenLine | GreenEnded):
            service.log_told(event)
        elif isinstance(event, Unknown) and not event.is_held:
            service.log_answered(self._located(event))
        elif isinstance(event, LogAnswer):
            service.log_answered(event)
        elif isinstance(event, InstallConfiguration):
            configuration = event.configuration
            if configuration.kind is ConfigurationKind.REGULAR and len(configuration.members) > 1:
                self.at(self.now_us(), self._open)

    def _located(self, question: Unknown) -> Placed | Fenced | Unknown:
        """The replica has no memory of the run; its disk may have it."""
        process, request, run, _ = question
        disk = self.host.log_disk
        for ordered in disk.ordered() if disk is not None else ():
            if ordered.run.id == run:
                if ordered.fenced is not None:
                    return Fenced(process, request, run, *ordered.fenced)
                return Placed(process, request, run, ordered.position, ordered.positions, ordered.repeats)
        return question

    # For the service

    @property
    def _stack(self) -> ProcessorStack:
        return cast(ProcessorStack, self.host.stack)

    @property
    def layer(self) -> GroupLayer:
        layer = self._stack.groups
        assert layer is not None, "a daemon has groups"
        return layer

    @property
    def replica(self) -> Replica | None:
        return self._stack.replica

    @property
    def network_status(self) -> tuple[NetworkStatus, ...]:
        return ()

    def feed(self, command: Command) -> None:
        self.host.ask(command)

    def now_us(self) -> int:
        return self._scheduler.now_us

    def wall_us(self) -> int:
        return EPOCH_US + self._scheduler.now_us

    def call(self, function: Callable[[], None]) -> None:
        self.at(self.now_us(), function)

    def at(self, due_us: int, function: Callable[[], None]) -> None:
        before = self._timers.pop(function, None)
        if before is not None:
            self._scheduler.cancel(before)
        self._timers[function] = self._scheduler.at(due_us, self._expire, function)

    def _expire(self, function: Callable[[], None]) -> None:
        del self._timers[function]
        self._do(function)

    def watch(self, descriptor: int, on_ready: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        self._watched[descriptor] = on_ready, events
        self._look_soon(descriptor)

    def rewatch(self, descriptor: int, events: int) -> None:
        self._watched[descriptor] = self._watched[descriptor][0], events
        self._look_soon(descriptor)

    def unwatch(self, descriptor: int) -> None:
        del self._watched[descriptor]
        del self._sockets[descriptor]

    # The loop

    def _look_soon(self, descriptor: int) -> None:
        if descriptor not in self._due:
            self._due.add(descriptor)
            self._scheduler.at(self.now_us(), self._look_at, descriptor)

    def _look_at(self, descriptor: int) -> None:
        self._due.discard(descriptor)
        self._do(partial(self._serve, descriptor))

    def _serve(self, descriptor: int) -> None:
        """Level-triggered, as the driver's epoll is."""
        if descriptor in self._watched:
            on_ready, events = self._watched[descriptor]
            ready = self._sockets[descriptor].ready_for & (events | select.EPOLLHUP)
            if ready:
                on_ready(ready)
                self._look_soon(descriptor)

    def _do(self, act: Callable[[], None]) -> None:
        if not self.is_alive:
            self.end()
        elif self.host.paused:
            self._late.append(act)
        else:
            act()

    def _catch_up(self) -> None:
        late, self._late = self._late, []
        for act in late:
            self._do(act)
