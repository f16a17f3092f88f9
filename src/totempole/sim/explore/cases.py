"""What is searched: a root and bounds, by name; and the broken protocols that such a search must notice.

A path that violates something is a file: the case, the mutant if any, and the actions one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from totempole.errors import TotemError
from totempole.sim.contract import StackFactory
from totempole.sim.explore.explorer import (
    Explorer,
    Result,
    Saying,
    Violation,
    end_of,
    rows_of,
    violations_of,
)
from totempole.sim.explore.processor import Cabinet
from totempole.sim.explore.roots import root, small_config
from totempole.sim.explore.space import Action, Bounds, Space, Step
from totempole.sim.stacks import RealStack
from totempole.sim.story import render_story

STATES_MAX = 100_000
DEPTH_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """A search of its own: how many processors, from which root, within which bounds."""

    processors: int
    root: str
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def name(self) -> str:
        given = [f"{name} {count}" for name, count in _given(self.bounds).items()]
        many = "processor" if self.processors == 1 else "processors"
        return f"{self.processors} {many}, {self.root}: {', '.join(given) or 'no faults'}"


def _given(bounds: Bounds) -> dict[str, int]:
    default = asdict(Bounds())
    return {name: count for name, count in asdict(bounds).items() if count != default[name]}


CASES: tuple[Case, ...] = (
    Case(1, "ring", Bounds(messages=4, crashes=1, stalls=1)),
    Case(2, "cold", Bounds(losses=1, timeouts=1)),
    Case(2, "busy", Bounds(overtakes=1, losses=1, copies=1, timeouts=1)),
    Case(2, "busy", Bounds(early=1, timeouts=1)),
    Case(2, "ring", Bounds(messages=2, losses=1, timeouts=1)),
    Case(2, "busy", Bounds(crashes=1, timeouts=1)),
    Case(2, "busy", Bounds(crashes=1, stalls=1, timeouts=1)),
    Case(2, "busy", Bounds(partitions=1, timeouts=2)),
    Case(3, "cold"),
    Case(3, "gap", Bounds(losses=1, timeouts=2, restarts=0)),
    Case(3, "busy", Bounds(overtakes=1, losses=1)),
    Case(3, "busy", Bounds(losses=1, timeouts=1)),
    Case(3, "busy", Bounds(strays=1)),
    Case(3, "busy", Bounds(partitions=1, timeouts=1)),
    Case(3, "busy", Bounds(crashes=1, restarts=0, timeouts=1)),
)
"""What `totem fuzz --exhaustive` searches when it is told nothing."""


def explorer_of(case: Case, stack: StackFactory | None = None) -> Explorer:
    cabinet = Cabinet(stack or RealStack(), small_config())
    prologue = root(case.root, cabinet, case.processors)
    return Explorer(Space(cabinet, case.processors, case.bounds), prologue)


def search_case(
    case: Case,
    stack: StackFactory | None = None,
    *,
    states_max: int = STATES_MAX,
    depth_max: int = DEPTH_MAX,
    progress: Callable[[Result], None] = lambda _result: None,
) -> Result:
    return explorer_of(case, stack).explore(states_max, depth_max, progress)


# Paths as files


def save_path(file: Path, case: Case, path: tuple[Action, ...], mutant: str | None) -> None:
    data = {
        "processors": case.processors,
        "root": case.root,
        "bounds": asdict(case.bounds),
        "mutant": mutant,
        "path": path,
    }
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def load_path(file: Path) -> tuple[Case, tuple[Action, ...], str | None]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        case = Case(data["processors"], data["root"], Bounds(**data["bounds"]))
        return case, tuple(tuple(action) for action in data["path"]), data["mutant"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TotemError(f"{file} is not a path of an exhaustive search ({error})") from error


@dataclass(frozen=True, slots=True)
class Retold:
    """A path, taken again."""

    lines: tuple[str, ...]
    """One for each action."""
    story: str
    """What the processors did from the root on, and after the path, when all was put right."""
    violations: tuple[Violation, ...]


def retell(case: Case, path: tuple[Action, ...], stack: StackFactory | None = None) -> Retold:
    explorer = explorer_of(case, stack)
    space, told = explorer.space, list(explorer.root.told)
    before = len(rows_of(told, case.processors))
    state, lines, found = explorer.root.state, [], list[Violation]()
    for action in path:
        try:
            step = space.take(state, action)
        except LookupError as error:
            raise TotemError(f"the path does not fit this protocol: {error}") from error
        found += explorer.judge_step(state, step)
        if step.move is not None:
            told.append(Saying(step.actor + 1, step.move.told))
        lines.append(_line(space, step))
        state = step.state
    rows = rows_of(told, case.processors)
    found += violations_of(rows, complete=False)
    if not found:
        found += end_of(space, state, told)
        rows = rows_of(told, case.processors)
    return Retold(tuple(lines), render_story(rows[before:]), tuple(found))


def _line(space: Space, step: Step) -> str:
    match step.action:
        case (("deliver" | "lose" | "copy" | "stray") as verb, source, to, packet):
            return f"{_VERBS[verb]} {to}: {describe(space, packet)} of {source}"
        case ("expire", me, timer):
            return f"timer of {me}: {timer}"
        case ("submit", me, number):
            return f"{me} submits message {number}"
        case ("crash", me, kept):
            return f"{me} crashes, {kept} of its writes under way kept"
        case ("part", *apart):
            return f"the network parts: {' '.join(map(str, apart))} from the rest"
        case (verb, *rest):
            return " ".join(map(str, (*rest, _VERBS.get(verb, verb))))
    raise AssertionError(step.action)


_VERBS = {
    "deliver": "arrives at",
    "lose": "lost on the way to",
    "copy": "a copy arrives at",
    "stray": "goes astray to",
    "written": "has written",
    "stall": "writes slowly from now on",
    "restart": "starts again",
    "heal": "the network is whole",
}


def describe(space: Space, packet: int) -> str:
    known = space.cabinet.packets[packet].packet
    parts = [type(known).__name__]
    for name in ("ring_id", "seq", "token_seq", "aru"):
        value: Any = getattr(known, name, None)
        if value is not None:
            parts.append(f"{name.removesuffix('_id')} {value}")
    return " ".join(parts)
