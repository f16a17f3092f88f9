"""Executes a stack's effects in order: on the networks, the timers, the disk, and for the layers above.

A table by type says who hears an event (`Tell`): the clients, the log, or the driver itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from totempole.core.effects import (
    Alarm,
    Append,
    CancelTimer,
    Effect,
    Reachable,
    Recall,
    Role,
    Send,
    SetTimer,
    Stopped,
    Tell,
    Trace,
    Trim,
    Write,
)
from totempole.core.order import Deliver, InstallConfiguration
from totempole.corel.events import (
    Accepted,
    BarrierPassed,
    Durable,
    Fenced,
    GreenEnded,
    GreenLine,
    GreenRuns,
    Lost,
    Placed,
    StandingChanged,
    Unknown,
)
from totempole.daemon.service import ClientService
from totempole.groups.events import GroupMessages, Taken, ToProcesses
from totempole.networks.events import NetworkChanged, NetworkRefused
from totempole.runtime.lives import Lives
from totempole.runtime.meters import Meters
from totempole.runtime.network import Network
from totempole.runtime.node_log import NodeLog
from totempole.types import ProcessorId


class Owner(Protocol):
    """What execution needs of the driver. All calls come in the order of the effects."""

    timers: dict[Any, int]
    running: bool

    def delivered(self, packet: Deliver) -> None: ...

    def installed(self, installed: InstallConfiguration) -> None: ...

    def network_told(self, told: NetworkChanged | NetworkRefused) -> None: ...

    def alarmed(self, alarm: Alarm) -> None: ...

    def stopped(self) -> None: ...


class Execution:
    def __init__(
        self,
        me: ProcessorId,
        networks: Sequence[Network],
        meters: Meters,
        owner: Owner,
        lives: Lives,
        clients: ClientService,
        log: NodeLog | None,
    ) -> None:
        """`lives` write to stable storage, `clients` hear what groups and the log tell, and `log` carries out
        the effects of a replica."""
        self.to_self: deque[tuple[int, Send]] = deque()
        """What the processor has sent to itself: the token of a ring of one."""
        self.busy = False
        self._me = me
        self._networks = networks
        self._meters = meters
        self._owner = owner
        self._lives = lives
        self._clients_grouped = clients.grouped
        self._log_effect = log.execute if log is not None else _no_log
        self._tells: dict[type, Callable[[Any], None]] = {
            Deliver: owner.delivered,
            InstallConfiguration: owner.installed,
            ToProcesses: self._to_processes,
            Taken: clients.grouped,
            NetworkChanged: owner.network_told,
            NetworkRefused: owner.network_told,
            **dict.fromkeys((GreenLine, GreenRuns, GreenEnded), clients.log_told),
        }
        if log is not None:
            answers = (Accepted, Durable, Placed, Fenced, Lost, Unknown, BarrierPassed)
            self._tells |= dict.fromkeys(answers, log.answered)
            self._tells[StandingChanged] = log.standing_changed

    def run(self, now_us: int, effects: Sequence[Effect]) -> None:
        owner = self._owner
        timers = owner.timers
        self.busy = True
        for effect in effects:
            if not owner.running:
                break  # a failure: what was decided before it is not carried out after it
            if type(effect) is Send:
                self._send(now_us, effect)
            elif type(effect) is Tell:
                told = self._tells.get(type(effect.event))
                if told is not None:  # else PushBack or Ready: the outbox asks by itself
                    told(effect.event)
            elif type(effect) is SetTimer:
                timers[effect.timer] = effect.at_us
            elif type(effect) is CancelTimer:
                timers.pop(effect.timer, None)
            elif type(effect) is Append:
                self._log_effect(effect)
            elif type(effect) is not Trace:
                self._run_rarer(now_us, effect)
        self.busy = False

    def _run_rarer(self, now_us: int, effect: Effect) -> None:
        match effect:
            case Write():
                self._lives.write(effect)
            case Reachable(processor, network, source, just_now):
                self._networks[network].book.learn(processor, source, just_now, now_us)
            case Recall() | Trim():
                self._log_effect(effect)
            case Alarm():
                self._owner.alarmed(effect)
            case Stopped():
                self._owner.stopped()

    def _send(self, now_us: int, send: Send) -> None:
        size = self._meter(now_us, send)
        for number in send.networks:
            if send.to == self._me:
                self.to_self.append((number, send))
            else:
                network = self._networks[number]
                network.packets_sent += 1
                network.bytes_sent += size
                network.send(send)

    def _meter(self, now_us: int, send: Send) -> int:
        """How many bytes it has."""
        meters, role, size = self._meters, send.role, 0
        for burst in send.bursts:
            size += len(burst.data)
        meters.packets_sent += 1
        meters.bytes_sent += size
        if role is Role.TOKEN:
            meters.tokens += 1
            meters.rotations.visit(now_us)
        elif role is Role.TOKEN_AGAIN:
            meters.token_retransmissions += 1
        elif role is Role.RETRANSMISSION:
            meters.retransmissions += 1
        return size

    def _to_processes(self, event: ToProcesses) -> None:
        if type(event.event) is GroupMessages:
            self._meters.messages_delivered += event.event.count
            self._meters.bytes_delivered += len(event.event.batch)
        self._clients_grouped(event)


def _no_log(effect: Append | Recall | Trim) -> None:
    raise AssertionError(f"only a replica has a log: {effect}")
