"""What a run of a ring on several networks reached, beside what every run reaches."""

from __future__ import annotations

from collections import Counter

from totempole.sim.script_runner import Outcome

FAULTS = ("mute", "deafen", "wire", "drain", "restore")

CHANGES = (
    "in_service>sick",
    "in_service>faulty",
    "in_service>drained",
    "in_service>in_service",
    "sick>probation",
    "faulty>probation",
    "faulty>faulty",
    "probation>in_service",
    "probation>faulty",
    "drained>in_service",
)
"""Of a network's state, or of what is known of its fault."""

BRANCHES = ("token passed up by its timer",)

EXPECTED = (
    *(f"fault: {name}" for name in FAULTS),
    "fate: crossed",
    *(f"network: {name}" for name in CHANGES),
    *(f"branch: {name}" for name in BRANCHES),
)


def network_coverage_of(outcome: Outcome) -> Counter[str]:
    found: Counter[str] = Counter()
    found["fate: crossed"] = outcome.world.counters["crossed"]
    for row in outcome.rows:
        if row.kind == "network":
            found[f"network: {row.old_state}>{row.new_state}"] += 1
    redundancy = outcome.scenario.redundancy
    if redundancy is not None:
        found[f"style: {redundancy.style}"] += 1
        found["style: tokens on one network"] += redundancy.tokens == "one"
    return +found
