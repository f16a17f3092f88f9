"""`totem campaign`: a search over many seeds on Spark, on this machine or on a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from totempole.cli import options
from totempole.cli.output import Screen, table
from totempole.cli.tables import coverage_table
from totempole.sim.fuzz.kinds import KINDS, RING
from totempole.sim.fuzz.profiles import ALL, PROFILES

if TYPE_CHECKING:
    from totempole.spark.campaign.cases import Campaign, Case
    from totempole.spark.campaign.store import Store
    from totempole.spark.campaign.summary import Summary

SEEDS = range(1_000)
QUICK_SEEDS = 40
OUT = "totem-campaign"
FAILURES_SHOWN = 20
FAILURES_MAX = 1_000
"""Failing seeds in the JSON; `failures.parquet` has all."""

EXAMPLES = """\
examples:
  totem campaign --seeds 0:10000                          on all cores of this machine
  totem campaign --seeds 0:100000 --master spark://HOST:7077 --out hunt
  totem campaign --kinds ring,groups --profiles all,lossy,partitions --seeds 0:5000
  totem campaign --seeds 0:100000 --out hunt              once more: goes on where it was stopped

What is found is kept in the directory --out, in Parquet files: runs/, coverage.parquet, failures.parquet. It
is on this machine; executors need not see it. The same command goes on from there, or, when all is done,
shows the result again.

profiles:
{profiles}

Exits 1 when a run failed or could not be judged; for 1000 seeds or more of the profile `all` also when
something that the search is to reach was never reached.
"""


def add(parser: options.Parser) -> None:
    told = "\n".join(f"  {profile.name:<12}{profile.summary}" for profile in PROFILES.values())
    parser.epilog = EXAMPLES.format(profiles=told)
    which = parser.add_argument_group("which runs")
    which.add_argument(
        "--seeds",
        type=options.seed_range,
        default=SEEDS,
        metavar="A:B",
        help="from A up to B (default 0:1000)",
    )
    which.add_argument(
        "--kinds",
        type=_names("kind", KINDS),
        default=(RING.name,),
        metavar="K,…",
        help=f"of {', '.join(KINDS)} (default: {RING.name})",
    )
    which.add_argument(
        "--profiles",
        type=_names("profile", PROFILES),
        default=(ALL.name,),
        metavar="P,…",
        help=f"what may go wrong, each with every seed (default: {ALL.name})",
    )
    how = parser.add_argument_group("how")
    options.add_master(how)
    how.add_argument(
        "--out", type=_directory, default=Path(OUT), metavar="DIR", help=f"what is found (default: {OUT})"
    )
    how.add_argument(
        "--limit",
        type=options.at_least_one,
        default=120,
        metavar="S",
        help="seconds for one run (default: 120)",
    )
    options.add_judging(parser, quick=f"at most {QUICK_SEEDS} seeds")
    parser.set_defaults(run=run_campaign)


def _directory(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"{text!r}: give a directory of this machine; executors need not see it"
        )
    return Path(text)


def _names(what: str, known: dict[str, Any]) -> Callable[[str], tuple[str, ...]]:
    """Names with commas between them, each once, in the order in which they are known."""

    def parse(text: str) -> tuple[str, ...]:
        wanted = {name.strip() for name in text.split(",")}
        unknown = sorted(wanted.difference(known))
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{text!r}: there is no {what} {unknown[0]!r}; there are {', '.join(known)}"
            )
        return tuple(name for name in known if name in wanted)

    return parse


def run_campaign(arguments: argparse.Namespace) -> int:
    from totempole.spark.campaign.cases import Campaign
    from totempole.spark.campaign.store import Store

    screen = Screen(arguments.json)
    seeds = arguments.seeds[:QUICK_SEEDS] if arguments.quick else arguments.seeds
    campaign = Campaign(seeds, arguments.kinds, arguments.profiles, float(arguments.limit))
    with Store.opened(arguments.out, campaign.limit_s) as store:
        pending = store.pending(campaign)
        started_s = time.perf_counter()
        if pending:
            _search(screen, campaign, pending, store, arguments.master)
        elapsed_s = time.perf_counter() - started_s
        report = CampaignReport(store.sum_up(campaign), store.path, len(pending), elapsed_s)
    report.show(screen)
    screen.save_json(report.data())
    return 0 if report.summary.holds else 1


def _search(
    screen: Screen, campaign: Campaign, pending: list[Case], store: Store, master: str | None
) -> None:
    """The search, behind a bar."""
    from totempole.spark.campaign.job import search_cases
    from totempole.spark.session import open_session

    watch = _Watch(len(campaign) - len(pending))
    try:
        with (
            open_session("totem campaign", master=master) as spark,
            screen.progress("searching", len(campaign)) as advance,
        ):
            watch.begin(advance)
            search_cases(spark, pending, campaign.limit_s, watch.keeping(store), tell=watch.tell)
    except KeyboardInterrupt:
        screen.err.print(
            f"{watch.kept:,} of {len(campaign):,} runs are done, {watch.failed} failed; "
            f"the same command goes on from there ({store.path})",
            soft_wrap=True,
        )
        raise


class _Watch:
    """What the bar shows: runs done, how fast, how many failed."""

    def __init__(self, before: int) -> None:
        self._before = before
        self.kept = before
        self.failed = 0
        self._shown = 0
        self._advance: Callable[[int, str], None] = lambda _done, _note: None
        self._started_s = time.perf_counter()

    def begin(self, advance: Callable[[int, str], None]) -> None:
        """When Spark is there."""
        self._advance = advance
        self._started_s = time.perf_counter()
        advance(self._before, "")

    def keeping(self, store: Store) -> Callable[[Any], None]:
        def keep(runs: Any) -> None:
            store.keep(runs)
            self.kept += runs.num_rows
            self.failed += sum(outcome != "holds" for outcome in runs["outcome"].to_pylist())

        return keep

    def tell(self, done: int) -> None:
        """`done` is an estimate between waves; the bar never goes back."""
        self._shown = max(self._shown, done)
        rate = self._shown / (time.perf_counter() - self._started_s)
        self._advance(self._before + self._shown, f"{rate:.1f} runs/s, {self.failed} failed")


class CampaignReport:
    def __init__(self, summary: Summary, path: Path, runs: int, elapsed_s: float) -> None:
        self.summary = summary
        self.campaign = summary.campaign
        self.path = path
        self.runs = runs
        """Those of this command; the others were there."""
        self.elapsed_s = elapsed_s

    @property
    def runs_per_s(self) -> float:
        return self.runs / self.elapsed_s if self.runs else 0.0

    def show(self, screen: Screen) -> None:
        for kind in self.campaign.kinds:
            screen.rule(f"Reached: {kind}")
            screen.print(coverage_table(self.summary.reached(kind), self.summary.expected(kind)))
        screen.rule("Runs")
        self._show_parts(screen)
        self._show_failures(screen)
        screen.print()
        screen.print(self._conclusion())
        self._show_missing(screen)
        screen.long(f"Kept in {self.path}: runs, coverage.parquet, failures.parquet")

    def _show_parts(self, screen: Screen) -> None:
        numbers = ("runs", "hold", "violated", "not judged", "packet events", "deliveries")
        shown = table("kind", "profile", *numbers, right=numbers)
        for part in self.summary.parts:
            counts = (part.runs, part.outcomes["holds"], part.outcomes["violated"], part.unjudged)
            cells = [f"{count:,}" for count in (*counts, part.packet_events, part.deliveries)]
            shown.add_row(part.kind, part.profile, *cells)
        screen.print(shown)

    def _show_failures(self, screen: Screen) -> None:
        if not self.summary.failed:
            return
        shown = table("seed", "what", "replay", title="\nFailing seeds", right=("seed",))
        for row in self.summary.failures.slice(0, FAILURES_SHOWN).to_pylist():
            what = ", ".join(row["violated"]) or row["outcome"]
            shown.add_row(str(row["seed"]), f"[red]{what}[/]", row["replay"])
        screen.print(shown)
        if self.summary.failed > FAILURES_SHOWN:
            screen.print(f"… and {self.summary.failed - FAILURES_SHOWN} more, in failures.parquet")

    def _conclusion(self) -> str:
        failed = self.summary.failed
        verdict = f"[bold red]{failed} failed[/]" if failed else "[bold green]none failed[/]"
        seeds = self.campaign.seeds
        now = (
            f"; {self.runs:,} in {self.elapsed_s:.1f} s, {self.runs_per_s:.1f} a second" if self.runs else ""
        )
        return f"Seeds {seeds.start}:{seeds.stop}: {self.summary.runs:,} runs, {verdict}{now}"

    def _show_missing(self, screen: Screen) -> None:
        for kind in self.campaign.kinds:
            missing = self.summary.missing(kind)
            if missing:
                style = "bold red" if self.summary.demands(kind) else "yellow"
                screen.print(f"[{style}]Not reached yet ({kind}):[/] {', '.join(missing)}")

    def data(self) -> dict[str, Any]:
        summary, campaign = self.summary, self.campaign
        return {
            "first": campaign.seeds.start,
            "stop": campaign.seeds.stop,
            "limit_s": campaign.limit_s,
            "done": summary.runs,
            "failed": summary.failed,
            "parts": [_part_data(part) for part in summary.parts],
            "coverage": {kind: self._coverage_data(kind) for kind in campaign.kinds},
            "missing": {kind: summary.missing(kind) for kind in campaign.kinds},
            "failures": summary.failures.slice(0, FAILURES_MAX).to_pylist(),
            "holds": summary.holds,
            "runs_per_s": round(self.runs_per_s, 2),
            "out": str(self.path),
        }

    def _coverage_data(self, kind: str) -> dict[str, int]:
        reached = self.summary.reached(kind)
        return {name: reached[name] for name in (*self.summary.expected(kind), *sorted(reached))}


def _part_data(part: Any) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "profile": part.profile,
        "runs": part.runs,
        "outcomes": dict(sorted(part.outcomes.items())),
        "packet_events": part.packet_events,
        "deliveries": part.deliveries,
    }
