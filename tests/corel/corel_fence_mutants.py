"""Replicas with broken fences, which walks with fences must tell from true ones."""

from __future__ import annotations

from corel_mutants import BROKEN, broken, mutant
from corel_walk import Walk, weather_with_fences

from totempole.sim.fuzz.mutation import Mutant

KEPT_OUT = "return Ordered(run, place, self.position, (), self.time_us, fenced)"

FENCE_MUTANTS = (
    mutant(
        "a mark is written without fences",
        "Zones.mark",
        "self.fences.rows",
        "()",
        seed=4,
    ),
    mutant(
        "a mark forgets the fences",
        "Zones._load",
        "self.fences = Fences(mark.fences)",
        "pass",
        seed=36,
    ),
    mutant(
        "who begins at another's mark keeps its own fences",
        "Zones._begin",
        "self._load(mark)",
        "mine_before = self.fences\n    self._load(mark)\n    self.fences = mine_before",
        seed=106,
    ),
    mutant(
        "high is not checked",
        "Fences.keeps_out",
        "fence.low <= mark.number <= fence.high",
        "fence.low <= mark.number",
        seed=6,
    ),
    mutant(
        "low is not checked",
        "Fences.keeps_out",
        "fence.low <= mark.number <= fence.high",
        "mark.number <= fence.high",
        seed=4,
    ),
    mutant(
        "high itself is kept out",
        "Fences.keeps_out",
        "fence.low <= mark.number <= fence.high",
        "fence.low <= mark.number < fence.high",
        seed=6,
    ),
    mutant(
        "what is kept out takes positions",
        "Zones._green",
        KEPT_OUT,
        "self.position += run.count\n        " + KEPT_OUT,
        seed=3,
    ),
    mutant(
        "what is kept out moves the mark",
        "Zones._green",
        KEPT_OUT,
        "self.fences.move(head.fence, self.position)\n        " + KEPT_OUT,
        seed=6,
    ),
    mutant(
        "what is kept out leaves its keys",
        "Zones._green",
        KEPT_OUT,
        "self._repeats(head.log, head.keys)\n        " + KEPT_OUT,
        seed=4,
    ),
    mutant(
        "what is kept out moves the time",
        "Zones._green",
        KEPT_OUT,
        "self.time_us = max(self.time_us, run.time_us)\n        " + KEPT_OUT,
        seed=6,
    ),
    mutant(
        "a mark is where the next record is",
        "Zones._green",
        "ordered.position_of(0) if run.count else -1",
        "ordered.position",
        seed=3,
    ),
    mutant(
        "fences are forgotten by their names",
        "Fences.move",
        "next(iter(self._marks))",
        "min(self._marks)",
        seed=3,
    ),
    mutant(
        "fences are forgotten by their first move",
        "Fences.move",
        "self._marks.pop(fence.name, None)",
        "pass",
        seed=7,
    ),
    mutant(
        "fences are never forgotten",
        "Fences.move",
        "len(self._marks) > FENCES_MAX",
        "False",
        seed=3,
    ),
    mutant(
        "who was kept out is told a position",
        "Requests.ordered",
        "if ordered.fenced is not None:",
        "if False:",
        seed=3,
    ),
)


def gives_away(which: Mutant, seed: int) -> str:
    """How the mutant's walk from this seed ends, if not well."""
    walk = Walk(seed, broken(which), weather_with_fences(seed))
    try:
        walk.run()
    except BROKEN as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""
