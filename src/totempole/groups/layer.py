"""Process groups over any engine that orders messages (Totem CACM "The Totem Process Group Interface").

What the order below delivers becomes events for the processes of this processor (`ToProcesses`). Processes
join and leave groups and multicast to them (commands.py); all of that travels in the total order, so that
every processor derives the same views (membership.py). Small messages share a packet and large ones are cut
up (lanes.py, partial.py). What does not come from a group layer is told as it is.

Each packet names its epoch: the configuration whose views were in force when it was handed to the ring. A
packet that is still queued when the configuration changes is broadcast in the next one. It arrives there
under views that it was not sent in, perhaps before any are in force: every receiver passes over it, and its
sender, to whom it comes back like to everyone, sends its contents again in the new epoch. So a receiver never
has to hold messages back, no message is delivered before its view, and a message in pieces is delivered whole
in one configuration, or not at all. A sender's packets come back in the order in which they left, and all of
them before its part of the table, which was queued behind them: the exchange is over only when whatever is
to be sent again is known, and it goes first.

A processor that leaves goes on with all of this until its processes have nothing left to send: nothing waits
here, and nothing that was handed to the order can still come back. Only then the order is told to leave.

Deviation from Totem CACM: see membership.py.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain
from typing import Protocol

from totempole.core.effects import Trace
from totempole.core.inputs import Command
from totempole.core.io import Scope
from totempole.core.order import (
    Deliver,
    InstallConfiguration,
    Leave,
    Order,
    PushBack,
    Ready,
    SafeUpTo,
    Submit,
)
from totempole.core.stack import BaseLayer, Commands
from totempole.errors import CodecError, ConfigurationError, SessionError
from totempole.groups.body import (
    DONOR,
    LAST,
    NOTICE,
    PROCESS_NUMBER_MAX,
    WANTS_STATE,
    Run,
    RunKind,
    check_info,
    epoch_of,
    is_grouped,
    pack_part,
    pack_transfer,
    runs_of,
    unpack_part,
    unpack_transfer,
)
from totempole.groups.commands import Connect, Disconnect, GiveState, JoinGroup, LeaveGroup, Multicast
from totempole.groups.config import GroupConfig
from totempole.groups.events import BecameSafe, GroupEvent, GroupMessages, Taken, ToProcesses
from totempole.groups.lanes import TABLE_LANE, Lanes, Unit
from totempole.groups.membership import Membership, Places
from totempole.groups.packing import INFO_BYTES_MAX, Batch, pack_names, packed_bytes
from totempole.groups.partial import Partials
from totempole.groups.tracing import GroupTrace
from totempole.types import NO_RING, OrderKey, Payload, Place, ProcessId, ProcessorId

PACKET_BYTES_MIN = 512

USER_PROCESS = 1
"""The number of the layer above, where there is one. Programs have higher ones."""

RESERVED = "totem/"
"""Groups of such names are for the layer above."""

STATE_CHUNK_BYTES_MAX = 262_144


class _Local:
    """A process of this processor."""

    __slots__ = ("groups", "has_joined", "number_next")

    def __init__(self) -> None:
        self.groups: set[str] = set()
        """What it has asked to be in."""
        self.has_joined = False
        """Whether the others may have heard of it."""
        self.number_next = 1


class GroupUser(Protocol):
    """A layer above that is a process of this processor, and is told directly."""

    def told(self, event: GroupEvent) -> None: ...

    def told_unordered(self, sender: ProcessorId, payload: bytes) -> None: ...


class GroupLayer(BaseLayer):
    def __init__(
        self,
        scope: Scope,
        order: Order,
        me: ProcessorId,
        incarnation: int,
        config: GroupConfig,
        packet_bytes_max: int,
    ) -> None:
        if packet_bytes_max < PACKET_BYTES_MIN:
            raise ConfigurationError(
                f"packet_bytes_max = {packet_bytes_max}: groups need at least {PACKET_BYTES_MIN}"
            )
        self.name = scope.name
        self.incarnation = incarnation
        self.order = order
        self.dropped: Counter[str] = Counter()
        """Malformed packets, by what is wrong with them."""
        self._scope = scope
        self._io = scope.io
        self._me = me
        self._config = config
        self._names_bytes_max = packet_bytes_max // 2
        self._processes: dict[int, _Local] = {}
        self._process_last = 0
        self._membership = Membership(me, incarnation, self._tell)
        self._lanes = Lanes(packet_bytes_max, config.partial_bytes_max)
        self._partials = Partials()
        self._trace = GroupTrace(me, incarnation, scope.io.trace_kinds)
        self._in_flight: deque[tuple[Unit, ...]] = deque()
        """The units of each packet that has been handed to the order and has not come back."""
        self._came_back: list[Unit] = []
        """Undelivered, since the configuration had changed."""
        self._safe_key = OrderKey(NO_RING, 0, NO_RING)
        self._notices: deque[tuple[OrderKey, tuple[int, ...], BecameSafe]] = deque()
        self._user: GroupUser | None = None
        self._leaving = False
        self._closed = False
        """Nothing more is handed to the order."""

    @property
    def commands(self) -> Commands:
        return {
            Submit: self._submit,
            Leave: self._leave,
            Connect: self._connect,
            Disconnect: self._disconnect,
            JoinGroup: self._join,
            LeaveGroup: self._leave_group,
            Multicast: self._multicast,
            GiveState: self._give_state,
        }

    # The layer above

    def attach(self, user: GroupUser) -> int:
        """Makes a layer the first process of this processor. Only it uses groups of reserved names."""
        assert self._user is None, "one layer stands above"
        assert not self._process_last, "it is there before any program"
        self._user = user
        self._connect(Connect(USER_PROCESS))
        return USER_PROCESS

    def act(self, command: Command) -> None:
        """What the layer above asks for. It calls `settle` when it has asked for all."""
        self.commands[type(command)](command)

    def send_unordered(self, payload: bytes) -> None:
        """From the layer above to that of every other processor, past all groups and the order. It may be
        lost."""
        self.order.send_unordered(payload)

    def waiting(self, process: int) -> int:
        """Bytes of a process that the order has not taken."""
        return self._lanes.weight((process, False))

    def _submit(self, command: Submit) -> None:
        """Past all groups, to every processor."""
        if is_grouped(command.payload):
            raise SessionError("a payload that looks like a group packet: begin it with another byte")
        if self._leaving or not self.order.submit(command.payload, command.service, command.groups):
            self._scope.tell(PushBack())

    def _leave(self, _command: Leave) -> None:
        """Leaves when all that processes have sent is delivered, or when leave_us has passed."""
        if not self._leaving:
            self._leaving = True
            self.order.leave(more_to_come=True)

    # Processes

    @property
    def groups(self) -> dict[str, tuple[ProcessId, ...]]:
        return self._membership.groups

    @property
    def info(self) -> dict[str, dict[ProcessId, bytes]]:
        """What members of groups have said of themselves."""
        return self._membership.info

    @property
    def group_count(self) -> int:
        """May be asked on any thread."""
        return self._membership.group_count

    @property
    def views_in_force(self) -> bool:
        """Not while the members of a new configuration exchange tables."""
        return self._membership.epoch is not None

    @property
    def waiting_bytes(self) -> int:
        """What processes have sent and the ring has not taken yet."""
        return self._lanes.waiting_bytes

    @property
    def leaving(self) -> bool:
        """Processes may leave groups and disconnect; whatever else they ask for is refused."""
        return self._leaving

    @property
    def unsent_messages(self) -> int:
        """Messages of processes that nobody is known to have received yet."""
        return sum(unit.count for unit in self._unsent() if unit.kind is RunKind.MESSAGES)

    def _unsent(self) -> list[Unit]:
        """What waits, and what was handed to the order and could still come back."""
        in_flight = chain.from_iterable(self._in_flight)
        units = dict.fromkeys(chain(self._lanes.units(), in_flight, self._came_back))
        return [unit for unit in units if unit.kind is not RunKind.TABLE]

    @property
    def first_process(self) -> int:
        """The lowest number that a program may have."""
        return USER_PROCESS if self._user is None else USER_PROCESS + 1

    @property
    def partial_bytes(self) -> int:
        """What has come in pieces and is not whole yet."""
        return self._partials.bytes

    @property
    def _memberships(self) -> int:
        return sum(len(local.groups) for local in self._processes.values())

    def accepts(self, process: int) -> bool:
        """Whether it may send more at once; `Taken` says when there is room again."""
        lanes = self._lanes
        return lanes.weight((process, False)) + lanes.weight((process, True)) < self._config.lane_bytes_max

    def _connect(self, command: Connect) -> None:
        process = command.process
        self._check_stays()
        if not self._process_last < process <= PROCESS_NUMBER_MAX:
            raise SessionError(
                f"process {process}: give a number from {self._process_last + 1} to {PROCESS_NUMBER_MAX}"
            )
        if len(self._processes) >= self._config.processes_max:
            raise SessionError(
                f"this processor has {len(self._processes)} processes, as many as processes_max allows"
            )
        assert process > next(reversed(self._processes), 0), "the numbers of processes ascend"
        self._process_last = process
        self._processes[process] = _Local()
        self._membership.connect(process)
        self._note(self._trace.process(process, "connect"))

    def _disconnect(self, command: Disconnect) -> None:
        process = command.process
        local = self._local(process)
        del self._processes[process]
        self._membership.forget(process)
        self._lanes.drop((process, True))
        assert local.has_joined or not local.groups, "who is in a group has joined one"
        if local.has_joined:
            self._lanes.add(Unit(RunKind.DISCONNECT, (process, False), count=len(local.groups)))
        self._note(self._trace.process(process, "disconnect"))

    def _join(self, command: JoinGroup) -> None:
        process, group, donor, wants_state = (
            command.process,
            command.group,
            command.donor,
            command.wants_state,
        )
        local = self._local(process)
        self._check_stays()
        self._check_name(group)
        if process != USER_PROCESS or self._user is None:
            self._check_is_free(group)
        if len(command.info) > INFO_BYTES_MAX:
            raise SessionError(f"info of {len(command.info)} bytes: give at most {INFO_BYTES_MAX}")
        if group in local.groups:
            raise SessionError(f"group {group!r} is joined already")
        if len(local.groups) >= self._config.groups_per_process_max:
            raise SessionError(
                f"{len(local.groups)} groups are joined, as many as groups_per_process_max allows"
            )
        if self._memberships >= self._config.memberships_max:
            raise SessionError(
                f"the processes of this processor have joined {self._memberships} groups in all, as many as "
                "memberships_max allows"
            )
        local.groups.add(group)
        local.has_joined = True
        flags = DONOR * donor | WANTS_STATE * wants_state
        names = pack_names((group,))
        self._lanes.add(Unit(RunKind.JOIN, (process, False), names=names, content=command.info, flags=flags))
        self._note(self._trace.joined(process, group, donor, wants_state))

    def _leave_group(self, command: LeaveGroup) -> None:
        process, group = command.process, command.group
        local = self._local(process)
        if group not in local.groups:
            raise SessionError(f"group {group!r} is not joined")
        local.groups.discard(group)
        self._lanes.add(Unit(RunKind.LEAVE, (process, False), names=pack_names((group,))))
        self._note(self._trace.left(process, group))

    def _multicast(self, command: Multicast) -> None:
        process, groups, batch = command.process, command.groups, command.batch
        local = self._local(process)
        self._check_stays()
        count = self._check_messages(process, groups, batch)
        number = local.number_next
        local.number_next += count
        unit = Unit(
            RunKind.MESSAGES,
            (process, False),
            names=pack_names(groups),
            content=batch,
            service=command.service,
            flags=NOTICE * command.notice,
            number=number,
            count=count,
        )
        self._lanes.add(unit)
        if self._trace.on:
            self._io.effects.append(self._trace.sent(process, number, count, groups, batch, command.service))

    def _give_state(self, command: GiveState) -> None:
        process, group, joiner, place = command.process, command.group, command.joiner, command.place
        content, last = command.content, command.last
        self._local(process)
        self._check_stays()
        if len(content) > STATE_CHUNK_BYTES_MAX:
            raise SessionError(
                f"a piece of state of {len(content)} bytes: give at most {STATE_CHUNK_BYTES_MAX} at once"
            )
        donor = ProcessId(self._me, self.incarnation, process)
        whole = b"".join((pack_transfer(joiner, place), content))
        names = pack_names((group,))
        unit = Unit(RunKind.STATE, (process, True), names=names, content=whole, flags=LAST * last)
        if not self._membership.expects(donor, group, joiner, place):
            self._scope.tell(Taken(process, unit.weight))
        else:
            self._lanes.add(unit)
            if self._trace.on:
                self._io.effects += self._trace.given(process, group, joiner, place, content, last)

    # What processes may ask for

    def _local(self, process: int) -> _Local:
        local = self._processes.get(process)
        if local is None:
            raise SessionError(f"process {process} is not connected")
        return local

    def _check_stays(self) -> None:
        if self._leaving:
            raise SessionError("this node is leaving the ring: it takes nothing more; try another node")

    def _check_messages(self, process: int, groups: tuple[str, ...], batch: Payload) -> int:
        if not 1 <= len(groups) <= self._config.groups_per_message_max:
            raise SessionError(
                f"a message to {len(groups)} groups: give 1 to {self._config.groups_per_message_max} "
                "(groups_per_message_max)"
            )
        for group in groups:
            self._check_name(group)
            if process != USER_PROCESS or self._user is None:
                self._check_is_free(group)
        if len(pack_names(groups)) > self._names_bytes_max:
            raise SessionError("the groups' names together are too long for a packet: name fewer")
        try:
            count = len(Batch(batch))
        except CodecError as error:
            raise SessionError(f"messages that are not packed as they should be: {error}") from None
        if len(batch) > packed_bytes(count, self._config.message_bytes_max):
            raise SessionError(
                f"a message of {len(batch)} bytes: it has at most {self._config.message_bytes_max} "
                "(message_bytes_max)"
            )
        return count

    def _check_is_free(self, group: str) -> None:
        if group.startswith(RESERVED):
            raise SessionError(f"group name {group[:40]!r}: names that begin with {RESERVED!r} are taken")

    def _check_name(self, group: str) -> None:
        try:
            size, limit = len(group.encode()), self._config.group_name_bytes_max
        except UnicodeEncodeError:
            raise SessionError(f"group name {group[:40]!r}: it cannot be written as UTF-8") from None
        if not 1 <= size <= limit:
            raise SessionError(
                f"group name {group[:40]!r} has {size} bytes: give 1 to {limit} (group_name_bytes_max)"
            )

    # Sending

    def settle(self) -> None:
        """Sends what can be sent now that all layers are done with the input."""
        if self._lanes:
            self._pump()
        if self._leaving and not self._closed and not self._unsent():
            self._closed = True
            self.order.leave()

    def _pump(self) -> None:
        """Hands packets to the order, as many as its next visits can take: only the table while it is being
        exchanged, nothing while there is nobody to exchange it with."""
        membership = self._membership
        order = self.order
        while self._lanes and not self._closed and order.queued < order.packets_ahead:
            self._lanes.packet_bytes = order.packet_bytes
            if membership.exchanging is not None:
                packed = self._lanes.take(membership.exchanging, only=TABLE_LANE)
            elif membership.epoch is not None:
                packed = self._lanes.take(membership.epoch)
            else:
                return
            if packed is None:
                return
            self._in_flight.append(packed.units)
            for unit in packed.finished:
                if not unit.taken and unit.lane is not TABLE_LANE:
                    unit.taken = True
                    if self._user is None or unit.lane[0] != USER_PROCESS:
                        self._scope.tell(Taken(unit.lane[0], unit.weight))
            at_rest = self._user is not None and all(unit.lane[0] == USER_PROCESS for unit in packed.units)
            taken = order.submit(packed.body, packed.service, at_rest=at_rest)
            assert taken, "there was room"

    # What the order brings

    def deliver(self, packet: Deliver) -> None:
        if not is_grouped(packet.payload):
            self._scope.tell(packet)
            return
        own = packet.origin == self._me and packet.message.incarnation == self.incarnation
        if own and not self._in_flight:
            self._drop(CodecError("group packet of our own that we did not send"))
            return
        assert self._membership.follows(packet.key), "packets come in their order"
        units = self._in_flight.popleft() if own else ()
        try:
            epoch = epoch_of(packet.payload)
            if epoch == self._membership.epoch:
                self._take_runs(packet)
            elif epoch == self._membership.exchanging:
                self._take_parts(packet)
            elif own:
                self._came_back += [unit for unit in units if unit.kind is not RunKind.TABLE]
        except CodecError as error:
            self._drop(error)

    def deliver_unordered(self, origin: ProcessorId, payload: bytes) -> None:
        if self._user is not None:
            self._user.told_unordered(origin, payload)

    def _take_runs(self, packet: Deliver) -> None:
        places = Places(packet.key)
        for run in runs_of(packet.payload):
            sender = ProcessId(packet.origin, packet.message.incarnation, run.process)
            whole = run if len(run.content) == run.total else self._partials.add(sender, run)
            if whole is None:
                continue
            if whole.kind == RunKind.MESSAGES:
                self._take_messages(places.next(), sender, whole, packet)
            else:
                self._take_run(places, sender, whole)

    def _take_run(self, places: Places, sender: ProcessId, run: Run) -> None:
        membership = self._membership
        match run.kind:
            case RunKind.JOIN:
                donor, wants_state = bool(run.flags & DONOR), bool(run.flags & WANTS_STATE)
                info = check_info(run.content)
                membership.join(places, sender, _group_of(run), donor, wants_state, info)
            case RunKind.LEAVE:
                membership.leave(places, sender, _group_of(run))
            case RunKind.DISCONNECT:
                membership.disconnect(places, sender, run.count)
                self._partials.forget(sender)
            case RunKind.STATE:
                joiner, asked, content = unpack_transfer(run.content)
                last = bool(run.flags & LAST)
                membership.state(places, sender, _group_of(run), joiner, asked, content, last)
            case _:
                raise CodecError("group run of unknown kind")

    def _take_messages(self, place: Place, sender: ProcessId, run: Run, packet: Deliver) -> None:
        numbers = self._membership.local_of(run.names)
        if not numbers:
            return
        batch = run.content
        if 2 * len(batch) < len(packet.payload):
            batch = bytes(batch)  # whoever keeps a few messages must not keep a whole packet
        event = GroupMessages(sender, run.number, run.count, run.names, batch, packet.service, place)
        self._tell(numbers, event)
        if run.flags & NOTICE:
            notice = BecameSafe(sender, run.number, run.count, run.names, place)
            if self._is_safe(place):
                self._tell(numbers, notice)
            else:
                assert not self._notices or self._notices[-1][0] <= place.key, "notices are in order"
                self._notices.append((place.key, numbers, notice))

    def _take_parts(self, packet: Deliver) -> None:
        places = Places(packet.key)
        for run in runs_of(packet.payload):
            if run.kind != RunKind.TABLE:
                raise CodecError("group run before the table")
            sender = ProcessId(packet.origin, packet.message.incarnation, run.process)
            whole = self._partials.add(sender, run)
            if whole is None:
                continue
            part = unpack_part(whole.content)
            if self._membership.add_part(places, sender.processor, sender.incarnation, part):
                self._begin_epoch()

    def install(self, installed: InstallConfiguration) -> None:
        if self._membership.exchanging is not None:
            self._note(self._trace.branch("exchange abandoned"))
        part = self._membership.install(installed.configuration, installed.key)
        self._tell_all_safe()
        assert not self._notices, "no notice outlives its configuration"
        assert part is None or not self.views_in_force, "no view is in force while tables are exchanged"
        if part is not None:
            self._note(self._trace.branch("exchange begins"))
            self._partials.clear()
            self._lanes.drop(TABLE_LANE)
            assert not self._lanes.weight(TABLE_LANE), "only one table waits"
            self._lanes.add(Unit(RunKind.TABLE, TABLE_LANE, content=pack_part(part)))

    def _begin_epoch(self) -> None:
        self._note(self._trace.branch("exchange ends"))
        came_back, self._came_back = self._came_back, []
        if came_back:
            self._note(self._trace.branch("sent again"))
        if self._lanes.under_way:
            self._note(self._trace.branch("message begun again"))
        self._lanes.send_again(came_back)

    def ready(self) -> None:
        self._scope.tell(Ready())

    def stopped(self) -> None:
        self._closed = True
        if self.unsent_messages:
            self._note(self._trace.branch("left with messages unsent"))

    # News of safety

    def _is_safe(self, place: Place) -> bool:
        """In a transitional configuration all who are left had everything before it began. And what waited to
        be delivered until it was safe, or behind something that did, has had its news before."""
        return self._membership.transitional or place.key <= self._safe_key

    def safe(self, up_to: SafeUpTo) -> None:
        assert up_to.key >= self._safe_key, "what is safe stays safe"
        self._safe_key = up_to.key
        notices = self._notices
        while notices and notices[0][0] <= up_to.key:
            self._tell_safe(*notices.popleft()[1:])

    def _tell_all_safe(self) -> None:
        """In a transitional configuration everyone has what was delivered before it: safe among those."""
        while self._notices:
            self._tell_safe(*self._notices.popleft()[1:])

    def _tell_safe(self, numbers: tuple[int, ...], notice: BecameSafe) -> None:
        here = tuple(number for number in numbers if number in self._processes)
        if here:
            self._tell(here, notice)

    # Outputs

    def _tell(self, numbers: tuple[int, ...], event: GroupEvent) -> None:
        assert numbers[-1] in self._processes, "only who is connected is told anything"
        if self._user is not None and numbers[0] == USER_PROCESS:
            if self._trace.on:
                self._io.effects += self._trace.told(numbers, event)
            self._user.told(event)
            numbers = numbers[1:]
            if numbers:
                self._scope.tell(ToProcesses(numbers, event))
            return
        self._scope.tell(ToProcesses(numbers, event))
        if self._trace.on:
            self._io.effects += self._trace.told(numbers, event)

    def _note(self, row: Trace) -> None:
        if self._trace.on:
            self._io.effects.append(row)

    def _drop(self, error: CodecError) -> None:
        self.dropped[error.reason] += 1
        if self._trace.drops:
            self._scope.trace("drop", {"reason": error.reason})


def _group_of(run: Run) -> str:
    """Of a run that is about one group."""
    if len(run.names) != 1 or not run.names[0]:
        raise CodecError("group run malformed")
    return run.names[0]
