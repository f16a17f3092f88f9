"""What the page shows of one run: the rows of the gold tables that are its own, as plain Python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STAYS_DRAWN = 3_000
"""Of a run, the longest: the others would be thinner than a line."""
MARKS_DRAWN = 300
"""Of a run, the first."""

Record = dict[str, Any]

_ORDER = ("layer", "scope", "service", "group", "kind", "reason", "bin", "from_us", "at_us", "node", "step")


@dataclass(slots=True)
class RunFigures:
    """One run: its row of the table `runs`, and its rows of the others."""

    run: str
    totals: Record
    tables: Mapping[str, Sequence[Record]] = field(default_factory=dict)

    @property
    def start_us(self) -> int:
        return int(self.totals["start_us"])

    @property
    def length_us(self) -> int:
        return int(self.totals["end_us"]) - self.start_us

    @property
    def bin_us(self) -> int:
        return int(self.totals["bin_us"])

    @property
    def bins(self) -> int:
        return self.length_us // self.bin_us + 1

    @property
    def is_protocol(self) -> bool:
        """Whether tokens, retransmissions and drops would be in the trace."""
        return bool(self.totals["level"] == "protocol")

    def name(self, node: int) -> str:
        """As a scenario names the processor, or its number."""
        return next((row["name"] for row in self.rows("lives", node=node) if row.get("name")), str(node))

    def rows(self, table: str, **wanted: Any) -> list[Record]:
        """Those with the wanted values."""
        rows = self.tables.get(table, ())
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def natural(name: str) -> list[tuple[int, str]]:
    """A key by which seed-9 comes before seed-10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def in_order(rows: Sequence[Record]) -> list[Record]:
    """Spark gives rows in any order: the tables and the page are always the same."""
    return sorted(rows, key=_place)


def limited(table: str, rows: Sequence[Record]) -> list[Record]:
    """A run of days may have more configurations than a picture has points."""
    if table == "stays":
        longest = sorted(
            rows, key=lambda row: (row["from_us"] - row["until_us"], row["from_us"], row["node"])
        )
        return in_order(longest[:STAYS_DRAWN])
    return in_order(rows)[:MARKS_DRAWN] if table == "marks" else in_order(rows)


def _place(row: Record) -> tuple[Any, ...]:
    last = row.get("percentile", 0), row.get("configuration", ""), row.get("incarnation", 0)
    return (*(row[name] for name in _ORDER if name in row), *last)
