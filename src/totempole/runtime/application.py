"""The ring without groups, as callbacks on the driver's own thread, in the total order.

Programs use a session (`Node`, `connect`). This is what benchmarks measure the bare ring with
(`lab/player.py`), and how tests look into a driver. A `Driver` is given the application; it sends with
`Driver.sender`.
"""

from __future__ import annotations

from typing import Protocol

from totempole.core.order import Deliver, InstallConfiguration
from totempole.groups import Batch


class Application(Protocol):
    """No call may block: the token waits for it. A call may send, which takes effect when it has returned."""

    def delivered(self, packet: Deliver, messages: Batch) -> None:
        """Messages of one packet, next in the order."""
        ...

    def installed(self, installed: InstallConfiguration) -> None:
        """A configuration, regular or transitional: its members from here on."""
        ...

    def ready(self) -> None:
        """There is room again for messages to send: at the start, and after a send was refused."""
        ...
