"""What Spark costs a search: a campaign against the same seeds in the process pool of `totem fuzz`.

The two take turns, so that a machine that slows down slows both. Spark's session is there and its workers
have run before the first round; the pool starts its processes in each, as `totem fuzz` does. Either side
keeps what it finds, one in Parquet files, the other in its tally.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from totempole.sim.fuzz.search import Tally, search

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from totempole.spark.campaign.summary import Summary

Found = TypeVar("Found")

WARM_UP = 2
"""Seeds for each core before the first round."""


@dataclass(frozen=True, slots=True)
class CampaignRates:
    runs: int
    """Of one round."""
    pool_s: tuple[float, ...]
    """How long each round took."""
    spark_s: tuple[float, ...]
    same: bool
    """Whether both counted the same packet events, deliveries, failures and coverage."""

    @property
    def pool_runs_per_s(self) -> float:
        return self.runs / median(self.pool_s)

    @property
    def spark_runs_per_s(self) -> float:
        return self.runs / median(self.spark_s)

    @property
    def overhead(self) -> float:
        """The median over rounds of the share of time that Spark adds."""
        return median(mine / theirs for mine, theirs in zip(self.spark_s, self.pool_s, strict=True)) - 1


def measure_campaign(
    spark: SparkSession,
    seeds: range,
    rounds: int,
    cores: int,
    tell: Callable[[int], None] = lambda _rounds: None,
) -> CampaignRates:
    """`spark` has as many cores as are told. `tell` takes the rounds that are done."""
    _campaign(spark, range(cores * WARM_UP))
    pool_s, spark_s, same = [], [], True
    for done in range(1, rounds + 1):
        tally, elapsed_s = _timed(lambda: search(Tally(seeds.start, seeds.stop), cores))
        pool_s.append(elapsed_s)
        summary, elapsed_s = _timed(lambda: _campaign(spark, seeds))
        spark_s.append(elapsed_s)
        same = same and _agree(tally, summary)
        tell(done)
    return CampaignRates(len(seeds), tuple(pool_s), tuple(spark_s), same)


def _campaign(spark: SparkSession, seeds: range) -> Summary:
    from totempole.spark.campaign.cases import Campaign
    from totempole.spark.campaign.job import search_cases
    from totempole.spark.campaign.store import Store

    campaign = Campaign(seeds)
    with (
        tempfile.TemporaryDirectory(prefix="totem-campaign-") as directory,
        Store.opened(Path(directory), campaign.limit_s) as store,
    ):
        search_cases(spark, store.pending(campaign), campaign.limit_s, store.keep)
        return store.sum_up(campaign)


def _agree(tally: Tally, summary: Summary) -> bool:
    part = summary.parts[0]
    ours = (part.runs, summary.failed, part.packet_events, part.deliveries, summary.reached(part.kind))
    return ours == (tally.done, tally.failed, tally.packet_events, tally.deliveries, tally.coverage)


def _timed(work: Callable[[], Found]) -> tuple[Found, float]:
    started_s = time.perf_counter()
    found = work()
    return found, time.perf_counter() - started_s
