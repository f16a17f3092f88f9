"""`totem fuzz --seed N`: one seed's scenario, story and verdicts; and its reduction to a small file."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from totempole.cli.kind_options import kind_asked
from totempole.cli.mutants import find_mutant
from totempole.cli.output import Screen
from totempole.cli.sim import SimReport
from totempole.sim.contract import StackFactory
from totempole.sim.fuzz.kinds import RING, Kind
from totempole.sim.fuzz.mutants import Mutant, mutated_stack
from totempole.sim.fuzz.profiles import ALL, PROFILES, Profile
from totempole.sim.fuzz.shrink import TRIALS_MAX, Shrinker
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.scenario import Scenario, render_story
from totempole.trace.digest import trace_digest


class Replay:
    """One scenario, run on the true protocol or a broken one."""

    def __init__(self, scenario: Scenario, mutant: Mutant | None, stack: StackFactory | None) -> None:
        self.scenario = scenario
        self.mutant = mutant
        self.stack = stack
        started_s = time.perf_counter()
        self.verdict, self.outcome = try_scenario(scenario, stack)
        self.elapsed_s = time.perf_counter() - started_s

    @property
    def holds(self) -> bool:
        return not self.verdict.violated

    def show(self, screen: Screen, brief: bool = False) -> None:
        if self.outcome is None:
            screen.long(f"the protocol itself failed: {self.verdict.text}")
            return
        if not brief:
            screen.rule("Scenario")
            screen.long(self.scenario.to_text().rstrip())
            screen.rule("Story")
            screen.long(render_story(self.outcome.rows, self.scenario.names).rstrip())
        SimReport(self.outcome, self.elapsed_s).show(screen, brief)

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = {"failures": [self.verdict.text]}
        if self.outcome is not None:
            found = SimReport(self.outcome, self.elapsed_s).data()
        return {
            **found,
            "scenario": self.scenario.name,
            "text": self.scenario.to_text(),
            "mutant": self.mutant.name if self.mutant else None,
            "violated": list(self.verdict.violated),
            "holds": self.holds,
        }


def run_one(screen: Screen, arguments: argparse.Namespace, seeds: range) -> int:
    mutant = find_mutant(arguments.mutant) if arguments.mutant else None
    stack = mutated_stack(mutant) if mutant else None
    kind, profile = kind_asked(arguments, mutant), PROFILES[arguments.profile]
    seed = arguments.seed
    if seed is None:
        seed = first_failing(screen, seeds, stack, kind, profile)
        if seed is None:
            screen.print(f"No seed of {seeds.start}:{seeds.stop} gives it away")
            screen.save_json({"mutant": arguments.mutant, "seed": None, "holds": True})
            return 0
    replay = Replay(kind.plan(seed, profile), mutant, stack)
    replay.show(screen, brief=arguments.quick or arguments.shrink)
    data = replay.data()
    if arguments.shrink and replay.holds:
        screen.print("Nothing to shrink: the seed holds")
    elif arguments.shrink:
        path = Path(arguments.out or _default_file(replay.scenario, mutant))
        data["shrunk"] = shrink_to_file(screen, replay, path).data() | {"file": str(path)}
    screen.save_json(data)
    return 0 if replay.holds else 1


def first_failing(
    screen: Screen,
    seeds: range,
    stack: StackFactory | None,
    kind: Kind = RING,
    profile: Profile = ALL,
) -> int | None:
    with screen.progress("looking for a seed that fails", len(seeds)) as advance:
        for done, seed in enumerate(seeds, 1):
            if try_scenario(kind.plan(seed, profile), stack)[0].violated:
                return seed
            advance(done)
    return None


def shrink_to_file(screen: Screen, replay: Replay, path: Path) -> Replay:
    """Shrinks, shows the small scenario with its story, says how to run it. Ctrl-C keeps the best so far."""

    def keep(best: Scenario) -> None:
        path.write_text(file_text(best, replay.verdict, replay.mutant, path), encoding="utf-8")

    shrinker = shrink(screen, replay, TRIALS_MAX, keep)
    small = Replay(shrinker.best, replay.mutant, replay.stack)
    before, after = len(replay.scenario.steps), len(small.scenario.steps)
    screen.rule(f"Shrunk from {before} steps to {after} in {shrinker.trials} trials")
    screen.long(path.read_text(encoding="utf-8").rstrip())
    if small.outcome is not None:
        screen.rule("Story")
        screen.long(render_story(small.outcome.rows, small.scenario.names).rstrip())
    small.show(screen, brief=True)
    screen.long(f"\nRun it again: {run_command(path, replay.mutant)}")
    return small


def shrink(
    screen: Screen,
    replay: Replay,
    trials_max: int,
    keep: Callable[[Scenario], None] = lambda _best: None,
) -> Shrinker:
    """Behind a bar; `keep` is given the best scenario so far, even when it is interrupted."""
    with screen.progress("shrinking", None) as advance:
        shrinker = Shrinker(
            replay.scenario,
            replay.verdict.violated,
            replay.stack,
            progress=lambda trials, steps: advance(trials, f"trials, {steps} steps left"),
            trials_max=trials_max,
        )
        try:
            shrinker.shrink()
        finally:
            keep(shrinker.best)
    return shrinker


def file_text(scenario: Scenario, verdict: Verdict, mutant: Mutant | None, path: Path) -> str:
    """The scenario's file, with where it comes from and how to run it on top."""
    broken = f", on the broken protocol {mutant.name!r}" if mutant else ""
    lines = [
        f"# Shrunk from {verdict.name}{broken}. It violates: {', '.join(verdict.violated)}.",
        f"# Run it: {run_command(path, mutant)}",
        "",
    ]
    return "\n".join(lines) + scenario.to_text()


def run_command(path: Path, mutant: Mutant | None) -> str:
    broken = f' --mutant "{mutant.name}"' if mutant else ""
    return f"totem sim {shlex.quote(str(path))}{broken}"


def _default_file(scenario: Scenario, mutant: Mutant | None) -> str:
    name = f"-{mutant.name.replace(' ', '-')}" if mutant else ""
    return f"{scenario.name}{name}.scenario"


def print_hashes(screen: Screen, arguments: argparse.Namespace, seeds: range) -> int:
    """One line a seed: the seed and the digest of its trace."""
    mutant = find_mutant(arguments.mutant) if arguments.mutant else None
    stack = mutated_stack(mutant) if mutant else None
    kind, profile = kind_asked(arguments, mutant), PROFILES[arguments.profile]
    chosen = seeds if arguments.seed is None else range(arguments.seed, arguments.seed + 1)
    digests = {}
    failed = False
    for seed in chosen:
        verdict, outcome = try_scenario(kind.plan(seed, profile), stack)
        failed = failed or bool(verdict.violated)
        digests[seed] = trace_digest(outcome.rows) if outcome is not None else verdict.text
        screen.long(f"{seed} {digests[seed]}")
    screen.save_json({"digests": digests, "holds": not failed})
    return 1 if failed else 0
