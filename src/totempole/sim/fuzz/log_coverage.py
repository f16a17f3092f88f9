"""What a run with the durable order reached: its phases, its rare turns, and what befell its disks."""

from __future__ import annotations

from collections import Counter

from totempole.corel.member import Phase
from totempole.sim.fuzz.coverage import FATES, FAULTS, RUNS
from totempole.sim.script_logs import LOG_VERBS
from totempole.sim.script_runner import Outcome

ACTS = (
    *("append", "durable", "placed", "fenced", "append refused", "replica set changed"),
    *("barrier asked", "barrier passed", "barrier asked outside a primary"),
    "barrier asked in a primary of the past",
)

EXPECTED = (
    *(f"fault: {name}" for name in FAULTS if name != "double"),
    *(f"fate: {fate}" for fate in FATES),
    *(f"run: {name}" for name in RUNS),
    *(f"log: {phase.value}" for phase in Phase),
    *(f"log: disk {verb}" for verb in LOG_VERBS),
    *(f"log: {act}" for act in ACTS),
)


def log_coverage_of(outcome: Outcome) -> Counter[str]:
    appenders = outcome.appenders
    assert appenders is not None, "a run with a log"
    found: Counter[str] = Counter()
    for row in outcome.rows:
        if row.kind == "phase":
            found[f"log: {row.new_state}"] += 1
    for act, count in appenders.acts.items():
        found[f"log: {act}"] += count
    for name, count in outcome.world.faults.items():
        if name.startswith("log disk "):
            found["log: disk " + name.removeprefix("log disk ")] += count
    return found
