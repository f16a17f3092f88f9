"""COReL's algorithm (COReL §5) over the group layer: what a replica does when a view, a message or an
acknowledged write comes.

All replicas are members of one group. Transitions happen when a message is delivered, so at the same place
for all. Only sends wait for the disk: what a crash makes a replica forget, nobody has heard of from it.

A change of view runs the handler of figure 3.5: states are exchanged, the representative sends its priority
messages, and with a quorum the three phases of figure 3.6 follow. A view may run its handler several times
(`Round`), when a replica that was behind has caught up.

Deviations from COReL, beside those of `zones` and `recovery`:
- States are exchanged at every view. Figure 3.5's shortcut, without new members only to establish, holds only
  after a handler that ran to its end at all members.
- A message that is delivered in a transitional view is red: others may lack one before it. A run that another
  sends for the first time is passed over there: where it was sent, a view may have begun before it that is
  not seen here, and then its sender passes over it, too, and sends it again with another stamp.
- A message that is delivered before the handler has ended is passed over by all. Its sender sends it again.
- Step 7 does not stop the members: see `outbox`.
- Messages are not stored before they are sent. A run is named by its origin's life, so nothing that a crash
  loses can be confused with what follows; and it was promised to nobody.
- Acknowledgements of a quorum suffice, unless `acknowledgements = "all"`: Order Rule 1 as it stands.
- Acknowledgements are told at once, outside of the order, and in it a little later for those who missed that
  (docs/decisions/0028-acknowledgements-without-a-place.md).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Protocol

import msgspec

from totempole.core.inputs import Command, Recalled
from totempole.core.io import Scope
from totempole.core.order import Leave
from totempole.core.stack import BaseLayer, Commands
from totempole.corel.barriers import Barriers, Line
from totempole.corel.catch_up import CatchUp
from totempole.corel.commands import (
    AppendRecords,
    ChangeReplicas,
    CloseLog,
    FindRun,
    Forget,
    OpenLog,
    ReadBarrier,
    SetHold,
    TellGreen,
)
from totempole.corel.config import LogConfig
from totempole.corel.events import (
    GreenEnded,
    GreenLine,
    GreenRuns,
    LogAlarm,
    Standing,
    StandingChanged,
)
from totempole.corel.frames import (
    Agreed,
    Attempted,
    Begun,
    Colour,
    Committed,
    Frame,
    Greened,
    Heard,
    Identified,
    Opened,
    Opening,
    Promoted,
    Shown,
)
from totempole.corel.frames import Placed as PlacedFrame
from totempole.corel.journal import Journal
from totempole.corel.messages import (
    GROUP,
    NO_ROUND,
    Acknowledge,
    AnswerBarriers,
    AskBarrier,
    Attempt,
    CaughtUp,
    Commit,
    Data,
    Fetch,
    Fetched,
    Message,
    Priority,
    Round,
    State,
    decode,
    encode,
    inbox,
)
from totempole.corel.outbox import Outbox
from totempole.corel.quorum import Formation
from totempole.corel.recovery import Plan, is_rolled_back, log_of, plan_for, senders
from totempole.corel.requests import Requests
from totempole.corel.run import (
    Change,
    Hold,
    Records,
    Run,
    RunId,
    RunKind,
    Stamp,
    is_sound,
    pack_body,
    primary_run,
)
from totempole.corel.tally import Tally, may_be_durable
from totempole.corel.tracing import CUT_OFF, LogTrace
from totempole.corel.zones import Ordered, Zones
from totempole.errors import CodecError, SessionError
from totempole.groups.commands import JoinGroup, LeaveGroup, Multicast
from totempole.groups.events import GroupEvent, GroupMessages, GroupView
from totempole.groups.packing import Batch, pack
from totempole.types import ConfigurationKind, ProcessId, ProcessorId, Service

LAYER = "corel"

PRIORITY_BYTES = 256 * 1024
"""Of runs in one part of the priority messages."""
GREEN_LINE_US = 20_000
"""The green line is written so soon, if nothing else is written before."""
ACKNOWLEDGE_US = 20_000
"""Runs are acknowledged in the order so soon, if the replica sends nothing before that says so."""
LIVES_SHIFT = 20
"""A life is the processor's incarnation and how often it has opened its log in it."""
LANE_BYTES = 256 * 1024
"""Runs that wait in the group layer."""
PLACES_MAX = 65_536
"""Green runs whose places can be asked for without reading the log."""
NAME_BYTES_MAX = 100
RUN_BYTES_MAX = 16 * 1024 * 1024
"""What is appended at once, where messages of the groups are larger."""
OUTBOX_BYTES_MAX = 16 * 1024 * 1024
"""Beyond it the layer wants no more records (`accepts`)."""


class Timer(IntEnum):
    GREEN_LINE = 0
    DISK = 1
    """Runs while something is being written."""
    ACKNOWLEDGE = 2


class Phase(Enum):
    """Where the handler of figure 3.5 is."""

    CLOSED = "closed"
    """No log, or no view yet."""
    EXCHANGING = "exchanging"
    AGREEING = "agreeing"
    ATTEMPTING = "attempting"
    COMMITTING = "committing"
    PRIMARY = "primary"
    MINORITY = "minority"
    LOOKING_ON = "looking on"
    LEAVING = "leaving"
    """It steps aside. Until the others have seen it leave it takes what comes, its own runs above all: these
    must not be there with them, and be sent again by it as new ones. When they begin another round they pass
    over what comes, and so does it."""


ENDED = frozenset((Phase.PRIMARY, Phase.MINORITY))
"""The handler has ended."""

TAKING = ENDED | {Phase.LEAVING}
"""Runs that come are taken; otherwise all pass over them."""

STANDINGS = {
    Phase.CLOSED: Standing.CLOSED,
    Phase.LEAVING: Standing.CLOSED,
    Phase.PRIMARY: Standing.PRIMARY,
    Phase.MINORITY: Standing.MINORITY,
    Phase.LOOKING_ON: Standing.BEHIND,
}


class Groups(Protocol):
    """What the layer needs of the groups below."""

    def attach(self, user: Replica) -> int:
        """The number that it has as a process."""
        ...

    def act(self, command: Command) -> None: ...

    def send_unordered(self, payload: bytes) -> None:
        """To the replicas of all other processors, past the order. It may be lost."""
        ...

    def waiting(self, process: int) -> int:
        """Bytes of a process that the order below has not taken."""
        ...

    def settle(self) -> None: ...


class Replica(BaseLayer):
    def __init__(
        self,
        scope: Scope,
        groups: Groups,
        me: ProcessorId,
        incarnation: int,
        config: LogConfig,
        draw: Callable[[], float],
        run_bytes_max: int = RUN_BYTES_MAX,
    ) -> None:
        """`run_bytes_max`: what a message of the groups has room for beside others."""
        self.name = scope.name
        self.me = me
        self.config = config
        self._trace = LogTrace(scope)
        self.journal = Journal(scope, config, self._trace)
        self.outbox = Outbox(me, config.window_bytes)
        self.tally = Tally()
        self.phase = Phase.CLOSED
        self.members: tuple[ProcessorId, ...] = ()
        """Of the view."""
        self.plan: Plan | None = None
        self._scope = scope
        self._groups = groups
        self._process = groups.attach(self)
        self._incarnation = incarnation
        self._draw = draw
        self._run_bytes_max = run_bytes_max
        self._openings = 0
        self._entropy = 0
        self._is_open = False
        self._is_leaving = False
        self._is_joined = False
        self._is_awaited = False
        """It has asked to join, and has not been told yet of a view that it has come into."""
        self._is_aside = False
        """It has left the group until its disk has written what waits."""
        self._left = NO_ROUND
        """The round in which it did."""
        self._kept_from = 0
        self._round = NO_ROUND
        self._cut = False
        """A transitional view has come: what follows is red."""
        self._states: dict[ProcessorId, State] = {}
        self._parts: list[Priority] = []
        self._voters: frozenset[ProcessorId] = frozenset()
        self._said: set[ProcessorId] = set()
        """Whose attempt, or then commit, has come."""
        self._gives_hints = False
        """Whether all members of the view hear acknowledgements past the order."""
        self._heard: dict[ProcessorId, Shown] = {}
        """By processor: what its disk has shown."""
        self.requests = Requests(scope)
        self.barriers = Barriers(scope, self._trace, me)
        self.catch_up = CatchUp(scope, self.journal, self._trace, self._step, self._send, self._begun_anew)
        self._is_timer_set = False
        self._is_acknowledging = False
        """The timer for it is set."""
        self._was_idle = True
        """Nothing was being written."""
        self._has_sent = False
        self._tells_green = False
        self.times: dict[ProcessorId, int] = {}
        """By origin: the time that its clock gave the last records that have come. The node, which has a
        clock, compares with it, and empties this."""

    @property
    def commands(self) -> Commands:
        return {
            OpenLog: self._open,
            CloseLog: self._close,
            AppendRecords: self._append_records,
            SetHold: self._set_hold,
            ChangeReplicas: self._change_replicas,
            Forget: self._forget,
            FindRun: self._find,
            ReadBarrier: self._read_barrier,
            TellGreen: self._tell_green,
            Leave: self._leave,
        }

    @property
    def zones(self) -> Zones:
        return self.journal.zones

    @property
    def standing(self) -> Standing:
        return STANDINGS.get(self.phase, Standing.FORMING)

    @property
    def accepts(self) -> bool:
        """Whether programs should give it more records at present."""
        return self.outbox.bytes < OUTBOX_BYTES_MAX

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def is_joined(self) -> bool:
        """Whether it is, or is about to be, a member of the group."""
        return self._is_joined

    @property
    def process(self) -> ProcessId:
        """What it is called in groups."""
        return ProcessId(self.me, self._incarnation, self._process)

    @property
    def _is_ordering(self) -> bool:
        return self.phase is Phase.PRIMARY and not self._cut

    # The log on disk

    def _open(self, command: OpenLog) -> None:
        assert not self._is_open, "a log is opened once"
        if self._is_leaving:
            return  # the groups below take no more members: the next life opens it
        self._is_open = True
        self._openings += 1
        self._entropy = command.entropy
        self.journal.open(command.frames, command.zones)
        life = self._new_life()
        self.outbox.open(life)
        self._kept_from = command.kept_from
        self._heard = dict(self.zones.heard)
        self._trace.opened(self.zones, life, self.config.acknowledgements, command.is_damaged)
        self._tell_green_line()
        self._step(Opened(Opening(life, self.zones.frames)))
        if not self.zones.disk or command.is_damaged:
            self._step(Identified(self._draw_name()))  # a disk that has forgotten something is another one
        self._join()

    def _leave(self, _command: Leave) -> None:
        """The groups below take nothing more. What is on disk gets its place when the node is back."""
        self._is_leaving = True
        if self._is_open:  # the green line is written along: a reader of the directory sees all that is green
            self.journal.hurry()
            self.journal.flush()
        self._close(CloseLog("the node leaves the ring"))

    def _new_life(self) -> int:
        """Never had before, also where the processor has lost its numbers, or has them from a backup."""
        if self._entropy:
            return self._draw_name()
        lives = [life for origin, life in self.zones.vector if origin == self.me]
        return max([self._incarnation << LIVES_SHIFT | self._openings, *(life + 1 for life in lives)])

    def _close(self, command: CloseLog) -> None:
        if not self._is_open:
            return
        self._is_open = self._is_aside = False
        self._trace.closed(command.why)
        self._depart()
        self.journal.close()
        if self._tells_green:
            self._scope.tell(GreenEnded(command.why))
        self._was_idle = True
        self._scope.cancel_timer(Timer.DISK)
        self.requests.close(f"this node's log is closed: {command.why}")
        self._enter(Phase.CLOSED, command.why)

    def _join(self) -> None:
        if not self._is_joined:
            self._is_joined = self._is_awaited = self._has_sent = True
            self._groups.act(JoinGroup(self._process, GROUP))
            self._groups.act(JoinGroup(self._process, inbox(self.me)))

    def _depart(self) -> None:
        if self._is_joined:
            self._is_joined = False
            self._has_sent = True
            self._groups.act(LeaveGroup(self._process, GROUP))
            self._groups.act(LeaveGroup(self._process, inbox(self.me)))
        self.journal.drop_gated()
        self.barriers.restart()
        self._round = NO_ROUND
        self.plan = None

    def _step(self, frame: Frame) -> None:
        ordered = self.journal.step(frame)
        if isinstance(frame, PlacedFrame):
            run = frame.run
            if run.kind is RunKind.RECORDS:  # the log's own runs have no time
                self.times[run.id.origin] = run.time_us
        self._trace.stepped(frame, ordered, self.plan)
        if self._tells_green and ordered:
            self._scope.tell(GreenRuns(tuple(ordered)))
        elif isinstance(frame, Begun):
            self._tell_green_line()
        for each in ordered:
            self._became_green(each)

    def appended(self, ticket: int) -> None:
        journal = self.journal
        if not journal.appended(ticket):
            return
        self._was_idle = journal.is_idle
        if self._was_idle:
            self._scope.cancel_timer(Timer.DISK)
        else:
            self._scope.set_timer(Timer.DISK, self.config.disk_timeout_us)
        self.tally.became_durable(journal.durable)
        self.requests.became_durable(journal.durable)
        if self._is_ordering:
            self._count_disk(self.me, self.tally.durable)  # at once: the others wait for what it says of it
        if self._is_aside and journal.is_idle:
            self._is_aside = False
            self._join()
        if self.phase is Phase.LOOKING_ON:
            self.catch_up.fetch_more()

    def _step_aside(self) -> None:
        """A replica too slow for its log lets the others go on, and comes back as one that is behind."""
        self._is_aside = True
        self._alarm("slow-disk", self.me, "this disk is too slow: the replica steps aside")
        if self.phase in ENDED:
            self._left = self._round
        self._depart()
        self._enter(Phase.LEAVING if self.phase in TAKING else Phase.CLOSED, "the disk is too slow")

    def expired(self, timer: int) -> None:
        self._scope.expired(Timer(timer))
        if timer == Timer.DISK:
            if not self._is_aside:
                self._step_aside()  # it may hang: others would wait for its states forever
        elif timer == Timer.ACKNOWLEDGE:
            self._is_acknowledging = False
            if self.tally.due > self.tally.told and self._is_ordering:
                self._acknowledge_in_order()
        else:
            self._is_timer_set = False
            self.journal.hurry()

    def settle(self) -> None:
        if not self._is_open and not self._has_sent:
            return
        self._settle()
        while self._has_sent:
            self._has_sent = False
            self._groups.settle()
            self._settle()  # with a token at hand what was sent has come back by now, and is to be written

    def _settle(self) -> None:
        if self.phase in ENDED and not self._cut:
            self._pump()
        journal, tally = self.journal, self.tally
        if journal.flush() and self._was_idle:
            self._was_idle = False
            self._scope.set_timer(Timer.DISK, self.config.disk_timeout_us)
        if journal.backlog_bytes > self.config.queue_bytes_max and not self._is_aside:
            self._step_aside()
        if journal.has_lazy_frames and not self._is_timer_set:
            self._is_timer_set = True
            self._scope.set_timer(Timer.GREEN_LINE, GREEN_LINE_US)
        if tally.durable > tally.told and self._is_ordering:
            self._acknowledge()
        if self.barriers.has_work and self._is_ordering:
            self._tend_barriers()

    # Sending

    def _acknowledge(self) -> None:
        """At once, outside of the order; and in it a little later, or with its next run, for who missed that.
        Of its own runs the others hear from each other at once, if they can do without it."""
        tally = self.tally
        if tally.hinted < tally.durable and self._is_awaited_by_others():
            if not self._gives_hints:
                self._acknowledge_in_order()
                return
            tally.hinted = tally.durable
            message = self._acknowledgement()
            self._trace.said(message)
            self._groups.send_unordered(encode(message))
        if not self._is_acknowledging:
            self._is_acknowledging = True
            tally.due = tally.durable
            self._scope.set_timer(Timer.ACKNOWLEDGE, ACKNOWLEDGE_US)

    def _is_awaited_by_others(self) -> bool:
        plan, tally = self.plan, self.tally
        assert plan is not None, "a primary has a plan"
        if tally.awaited > max(tally.hinted, tally.told):
            return True
        return not self._is_durable(set(plan.members) - {self.me})

    def _acknowledge_in_order(self) -> None:
        self.tally.told = self.tally.durable
        self._send(self._acknowledgement())

    def _acknowledgement(self) -> Acknowledge:
        plan = self.plan
        assert plan is not None, "a primary has a plan"
        return Acknowledge(plan.log, self._round, self.tally.durable, self.journal.durable)

    def _pump(self) -> None:
        """Runs wait here, not below, where what a new view needs would have to wait behind them."""
        groups, me = self._groups, self._process
        for run, again in self.outbox.pump():
            self._send_data(run, again)
            if groups.waiting(me) >= LANE_BYTES:
                groups.settle()
                if groups.waiting(me) >= LANE_BYTES:
                    return

    def _send(self, message: Message, group: str = GROUP) -> None:
        self._has_sent = True
        self._trace.said(message)
        self._groups.act(Multicast(self._process, (group,), pack([encode(message)]), Service.AGREED))

    def _send_when_durable(self, message: Message) -> None:
        self.journal.gate(lambda: self._send(message))

    def _send_data(self, run: Run, again: bool) -> None:
        tally = self.tally
        if self.phase is Phase.PRIMARY:
            tally.told = tally.durable
        self._send(Data(self.zones.log, run, again, self._round, tally.told, self.journal.durable))

    # What programs ask for

    def _append_records(self, command: AppendRecords) -> None:
        self._check(command.log)
        try:
            count = len(Batch(command.batch))
        except CodecError as error:
            raise SessionError(f"records that are not packed as they should be: {error}") from None
        if command.keys and len(command.keys) != count:
            raise SessionError(f"{len(command.keys)} keys for {count} records: give one for each, or none")
        if command.fence is not None and command.fence.problem:
            raise SessionError(command.fence.problem)
        body = pack_body(Records(command.log, command.batch, command.keys, command.fence))
        self._submit(command.process, command.request, RunKind.RECORDS, count, body, command.time_us)

    def _set_hold(self, command: SetHold) -> None:
        self._check(command.reader)
        body = pack_body(Hold(command.reader, command.position))
        self._submit(command.process, command.request, RunKind.HOLD, 0, body, 0)

    def _change_replicas(self, command: ChangeReplicas) -> None:
        """Only a replica that takes part can be added: it has caught up, and its disk is known."""
        plan = self.plan
        if self.phase is not Phase.PRIMARY or plan is None:
            raise SessionError("this replica is not with a majority: the replica set cannot change now")
        processor, disk = command.processor, 0
        if command.weight:
            if processor not in plan.disks:
                raise SessionError(
                    f"processor {processor} does not take part: start it with a log, wait until it has "
                    "caught up, then add it"
                )
            disk = plan.disks[processor]
        elif processor not in self.zones.replicas.voters:
            raise SessionError(f"processor {processor} is no replica")
        elif len(self.zones.sets[-1].voters) == 1:
            raise SessionError(f"processor {processor} is the last replica: add another first")
        body = pack_body(Change(processor, disk, command.weight))
        self._submit(command.process, command.request, RunKind.CHANGE, 0, body, 0)

    def _check(self, name: str) -> None:
        if not self._is_open:
            raise SessionError("this node has no log open: see `totem log status`")
        if not 1 <= len(name.encode(errors="replace")) <= NAME_BYTES_MAX:
            raise SessionError(f"name {name[:40]!r}: give 1 to {NAME_BYTES_MAX} bytes")

    def _submit(
        self, process: int, request: int, kind: RunKind, count: int, body: bytes, time_us: int
    ) -> None:
        if len(body) > self._run_bytes_max:
            raise SessionError(
                f"{len(body)} bytes to be appended at once: give at most {self._run_bytes_max}, half of "
                "message_bytes_max"
            )
        held = self.zones.red_bytes + self.outbox.bytes
        if self.phase is not Phase.PRIMARY and held + len(body) > self.config.red_bytes_max:
            raise SessionError(
                f"no majority of the replicas is connected, and {held} bytes wait for one, as many as "
                "red_bytes_max allows: try again when there is a majority"
            )
        run = self.outbox.add(kind, count, body, time_us)
        self._trace.accepted(run)
        self.requests.accept(process, request, run.id)

    def _forget(self, command: Forget) -> None:
        self.requests.forget(command.process)
        self.barriers.forget(command.process)

    def _find(self, command: FindRun) -> None:
        self.requests.find(command.process, command.request, command.run, self._is_pending)

    def _read_barrier(self, command: ReadBarrier) -> None:
        self.barriers.wait(command.process, command.request)

    def _tell_green(self, command: TellGreen) -> None:
        self._tells_green = command.on
        self._tell_green_line()

    def _tell_green_line(self) -> None:
        if self._tells_green and self._is_open:
            zones = self.zones
            self._scope.tell(GreenLine(zones.log, zones.green_runs, zones.position))

    def _is_pending(self, run: RunId) -> bool:
        zones = self.zones
        return self.outbox.holds(run) or any(each.id == run for each in (*zones.yellow, *zones.red))

    # The group below

    def told(self, event: GroupEvent) -> None:
        if not self._is_open:
            return
        if isinstance(event, GroupMessages):
            self._hear(event)
        elif isinstance(event, GroupView) and event.group == GROUP:
            if self._is_awaited and all(member.processor != self.me for member in event.together):
                self._is_awaited = False
                if self.phase is Phase.LEAVING:
                    self._enter(Phase.CLOSED, "it has left, and come back")
            if event.kind is ConfigurationKind.TRANSITIONAL:
                self._cut_off()
            elif self._is_joined and not self._is_awaited:
                self._begin_view(event)
            elif self.phase is not Phase.CLOSED:
                self._enter(Phase.CLOSED, "it has stepped aside")  # the others pass over all that follows

    def _hear(self, event: GroupMessages) -> None:
        stamp = Stamp.of(event.place)
        for content in Batch(event.batch).views():
            try:
                message = decode(content)
            except CodecError:
                self._alarm("malformed", event.sender.processor, "a message of the log cannot be read")
                continue
            self._take(event.sender.processor, message, stamp)

    def told_unordered(self, sender: ProcessorId, payload: bytes) -> None:
        """Another replica's acknowledgement, which may have been sent long ago, or by a former life."""
        if not self._is_open or not self._is_ordering:
            return
        try:
            message = decode(payload)
        except CodecError:
            self._alarm("malformed", sender, "a message of the log cannot be read")
            return
        plan = self.plan
        if (
            isinstance(message, Acknowledge)
            and message.round == self._round
            and plan is not None
            and message.log == plan.log
        ):
            # Of runs that have not come here yet it will be told again.
            count = min(message.acknowledged, self.tally.taken)
            self._take_acknowledgement(sender, count, message.frames)

    def _take(self, sender: ProcessorId, message: Message, stamp: Stamp) -> None:
        if isinstance(message, Data):
            if message.log == self.zones.log:
                self._take_data(sender, message, stamp)
            return
        if isinstance(message, Fetched) and message.round.view == self._round.view:
            self.catch_up.came(message)  # ordered runs are what they are, also if a round has begun since
            if self.phase is Phase.LOOKING_ON:
                self.catch_up.fetch_more()
            return
        if self.phase is Phase.LEAVING and isinstance(message, CaughtUp) and message.round == self._left:
            if not self._cut:
                self._enter(Phase.CLOSED, f"it has stepped aside, and {sender} has caught up")
            return
        if message.round != self._round or self._cut:
            return
        if isinstance(message, State):
            self._take_state(sender, message)
            return
        if isinstance(
            message, CaughtUp
        ):  # of any log: a round begins for all members of the view, or for none
            self._begin_round(Round(self._round.view, self._round.number + 1), f"{sender} has caught up")
            return
        plan = self.plan
        if plan is None or message.log != plan.log:
            return
        match message:
            case Acknowledge():
                self._take_acknowledgement(sender, message.acknowledged, message.frames)
            case Priority():
                self._take_priority(plan, sender, message)
            case Attempt() if self.phase is Phase.ATTEMPTING:
                self._said.add(sender)
                if self._said >= self._voters:
                    self._commit(plan)
            case Commit() if self.phase is Phase.COMMITTING:
                self._said.add(sender)
                if self._said >= self._voters:
                    self._establish(plan)
            case Fetch() if message.donor == self.me:
                self.catch_up.answer(sender, message)
            case AskBarrier() if self.phase is Phase.PRIMARY:
                self.barriers.asked(sender, self.tally.durable, self._line(plan))
            case AnswerBarriers() if self.phase is Phase.PRIMARY:
                self.barriers.answered(sender, message.answered, message.durable)
            case _:
                pass

    # Views

    def _cut_off(self) -> None:
        self._cut = True
        self._trace.phase(self.phase.value, CUT_OFF, "a transitional view", self._round, self.members, None)
        if self.phase is Phase.PRIMARY:
            self._tell_standing(Standing.FORMING, "a member has gone")

    def _begin_view(self, view: GroupView) -> None:
        self.members = tuple(sorted({member.processor for member in view.members}))
        assert self.me in self.members, "a replica is in its own views"
        self.catch_up.begin_view()
        self._begin_round(Round(Stamp.of(view.place), 1), "a new view")

    def _begin_round(self, round: Round, why: str) -> None:
        """The handler of figure 3.5, from its beginning. Nothing that an earlier run has done is undone."""
        self._round = round
        self._cut = False
        self.plan = None
        self._states.clear()
        self._parts.clear()
        self.catch_up.begin_round(round)
        self.barriers.restart()
        self.journal.drop_gated()
        self._enter(Phase.EXCHANGING, why)
        zones = self.zones
        heard = tuple([shown for _, shown in sorted(self._heard.items())])
        if self._heard != zones.heard:
            self._step(Heard(heard))
        state = State(
            round=round,
            log=zones.log,
            disk=zones.disk,
            frames=zones.frames,
            attempted=zones.attempted,
            attempts=tuple(zones.attempts),
            committed=zones.committed,
            green_runs=zones.green_runs,
            recent_from=zones.recent_from,
            kept_from=self._kept_from,
            yellow=tuple([run.id for run in zones.yellow]),
            vector=tuple([RunId(*who, number) for who, number in sorted(zones.vector.items())]),
            heard=heard,
            openings=tuple(zones.openings),
            founding=None if zones.committed.number else self.config.founding,
            takes_hints=True,
        )
        self._send_when_durable(state)

    def _take_state(self, sender: ProcessorId, state: State) -> None:
        if self.phase is not Phase.EXCHANGING or sender not in self.members:
            return
        self._states[sender] = state
        if self._states.keys() != set(self.members):
            return
        self._gives_hints = all(each.takes_hints for each in self._states.values())
        self.plan = plan = plan_for(self.me, self._states)
        if plan.green > plan.length:
            # The representative knows of a later primary, and lacks what is green: a quorum's disks are lost.
            self._alarm(
                "forked", plan.representative, "the order has forked: keep one side, `totem log rescue`"
            )
            self._close(CloseLog("the order has forked: the disks of a quorum were lost or are old"))
            return
        self._watch_disks(plan)
        if self.me not in plan.members:
            self._enter(Phase.LOOKING_ON, f"{plan.green - self.zones.green_runs} runs behind")
            self.catch_up.look_on(plan)
            return
        self._enter(Phase.AGREEING, f"{plan.representative} represents")
        if plan.representative == self.me:
            self._send_priority(plan)

    def _watch_disks(self, plan: Plan) -> None:
        """Remembers what the others' disks have shown, and raises what is wrong with them."""
        states = self._states
        mine = log_of(self.me, states)
        for who, state in sorted(states.items()):
            if log_of(who, states) != mine:
                self._alarm("another-log", who, f"replica {who} has another cluster's log: it is ignored")
            elif is_rolled_back(who, states):
                self._alarm("rolled-back", who, f"replica {who} has an old disk: it does not vote")
            elif who != self.me:
                self._note_disk(Shown(who, state.disk, state.life, state.frames))
        told = [state.founding for state in states.values() if state.founding is not None]
        if any(each != told[0] for each in told):
            self._alarm("founding", self.me, "the replicas were told to found different logs: see `replicas`")
        if is_rolled_back(self.me, states):
            # As a new disk it counts again once a primary has formed without it, and has taken it in.
            self._step(Identified(self._draw_name()))
            self.catch_up.say_caught_up(plan)

    def _note_disk(self, shown: Shown) -> None:
        """Written with the next view."""
        known = self._heard.get(shown.processor)
        if known is None or known[:3] != shown[:3] or shown.frames > known.frames:
            self._heard[shown.processor] = shown

    # Recovery

    def _send_priority(self, plan: Plan) -> None:
        zones = self.zones
        order: list[RunId] = []
        runs: list[Run] = []
        size = 0
        for run in (*zones.recent_runs(plan.base), *zones.yellow):
            order.append(run.id)
            if run.kind is RunKind.PRIMARY or not plan.is_had_by_all(run.id):
                runs.append(run)
                size += run.size
            if size > PRIORITY_BYTES:
                self._send_when_durable(Priority(plan.log, self._round, tuple(order), tuple(runs), False))
                order, runs, size = [], [], 0
        self._send_when_durable(Priority(plan.log, self._round, tuple(order), tuple(runs), True))

    def _take_priority(self, plan: Plan, sender: ProcessorId, message: Priority) -> None:
        if self.phase is not Phase.AGREEING or sender != plan.representative:
            return
        self._parts.append(message)
        if message.is_last:
            self._agree(plan)

    def _agree(self, plan: Plan) -> None:
        """Steps 3, 5 and 6 at once: all members have the representative's green and yellow runs."""
        zones = self.zones
        order = tuple([run for part in self._parts for run in part.order])
        runs = [run for part in self._parts for run in part.runs]
        for run in runs:
            if run.kind is not RunKind.PRIMARY and not zones.has(run.id):
                self._step(PlacedFrame(run, Colour.RED))
        records = tuple([run for run in runs if run.kind is RunKind.PRIMARY])
        log = plan.log or (self._states[plan.representative].disk if plan.founding is not None else 0)
        self._step(Agreed(plan.base, order, plan.green, plan.committed, log, records))
        assert zones.green_runs + len(zones.yellow) == plan.length, "all have what the representative has"
        voters = self._voters_of(plan)
        if voters is None:
            self._end_handler(plan, Phase.MINORITY, "no majority is connected")
            return
        formation = Formation(plan.attempted + 1, tuple(sorted(voters)))
        self._voters = voters
        self._said.clear()
        self._step(Attempted(formation))
        self._enter(Phase.ATTEMPTING, f"primary {formation.number}")
        if self.me in voters:
            self._send_when_durable(Attempt(plan.log, self._round, formation.number))

    def _voters_of(self, plan: Plan) -> frozenset[ProcessorId] | None:
        """Who forms the primary component, if the members may: a quorum of every set from the green line to
        the yellow one."""
        sets = self.zones.sets or ([] if plan.founding is None else [plan.founding])
        if not sets or not all(each.may_form(plan.disks, plan.committed, plan.attempts) for each in sets):
            return None
        return frozenset[ProcessorId]().union(*(each.present(plan.disks) for each in sets))

    def _commit(self, plan: Plan) -> None:
        zones = self.zones
        formation = zones.attempts[-1]
        red = tuple([run.id for run in zones.red if plan.is_had_by_all(run.id)])
        record = primary_run(formation, plan.disks, plan.founding)
        self._step(Committed(formation, record, red))
        self._said.clear()
        self._enter(Phase.COMMITTING, f"primary {formation.number}")
        if self.me in self._voters:
            self._send_when_durable(Commit(plan.log, self._round, formation.number))

    def _establish(self, plan: Plan) -> None:
        """The disks of all voters have what is yellow. If a change of the set in it needs others, too, this
        and all behind it waits for them, as if it had been delivered now."""
        zones, frames = self.zones, self.zones.frames
        disks = {who: plan.disks[who] for who in self._voters}
        lasting = zones.yellow_while(lambda replicas: replicas.is_durable(disks, self._voters))
        waiting = len(zones.yellow) - lasting
        self.tally = Tally()
        self._step(Greened(zones.green_runs + lasting))
        assert len(zones.yellow) == waiting, "all that the voters make green is"
        for run in zones.yellow:
            self.tally.take(frames, self.outbox.is_own(run.id))
        self.tally.became_durable(self.journal.durable)
        self._end_handler(plan, Phase.PRIMARY, f"primary {zones.committed.number}")

    def _end_handler(self, plan: Plan, phase: Phase, why: str) -> None:
        self.outbox.restart(senders(self.zones.red, plan, self._states))
        self._enter(phase, why)

    # Data

    def _take_data(self, sender: ProcessorId, message: Data, stamp: Stamp) -> None:
        if self.phase not in TAKING:
            return  # passed over by all: its sender sends it again
        if self._cut and not message.again and sender != self.me:
            return  # its sender may pass over it, and then it would have two stamps
        run, zones = message.run, self.zones
        is_ordering = self._is_ordering
        if not is_sound(run):
            self._alarm("malformed", sender, f"run {run.id} cannot be read: all replicas pass over it")
            return
        if message.again:
            self.outbox.delivered_again(run.id)
        else:
            run = msgspec.structs.replace(run, stamp=stamp)
        if not zones.has(run.id):
            if self.outbox.is_own(run.id):
                self.outbox.delivered(run.id, is_ordering)
            self._step(PlacedFrame(run, Colour.YELLOW if is_ordering else Colour.RED))
            self.requests.logged(run.id, zones.frames)
        elif is_ordering and message.again and zones.is_red(run.id):
            self._step(Promoted((run.id,)))
        else:
            is_ordering = False
        if is_ordering:
            self.tally.take(zones.frames, self.outbox.is_own(run.id))
        if message.round == self._round and not self._cut:
            self._take_acknowledgement(sender, message.acknowledged, message.frames)

    def _take_acknowledgement(self, sender: ProcessorId, acknowledged: int, frames: int) -> None:
        plan = self.plan
        if self.phase is not Phase.PRIMARY or plan is None or sender not in plan.members:
            return
        if sender in plan.disks and sender != self.me:
            self._note_disk(Shown(sender, plan.disks[sender], self._states[sender].life, frames))
        self._count_disk(sender, acknowledged)

    def _count_disk(self, who: ProcessorId, runs: int) -> None:
        """A member's disk has so many runs of this primary component: some may be green by it."""
        self.tally.acknowledge(who, runs)
        fresh = self.tally.advance(self._is_durable)
        if fresh:
            self._step(Greened(self.zones.green_runs + fresh))

    def _is_durable(self, there: set[ProcessorId]) -> bool:
        """Order Rule 1: whether the disks of these members make a run green."""
        if self.config.acknowledgements == "all" and not self._voters <= there:
            return False
        return self._is_quorum(there)

    def _is_quorum(self, there: set[ProcessorId]) -> bool:
        """Of every set that is in force: from the green line to the end of the yellow zone."""
        plan = self.plan
        assert plan is not None, "a primary has a plan"
        disks = {who: plan.disks[who] for who in there if who in plan.disks}
        return all(each.is_durable(disks, self._voters) for each in self.zones.sets)

    def _became_green(self, ordered: Ordered) -> None:
        run = ordered.run
        if run.kind is RunKind.PRIMARY:
            return
        self.outbox.ordered(run.id)
        self.requests.ordered(ordered)

    # Read barriers

    def _tend_barriers(self) -> None:
        plan, barriers = self.plan, self.barriers
        assert plan is not None, "a primary has a plan"
        barriers.settle(self.zones.green_runs, self._is_quorum)
        if barriers.ask():
            self._send(AskBarrier(plan.log, self._round))
        if any(self.me in each.voters for each in self.zones.sets):
            answered = barriers.answer()
            if answered:
                self._send(AnswerBarriers(plan.log, self._round, answered, self.tally.durable))

    def _line(self, plan: Plan) -> Line:
        """How many runs may be green at a member, of those that were delivered here by now."""
        zones, taken, voters = self.zones, self.tally.taken, self._voters
        before = zones.green_runs - self.tally.ordered
        if len(zones.sets) > 1:  # where the change is green, what follows needs fewer disks than here
            return lambda _: before + taken
        replicas = zones.sets[0]

        def is_enough(there: set[ProcessorId]) -> bool:
            disks = {who: plan.disks[who] for who in there if who in plan.disks}
            return replicas.is_durable(disks, voters)

        return lambda answers: before + may_be_durable(taken, answers, plan.members, is_enough)

    # Catching up

    def _begun_anew(self) -> None:
        """The green prefix begins at another's mark."""
        self._kept_from = self.zones.green_runs
        # Some got their places in what this replica never sees: others can say where.
        self.requests.give_up("it has its place: ask another replica", self._is_past)

    def _is_past(self, run: RunId) -> bool:
        return self.zones.has(run) and not self._is_pending(run)

    def recalled(self, answer: Recalled) -> None:
        self.catch_up.recalled(answer)

    # What is told and traced

    def _enter(self, phase: Phase, why: str) -> None:
        before = self.standing
        self._trace.phase(self.phase.value, phase.value, why, self._round, self.members, self.plan)
        self.phase = phase
        if self.standing is not before:
            self._tell_standing(self.standing, why)

    def _tell_standing(self, standing: Standing, why: str) -> None:
        members = self.plan.members if self.plan is not None else ()
        self._scope.tell(StandingChanged(standing, self.zones.committed.number, members, why))

    def _alarm(self, kind: str, who: ProcessorId, text: str) -> None:
        self._scope.alarm(LogAlarm(kind, who, text))

    def _draw_name(self) -> int:
        """Of a disk or a life: never 0."""
        return (int(self._draw() * 2**62) ^ self._entropy) | 1
