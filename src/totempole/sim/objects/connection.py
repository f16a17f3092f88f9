"""Between a program and the daemon of a node: what is said arrives in order, some time later, or never, once
the connection is broken. It breaks when the node's life ends; the program notices after a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from totempole.core.inputs import Command
from totempole.corel.commands import Forget, TellGreen
from totempole.errors import SessionError
from totempole.sim.conditions import Range
from totempole.sim.host import Host
from totempole.sim.world import World

DELAY_US: Range = (10, 150)
POLL_US = 4_000
"""How often it looks whether the node is still there, or takes what waits."""

Refused = Callable[[SessionError], None]


class Connection:
    def __init__(
        self, world: World, host: Host, process: int, random: Random, hear: Callable[[object], None]
    ) -> None:
        self.host = host
        self.process = process
        self.broken: Callable[[], None] = lambda: None
        """Told when the program notices."""
        self.is_open = True
        self._life = host.life
        self._world = world
        self._random = random
        self._hear = hear
        self._outgoing: deque[tuple[Command, Refused]] = deque()
        self._due_us = [0, 0]
        """When the last that was said arrives, there and here."""
        host.ready_listeners.append(self._flush)
        world.scheduler.at(world.now_us + POLL_US, self._poll)
        self.ask(TellGreen(True), lambda _error: None)

    @property
    def is_alive(self) -> bool:
        return self.host.alive and self.host.life == self._life

    # To the node

    def ask(self, command: Command, refused: Refused) -> None:
        self._later(0, self._arrive, command, refused)

    def _arrive(self, command: Command, refused: Refused) -> None:
        if self.is_open and self.is_alive:
            self._outgoing.append((command, refused))
            self._flush()

    def _flush(self) -> None:
        """A node that is paused takes it later."""
        while self._outgoing and self.is_open and self.is_alive and not self.host.retiring:
            command, refused = self._outgoing[0]
            try:
                if not self.host.ask(command):
                    return
            except SessionError as error:
                self._later(1, self._deliver, refused, error)
            self._outgoing.popleft()

    # From the node

    def tell(self, event: object) -> None:
        """The node says it; it may be in the middle of something."""
        self._later(1, self._deliver, self._hear, event)

    def _deliver(self, hear: Callable[[object], None], what: object) -> None:
        if self.is_open:
            hear(what)

    def _later(self, way: int, act: Callable[..., None], *arguments: object) -> None:
        due_us = self._world.now_us + self._random.randint(*DELAY_US)
        self._due_us[way] = due_us = max(due_us, self._due_us[way])
        self._world.scheduler.at(due_us, act, *arguments)

    # The end

    def _poll(self) -> None:
        if not self.is_open:
            return
        if self.is_alive:
            self._world.scheduler.at(self._world.now_us + POLL_US, self._poll)
        else:
            self.close()
            self.broken()

    def close(self) -> None:
        """What is under way is lost."""
        if self.is_open:
            self.is_open = False
            self.host.ready_listeners.remove(self._flush)
            if self.is_alive and not self.host.retiring:
                self._world.scheduler.at(self._world.now_us, self._say_goodbye)

    def _say_goodbye(self) -> None:
        if self.is_alive and not self.host.retiring:
            self.host.ask(Forget(self.process))
