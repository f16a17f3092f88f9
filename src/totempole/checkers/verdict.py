"""What a check says: a verdict for each property, and who and what broke it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from totempole.trace.schema import Row
from totempole.types import ProcessorId

LISTED_MAX = 20
"""Violations, and reasons to be undecided, that one verdict lists. All are counted."""


class Outcome(StrEnum):
    HOLDS = "holds"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Violation:
    property: str
    nodes: tuple[ProcessorId, ...]
    messages: tuple[str, ...]
    steps: tuple[tuple[ProcessorId, int], ...]
    """Where to look: (node, step) of the rows that show it."""
    text: str

    def __str__(self) -> str:
        parts = [f"{self.property} violated", f"nodes {_listed(self.nodes)}"]
        if self.messages:
            parts.append(f"messages {_listed(self.messages)}")
        if self.steps:
            parts.append(f"steps {_listed(self.steps)}")
        return f"{'; '.join(parts)}: {self.text}"


@dataclass(frozen=True, slots=True)
class Verdict:
    property: str
    outcome: Outcome
    violations: tuple[Violation, ...] = ()
    """The first LISTED_MAX of them."""
    count: int = 0
    """How many violations there are in all."""
    reasons: tuple[str, ...] = ()
    """Why parts of the property could not be decided."""
    note: str = ""
    """What a bare outcome would hide: that there was nothing to judge."""

    def told(self) -> str:
        """The outcome in words."""
        return self.note or str(self.outcome)

    def __str__(self) -> str:
        more = (
            [f"… and {self.count - len(self.violations)} more"] if self.count > len(self.violations) else []
        )
        details = [str(violation) for violation in self.violations] + more
        if self.outcome is Outcome.UNDECIDED:
            details = list(self.reasons)
        return "\n  ".join([f"{self.property}: {self.told()}", *details])


@dataclass(frozen=True, slots=True)
class Report:
    verdicts: tuple[Verdict, ...]

    def __getitem__(self, name: str) -> Verdict:
        return next(verdict for verdict in self.verdicts if verdict.property == name)

    def with_outcome(self, outcome: Outcome) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is outcome)

    @property
    def violated(self) -> tuple[Verdict, ...]:
        return self.with_outcome(Outcome.VIOLATED)

    @property
    def undecided(self) -> tuple[Verdict, ...]:
        return self.with_outcome(Outcome.UNDECIDED)

    def __str__(self) -> str:
        return "\n".join(map(str, self.verdicts))


class Findings:
    """Where a check writes down what it finds about one property."""

    def __init__(self, name: str, listed_max: int = LISTED_MAX) -> None:
        self.name = name
        self._listed_max = listed_max
        self._violations: list[Violation] = []
        self._count = 0
        self._reasons: list[str] = []

    def violated(
        self, text: str, *rows: Row, nodes: Iterable[ProcessorId] = (), messages: Iterable[str] = ()
    ) -> None:
        """Notes a violation. Its nodes are `nodes`, or else those of the rows that show it; its messages are
        those of the rows, and `messages`."""
        self._count += 1
        if self._count > self._listed_max:
            return
        everyone = sorted(set(nodes) or {row.node for row in rows})
        every = dict.fromkeys([*(row.message for row in rows if row.message), *messages])
        steps = dict.fromkeys((row.node, row.step) for row in rows)
        self._violations.append(Violation(self.name, tuple(everyone), tuple(every), tuple(steps), text))

    def undecided(self, text: str) -> None:
        if len(self._reasons) < self._listed_max:
            self._reasons.append(text)

    def overdue(self, due: bool, text: str, *rows: Row, nodes: Iterable[ProcessorId] = ()) -> None:
        """Something has not happened: a violation when it should have by now, else not to be told yet."""
        if due:
            self.violated(text, *rows, nodes=nodes)
        else:
            self.undecided(text)

    def verdict(self) -> Verdict:
        outcome = Outcome.HOLDS
        if self._count:
            outcome = Outcome.VIOLATED
        elif self._reasons:
            outcome = Outcome.UNDECIDED
        return Verdict(self.name, outcome, tuple(self._violations), self._count, tuple(self._reasons))


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
