"""Executes one protocol object's effects, in order, on real sockets, a real disk and a real clock.

One thread, one loop: wait, take what others have asked for (`call`), drain data, take the token, see to
timers. Data goes before the token unless the protocol says otherwise (the accelerated ring), and all that has
arrived goes before a timer: a token in the buffer counts as received. Writes to stable storage are done by a
thread of their own, so that a slow disk never stops the ring.

The program above is called on this thread (`Application`). What it sends waits in the outbox until the
effects at hand are done.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from random import randrange
from typing import Any

from totempole.daemon.service import ClientService
from totempole.effects import (
    CancelTimer,
    Deliver,
    Effect,
    FormerLife,
    Heard,
    Impostor,
    InstallConfiguration,
    Persist,
    SafeUpTo,
    SetTimer,
    SettingsDiffer,
    Stopped,
    Taken,
    ToProcesses,
    Transmit,
)
from totempole.errors import (
    CodecError,
    ConfigurationError,
    NetworkAbsentError,
    NumberInUseError,
    StorageError,
    TotemError,
)
from totempole.groups import Batch, Outbox
from totempole.groups.body import is_grouped
from totempole.groups.events import GroupMessages
from totempole.groups.over_ring import over_ring
from totempole.identity import LEAP_MAX, PROBATION_US, Answer, Identity
from totempole.jitter import jitter
from totempole.runtime import hints
from totempole.runtime.addresses import AddressBook, Resolver
from totempole.runtime.application import Application
from totempole.runtime.config import NodeConfig
from totempole.runtime.hints import NO_ADDRESS
from totempole.runtime.logs import event
from totempole.runtime.meters import Meters
from totempole.runtime.reading import coalesced
from totempole.runtime.record import NodeRecord
from totempole.runtime.sockets import Address, Read, Sockets
from totempole.runtime.storage import Storage, StorageWriter
from totempole.srp import Endpoint
from totempole.srp.config import RingConfig
from totempole.srp.states import State
from totempole.types import Configuration, ConfigurationKind, Service
from totempole.wire.packets import Join, RegularMessage, RegularToken
from totempole.wire.seal import Keyring
from totempole.wire.soundness import INCARNATION_MAX

READS_MAX = 256
"""Reads of one socket before the loop looks at anything else."""

OUTBOX_BYTES_MAX = 4_000_000
"""Messages that wait for a place in a packet, before senders have to."""

TICKETS_MAX = 2**32
"""Writes of one life; what is left of a ticket's number says which life's it is."""

BURST_BYTES = 60_000
"""A packet that one call of the kernel takes, headers and all."""

SERVING_US = 2_000
"""So long may clients keep the loop before the ring has its turn."""

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
        opens_doors: bool = False,
    ) -> None:
        """`opens_doors`: a daemon, which lets clients connect."""
        self.config = config
        self._opens_doors = opens_doors
        self._settled = False
        self._early: list[socket.socket] = []
        """Programs that came before the node had settled."""
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
            self._open_all(config, keyring)
        except BaseException:
            self._open.close()
            raise
        self._watched: dict[int, Callable[[int], None]] = {}
        self._timers: dict[Any, int] = {}
        """When each of the protocol's timers, and each function that waits (`at`), is due."""
        self._housekeeping_us = 0
        self._to_self: deque[tuple[bytes, ...]] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._source: Address = self.sockets.own
        self._running = True
        self._leaving = False
        self._applying = False
        self._failure: TotemError | None = None
        self._refused_a_send = False
        self._drops_seen = self._drops_logged = 0
        self._drop_source = self._source
        self._reported: set[str] = set()
        self._resolver: Resolver | None = None
        self._last_token_seq = 0
        self._last_sent_seq = 0
        self._identity = Identity(PROBATION_US)

    def _open_all(self, config: NodeConfig, keyring: Keyring | None) -> None:
        on_close = self._open.callback
        self._storage = Storage.open(config.directory, config.processor, config.ring.cluster_id)
        on_close(self._storage.close)
        self.sockets = Sockets(config.network)
        on_close(self.sockets.close)
        self.sockets.on_path_refusal = self._on_path_refusal
        self.ring_config = fit_to_sockets(config.ring, self.sockets, self._logger)
        self.segment_bytes = self.ring_config.segment_bytes
        """The largest datagram that this node's path takes, as far as is known."""
        self.book = AddressBook(config.network)
        self._stable = dict(self._storage.values)
        self._keyring = keyring
        self._life = 0
        self.record = NodeRecord(config, self.ring_config, self._stable, self.key_ids)
        on_close(self.record.close)
        self._make_endpoint()
        self.outbox = Outbox(self.ring_config.packet_bytes_max, OUTBOX_BYTES_MAX)
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        on_close(self._close_waker)
        self._epoll = select.epoll()
        on_close(self._epoll.close)
        for sock in (*self.sockets.data_sockets, self.sockets.token):
            self._epoll.register(sock, select.EPOLLIN)
        self._epoll.register(self._waker, select.EPOLLIN)
        clients = config.clients
        if self._opens_doors:
            clients = replace(clients, socket=config.clients_socket)
        self.clients = ClientService(
            clients,
            config.groups,
            self._logger,
            processor=config.processor,
            cluster_id=config.ring.cluster_id,
            packet_bytes_max=self.ring_config.packet_bytes_max,
        )
        on_close(self.clients.close)
        on_close(self._turn_early_away)
        if self._opens_doors:
            self.clients.check()

    def _make_endpoint(self) -> None:
        """A new life of the processor, from what stable storage holds."""
        self._life += 1
        me, kinds = self.config.processor, self.record.trace_kinds
        ring = self.ring_config
        stable = dict(self._stable)
        self.endpoint = Endpoint(me, ring, stable, kinds, self._keyring, jitter(me, stable))
        self.layer = over_ring(self.endpoint, ring, self.config.groups, kinds)
        self.record.begin(self.endpoint.incarnation)

    def _turn_early_away(self) -> None:
        for client in self._early:
            client.close()

    def _close_waker(self) -> None:
        with self._waking:
            self._closed = True
            os.close(self._waker)

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
        self.call(lambda: self._admit(client))

    def leave(self) -> None:
        """Leaves the ring gracefully; `run` returns when that is done."""
        self.call(self._begin_to_leave)

    def stop_at_once(self) -> None:
        self.sockets.giving_up = True
        self.call(self._halt)

    def rekey(self, keyring: Keyring) -> None:
        def do() -> None:
            self._keyring = keyring
            self.key_ids = [key.id for key in keyring.keys]
            self._feed("rekey", keyring)

        self.call(do)

    def _begin_to_leave(self) -> None:
        """What waits in the outbox is handed to the ring first, as far as leave_us lasts. The group layer has
        its own rule (`GroupLayer.leave`)."""
        if not self._leaving:
            self._leaving = True
            self.clients.finish("the node leaves the ring")
            self._admit_early()  # to be told so
            self.at(now_us() + self.ring_config.leave_us, self._leave_now)
            self._leave_if_empty()

    def _leave_if_empty(self) -> None:
        waits = self.outbox or self._refused_a_send
        if self._leaving and not waits and not self.layer.leaving:
            self._leave_now()

    def _leave_now(self) -> None:
        self._timers.pop(self._leave_now, None)
        self._feed("leave")

    # For the application, on the driver's own thread

    def watch(self, descriptor: int, on_ready: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Calls the function with what has happened whenever one of the events has."""
        self._watched[descriptor] = on_ready
        self._epoll.register(descriptor, events)

    def rewatch(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, events)

    def at(self, due_us: int, function: Callable[[], None]) -> None:
        """Calls the function at that time of the steady clock, or a little later."""
        self._timers[function] = due_us

    def unwatch(self, descriptor: int) -> None:
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)

    def now_us(self) -> int:
        return now_us()

    def feed(self, method: str, *arguments: Any) -> None:
        """What a process asks of the group layer; in the midst of effects, when they are done."""
        if self._applying:
            self._calls.append(lambda: self._feed(method, *arguments))
        else:
            self._feed(method, *arguments)

    def send(self, payloads: Sequence[bytes], service: Service = Service.AGREED) -> bool:
        """Takes messages to be sent; false, and none taken, while too much waits already: `ready` follows."""
        if not self.outbox.accepts:
            self._refused_a_send = True
            return False
        self.outbox.add(payloads, service)
        return True

    # The loop

    def close(self) -> None:
        """For a driver that is not run after all."""
        self._open.close()

    def run(self) -> None:
        try:
            self._run()
        finally:
            self._open.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        writer = StorageWriter(self._storage, self._on_written, self._on_storage_failure)
        self._open.callback(writer.close)
        self._writer = writer
        self._resolver = self._start_resolver()
        self.clients.attach(self)
        self._log(
            logging.INFO, "started", address=self.sockets.own[0], port=self.sockets.own[1], sealed=self.sealed
        )
        if self._storage.lost:
            self._log(logging.WARNING, "stable storage was lost: going on with numbers from the clock")
        self._housekeeping_us = now_us() + HOUSEKEEPING_US
        # Listen before speaking: whoever has this number already shows itself within its null period.
        self.at(now_us() + self.ring_config.null_us * 6 // 5, self._begin)
        try:
            while self._running:
                self._turn()
        finally:
            if self._resolver:
                self._resolver.stop()

    def _begin(self) -> None:
        self.at(now_us() + ALONE_US, self._settle)
        self._feed("start")
        self._application.ready()

    def _settle(self) -> None:
        """Lets clients in, once the node has met the others, or if there are none. One that came earlier
        would join its groups alone, begin afresh, and meet those who have their state a moment later."""
        self._timers.pop(self._settle, None)
        if self._settled:
            return
        self._settled = True
        self._admit_early()
        if self._opens_doors and not self._leaving:
            try:
                self.clients.open()
            except TotemError as error:
                self.fail(error)

    def _admit(self, client: socket.socket) -> None:
        if self._settled or self._leaving:
            self.clients.adopt(client)
        else:
            self._early.append(client)

    def _admit_early(self) -> None:
        early, self._early = self._early, []
        for client in early:
            self.clients.adopt(client)

    def _start_resolver(self) -> Resolver | None:
        if not self.config.network.peers_dns:
            return None
        resolver = Resolver(
            self.config.network, lambda found: self.call(lambda: self.book.set_resolved(found))
        )
        resolver.start()
        return resolver

    def _turn(self) -> None:
        ready = dict(self._epoll.poll(self._wait_s()))
        if self._waker in ready:
            os.eventfd_read(self._waker)
        self._take_calls()
        token = self.sockets.token
        token_waits = token.fileno() in ready
        if token_waits and self.endpoint.token_first:
            self._drain(token, 1)
            token_waits = False
        for sock in self.sockets.data_sockets:
            if sock.fileno() in ready:
                self._drain(sock, READS_MAX)
        if token_waits:
            self._drain(token, 1)
        self._take_own()
        self._expire()
        if self._watched:
            self._serve(ready)
        if self.outbox:
            self._empty_outbox()
        elif self._leaving:
            self._leave_if_empty()

    def _serve(self, ready: Mapping[int, int]) -> None:
        """What clients have sent, for a while: the ring comes first, and the rest in the next turn."""
        until_us = now_us() + SERVING_US
        for descriptor, events in ready.items():
            on_ready = self._watched.get(descriptor)
            if on_ready is not None:
                on_ready(events)
                if now_us() >= until_us:
                    return

    def _wait_s(self) -> float:
        if self._to_self or self._calls:
            return 0.0
        due_us = min(self._timers.values(), default=self._housekeeping_us)
        wait_us = min(due_us, self._housekeeping_us) - now_us()
        return max(0, wait_us) / 1_000_000  # epoll counts milliseconds, and Python rounds up to the next

    def _take_calls(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _drain(self, sock: Any, reads: int) -> None:
        for arrived in coalesced(self.sockets.read, sock, reads):
            self._receive(arrived)

    def _take_own(self) -> None:
        """What the processor has sent to itself: the token of a ring of one."""
        for _ in range(len(self._to_self)):
            self._feed("receive", self._to_self.popleft())

    def _receive(self, read: Read) -> None:
        data, segment_bytes, source = read
        if source == self.sockets.own:
            return  # our own multicast, which loopback gives back
        self.meters.packets_received += 1
        self.meters.bytes_received += len(data)
        self._source = source
        if segment_bytes:
            self._feed("receive_burst", data, segment_bytes)
        else:
            self._feed("receive", (data,))
        if self.endpoint.drops != self._drops_seen:
            self._drops_seen = self.endpoint.drops
            self._drop_source = source

    def _expire(self) -> None:
        now = now_us()
        for timer, due_us in [item for item in self._timers.items() if item[1] <= now]:
            if self._timers.get(timer) == due_us:
                del self._timers[timer]
                self._note_lag(now - due_us)
                if callable(timer):
                    timer()
                else:
                    self._feed("expire", timer)
        if now >= self._housekeeping_us:
            self._note_lag(now - self._housekeeping_us)
            self._housekeeping_us = now + HOUSEKEEPING_US
            self._keep_house(now)

    def _empty_outbox(self) -> None:
        """As many packets as the next visits of the token can take; the rest waits, to be packed together."""
        endpoint = self.endpoint
        while self.outbox and endpoint.queued < endpoint.packets_ahead and self._running:
            if self.layer.leaving:
                return  # leave_us is over, and what waits is lost
            self.outbox.packet_bytes = endpoint.packet_bytes
            body, service = self.outbox.take()
            self._feed("submit", body, service)
        if self._refused_a_send and self.outbox.accepts:
            self._refused_a_send = False
            self._application.ready()
        self._leave_if_empty()

    # Inputs and effects

    def _feed(self, method: str, *arguments: Any) -> None:
        if not self._running:
            return
        now = now_us()
        effects: list[Effect] = getattr(self.layer, method)(now, *arguments)
        self.record.input(method, now, arguments, effects)
        if effects:
            self._apply(now, effects)

    def _apply(self, now: int, effects: list[Effect]) -> None:
        self.record.effects(now, effects)
        self._applying = True
        for effect in effects:
            if not self._running:
                break  # a failure: what was decided before it is not carried out after it
            if type(effect) is Transmit:
                self._transmit(now, effect)
            elif type(effect) is Deliver:
                self._deliver(effect)
            elif type(effect) is SetTimer:
                self._timers[effect.timer] = effect.at_us
            elif type(effect) is CancelTimer:
                self._timers.pop(effect.timer, None)
            elif type(effect) is ToProcesses:
                self._to_processes(effect)
            else:
                self._apply_rarer(now, effect)
        self._applying = False

    def _transmit(self, now: int, transmit: Transmit) -> None:
        to, channel, bursts, packet = transmit
        self._meter(now, transmit)
        if to is None:
            for address in self.book.perhaps_everyone if type(packet) is Join else self.book.everyone:
                self.sockets.send(channel, bursts, address)
        elif to == self.config.processor:
            self._to_self.append(transmit.datagrams)
        else:
            book = self.book
            address_of = book.token_address if channel else book.data_address
            destination = address_of(to)
            if destination is None:
                self.sockets.refused[NO_ADDRESS] += 1
                self._report_once(
                    "a member of the ring cannot be reached", f"processor {to}: {hints.refused(NO_ADDRESS)}"
                )
            else:
                self.sockets.send(channel, bursts, destination)

    def _meter(self, now: int, transmit: Transmit) -> None:
        meters, packet = self.meters, transmit.packet
        meters.packets_sent += 1
        for burst in transmit.bursts:
            meters.bytes_sent += len(burst.data)
        if type(packet) is RegularToken:
            if packet.token_seq != self._last_token_seq:
                meters.tokens += 1
                meters.rotations.visit(now)
                self._last_token_seq = packet.token_seq
            else:
                meters.token_retransmissions += 1
        elif type(packet) is RegularMessage and (
            packet.sender != self.config.processor or packet.seq <= self._last_sent_seq
        ):
            meters.retransmissions += 1
        elif type(packet) is RegularMessage:
            self._last_sent_seq = packet.seq

    def _deliver(self, packet: Deliver) -> None:
        meters = self.meters
        meters.packets_delivered += 1
        if is_grouped(packet.payload):
            return  # what it means for processes follows
        try:
            messages = Batch(packet.payload)
        except CodecError as error:
            self.endpoint.dropped[error.reason] += 1
            self.endpoint.drops += 1
            return
        meters.messages_delivered += len(messages)
        meters.bytes_delivered += messages.size
        self._application.delivered(packet, messages)

    def _to_processes(self, effect: ToProcesses) -> None:
        if type(effect.event) is GroupMessages:
            self.meters.messages_delivered += effect.event.count
            self.meters.bytes_delivered += len(effect.event.batch)
        self.clients.grouped(effect)

    def _apply_rarer(self, now: int, effect: Effect) -> None:
        match effect:
            case Taken():
                self.clients.grouped(effect)
            case SafeUpTo():
                self._application.safe(effect)
            case Persist(ticket=ticket, values=values):
                self._persist(ticket, values)
            case InstallConfiguration():
                self._install(effect)
            case Heard(processor=processor, just_now=just_now):
                self.book.learn(processor, self._source, just_now, now)
            case SettingsDiffer():
                self._warn_of_settings(effect)
            case Impostor(incarnation=incarnation):
                self._on_impostor(self._source[0], incarnation)
            case FormerLife():
                self._report_once("a processor speaks in a life that is over", hints.former_life(effect))
            case Stopped():
                self._log_leave()
                self.record.left()
                self._halt()
            case _:
                pass  # PushBack and Ready: the outbox asks by itself; Trace: recorded above

    def _log_leave(self) -> None:
        self._log(logging.INFO, "left the ring")
        messages, packets = self.layer.unsent_messages + len(self.outbox), self.endpoint.unsafe
        if messages or packets:
            self._log(
                logging.WARNING,
                "leave_us was over before all was sent: some of it may be lost",
                messages=messages,
                packets=packets,
            )

    def _install(self, effect: InstallConfiguration) -> None:
        configuration = effect.configuration
        self.meters.configuration_changes += 1
        self._last_token_seq = self._last_sent_seq = 0
        if configuration.kind is ConfigurationKind.REGULAR:
            self.configuration = configuration
            self.installed_us = now_us()
            self.meters.rotations.forget_visit()
            if len(configuration.members) > 1:
                self._settle()
        self._log(
            logging.INFO if configuration.kind is ConfigurationKind.REGULAR else logging.DEBUG,
            f"{configuration.kind.value} configuration",
            ring=str(configuration.id),
            members=",".join(map(str, configuration.members)),
        )
        self._application.installed(effect)

    def _persist(self, ticket: int, values: Mapping[str, int]) -> None:
        self._submit(self._life * TICKETS_MAX + ticket, values)

    def _submit(self, ticket: int, values: Mapping[str, int]) -> None:
        self._stable.update(values)
        try:
            self._writer.submit(ticket, values)
        except StorageError as error:
            self.fail(error)

    # What goes wrong

    def _on_written(self, ticket: int) -> None:
        """On the writer's thread."""
        life, own_ticket = divmod(ticket, TICKETS_MAX)
        self.call(lambda: self._feed("persisted", own_ticket) if life == self._life else None)

    def _on_storage_failure(self, error: StorageError) -> None:
        self.call(lambda: self.fail(error))

    def fail(self, error: TotemError) -> None:
        """Stops at once and says nothing more to anyone: silence is the one thing that is always true."""
        self._log(logging.ERROR, "stopped", reason=str(error))
        self._failure = self._failure or error
        self._halt()

    def _halt(self) -> None:
        self._running = False

    def _warn_of_settings(self, differ: SettingsDiffer) -> None:
        self._log(
            logging.WARNING,
            "another node has another setting: give all nodes of a ring the same",
            setting=differ.name,
            here=differ.mine,
            there=differ.theirs,
            node=differ.processor,
        )

    def _on_impostor(self, where: str, incarnation: int) -> None:
        number = self.config.processor
        self._log(logging.ERROR, "another node uses this processor's number", number=number, where=where)
        own = self.endpoint.incarnation
        now, has_spoken = now_us(), self.endpoint.state is not State.STARTING
        answer = self._identity.meet(incarnation, own, now, now - self.started_us, has_spoken)
        if answer is Answer.GIVE_WAY:
            if incarnation < own:
                # Counted, because a recording of a former life must not keep the node away for ever.
                self._submit(0, {"gave_way": self._stable.get("gave_way", 0) + 1})
            self.fail(
                NumberInUseError(
                    f"processor = {number}: the node at {where} has this number already, or repeats what one "
                    "has said; give each node a number of its own, then start this one again"
                )
            )
        elif answer is Answer.OUTLIVE:
            # Not in the midst of effects, which are those of the life that ends.
            self._calls.append(lambda: self._live_again(incarnation))

    def _live_again(self, incarnation: int) -> None:
        """The others take the impostor for a later life of ours, and us for a ghost: outlive it."""
        if incarnation < self.endpoint.incarnation:
            return  # that has been done since
        self._identity.begin_life(now_us())
        incarnation += randrange(LEAP_MAX)
        if incarnation >= INCARNATION_MAX:
            self.fail(
                ConfigurationError(
                    f"processor = {self.config.processor} has no incarnations left: give the node another "
                    "number, or restart the whole cluster with empty directories"
                )
            )
            return
        self._log(logging.WARNING, "starting a new life", incarnation=incarnation + 1)
        self._stable["incarnation"] = incarnation
        self.record.end_inputs()
        self._timers = {timer: due for timer, due in self._timers.items() if callable(timer)}
        self._to_self.clear()
        self.configuration = None
        self.clients.reset("the node had to start a new life")
        self._make_endpoint()
        self._last_token_seq = self._last_sent_seq = self._drops_seen = self._drops_logged = 0
        self._feed("start")

    def _on_path_refusal(self, fits: int) -> None:
        self.call(lambda: self._limit_segments(fits))

    def _limit_segments(self, fits: int) -> None:
        if fits < self.segment_bytes:
            self._log(
                logging.WARNING, "segments are too long for the path", bytes=self.segment_bytes, now=fits
            )
            self.segment_bytes = fits
            self._feed("limit_segments", fits)

    def _note_lag(self, late_us: int) -> None:
        if self.meters.lag.note(late_us):
            self._log(logging.WARNING, "kept from running", ms=late_us // 1000)

    # Once in a while

    def _keep_house(self, now: int) -> None:
        self.meters.tick(now)
        self.record.flush()
        if not self.config.network.segment_bytes:
            self._follow_interface()
        self.book.forget_strangers(now, self.configuration.members if self.configuration else ())
        self._report_drops()
        self._report_once("going on without offload", self.sockets.offload.reason)
        self._report_once("going on without a trace", self.record.failure)
        if self._resolver is not None:
            self._report_once("peers_dns is not resolved", self._resolver.failure)

    def _follow_interface(self) -> None:
        try:
            fits = self.sockets.segment_bytes
        except OSError as error:
            name = self.sockets.interface.name
            self.fail(
                NetworkAbsentError(f"interface {name}: {error.strerror}; start the node when it is back")
            )
        else:
            self._limit_segments(fits)

    def _report_drops(self) -> None:
        if self.endpoint.drops != self._drops_logged:
            self._drops_logged = self.endpoint.drops
            reasons = dict(self.endpoint.dropped)
            self._log(logging.WARNING, "packets dropped", last_from=self._drop_source[0], reasons=reasons)
            for reason in reasons:
                self._report_once("why packets are dropped, most likely", hints.dropped(reason, self.sealed))

    def _report_once(self, what: str, reason: str) -> None:
        if reason and reason not in self._reported:
            self._reported.add(reason)
            self._log(logging.WARNING, what, reason=reason)

    def _log(self, level: int, name: str, **fields: Any) -> None:
        event(self._logger, level, name, processor=self.config.processor, **fields)


def fit_to_sockets(ring: RingConfig, sockets: Sockets, logger: logging.Logger) -> RingConfig:
    """The ring's settings with what only the sockets know: the segment size, and a window that fits them."""
    room = sockets.receive_buffer_bytes
    ring = replace(ring, segment_bytes=sockets.segment_bytes)
    if room >= ring.window_bytes:
        return ring
    packet_bytes_max = min(ring.packet_bytes_max, max(room // 2, BURST_BYTES))
    if room < packet_bytes_max:
        raise ConfigurationError(
            f"receive_buffer_bytes: the kernel gives {room} bytes, too few for one packet of "
            f"{packet_bytes_max}: {_remedy(sockets, ring)}"
        )
    event(
        logger,
        logging.WARNING,
        "receive buffer smaller than the window: window lowered to it",
        receive_buffer_bytes=room,
        window_bytes=ring.window_bytes,
        remedy=_remedy(sockets, ring),
    )
    return replace(
        ring,
        window_bytes=room,
        each_time_bytes=min(ring.each_time_bytes, room),
        packet_bytes_max=packet_bytes_max,
    )


def _remedy(sockets: Sockets, ring: RingConfig) -> str:
    if sockets.asked_buffer_bytes < ring.window_bytes:
        return f"set receive_buffer_bytes = {ring.window_bytes}"
    return f"sysctl -w net.core.rmem_max={ring.window_bytes}"
