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
    seeds: int = 240
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
    """By name: growth with size on all cores, then one core on the smallest."""
    from totempole.bench.spark_traces import make_traces
    from totempole.bench.spark_verify import measure

    cores = len(os.sched_getaffinity(0))
    quarter = plan.runs // 4
    parts = {name: place / name for name in ("warm", "first", "second", "rest")}
    wanted = {"warm": WARM_RUNS, "first": quarter, "second": quarter, "rest": plan.runs - 2 * quarter}
    first = 0
    with screen.progress("simulating", plan.runs + WARM_RUNS) as advance:
        for name, directory in parts.items():
            if not directory.exists():
                before = first
                make_traces(
                    directory,
                    wanted[name],
                    RATE,
                    cores,
                    lambda done, note, before=before: advance(before + done, note),  # type: ignore[misc]
                    first,
                )
            first += wanted[name]
    sizes = {
        "1": [parts["first"]],
        "2": [parts["first"], parts["second"]],
        "4": [parts["first"], parts["second"], parts["rest"]],
    }
    work = [(f"size {name}, {cores} cores", traces, cores) for name, traces in sizes.items()]
    work.append(("size 1, 1 core", sizes["1"], 1))
    found: dict[str, list[Verified]] = {name: [] for name, _, _ in work}
    with screen.progress("verifying", plan.rounds * len(work)) as advance:
        for number in range(plan.rounds):
            for at, (name, traces, count) in enumerate(work):
                advance(number * len(work) + at, name)
                found[name].append(measure(traces, parts["warm"], count))
    return found


def _verify_table(verified: dict[str, list[Verified]]) -> Table:
    numbers = ("runs", "events", "seconds", "events/s", "events/s and core", "growth")
    shown = table("trace", *numbers, title="Verified, from files to verdicts; medians", right=numbers)
    base: float | None = None
    for name, samples in verified.items():
        seconds = median(sample.seconds for sample in samples)
        sample = samples[0]
        rate = sample.events / seconds
        base = base or seconds / sample.events
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
