"""The search itself: breadth first, each state once, each judged.

A state that was reached with less of the bounds spent covers one that has spent more.

What is judged, and when:
- the protocol raises nothing, at every move;
- a safe message that is delivered has been received by every member of the configuration (Totem §3.5), at
  every delivery;
- all ring properties of `checkers`, over the rows of the path, wherever a processor has delivered a message
  or installed a configuration and the pasts of all processors have not been judged together before;
- at every state at rest, all is put right (the network is whole, all that are down start again), packets take
  their usual order, and the system must come together, deliver what it owes and one more message of each, and
  satisfy every property of a run that is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from totempole.checkers.history import History
from totempole.checkers.ring import RING
from totempole.checkers.terms import Terms
from totempole.core.order import Deliver, InstallConfiguration
from totempole.sim.explore.processor import Told, record
from totempole.sim.explore.rehearsal import Rehearsal
from totempole.sim.explore.space import Action, Space, Spent, State, Step
from totempole.sim.fuzz.trial import RAISED
from totempole.trace.recorder import Recorder
from totempole.trace.schema import Row
from totempole.trace.told import transition
from totempole.types import ConfigurationKind, MessageId, ProcessorId, RingId, Service

SETTLES = "settles"
"""The name under which a system that does not come together counts as a violated property."""

STEP_US = 1_000
"""What a step counts in the trace of a path, which has no other clock."""


class Violation(NamedTuple):
    property: str
    text: str


class Saying(NamedTuple):
    me: ProcessorId
    told: tuple[Told, ...]


class Found(NamedTuple):
    """A violation, and the way to it from the root."""

    path: tuple[Action, ...]
    violations: tuple[Violation, ...]
    at_the_end: bool
    """Only what followed the path, when all was put right, showed it."""


@dataclass(slots=True)
class Result:
    states: int = 0
    steps: int = 0
    depth: int = 0
    processor_states: int = 0
    judged: int = 0
    """Histories that the checkers have read."""
    ends: int = 0
    """States at rest from which the system was run to its end."""
    exhausted: bool = False
    """Nothing is left within the bounds."""
    found: Found | None = None
    reached: Counter[str] = field(default_factory=Counter)
    """Transitions and rare branches, once for each move of a processor that takes them."""


class Prologue(NamedTuple):
    """A root: the state that a search starts from, and what led to it."""

    state: State
    told: tuple[Saying, ...]


def violations_of(rows: list[Row], complete: bool) -> tuple[Violation, ...]:
    history = History(rows)
    terms = Terms(complete=complete)
    verdicts = (item.judge(history, terms) for item in RING.properties)
    return tuple(
        Violation(verdict.property, str(violation))
        for verdict in verdicts
        for violation in verdict.violations
    )


class Explorer:
    """Walks a space from a root."""

    def __init__(self, space: Space, root: Prologue) -> None:
        self.space = space
        self.root = root
        self.result = Result()
        self._parents: dict[State, tuple[State, Action] | None] = {root.state: None}
        self._spent: dict[tuple[object, ...], list[Spent]] = {}
        self._judged: set[tuple[bytes, ...]] = set()
        self._ended: set[tuple[object, ...]] = set()
        self._counted: set[int] = set()

    def explore(
        self,
        states_max: int,
        depth_max: int,
        progress: Callable[[Result], None] = lambda _result: None,
    ) -> Result:
        result = self.result
        level = [self.root.state]
        self._is_new(self.root.state)
        while level and result.found is None:
            following: list[State] = []
            for state in level:
                following.extend(self._visit(state))
                if result.found is not None:
                    break
                if result.states >= states_max:
                    result.processor_states = len(self.space.cabinet)
                    return result
                progress(result)
            if following:
                result.depth += 1
            level = following
            if result.depth >= depth_max and level:
                break
        result.exhausted = result.found is None and not level
        result.processor_states = len(self.space.cabinet)
        return result

    def _visit(self, state: State) -> Iterator[State]:
        result = self.result
        result.states += 1
        if self._at_end(state):
            return
        for step in self.space.steps(state):
            result.steps += 1
            violations = self.judge_step(state, step)
            if violations:
                result.found = Found((*self.path(state), step.action), violations, False)
                return
            if self._is_new(step.state):
                self._parents[step.state] = (state, step.action)
                if step.move is not None and self._tells_much(step.move.told):
                    violations = self._judge_past(step.state)
                    if violations:
                        result.found = Found(self.path(step.state), violations, False)
                        return
                yield step.state

    def _is_new(self, state: State) -> bool:
        known = self._spent.setdefault(state.core, [])
        for spent in known:
            if all(a <= b for a, b in zip(spent, state.spent, strict=True)):
                return False
        known.append(state.spent)
        return True

    def path(self, state: State) -> tuple[Action, ...]:
        actions: list[Action] = []
        link = self._parents[state]
        while link is not None:
            state, action = link
            actions.append(action)
            link = self._parents[state]
        return tuple(reversed(actions))

    # Judging

    def judge_step(self, before: State, step: Step) -> tuple[Violation, ...]:
        """What a single step can show by itself."""
        move = step.move
        if move is None:
            return ()
        if move.problem:
            return (Violation(RAISED, f"processor {step.actor + 1}: {move.problem}"),)
        if id(move) not in self._counted:
            self._counted.add(id(move))
            self.result.reached.update(reached_by(move.told))
        return tuple(self._unsafe(before, step))

    def _unsafe(self, before: State, step: Step) -> Iterator[Violation]:
        """Totem §3.5: a safe message is delivered when every member of the configuration has received it."""
        assert step.move is not None
        members = self.space.cabinet[before.processors[step.actor]].members
        for one in step.move.told:
            if isinstance(one, InstallConfiguration):
                members = one.configuration.members
            elif isinstance(one, Deliver) and one.service == Service.SAFE:
                for member in members:
                    if not self._has(step.state, member, one.message):
                        text = f"{step.actor + 1} delivers {one.message}, which {member} has not received"
                        yield Violation("safe-delivery", text)

    def _has(self, state: State, member: ProcessorId, message: MessageId) -> bool:
        return (
            message.origin == member
            or str(message) in self.space.cabinet[state.processors[member - 1]].received
        )

    def _tells_much(self, told: Iterable[Told]) -> bool:
        return any(isinstance(one, Deliver | InstallConfiguration) for one in told)

    def _judge_past(self, state: State) -> tuple[Violation, ...]:
        pasts = tuple([self.space.cabinet[number].past for number in state.processors])
        if pasts in self._judged:
            return ()
        self._judged.add(pasts)
        self.result.judged += 1
        return violations_of(rows_of(self._told(state), self.space.count), complete=False)

    def _at_end(self, state: State) -> bool:
        """Whether what follows a state at rest violates anything."""
        if not self.space.is_at_rest(state) or state.core in self._ended:
            return False
        self._ended.add(state.core)
        self.result.ends += 1
        told = list(self._told(state))
        violations = end_of(self.space, state, told)
        if violations:
            self.result.found = Found(self.path(state), violations, True)
        return bool(violations)

    def _told(self, state: State) -> Iterator[Saying]:
        """What was told on the way to a state."""
        yield from self.root.told
        current = self.root.state
        for action in self.path(state):
            step = self.space.take(current, action)
            if step.move is not None:
                yield Saying(step.actor + 1, step.move.told)
            current = step.state


def reached_by(told: Iterable[Told]) -> Iterator[str]:
    for one in told:
        kind, columns = getattr(one, "kind", ""), getattr(one, "columns", {})
        if kind == "state":
            names = ("old_state", "new_state", "reason")
            yield f"transition: {transition(*(columns[name] for name in names))}"
        elif kind == "branch":
            yield f"branch: {columns['reason']}"


def rows_of(told: Iterable[Saying], count: int) -> list[Row]:
    """The trace of a path: a step of anyone takes a millisecond."""
    rows: list[Row] = []
    recorders = [Recorder("path", me, "checked", rows.append) for me in range(1, count + 1)]
    for at, (me, effects) in enumerate(told):
        record(recorders[me - 1], at * STEP_US, effects)
    return rows


def end_of(space: Space, state: State, told: list[Saying]) -> tuple[Violation, ...]:
    """Puts all right, lets the system run to its end, and judges the whole."""
    rehearsal = Rehearsal.of(space.cabinet, state, lambda me, more: told.append(Saying(me, tuple(more))))
    rehearsal.configurations = _configurations(told)
    try:
        settled = rehearsal.finish()
    except Exception as error:
        return (Violation(RAISED, f"{type(error).__name__}: {error}"),)
    violations = violations_of(rows_of(told, space.count), complete=settled)
    if not settled:
        seen = ", ".join(f"{me} in {ring[0]}" for me, ring in sorted(rehearsal.configurations.items()))
        violations += (Violation(SETTLES, f"the processors do not come together: {seen}"),)
    return violations


def _configurations(told: Iterable[Saying]) -> dict[ProcessorId, tuple[RingId, tuple[ProcessorId, ...]]]:
    return {
        me: (one.configuration.id, one.configuration.members)
        for me, effects in told
        for one in effects
        if isinstance(one, InstallConfiguration) and one.configuration.kind == ConfigurationKind.REGULAR
    }
