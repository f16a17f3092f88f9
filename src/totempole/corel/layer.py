"""COReL's algorithm (COReL §5) over the group layer: the life of a replica's log, and where each input goes.

All replicas are members of one group. Transitions happen when a message is delivered, so at the same place
for all. Only sends wait for the disk: what a crash makes a replica forget, nobody has heard of from it.

How to read it: `told` and `_take` say which part takes a view or a message. A change of view runs the handler
of figure 3.5 (`view_handler`, with what follows from the states in `recovery`). Once it has ended, runs are
ordered (`ordering`, with Order Rule 1). `catch_up` is for a replica that is far behind. What programs add
comes in by `submissions`. What these parts share is in `member`. Each names its deviations from COReL.
"""

from __future__ import annotations

from collections.abc import Callable

from totempole.core.inputs import Recalled
from totempole.core.io import Scope
from totempole.core.order import Leave
from totempole.core.stack import BaseLayer, Commands
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
from totempole.corel.events import GreenEnded, Standing
from totempole.corel.frames import Identified, Opened, Opening
from totempole.corel.member import ENDED, TAKING, Groups, Member, Phase, Timer
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
    State,
    decode,
)
from totempole.corel.ordering import Ordering
from totempole.corel.recovery import Plan
from totempole.corel.run import RunId, Stamp
from totempole.corel.submissions import Submissions
from totempole.corel.tally import Tally
from totempole.corel.view_handler import ViewHandler
from totempole.corel.zones import Zones
from totempole.errors import CodecError
from totempole.groups.events import GroupEvent, GroupMessages, GroupView
from totempole.groups.packing import Batch
from totempole.types import ConfigurationKind, ProcessId, ProcessorId

LAYER = "corel"

GREEN_LINE_US = 20_000
"""The green line is written so soon, if nothing else is written before."""
LIVES_SHIFT = 20
"""A life is the processor's incarnation and how often it has opened its log in it."""
RUN_BYTES_MAX = 16 * 1024 * 1024
"""What is appended at once, where messages of the groups are larger."""
OUTBOX_BYTES_MAX = 16 * 1024 * 1024
"""Beyond it the layer wants no more records (`accepts`)."""


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
        self.member = member = Member(scope, groups, groups.attach(self), me, config, draw)
        self.journal = member.journal
        self.outbox = member.outbox
        self.requests = member.requests
        self.ordering = Ordering(member)
        self.barriers = self.ordering.barriers
        self.catch_up = CatchUp(
            scope, member.journal, member.trace, member.step, member.send, self._begun_anew
        )
        self.handler = ViewHandler(member, self.ordering, self.catch_up, self._close)
        self.submissions = Submissions(member, run_bytes_max)
        self._scope = scope
        self._groups = groups
        self._incarnation = incarnation
        self._openings = 0
        self._is_leaving = False
        self._is_aside = False
        """It has left the group until its disk has written what waits."""
        self._left = NO_ROUND
        """The round in which it did."""
        self._was_idle = True
        """Nothing was being written."""
        self._is_timer_set = False
        """That for the green line."""

    @property
    def commands(self) -> Commands:
        return {
            OpenLog: self._open,
            CloseLog: self._close,
            AppendRecords: self.submissions.append_records,
            SetHold: self.submissions.set_hold,
            ChangeReplicas: self.submissions.change_replicas,
            Forget: self._forget,
            FindRun: self._find,
            ReadBarrier: self._read_barrier,
            TellGreen: self._tell_green,
            Leave: self._leave,
        }

    # The life of the log

    def _open(self, command: OpenLog) -> None:
        member = self.member
        assert not member.is_open, "a log is opened once"
        if self._is_leaving:
            return  # the groups below take no more members: the next life opens it
        member.is_open = True
        self._openings += 1
        member.entropy = command.entropy
        self.journal.open(command.frames, command.zones)
        life = self._new_life()
        self.outbox.open(life)
        member.kept_from = command.kept_from
        member.heard = dict(self.zones.heard)
        member.trace.opened(self.zones, life, self.config.acknowledgements, command.is_damaged)
        member.tell_green_line()
        member.step(Opened(Opening(life, self.zones.frames)))
        if not self.zones.disk or command.is_damaged:
            member.step(Identified(member.draw_name()))  # a disk that has forgotten something is another one
        member.join()

    def _new_life(self) -> int:
        """Never had before, also where the processor has lost its numbers, or has them from a backup."""
        if self.member.entropy:
            return self.member.draw_name()
        lives = [life for origin, life in self.zones.vector if origin == self.me]
        return max([self._incarnation << LIVES_SHIFT | self._openings, *(life + 1 for life in lives)])

    def _leave(self, _command: Leave) -> None:
        """The groups below take nothing more. What is on disk gets its place when the node is back."""
        self._is_leaving = True
        if self.is_open:  # the green line is written along: a reader of the directory sees all that is green
            self.journal.hurry()
            self.journal.flush()
        self._close(CloseLog("the node leaves the ring"))

    def _close(self, command: CloseLog) -> None:
        member = self.member
        if not member.is_open:
            return
        member.is_open = self._is_aside = False
        member.trace.closed(command.why)
        self._depart()
        self.journal.close()
        if member.tells_green:
            self._scope.tell(GreenEnded(command.why))
        self._was_idle = True
        self._scope.cancel_timer(Timer.DISK)
        self.requests.close(f"this node's log is closed: {command.why}")
        member.enter(Phase.CLOSED, command.why)

    def _depart(self) -> None:
        self.member.depart()
        self.catch_up.end_view()
        self.barriers.restart()

    def _step_aside(self) -> None:
        """A replica too slow for its log lets the others go on, and comes back as one that is behind."""
        member = self.member
        self._is_aside = True
        member.raise_alarm("slow-disk", self.me, "this disk is too slow: the replica steps aside")
        if member.phase in ENDED:
            self._left = member.round
        self._depart()
        member.enter(Phase.LEAVING if member.phase in TAKING else Phase.CLOSED, "the disk is too slow")

    # The disk and the timers

    def appended(self, ticket: int) -> None:
        journal = self.journal
        if not journal.appended(ticket):
            return
        self._was_idle = journal.is_idle
        if self._was_idle:
            self._scope.cancel_timer(Timer.DISK)
        else:
            self._scope.set_timer(Timer.DISK, self.config.disk_timeout_us)
        self.requests.became_durable(journal.durable)
        self.ordering.became_durable(journal.durable)
        if self._is_aside and journal.is_idle:
            self._is_aside = False
            self.member.join()
        if self.phase is Phase.LOOKING_ON:
            self.catch_up.fetch_more()

    def recalled(self, answer: Recalled) -> None:
        self.catch_up.recalled(answer)

    def expired(self, timer: int) -> None:
        self._scope.expired(Timer(timer))
        if timer == Timer.DISK:
            if not self._is_aside:
                self._step_aside()  # it may hang: others would wait for its states forever
        elif timer == Timer.ACKNOWLEDGE:
            self.ordering.expired()
        else:
            self._is_timer_set = False
            self.journal.hurry()

    def settle(self) -> None:
        member = self.member
        if not member.is_open and not member.has_sent:
            return
        self._settle()
        while member.has_sent:
            member.has_sent = False
            self._groups.settle()
            self._settle()  # with a token at hand what was sent has come back by now, and is to be written

    def _settle(self) -> None:
        member, journal = self.member, self.journal
        if member.phase in ENDED and not member.is_cut:
            self.ordering.pump()
        if journal.flush() and self._was_idle:
            self._was_idle = False
            self._scope.set_timer(Timer.DISK, self.config.disk_timeout_us)
        if journal.backlog_bytes > self.config.queue_bytes_max and not self._is_aside:
            self._step_aside()
        if journal.has_lazy_frames and not self._is_timer_set:
            self._is_timer_set = True
            self._scope.set_timer(Timer.GREEN_LINE, GREEN_LINE_US)
        self.ordering.settle()

    # The group below

    def told(self, event: GroupEvent) -> None:
        member = self.member
        if not member.is_open:
            return
        if isinstance(event, GroupMessages):
            self._hear(event)
        elif isinstance(event, GroupView) and event.group == GROUP:
            if member.is_awaited and all(each.processor != self.me for each in event.together):
                member.is_awaited = False
                if member.phase is Phase.LEAVING:
                    member.enter(Phase.CLOSED, "it has left, and come back")
            if event.kind is ConfigurationKind.TRANSITIONAL:
                self.handler.cut_off()
            elif member.is_joined and not member.is_awaited:
                self.handler.begin_view(event)
            elif member.phase is not Phase.CLOSED:
                member.enter(Phase.CLOSED, "it has stepped aside")  # the others pass over all that follows

    def _hear(self, event: GroupMessages) -> None:
        stamp = Stamp.of(event.place)
        for content in Batch(event.batch).views():
            try:
                message = decode(content)
            except CodecError:
                self._report_malformed(event.sender.processor)
                continue
            self._take(event.sender.processor, message, stamp)

    def told_unordered(self, sender: ProcessorId, payload: bytes) -> None:
        """Another replica's acknowledgement."""
        member = self.member
        if not member.is_open or not member.is_ordering:
            return
        try:
            message = decode(payload)
        except CodecError:
            self._report_malformed(sender)
            return
        if isinstance(message, Acknowledge):
            self.ordering.take_hint(sender, message)

    def _report_malformed(self, sender: ProcessorId) -> None:
        self.member.raise_alarm("malformed", sender, "a message of the log cannot be read")

    def _take(self, sender: ProcessorId, message: Message, stamp: Stamp) -> None:
        member = self.member
        if isinstance(message, Data):
            if message.log == member.zones.log:
                self.ordering.take_data(sender, message, stamp)
            return
        if isinstance(message, Fetched) and message.round.view == member.round.view:
            self.catch_up.came(message)  # ordered runs are what they are, also if a round has begun since
            if member.phase is Phase.LOOKING_ON:
                self.catch_up.fetch_more()
            return
        if member.phase is Phase.LEAVING and isinstance(message, CaughtUp) and message.round == self._left:
            if not member.is_cut:
                member.enter(Phase.CLOSED, f"it has stepped aside, and {sender} has caught up")
            return
        if message.round != member.round or member.is_cut:
            return
        if isinstance(message, State):
            self.handler.take_state(sender, message)
            return
        if isinstance(message, CaughtUp):
            # Of any log: a round begins for all members of the view, or for none.
            self.handler.take_caught_up(sender)
            return
        plan = member.plan
        if plan is None or message.log != plan.log:
            return
        match message:
            case Acknowledge():
                self.ordering.take_acknowledgement(sender, message.acknowledged, message.frames)
            case Priority():
                self.handler.take_priority(plan, sender, message)
            case Attempt():
                self.handler.take_attempt(plan, sender)
            case Commit():
                self.handler.take_commit(plan, sender)
            case Fetch() if message.donor == self.me:
                self.catch_up.answer(sender, message)
            case AskBarrier() if member.phase is Phase.PRIMARY:
                self.ordering.take_question(plan, sender)
            case AnswerBarriers() if member.phase is Phase.PRIMARY:
                self.barriers.answered(sender, message.answered, message.durable)
            case _:
                pass

    def _begun_anew(self) -> None:
        """The green prefix begins at another's mark."""
        self.member.kept_from = self.zones.green_runs
        # Some got their places in what this replica never sees: others can say where.
        self.requests.give_up("it has its place: ask another replica", self._is_past)

    # What programs ask for

    def _forget(self, command: Forget) -> None:
        self.requests.forget(command.process)
        self.barriers.forget(command.process)

    def _find(self, command: FindRun) -> None:
        self.requests.find(command.process, command.request, command.run, self._is_pending)

    def _is_pending(self, run: RunId) -> bool:
        return self.outbox.holds(run) or self.zones.is_pending(run)

    def _is_past(self, run: RunId) -> bool:
        return self.zones.has(run) and not self._is_pending(run)

    def _read_barrier(self, command: ReadBarrier) -> None:
        self.barriers.wait(command.process, command.request)

    def _tell_green(self, command: TellGreen) -> None:
        self.member.tells_green = command.on
        self.member.tell_green_line()

    # What others ask

    @property
    def is_open(self) -> bool:
        return self.member.is_open

    @property
    def is_joined(self) -> bool:
        """Whether it is, or is about to be, a member of the group."""
        return self.member.is_joined

    @property
    def accepts(self) -> bool:
        """Whether programs should give it more records at present."""
        return self.outbox.bytes < OUTBOX_BYTES_MAX

    @property
    def process(self) -> ProcessId:
        """What it is called in groups."""
        return ProcessId(self.me, self._incarnation, self.member.process)

    @property
    def zones(self) -> Zones:
        return self.member.zones

    @property
    def phase(self) -> Phase:
        return self.member.phase

    @property
    def standing(self) -> Standing:
        return self.member.standing

    @property
    def members(self) -> tuple[ProcessorId, ...]:
        """Of the view."""
        return self.member.members

    @property
    def plan(self) -> Plan | None:
        return self.member.plan

    @property
    def tally(self) -> Tally:
        return self.ordering.tally

    def take_times(self) -> dict[ProcessorId, int]:
        """By origin: the time that its clock gave the last records that have come since this was asked. The
        node, which has a clock, compares with it."""
        times, self.member.times = self.member.times, {}
        return times
