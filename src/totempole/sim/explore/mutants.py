"""Broken protocols that a small system shows, each with the search that notices it.

They are a choice from `sim/fuzz/mutants.py`. Some need a disk that stalls, a crash at the right moment, and
nobody else who remembers. "a token taken from anybody" no random run has noticed yet; a scenario does too.
"""

from __future__ import annotations

from totempole.sim.explore.cases import CASES, Case
from totempole.sim.explore.space import Bounds
from totempole.sim.fuzz.mutants import BY_HAND, MUTANTS, STAGED, UNNOTICED, Mutant

_ALONE = Case(1, "ring", Bounds(messages=5, crashes=1, stalls=1))
_RESTARTED = Case(1, "ring", Bounds(messages=1, crashes=1))
_PAIR = Case(2, "busy", Bounds(overtakes=1, losses=1, timeouts=1))
_PARTED_PAIR = Case(2, "busy", Bounds(partitions=1, timeouts=1))
_GAP = Case(3, "gap", Bounds(losses=1, timeouts=2, restarts=0))
_THREE = Case(3, "busy", Bounds(partitions=1, timeouts=2))

NOTICED_BY: dict[str, Case] = {
    "safe after one rotation": _PAIR,
    "safe delivered as agreed": _PAIR,
    "deliver past a gap": _PAIR,
    "a token taken from anybody": Case(3, "busy", Bounds(strays=1)),
    "a stale token accepted": Case(2, "laden", Bounds(copies=1)),
    "timestamp of the token ignored": Case(2, "busy", Bounds(losses=1, timeouts=1)),
    "timestamp restarts at zero": _RESTARTED,
    "timestamps used before they are stored": _ALONE,
    "ring number not persisted": _RESTARTED,
    "restart on the number of the last ring": _RESTARTED,
    "rebroadcast messages delivered": _THREE,
    "old-ring buffers replaced before delivery": _PARTED_PAIR,
    "nothing exchanged": _PARTED_PAIR,
    "exchange starts too late": _PARTED_PAIR,
    "what a companion delivered ignored": _PARTED_PAIR,
    "installed before everyone has everything": _PARTED_PAIR,
    "the received promise forgotten": _GAP,
    "the promise never given": _GAP,
}
"""By the mutant's name."""

CHOSEN: tuple[Mutant, ...] = tuple(
    mutant for mutant in (*MUTANTS, *STAGED, *BY_HAND, *UNNOTICED) if mutant.name in NOTICED_BY
)


def cases_of(mutant: str) -> tuple[Case, ...]:
    """The search that is known to notice it, or else all of them."""
    return (NOTICED_BY[mutant],) if mutant in NOTICED_BY else CASES
