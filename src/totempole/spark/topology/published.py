"""What Totem §5.4 says of its figures: values to set ours beside, and claims to judge by our figures.

The text has few numbers, and the figures are lost. Where it says "slowly" or "much more", the bound that a
claim is judged by is ours, and is told with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from totempole.spark.topology.results import Outcome, Results
from totempole.spark.topology.study import DEGREE, NODES, Study

LONGER = (5.0, 7.0)
"""So many deletions longer the robust graphs remained connected, on average."""
SMALL_SHARE = 0.99
"""Over so many of the robust graphs' partitions cut off one or two nodes."""
EDGES_MAX = 100

HOPS_PER_DELETION_MAX = 0.15
HEIGHT_GROWTH_MAX = 2.0
FEW_LINKS = 0.1
LARGE_MAJORITY = 0.8


def applies_to(study: Study) -> bool:
    """The paper's networks have fifty nodes with at most four edges each."""
    return (study.nodes, study.degree) == (NODES, DEGREE)


# Values


@dataclass(frozen=True, slots=True)
class Comparison:
    """One value of the paper, which may be a range, beside ours."""

    figure: str
    what: str
    paper: str
    low: float
    high: float
    ours: float
    margin: float

    @property
    def ratio(self) -> float:
        """Of ours to the nearest value that the paper's words allow."""
        return self.ours / min(max(self.ours, self.low), self.high)


def comparisons(results: Results) -> list[Comparison]:
    random, robust = results.random, results.robust
    small = robust.share_of_sizes_to(2)
    longer_margin = float((random.margin**2 + robust.margin**2) ** 0.5)
    return [
        Comparison("5.21", "edges of a robust graph", "at most 100", EDGES_MAX, EDGES_MAX, robust.edges, 0.0),
        Comparison(
            "5.22",
            "deletions that robust graphs survive longer than random ones, on average",
            "five to seven",
            *LONGER,
            robust.survived - random.survived,
            longer_margin,
        ),
        Comparison(
            "5.23",
            "share of robust graphs that lose only one or two nodes when they part",
            "over 99%",
            SMALL_SHARE,
            1.0,
            small,
            robust.margin_of_share(small),
        ),
    ]


# Claims


@dataclass(frozen=True, slots=True)
class Judged:
    figure: str
    claim: str
    ours: str
    holds: bool


def judge(results: Results) -> list[Judged]:
    return [claim(results) for claim in CLAIMS]


def heights_grow_slowly(results: Results) -> Judged:
    steps = [_hops_per_deletion(each) for each in (results.random, results.robust)]
    return Judged(
        "5.21",
        "the heights of the spanning trees increase very slowly as more links fail",
        f"{steps[0]:.2f} hops a deletion (random), {steps[1]:.2f} (robust), until half of the graphs have "
        f"parted; slow is below {HOPS_PER_DELETION_MAX}",
        max(steps) < HOPS_PER_DELETION_MAX,
    )


def _hops_per_deletion(outcome: Outcome) -> float:
    half = outcome.deletions_to(0.5)
    return (outcome.after[half].mean_height - outcome.after[0].mean_height) / max(half, 1)


def disconnection_matters_more(results: Results) -> Judged:
    growths = [_growth(each) for each in (results.random, results.robust)]
    return Judged(
        "5.22",
        "edge deletion is much more significant for disconnection than for spanning tree height",
        f"as the share connected falls from nine tenths to one, heights grow to {growths[0]:.2f} times "
        f"(random) and {growths[1]:.2f} times (robust); much less is below {HEIGHT_GROWTH_MAX:.0f}",
        max(growths) < HEIGHT_GROWTH_MAX,
    )


def _growth(outcome: Outcome) -> float:
    first, last = outcome.after[outcome.deletions_to(0.9)], outcome.after[outcome.deletions_to(0.1)]
    return last.mean_height / first.mean_height


def few_links_begin_it(results: Results) -> Judged:
    few = int(results.random.edges * FEW_LINKS)
    lost = 1 - results.random.share_connected(few)
    return Judged(
        "5.22",
        "the networks start to lose connectivity with relatively few failed links",
        f"{few} deletions, a tenth of the edges, part {lost:.1%} of the random graphs and "
        f"{1 - results.robust.share_connected(few):.1%} of the robust ones",
        lost > 0,
    )


def random_is_more_vulnerable(results: Results) -> Judged:
    random, robust = results.random, results.robust
    compared = [row for row in robust.after if row.share_connected >= 0.01]
    widest = max(compared, key=lambda row: row.share_connected - random.share_connected(row.deleted))
    return Judged(
        "5.22",
        "random networks are more vulnerable to disconnection than specially designed networks",
        f"after {widest.deleted} deletions {random.share_connected(widest.deleted):.1%} of the random graphs "
        f"are connected, of the robust ones {widest.share_connected:.1%}",
        all(random.share_connected(row.deleted) <= row.share_connected for row in compared),
    )


def few_nodes_are_lost(results: Results) -> Judged:
    random, robust = (each.share_of_sizes_to(2) for each in (results.random, results.robust))
    margin = results.random.margin_of_share(random) + results.robust.margin_of_share(robust)
    return Judged(
        "5.23",
        "particularly for specially designed graphs, the large majority of disconnections is of a few nodes",
        f"one or two nodes in {robust:.1%} of the robust graphs and {random:.1%} of the random ones; a large "
        f"majority is above {LARGE_MAJORITY:.0%}",
        min(random, robust) > LARGE_MAJORITY and robust + margin >= random,
    )


CLAIMS: tuple[Callable[[Results], Judged], ...] = (
    heights_grow_slowly,
    disconnection_matters_more,
    few_links_begin_it,
    random_is_more_vulnerable,
    few_nodes_are_lost,
)


# What we found beside


def findings(results: Results) -> list[str]:
    """Sentences that the paper does not have, and that one should know who reads it."""
    random, robust, filled = results.random, results.robust, results.filled
    share = robust.share_of_sizes_to(2)
    found = [
        f"Of the {robust.survived - random.survived:.1f} deletions that robust graphs survive longer, "
        f"{filled.survived - random.survived:.1f} come with their edges alone: random graphs with as many as "
        f"fit ({filled.edges:.1f} instead of {random.edges:.1f}) survive {filled.survived:.1f}."
    ]
    if share < SMALL_SHARE and applies_to(results.study):
        found.append(
            f"Of all robust graphs {share:.1%} lost only one or two nodes when they first parted, not over "
            f"99%; of those that parted within {robust.last_small(SMALL_SHARE)} deletions it was 99%. Later, "
            "so many edges are gone that larger pieces come off as well."
        )
    return found
