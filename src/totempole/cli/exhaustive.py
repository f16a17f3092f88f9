"""`totem fuzz --exhaustive`: small systems searched whole, and paths of such a search taken again."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from totempole.cli import options
from totempole.cli.mutants import find_mutant
from totempole.cli.output import Screen, table
from totempole.errors import TotemError
from totempole.sim.contract import StackFactory
from totempole.sim.explore.cases import (
    CASES,
    DEPTH_MAX,
    STATES_MAX,
    Case,
    Retold,
    load_path,
    retell,
    save_path,
    search_case,
)
from totempole.sim.explore.explorer import Result
from totempole.sim.explore.mutants import cases_of
from totempole.sim.explore.roots import ROOTS
from totempole.sim.explore.space import BUDGETS, Bounds
from totempole.sim.fuzz.mutants import mutated_stack
from totempole.sim.fuzz.pools import open_pool

QUICK_STATES = 2_000
PATH_FILE = "violation.path"
TOLD_EVERY = 200
"""States between two words about the progress."""

Progress = Callable[[Result], None]

MEANINGS = {
    "messages": "submitted by anyone at any time",
    "overtakes": "packets that arrive before an older one",
    "losses": "packets that are lost",
    "copies": "packets that arrive twice",
    "strays": "packets that reach another processor too",
    "crashes": "in any state, keeping any of the writes under way",
    "restarts": "from the disk",
    "partitions": "into two, and whole again",
    "stalls": "disks that write late",
    "timeouts": "timers that expire while nothing is under way",
    "early": "timers that expire before that",
}


def add(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("small systems searched whole (--exhaustive)")
    group.add_argument(
        "--exhaustive",
        action="store_true",
        help="every order of what can happen, within bounds; without the options below, some chosen cases",
    )
    group.add_argument("--processors", type=int, choices=(1, 2, 3), metavar="N", help="1 to 3 (default 2)")
    group.add_argument("--root", choices=ROOTS, metavar="NAME", help=f"from where: {', '.join(ROOTS)}")
    for name in BUDGETS:
        group.add_argument(f"--{name}", type=int, metavar="N", help=f"at most so many: {MEANINGS[name]}")
    group.add_argument("--depth", type=options.at_least_one, default=DEPTH_MAX, metavar="N", help="steps")
    group.add_argument(
        "--states-max", type=options.at_least_one, default=STATES_MAX, metavar="N", help="of each case"
    )
    group.add_argument("--replay", metavar="FILE", help="take the path of a violation again")


def run(screen: Screen, arguments: argparse.Namespace) -> int:
    if arguments.replay:
        return _replay(screen, Path(arguments.replay))
    mutant = find_mutant(arguments.mutant).name if arguments.mutant else None
    cases = _cases(arguments, mutant)
    states_max = min(arguments.states_max, QUICK_STATES) if arguments.quick else arguments.states_max
    task = partial(_search, mutant=mutant, states_max=states_max, depth_max=arguments.depth)
    report = ExhaustiveReport(mutant)
    with screen.progress("searching", len(cases)) as advance:

        def tell(now: Result) -> None:
            if now.states % TOLD_EVERY == 0:
                advance(len(report.searched), f"{report.states + now.states:,} states, depth {now.depth}")

        for searched in _searched(task, cases, arguments.jobs, tell):
            report.add(searched)
            advance(len(report.searched), f"{report.states:,} states")
    report.show(screen)
    if report.violated is not None:
        report.save_path(screen, Path(arguments.out or PATH_FILE))
    screen.save_json(report.data())
    return 0 if report.holds else 1


def _cases(arguments: argparse.Namespace, mutant: str | None) -> Sequence[Case]:
    given = {name: getattr(arguments, name) for name in BUDGETS if getattr(arguments, name) is not None}
    if any(count < 0 for count in given.values()):
        raise TotemError("fuzz --exhaustive: a bound is a whole number of at least 0")
    if given or arguments.processors or arguments.root:
        return [Case(arguments.processors or 2, arguments.root or "busy", replace(Bounds(), **given))]
    return cases_of(mutant) if mutant else CASES


class Searched(NamedTuple):
    case: Case
    result: Result
    elapsed_s: float


def _endpoint(mutant: str | None) -> StackFactory | None:
    return mutated_stack(find_mutant(mutant)) if mutant else None


def _search(
    case: Case,
    mutant: str | None,
    states_max: int,
    depth_max: int,
    progress: Progress = lambda _result: None,
) -> Searched:
    started_s = time.perf_counter()
    result = search_case(
        case, _endpoint(mutant), states_max=states_max, depth_max=depth_max, progress=progress
    )
    return Searched(case, result, time.perf_counter() - started_s)


def _searched(
    task: partial[Searched], cases: Sequence[Case], jobs: int, progress: Progress
) -> Iterator[Searched]:
    """In this process, telling of each state; or in several, telling of whole cases."""
    if min(jobs, len(cases)) <= 1:
        for case in cases:
            yield task(case, progress=progress)
        return
    with open_pool(min(jobs, len(cases))) as pool:
        yield from pool.imap(task, cases)


class ExhaustiveReport:
    def __init__(self, mutant: str | None = None) -> None:
        self.mutant = mutant
        self.searched: list[Searched] = []
        self.reached: Counter[str] = Counter()

    def add(self, searched: Searched) -> None:
        self.searched.append(searched)
        self.reached.update(searched.result.reached)

    @property
    def states(self) -> int:
        return sum(searched.result.states for searched in self.searched)

    @property
    def violated(self) -> Searched | None:
        return next((one for one in self.searched if one.result.found is not None), None)

    @property
    def holds(self) -> bool:
        return self.violated is None

    @property
    def whole(self) -> bool:
        return all(one.result.exhausted for one in self.searched)

    def show(self, screen: Screen) -> None:
        right = ("states", "steps", "depth", "ends", "s")
        shown = table("case", *right, "verdict", title="Small systems searched whole", right=right)
        for case, result, elapsed_s in self.searched:
            shown.add_row(
                case.name,
                f"{result.states:,}",
                f"{result.steps:,}",
                str(result.depth),
                f"{result.ends:,}",
                f"{elapsed_s:.1f}",
                verdict_of(result),
            )
        screen.print(shown)
        screen.print(
            f"\n{self.states:,} states, {len(self.reached)} transitions and rare branches. {self._proved()}"
        )

    def _proved(self) -> str:
        if not self.holds:
            return "[bold red]A property is violated.[/]"
        whole = [one for one in self.searched if one.result.exhausted]
        if len(whole) == len(self.searched):
            return "[bold green]No property can be violated within these bounds[/]: every order was tried."
        return (
            f"[bold green]None violated[/]; {len(whole)} of {len(self.searched)} cases were searched whole, "
            "in the others there are more states than were seen (--states-max, --depth)."
        )

    def save_path(self, screen: Screen, file: Path) -> None:
        assert self.violated is not None
        assert self.violated.result.found is not None
        case, path = self.violated.case, self.violated.result.found.path
        save_path(file, case, path, self.mutant)
        show_retold(screen, retell(case, path, _endpoint(self.mutant)))
        screen.print(f"\nTake it again: totem fuzz --replay {file}")

    def data(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "exhausted": self.whole,
            "states": self.states,
            "mutant": self.mutant,
            "reached": dict(sorted(self.reached.items())),
            "cases": [_case_data(one) for one in self.searched],
        }


def verdict_of(result: Result) -> str:
    if result.found is not None:
        return f"[bold red]{result.found.violations[0].property}[/]"
    return "[green]holds, searched whole[/]" if result.exhausted else "[yellow]holds so far, cut short[/]"


def _case_data(searched: Searched) -> dict[str, Any]:
    case, result, elapsed_s = searched
    found = result.found
    return {
        "case": case.name,
        "processors": case.processors,
        "root": case.root,
        "bounds": asdict(case.bounds),
        "states": result.states,
        "steps": result.steps,
        "depth": result.depth,
        "processor_states": result.processor_states,
        "judged": result.judged,
        "ends": result.ends,
        "exhausted": result.exhausted,
        "elapsed_s": round(elapsed_s, 2),
        "violations": [] if found is None else [list(one) for one in found.violations],
        "path": [] if found is None else [list(action) for action in found.path],
    }


def _replay(screen: Screen, file: Path) -> int:
    case, path, mutant = load_path(file)
    told = retell(case, path, _endpoint(mutant))
    screen.print(f"{case.name}" + (f"; mutant: {mutant}" if mutant else ""))
    show_retold(screen, told)
    screen.save_json(
        {
            "holds": not told.violations,
            "case": case.name,
            "mutant": mutant,
            "path": list(told.lines),
            "violations": [list(one) for one in told.violations],
        }
    )
    return 1 if told.violations else 0


def show_retold(screen: Screen, told: Retold) -> None:
    screen.rule("Path")
    screen.long("\n".join(f"{place:>4}  {line}" for place, line in enumerate(told.lines, 1)))
    screen.rule("Story")
    screen.long(told.story.rstrip())
    screen.rule("Violated" if told.violations else "Nothing violated")
    screen.long("\n".join(f"{one.property}: {one.text}" for one in told.violations))
