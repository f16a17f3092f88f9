"""How runs are ordered in a view whose handler has ended: sent, delivered, acknowledged, green (COReL §5.1).

A run that is delivered in a primary component is yellow, elsewhere red (§5.2.1). It is green when a quorum's
disks have it (Order Rule 1); `tally` counts them. By the same rule a read barrier knows what may be green at
the others (`barriers`).

Deviations from COReL:
- A message that is delivered in a transitional view is red: others may lack one before it. A run that another
  sends for the first time is passed over there: where it was sent, a view may have begun before it that is
  not seen here, and then its sender passes over it, too, and sends it again with another stamp.
- A message that is delivered before the handler has ended is passed over by all. Its sender sends it again.
- Acknowledgements of a quorum suffice, unless `acknowledgements = "all"`: Order Rule 1 as it stands.
- Acknowledgements are told at once, outside of the order, and in it a little later for those who missed that
  (docs/decisions/0028-acknowledgements-without-a-place.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from totempole.corel.barriers import Barriers, Line
from totempole.corel.frames import Colour, Greened, Placed, Promoted, Shown
from totempole.corel.member import TAKING, Member, Phase, Timer
from totempole.corel.messages import Acknowledge, AnswerBarriers, AskBarrier, Data, State, encode
from totempole.corel.recovery import Plan
from totempole.corel.run import Run, Stamp, is_sound
from totempole.corel.tally import Tally, may_be_durable
from totempole.types import ProcessorId

ACKNOWLEDGE_US = 20_000
"""Runs are acknowledged in the order so soon, if the replica sends nothing before that says so."""
LANE_BYTES = 256 * 1024
"""Runs that wait in the group layer."""


class Ordering:
    def __init__(self, member: Member) -> None:
        self.tally = Tally()
        self.barriers = Barriers(member.scope, member.trace, member.me)
        self._member = member
        self._is_acknowledging = False
        """The timer for it is set."""

        # Of the primary component
        self._voters: frozenset[ProcessorId] = frozenset()
        self._lives: dict[ProcessorId, int] = {}
        self._gives_hints = False
        """Whether all members of the view hear acknowledgements past the order."""

    def begin(self, plan: Plan, voters: frozenset[ProcessorId], states: Mapping[ProcessorId, State]) -> None:
        """A primary component is established. `states`: of all members of the view."""
        self.tally = Tally()
        self._voters = voters
        self._lives = {who: state.life for who, state in states.items()}
        self._gives_hints = all(each.takes_hints for each in states.values())
        self._take_in_yellow(plan)

    def _take_in_yellow(self, plan: Plan) -> None:
        """The disks of all voters have what is yellow. If there is a change of the replica
        set in it that needs others, too, this and all behind it waits for these, as if it had been delivered
        now."""
        member, voters = self._member, self._voters
        zones, frames = member.zones, member.zones.frames
        disks = {who: plan.disks[who] for who in voters}
        lasting = zones.yellow_while(lambda replicas: replicas.is_durable(disks, voters))
        waiting = len(zones.yellow) - lasting
        member.step(Greened(zones.green_runs + lasting))
        assert len(zones.yellow) == waiting, "all that the voters make green is"
        for run in zones.yellow:
            self.tally.take(frames, member.outbox.is_own(run.id))
        self.tally.became_durable(member.journal.durable)

    def settle(self) -> None:
        """Says what is to be said now that an input is done with."""
        tally, member = self.tally, self._member
        if tally.durable > tally.told and member.is_ordering:
            self._acknowledge()
        if self.barriers.has_work and member.is_ordering:
            self._tend_barriers()

    # Runs

    def pump(self) -> None:
        """Runs wait here, not below, where what a new view needs would have to wait behind them."""
        member = self._member
        groups, process = member.groups, member.process
        for run, again in member.outbox.pump():
            self._send_data(run, again)
            if groups.waiting(process) >= LANE_BYTES:
                groups.settle()
                if groups.waiting(process) >= LANE_BYTES:
                    return

    def _send_data(self, run: Run, again: bool) -> None:
        member, tally = self._member, self.tally
        if member.phase is Phase.PRIMARY:
            tally.told = tally.durable
        member.send(Data(member.zones.log, run, again, member.round, tally.told, member.journal.durable))

    def take_data(self, sender: ProcessorId, message: Data, stamp: Stamp) -> None:
        member = self._member
        if member.phase not in TAKING:
            return  # passed over by all: its sender sends it again
        if member.is_cut and not message.again and sender != member.me:
            return  # its sender may pass over it, and then it would have two stamps
        run, zones, outbox = message.run, member.zones, member.outbox
        is_ordering = member.is_ordering
        if not is_sound(run):
            member.raise_alarm("malformed", sender, f"run {run.id} cannot be read: all replicas pass over it")
            return
        if message.again:
            outbox.delivered_again(run.id)
        else:
            run = msgspec.structs.replace(run, stamp=stamp)
        if not zones.has(run.id):
            if outbox.is_own(run.id):
                outbox.delivered(run.id, is_ordering)
            member.step(Placed(run, Colour.YELLOW if is_ordering else Colour.RED))
            member.requests.logged(run.id, zones.frames)
        elif is_ordering and message.again and zones.is_red(run.id):
            member.step(Promoted((run.id,)))
        else:
            is_ordering = False
        if is_ordering:
            self.tally.take(zones.frames, outbox.is_own(run.id))
        if message.round == member.round and not member.is_cut:
            self.take_acknowledgement(sender, message.acknowledged, message.frames)

    # What disks have

    def take_acknowledgement(self, sender: ProcessorId, acknowledged: int, frames: int) -> None:
        member = self._member
        plan = member.plan
        if member.phase is not Phase.PRIMARY or plan is None or sender not in plan.members:
            return
        if sender in plan.disks and sender != member.me:
            member.note_disk(Shown(sender, plan.disks[sender], self._lives[sender], frames))
        self._count_disk(sender, acknowledged)

    def take_hint(self, sender: ProcessorId, message: Acknowledge) -> None:
        """It came past the order, and may have been sent long ago, or by a former life."""
        member = self._member
        plan = member.plan
        if message.round == member.round and plan is not None and message.log == plan.log:
            # Of runs that have not come here yet it will be told again.
            count = min(message.acknowledged, self.tally.taken)
            self.take_acknowledgement(sender, count, message.frames)

    def became_durable(self, frames: int) -> None:
        """This replica's own disk has so many frames."""
        tally, member = self.tally, self._member
        tally.became_durable(frames)
        if member.is_ordering:
            self._count_disk(member.me, tally.durable)  # at once: the others wait for what it says of it

    def _count_disk(self, who: ProcessorId, runs: int) -> None:
        """A member's disk has so many runs of this primary component: some may be green by it."""
        self.tally.acknowledge(who, runs)
        fresh = self.tally.advance(self._is_durable)
        if fresh:
            member = self._member
            member.step(Greened(member.zones.green_runs + fresh))

    def _is_durable(self, there: set[ProcessorId]) -> bool:
        """Order Rule 1: whether the disks of these members make a run green."""
        if self._member.config.acknowledgements == "all" and not self._voters <= there:
            return False
        return self._is_quorum(there)

    def _is_quorum(self, there: set[ProcessorId]) -> bool:
        """Of every set that is in force: from the green line to the end of the yellow zone."""
        plan = self._member.plan
        assert plan is not None, "a primary has a plan"
        disks = {who: plan.disks[who] for who in there if who in plan.disks}
        return all(each.is_durable(disks, self._voters) for each in self._member.zones.sets)

    # Acknowledgements of its own

    def _acknowledge(self) -> None:
        """At once, outside of the order; and in it a little later, or with its next run, for who missed that.
        Of its own runs the others hear from each other at once, if they can do without it."""
        tally, member = self.tally, self._member
        if tally.hinted < tally.durable and self._is_awaited_by_others():
            if not self._gives_hints:
                self._acknowledge_in_order()
                return
            tally.hinted = tally.durable
            message = self._acknowledgement()
            member.trace.said(message)
            member.groups.send_unordered(encode(message))
        if not self._is_acknowledging:
            self._is_acknowledging = True
            tally.due = tally.durable
            member.scope.set_timer(Timer.ACKNOWLEDGE, ACKNOWLEDGE_US)

    def _is_awaited_by_others(self) -> bool:
        plan, tally = self._member.plan, self.tally
        assert plan is not None, "a primary has a plan"
        if tally.awaited > max(tally.hinted, tally.told):
            return True
        return not self._is_durable(set(plan.members) - {self._member.me})

    def expired(self) -> None:
        """The timer for acknowledgements in the order."""
        self._is_acknowledging = False
        if self.tally.due > self.tally.told and self._member.is_ordering:
            self._acknowledge_in_order()

    def _acknowledge_in_order(self) -> None:
        self.tally.told = self.tally.durable
        self._member.send(self._acknowledgement())

    def _acknowledgement(self) -> Acknowledge:
        member = self._member
        plan = member.plan
        assert plan is not None, "a primary has a plan"
        return Acknowledge(plan.log, member.round, self.tally.durable, member.journal.durable)

    # Read barriers

    def _tend_barriers(self) -> None:
        member, barriers = self._member, self.barriers
        plan = member.plan
        assert plan is not None, "a primary has a plan"
        barriers.settle(member.zones.green_runs, self._is_quorum)
        if barriers.ask():
            member.send(AskBarrier(plan.log, member.round))
        if any(member.me in each.voters for each in member.zones.sets):
            answered = barriers.answer()
            if answered:
                member.send(AnswerBarriers(plan.log, member.round, answered, self.tally.durable))

    def take_question(self, plan: Plan, sender: ProcessorId) -> None:
        self.barriers.asked(sender, self.tally.durable, self._line(plan))

    def _line(self, plan: Plan) -> Line:
        """How many runs may be green at a member, of those that were delivered here by now."""
        zones, taken, voters = self._member.zones, self.tally.taken, self._voters
        before = zones.green_runs - self.tally.ordered
        if len(zones.sets) > 1:  # where the change is green, what follows needs fewer disks than here
            return lambda _: before + taken
        replicas = zones.sets[0]

        def is_enough(there: set[ProcessorId]) -> bool:
            disks = {who: plan.disks[who] for who in there if who in plan.disks}
            return replicas.is_durable(disks, voters)

        return lambda answers: before + may_be_durable(taken, answers, plan.members, is_enough)
