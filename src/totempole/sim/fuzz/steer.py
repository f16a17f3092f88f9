"""A search that is steered by coverage: scenarios that reach something rare breed others.

What a run reached are its faults, fates, transitions and branches (`coverage`), and pairs of transitions and
branches that one processor took one after the other. The corpus keeps the scenarios that reached what fewer
than `RARE` runs had reached before. The rarer what a scenario reached, the likelier it becomes a parent. The
other runs are fresh seeds of the plan. Whichever of the two has lately shown more that is new gets more runs:
at first seeds do, and when they have shown most of what they can, children.

One seed gives one search, however many processes run it: scenarios are bred a batch at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from totempole.errors import ScenarioError
from totempole.sim.fuzz.breeding import bred
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.pools import open_pool
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.script import Scenario
from totempole.sim.script_runner import Outcome, build
from totempole.trace.schema import Row
from totempole.trace.told import told

BATCH = 16
"""Scenarios that are bred before any of them is run."""
FRESH_LEAST = 0.2
FRESH_MOST = 0.9
"""Bounds of the share of runs that are seeds of the plan."""
FADING = 0.95
"""What a run counts, compared with the next one, in the yield of its kind."""
RARE = 2
CORPUS_MAX = 500
TRIES_MAX = 20
"""How often a child that cannot be is bred again."""


class Reached(NamedTuple):
    """What one run showed; small enough to send from process to process."""

    verdict: Verdict
    features: frozenset[str]


class Entry(NamedTuple):
    scenario: Scenario
    features: frozenset[str]


@dataclass(slots=True)
class Steered:
    """A search so far."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    """In how many runs each feature was reached."""
    corpus: list[Entry] = field(default_factory=list)
    failures: list[tuple[Scenario, Verdict]] = field(default_factory=list)
    done: int = 0
    bred: int = 0
    children: set[str] = field(default_factory=set)
    """Names of those that were bred."""
    yields: dict[bool, float] = field(default_factory=lambda: {True: 1.0, False: 1.0})
    """New features a run, of children and of seeds, lately."""

    @property
    def fresh(self) -> float:
        """The share of runs that are to be seeds of the plan."""
        share = self.yields[False] / max(sum(self.yields.values()), 1e-9)
        return min(max(share, FRESH_LEAST), FRESH_MOST)

    def add(self, scenario: Scenario, reached: Reached) -> None:
        self.done += 1
        child = scenario.name in self.children
        new = sum([feature not in self.counts for feature in sorted(reached.features)])
        self.yields[child] = FADING * self.yields[child] + (1 - FADING) * new
        rare = any(self.counts[feature] < RARE for feature in reached.features)
        self.counts.update(reached.features)
        if reached.verdict.violated:
            self.failures.append((scenario, reached.verdict))
        elif rare:
            self.corpus.append(Entry(scenario, reached.features))
            if len(self.corpus) > CORPUS_MAX:
                self.corpus.remove(min(self.corpus, key=self.worth))

    def worth(self, entry: Entry) -> float:
        """The sum over all that it reached, each worth far less the more often it was reached."""
        return sum([1 / self.counts[feature] ** 2 for feature in sorted(entry.features)])


def features_of(verdict: Verdict, outcome: Outcome | None) -> frozenset[str]:
    pairs = _pairs(outcome.rows) if outcome is not None else ()
    return frozenset([*verdict.coverage, *pairs])


def _pairs(rows: Iterable[Row]) -> Iterator[str]:
    last: dict[int, str] = {}
    for row in rows:
        if row.kind in ("state", "branch"):
            before, now = last.get(row.node), told(row)
            if before is not None and before != now:
                yield f"pair: {before} | {now}"
            last[row.node] = now
        elif row.kind == "restart":
            last[row.node] = "restart"


def try_reaching(scenario: Scenario) -> Reached:
    verdict, outcome = try_scenario(scenario)
    return Reached(verdict, features_of(verdict, outcome))


Run = Callable[[Sequence[Scenario]], Iterable[Reached]]


@contextmanager
def runner(jobs: int) -> Iterator[Run]:
    """Runs batches of scenarios, in this process or in several."""
    if jobs <= 1:
        yield lambda scenarios: map(try_reaching, scenarios)
        return
    with open_pool(jobs) as pool:
        yield lambda scenarios: pool.imap(try_reaching, scenarios)


def steer(
    seed: int, runs: int, run: Run, progress: Callable[[Steered], None] = lambda _steered: None
) -> Steered:
    """So many runs: some are seeds of the plan, the others are bred."""
    steered = Steered(seed)
    random = Random(f"steer/{seed}")
    fresh = iter(range(seed, seed + runs))
    while steered.done < runs:
        batch = [_next(steered, random, fresh) for _ in range(min(BATCH, runs - steered.done))]
        for scenario, reached in zip(batch, run(batch), strict=True):
            steered.add(scenario, reached)
            progress(steered)
    return steered


def plain(
    seed: int, runs: int, run: Run, progress: Callable[[Steered], None] = lambda _steered: None
) -> Steered:
    """As many seeds of the plan, for comparison."""
    found = Steered(seed)
    scenarios = [plan(number) for number in range(seed, seed + runs)]
    for scenario, reached in zip(scenarios, run(scenarios), strict=True):
        found.add(scenario, reached)
        progress(found)
    return found


def _next(steered: Steered, random: Random, fresh: Iterator[int]) -> Scenario:
    if not steered.corpus or random.random() < steered.fresh:
        return plan(next(fresh))
    worths = [steered.worth(entry) for entry in steered.corpus]
    for _ in range(TRIES_MAX):
        parent, other = random.choices(steered.corpus, worths, k=2)
        steered.bred += 1
        name = f"steer-{steered.seed}-{steered.bred}"
        child = bred(random, name, parent.scenario, other.scenario)
        steered.children.add(name)
        try:
            build(child)
        except ScenarioError:
            continue
        return child
    return plan(next(fresh))
