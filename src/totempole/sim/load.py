"""Traffic: appendix A's packet driver, arrivals at a rate, and a queue kept full.

Every generator stops at push-back, while its processor is frozen and while it is down, and goes on when the
processor is ready again. A payload begins with its origin and number, so that no two are alike.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random

from totempole.sim.host import Host
from totempole.sim.world import World
from totempole.types import ProcessorId, Service

STAMP = struct.Struct(">IQ")
FILL = bytes(range(256)) * 256

FOREVER_US = 2**62

PACKET_DRIVER_US = 5_500_000
"""PKT_DRVR_TMO of appendix A."""
QUEUE_MULTIPLE = 1
"""MAX_QUEUE_MULTIPLE of appendix A."""
MESSAGE_BYTES = 1_024
"""MESSAGE_SIZE_DEFAULT of appendix A."""

Sizes = int | Callable[[Random], int]
"""A size in bytes, or how to draw one."""


def payload(origin: ProcessorId, number: int, size: int) -> bytes:
    """`size` bytes that say whose they are and which, as far as they fit."""
    stamp = STAMP.pack(origin, number)
    return stamp[:size] if size <= len(stamp) else stamp + _fill(size - len(stamp))


def _fill(size: int) -> bytes:
    return FILL[:size] if size <= len(FILL) else (FILL * (size // len(FILL) + 1))[:size]


def uniform(least: int, greatest: int) -> Callable[[Random], int]:
    return lambda random: random.randint(least, greatest)


def one_of(*sizes: int) -> Callable[[Random], int]:
    return lambda random: random.choice(sizes)


class Load(ABC):
    """What all generators share: making messages, handing them over, knowing when to rest."""

    def __init__(
        self,
        world: World,
        me: ProcessorId,
        *,
        size: Sizes = MESSAGE_BYTES,
        safe: float = 0.0,
        until_us: int = FOREVER_US,
        limit: int | None = None,
        name: str = "load",
    ) -> None:
        self.world = world
        self.host: Host = world.hosts[me]
        self.until_us = until_us
        self.limit = limit
        """Messages in all; None is no limit."""
        self.submitted = 0
        self.refused = 0
        self.blocked = False
        self._me = me
        self._size = size
        self._safe = safe
        self._random = world.random(f"{name} {me}")
        self.host.ready_listeners.append(self._on_ready)

    @property
    def finished(self) -> bool:
        spent = self.limit is not None and self.submitted >= self.limit
        return spent or self.world.now_us >= self.until_us

    def submit_one(self) -> bool:
        """Hand one message over; False is push-back, and the generator rests until ready."""
        random = self._random
        size = self._size if isinstance(self._size, int) else self._size(random)
        service = Service.SAFE if self._safe and random.random() < self._safe else Service.AGREED
        self.blocked = not self.host.submit(payload(self._me, self.submitted, size), service)
        if self.blocked:
            self.refused += 1
        else:
            self.submitted += 1
        return not self.blocked

    def _on_ready(self) -> None:
        if self.blocked and not self.finished:
            self.blocked = False
            self.go_on()

    def start(self) -> None:
        self.go_on()

    @abstractmethod
    def go_on(self) -> None:
        """Submit what is due, until push-back or the end."""


class Saturation(Load):
    """Keeps the send queue full."""

    def go_on(self) -> None:
        while not self.finished and self.submit_one():
            pass


class Burst(Load):
    """A number of messages as fast as the ring takes them."""

    def __init__(self, world: World, me: ProcessorId, count: int, *, size: Sizes, service: Service) -> None:
        safe = 1.0 if service is Service.SAFE else 0.0
        super().__init__(world, me, size=size, safe=safe, limit=count, name="burst")

    def go_on(self) -> None:
        while not self.finished and self.submit_one():
            pass


class Arrivals(Load):
    """Messages at a rate: evenly spaced, or as a Poisson process. None arrive while the ring pushes back."""

    def __init__(
        self,
        world: World,
        me: ProcessorId,
        rate_per_s: float,
        *,
        poisson: bool = True,
        size: Sizes = MESSAGE_BYTES,
        safe: float = 0.0,
        until_us: int = FOREVER_US,
        limit: int | None = None,
    ) -> None:
        super().__init__(world, me, size=size, safe=safe, until_us=until_us, limit=limit, name="arrivals")
        assert rate_per_s > 0, "messages per second"
        self._poisson = poisson
        self._mean_us = 1_000_000 / rate_per_s
        self._next_us = float(world.now_us)

    def start(self) -> None:
        self._next_us = float(self.world.now_us)
        self._schedule()

    def go_on(self) -> None:
        self._next_us = float(self.world.now_us)
        self._arrive()

    def _schedule(self) -> None:
        gap_us = self._random.expovariate(1.0) * self._mean_us if self._poisson else self._mean_us
        # Kept as a fraction: at high rates, rounding each gap would change the rate.
        self._next_us += gap_us
        self.world.scheduler.at(int(self._next_us), self._arrive)

    def _arrive(self) -> None:
        if not self.finished and self.submit_one():
            self._schedule()


class PacketDriver(Load):
    """Appendix A's -p: every `period_us` it fills the send queue up to `multiple` windows.

    The protocol does not show its queue. What was submitted and not yet delivered here stands for it, which
    is the same whenever the ring has sent all by the next period.
    """

    def __init__(
        self,
        world: World,
        me: ProcessorId,
        *,
        size: Sizes = MESSAGE_BYTES,
        safe: float = 0.0,
        period_us: int = PACKET_DRIVER_US,
        multiple: int = QUEUE_MULTIPLE,
        until_us: int = FOREVER_US,
    ) -> None:
        super().__init__(world, me, size=size, safe=safe, until_us=until_us, name="driver")
        self._period_us = period_us
        self._fill_to = multiple * self.host.config.window_packets

    def start(self) -> None:
        self._tick()

    def _tick(self) -> None:
        if not self.finished:
            self.go_on()
            self.world.scheduler.at(self.world.now_us + self._period_us, self._tick)

    def go_on(self) -> None:
        waiting = max(0, self.submitted - self.host.delivered_own)
        for _ in range(self._fill_to - waiting):
            if not self.submit_one():
                return
