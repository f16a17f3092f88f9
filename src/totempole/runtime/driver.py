"""A node's loop: one thread that waits, reads, feeds the stack and has its effects executed.

A turn (`_turn`) waits, takes what others have asked for (`call`), drains data, takes the token, and sees to
timers. All that has arrived goes before a timer: a token in the buffer counts as received. The ring goes
before clients; but when a token has come and there is nothing to send, clients go first, or what they send
would wait for the token's next visit.

Each other part has its own module:

- `network_set`: the networks, and how they change while the node runs; one network is in `network`.
- `reading`: reads the sockets in a fair order and feeds what arrives.
- `execution`: carries out effects, and hands events to those who hear them.
- `lives`: stable storage, other nodes with this one's number, and new lives of the processor.
- `admission`: when clients are let in.
- `sending`: what the program above sends, and leaving the ring when all is sent.
- `reports`: lines in the node's log.

The program above is called on this thread (`Application`). What it sends waits until the effects at hand are
done.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from totempole.core.effects import Alarm
from totempole.core.inputs import Arrived, Expired, Input, Start
from totempole.core.order import Deliver, InstallConfiguration
from totempole.corel.events import LogAlarm
from totempole.corel.layer import Replica
from totempole.errors import CodecError, TotemError
from totempole.groups import Batch, GroupLayer
from totempole.jitter import jitter
from totempole.networks.events import NetworkChanged, NetworkRefused
from totempole.runtime.admission import Admission
from totempole.runtime.application import Application
from totempole.runtime.config import NodeConfig
from totempole.runtime.execution import Execution
from totempole.runtime.expected import Attendance
from totempole.runtime.lives import Lives
from totempole.runtime.meters import Meters
from totempole.runtime.network_set import NetworkSet
from totempole.runtime.network_shown import log_line, standing
from totempole.runtime.node_log import NodeLog
from totempole.runtime.reading import Receiver
from totempole.runtime.record import NodeRecord
from totempole.runtime.reports import Reports
from totempole.runtime.sending import Sender
from totempole.session import NetworkStatus
from totempole.srp.alarms import Impostor
from totempole.srp.commands import Rekey
from totempole.srp.engine import SingleRing
from totempole.srp.states import State
from totempole.stack import ProcessorStack, build
from totempole.types import Configuration, ConfigurationKind
from totempole.wire.seal import Keyring

SERVING_US = 2_000
"""So long may clients keep the loop before the ring has its turn."""
SERVING_FIRST_US = 200
"""The same while a token waits."""

HOUSEKEEPING_US = 250_000
ALONE_US = 1_000_000
"""So long after its start a node that meets nobody is taken to be alone."""


def now_us() -> int:
    return time.monotonic_ns() // 1000


class Driver:
    """Opens everything on construction; `run` blocks until the node has left, or raises why it stopped."""

    def __init__(
        self,
        config: NodeConfig,
        application: Application,
        logger: logging.Logger,
        keyring: Keyring | None = None,
        *,
        accepts_clients: bool = False,
    ) -> None:
        """`accepts_clients`: a daemon, which lets clients connect."""
        self._last_words = "the node has stopped"
        """To clients that are there at the end."""
        self.sealed = keyring is not None
        self.key_ids = [key.id for key in keyring.keys] if keyring else []
        self.configuration: Configuration | None = None
        """The regular configuration installed last."""
        self.started_us = self.installed_us = now_us()
        self.meters = Meters(config.lag_alarm_ms * 1000)
        self._application = application
        self._logger = logger
        self._open = ExitStack()
        self._waking = threading.Lock()
        self._closed = False
        try:
            self._open_all(config, keyring, accepts_clients)
        except BaseException:
            self._open.close()
            raise
        self._watched: dict[int, Callable[[int], None]] = {}
        self.timers: dict[Any, int] = {}
        """When each of the protocol's timers, and each function that waits (`at`), is due."""
        self.network_listeners: list[Callable[[NetworkChanged | NetworkRefused], None]] = []
        """Called on this thread with what is told of the networks of a redundant ring."""
        self._housekeeping_us = 0
        self._calls: deque[Callable[[], None]] = deque()
        self.running = True
        self._failure: TotemError | None = None
        self._execution = Execution(
            config.processor, self.networks, self.meters, self, self._lives, self.clients, self.log
        )

    def _open_all(self, config: NodeConfig, keyring: Keyring | None, accepts_clients: bool) -> None:
        on_close = self._open.callback
        self._reports = Reports(self._logger, config.processor, self.sealed)
        self._lives = Lives(config, self, self._reports)
        on_close(self._lives.close)
        self.network_set = NetworkSet(config, self, self._reports)
        on_close(self.network_set.close)
        self.ring_config = self.network_set.open(self._logger)
        self.networks = self.network_set.networks
        self.receiver = Receiver(self.networks, self.network_set.own_addresses, self.meters, self._feed)
        self.attendance = Attendance(config.expectation, self.network_set.addresses_of)
        self._keyring = keyring
        self.record = NodeRecord(config, self.network_set.spec, self._lives.values, self.key_ids)
        on_close(self.record.close)
        self._make_stack()
        self._admission = Admission(
            config,
            self._logger,
            self.ring_config.packet_bytes_max,
            self.fail,
            listens=accepts_clients,
            has_log=self.replica is not None,
        )
        self.clients = self._admission.clients
        self.log = self._make_log()
        self.sender = Sender(self.ring_config, self, self._feed, self._application.ready)
        self.outbox = self.sender.outbox
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        on_close(self._close_waker)
        self._epoll = select.epoll()
        on_close(self._epoll.close)
        self.network_set.watch(self._epoll)
        self._epoll.register(self._waker, select.EPOLLIN)
        on_close(lambda: self._admission.close(self._last_words))
        self._admission.check()

    def _make_stack(self) -> None:
        """A new life of the processor, from what stable storage holds."""
        stable, kinds = self._lives.begin(), self.record.trace_kinds
        draw = jitter(self.config.processor, stable)
        self.stack: ProcessorStack = build(self.network_set.spec, stable, kinds, self._keyring, draw)
        assert self.stack.groups is not None, "a node has groups"
        self.ring: SingleRing = self.stack.ring
        self.layer: GroupLayer = self.stack.groups
        self.replica: Replica | None = self.stack.replica
        self.receiver.begin_life(self.stack)
        self._delivered_before = self.meters.packets_delivered
        self.record.begin(self.stack.incarnation)

    def _make_log(self) -> NodeLog | None:
        if self.replica is None:
            return None

        def replica() -> Replica:
            assert self.replica is not None, "a node that has a log has it in every life"
            return self.replica

        log = NodeLog(self.config, replica, self, self._reports.log, self.clients.log_answered)
        self._open.callback(log.close)
        return log

    def _close_waker(self) -> None:
        with self._waking:
            self._closed = True
            os.close(self._waker)

    @property
    def config(self) -> NodeConfig:
        """The settings in force."""
        return self.network_set.config

    # For other threads

    def call(self, function: Callable[[], None]) -> None:
        """Runs the function on the driver's thread, soon."""
        self._calls.append(function)
        with self._waking:
            # Once closed, the descriptor's number may be another file's.
            if not self._closed:
                os.eventfd_write(self._waker, 1)

    def serve(self, client: socket.socket) -> None:
        """A connected client: the program that this node is embedded in."""
        self.call(lambda: self._admission.admit(client))

    def leave(self) -> None:
        """Leaves the ring gracefully; `run` returns when that is done."""
        self.call(self._begin_to_leave)

    def stop_at_once(self) -> None:
        for network in self.networks:
            network.sockets.giving_up = True
        self.call(self._halt)

    def rekey(self, keyring: Keyring) -> None:
        def do() -> None:
            self._keyring = keyring
            self.key_ids = [key.id for key in keyring.keys]
            self._feed(Rekey(keyring))

        self.call(do)

    def change_settings(self, config: NodeConfig) -> None:
        """Takes what can be taken while the node runs, and tells what needs a restart."""
        self.call(lambda: self.network_set.change_settings(config))

    def _begin_to_leave(self) -> None:
        if not self.sender.is_leaving:
            if self.log is not None:
                self.log.leave()
            self._admission.leave()
            self.sender.leave()

    # For the application, on the driver's own thread

    def watch(self, descriptor: int, on_ready: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Calls the function with what has happened whenever one of the events has."""
        self._watched[descriptor] = on_ready
        self._epoll.register(descriptor, events)

    def rewatch(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def at(self, due_us: int, function: Callable[[], None]) -> None:
        """Calls the function at that time of the steady clock, or a little later."""
        self.timers[function] = due_us

    def unwatch(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)

    def now_us(self) -> int:
        return now_us()

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def feed(self, given: Input) -> None:
        """What a process asks of its layers, or the log answers; in the midst of effects, when they are
        done."""
        if self._execution.busy:
            self._calls.append(lambda: self._feed(given))
        else:
            self._feed(given)

    # The loop

    def close(self) -> None:
        """For a driver that is not run after all."""
        self._open.close()

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            self._last_words = f"the node broke: {type(error).__name__}: {error}"
            raise
        finally:
            self._open.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        self._lives.start()
        self._open.callback(self._lives.stop)
        self.network_set.start()
        self.clients.attach(self)
        self._reports.started(self.networks, self.sealed)
        if self._lives.was_lost:
            self._reports.log(
                logging.WARNING, "stable storage was lost: going on with numbers from the clock"
            )
        self._housekeeping_us = now_us() + HOUSEKEEPING_US
        # Listen before speaking: whoever has this number already shows itself within its null period.
        self.at(now_us() + self.ring_config.null_us * 6 // 5, self._begin)
        try:
            while self.running:
                self._turn()
        finally:
            self.network_set.stop()

    def _begin(self) -> None:
        self.at(now_us() + ALONE_US, self._admission.open)
        self._feed_start()
        self._application.ready()

    def _feed_start(self) -> None:
        self._feed(Start())
        self.network_set.begin_life()
        if self.log is not None:
            self.log.begin()

    def _turn(self) -> None:
        ready = dict(self._epoll.poll(self._wait_s()))
        if self._waker in ready:
            os.eventfd_read(self._waker)
        self._take_calls()
        if self._watched and not self.ring.queued and self.receiver.has_token(ready):
            self._serve(ready, SERVING_FIRST_US)
        if len(self.networks) == 1:
            self.receiver.read_one(self.networks[0], ready)
        else:
            self.receiver.read_several(ready)
        self._take_own()
        self._expire()
        if self._watched:
            self._serve(ready, SERVING_US)
        if self.outbox:
            self.sender.empty()
        elif self.sender.is_leaving:
            self.sender.leave_if_empty()

    def _serve(self, ready: dict[int, int], most_us: int) -> None:
        """What clients have sent, for a while: the rest in the next turn. Takes those who have had theirs out
        of `ready`."""
        until_us = now_us() + most_us
        for descriptor in [each for each in ready if each in self._watched]:
            on_ready = self._watched.get(descriptor)
            if on_ready is not None:
                on_ready(ready.pop(descriptor))
                if now_us() >= until_us:
                    return

    def _wait_s(self) -> float:
        if self._execution.to_self or self._calls:
            return 0.0
        due_us = min(self.timers.values(), default=self._housekeeping_us)
        wait_us = min(due_us, self._housekeeping_us) - now_us()
        return max(0, wait_us) / 1_000_000  # epoll counts milliseconds, and Python rounds up to the next

    def _take_calls(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _take_own(self) -> None:
        """What the processor has sent to itself: the token of a ring of one."""
        own = self._execution.to_self
        for _ in range(len(own)):
            number, send = own.popleft()
            source = self.networks[number].own
            self._feed(Arrived(number, send.channel, send.datagrams, 0, source))

    def _expire(self) -> None:
        now = now_us()
        for timer, due_us in [item for item in self.timers.items() if item[1] <= now]:
            if self.timers.get(timer) == due_us:
                del self.timers[timer]
                self._note_lag(now - due_us)
                if callable(timer):
                    timer()
                else:
                    self._feed(Expired(timer))
        if now >= self._housekeeping_us:
            self._note_lag(now - self._housekeeping_us)
            self._housekeeping_us = now + HOUSEKEEPING_US
            self._keep_house(now)

    # Inputs, and what becomes of them

    def _feed(self, given: Input) -> None:
        if not self.running:
            return
        now = now_us()
        effects = self.stack.feed(now, given)
        self.record.input(now, given, effects)
        if effects:
            self.meters.packets_delivered = self._delivered_before + self.ring.delivered
            self.record.effects(now, effects)
            self._execution.run(now, effects)

    def delivered(self, packet: Deliver) -> None:
        """A message that was sent past all groups."""
        try:
            messages = Batch(packet.payload)
        except CodecError as error:
            self.ring.dropped[error.reason] += 1
            self.ring.drops += 1
            return
        self.meters.messages_delivered += len(messages)
        self.meters.bytes_delivered += messages.size
        self._application.delivered(packet, messages)

    @property
    def network_status(self) -> tuple[NetworkStatus, ...]:
        return standing(self.stack)

    def network_told(self, told: NetworkChanged | NetworkRefused) -> None:
        line = log_line(told)
        self._reports.log(line.level, line.name, **line.fields)
        if isinstance(told, NetworkChanged):
            self.clients.network_changed(told)
        for listener in tuple(self.network_listeners):
            listener(told)

    def stopped(self) -> None:
        self._reports.left(self.layer.unsent_messages + len(self.outbox), self.ring.unsafe)
        self.record.left()
        self._halt()

    def installed(self, installed: InstallConfiguration) -> None:
        configuration = installed.configuration
        self.meters.configuration_changes += 1
        if configuration.kind is ConfigurationKind.REGULAR:
            self.configuration = configuration
            self.installed_us = now_us()
            self.meters.rotations.forget_visit()
            if len(configuration.members) > 1:
                self.timers.pop(self._admission.open, None)
                self._admission.open()
        self._reports.installed(configuration)
        self._application.installed(installed)

    # What goes wrong

    def fail(self, error: TotemError) -> None:
        """Stops without sending anything more."""
        self._reports.log(logging.ERROR, "stopped", reason=str(error))
        self._failure = self._failure or error
        self._last_words = f"the node had to stop: {self._failure}"
        self._halt()

    def _halt(self) -> None:
        self.running = False

    def alarmed(self, alarm: Alarm) -> None:
        match alarm.alarm:
            case Impostor(incarnation):
                has_spoken = self.ring.state is not State.STARTING
                age_us = now_us() - self.started_us
                self._lives.meet(incarnation, alarm.source[0], age_us, has_spoken)
            case LogAlarm() as of_log:
                assert self.log is not None, "only a replica raises these"
                self.log.alarmed(of_log)
            case other:
                self._reports.alarmed(other)

    def live_again(self) -> None:
        """Ends the present life of the processor and begins the next one. Not in the midst of effects."""
        self.record.end_inputs()
        self.timers = {timer: due for timer, due in self.timers.items() if callable(timer)}
        self._execution.to_self.clear()
        self.configuration = None
        self.clients.reset("the node had to start a new life")
        self._make_stack()
        self._reports.forget_drops()
        self._feed_start()

    def _note_lag(self, late_us: int) -> None:
        if self.meters.lag.note(late_us):
            self._reports.log(logging.WARNING, "event loop lag", ms=late_us // 1000)

    # Once in a while

    def _keep_house(self, now: int) -> None:
        self.meters.tick(now)
        self.record.flush()
        self.network_set.look()
        members = self.configuration.members if self.configuration else ()
        for network in self.networks:
            network.book.forget_strangers(now, members)
        self._report_drops(now)
        self._reports.networks(self.networks, self.record)
        self._report_missing(now)
        if self.log is not None:
            self.log.watch()

    def _report_drops(self, now: int) -> None:
        self._reports.drops(self.ring.dropped, self.ring.drops, self.receiver.drop_source[0], now)

    def _report_missing(self, now: int) -> None:
        line = self.attendance.look(now, self.configuration.members if self.configuration else ())
        if line is not None:
            self._reports.log(line.level, line.name, **line.fields)
