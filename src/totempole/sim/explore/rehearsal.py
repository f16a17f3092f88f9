"""One run of a small system in the usual order: how a root comes about, and how a path ends.

Packets take no time and arrive in the order in which they were sent, writes are done at once, and timers
expire when they are due. Nothing goes wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from totempole.core.order import Deliver, InstallConfiguration
from totempole.sim.explore.processor import Cabinet, Input, PacketKey, Processor, Told
from totempole.sim.explore.space import NOTHING, State
from totempole.srp.packets import Packet
from totempole.types import ProcessorId, RingId, Service

Tell = Callable[[ProcessorId, list[Told]], None]

LAST_MESSAGES = 900
"""Above the numbers of all messages before."""
EVENTS_MAX = 20_000
SETTLE_US = 5_000_000
"""How long a system may take to come together when nothing goes wrong any more."""
QUIET_US = 100_000
"""How long nothing may happen then: longer than a lost token goes unnoticed."""


class Rehearsal:
    """Processors that are moved, not copied: nobody branches from here."""

    def __init__(self, cabinet: Cabinet, processors: list[Processor], tell: Tell) -> None:
        self.processors = processors
        self.configurations: dict[ProcessorId, tuple[RingId, tuple[ProcessorId, ...]]] = {}
        self.told = 0
        """Deliveries and configurations."""
        self.lost: Callable[[Packet], bool] = lambda _packet: False
        """Packets that never arrive."""
        self._cabinet = cabinet
        self._flights: deque[tuple[ProcessorId, ProcessorId, PacketKey]] = deque()
        """To whom, from whom, which packet."""
        self._tell = tell
        self._waited_us = 0

    @classmethod
    def of(cls, cabinet: Cabinet, state: State, tell: Tell) -> Rehearsal:
        """Goes on from a state: with all that is under way in it, on a network that is whole."""
        run = cls(cabinet, [cabinet[number].copy() for number in state.processors], tell)
        for place, flights in enumerate(state.flights):
            run._flights.extend((place + 1, source, packet) for source, packet in flights)
        return run

    def state(self) -> State:
        numbers = tuple([self._cabinet.file(processor.copy()) for processor in self.processors])
        everyone = range(1, len(numbers) + 1)
        flights = [[(source, packet) for to, source, packet in self._flights if to == me] for me in everyone]
        nobody = (False,) * len(numbers)
        return State(numbers, tuple(map(tuple, flights)), (0,) * len(numbers), nobody, NOTHING)

    def feed(self, me: ProcessorId, given: Input) -> None:
        sent, told = self._cabinet.feed(self.processors[me - 1], given)
        for transmit in sent:
            key = self._cabinet.note(transmit)
            others = range(1, len(self.processors) + 1) if transmit.to is None else (transmit.to,)
            for other in others:
                if transmit.to is not None or other != me:
                    self._flights.append((other, me, key))
        for one in told:
            if isinstance(one, InstallConfiguration):
                self.configurations[me] = (one.configuration.id, one.configuration.members)
            self.told += isinstance(one, Deliver | InstallConfiguration)
        self._tell(me, told)

    def start_all(self) -> None:
        for processor in self.processors:
            if not processor.alive:
                self.feed(processor.me, ("restart",))

    def run(self, until: Callable[[], bool]) -> bool:
        """Whether it came to be in time."""
        for _ in range(EVENTS_MAX):
            if until():
                return True
            if not self._step() and not self._wait():
                return False
        return False

    @property
    def at_rest(self) -> bool:
        return not self._flights and not any(processor.writes for processor in self.processors)

    def settled(self) -> bool:
        """All that are up are together, and have nothing left to send."""
        up = tuple([processor.me for processor in self.processors if processor.alive])
        rings = {self.configurations.get(me) for me in up}
        return (
            self.at_rest
            and len(rings) == 1
            and next(iter(rings)) is not None
            and next(iter(rings))[1] == up  # type: ignore[index]
            and not any(one.queued for one in self.processors)
        )

    def settle(self) -> bool:
        """Whether all come together, and stay so for `QUIET_US` without any more to deliver."""
        self.start_all()
        while self.run(self.settled):
            before, since_us = self.told, self._waited_us
            while self.told == before and self._waited_us < since_us + QUIET_US and self._wait():
                self.run(lambda: self.at_rest)
            if self.told == before and self.settled():
                return True
        return False

    def finish(self) -> bool:
        """Whether all come together, and deliver what each then submits."""
        self.start_all()
        if not self.run(self.settled):
            return False
        for processor in self.processors:
            self.submit(processor.me, LAST_MESSAGES + processor.me, Service.SAFE)
        return self.settle()

    def crash(self, me: ProcessorId) -> None:
        """With all that is under way."""
        self.feed(me, ("crash", 0))
        self._flights.clear()

    def submit(self, me: ProcessorId, number: int, service: Service) -> None:
        self.feed(me, ("submit", number, int(service)))

    def _step(self) -> bool:
        for processor in self.processors:
            if processor.writes:
                self.feed(processor.me, ("written",))
                return True
        while self._flights:
            to, _, packet = self._flights.popleft()
            if self.processors[to - 1].alive and not self.lost(self._cabinet.packets[packet].packet):
                self.feed(to, ("deliver", packet))
                return True
        return False

    def _wait(self) -> bool:
        """Until the next timer: all clocks go on by as much."""
        due = [
            (at_us - processor.now_us, processor.me, timer)
            for processor in self.processors
            for timer, at_us in processor.timers.items()
        ]
        if not due:
            return False
        after_us, me, timer = min(due)
        after_us = max(0, after_us)
        self._waited_us += after_us
        if self._waited_us > SETTLE_US:
            return False
        for processor in self.processors:
            processor.now_us += after_us
        self.feed(me, ("tick", timer))
        return True
