"""One run of a test: its seed, and the storms that were drawn in it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

from totempole.testing.faults import Fault


@dataclass(slots=True)
class Trial:
    seed: int = 0
    real: bool = False
    """On real daemons, in real time."""
    swept: bool = False
    """It is one of several runs, each with a seed of its own."""
    instead: list[list[Fault]] | None = None
    """Storms to have in place of those that are drawn."""
    drawn: list[list[Fault]] = field(default_factory=list)

    @property
    def storms(self) -> int:
        """So many were there so far."""
        return len(self.drawn)

    def storm(self, faults: list[Fault]) -> list[Fault]:
        if self.instead is not None and self.storms < len(self.instead):
            faults = self.instead[self.storms]
        self.drawn.append(faults)
        return faults


TRIAL: ContextVar[Trial] = ContextVar("totempole_trial")


def this_trial() -> Trial:
    """That of the test which runs."""
    trial = TRIAL.get(None)
    if trial is None:
        TRIAL.set(trial := Trial())
    return trial
