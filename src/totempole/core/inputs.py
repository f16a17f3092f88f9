"""What happens to a stack: the inputs of the one contract, which driver, simulator and replay share.

Beside those here there are commands, which layers declare (`Command`): what a program or the node asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from totempole.core.effects import Channel, TimerName


class Start(NamedTuple):
    """The first input of a life, once."""


class Arrived(NamedTuple):
    """Datagrams of one read, from one address."""

    network: int
    channel: Channel
    datagrams: Sequence[bytes]
    segment_bytes: int
    """0; or the length of datagrams that lie back to back in the only item, as receive offload gives them."""
    source: Any
    """The driver's address, which comes back in `Reachable`."""


class Expired(NamedTuple):
    """A timer that was set has run out."""

    timer: TimerName


class Written(NamedTuple):
    """The write of this ticket is on stable storage."""

    ticket: int


class Appended(NamedTuple):
    """The frames of this ticket are durable."""

    ticket: int


class Recalled(NamedTuple):
    """What was asked for, as the log's layer encodes it; or, where the log has been trimmed beyond it, the
    mark that it begins with."""

    ticket: int
    runs: tuple[bytes, ...]
    mark: bytes | None


class Narrowed(NamedTuple):
    """The path of a network has refused larger datagrams than these; or a network that was absent is there,
    and takes these."""

    network: int
    segment_bytes: int


class Command:
    """The base of what a layer can be asked for. Each is a frozen dataclass of its layer's."""

    __slots__ = ()


Input = Start | Arrived | Expired | Written | Appended | Recalled | Narrowed | Command
