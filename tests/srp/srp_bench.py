"""A bench for a few processors: packets pass by hand, in order and at no cost, and time stands still.

`world` is for whole runs; here a test stops between two packets, looks, and decides what comes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from totempole.core.effects import (
    Alarm,
    CancelTimer,
    Channel,
    Effect,
    Send,
    SetTimer,
    Tell,
    TimerName,
    Trace,
    Write,
)
from totempole.core.inputs import Arrived, Expired, Input, Start, Written
from totempole.core.order import Deliver, InstallConfiguration, Leave, Submit
from totempole.segment import Cutter
from totempole.srp import RingConfig, SingleRing
from totempole.srp.formats import ring_codec
from totempole.srp.packets import Join, Packet, RegularMessage, name_of
from totempole.srp.ring import Held
from totempole.srp.states import State, Timer
from totempole.srp.timeouts import NEVER
from totempole.stack import ProcessorStack, RingSpec, StackSpec, build
from totempole.trace.told import transition
from totempole.types import NO_RING, Configuration, ProcessorId, RingId, Service

STEPS_MAX = 100_000
KINDS = frozenset({"branch", "drop", "state"})

RING = RingId(4, 1)
OLD_RING = RingId(8, 1)

_E = TypeVar("_E")


def message(
    seq: int,
    sender: ProcessorId = 1,
    service: Service = Service.AGREED,
    ring_id: RingId = RING,
    recovered: bool = False,
    contents: bytes = b"",
    timestamp: int = 0,
    after_token: bool = False,
) -> RegularMessage:
    return RegularMessage(
        sender=sender,
        incarnation=1,
        ring_id=ring_id,
        seq=seq,
        number=seq,
        service=service,
        timestamp=timestamp,
        src_sender=sender,
        src_ring_id=NO_RING,
        groups=(),
        after_token=after_token,
        recovered=recovered,
        contents=contents or b"%d" % seq,
    )


def held(seq: int, sender: ProcessorId = 1, service: Service = Service.AGREED, **fields: object) -> Held:
    return Held(message(seq, sender, service, **fields), b"data %d" % seq)  # type: ignore[arg-type]


class Bench:
    """Stacks of a ring alone, the wire between them, their disks and their timers."""

    def __init__(self, processors: Iterable[ProcessorId], config: RingConfig | None = None) -> None:
        self.config = config or RingConfig()
        self.now_us = 0
        self.hop_us = 0
        """How long a packet is under way."""
        self.disk: dict[ProcessorId, dict[str, int]] = {}
        self.wire: deque[tuple[ProcessorId, ProcessorId, Send]] = deque()
        self.timers: dict[ProcessorId, dict[Timer, int]] = {}
        self.effects: dict[ProcessorId, list[Any]] = {}
        """What layers tell, and alarms, stand for themselves."""
        self.unwritten: dict[ProcessorId, list[Write]] = {}
        self.disk_stands_still = False
        self.lost: Callable[[ProcessorId, ProcessorId, Packet], bool] = lambda source, to, packet: False
        self.codec = ring_codec(self.config.cluster_id, self.config.ring_kind)
        self.outside = Cutter(self.config.segment_bytes, 999, 1)
        self.stacks: dict[ProcessorId, ProcessorStack] = {}
        for me in processors:
            self.add(me)

    def __getitem__(self, me: ProcessorId) -> SingleRing:
        return self.stacks[me].ring

    # Processors

    def add(self, me: ProcessorId) -> None:
        """A processor that is about to start, or to start again from its disk."""
        stable = self.disk.setdefault(me, {})
        spec = StackSpec(me, rings=(RingSpec(self.config),))
        self.stacks[me] = build(spec, dict(stable), KINDS)
        self.timers[me] = {}
        self.effects[me] = []
        self.unwritten[me] = []

    def start(self, *processors: ProcessorId) -> None:
        for me in processors or tuple(self.stacks):
            self.feed(me, Start())

    def restart(self, me: ProcessorId) -> None:
        """Crash and start at once: what was on the wire stays there."""
        self.add(me)
        self.start(me)

    def submit(self, me: ProcessorId, payload: bytes, service: Service = Service.AGREED) -> list[Effect]:
        return self.feed(me, Submit(payload, service))

    def leave(self, me: ProcessorId) -> None:
        self.feed(me, Leave())

    def hand(self, me: ProcessorId, packet: Packet) -> list[Effect]:
        """Gives a processor a packet, as if from the network."""
        bursts = self.outside.cut(self.codec.encode(packet), name_of(packet))
        datagrams = [datagram for burst in bursts for datagram in burst.datagrams]
        return self.feed(me, arrival(datagrams))

    def expire(self, me: ProcessorId, timer: Timer) -> list[Effect]:
        """The timer runs out now, wherever it stood: time moves on to when it is due."""
        processor = self[me].machine.processor
        for lazy, kind in (
            (processor.token_loss, Timer.TOKEN_LOSS),
            (processor.token_retransmission, Timer.TOKEN_RETRANSMISSION),
        ):
            if kind is timer and lazy.due_us != NEVER:
                self.now_us = max(self.now_us, lazy.due_us)
        return self._fire(me, timer)

    def _fire(self, me: ProcessorId, timer: Timer) -> list[Effect]:
        self.timers[me].pop(timer, None)
        return self.feed(me, Expired(TimerName("srp", 0, timer)))

    def write_out(self, me: ProcessorId) -> None:
        """The disk completes what it has been asked to write."""
        pending, self.unwritten[me] = self.unwritten[me], []
        for persist in pending:
            self._written(me, persist)

    # Inputs and effects

    def feed(self, me: ProcessorId, given: Input) -> list[Any]:
        """Gives the effects; what layers tell, and alarms, stand for themselves."""
        effects = self.stacks[me].feed(self.now_us, given)
        self.do(me, effects)
        return plain(effects)

    def do(self, me: ProcessorId, effects: list[Effect]) -> None:
        self.effects[me] += plain(effects)
        for effect in effects:
            match effect:
                case Send(to=None):
                    self.wire.extend((me, to, effect) for to in self.stacks if to != me)
                case Send(to=to) if to in self.stacks:
                    self.wire.append((me, to, effect))
                case SetTimer(timer=timer, at_us=at_us):
                    self.timers[me][Timer(timer.timer)] = at_us
                case CancelTimer(timer=timer):
                    self.timers[me].pop(Timer(timer.timer), None)
                case Write() if self.disk_stands_still:
                    self.unwritten[me].append(effect)
                case Write():
                    self._written(me, effect)

    def _written(self, me: ProcessorId, write: Write) -> None:
        self.disk[me].update(write.records)
        self.feed(me, Written(write.ticket))

    # Running

    def step(self) -> bool:
        """Passes one packet on; false if the wire is empty."""
        if not self.wire:
            return False
        source, to, transmit = self.wire.popleft()
        self.now_us += self.hop_us
        if not self.lost(source, to, transmit.packet):
            self.feed(to, arrival(transmit.datagrams))
        return True

    def pump(self, until: Callable[[], bool] = lambda: False) -> None:
        """Passes packets until the wire is empty (an idle ring's token rests) or `until` holds."""
        for _ in range(STEPS_MAX):
            if until() or not self.step():
                return
        raise AssertionError("the wire never falls silent")

    def rotate(self, packets: int) -> None:
        """Passes this many packets."""
        for _ in range(packets):
            self.step()

    def advance(self, duration_us: int, until: Callable[[], bool] = lambda: False) -> None:
        """Lets time pass: timers expire in order, and packets take none."""
        stop_us = self.now_us + duration_us
        self.pump(until)
        while not until() and (due := self._next_timer()) is not None and due[0] <= stop_us:
            self.now_us, me, timer = max(self.now_us, due[0]), due[1], due[2]
            self._fire(me, timer)
            self.pump(until)
        if not until():
            self.now_us = stop_us

    def _next_timer(self) -> tuple[int, ProcessorId, Timer] | None:
        return min(
            ((at_us, me, timer) for me, timers in self.timers.items() for timer, at_us in timers.items()),
            default=None,
        )

    def form(self) -> None:
        """Starts everyone and brings them into one ring, at rest."""
        self.start()
        everyone = tuple(sorted(self.stacks))
        self.advance(5_000_000, until=lambda: all(self.ring_of(me) == everyone for me in self.stacks))
        assert all(self.ring_of(me) == everyone for me in self.stacks)
        self.pump()

    # What has happened

    def ring_of(self, me: ProcessorId) -> tuple[ProcessorId, ...]:
        """The ring that a processor is on; nothing while it is on none."""
        operational = self[me].state is State.OPERATIONAL
        return self[me].machine.installed.members if operational else ()

    def of_kind(self, me: ProcessorId, kind: type[_E]) -> list[_E]:
        return [effect for effect in self.effects[me] if isinstance(effect, kind)]

    def delivered(self, me: ProcessorId) -> list[bytes]:
        return [bytes(deliver.payload) for deliver in self.of_kind(me, Deliver)]

    def configurations(self, me: ProcessorId) -> list[Configuration]:
        return [install.configuration for install in self.of_kind(me, InstallConfiguration)]

    def traced(self, me: ProcessorId, kind: str) -> list[str]:
        rows = [row.columns for row in self.of_kind(me, Trace) if row.kind == kind]
        if kind == "state":
            return [transition(row["old_state"], row["new_state"], row["reason"]) for row in rows]
        return [row["reason"] for row in rows]

    def forget(self) -> None:
        """Forgets past effects, so that a test sees only what comes."""
        for effects in self.effects.values():
            effects.clear()


def arrival(datagrams: Iterable[bytes], segment_bytes: int = 0) -> Arrived:
    return Arrived(0, Channel.DATA, tuple(datagrams), segment_bytes, None)


def plain(effects: Iterable[Effect]) -> list[Any]:
    """What layers tell, and alarms, stand for themselves."""
    return [
        effect.event if isinstance(effect, Tell) else effect.alarm if isinstance(effect, Alarm) else effect
        for effect in effects
    ]


def alone_in(state: State, config: RingConfig | None = None) -> Bench:
    """A bench with processor 1 alone, in this state."""
    bench = Bench([1], config)
    bench.start()
    if state is State.STARTING:
        bench = Bench([1], config)
        bench.disk_stands_still = True
        bench.start()
    elif state in (State.COMMIT, State.RECOVER):
        bench = Bench([1], config)
        bench.disk_stands_still = state is State.COMMIT
        bench.start()
        bench.write_out(1)
        bench.pump(until=lambda: bench[1].state is state)
    else:
        bench.pump()
        assert bench[1].state is State.OPERATIONAL
        if state is State.GATHER:
            bench.hand(1, join_of(2, {2}, ring_seq=8))
        elif state is State.LEFT:
            bench.leave(1)
    assert bench[1].state is state, bench[1].state
    return bench


def join_of(
    sender: ProcessorId,
    proc_set: Iterable[ProcessorId],
    fail_set: Iterable[ProcessorId] = (),
    *,
    counter: int = 1,
    incarnation: int = 1,
    ring_seq: int = 0,
    rotation_count: int = 0,
) -> Join:
    return Join(
        sender=sender,
        incarnation=incarnation,
        counter=counter,
        ring_seq=ring_seq,
        future_ring_seq=ring_seq,
        proc_set=frozenset(proc_set),
        fail_set=frozenset(fail_set),
        rotation_count=rotation_count,
    )
