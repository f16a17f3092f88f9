"""What a run reached: faults that fired, state transitions, rare branches. A search says what it missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from totempole.sim.script_runner import Outcome
from totempole.trace.schema import Row
from totempole.trace.told import told

IDLE_RUN_US = 30_000_000
"""Longer runs are those in which the ring is left alone."""

FAULTS = (
    "partition",
    "heal",
    "crash",
    "restart",
    "leave",
    "pause",
    "slow",
    "cut",
    "sever",
    "condition",
    "drop-next",
    "ambush",
    "ambush after an ambush",
    "crash-within",
    "move",
    "double",
    "retire",
    "segments",
    "keys",
    "disk wipe",
    "disk lose",
    "disk slow",
    "disk stick",
)

FATES = (
    "lost",
    "duplicated",
    "reordered",
    "delayed",
    "corrupted",
    "cut",
    "cut under way",
    "sent to an old address",
    "filtered",
    "shown",
    "misdirected",
    "reflected",
    "replayed",
    "overflowed",
    "torn_writes",
)
"""What befell single datagrams and writes."""

RUNS = ("sealed", "unequal settings", "slow LAN", "full ring", "more than nine", "idle", "severed link")
"""What surrounded whole runs."""

STATES = ("starting", "operational", "gather", "commit", "recover")

TRANSITIONS = (
    "starting>gather start",
    "operational>gather token loss",
    "operational>gather foreign message",
    "operational>gather join",
    "operational>gather failure to receive",
    "operational>gather laggard expelled",
    "operational>gather leave",
    "gather>gather join",
    "gather>gather foreign message",
    "gather>gather consensus timeout",
    "gather>gather token loss",
    "gather>gather same membership twice",
    "gather>gather leave",
    "gather>commit consensus",
    "commit>gather token loss",
    "commit>gather join",
    "commit>recover commit token",
    "recover>gather token loss",
    "recover>gather join",
    "recover>gather failure to receive",
    "recover>operational ring installed",
    "operational>left left",
)

BRANCHES = (
    "recovery failed",
    "recovery failed after a promise",
    "promise given",
    "promise carried into a smaller configuration",
    "failure to receive",
    "redundant token",
    "redundant commit token",
    "token retransmitted",
    "token handed on",
    "dead link",
    "commit token lost before it came",
    "commit token given up by a member",
    "commit token lost on its first rotation",
    "commit token lost on its second rotation",
    "new ring given up by a member",
    "new ring refused by a member",
    "same membership twice",
    "consensus timeout",
    "hole in a burst repaired",
    "idle rings meet",
    "graceful leave",
    "join held back",
    "timeouts stretched",
    "idle ring woken",
    "laggard expelled",
    "laggard not taken back yet",
    "join of a former life",
    "gave way to another of its number",
    "outlived another of its number",
)

EXPECTED = (
    *(f"fault: {name}" for name in FAULTS),
    *(f"fate: {name}" for name in FATES),
    *(f"run: {name}" for name in RUNS),
    *(f"crash in: {name}" for name in STATES),
    *(f"transition: {name}" for name in TRANSITIONS),
    *(f"branch: {name}" for name in BRANCHES),
)
"""What a large search must have reached at least once."""


def coverage_of(outcome: Outcome) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in outcome.world.faults.items():
        found[f"fault: {name}"] += count
    for name in FATES:
        found[f"fate: {name}"] += outcome.world.counters[name]
    found.update(f"run: {name}" for name in _runs(outcome))
    found.update(_from_rows(outcome.rows))
    return +found


def _runs(outcome: Outcome) -> Iterator[str]:
    scenario, world = outcome.scenario, outcome.world
    turns = {
        "sealed": scenario.sealed,
        "unequal settings": any(setting.processors for setting in scenario.settings),
        "slow LAN": bool(scenario.lan.bandwidth_bytes_per_s),
        "full ring": any(host.config.members_max < len(world.hosts) for host in world.hosts.values()),
        "more than nine": len(world.hosts) > 9,
        "idle": scenario.end_us >= IDLE_RUN_US,
        "severed link": bool(world.medium.severed),
    }
    return (name for name, true in turns.items() if true)


def _from_rows(rows: Iterable[Row]) -> Counter[str]:
    found: Counter[str] = Counter()
    state_of: dict[int, str] = {}
    for row in rows:
        if row.kind == "state":
            found[f"transition: {told(row)}"] += 1
            state_of[row.node] = row.new_state
        elif row.kind == "branch":
            found[f"branch: {row.reason}"] += 1
        elif row.kind == "restart":
            state_of[row.node] = "starting"
        elif row.kind == "crash":
            found[f"crash in: {state_of[row.node]}"] += 1
    return found


def missing(found: Counter[str]) -> list[str]:
    return [name for name in EXPECTED if not found[name]]
