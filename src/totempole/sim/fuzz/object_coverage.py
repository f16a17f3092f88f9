"""What a run with a replicated object reached: what programs did, and the reads that are easily stale."""

from __future__ import annotations

from collections import Counter

from totempole.sim.fuzz.log_coverage import EXPECTED as LOG_EXPECTED
from totempole.sim.objects.own import OWN
from totempole.sim.script_runner import Outcome

ACTS = (
    "call",
    "submit",
    "deadline",
    "read",
    "durable",
    "unknown",
    "given up before it was sent",
    "append refused",
    "disconnected",
    "backlog read",
    "program opened",
    "program crashed",
    "program moved",
    "program: stall",
    "snapshot written",
    "opened from a snapshot",
    "receipt answered in another life",
    "resumed with the token in hand",
    "read while paused with the token in hand",
    "read after a pause with the token in hand",
    "history judged",
    "digest announced",
    "too old",
    "repeated",
)

LEFT_OUT = frozenset(
    {
        *("run: full ring", "run: more than nine", "run: idle", "log: append refused"),
        *(name for name in LOG_EXPECTED if name.startswith("log: barrier")),
    }
)
"""What the plan of objects does not do."""

EXPECTED = (
    *(name for name in LOG_EXPECTED if name not in LEFT_OUT),
    *(f"object: {act}" for act in ACTS),
    *(f"object: a {name}" for name in OWN),
)


def object_coverage_of(outcome: Outcome) -> Counter[str]:
    programs = outcome.objects
    assert programs is not None, "a run with objects"
    found: Counter[str] = Counter()
    for act, count in programs.acts.items():
        found[f"object: {act}"] += count
    found["object: calls"] += programs.history.began
    found["object: results"] += programs.history.ended
    found[f"object: a {programs.subject.name}"] += 1
    return found
