"""Which replicas are a quorum of a set, as a `replica_set` row tells it (COReL §5.5.1, §6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from totempole.trace.schema import Row
from totempole.types import ProcessorId

DYNAMIC = "dynamic"


def weights_of(replicas: Row) -> dict[ProcessorId, int]:
    return dict(zip(replicas.members, replicas.corel.weights, strict=True))


def disks_of(row: Row) -> dict[ProcessorId, int]:
    """Of a set, or of the members of a primary."""
    return dict(zip(row.members, row.corel.disks, strict=True))


def is_majority(there: Collection[ProcessorId], weights: dict[ProcessorId, int]) -> bool:
    """By weight. Of two halves, the one with the heaviest; of equals, that with the lowest number."""
    mine = sum(weight for who, weight in weights.items() if who in there)
    total = sum(weights.values())
    if 2 * mine != total or not weights:
        return 2 * mine > total
    return min(weights, key=lambda who: (-weights[who], who)) in there


def is_quorum(there: Collection[ProcessorId], replicas: Row, voters: Iterable[ProcessorId]) -> bool:
    """Whether these make a run green. `voters`: of the primary component, which dynamic voting goes by as far
    as they are replicas still."""
    weights = weights_of(replicas)
    if replicas.corel.rule == DYNAMIC:
        weights = {who: weights[who] for who in voters if who in weights} or weights
    return is_majority(there, weights)
