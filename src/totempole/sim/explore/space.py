"""The states of a small system and what can happen in each: the space that an exhaustive search walks.

A state is the processors' states, the packets under way to each, who can hear whom, and what has been spent
of the bounds. Which processor receives next is free. Each receives in the order in which packets were sent to
it, whoever sent them, but for `overtakes`: so many packets may arrive before an older one. (Without a bound
there the token could circle for ever while a message is under way, and the space would have no end.)

A packet under way to a processor that crashes may still reach its next life; what is sent to a processor that
is down, or in another part of the network, is lost. A write is done before anything else happens, unless the
disk stalls (`stalls`): then the processor goes on, and the write completes at any later moment, after those
before it. A crash keeps any number of the oldest writes under way.

A timer may expire at any moment, in any order: the search asks whether safety depends on time. Since timers
never end, they are bounded: `timeouts` counts those that expire while nothing else can happen (no packet
under way, no write), `early` those that expire before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from totempole.core.effects import TimerName
from totempole.sim.explore.processor import Cabinet, Move, PacketKey
from totempole.srp.states import Timer
from totempole.types import ProcessorId, Service


@dataclass(frozen=True, slots=True)
class Bounds:
    """How often each thing may happen on the way from the root."""

    messages: int = 0
    """Submitted by anyone, in turn safe and agreed."""
    overtakes: int = 0
    """Packets that arrive before an older one to the same processor."""
    losses: int = 0
    copies: int = 0
    """Packets that arrive once more."""
    strays: int = 0
    """Packets that a processor receives though they were sent to another."""
    crashes: int = 0
    restarts: int = 9
    partitions: int = 0
    stalls: int = 0
    """Disks that do not write at once."""
    timeouts: int = 0
    early: int = 0


BUDGETS = tuple(Bounds.__dataclass_fields__)
Spent = tuple[int, ...]
NOTHING: Spent = (0,) * len(BUDGETS)

Flight = tuple[ProcessorId, PacketKey]
"""From whom, and which packet."""

Action = tuple[Any, ...]
"""A verb and what it concerns, as plain values: a path of them can be written to a file."""


class State(NamedTuple):
    processors: tuple[int, ...]
    """The number of each processor's state."""
    flights: tuple[tuple[Flight, ...], ...]
    """Under way to each, in the order in which they were sent."""
    parts: tuple[int, ...]
    """Which component of the network each processor is in."""
    stalled: tuple[bool, ...]
    """Whose disk does not write at once, until it has written all."""
    spent: Spent = NOTHING

    @property
    def core(self) -> tuple[Any, ...]:
        return self[:4]


class Step(NamedTuple):
    """One way on from a state."""

    action: Action
    state: State
    actor: int = -1
    """The place of the processor that moved, if one did."""
    move: Move | None = None


class Space:
    """What can happen, in a system of processors 1 to n."""

    def __init__(self, cabinet: Cabinet, count: int, bounds: Bounds) -> None:
        self.cabinet = cabinet
        self.count = count
        self.bounds = bounds
        self._limits: Spent = tuple([getattr(bounds, name) for name in BUDGETS])

    def steps(self, state: State) -> Iterator[Step]:
        if any(self._writes_first(state, place) for place in range(self.count)):
            yield from self._writes(state)
            return
        yield from self._arrivals(state)
        yield from self._late_writes(state)
        yield from self._submissions(state)
        yield from self._crashes_and_restarts(state)
        yield from self._partitions(state)
        yield from self._timeouts(state)

    def take(self, state: State, action: Action) -> Step:
        """The step that a recorded action names."""
        for step in self.steps(state):
            if step.action == action:
                return step
        raise LookupError(f"{action} is not possible here")

    def is_at_rest(self, state: State) -> bool:
        """Whether nothing is under way: only timers and faults are left."""
        processors = [self.cabinet[number] for number in state.processors]
        return not any(
            one.writes or (one.alive and flights)
            for one, flights in zip(processors, state.flights, strict=True)
        )

    # What happens by itself

    def _arrivals(self, state: State) -> Iterator[Step]:
        for place, flights in enumerate(state.flights):
            if not flights or not self._is_up(state, place + 1):
                continue
            for flight in dict.fromkeys(flights):
                yield from self._arrival(state, place, flight)

    def _arrival(self, state: State, place: int, flight: Flight) -> Iterator[Step]:
        (source, packet), to = flight, place + 1
        flights = state.flights[place]
        index = flights.index(flight)
        left = _replaced(state.flights, place, flights[:index] + flights[index + 1 :])
        given, about = ("deliver", packet), (source, to, packet)
        spent: Spent | None = state.spent if index == 0 else self._spend(state, "overtakes")
        if spent is not None:
            yield self._moved(state._replace(flights=left, spent=spent), to, given, ("deliver", *about))
        if source == to:
            return
        if (spent := self._spend(state, "losses")) is not None:
            yield Step(("lose", *about), state._replace(flights=left, spent=spent))
        if (spent := self._spend(state, "copies")) is not None:
            yield self._moved(state._replace(spent=spent), to, given, ("copy", *about))
        if (spent := self._spend(state, "strays")) is not None:
            for other in range(1, self.count + 1):
                if other not in (to, source) and self._hears(state, other, source):
                    action = ("stray", source, other, packet)
                    yield self._moved(state._replace(spent=spent), other, given, action)

    def _hears(self, state: State, me: ProcessorId, source: ProcessorId) -> bool:
        return self._is_up(state, me) and state.parts[me - 1] == state.parts[source - 1]

    def _is_up(self, state: State, me: ProcessorId) -> bool:
        return self.cabinet[state.processors[me - 1]].alive

    def _writes_first(self, state: State, place: int) -> bool:
        return bool(self.cabinet[state.processors[place]].writes) and not state.stalled[place]

    def _writes(self, state: State) -> Iterator[Step]:
        """The first disk that has something to write does so, or stalls, or its processor crashes."""
        place = next(place for place in range(self.count) if self._writes_first(state, place))
        me = place + 1
        yield self._moved(state, me, ("written",), ("written", me))
        if (spent := self._spend(state, "stalls")) is not None:
            stalled = _replaced(state.stalled, place, True)
            yield Step(("stall", me), state._replace(stalled=stalled, spent=spent))
        yield from self._crashes(state, me)

    def _late_writes(self, state: State) -> Iterator[Step]:
        for me in range(1, self.count + 1):
            if self.cabinet[state.processors[me - 1]].writes:
                yield self._moved(state, me, ("written",), ("written", me))

    def _timeouts(self, state: State) -> Iterator[Step]:
        budget = "timeouts" if self.is_at_rest(state) else "early"
        spent = self._spend(state, budget)
        if spent is None:
            return
        for me in range(1, self.count + 1):
            timers = self.cabinet[state.processors[me - 1]].timers
            for timer in sorted(timers):
                action = ("expire", me, _timer_name(timer))
                step = self._moved(state._replace(spent=spent), me, ("expire", timer), action)
                if step.move is not None and not step.move.idle:
                    yield step

    # What somebody does

    def _submissions(self, state: State) -> Iterator[Step]:
        spent = self._spend(state, "messages")
        if spent is None:
            return
        number = spent[BUDGETS.index("messages")]
        service = Service.SAFE if number % 2 else Service.AGREED
        for me in range(1, self.count + 1):
            if self._is_up(state, me):
                given = ("submit", number, int(service))
                yield self._moved(state._replace(spent=spent), me, given, ("submit", me, number))

    def _crashes_and_restarts(self, state: State) -> Iterator[Step]:
        restart = self._spend(state, "restarts")
        for me in range(1, self.count + 1):
            if self._is_up(state, me):
                yield from self._crashes(state, me)
            elif restart is not None:
                yield self._moved(state._replace(spent=restart), me, ("restart",), ("restart", me))

    def _crashes(self, state: State, me: ProcessorId) -> Iterator[Step]:
        spent = self._spend(state, "crashes")
        if spent is not None:
            for kept in range(len(self.cabinet[state.processors[me - 1]].writes) + 1):
                action = ("crash", me, kept)
                yield self._moved(state._replace(spent=spent), me, ("crash", kept), action)

    def _partitions(self, state: State) -> Iterator[Step]:
        """Into two, or whole again. What is under way between the parts is lost."""
        if any(state.parts):
            yield Step(("heal",), state._replace(parts=(0,) * self.count))
        spent = self._spend(state, "partitions")
        if spent is None or any(state.parts):
            return
        everyone = range(1, self.count + 1)
        for size in range(1, self.count // 2 + 1):
            for apart in combinations(everyone, size):
                if 2 * size == self.count and apart[0] != 1:
                    continue
                parts = tuple([int(me in apart) for me in everyone])
                flights = _cut(state.flights, parts)
                yield Step(("part", *apart), state._replace(flights=flights, parts=parts, spent=spent))

    # How a state follows from another

    def _spend(self, state: State, budget: str) -> Spent | None:
        place = BUDGETS.index(budget)
        spent = state.spent
        if spent[place] >= self._limits[place]:
            return None
        return (*spent[:place], spent[place] + 1, *spent[place + 1 :])

    def _moved(self, state: State, me: ProcessorId, given: tuple[Any, ...], action: Action) -> Step:
        place = me - 1
        move = self.cabinet.move(state.processors[place], given)
        processors = (*state.processors[:place], move.after, *state.processors[place + 1 :])
        flights = self._with_sent(state, me, move) if move.sent else state.flights
        stalled = state.stalled
        if stalled[place] and not self.cabinet[move.after].writes:
            stalled = _replaced(stalled, place, False)
        after = State(processors, flights, state.parts, stalled, state.spent)
        return Step(action, after, place, move)

    def _with_sent(self, state: State, me: ProcessorId, move: Move) -> tuple[tuple[Flight, ...], ...]:
        queues = [list(flights) for flights in state.flights]
        for to, packet in move.sent:
            for other in range(1, self.count + 1) if to is None else (to,):
                mine = other == me
                if (mine and to is not None) or (not mine and self._hears(state, other, me)):
                    queues[other - 1].append((me, packet))
        return tuple([tuple(queue) for queue in queues])


def _replaced(values: tuple[Any, ...], place: int, new: Any) -> tuple[Any, ...]:
    return (*values[:place], new, *values[place + 1 :])


def _cut(flights: tuple[tuple[Flight, ...], ...], parts: tuple[int, ...]) -> tuple[tuple[Flight, ...], ...]:
    return tuple(
        [
            tuple([flight for flight in queue if parts[flight[0] - 1] == parts[place]])
            for place, queue in enumerate(flights)
        ]
    )


def _timer_name(name: TimerName) -> str:
    return Timer(name.timer).name.lower().replace("_", " ")
