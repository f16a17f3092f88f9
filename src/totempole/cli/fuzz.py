"""`totem fuzz`: a search over many seeds. One seed is `replay`'s; broken protocols are `mutants`'."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

from totempole.cli import exhaustive, kind_options, mutants, options, replay, steer
from totempole.cli.output import Screen, table
from totempole.cli.tables import coverage_table, rarest_excluded, what_may_remain
from totempole.errors import TotemError
from totempole.sim.fuzz.group_mutants import GROUP_STAGED, GROUP_UNNOTICED
from totempole.sim.fuzz.kinds import kind_named
from totempole.sim.fuzz.mutants import BY_HAND, STAGED, UNNOTICED
from totempole.sim.fuzz.network_mutants import NETWORK_STAGED
from totempole.sim.fuzz.profiles import ALL, PROFILES
from totempole.sim.fuzz.search import Tally, search

SEEDS = range(1_000)
QUICK_SEEDS = 40
COVERAGE_SEEDS_MIN = 1_000
"""A search of so many seeds must have reached everything that its kind expects."""
FAILURES_SHOWN = 20

EXAMPLES = """\
examples:
  totem fuzz --seeds 0:1000 --resume fuzz.json   a search that Ctrl-C does not undo
  totem fuzz --seed 17                           one seed: its scenario, its story, its verdicts
  totem fuzz --seed 17 --shrink --out small.scenario
  totem fuzz --seed 17 --trace-hash              the same on every machine
  totem fuzz --groups --seeds 0:1000             the same with process groups on the ring
  totem fuzz --logs --seeds 0:1000               the same with the durable order on these
  totem fuzz --objects --seeds 0:1000            the same with replicated objects: are they linearisable?
  totem fuzz --networks 2 --style passive        rings on two networks, which fail too
  totem fuzz --networks any --only-networks      nothing else fails: no configuration may change
  totem fuzz --profile lossy --seeds 0:1000      nothing but trouble with packets
  totem fuzz --mutants                           broken protocols, to see the search at work
  totem fuzz --mutant "safe delivered as agreed" --shrink
  totem fuzz --mutants --seeds 0:500             does the search notice them all?
  totem fuzz --steer 400                         scenarios that reach something rare breed others
  totem fuzz --exhaustive                        small systems, every order of what can happen
  totem fuzz --exhaustive --processors 3 --losses 1 --timeouts 2
  totem fuzz --replay violation.path             a path that such a search found

Exits 1 when a seed failed; for 1000 seeds or more also when something that the search is to reach was never
reached (unless a profile leaves things out); with --mutants, when one survived.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    which = parser.add_argument_group("which runs")
    which.add_argument(
        "--seeds", type=options.seed_range, metavar="A:B", help="from A up to B (default 0:1000)"
    )
    which.add_argument("--seed", type=int, metavar="N", help="replay one seed")
    which.add_argument(
        "--groups", action="store_true", help="runs with process groups: programs that join, send and crash"
    )
    which.add_argument(
        "--logs", action="store_true", help="runs with the durable order: logs whose disks fail, too"
    )
    which.add_argument(
        "--objects",
        action="store_true",
        help="runs with replicated objects: programs that call, read, retry, crash and open them again",
    )
    kind_options.add_networks(which)
    add_profile(which)
    which.add_argument("--mutant", metavar="NAME", help="run a broken protocol until a seed gives it away")
    which.add_argument(
        "--mutants", action="store_true", help="list the broken protocols, or with --seeds hunt them all"
    )
    which.add_argument(
        "--unnoticed", action="store_true", help="with --mutants: those for which no seed is known"
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--jobs",
        type=options.at_least_one,
        default=cores(),
        metavar="N",
        help="processes (default: all cores)",
    )
    how.add_argument("--resume", metavar="FILE", help="go on from this file if it is there, and keep it up")
    how.add_argument("--shrink", action="store_true", help="reduce a failing seed to a small scenario file")
    how.add_argument("--out", metavar="FILE", help="where --shrink writes it (default: seed-N.scenario)")
    how.add_argument("--trace-hash", action="store_true", help="print the digest of the trace, and no more")
    exhaustive.add(parser)
    steer.add(parser)
    options.add_judging(parser, quick=f"at most {QUICK_SEEDS} seeds; of one seed, the verdicts only")
    parser.set_defaults(run=run_fuzz)


def add_profile(parser: argparse._ArgumentGroup) -> None:
    told = "; ".join(f"{profile.name}: {profile.summary}" for profile in PROFILES.values())
    parser.add_argument(
        "--profile", choices=PROFILES, default=ALL.name, metavar="NAME", help=f"what may go wrong: {told}"
    )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_fuzz(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    if arguments.exhaustive or arguments.replay:
        return exhaustive.run(screen, arguments)
    if arguments.steer:
        return steer.run(screen, arguments)
    one = arguments.seed is not None or arguments.mutant is not None
    if arguments.shrink and not one:
        raise TotemError("fuzz: --shrink needs --seed N or --mutant NAME")
    if arguments.out and not arguments.shrink:
        raise TotemError("fuzz: --out is where --shrink writes: give both")
    if arguments.mutants and arguments.profile != ALL.name:
        raise TotemError("fuzz: --mutants hunts with all that can go wrong: leave --profile out")
    seeds = arguments.seeds or SEEDS
    seeds = seeds[:QUICK_SEEDS] if arguments.quick else seeds
    if arguments.trace_hash:
        return replay.print_hashes(screen, arguments, seeds)
    if one:
        return replay.run_one(screen, arguments, seeds)
    if arguments.mutants:
        return _run_mutants(screen, arguments, seeds)
    resume_file = Path(arguments.resume) if arguments.resume else None
    kind = kind_options.kind_asked(arguments)
    tally = Tally(seeds.start, seeds.stop, kind=kind.name, profile=arguments.profile)
    return _run_search(screen, tally, arguments.jobs, resume_file)


def _run_mutants(screen: Screen, arguments: argparse.Namespace, seeds: range) -> int:
    if arguments.seeds is None and not arguments.quick:
        mutants.show_list(screen)
        return 0
    if arguments.unnoticed:
        unnoticed = (*STAGED, *BY_HAND, *UNNOTICED)
        if arguments.groups:
            unnoticed = (*GROUP_STAGED, *GROUP_UNNOTICED)
        if arguments.networks is not None:
            unnoticed = NETWORK_STAGED
        return 0 if mutants.hunt_all(screen, seeds, arguments.jobs, unnoticed) else 1
    if arguments.groups or arguments.logs or arguments.objects or arguments.networks is not None:
        kind = kind_options.kind_asked(arguments)
        return 0 if mutants.hunt_all(screen, seeds, arguments.jobs, kind.mutants) else 1
    return 0 if mutants.hunt_all(screen, seeds, arguments.jobs) else 1


def _run_search(screen: Screen, tally: Tally, jobs: int, resume_file: Path | None) -> int:
    if resume_file is not None:
        tally = Tally.load(resume_file, tally.first, tally.stop, tally.kind, tally.profile)
    done_before = tally.done
    started_s = time.perf_counter()
    try:
        watch_search(screen, tally, jobs, resume_file)
    except KeyboardInterrupt:
        _put_off(screen, tally, resume_file)
        raise
    result = SearchReport(tally, tally.done - done_before, time.perf_counter() - started_s)
    result.show(screen)
    screen.save_json(result.data())
    return 0 if result.holds else 1


def watch_search(screen: Screen, tally: Tally, jobs: int, resume_file: Path | None = None) -> None:
    """The search, behind a bar."""
    done_before, started_s = tally.done, time.perf_counter()
    with screen.progress("fuzzing", tally.stop - tally.first) as advance:
        advance(tally.done)

        def tell(now: Tally) -> None:
            rate = (now.done - done_before) / (time.perf_counter() - started_s)
            advance(now.done, f"{rate:.1f} seeds/s, {now.failed} failed")

        search(tally, jobs, resume_file=resume_file, progress=tell)


def _put_off(screen: Screen, tally: Tally, resume_file: Path | None) -> None:
    if resume_file is None:
        hint = "with --resume FILE it could go on from there"
    else:
        tally.save(resume_file)
        hint = f"the same command goes on from there ({resume_file})"
    screen.err.print(f"{tally.done:,} seeds done, {tally.failed} failed; {hint}", soft_wrap=True)


class SearchReport:
    def __init__(self, tally: Tally, runs: int, elapsed_s: float) -> None:
        self.tally = tally
        self.runs = runs
        self.elapsed_s = elapsed_s
        self.kind = kind_named(tally.kind)
        self.profile = PROFILES[tally.profile]
        self.expected = self.kind.expected if self.profile.whole else ()
        self.missing = [name for name in self.expected if not tally.coverage[name]]

    @property
    def covers(self) -> bool:
        return self.tally.done < COVERAGE_SEEDS_MIN or not self.missing

    @property
    def holds(self) -> bool:
        return not self.tally.failed and self.covers

    @property
    def seeds_per_s(self) -> float:
        return self.runs / self.elapsed_s if self.elapsed_s else 0.0

    def show(self, screen: Screen) -> None:
        screen.print(coverage_table(self.tally.coverage, self.expected))
        self._show_failures(screen)
        screen.print()
        screen.print(self._summary())
        if not self.tally.failed:
            screen.print(what_may_remain(self.tally.done))
        if not self.covers:
            screen.print(f"[bold red]Never reached:[/] {', '.join(self.missing)}")

    def _show_failures(self, screen: Screen) -> None:
        if not self.tally.failed:
            return
        shown = table("seed", "violated", "replay", title="\nFailing seeds", right=("seed",))
        for seed, violated, _ in self.tally.failures[:FAILURES_SHOWN]:
            shown.add_row(str(seed), f"[red]{', '.join(violated)}[/]", self._replay(seed))
        screen.print(shown)
        if self.tally.failed > FAILURES_SHOWN:
            screen.print(f"… and {self.tally.failed - FAILURES_SHOWN} more")

    def _summary(self) -> str:
        tally = self.tally
        verdict = f"[bold red]{tally.failed} failed[/]" if tally.failed else "[bold green]none failed[/]"
        return (
            f"Seeds {tally.first}:{tally.stop}: {tally.done:,} runs, {verdict}. "
            f"{tally.packet_events:,} packet events, {tally.deliveries:,} deliveries; "
            f"{self.runs:,} runs in {self.elapsed_s:.1f} s, {self.seeds_per_s:.1f} a second"
        )

    def data(self) -> dict[str, Any]:
        data = self.tally.to_json()
        names = (*self.expected, *self.tally.coverage)
        data["coverage"] = {name: self.tally.coverage[name] for name in names}
        data["failures"] = [
            {
                "seed": seed,
                "violated": list(violated),
                "text": text,
                "replay": self._replay(seed),
            }
            for seed, violated, text in self.tally.failures
        ]
        rate = round(self.seeds_per_s, 2)
        return {
            **data,
            "missing": self.missing,
            "holds": self.holds,
            "seeds_per_s": rate,
            "bug_share_max": None if self.tally.failed else rarest_excluded(self.tally.done),
        }

    def _replay(self, seed: int) -> str:
        return self.kind.replay_command(seed, self.profile)
