"""What the study found, out of Spark: the few rows that are drawn, judged and printed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from totempole.spark.topology.study import CERTAINTY, Design, Study


@dataclass(frozen=True, slots=True)
class After:
    """So many deletions."""

    deleted: int
    connected: int
    share_connected: float
    mean_height: float
    """Of those that are connected."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one design."""

    graphs: int
    edges: float
    """On average, before any is deleted."""
    survived: float
    """Deletions that left it connected, on average."""
    margin: float
    after: tuple[After, ...]
    """No deletion first, then one, and so on while a graph is connected."""
    sizes: Mapping[int, float]
    """Of the smaller component when a graph first falls apart, with the share of graphs."""
    small_so_far: Mapping[int, float]
    """After so many deletions: of the graphs that have fallen apart, the share that lost one or two nodes."""

    def share_connected(self, deleted: int) -> float:
        return self.after[deleted].share_connected if deleted < len(self.after) else 0.0

    def deletions_to(self, share: float) -> int:
        """The least number of them that leave at most that share of the graphs connected, and some."""
        return next((row.deleted for row in self.after if row.share_connected <= share), len(self.after) - 1)

    def share_of_sizes_to(self, size: int) -> float:
        return sum(share for nodes, share in self.sizes.items() if nodes <= size)

    def margin_of_share(self, share: float) -> float:
        return CERTAINTY * float((share * (1 - share) / self.graphs) ** 0.5)

    def last_small(self, share: float) -> int:
        """Up to so many deletions, that share of the graphs that fell apart lost one or two nodes only."""
        return max((deleted for deleted, found in self.small_so_far.items() if found >= share), default=0)


@dataclass(frozen=True, slots=True)
class Results:
    study: Study
    outcomes: Mapping[Design, Outcome]

    @property
    def random(self) -> Outcome:
        return self.outcomes[Design.RANDOM]

    @property
    def robust(self) -> Outcome:
        return self.outcomes[Design.ROBUST]

    @property
    def filled(self) -> Outcome:
        return self.outcomes[Design.FILLED]


def collect(study: Study, tables: Mapping[str, pa.Table]) -> Results:
    rows = {name: _by_design(table) for name, table in tables.items() if name != "graphs"}
    return Results(study, {design: _outcome(rows, design) for design in Design})


def _by_design(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        found[row.pop("design")].append(row)
    return found


def _outcome(rows: Mapping[str, Mapping[str, list[dict[str, Any]]]], design: Design) -> Outcome:
    (total,) = rows["summary"][design]
    return Outcome(
        graphs=total["graphs"],
        edges=total["mean_edges"],
        survived=total["mean_survived"],
        margin=total["margin_survived"],
        after=tuple(After(**row) for row in rows["by_deletions"][design]),
        sizes={row["size"]: row["share"] for row in rows["by_size"][design]},
        small_so_far={
            row["deleted"]: row["share_small_so_far"] for row in rows["by_first_partition"][design]
        },
    )
