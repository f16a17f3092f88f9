"""The order interface: what the group layer, and all above it, sees of whatever orders messages below.

`srp` gives it over one ring, `mrp` over many, `rmp` by another protocol. Submissions go in; deliveries,
configuration changes and news of safety come out as effects, each with an order key that sorts as the total
order does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from totempole.effects import Effect
from totempole.types import Service
from totempole.wire.seal import Keyring


class Order(Protocol):
    """One processor's access to the total order. Every call gives the effects to execute, in order.

    A full queue answers `PushBack` and takes nothing; `Ready` follows when there is room. `Deliver`,
    `InstallConfiguration` (transitional ones where the engine has them) and `SafeUpTo` are what goes up.
    """

    @property
    def queued(self) -> int:
        """Submissions that wait for their place in the order."""
        ...

    @property
    def packets_ahead(self) -> int:
        """How many may wait, at present: more of them would only grow old."""
        ...

    @property
    def packet_bytes(self) -> int:
        """How large a packet should be at present, where it can be as large as one likes."""
        ...

    @property
    def token_first(self) -> bool:
        """Whether a token that waits beside data should be taken first."""
        ...

    def start(self, now_us: int) -> list[Effect]: ...

    def submit(
        self, now_us: int, payload: bytes, service: Service, groups: tuple[int, ...] = ()
    ) -> list[Effect]: ...

    def receive(self, now_us: int, datagrams: Sequence[bytes]) -> list[Effect]: ...

    def receive_burst(self, now_us: int, burst: bytes, segment_bytes: int) -> list[Effect]: ...

    def expire(self, now_us: int, timer: Any) -> list[Effect]: ...

    def persisted(self, now_us: int, ticket: int) -> list[Effect]: ...

    def rekey(self, now_us: int, keyring: Keyring) -> list[Effect]: ...

    def limit_segments(self, now_us: int, segment_bytes: int) -> list[Effect]: ...

    def leave(self, now_us: int, *, more_to_come: bool = False) -> list[Effect]:
        """Leaves once every submission is delivered everywhere, or when leave_us has passed: then `Stopped`.

        With `more_to_come` submissions are still taken, and it waits for a second call without.
        """
        ...
