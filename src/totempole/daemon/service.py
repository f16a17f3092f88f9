"""All clients of a daemon, on the thread of its driver.

The driver calls when a socket is ready, when it is time, and for every effect of the group layer that
concerns processes. Nothing waits. What events bring for clients is put into their queues; the first of a
round is written at once, the rest at the end of the round (`_round`), many in one call. What clients send is
read in turn (`turns`). An effect is never answered with an input at once: the effects behind it must be
carried out first. So whoever has to go leaves its groups in the next round.
"""

from __future__ import annotations

import logging
import select
from collections import Counter
from collections.abc import Sequence
from typing import Any

from totempole.core.inputs import Command
from totempole.corel.commands import Forget
from totempole.corel.events import Accepted, GreenNews, LogAnswer, Standing
from totempole.daemon.account import Account
from totempole.daemon.config import ClientsConfig
from totempole.daemon.connection import ByteStream, Connection, Phase
from totempole.daemon.descriptors import SPARE, allow_descriptors
from totempole.daemon.following import Followers
from totempole.daemon.host import Host, unwatch
from totempole.daemon.identity import EMBEDDED, Identity
from totempole.daemon.listeners import UnixAcceptor, check_listeners, try_listeners, turn_away
from totempole.daemon.log import Complaints
from totempole.daemon.pool import LargePool
from totempole.daemon.queue import ClientQueue, Memory, Outgoing
from totempole.daemon.tables import Tables
from totempole.daemon.tls import TlsFront
from totempole.daemon.turns import Turns
from totempole.groups import GroupConfig
from totempole.groups.commands import Connect, Disconnect
from totempole.groups.events import Taken, ToProcesses
from totempole.networks.events import NetworkChanged
from totempole.session import FRAME_BYTES_MAX, Limits, NetworkNews, NetworkTable
from totempole.session.codec import cut
from totempole.structured_log import event
from totempole.types import ProcessId, ProcessorId

HOUSEKEEPING_US = 250_000
CROWDED_BYTES = 8_000_000
"""What all clients together may have waiting for the ring."""
BATCH_HEAD_BYTES = 128
"""What a batch takes of a packet beside its own bytes, with the names of a few groups."""
ACCEPTED_US = 3_000
"""A program hears so soon that the log has accepted its records, unless it hears of their place before."""
PROMPT_MAX = 4
"""Clients of one event that it is written to at once; more would hold up the ring."""
MOST_UNREAD = 5
"""Clients that the status names."""

_EXPECTED = frozenset({"bye", "hung up", "node ended"})
"""Ends that are nobody's fault."""
_GONE = select.EPOLLHUP | select.EPOLLERR


class ClientService:
    def __init__(
        self,
        config: ClientsConfig,
        group_config: GroupConfig,
        logger: logging.Logger,
        *,
        processor: ProcessorId,
        cluster_id: int,
        packet_bytes_max: int,
        has_log: bool = False,
    ) -> None:
        config.check_with(group_config)
        self.config = config
        self.limits = Limits(
            send_bytes_max=min(FRAME_BYTES_MAX, config.credit_bytes) // 2,
            batch_bytes=packet_bytes_max - BATCH_HEAD_BYTES,
            message_bytes_max=group_config.message_bytes_max,
            group_name_bytes_max=group_config.group_name_bytes_max,
            groups_per_message_max=group_config.groups_per_message_max,
            groups_per_process_max=group_config.groups_per_process_max,
            append_bytes_max=min(FRAME_BYTES_MAX, group_config.message_bytes_max // 2) if has_log else 0,
        )
        self._processor = processor
        self._cluster_id = cluster_id
        self._logger = logger
        self._complaints = Complaints(logger)
        self._connections: dict[int, Connection] = {}
        """By descriptor."""
        self._watched: dict[int, int] = {}
        """What each descriptor is watched for."""
        self._processes: dict[int, Connection] = {}
        self._accounts: dict[int, Account] = {}
        """Of processes, also of those that are gone while their large messages still wait for the ring."""
        self._next_process = 1
        self._memory = Memory()
        self._pool: LargePool[Connection] = LargePool(config.large_bytes_max)
        self._dirty: dict[Connection, None] = {}
        """To be seen to at the end of the round."""
        self._prompted: set[Connection] = set()
        """Those to whom something was written at once in this round."""
        self._network_watchers: dict[Connection, None] = {}
        """Those who are told when a network's state changes."""
        self._accepting: dict[Connection, None] = {}
        """Those who are to be told what the log has accepted from them."""
        self._followers = Followers(self.feed)
        self._gone: list[int] = []
        """Processes that leave in the next round."""
        self._round_is_set = False
        self._crowded = False
        self._listeners: list[UnixAcceptor | TlsFront] = []
        self._no_more = ""
        """Why nobody is let in any more."""
        self._accepted = 0
        self._shed = 0
        self._refused: Counter[str] = Counter()
        self._disconnected: Counter[str] = Counter()

    # For the driver

    def check(self) -> None:
        """Raises for settings with which `open` could not work. A node that found out then would have joined
        the ring first, and break it up."""
        check_listeners(self.config)
        try_listeners(self.config)

    def attach(self, host: Host) -> None:
        self._host = host
        self._turns = Turns(host.now_us)
        self._tables = Tables(lambda: host.layer, host.now_us)
        self._next_process = host.layer.first_process
        self._keep_house()

    def open(self) -> None:
        """Lets clients in: by the Unix socket, and by TCP if there is an address to listen on."""
        config = self.config
        per_client = 3 if config.listen else 2  # its socket, and memory that it shares
        allow_descriptors(config.clients_max * per_client + SPARE)
        if config.enabled and config.socket is not None:
            self._listeners.append(UnixAcceptor(config, self._host, self.adopt, self._turned_away))
        if config.enabled and config.listen:
            self._listeners.append(TlsFront(config, self._host.call, self.adopt, self._turned_away))

    def adopt(self, sock: ByteStream, identity: Identity = EMBEDDED) -> None:
        """A connected socket: of the program that embeds the node, or from one of the listeners."""
        if self._no_more or len(self._connections) >= self.config.clients_max:
            text = (
                self._no_more
                or f"this daemon has {len(self._connections)} clients, as many as clients_max allows"
            )
            turn_away(sock, text)
            self._turned_away("node ended" if self._no_more else "clients_max", text, identity)
            return
        queue = ClientQueue(self.config.client_receive_bytes_max, self._memory)
        connection = Connection(self, sock, identity, queue, Account(self.config.credit_bytes))
        self._accepted += 1
        self._connections[connection.descriptor] = connection
        self._watched[connection.descriptor] = connection.events
        self._host.watch(
            connection.descriptor, lambda mask: self._on_ready(connection, mask), connection.events
        )

    def grouped(self, told: ToProcesses | Taken) -> None:
        """What the group layer has for processes of this processor."""
        if type(told) is Taken:
            self._taken(told)
            return
        assert type(told) is ToProcesses
        processes = self._processes
        receivers = [processes[number] for number in told.processes if number in processes]
        if receivers:
            frames = [Outgoing(buffers) for buffers in cut(told.event)]
            for connection in receivers:
                connection.tell(told.event, frames)
            if len(receivers) <= PROMPT_MAX:
                self._write_at_once(receivers)
            self._bound_memory()

    def log_told(self, told: GreenNews) -> None:
        """What the log has for all who follow it."""
        self._followers.told(told)
        self._bound_memory()

    def log_answered(self, told: LogAnswer) -> None:
        """What the log has for one process."""
        connection = self._processes.get(told.process)
        if connection is not None:
            connection.log_answered(told)
            if type(told) is not Accepted:
                self._write_at_once([connection])

    def network_changed(self, told: NetworkChanged) -> None:
        _, name, old, new, why, key = told
        news = NetworkNews(name, old.name.lower(), new.name.lower(), why, key)
        frames = [Outgoing(buffers) for buffers in cut(news)]
        for connection in tuple(self._network_watchers):
            connection.put(frames, above=True)

    def _write_at_once(self, connections: Sequence[Connection]) -> None:
        """The first that a client is told in a round, as it is told: before the ring's own packets leave,
        which wake the other hosts. What follows in the same round goes out together at its end."""
        for connection in connections:
            if connection not in self._prompted:
                self._prompted.add(connection)
                connection.write()

    def stop_accepting(self, reason: str = "the node is leaving") -> None:
        self._no_more = reason
        for listener in self._listeners:
            listener.stop_listening()

    def finish(self, reason: str) -> None:
        """Every client is told that it is over, after all that it has not read; `clients` is 0 when all have
        read it, or after a while."""
        self.stop_accepting(reason)
        for connection in list(self._connections.values()):
            connection.end("node ended", reason, politely=True)

    def reset(self, reason: str) -> None:
        """The processor begins a new life: the processes of the old one are no more."""
        for connection in list(self._connections.values()):
            if connection.phase is Phase.OPEN:
                connection.end("node ended", reason, politely=True)
        self._gone.clear()
        self._followers.reset()
        for account in self._accounts.values():
            self._pool.give_back(account.drop_larges())
        self._accounts.clear()
        self._next_process = self._host.layer.first_process

    def close(self, reason: str = "the node has stopped") -> None:
        """At once; what a client's socket does not take now it never gets."""
        self.stop_accepting()
        for connection in list(self._connections.values()):
            connection.end("node ended", reason, politely=True)
            connection.write()
            connection.hang_up()
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    @property
    def clients(self) -> int:
        return len(self._connections)

    def snapshot(self) -> dict[str, Any]:
        """For the status."""
        connections = sorted(self._connections.values(), key=lambda each: each.queue.bytes, reverse=True)
        return {
            "clients": len(connections),
            "clients_max": self.config.clients_max,
            "accepted": self._accepted,
            "refused": dict(self._refused),
            "disconnected": dict(self._disconnected),
            "queued_bytes": self._memory.bytes,
            "memory_bytes_max": self.config.memory_bytes_max,
            "followers": self._followers.count,
            "followers_too_slow": self._followers.ended_slow,
            "shed_messages": self._shed + sum(each.queue.shed for each in connections),
            "large_bytes": self._pool.bytes,
            "large_bytes_max": self._pool.bytes_max,
            "large_waiting": self._pool.waiting,
            "most_unread": [
                {
                    "process": each.process,
                    "name": each.name,
                    "who": str(each.identity),
                    "bytes": each.queue.bytes,
                }
                for each in connections[:MOST_UNREAD]
                if each.queue
            ],
        }

    # For connections

    def now_us(self) -> int:
        return self._host.now_us()

    @property
    def crowded(self) -> bool:
        """Whether so much waits for the ring that nobody is listened to until it is less."""
        if not self._crowded and self._host.layer.waiting_bytes > CROWDED_BYTES:
            self._crowded = True
        return self._crowded

    @property
    def log_position(self) -> int:
        replica = self._host.replica
        return 0 if replica is None else replica.zones.position

    @property
    def log_accepts(self) -> bool:
        replica = self._host.replica
        return replica is None or replica.accepts

    @property
    def log_is_closed(self) -> bool:
        replica = self._host.replica
        return replica is not None and replica.standing is Standing.CLOSED

    @property
    def log_is_open(self) -> bool:
        replica = self._host.replica
        return replica is not None and replica.is_open

    def follow(self, connection: Connection, request: int, log: str) -> bool:
        return self._followers.follow(connection, request, log)

    def unfollow(self, connection: Connection, log: str) -> None:
        self._followers.unfollow(connection, log)

    def tell_accepted_soon(self, connection: Connection) -> None:
        if not self._accepting:
            self._host.at(self._host.now_us() + ACCEPTED_US, self._tell_accepted)
        self._accepting[connection] = None

    def _tell_accepted(self) -> None:
        accepting, self._accepting = self._accepting, {}
        for connection in accepting:
            connection.tell_accepted()

    def wall_us(self) -> int:
        return self._host.wall_us()

    def feed(self, command: Command) -> None:
        self._host.feed(command)

    def welcome(self, connection: Connection) -> tuple[ProcessId, int]:
        number = self._next_process
        self._host.feed(Connect(number))
        self._next_process += 1
        self._processes[number] = connection
        self._accounts[number] = connection.account
        event(
            self._logger,
            logging.DEBUG,
            "client connected",
            process=number,
            name=connection.name,
            **connection.identity.fields(),
        )
        return ProcessId(self._processor, self._host.layer.incarnation, number), self._cluster_id

    def ask_large(self, connection: Connection, total: int) -> None:
        self._pool.ask(connection, total)
        self._want_round()

    def give_back(self, size: int) -> None:
        self._pool.give_back(size)
        self._want_round()

    def ask_groups(self, connection: Connection, request: int) -> bool:
        self._want_round()
        return self._tables.ask(connection, request)

    def ask_networks(self, connection: Connection, request: int, watch: bool) -> None:
        if watch:
            self._network_watchers[connection] = None
        connection.answer(NetworkTable(request, self._host.network_status))

    def has_frames(self, connection: Connection) -> None:
        self._dirty[connection] = None
        self._want_round()

    def ended(self, connection: Connection, reason: str, text: str) -> None:
        self._disconnected[reason] += 1
        self._shed += connection.queue.shed
        connection.queue.shed = 0
        self._tables.remove(connection)
        self._network_watchers.pop(connection, None)
        self._accepting.pop(connection, None)
        self._followers.remove(connection)
        self._turns.remove(connection)
        self._pool.withdraw(connection)
        self._pool.give_back(connection.lent)
        number = connection.process
        if self._processes.pop(number, None) is not None:
            self._gone.append(number)
            if not self._accounts[number].lends:
                del self._accounts[number]
        self._log_end(connection, reason, text)
        self._want_round()

    def closed(self, connection: Connection) -> None:
        self._dirty.pop(connection, None)
        del self._connections[connection.descriptor]
        del self._watched[connection.descriptor]
        unwatch(self._host, connection.descriptor)

    # The loop

    def _on_ready(self, connection: Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            connection.write()
            connection.tell_credit()  # which may have waited for the client to read
        if connection.listens and mask & ~select.EPOLLOUT:
            self._turns.add(connection)
            self._want_round()  # with it, time is counted anew
        elif mask & _GONE:
            connection.hang_up()
        self._rewatch(connection)

    def _want_round(self) -> None:
        if not self._round_is_set:
            self._round_is_set = True
            self._host.at(self._host.now_us(), self._round)

    def _round(self) -> None:
        self._prompted.clear()
        self._let_go()
        self._turns.begin_round()
        for connection in self._pool.granted():
            connection.grant()
        self._tables.answer()
        self._let_go()
        dirty, self._dirty = self._dirty, {}
        for connection in dirty:
            self._see_to(connection)
        self._round_is_set = False
        if self._crowded and self._host.layer.waiting_bytes < CROWDED_BYTES // 2:
            self._listen_again()
        if self._turns or self._dirty or self._gone:
            self._want_round()
        elif (due_us := self._tables.due_us()) is not None:
            self._host.at(due_us, self._round)

    def _listen_again(self) -> None:
        """Whoever has sent least comes first."""
        self._crowded = False
        for connection in sorted(self._connections.values(), key=lambda each: each.account.spent):
            if connection.wants_turn:
                self._turns.add(connection)
            self._rewatch(connection)

    def _let_go(self) -> None:
        gone, self._gone = self._gone, []
        for number in gone:
            if self._host.replica is not None:
                self._host.feed(Forget(number))
            self._host.feed(Disconnect(number))

    def _see_to(self, connection: Connection) -> None:
        connection.tell_credit(in_passing=bool(connection.queue))
        connection.write()
        if connection.wants_turn:
            self._turns.add(connection)
        self._rewatch(connection)
        self._dirty.pop(connection, None)  # what it was told just now is written

    def _rewatch(self, connection: Connection) -> None:
        watched = self._watched.get(connection.descriptor)
        if watched is None or connection.phase is Phase.CLOSED:
            return
        events = connection.events
        if events != watched:
            self._watched[connection.descriptor] = events
            self._host.rewatch(connection.descriptor, events)

    def _taken(self, taken: Taken) -> None:
        account = self._accounts.get(taken.process)
        if account is None:
            return
        lent = account.taken(taken.weight)
        if lent:
            self.give_back(lent)
        connection = self._processes.get(taken.process)
        if connection is not None:
            self.has_frames(connection)
        elif not account.lends:
            del self._accounts[taken.process]

    def _bound_memory(self) -> None:
        if self._memory.bytes + self._pool.bytes > self.config.memory_bytes_max:
            self._make_room()

    def _make_room(self) -> None:
        """The memory is used up: whoever has left most unread has to go; first those that go anyway."""
        closing = [each for each in self._connections.values() if each.phase is Phase.CLOSING]
        closing.sort(key=lambda each: each.queue.bytes)
        while self._memory.bytes + self._pool.bytes > self.config.memory_bytes_max:
            if closing:
                closing.pop().hang_up()
                continue
            connection = max(self._processes.values(), key=lambda each: each.queue.bytes, default=None)
            if connection is None:
                return
            text = (
                f"the client left {connection.queue.bytes} bytes unread, the most of all, "
                "when memory_bytes_max was reached"
            )
            connection.end("memory", text)

    def _keep_house(self) -> None:
        now_us = self._host.now_us()
        self._host.at(now_us + HOUSEKEEPING_US, self._keep_house)
        self._want_round()
        self._followers.keep_house(now_us)
        for connection in list(self._connections.values()):
            if connection.deadline_us is not None and now_us >= connection.deadline_us:
                connection.expire()
            else:
                connection.tell_credit(in_passing=True)
            self._rewatch(connection)

    # What is told about clients

    def _log_end(self, connection: Connection, reason: str, text: str) -> None:
        fields = {"reason": reason, "process": connection.process, "name": connection.name}
        fields |= connection.identity.fields()
        if reason in _EXPECTED:
            event(self._logger, logging.DEBUG, "client gone", **fields)
        else:
            self._complaints.write(self.now_us(), "client disconnected", text=text, **fields)

    def _turned_away(self, reason: str, text: str, identity: Identity | None) -> None:
        self._refused[reason] += 1
        fields = identity.fields() if identity is not None else {}
        self._complaints.write(self.now_us(), "client refused", reason=reason, text=text, **fields)
