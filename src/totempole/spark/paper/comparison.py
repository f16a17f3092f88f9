"""The table of ours against theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from totempole.spark.paper.published import PUBLISHED, Published
from totempole.spark.paper.results import Results

TOLERANCE = 0.1
"""How far from a number that is stated as `about` so many ours may be."""
CALIBRATION_TOLERANCE = 0.03

MEETS, DIFFERS, NOT_RUN = "meets", "differs", "not run"


@dataclass(frozen=True, slots=True)
class Compared:
    published: Published
    ours: float | None

    @property
    def ratio(self) -> float | None:
        return None if self.ours is None else self.ours / self.published.value

    @property
    def verdict(self) -> str:
        """`under` and `over` are bounds; `about` allows a tenth, and 3 % where the machine was set by it."""
        if self.ratio is None:
            return NOT_RUN
        match self.published.kind:
            case "under":
                meets = self.ratio < 1
            case "over":
                meets = self.ratio > 1
            case "about":
                meets = abs(self.ratio - 1) <= (CALIBRATION_TOLERANCE if self.published.used else TOLERANCE)
        return MEETS if meets else DIFFERS

    def data(self) -> dict[str, Any]:
        each = self.published
        return {
            "figure": each.figure,
            "section": each.section,
            "what": each.what,
            "kind": each.kind,
            "theirs": float(each.value),
            "unit": each.unit,
            "ours": self.ours,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "calibration": each.used,
        }


def compare(results: Results, figures: Iterable[str]) -> list[Compared]:
    """Every value that is stated for these figures."""
    wanted = set(figures)
    return [Compared(each, each.found_in(results)) for each in PUBLISHED if each.figure in wanted]


def calibrated(compared: Iterable[Compared]) -> bool:
    """Whether the machines are still what they were set to be. All else may differ, and is not wrong."""
    return not any(each.verdict == DIFFERS for each in compared if each.published.used)
