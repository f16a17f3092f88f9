"""Adds up what a campaign found: outcomes, coverage merged over all runs, and the failing seeds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from totempole.sim.fuzz.kinds import KINDS
from totempole.sim.fuzz.profiles import PROFILES
from totempole.spark.campaign.attempt import JUDGED, Ending
from totempole.spark.campaign.cases import Campaign, Case
from totempole.spark.campaign.tables import COVERAGE, FAILURES

COVERAGE_SEEDS_MIN = 1_000
"""A search of so many seeds with nothing left out must have reached everything that its kind expects."""


@dataclass(frozen=True, slots=True)
class Part:
    """The runs of one kind with one profile."""

    kind: str
    profile: str
    outcomes: Counter[str]
    packet_events: int
    deliveries: int

    @property
    def runs(self) -> int:
        return self.outcomes.total()

    @property
    def unjudged(self) -> int:
        return self.runs - sum(self.outcomes[ending] for ending in JUDGED)


class Summary:
    def __init__(self, campaign: Campaign, runs: Any) -> None:
        """`runs` is the table of the campaign's runs, in order."""
        self.campaign = campaign
        self.runs: int = runs.num_rows
        self.parts = _parts(campaign, runs)
        self.failures = _failures(runs)
        self._coverage = _coverage(runs)

    @property
    def failed(self) -> int:
        return int(self.failures.num_rows)

    @property
    def complete(self) -> bool:
        return self.runs == len(self.campaign)

    def reached(self, kind: str) -> Counter[str]:
        """How often, in all runs of the kind."""
        found: Counter[str] = Counter()
        for row in self._coverage.select(["kind", "name", "times"]).to_pylist():
            if row["kind"] == kind:
                found[row["name"]] += row["times"]
        return found

    def expected(self, kind: str) -> tuple[str, ...]:
        """What the search is to reach: nothing in particular where every profile leaves something out."""
        whole = any(PROFILES[name].whole for name in self.campaign.profiles)
        return KINDS[kind].expected if whole else ()

    def missing(self, kind: str) -> list[str]:
        """What the search has not reached yet."""
        reached = self.reached(kind)
        return [name for name in self.expected(kind) if not reached[name]]

    def demands(self, kind: str) -> bool:
        """Whether so much was searched that whatever is missing tells against the search."""
        return any(
            part.kind == kind and PROFILES[part.profile].whole and part.runs >= COVERAGE_SEEDS_MIN
            for part in self.parts
        )

    @property
    def covers(self) -> bool:
        return not any(self.demands(kind) and self.missing(kind) for kind in self.campaign.kinds)

    @property
    def holds(self) -> bool:
        return self.complete and not self.failed and self.covers

    @property
    def coverage(self) -> Any:
        """The table, with what is missing."""
        absent = [
            {"kind": kind, "profile": None, "name": name, "times": 0, "runs": 0, "first_seed": None}
            for kind in self.campaign.kinds
            for name in self.missing(kind)
        ]
        return pa.concat_tables([self._coverage, pa.Table.from_pylist(absent, schema=COVERAGE)])


def _parts(campaign: Campaign, runs: Any) -> list[Part]:
    counted = runs.group_by(["kind", "profile", "outcome"]).aggregate(
        [([], "count_all"), ("packet_events", "sum"), ("deliveries", "sum")]
    )
    rows = counted.to_pylist()

    def part(kind: str, profile: str) -> Part:
        mine = [row for row in rows if (row["kind"], row["profile"]) == (kind, profile)]
        outcomes = Counter({row["outcome"]: row["count_all"] for row in mine})
        events, deliveries = (
            sum(row[f"{name}_sum"] for row in mine) for name in ("packet_events", "deliveries")
        )
        return Part(kind, profile, outcomes, events, deliveries)

    return [part(kind, profile) for kind in campaign.kinds for profile in campaign.profiles]


def _coverage(runs: Any) -> Any:
    """The maps of all runs laid end to end, and added up by name."""
    maps = runs["coverage"].combine_chunks()
    run_of = np.repeat(np.arange(len(maps)), np.diff(maps.offsets.to_numpy()))
    flat = runs.select(["kind", "profile", "seed"]).take(pa.array(run_of))
    flat = flat.append_column("name", maps.keys).append_column("times", maps.items)
    merged = flat.group_by(["kind", "profile", "name"]).aggregate(
        [("times", "sum"), ([], "count_all"), ("seed", "min")]
    )
    renamed = {"times_sum": "times", "count_all": "runs", "seed_min": "first_seed"}
    merged = merged.rename_columns([renamed.get(name, name) for name in merged.column_names])
    order = [(name, "ascending") for name in ("kind", "profile", "name")]
    return merged.select(COVERAGE.names).cast(COVERAGE).sort_by(order)


def _failures(runs: Any) -> Any:
    bad = runs.filter(pc.not_equal(runs["outcome"], str(Ending.HOLDS))).select(FAILURES.names[:-1])
    cases = zip(*(bad[name].to_pylist() for name in ("kind", "profile", "seed")), strict=True)
    replays = [Case(*case).replay_command for case in cases]
    return bad.append_column("replay", pa.array(replays, pa.string()))
