"""One simulated processor: a protocol object with a CPU, two receive buffers, timers, a disk and a clock.

An input is taken when the CPU is free, and each output leaves when the CPU has got to it. Data is drained
before the token, unless the protocol says that the token goes first (docs/architecture.md, the fast path).
It learns the others' addresses, and does what a real node does when another uses its number (`identity`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast

from totempole.core.effects import (
    Alarm,
    Append,
    CancelTimer,
    Channel,
    Effect,
    Reachable,
    Recall,
    Send,
    SetTimer,
    Stopped,
    Tell,
    Trace,
    Trim,
    Write,
)
from totempole.core.inputs import Appended, Arrived, Command, Expired, Input, Narrowed, Start, Written
from totempole.core.order import Deliver, InstallConfiguration, Leave, PushBack, Ready, Submit
from totempole.corel.commands import CloseLog
from totempole.corel.events import (
    Accepted,
    BarrierPassed,
    Durable,
    Fenced,
    GreenLine,
    GreenRuns,
    Lost,
    Placed,
)
from totempole.errors import SessionError
from totempole.groups.events import Taken, ToProcesses
from totempole.identity import Answer, Identity
from totempole.learned_addresses import LearnedAddresses
from totempole.sim.clock import Scheduler
from totempole.sim.conditions import Buffers, Costs
from totempole.sim.contract import SansIo, SimulationError, StackFactory
from totempole.sim.disk import Disk, Fate
from totempole.sim.drift import LocalClock
from totempole.sim.inbox import Inbox
from totempole.sim.log_disk import LogDisk
from totempole.sim.medium import Medium
from totempole.sim.replay import Recording
from totempole.sim.timers import Timers
from totempole.srp.alarms import Impostor
from totempole.srp.config import RingConfig
from totempole.srp.states import State
from totempole.stack import GROUPS, ProcessorStack
from totempole.trace.recorder import Recorder
from totempole.types import Configuration, ProcessorId, Service

RETIRE_POLL_US = 100
"""How often a processor that is to leave looks whether all is sent."""

LOOPBACK_US = 10
"""How long a packet to oneself takes. It is never lost."""

RECALL_US = 200
"""How long reading the log takes."""

DRAIN_MAX = 64
"""Reads that may go before a timer that is due, so that a token in the buffer counts as received."""


_GROUPS = GROUPS[0]
_new = tuple.__new__
"""Makes a named tuple at a third of the cost of calling its class."""

PROBATION_US = 500_000
LEAP_MAX = 100
"""A run lasts seconds, so that all times of a node with a double are shorter than a real node's."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a host shares with the others."""

    seed: int | str
    scheduler: Scheduler
    medium: Medium
    stack: StackFactory
    costs: Costs
    buffers: Buffers
    trace_kinds: frozenset[str]
    record_inputs: bool = False
    names: Mapping[ProcessorId, str] = field(default_factory=dict)
    """Of processors that have another name than their number."""


class Host:
    __slots__ = (
        "_applying",
        "_around",
        "_carry_ns",
        "_costs",
        "_counters",
        "_crash_after",
        "_data",
        "_identity",
        "_medium",
        "_owed_ns",
        "_reads",
        "_scheduler",
        "_stack",
        "_started_us",
        "_tasks",
        "_timers",
        "_token",
        "_wake_pending",
        "_where",
        "address",
        "addresses",
        "busy_until_us",
        "clock",
        "config",
        "configurations",
        "delivered",
        "delivered_own",
        "disk",
        "gave_way",
        "heeds_impostors",
        "life",
        "listener",
        "log_disk",
        "me",
        "packet_events",
        "paused",
        "ready_listeners",
        "recorder",
        "recordings",
        "report_cut",
        "retiring",
        "slow",
    )

    def __init__(
        self,
        me: ProcessorId,
        config: RingConfig,
        around: Surroundings,
        recorder: Recorder,
        disk: Disk,
        clock: LocalClock,
    ) -> None:
        self.me = me
        self.address = me
        self.addresses: LearnedAddresses[int] = LearnedAddresses()
        """What it has learned in this life of its process."""
        self._where = self.addresses.known
        self.config = config
        self.recorder = recorder
        self.disk = disk
        self.log_disk: LogDisk | None = None
        """Where its log is, if it has one."""
        self.clock = clock
        self.life = 0
        """Counts starts and ends, so that events of an earlier life are known for what they are."""
        self.paused = False
        self.slow = 1.0
        self.busy_until_us = 0
        self.packet_events = 0
        self.delivered = 0
        self.delivered_own = 0
        self.configurations: list[Configuration] = []
        self.recordings: list[Recording] = []
        self.listener: Callable[[Host, object], None] | None = None
        """Told of each delivery, configuration and event for processes. It must not submit, but may
        schedule that."""
        self.ready_listeners: list[Callable[[], None]] = []
        self.report_cut: Callable[[int], None] = lambda _after: None
        """Told when a crash within an input's effects strikes."""
        self.gave_way: Callable[[], None] = lambda: None
        """Told when it has ended because another has its number."""
        self.heeds_impostors = True
        """Whether it acts as a real node when another uses its number. The papers have no such rule."""
        self._identity = Identity(PROBATION_US)
        self._started_us = 0
        self.retiring = False
        """It leaves as soon as all that programs have handed in is sent; they can hand in no more."""
        self._crash_after: int | None = None
        self._around = around
        self._scheduler = around.scheduler
        self._medium = around.medium
        self._costs = around.costs
        self._counters: Counter[str] = around.medium.counters
        self._stack: SansIo | None = None
        buffers, networks = around.buffers, around.medium.networks
        self._data = Inbox(buffers.data_bytes, buffers.data_datagrams, networks)
        self._token = Inbox(buffers.token_bytes, buffers.token_datagrams, networks)
        self._tasks: deque[Input] = deque()
        self._timers = Timers(around.scheduler, self._on_timer)
        self._wake_pending = False
        self._applying = False
        self._reads = 0
        self._carry_ns = 0
        self._owed_ns = 0.0
        """The price of the deliveries among the effects at hand."""

    @property
    def alive(self) -> bool:
        return self._stack is not None

    @property
    def stack(self) -> SansIo | None:
        """The protocol object, for tests and monitors to look at; None while the processor is down."""
        return self._stack

    @property
    def has_token_waiting(self) -> bool:
        """Whether a token has come that it has not looked at."""
        return bool(self._token.reads)

    @property
    def regular_configuration(self) -> Configuration | None:
        """The regular configuration installed last in this life."""
        for configuration in reversed(self.configurations):
            if configuration.kind == "regular":
                return configuration if self.alive else None
        return None

    # Life and death

    def start(self, listen_us: int = 0) -> None:
        """Start, or restart from the disk: memory is new, the incarnation one higher.

        A real node listens before it speaks, so that whoever has its number is heard: `listen_us`.
        """
        assert self._stack is None, f"processor {self.me} is up already"
        self.addresses = LearnedAddresses()
        self._where = self.addresses.known
        self._identity = Identity(PROBATION_US)
        self._started_us = self._scheduler.now_us
        self._begin_life(self.disk.recover())
        if listen_us:
            self._scheduler.at(self._scheduler.now_us + listen_us, self._speak, self.life)
        else:
            self._speak(self.life)

    def _begin_life(self, stable: dict[str, int]) -> None:
        around = self._around
        self.life += 1
        self.retiring = False
        self.paused = False
        self.busy_until_us = self._scheduler.now_us
        self._stack = around.stack(self.me, self.config, stable, around.trace_kinds)
        self.recorder.incarnation = self._stack.incarnation
        self.recorder.record(self._scheduler.now_us, "restart", detail=around.names.get(self.me, ""))
        if around.record_inputs:
            self.recordings.append(Recording(self.me, self.config, stable, around.trace_kinds))

    def _speak(self, life: int) -> None:
        if life == self.life:
            self._feed(Start())
            if self.log_disk is not None and life == self.life:
                self._feed(self.log_disk.open())
            self._scheduler.at(self._scheduler.now_us, self._announce_ready, self.life)

    def crash(self, fate: Fate | None = None) -> None:
        """Memory, timers and buffers are gone; the disk keeps what it had (disk.Fate)."""
        assert self._stack is not None, f"processor {self.me} is down already"
        self._end_life()
        self.disk.crash(fate)
        if self.log_disk is not None:
            self.log_disk.crash()
        self.recorder.record(self._scheduler.now_us, "crash")

    def crash_within(self, after: int | None) -> None:
        """Crash at the next input with more effects than `after`, when so many have been executed; or not."""
        self._crash_after = after

    def pause(self) -> None:
        """Freeze: nothing is processed, the buffers fill, time goes on."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._stack is not None:
            self._wake_later()
            self._scheduler.at(self._scheduler.now_us, self._announce_ready, self.life)

    def submit(self, payload: bytes, service: Service) -> bool:
        """Hand a message over. False when the processor is down or frozen, or pushes back; try on ready."""
        assert not self._applying, "submit from an event of its own, not from a listener"
        if self._stack is None or self.paused:
            return False
        # Taken at once even when the CPU is busy, so that the caller knows; its cost is added.
        for effect in self._feed(Submit(payload, service)):
            if type(effect) is Tell and type(effect.event) is PushBack:
                return False
        return True

    def ask(self, command: Command) -> bool:
        """What a process asks of the group layer. False when the processor is down or frozen."""
        assert not self._applying, "ask from an event of its own, not from a listener"
        if self._stack is None or self.paused:
            return False
        self._feed(command)
        return True

    def leave(self) -> None:
        """Ask the protocol to leave the ring; it says Stopped when it has."""
        if self._stack is not None:
            self._tasks.append(Leave())
            self._run_or_wake()

    def retire(self) -> None:
        """As a daemon that is told to end: what it took from programs goes first, for leave_us at most."""
        if self._stack is not None and not self.retiring:
            self.retiring = True
            self._retire(self.life, self._scheduler.now_us + self.config.leave_us)

    def _retire(self, life: int, until_us: int) -> None:
        if life != self.life or self._stack is None:
            return
        groups = cast(ProcessorStack, self._stack).groups
        waits = groups.waiting_bytes if groups is not None else 0
        if waits and self._scheduler.now_us < until_us:
            self._scheduler.at(self._scheduler.now_us + RETIRE_POLL_US, self._retire, life, until_us)
        else:
            self.leave()

    def adjust(self, given: Narrowed | Command) -> None:
        """What the runtime tells a protocol that runs."""
        if self._stack is not None:
            self._tasks.append(given)
            self._run_or_wake()

    def _end_life(self) -> None:
        self.life += 1
        self._stack = None
        self._data.clear()
        self._token.clear()
        self._tasks.clear()
        self._timers.clear()
        self._wake_pending = False
        self._crash_after = None

    # Others with its number

    def _on_impostor(self, other: int) -> None:
        assert self._stack is not None
        now_us, own = self._scheduler.now_us, self._stack.incarnation
        # By value: a broken protocol has states of its own.
        has_spoken = cast(ProcessorStack, self._stack).ring.state != State.STARTING
        match self._identity.meet(other, own, now_us, now_us - self._started_us, has_spoken):
            case Answer.GIVE_WAY:
                # Not in the midst of effects, which are those of the life that ends.
                self._scheduler.at(now_us, self._give_way, self.life, other < own)
            case Answer.OUTLIVE:
                self._scheduler.at(now_us, self._live_again, self.life, other)

    def _give_way(self, life: int, counts: bool) -> None:
        """`counts`: it may have heard nothing but recordings (srp/engine.py, GIVE_WAY_MAX)."""
        if life != self.life:
            return
        if counts:
            times = self.disk.latest.get("gave_way", 0) + 1
            self.disk.write({"gave_way": times}, self._on_durable, self.life, 0)
        self.recorder.record(self._scheduler.now_us, "branch", reason="gave way to another of its number")
        self._end_life()
        self.disk.close()
        self.recorder.record(self._scheduler.now_us, "crash")
        self.gave_way()

    def _live_again(self, life: int, other: int) -> None:
        if life != self.life:
            return
        now_us = self._scheduler.now_us
        self._identity.begin_life(now_us)
        self.recorder.record(now_us, "branch", reason="outlived another of its number")
        self._end_life()
        self.recorder.record(now_us, "crash")
        leap = Random(f"{self._around.seed}/life {self.address} {other}").randrange(LEAP_MAX)
        self._begin_life({**self.disk.latest, "incarnation": other + leap})
        self._speak(self.life)

    # Inputs

    def arrive(
        self, channel: Channel, datagrams: Sequence[bytes], size: int, source: int = 0, network: int = 0
    ) -> None:
        """The medium hands over one read's worth of datagrams, from one address."""
        if self._stack is None:
            self._counters["unheard"] += len(datagrams)
        elif self._wake_pending or self.paused or self._scheduler.now_us < self.busy_until_us:
            self._buffer(channel, datagrams, size, source, network)
        else:
            self._receive(channel, datagrams, size, source, network)

    def _buffer(
        self, channel: Channel, datagrams: Sequence[bytes], size: int, source: int, network: int
    ) -> None:
        dropped = (self._token if channel else self._data).put(datagrams, size, source, network)
        if dropped:
            self._overflow(channel, dropped)
        self._wake_later()

    def _overflow(self, channel: Channel, count: int) -> None:
        self._counters["overflowed"] += count
        if self.recorder.wants("drop"):
            reason = f"overflow {channel.name.lower()}"
            self.recorder.record(self._scheduler.now_us, "drop", count=count, reason=reason)

    def _loop_back(self, life: int, transmit: Send, network: int) -> None:
        if life != self.life or self._stack is None:
            return
        inbox = self._token if transmit.channel else self._data
        size = sum([len(burst.data) for burst in transmit.bursts])
        inbox.force(transmit.datagrams, size, self.address, network)
        if self._wake_pending or self.paused or self._scheduler.now_us < self.busy_until_us:
            self._wake_later()
        else:
            self._take_next()

    def _on_durable(self, life: int, ticket: int) -> None:
        if life == self.life:
            self._tasks.append(Written(ticket))
            self._run_or_wake()

    def _on_appended(self, life: int, ticket: int) -> None:
        if life == self.life:
            self._tasks.append(Appended(ticket))
            self._run_or_wake()

    def _on_recall(self, life: int, ticket: int, start: int, bytes_max: int) -> None:
        if life == self.life:
            assert self.log_disk is not None
            self._tasks.append(self.log_disk.recall(ticket, start, bytes_max))
            self._run_or_wake()

    def close_log(self, why: str) -> None:
        """As a node whose log has failed."""
        self._scheduler.at(self._scheduler.now_us, self._give, self.life, CloseLog(why))

    def reopen_log(self) -> None:
        """As a node that finds its disk mended."""
        if self._stack is None or self.log_disk is None:
            return
        replica = cast(ProcessorStack, self._stack).replica
        if replica is not None and not replica.is_open:
            self._give(self.life, self.log_disk.open())

    def _give(self, life: int, command: Command) -> None:
        if life == self.life:
            self._tasks.append(command)
            self._run_or_wake()

    def _on_timer(self) -> None:
        if len(self._timers.due) == 1:
            self._reads = 0
        self._run_or_wake()

    def _announce_ready(self, life: int) -> None:
        if life == self.life:
            for listener in tuple(self.ready_listeners):
                listener()

    # The CPU

    def _run_or_wake(self) -> None:
        if self._wake_pending or self.paused or self._scheduler.now_us < self.busy_until_us:
            self._wake_later()
        else:
            self._take_next()

    def _wake_later(self) -> None:
        if not self._wake_pending and not self.paused:
            self._wake_pending = True
            self._scheduler.at(self.busy_until_us, self._wake, self.life)

    def _wake(self, life: int) -> None:
        if life != self.life:
            return
        self._wake_pending = False
        if self.paused:
            return
        if self._scheduler.now_us >= self.busy_until_us:
            self._take_next()
        if self._data.reads or self._token.reads or self._tasks or self._timers.due:
            self._wake_later()

    def _take_next(self) -> None:
        """Completed writes, then what has arrived, then timers; a timer waits for DRAIN_MAX reads at most."""
        data, token, due = self._data.reads, self._token.reads, self._timers.due
        if self._tasks:
            self._feed(self._tasks.popleft())
        elif due and (self._reads >= DRAIN_MAX or not (data or token)):
            self._feed(Expired(self._timers.take_due()))
        elif data and not (token and self._stack is not None and self._stack.token_first()):
            self._reads += 1
            self._receive(Channel.DATA, *self._data.take())
        elif token:
            self._reads += 1
            self._receive(Channel.TOKEN, *self._token.take())

    def _receive(
        self, channel: Channel, datagrams: Sequence[bytes], size: int, source: int, network: int
    ) -> None:
        stack, costs = self._stack, self._costs
        assert stack is not None
        now_us = self._scheduler.now_us
        local_us = self.clock.local(now_us)
        read, segment_bytes = (datagrams, 0) if len(datagrams) == 1 else _as_read(datagrams)
        given: Arrived = _new(Arrived, (network, channel, read, segment_bytes, source))
        try:
            effects = stack.feed(local_us, given)
        except Exception as error:
            raise self._failure(given, local_us, error) from error
        if self.recordings:
            self._record(given, local_us, effects)
        count = len(datagrams)
        self.packet_events += count
        cost_ns = costs.event_ns + costs.datagram_ns * count + costs.received_byte_ns * size
        if channel:
            cost_ns += costs.token_ns
        self._apply(now_us, effects, cost_ns)

    def _feed(self, given: Input) -> list[Effect]:
        """Any input but a packet."""
        assert self._stack is not None
        now_us = self._scheduler.now_us
        local_us = self.clock.local(now_us)
        try:
            effects = self._stack.feed(local_us, given)
        except Exception as error:
            if isinstance(error, SessionError) and isinstance(given, Command):
                raise  # the layer refuses what a program asks for
            raise self._failure(given, local_us, error) from error
        if self.recordings:
            self._record(given, local_us, effects)
        self._apply(now_us, effects, self._costs.event_ns)
        return effects

    def _record(self, given: Input, local_us: int, effects: list[Effect]) -> None:
        recording = self.recordings[-1]
        recording.inputs.append((local_us, given))
        recording.effects.append(list(effects))

    def _failure(self, given: Input, local_us: int, error: Exception) -> SimulationError:
        return SimulationError(
            f"seed {self._around.seed}: processor {self.me} at {self._scheduler.now_us} us "
            f"(own clock {local_us} us), {_brief(given)}: {type(error).__name__}: {error}"
        )

    # Outputs

    def _apply(self, now_us: int, effects: list[Effect], cost_ns: float) -> None:
        """Execute effects in order. CPU time passes as packets are sent; the rest is instantaneous."""
        slow = self.slow
        spent_ns = cost_ns * slow
        start_us = now_us if now_us > self.busy_until_us else self.busy_until_us
        if effects:
            whole = effects
            if self._crash_after is not None:
                effects = _first(effects, self._crash_after)
            self.recorder.effects(now_us, effects)
            self._applying = True
            for effect in effects:
                if type(effect) is Trace:
                    pass  # the recorder has it
                elif type(effect) is Send:
                    spent_ns += self._cost_of_sending(effect) * slow
                    self._send(effect, start_us + int(spent_ns) // 1000)
                elif type(effect) is Tell:
                    self._told(effect)
                elif type(effect) is SetTimer:
                    self._timers.set(effect.timer, self.clock.to_global(effect.at_us))
                else:
                    self._apply_rarer(effect)
            self._applying = False
            spent_ns += self._owed_ns * slow
            self._owed_ns = 0.0
            if len(effects) < len(whole):
                self._crash_here()
        # Fractions of a microsecond are carried on, or a cheap input would be free.
        total_ns = int(spent_ns) + self._carry_ns
        self.busy_until_us = start_us + total_ns // 1000
        self._carry_ns = total_ns % 1000

    def _crash_here(self) -> None:
        if self._stack is not None and self._crash_after is not None:
            self.report_cut(self._crash_after)
            self.crash()

    def _cost_of_sending(self, transmit: Send) -> float:
        bursts, costs = transmit.bursts, self._costs
        size = len(bursts[0].data) if len(bursts) == 1 else sum([len(burst.data) for burst in bursts])
        return costs.sent_packet_ns + costs.sent_byte_ns * size

    def _send(self, transmit: Send, depart_us: int) -> None:
        for network in transmit.networks:
            self._send_on(network, transmit, depart_us)

    def _send_on(self, network: int, transmit: Send, depart_us: int) -> None:
        to = transmit.to
        if to is None:
            self._medium.send(self.address, transmit, depart_us, network)
        elif to == self.me:
            self._scheduler.at(depart_us + LOOPBACK_US, self._loop_back, self.life, transmit, network)
        else:
            where = self._where.get(to)
            if where == to:
                self._medium.send(self.address, transmit, depart_us, network)
            elif where is None:
                self._counters["no address"] += 1
            else:
                self._medium.send(self.address, transmit._replace(to=where), depart_us, network)

    def _apply_rarer(self, effect: Effect) -> None:
        if type(effect) is CancelTimer:
            self._timers.cancel(effect.timer)
        elif type(effect) is Write:
            self.disk.write(effect.records, self._on_durable, self.life, effect.ticket)
        elif type(effect) is Append:
            assert self.log_disk is not None, "a replica has a log"
            ticket, frames, is_segment = effect
            self.log_disk.append(frames, is_segment, self._on_appended, self.life, ticket)
        elif type(effect) is Recall:
            later_us = self._scheduler.now_us + RECALL_US
            self._scheduler.at(later_us, self._on_recall, self.life, *effect)
        elif type(effect) is Trim:
            assert self.log_disk is not None, "a replica has a log"
            self.log_disk.trim(*effect)
        elif type(effect) is Reachable:
            self.addresses.learn(effect.processor, effect.source, effect.just_now, self._scheduler.now_us)
        elif type(effect) is Alarm:
            if self.heeds_impostors and type(effect.alarm) is Impostor:
                self._on_impostor(effect.alarm.incarnation)
        elif type(effect) is Stopped:
            self._end_life()
            self.recorder.record(self._scheduler.now_us, "leave")

    def _told(self, tell: Tell) -> None:
        layer, event = tell
        if type(event) is Deliver:
            if layer[0] == _GROUPS:
                return  # it was told of on its way there
            costs = self._costs
            self.delivered += 1
            if event.origin == self.me:
                self.delivered_own += 1
            self._owed_ns += costs.delivered_ns + costs.delivered_byte_ns * len(event.payload)
        elif type(event) is InstallConfiguration:
            self.configurations.append(event.configuration)
        elif type(event) is Ready:
            self._scheduler.at(self._scheduler.now_us, self._announce_ready, self.life)
            return
        if self.listener:
            self.listener(self, event)


def _first(effects: list[Effect], count: int) -> list[Effect]:
    """Up to so many that a crash may fall between. What is said inside the processor does not count."""
    for place, effect in enumerate(effects):
        count -= isinstance(effect, OUTWARD) or (type(effect) is Tell and isinstance(effect.event, GROUPED))
        if count < 0:
            return effects[:place]
    return effects


OUTWARD = (Send, SetTimer, CancelTimer, Write, Append, Recall)
GROUPED = (ToProcesses, Taken, Accepted, Durable, Placed, Fenced, Lost, BarrierPassed, GreenLine, GreenRuns)


def _as_read(datagrams: Sequence[bytes]) -> tuple[Sequence[bytes], int]:
    """How receive offload would hand these datagrams over: those of one size in one piece."""
    size = len(datagrams[0])
    together = len(datagrams) > 1 and len(datagrams[-1]) <= size
    if together and all(len(datagram) == size for datagram in datagrams[:-1]):
        return (b"".join(datagrams),), size
    return datagrams, 0


def _brief(given: Input) -> str:
    text = repr(given)
    return text if len(text) <= 200 else text[:197] + "..."
