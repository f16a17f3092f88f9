"""One processor of an exhaustive search: the real protocol object, its timers, its disk and its past.

What a processor does depends on its own state and its input alone. So each state of a processor is kept once,
whatever the others do, and each of its moves is worked out once: the search combines them. Time is the
processor's own: it stands still while packets come, and goes on to a timer's instant when the timer expires.

The past is part of the state. Properties speak of what was delivered, and not of buffers; two states with
different deliveries behind them are two. What counts are deliveries, configurations and originations in their
order, ends and beginnings of lives, and which messages have been received. Other rows (state changes, rare
branches, suspicions) do not: of several ways to one state, checks that read such rows see the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from totempole.core.effects import (
    CancelTimer,
    Channel,
    Effect,
    Send,
    SetTimer,
    Stopped,
    Tell,
    TimerName,
    Trace,
    Write,
)
from totempole.core.inputs import Arrived, Expired, Start, Written
from totempole.core.order import Deliver, InstallConfiguration, Leave, Submit
from totempole.sim.contract import SansIo, StackFactory
from totempole.sim.explore.snapshot import copy_of, fingerprint
from totempole.srp.config import RingConfig
from totempole.stack import ProcessorStack
from totempole.trace.recorder import Recorder
from totempole.trace.schema import CHECKED_KINDS
from totempole.types import ProcessorId, Service

PacketKey = int
Input = tuple[Any, ...]
"""`("deliver", packet)`, `("written",)`, `("submit", number, service)`, `("leave",)`, `("restart",)`,
`("crash", writes kept)`, `("expire", timer)` whenever that may be, or `("tick", timer)` at its instant."""

REARMED_MAX = 2
"""How often a timer that only sets itself again is waited for."""

MILESTONES = frozenset({"originate"})
"""Trace rows that count as part of the past, beside deliveries and configurations."""


class Life(NamedTuple):
    """A row that the protocol does not write itself: `crash`, `restart` or `leave`."""

    kind: str
    incarnation: int


Told = Effect | Deliver | InstallConfiguration | Life
"""What layers tell stands for itself."""


class Move(NamedTuple):
    """What an input leads to."""

    after: int
    """The processor's next state, by its number."""
    sent: tuple[tuple[ProcessorId | None, PacketKey], ...]
    told: tuple[Told, ...]
    problem: str = ""
    """The protocol raised."""
    idle: bool = False
    """Nothing came of it but timers."""


class Processor:
    """A processor in one state. Those that have been filed never change again."""

    __slots__ = ("disk", "me", "members", "now_us", "past", "received", "stack", "timers", "writes")

    def __init__(self, me: ProcessorId) -> None:
        self.me = me
        self.stack: SansIo | None = None
        self.now_us = 0
        self.timers: dict[TimerName, int] = {}
        self.disk: dict[str, int] = {}
        self.writes: tuple[tuple[int, Mapping[str, Any]], ...] = ()
        """Under way, the oldest first."""
        self.past = b""
        """A digest of what the application saw."""
        self.received: frozenset[str] = frozenset()
        self.members: tuple[ProcessorId, ...] = ()
        """Of the configuration installed last."""

    @property
    def queued(self) -> int:
        """Messages that wait for the token."""
        return 0 if self.stack is None else cast(ProcessorStack, self.stack).ring.queued

    @property
    def alive(self) -> bool:
        return self.stack is not None

    def copy(self) -> Processor:
        twin = Processor(self.me)
        for name in Processor.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.stack = copy_of(self.stack)
        twin.timers = dict(self.timers)
        return twin

    def fingerprint(self) -> bytes:
        written = tuple([(ticket, dict(values)) for ticket, values in self.writes])
        return fingerprint(
            self.me, self.stack, self.now_us, self.timers, self.disk, written, self.past, self.received
        )

    def feed(self, given: Input, factory: StackFactory, config: RingConfig) -> tuple[list[Send], list[Told]]:
        """Takes one input. Gives the packets that it sent, and what it told."""
        verb = given[0]
        if verb == "crash":
            return [], self._crash(given[1])
        if verb == "restart":
            return self._restart(factory, config)
        assert self.stack is not None, f"processor {self.me} is down"
        if verb == "deliver":
            effects = self._feed(Arrived(0, Channel.DATA, given[1], 0, None))
        elif verb == "expire":
            effects = self._expire(given[1])
        elif verb == "tick":
            del self.timers[given[1]]
            effects = self._feed(Expired(given[1]))
        elif verb == "written":
            (ticket, values), self.writes = self.writes[0], self.writes[1:]
            self.disk = self.disk | dict(values)
            effects = self._feed(Written(ticket))
        elif verb == "submit":
            effects = self._feed(Submit(b"%d" % given[1], Service(given[2])))
        else:
            effects = self._feed(Leave())
        return self._apply(effects)

    def _feed(self, given: Any) -> list[Effect]:
        assert self.stack is not None
        return self.stack.feed(self.now_us, given)

    def _crash(self, kept: int) -> list[Told]:
        """A prefix of the writes under way survives; memory and timers are gone."""
        assert self.stack is not None
        for _, values in self.writes[:kept]:
            self.disk = self.disk | dict(values)
        ended = Life("crash", self.stack.incarnation)
        self._end()
        self._remember(ended)
        return [ended]

    def _restart(self, factory: StackFactory, config: RingConfig) -> tuple[list[Send], list[Told]]:
        self.stack = factory(self.me, config, dict(self.disk), CHECKED_KINDS)
        begun = Life("restart", self.stack.incarnation)
        self._remember(begun)
        sent, told = self._apply(self._feed(Start()))
        return sent, [begun, *told]

    def _end(self) -> None:
        self.stack = None
        self.timers.clear()
        self.writes = ()

    def _expire(self, timer: TimerName) -> list[Effect]:
        """A timer that was moved runs out early and is set again (srp/timeouts.py): then it is waited for."""
        assert self.stack is not None
        for _ in range(REARMED_MAX):
            self.now_us = max(self.now_us, self.timers.pop(timer))
            effects = self._feed(Expired(timer))
            if [type(effect) for effect in effects] != [SetTimer]:
                break
            self._apply(effects)
            effects = []
        return effects

    def _apply(self, effects: list[Effect]) -> tuple[list[Send], list[Told]]:
        sent: list[Send] = []
        told: list[Told] = []
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                sent.append(effect)  # type: ignore[arg-type]
            elif isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.at_us
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.timer, None)
            elif isinstance(effect, Write):
                self.writes = (*self.writes, (effect.ticket, effect.records))
            elif isinstance(effect, Stopped):
                assert self.stack is not None
                told.append(Life("leave", self.stack.incarnation))
                self._end()
                self._remember(told[-1])
            else:
                told.append(effect.event if isinstance(effect, Tell) else effect)
                self._remember(told[-1])
        return sent, told

    def _remember(self, told: Told) -> None:
        if isinstance(told, Trace):
            if told.kind == "receive":
                self.received |= {str(told.columns["message"])}
            elif told.kind in MILESTONES:
                self._stamp(repr(sorted(told.columns.items())))
        elif isinstance(told, Deliver | InstallConfiguration | Life):
            if isinstance(told, InstallConfiguration):
                self.members = told.configuration.members
            self._stamp(repr(told))

    def _stamp(self, text: str) -> None:
        self.past = blake2b(self.past + text.encode(), digest_size=16).digest()


def record(recorder: Recorder, at_us: int, told: tuple[Told, ...] | list[Told]) -> None:
    """Writes the trace rows of a move."""
    for one in told:
        if isinstance(one, Life):
            recorder.incarnation = one.incarnation
            recorder.record(at_us, one.kind)
        elif isinstance(one, Trace):
            recorder.effects(at_us, [one])


def packet_key(transmit: Send) -> PacketKey:
    """The same for the same bytes, in every process."""
    digest = blake2b(digest_size=7)
    for burst in transmit.bursts:
        digest.update(burst.data)
    return int.from_bytes(digest.digest(), "big")


class Cabinet:
    """Every state of a processor that has been met, by number, and every move between them."""

    def __init__(self, factory: StackFactory, config: RingConfig) -> None:
        self.packets: dict[PacketKey, Send] = {}
        self._factory = factory
        self._config = config
        self._states: list[Processor] = []
        self._numbers: dict[bytes, int] = {}
        self._moves: dict[tuple[int, Input], Move] = {}

    def __getitem__(self, number: int) -> Processor:
        return self._states[number]

    def __len__(self) -> int:
        return len(self._states)

    def file(self, processor: Processor) -> int:
        """The number of a state, known or new."""
        digest = processor.fingerprint()
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._states)
            self._states.append(processor)
        return number

    def move(self, before: int, given: Input) -> Move:
        known = self._moves.get((before, given))
        if known is None:
            known = self._moves[before, given] = self._work_out(before, given)
        return known

    def feed(self, processor: Processor, given: Input) -> tuple[list[Send], list[Told]]:
        """Without filing anything: for runs that nobody branches from."""
        return processor.feed(self._argument(given), self._factory, self._config)

    def note(self, transmit: Send) -> PacketKey:
        key = packet_key(transmit)
        self.packets.setdefault(key, transmit)
        return key

    def _argument(self, given: Input) -> Input:
        if given[0] == "deliver":
            return ("deliver", self.packets[given[1]].datagrams)
        return given

    def _work_out(self, before: int, given: Input) -> Move:
        processor = self._states[before].copy()
        try:
            sent, told = self.feed(processor, given)
        except Exception as error:
            return Move(before, (), (), f"{type(error).__name__}: {error}")
        keys = tuple([(transmit.to, self.note(transmit)) for transmit in sent])
        idle = not keys and not told and processor.writes == self._states[before].writes
        return Move(self.file(processor), keys, tuple(told), idle=idle)
