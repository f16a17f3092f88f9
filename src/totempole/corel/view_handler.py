"""The handler of a view (COReL §5.5, figure 3.5): what a change of view sets off, until runs are taken again.

Members exchange states, and the representative sends its priority messages (§5.5.2); with a quorum the three
phases of figure 3.6 follow. A view may run its handler several times (`Round`), when a replica that was
behind has caught up.

What follows from the states is in `recovery`, as a pure function. Here is what exists while the handler runs;
what outlives it is in `member`, and what exists in a primary component only is in `ordering`.

Deviations from COReL:
- States are exchanged at every view. Figure 3.5's shortcut, without new members only to establish, holds only
  after a handler that ran to its end at all members.
- Step 7 does not stop the members: see `outbox`.
"""

from __future__ import annotations

from collections.abc import Callable

from totempole.corel.catch_up import CatchUp
from totempole.corel.commands import CloseLog
from totempole.corel.events import Standing
from totempole.corel.frames import (
    Agreed,
    Attempted,
    Colour,
    Committed,
    Heard,
    Identified,
    Placed,
    Shown,
)
from totempole.corel.member import Member, Phase
from totempole.corel.messages import Attempt, Commit, Priority, Round, State
from totempole.corel.ordering import Ordering
from totempole.corel.quorum import Formation
from totempole.corel.recovery import Plan, is_rolled_back, log_of, plan_for, senders
from totempole.corel.run import Run, RunId, RunKind, Stamp, primary_run
from totempole.corel.tracing import CUT_OFF
from totempole.groups.events import GroupView
from totempole.types import ProcessorId

PRIORITY_BYTES = 256 * 1024
"""Of runs in one part of the priority messages."""


class ViewHandler:
    def __init__(
        self, member: Member, ordering: Ordering, catch_up: CatchUp, close: Callable[[CloseLog], None]
    ) -> None:
        """`close`: the log cannot go on."""
        self._member = member
        self._ordering = ordering
        self._catch_up = catch_up
        self._close = close
        self._states: dict[ProcessorId, State] = {}
        self._parts: list[Priority] = []
        self._voters: frozenset[ProcessorId] = frozenset()
        self._said: set[ProcessorId] = set()
        """Whose attempt, or then commit, has come."""

    # Views and rounds

    def cut_off(self) -> None:
        """A transitional view has come."""
        member = self._member
        member.is_cut = True
        member.trace.phase(
            member.phase.value, CUT_OFF, "a transitional view", member.round, member.members, None
        )
        if member.phase is Phase.PRIMARY:
            member.tell_standing(Standing.FORMING, "a member has gone")

    def begin_view(self, view: GroupView) -> None:
        member = self._member
        member.members = tuple(sorted({each.processor for each in view.members}))
        assert member.me in member.members, "a replica is in its own views"
        self._catch_up.end_view()
        self._begin_round(Round(Stamp.of(view.place), 1), "a new view")

    def take_caught_up(self, sender: ProcessorId) -> None:
        view, number = self._member.round
        self._begin_round(Round(view, number + 1), f"{sender} has caught up")

    def _begin_round(self, round: Round, why: str) -> None:
        """The handler of figure 3.5, from its beginning. Nothing that an earlier run has done is undone."""
        member = self._member
        member.round = round
        member.is_cut = False
        member.plan = None
        self._states.clear()
        self._parts.clear()
        self._catch_up.begin_round(round)
        self._ordering.barriers.restart()
        member.journal.drop_gated()
        member.enter(Phase.EXCHANGING, why)
        zones = member.zones
        heard = tuple([shown for _, shown in sorted(member.heard.items())])
        if member.heard != zones.heard:
            member.step(Heard(heard))
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
            kept_from=member.kept_from,
            yellow=tuple([run.id for run in zones.yellow]),
            vector=tuple([RunId(*who, number) for who, number in sorted(zones.vector.items())]),
            heard=heard,
            openings=tuple(zones.openings),
            founding=None if zones.committed.number else member.config.founding,
            takes_hints=True,
        )
        member.send_when_durable(state)

    # States (steps 1 and 2)

    def take_state(self, sender: ProcessorId, state: State) -> None:
        member = self._member
        if member.phase is not Phase.EXCHANGING or sender not in member.members:
            return
        self._states[sender] = state
        if self._states.keys() != set(member.members):
            return
        member.plan = plan = plan_for(member.me, self._states)
        if plan.green > plan.length:
            # The representative knows of a later primary, and lacks what is green: a quorum's disks are lost.
            member.raise_alarm(
                "forked", plan.representative, "the order has forked: keep one side, `totem log rescue`"
            )
            self._close(CloseLog("the order has forked: the disks of a quorum were lost or are old"))
            return
        self._watch_disks(plan)
        if member.me not in plan.members:
            member.enter(Phase.LOOKING_ON, f"{plan.green - member.zones.green_runs} runs behind")
            self._catch_up.look_on(plan)
            return
        member.enter(Phase.AGREEING, f"{plan.representative} represents")
        if plan.representative == member.me:
            self._send_priority(plan)

    def _watch_disks(self, plan: Plan) -> None:
        """Remembers what the others' disks have shown, and raises what is wrong with them."""
        member, states = self._member, self._states
        mine = log_of(member.me, states)
        for who, state in sorted(states.items()):
            if log_of(who, states) != mine:
                member.raise_alarm(
                    "another-log", who, f"replica {who} has another cluster's log: it is ignored"
                )
            elif is_rolled_back(who, states):
                member.raise_alarm("rolled-back", who, f"replica {who} has an old disk: it does not vote")
            elif who != member.me:
                member.note_disk(Shown(who, state.disk, state.life, state.frames))
        told = [state.founding for state in states.values() if state.founding is not None]
        if any(each != told[0] for each in told):
            member.raise_alarm(
                "founding", member.me, "the replicas were told to found different logs: see `replicas`"
            )
        if is_rolled_back(member.me, states):
            # As a new disk it counts again once a primary has formed without it, and has taken it in.
            member.step(Identified(member.draw_name()))
            self._catch_up.say_caught_up(plan)

    # Priority messages (steps 3 to 6)

    def _send_priority(self, plan: Plan) -> None:
        member = self._member
        zones = member.zones
        order: list[RunId] = []
        runs: list[Run] = []
        size = 0
        for run in (*zones.recent_runs(plan.base), *zones.yellow):
            order.append(run.id)
            if run.kind is RunKind.PRIMARY or not plan.is_had_by_all(run.id):
                runs.append(run)
                size += run.size
            if size > PRIORITY_BYTES:
                member.send_when_durable(Priority(plan.log, member.round, tuple(order), tuple(runs), False))
                order, runs, size = [], [], 0
        member.send_when_durable(Priority(plan.log, member.round, tuple(order), tuple(runs), True))

    def take_priority(self, plan: Plan, sender: ProcessorId, message: Priority) -> None:
        if self._member.phase is not Phase.AGREEING or sender != plan.representative:
            return
        self._parts.append(message)
        if message.is_last:
            self._agree(plan)

    def _agree(self, plan: Plan) -> None:
        """Steps 3, 5 and 6 at once: all members have the representative's green and yellow runs."""
        member = self._member
        zones = member.zones
        order = tuple([run for part in self._parts for run in part.order])
        runs = [run for part in self._parts for run in part.runs]
        for run in runs:
            if run.kind is not RunKind.PRIMARY and not zones.has(run.id):
                member.step(Placed(run, Colour.RED))
        records = tuple([run for run in runs if run.kind is RunKind.PRIMARY])
        log = plan.log or (self._states[plan.representative].disk if plan.founding is not None else 0)
        member.step(Agreed(plan.base, order, plan.green, plan.committed, log, records))
        assert zones.green_runs + len(zones.yellow) == plan.length, "all have what the representative has"
        voters = self._voters_of(plan)
        if voters is None:
            self._end(plan, Phase.MINORITY, "no majority is connected")
            return
        formation = Formation(plan.attempted + 1, tuple(sorted(voters)))
        self._voters = voters
        self._said.clear()
        member.step(Attempted(formation))
        member.enter(Phase.ATTEMPTING, f"primary {formation.number}")
        if member.me in voters:
            member.send_when_durable(Attempt(plan.log, member.round, formation.number))

    def _voters_of(self, plan: Plan) -> frozenset[ProcessorId] | None:
        """Who forms the primary component, if the members may: a quorum of every set from the green line to
        the yellow one."""
        sets = self._member.zones.sets or ([] if plan.founding is None else [plan.founding])
        if not sets or not all(each.may_form(plan.disks, plan.committed, plan.attempts) for each in sets):
            return None
        return frozenset[ProcessorId]().union(*(each.present(plan.disks) for each in sets))

    # Establishing (figure 3.6)

    def take_attempt(self, plan: Plan, sender: ProcessorId) -> None:
        if self._member.phase is not Phase.ATTEMPTING:
            return
        self._said.add(sender)
        if self._said >= self._voters:
            self._commit(plan)

    def _commit(self, plan: Plan) -> None:
        member = self._member
        zones = member.zones
        formation = zones.attempts[-1]
        red = tuple([run.id for run in zones.red if plan.is_had_by_all(run.id)])
        record = primary_run(formation, plan.disks, plan.founding)
        member.step(Committed(formation, record, red))
        self._said.clear()
        member.enter(Phase.COMMITTING, f"primary {formation.number}")
        if member.me in self._voters:
            member.send_when_durable(Commit(plan.log, member.round, formation.number))

    def take_commit(self, plan: Plan, sender: ProcessorId) -> None:
        if self._member.phase is not Phase.COMMITTING:
            return
        self._said.add(sender)
        if self._said >= self._voters:
            self._establish(plan)

    def _establish(self, plan: Plan) -> None:
        self._ordering.begin(plan, self._voters, self._states)
        self._end(plan, Phase.PRIMARY, f"primary {self._member.zones.committed.number}")

    def _end(self, plan: Plan, phase: Phase, why: str) -> None:
        member = self._member
        member.outbox.restart(senders(member.zones.red, plan, self._states))
        member.enter(phase, why)
