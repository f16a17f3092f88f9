"""`totem bench spark`: how fast traces are verified, and what a campaign costs beside a plain pool."""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from totempole.cli import options
from totempole.cli.output import Screen, table

if TYPE_CHECKING:
    from rich.table import Table

    from totempole.bench.spark_campaign import CampaignRates
    from totempole.bench.spark_verify import Verified

RATE = 100
"""Messages a second of each of five processors: about ten thousand events in a run."""


@dataclass(frozen=True, slots=True)
class Plan:
    runs: int = 512
    """Of the whole trace; a quarter and a half of it are measured too."""
    rounds: int = 3
    seeds: int = 120
    """Of the campaign."""


QUICK = Plan(runs=64, rounds=1, seeds=40)
WARM_RUNS = 16


def add(benches: options.Verbs) -> None:
    parser = options.verb(benches, "spark", "measure Spark: events verified and campaign runs per second")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="keep the traces here, and use them again")
    options.add_judging(parser, quick="a small trace, one round")
    parser.set_defaults(run=run_spark_bench)


def run_spark_bench(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    plan = QUICK if arguments.quick else Plan()
    with tempfile.TemporaryDirectory(prefix="totem-bench-") as scratch:
        verified = _verify(screen, plan, arguments.traces or Path(scratch))
    screen.print(_verify_table(verified))
    measured = _campaign(screen, plan)
    screen.print(_campaign_table(measured))
    holds = measured.same and all(sample.holds for samples in verified.values() for sample in samples)
    if not holds:
        screen.print("[bold red]A run did not hold, or was not the same: its speed means nothing[/]")
    screen.save_json(
        {
            "holds": holds,
            "verify": {name: [asdict(sample) for sample in samples] for name, samples in verified.items()},
            "campaign": asdict(measured),
        }
    )
    return 0 if holds else 1


def _campaign(screen: Screen, plan: Plan) -> CampaignRates:
    from totempole.bench.spark_campaign import measure_campaign
    from totempole.spark.session import open_session

    cores = len(os.sched_getaffinity(0))
    with (
        screen.progress("campaign and pool", plan.rounds) as advance,
        open_session("totem bench spark", f"local[{cores}]") as spark,
    ):
        return measure_campaign(spark, range(plan.seeds), plan.rounds, cores, advance)


def _verify(screen: Screen, plan: Plan, place: Path) -> dict[str, list[Verified]]:
    """By name: growth with size on all cores, and one core on the smallest, of either judge."""
    from totempole.bench.spark_verify import measure

    cores = len(os.sched_getaffinity(0))
    warm, *parts = _traces(screen, plan, place, cores)
    sizes = [parts[:1], parts[:2], parts]
    work = [("checkers", cores, sizes), ("checkers", 1, sizes[:1]), ("statements", cores, sizes)]
    found: dict[str, list[Verified]] = {}
    with screen.progress("verifying", plan.rounds * len(work)) as advance:
        for number in range(plan.rounds):
            for at, (judge, count, traces) in enumerate(work):
                advance(number * len(work) + at, f"by the {judge}")
                for size, sample in zip((1, 2, 4), measure(warm, traces, judge, count), strict=False):
                    many = f"{count} core{'s' if count > 1 else ''}"
                    found.setdefault(f"{judge}, {many}, size {size}", []).append(sample)
    return found


def _traces(screen: Screen, plan: Plan, place: Path, cores: int) -> list[Path]:
    """One to warm up with; a quarter, a quarter, and half of the whole. What is there already is kept."""
    from totempole.bench.spark_traces import make_traces

    quarter = plan.runs // 4
    wanted = {"warm": WARM_RUNS, "first": quarter, "second": quarter, "rest": plan.runs - 2 * quarter}
    first = 0
    with screen.progress("simulating", sum(wanted.values())) as advance:
        for name, runs in wanted.items():
            if not (place / name).exists():
                before = first
                make_traces(
                    place / name,
                    runs,
                    RATE,
                    cores,
                    lambda done, note, before=before: advance(before + done, note),  # type: ignore[misc]
                    first,
                )
            first += runs
    return [place / name for name in wanted]


def _verify_table(verified: dict[str, list[Verified]]) -> Table:
    numbers = ("runs", "events", "seconds", "events/s", "events/s and core", "growth")
    shown = table("judge", *numbers, title="Verified, from files to verdicts; medians", right=numbers)
    smallest: dict[str, float] = {}
    for name, samples in verified.items():
        seconds = median(sample.seconds for sample in samples)
        sample = samples[0]
        rate = sample.events / seconds
        base = smallest.setdefault(f"{sample.judge} {sample.cores}", seconds / sample.events)
        shown.add_row(
            name,
            f"{sample.runs:,}",
            f"{sample.events:,}",
            f"{seconds:.1f}",
            f"{rate:,.0f}",
            f"{rate / sample.cores:,.0f}",
            f"{seconds / sample.events / base:.2f}",
        )
    return shown


def _campaign_table(measured: CampaignRates) -> Table:
    numbers = ("seeds", "runs/s")
    shown = table("search", *numbers, title="A campaign beside a pool of processes", right=numbers)
    shown.add_row("pool", f"{measured.runs:,}", f"{measured.pool_runs_per_s:.2f}")
    shown.add_row("Spark", f"{measured.runs:,}", f"{measured.spark_runs_per_s:.2f}")
    shown.add_row("overhead", "", f"{measured.overhead:.1%}")
    return shown
