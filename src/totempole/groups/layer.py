"""Process groups over any engine that orders messages (003 "The Totem Process Group Interface").

One protocol object: every input of the order below goes through it, and what the order then says is followed
by what that means for the processes of this processor (`ToProcesses`). Processes join and leave groups and
multicast to them; all of that travels in the total order, so that every processor derives the same views
(membership.py). Small messages share a packet and large ones are cut up (lanes.py, partial.py).

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

Deviation from 003: see membership.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

from totempole.effects import (
    Deliver,
    Effect,
    InstallConfiguration,
    PushBack,
    SafeUpTo,
    Stopped,
    Taken,
    ToProcesses,
    Trace,
)
from totempole.errors import CodecError, ConfigurationError, SessionError
from totempole.groups.body import (
    DONOR,
    LAST,
    NOTICE,
    PROCESS_NUMBER_MAX,
    WANTS_STATE,
    Run,
    RunKind,
    epoch_of,
    is_grouped,
    pack_names,
    pack_part,
    pack_transfer,
    runs_of,
    unpack_part,
    unpack_transfer,
)
from totempole.groups.config import GroupConfig
from totempole.groups.events import BecameSafe, GroupEvent, GroupMessages
from totempole.groups.lanes import TABLE_LANE, Lanes, Unit
from totempole.groups.membership import Membership, Places
from totempole.groups.packing import Batch, packed_bytes
from totempole.groups.partial import Partials
from totempole.groups.tracing import GroupTrace
from totempole.order import Order
from totempole.types import NO_RING, Payload, Place, ProcessId, ProcessorId, RingId, Service
from totempole.wire.seal import Keyring

PACKET_BYTES_MIN = 512
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


class GroupLayer(Order):
    def __init__(
        self,
        order: Order,
        me: ProcessorId,
        incarnation: int,
        config: GroupConfig,
        *,
        packet_bytes_max: int,
        trace_kinds: frozenset[str],
    ) -> None:
        if packet_bytes_max < PACKET_BYTES_MIN:
            raise ConfigurationError(
                f"packet_bytes_max = {packet_bytes_max}: groups need at least {PACKET_BYTES_MIN}"
            )
        self.incarnation = incarnation
        self.order = order
        self.dropped: Counter[str] = Counter()
        """Malformed packets, by what is wrong with them."""
        self._me = me
        self._config = config
        self._names_bytes_max = packet_bytes_max // 2
        self._processes: dict[int, _Local] = {}
        self._process_last = 0
        self._membership = Membership(me, incarnation, self._tell)
        self._lanes = Lanes(packet_bytes_max, config.partial_bytes_max)
        self._partials = Partials()
        self._trace = GroupTrace(me, incarnation, trace_kinds)
        self._in_flight: deque[tuple[Unit, ...]] = deque()
        """The units of each packet that has been handed to the order and has not come back."""
        self._came_back: list[Unit] = []
        """Undelivered, since the configuration had changed."""
        self._safe = SafeUpTo(NO_RING, 0)
        self._notices: deque[tuple[RingId, int, tuple[int, ...], BecameSafe]] = deque()
        self._leaving = False
        self._closed = False
        """Nothing more is handed to the order."""
        self._out: list[Effect] = []

    # The order below

    @property
    def token_first(self) -> bool:
        return self.order.token_first

    @property
    def queued(self) -> int:
        return self.order.queued

    @property
    def packets_ahead(self) -> int:
        return self.order.packets_ahead

    @property
    def packet_bytes(self) -> int:
        return self.order.packet_bytes

    def start(self, now_us: int) -> list[Effect]:
        return self._through(now_us, self.order.start(now_us))

    def receive(self, now_us: int, datagrams: Sequence[bytes]) -> list[Effect]:
        return self._through(now_us, self.order.receive(now_us, datagrams))

    def receive_burst(self, now_us: int, burst: bytes, segment_bytes: int) -> list[Effect]:
        return self._through(now_us, self.order.receive_burst(now_us, burst, segment_bytes))

    def expire(self, now_us: int, timer: Any) -> list[Effect]:
        return self._through(now_us, self.order.expire(now_us, timer))

    def persisted(self, now_us: int, ticket: int) -> list[Effect]:
        return self._through(now_us, self.order.persisted(now_us, ticket))

    def submit(
        self, now_us: int, payload: bytes, service: Service, groups: tuple[int, ...] = ()
    ) -> list[Effect]:
        """Past all groups, to every processor."""
        if self._leaving:
            return [PushBack()]
        if is_grouped(payload):
            raise SessionError("a payload that looks like a group packet: begin it with another byte")
        return self._through(now_us, self.order.submit(now_us, payload, service, groups))

    def leave(self, now_us: int, *, more_to_come: bool = False) -> list[Effect]:
        """Leaves when all that processes have sent is delivered, or when leave_us has passed."""
        if self._leaving:
            return []
        self._leaving = True
        return self._through(now_us, self.order.leave(now_us, more_to_come=True))

    def rekey(self, now_us: int, keyring: Keyring) -> list[Effect]:
        return self._through(now_us, self.order.rekey(now_us, keyring))

    def limit_segments(self, now_us: int, segment_bytes: int) -> list[Effect]:
        return self._through(now_us, self.order.limit_segments(now_us, segment_bytes))

    # Processes

    @property
    def groups(self) -> dict[str, tuple[ProcessId, ...]]:
        return self._membership.groups

    @property
    def group_count(self) -> int:
        """May be asked on any thread."""
        return self._membership.group_count

    @property
    def ready(self) -> bool:
        """Whether views are in force: not while the members of a new configuration exchange tables."""
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

    def connect(self, now_us: int, process: int) -> list[Effect]:
        """A new process, with a number above all that processes of this life have had."""
        self._check_stays()
        if not self._process_last < process <= PROCESS_NUMBER_MAX:
            raise SessionError(
                f"process {process}: give a number from {self._process_last + 1} to {PROCESS_NUMBER_MAX}"
            )
        if len(self._processes) >= self._config.processes_max:
            raise SessionError(
                f"this processor has {len(self._processes)} processes, as many as processes_max allows"
            )
        self._process_last = process
        self._processes[process] = _Local()
        self._membership.connect(process)
        self._note(self._trace.process(process, "connect"))
        return self._through(now_us, ())

    def disconnect(self, now_us: int, process: int) -> list[Effect]:
        """The process is gone: it leaves its groups once what it has sent before is sent."""
        local = self._local(process)
        del self._processes[process]
        self._membership.forget(process)
        self._lanes.drop((process, True))
        if local.has_joined:
            self._lanes.add(Unit(RunKind.DISCONNECT, (process, False), count=len(local.groups)))
        self._note(self._trace.process(process, "disconnect"))
        return self._through(now_us, ())

    def join(
        self, now_us: int, process: int, group: str, donor: bool = False, wants_state: bool = False
    ) -> list[Effect]:
        local = self._local(process)
        self._check_stays()
        self._check_name(group)
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
        self._lanes.add(Unit(RunKind.JOIN, (process, False), names=pack_names((group,)), flags=flags))
        self._note(self._trace.joined(process, group, donor, wants_state))
        return self._through(now_us, ())

    def leave_group(self, now_us: int, process: int, group: str) -> list[Effect]:
        local = self._local(process)
        if group not in local.groups:
            raise SessionError(f"group {group!r} is not joined")
        local.groups.discard(group)
        self._lanes.add(Unit(RunKind.LEAVE, (process, False), names=pack_names((group,))))
        self._note(self._trace.left(process, group))
        return self._through(now_us, ())

    def multicast(
        self,
        now_us: int,
        process: int,
        groups: tuple[str, ...],
        batch: Payload,
        service: Service,
        notice: bool = False,
    ) -> list[Effect]:
        """Messages for the members of all these groups, packed as `groups.pack` does. Whoever sends need not
        be one. `notice`: tell the receivers when they have become safe."""
        local = self._local(process)
        self._check_stays()
        count = self._check_messages(groups, batch)
        number = local.number_next
        local.number_next += count
        unit = Unit(
            RunKind.MESSAGES,
            (process, False),
            names=pack_names(groups),
            content=batch,
            service=service,
            flags=NOTICE * notice,
            number=number,
            count=count,
        )
        self._lanes.add(unit)
        if self._trace.on:
            self._out.append(self._trace.sent(process, number, count, groups, batch, service))
        return self._through(now_us, ())

    def give_state(
        self,
        now_us: int,
        process: int,
        group: str,
        joiner: ProcessId,
        place: Place,
        content: Payload,
        last: bool,
    ) -> list[Effect]:
        """A piece of the state that `StateAsked` asked for. Dropped if someone else gives it by now."""
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
            self._out.append(Taken(process, unit.weight))
        else:
            self._lanes.add(unit)
            if self._trace.on:
                self._out += self._trace.given(process, group, joiner, place, content, last)
        return self._through(now_us, ())

    # What processes may ask for

    def _local(self, process: int) -> _Local:
        local = self._processes.get(process)
        if local is None:
            raise SessionError(f"process {process} is not connected")
        return local

    def _check_stays(self) -> None:
        if self._leaving:
            raise SessionError("this node is leaving the ring: it takes nothing more; try another node")

    def _check_messages(self, groups: tuple[str, ...], batch: Payload) -> int:
        if not 1 <= len(groups) <= self._config.groups_per_message_max:
            raise SessionError(
                f"a message to {len(groups)} groups: give 1 to {self._config.groups_per_message_max} "
                "(groups_per_message_max)"
            )
        for group in groups:
            self._check_name(group)
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

    def _check_name(self, group: str) -> None:
        try:
            size, limit = len(group.encode()), self._config.group_name_bytes_max
        except UnicodeEncodeError:
            raise SessionError(f"group name {group[:40]!r}: it cannot be written as UTF-8") from None
        if not 1 <= size <= limit:
            raise SessionError(
                f"group name {group[:40]!r} has {size} bytes: give 1 to {limit} (group_name_bytes_max)"
            )

    # Going through

    def _through(self, now_us: int, effects: Sequence[Effect]) -> list[Effect]:
        """The order's effects, each followed by what it means for processes; and what can be sent now."""
        self._take_up(effects)
        self._pump(now_us)
        if self._leaving and not self._closed and not self._unsent():
            self._closed = True
            self._take_up(self.order.leave(now_us))
        out, self._out = self._out, []
        return out

    def _take_up(self, effects: Sequence[Effect]) -> None:
        out = self._out
        for effect in effects:
            out.append(effect)
            if type(effect) is Deliver:
                if is_grouped(effect.payload):
                    self._delivered(effect)
            elif type(effect) is InstallConfiguration:
                self._installed(effect)
            elif type(effect) is SafeUpTo:
                self._became_safe(effect)
            elif type(effect) is Stopped:
                self._stopped()

    def _pump(self, now_us: int) -> None:
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
            effects = order.submit(now_us, packed.body, packed.service)
            assert not any(type(effect) is PushBack for effect in effects), "there was room"
            for unit in packed.finished:
                if not unit.taken and unit.lane is not TABLE_LANE:
                    unit.taken = True
                    self._out.append(Taken(unit.lane[0], unit.weight))
            self._take_up(effects)

    # What the order brings

    def _delivered(self, packet: Deliver) -> None:
        own = packet.origin == self._me and packet.message.incarnation == self.incarnation
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
                membership.join(places, sender, _group_of(run), donor, wants_state)
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
                self._notices.append((place.key.ring_id, place.key.seq, numbers, notice))

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

    def _installed(self, effect: InstallConfiguration) -> None:
        if self._membership.exchanging is not None:
            self._note(self._trace.branch("exchange abandoned"))
        part = self._membership.install(effect.configuration, effect.key)
        self._tell_all_safe()
        if part is not None:
            self._note(self._trace.branch("exchange begins"))
            self._partials.clear()
            self._lanes.drop(TABLE_LANE)
            self._lanes.add(Unit(RunKind.TABLE, TABLE_LANE, content=pack_part(part)))

    def _begin_epoch(self) -> None:
        self._note(self._trace.branch("exchange ends"))
        came_back, self._came_back = self._came_back, []
        if came_back:
            self._note(self._trace.branch("sent again"))
        if self._lanes.under_way:
            self._note(self._trace.branch("message begun again"))
        self._lanes.send_again(came_back)

    def _stopped(self) -> None:
        self._closed = True
        if self.unsent_messages:
            self._note(self._trace.branch("left with messages unsent"))

    # News of safety

    def _is_safe(self, place: Place) -> bool:
        """In a transitional configuration all who are left had everything before it began. And what waited to
        be delivered until it was safe, or behind something that did, has had its news before."""
        ring_id, seq = self._safe
        return self._membership.transitional or (place.key.ring_id == ring_id and place.key.seq <= seq)

    def _became_safe(self, effect: SafeUpTo) -> None:
        self._safe = effect
        notices = self._notices
        while notices and notices[0][0] == effect.ring_id and notices[0][1] <= effect.seq:
            self._tell_safe(*notices.popleft()[2:])

    def _tell_all_safe(self) -> None:
        """In a transitional configuration everyone has what was delivered before it: safe among those."""
        while self._notices:
            self._tell_safe(*self._notices.popleft()[2:])

    def _tell_safe(self, numbers: tuple[int, ...], notice: BecameSafe) -> None:
        here = tuple(number for number in numbers if number in self._processes)
        if here:
            self._tell(here, notice)

    # Outputs

    def _tell(self, numbers: tuple[int, ...], event: GroupEvent) -> None:
        self._out.append(ToProcesses(numbers, event))
        if self._trace.on:
            self._out += self._trace.told(numbers, event)

    def _note(self, row: Trace) -> None:
        if self._trace.on:
            self._out.append(row)

    def _drop(self, error: CodecError) -> None:
        self.dropped[error.reason] += 1
        if self._trace.drops:
            self._out.append(Trace("drop", {"layer": "groups", "reason": error.reason}))


def _group_of(run: Run) -> str:
    """Of a run that is about one group."""
    if len(run.names) != 1 or not run.names[0]:
        raise CodecError("group run malformed")
    return run.names[0]
