"""What the parts of a replica share: what it has, its way to the others, and where it stands in the view.

Each part changes what the replica has by `step`, and speaks to the others by `send` and `send_when_durable`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Protocol

from totempole.core.inputs import Command
from totempole.core.io import Scope
from totempole.corel.config import LogConfig
from totempole.corel.events import GreenLine, GreenRuns, LogAlarm, Standing, StandingChanged
from totempole.corel.frames import Begun, Frame, Placed, Shown
from totempole.corel.journal import Journal
from totempole.corel.messages import GROUP, NO_ROUND, Message, encode, inbox
from totempole.corel.outbox import Outbox
from totempole.corel.recovery import Plan
from totempole.corel.requests import Requests
from totempole.corel.run import RunKind
from totempole.corel.tracing import LogTrace
from totempole.corel.zones import Ordered, Zones
from totempole.groups.commands import JoinGroup, LeaveGroup, Multicast
from totempole.groups.layer import GroupUser
from totempole.groups.packing import pack
from totempole.types import ProcessorId, Service


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

    def attach(self, user: GroupUser) -> int:
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


class Member:
    """This replica, as a member of the log's group."""

    def __init__(
        self,
        scope: Scope,
        groups: Groups,
        process: int,
        me: ProcessorId,
        config: LogConfig,
        draw: Callable[[], float],
    ) -> None:
        """`process`: its number among the processes of this processor."""
        self.me = me
        self.config = config
        self.scope = scope
        self.groups = groups
        self.process = process
        self.trace = LogTrace(scope)
        self._draw = draw

        # What it has
        self.journal = Journal(scope, config, self.trace)
        self.outbox = Outbox(me, config.window_bytes)
        self.requests = Requests(scope)
        self.is_open = False
        self.entropy = 0
        self.kept_from = 0
        """Green runs from this one on are on its disk."""
        self.heard: dict[ProcessorId, Shown] = {}
        """By processor: what its disk has shown."""
        self.times: dict[ProcessorId, int] = {}
        """By origin: the time that its clock gave the last records that have come."""
        self.tells_green = False

        # Its way to the others
        self.is_joined = False
        self.is_awaited = False
        """It has asked to join, and has not been told yet of a view that it has come into."""
        self.has_sent = False

        # Where it stands
        self.phase = Phase.CLOSED
        self.members: tuple[ProcessorId, ...] = ()
        """Of the view."""
        self.round = NO_ROUND
        self.plan: Plan | None = None
        """What the states of this round have given."""
        self.is_cut = False
        """A transitional view has come: what follows is red."""

    @property
    def zones(self) -> Zones:
        return self.journal.zones

    @property
    def standing(self) -> Standing:
        return STANDINGS.get(self.phase, Standing.FORMING)

    @property
    def is_ordering(self) -> bool:
        return self.phase is Phase.PRIMARY and not self.is_cut

    # What it has

    def step(self, frame: Frame) -> None:
        """The one way to change it. Who waits for what has become green is told."""
        ordered = self.journal.step(frame)
        if isinstance(frame, Placed):
            run = frame.run
            if run.kind is RunKind.RECORDS:  # the log's own runs have no time
                self.times[run.id.origin] = run.time_us
        self.trace.stepped(frame, ordered, self.plan)
        if self.tells_green and ordered:
            self.scope.tell(GreenRuns(tuple(ordered)))
        elif isinstance(frame, Begun):
            self.tell_green_line()
        for each in ordered:
            self._became_green(each)

    def _became_green(self, ordered: Ordered) -> None:
        run = ordered.run
        if run.kind is RunKind.PRIMARY:
            return
        self.outbox.ordered(run.id)
        self.requests.ordered(ordered)

    def tell_green_line(self) -> None:
        if self.tells_green and self.is_open:
            zones = self.zones
            self.scope.tell(GreenLine(zones.log, zones.green_runs, zones.position))

    def note_disk(self, shown: Shown) -> None:
        """Written with the next view."""
        known = self.heard.get(shown.processor)
        if known is None or known[:3] != shown[:3] or shown.frames > known.frames:
            self.heard[shown.processor] = shown

    def draw_name(self) -> int:
        """Of a disk or a life: never 0."""
        return (int(self._draw() * 2**62) ^ self.entropy) | 1

    # Its way to the others

    def join(self) -> None:
        if not self.is_joined:
            self.is_joined = self.is_awaited = self.has_sent = True
            self.groups.act(JoinGroup(self.process, GROUP))
            self.groups.act(JoinGroup(self.process, inbox(self.me)))

    def depart(self) -> None:
        if self.is_joined:
            self.is_joined = False
            self.has_sent = True
            self.groups.act(LeaveGroup(self.process, GROUP))
            self.groups.act(LeaveGroup(self.process, inbox(self.me)))
        self.journal.drop_gated()
        self.round = NO_ROUND
        self.plan = None

    def send(self, message: Message, group: str = GROUP) -> None:
        self.has_sent = True
        self.trace.said(message)
        self.groups.act(Multicast(self.process, (group,), pack([encode(message)]), Service.AGREED))

    def send_when_durable(self, message: Message) -> None:
        self.journal.gate(lambda: self.send(message))

    # Where it stands

    def enter(self, phase: Phase, why: str) -> None:
        before = self.standing
        self.trace.phase(self.phase.value, phase.value, why, self.round, self.members, self.plan)
        self.phase = phase
        if self.standing is not before:
            self.tell_standing(self.standing, why)

    def tell_standing(self, standing: Standing, why: str) -> None:
        members = self.plan.members if self.plan is not None else ()
        self.scope.tell(StandingChanged(standing, self.zones.committed.number, members, why))

    def raise_alarm(self, kind: str, who: ProcessorId, text: str) -> None:
        self.scope.alarm(LogAlarm(kind, who, text))
