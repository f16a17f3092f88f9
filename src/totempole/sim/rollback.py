"""Whether a rolled-back disk was noticed: what docs/node.md promises of a directory that was put back.

A processor whose numbers were rolled back begins a life that it has had before. It would use ring numbers,
timestamps and message identities again. Nobody can prevent it from starting, but those who remember a later
life of it refuse its Joins and say so (`effects.FormerLife`).

A rollback that loses one life exactly begins that very life again. Its Joins cannot be told from those of the
true one by their incarnation, so this is judged only for lives below what others remember.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from totempole.checkers.verdict import Findings, Verdict
from totempole.trace.schema import Row
from totempole.types import ProcessorId

REFUSED = "join of a former life"
"""The branch that a processor takes which remembers better (srp/engine.py)."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """A start from an old copy of a disk."""

    row: Row
    """Of the start."""
    witnesses: Mapping[ProcessorId, int]
    """Who remembers a later life, each with an incarnation of its own."""
    lasts: bool
    """Whether that life goes on at the end."""


def check_rollbacks(rows: Collection[Row], rollbacks: Collection[Rollback]) -> Verdict:
    found = Findings("rollback-noticed")
    for rollback in rollbacks:
        _check(rows, rollback, found)
    return found.verdict()


def _check(rows: Collection[Row], rollback: Rollback, found: Findings) -> None:
    me, start = rollback.row.node, rollback.row
    later = [row for row in rows if row.at_us >= start.at_us]
    mine = _names(_life(later, me, start.incarnation, start.step))
    heard = False
    lasting = []
    for witness, incarnation in sorted(rollback.witnesses.items()):
        life = _life(later, witness, incarnation)
        heard |= any(row.kind == "branch" and row.reason == REFUSED and row.origin == me for row in life)
        if not any(row.kind in ("crash", "leave") for row in life):
            lasting.append(witness)
        shared = sorted(mine & _names(life))
        if shared:
            found.violated(
                f"Node {witness} remembers a life of node {me} after {start.incarnation}, and is with it in "
                f"configuration {shared[0]}.",
                start,
                nodes=[witness],
            )
    if rollback.lasts and lasting and not heard:
        found.violated(
            f"Node {me} began life {start.incarnation} again, and nobody of {lasting}, who remember a later "
            "one, has refused its Joins.",
            start,
        )


def _life(rows: Collection[Row], node: ProcessorId, incarnation: int, after: int = 0) -> list[Row]:
    """What a node did in one life, from a step of its own on until it started again."""
    found = []
    for row in rows:
        if row.node == node and row.step > after:
            if row.kind == "restart":
                break
            if row.incarnation == incarnation and row.kind != "fault":
                found.append(row)
    return found


def _names(life: list[Row]) -> set[str]:
    return {
        row.configuration
        for row in life
        if row.kind == "configuration" and row.configuration_kind == "regular" and len(row.members) > 1
    }
