"""What a driver tells the program above it, on the driver's own thread, in the total order."""

from __future__ import annotations

from typing import Protocol

from totempole.core.order import Deliver, InstallConfiguration
from totempole.groups import Batch


class Application(Protocol):
    """No call may block: the token waits for it. A call may send, which takes effect when it has returned."""

    def delivered(self, packet: Deliver, messages: Batch) -> None: ...

    def installed(self, installed: InstallConfiguration) -> None: ...

    def ready(self) -> None:
        """There is room again for messages to send: at the start, and after a send was refused."""
        ...
