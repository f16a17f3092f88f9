"""What a run did, as two numbers that a refactoring must not change.

`traffic` covers every transmission (when, from where, to whom, on which channel, its bytes), every delivery
and configuration with its place. It knows no names of effects and no format of the trace, so it can be
compared across changes of both. `trace` covers every row of the trace, and changes with its schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.plan import plan
from totempole.sim.medium import Medium
from totempole.sim.script import Scenario
from totempole.sim.script_runner import run
from totempole.trace.digest import trace_digest
from totempole.trace.schema import Row

FILE = Path(__file__).with_name("digests.json")
SEEDS = {"ring": range(200), "groups": range(100)}
PLANS: dict[str, Callable[[int], Scenario]] = {"ring": plan, "groups": group_plan}
PLACED = ("deliver", "configuration", "group_deliver", "group_view")
LENGTH = 24


@contextmanager
def _overhearing(digest: Any) -> Iterator[None]:
    true_send = Medium.send

    def send(self: Medium, source: int, transmit: Any, depart_us: int, network: int = 0) -> None:
        head = f"{depart_us} {source} {transmit.to} {int(transmit.channel)} {network} "
        digest.update((head + str([len(burst.data) for burst in transmit.bursts])).encode())
        for burst in transmit.bursts:
            digest.update(burst.data)
        true_send(self, source, transmit, depart_us, network)

    Medium.send = send  # type: ignore[method-assign]
    try:
        yield
    finally:
        Medium.send = true_send  # type: ignore[method-assign]


def _place(row: Row) -> str:
    return f"{row.node} {row.at_us} {row.kind} {row.seq} {row.count} {row.bytes} {row.members}\n"


def digests(kind: str, seed: int) -> dict[str, str]:
    traffic = hashlib.sha256()
    with _overhearing(traffic):
        rows = run(PLANS[kind](seed), level="protocol").rows
    for row in rows:
        if row.kind in PLACED:
            traffic.update(_place(row).encode())
    return {"traffic": traffic.hexdigest()[:LENGTH], "trace": trace_digest(rows)[:LENGTH]}


def known() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads(FILE.read_text())
    return found
