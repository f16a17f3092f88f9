"""Many seeds at once: a pool of processes, progress as it goes, and a file to resume from."""

from __future__ import annotations

import gc
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from totempole.errors import TotemError
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.kinds import kind_named
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.pools import open_pool
from totempole.sim.fuzz.profiles import ALL, PROFILES
from totempole.sim.fuzz.trial import Verdict, try_scenario
from totempole.sim.script import Scenario

CHUNK = 4
"""Seeds handed to a worker at a time."""
SAVE_EVERY = 100
FAILURES_MAX = 1_000
"""Failing seeds that a search remembers with their texts; all are counted."""


@dataclass(slots=True)
class Tally:
    """A search so far."""

    first: int
    stop: int
    done: int = 0
    failed: int = 0
    packet_events: int = 0
    deliveries: int = 0
    coverage: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, tuple[str, ...], str]] = field(default_factory=list)
    kind: str = "ring"
    """What is searched (`kinds.kind_named`)."""
    profile: str = ALL.name
    """What may go wrong."""

    @property
    def next_seed(self) -> int:
        return self.first + self.done

    def add(self, seed: int, verdict: Verdict) -> None:
        self.done += 1
        self.packet_events += verdict.packet_events
        self.deliveries += verdict.deliveries
        self.coverage.update(verdict.coverage)
        if verdict.violated:
            self.failed += 1
            if len(self.failures) < FAILURES_MAX:
                self.failures.append((seed, verdict.violated, verdict.text))

    def to_json(self) -> dict[str, object]:
        return {
            "first": self.first,
            "stop": self.stop,
            "done": self.done,
            "failed": self.failed,
            "packet_events": self.packet_events,
            "deliveries": self.deliveries,
            "coverage": dict(sorted(self.coverage.items())),
            "failures": [[seed, list(violated), text] for seed, violated, text in self.failures],
            "kind": self.kind,
            "profile": self.profile,
        }

    def save(self, path: Path) -> None:
        """In one step, so that a search that is killed leaves the old file or the new one."""
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(self.to_json()), encoding="utf-8")
        os.replace(partial, path)

    @classmethod
    def load(cls, path: Path, first: int, stop: int, kind: str = "ring", profile: str = ALL.name) -> Tally:
        """What an earlier search for the same seeds had done; a new tally when there is no such file."""
        if not path.exists():
            return cls(first, stop, kind=kind, profile=profile)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            found = cls(
                data["first"],
                data["stop"],
                data["done"],
                data["failed"],
                data["packet_events"],
                data["deliveries"],
                Counter(data["coverage"]),
                [(seed, tuple(violated), text) for seed, violated, text in data["failures"]],
                data.get("kind", "ring"),
                data.get("profile", ALL.name),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise TotemError(
                f"{path} is not the file of a search ({error}): name another, or remove it"
            ) from error
        if found.first != first:
            raise TotemError(
                f"{path} belongs to a search from seed {found.first}: name another, or remove it"
            )
        if found.kind != kind:
            raise TotemError(f"{path} belongs to a search of {found.kind}: name another, or remove it")
        if found.profile != profile:
            raise TotemError(
                f"{path} belongs to a search with the profile {found.profile}: name another, or remove it"
            )
        found.stop = stop
        return found


def try_seed(seed: int) -> tuple[int, Verdict]:
    """One run of the ring."""
    return seed, _try(plan(seed))


def try_group_seed(seed: int) -> tuple[int, Verdict]:
    """One run with process groups."""
    return seed, _try(group_plan(seed))


def try_profiled_seed(kind: str, profile: str, seed: int) -> tuple[int, Verdict]:
    """One run of any kind, with only some things going wrong."""
    return seed, _try(kind_named(kind).plan(seed, PROFILES[profile]))


def _try(scenario: Scenario) -> Verdict:
    """A run's rows are all alive until it ends, so the collector would look at them in vain."""
    gc.disable()
    try:
        return try_scenario(scenario)[0]
    finally:
        gc.enable()
        gc.collect()


def search(
    tally: Tally,
    jobs: int,
    *,
    resume_file: Path | None = None,
    progress: Callable[[Tally], None] = lambda _tally: None,
) -> Tally:
    """Runs the seeds that the tally still lacks."""
    for seed, verdict in _verdicts(range(tally.next_seed, tally.stop), jobs, tally):
        tally.add(seed, verdict)
        if resume_file is not None and tally.done % SAVE_EVERY == 0:
            tally.save(resume_file)
        progress(tally)
    if resume_file is not None:
        tally.save(resume_file)
    return tally


def _trial(tally: Tally) -> Callable[[int], tuple[int, Verdict]]:
    if tally.profile != ALL.name or tally.kind not in ("ring", "groups"):
        return partial(try_profiled_seed, tally.kind, tally.profile)
    return try_group_seed if tally.kind == "groups" else try_seed


def _verdicts(seeds: Iterable[int], jobs: int, tally: Tally) -> Iterator[tuple[int, Verdict]]:
    trial = _trial(tally)
    if jobs <= 1:
        yield from map(trial, seeds)
        return
    with open_pool(jobs) as pool:
        yield from pool.imap(trial, seeds, CHUNK)
