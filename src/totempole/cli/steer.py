"""`totem fuzz --steer N`: the search that is steered by coverage, beside as many plain seeds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from totempole.cli import options
from totempole.cli.output import Screen, table
from totempole.cli.replay import Replay, file_text, run_command, shrink_to_file
from totempole.cli.tables import what_may_remain
from totempole.sim.fuzz.kinds import RING
from totempole.sim.fuzz.steer import Steered, plain, runner, steer

QUICK_RUNS = 32
SHOWN_MAX = 25
"""Lines of what only one of the two reached."""


def add(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a search that is steered by what it reaches (--steer)")
    group.add_argument(
        "--steer",
        type=options.at_least_one,
        metavar="RUNS",
        help="scenarios that reach something rare breed others; so many runs, and as many plain seeds beside "
        "them, from --seed on (default 0). Failing scenarios are written to the directory --out",
    )


def run(screen: Screen, arguments: argparse.Namespace) -> int:
    runs = min(arguments.steer, QUICK_RUNS) if arguments.quick else arguments.steer
    seed = arguments.seed or 0
    with runner(arguments.jobs) as trial, screen.progress("steering", 2 * runs) as advance:
        steered = steer(seed, runs, trial, lambda now: advance(now.done, _note(now)))
        beside = plain(seed, runs, trial, lambda now: advance(runs + now.done, _note(now)))
    report = SteerReport(steered, beside)
    report.show(screen)
    report.save_failures(screen, Path(arguments.out or "."), arguments.shrink)
    screen.save_json(report.data())
    return 0 if report.holds else 1


def _note(now: Steered) -> str:
    return f"{len(now.counts)} features, {len(now.failures)} failed"


class SteerReport:
    def __init__(self, steered: Steered, beside: Steered) -> None:
        self.steered = steered
        self.beside = beside
        self.only_steered = sorted(set(steered.counts) - set(beside.counts))
        self.only_plain = sorted(set(beside.counts) - set(steered.counts))
        self.files: list[str] = []

    @property
    def holds(self) -> bool:
        return not self.steered.failures and not self.beside.failures

    def show(self, screen: Screen) -> None:
        numbers = ("runs", "failed", "features", "of these pairs", "expected items missed")
        shown = table("search", *numbers, title="Steered, and as many plain seeds", right=numbers)
        for name, found in (("steered", self.steered), ("plain seeds", self.beside)):
            pairs = sum(feature.startswith("pair: ") for feature in found.counts)
            missed = len(RING.missing(found.counts))
            row = (found.done, len(found.failures), len(found.counts), pairs, missed)
            shown.add_row(name, *(f"{number:,}" for number in row))
        screen.print(shown)
        self._show_only(screen, "Reached by the steered search only", self.only_steered, self.steered)
        self._show_only(screen, "Reached by plain seeds only", self.only_plain, self.beside)
        if self.holds:
            screen.print(
                f"\n[bold green]None failed.[/] {what_may_remain(self.steered.done + self.beside.done)}"
            )

    def _show_only(self, screen: Screen, title: str, names: list[str], found: Steered) -> None:
        screen.print(f"\n[bold]{title}[/]: {len(names)}")
        for name in names[:SHOWN_MAX]:
            screen.long(f"  {found.counts[name]:>4}  {name}")
        if len(names) > SHOWN_MAX:
            screen.print(f"  … and {len(names) - SHOWN_MAX} more")

    def save_failures(self, screen: Screen, directory: Path, shrunk: bool) -> None:
        for scenario, verdict in (*self.steered.failures, *self.beside.failures):
            directory.mkdir(parents=True, exist_ok=True)
            file = directory / f"{scenario.name}.scenario"
            file.write_text(file_text(scenario, verdict, None, file), encoding="utf-8")
            self.files.append(str(file))
            screen.print(f"[bold red]{', '.join(verdict.violated)}[/]: {run_command(file, None)}")
            if shrunk:
                shrink_to_file(screen, Replay(scenario, None, None), file)

    def data(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "runs": self.steered.done,
            "seed": self.steered.seed,
            "bred": self.steered.bred,
            "features": {"steered": len(self.steered.counts), "plain": len(self.beside.counts)},
            "only_steered": self.only_steered,
            "only_plain": self.only_plain,
            "missing": RING.missing(self.steered.counts),
            "failures": [
                {"scenario": scenario.name, "violated": list(verdict.violated), "text": verdict.text}
                for scenario, verdict in (*self.steered.failures, *self.beside.failures)
            ],
            "files": self.files,
        }
