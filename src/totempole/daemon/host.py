"""What the daemon's clients need of the loop that they run in. The driver has it."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from totempole.core.inputs import Command
from totempole.corel.layer import Replica
from totempole.groups import GroupLayer
from totempole.session import NetworkStatus


class Host(Protocol):
    """All but `call` is for the loop's own thread."""

    @property
    def layer(self) -> GroupLayer: ...

    @property
    def replica(self) -> Replica | None:
        """Of the durable log, if the node keeps one."""

    @property
    def network_status(self) -> tuple[NetworkStatus, ...]:
        """The networks of a ring that is on several, as all members have agreed."""

    def feed(self, command: Command) -> None:
        """A command for the group layer or the log. Its effects come to `ClientService.grouped` and
        `log_answered`, so that nothing is fed from there. Misuse raises SessionError."""

    def watch(
        self, descriptor: int, on_ready: Callable[[int], None], events: int = select.EPOLLIN
    ) -> None: ...

    def rewatch(self, descriptor: int, events: int) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...

    def at(self, due_us: int, function: Callable[[], None]) -> None:
        """Calls the function once, then or a little later. Asked again, only the new time counts."""

    def now_us(self) -> int: ...

    def wall_us(self) -> int:
        """The time of day, since 1970."""

    def call(self, function: Callable[[], None]) -> None:
        """Calls the function on the loop's thread, soon. For any thread."""


def unwatch(host: Host, descriptor: int) -> None:
    """Also when the loop is over and has closed its epoll."""
    with suppress(ValueError):
        host.unwatch(descriptor)
