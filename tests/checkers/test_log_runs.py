"""Random runs of real replicas on ideal groups keep every promise; broken replicas do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from loggroups import World

from sweeps import first_of
from totempole.checkers import Liveness, Verdict
from totempole.checkers.corel import COREL
from totempole.checkers.property import Indices
from totempole.checkers.terms import Terms
from totempole.corel.fences import FenceMark, Fences
from totempole.corel.journal import Journal
from totempole.corel.member import Member, Phase
from totempole.corel.ordering import Ordering
from totempole.corel.quorum import ReplicaSet
from totempole.corel.tally import Tally
from totempole.corel.zones import Zones
from totempole.types import Fence

LARGE = 12_000
"""Bytes of a record, where a few runs are more than a replica has at hand for others."""

SETTINGS: dict[str, dict[str, Any]] = {
    "quorum": {},
    "all": {"acknowledgements": "all"},
    "dynamic": {"rule": "dynamic"},
}


def verdicts(world: World) -> Iterator[Verdict]:
    everyone = tuple(node.me for node in world.nodes)
    terms = Terms(complete=True, expectation=Liveness(world.now_us, (everyone,), 0))
    indices = Indices(world.rows)
    for item in COREL.properties:
        yield COREL.judge(item, indices, terms)


@pytest.mark.parametrize("kind", first_of(SETTINGS))
def test_random_runs_hold(kind: str) -> None:
    seen: set[str] = set()
    for seed in range(8):
        world = World(seed, 5 if seed % 2 else 3, **SETTINGS[kind])
        world.random_run(changes=8, appends=8)
        for verdict in verdicts(world):
            assert not verdict.count, f"{kind} {seed}: {verdict}"
            assert not verdict.reasons, f"{kind} {seed}: {verdict}"
        seen |= {row.new_state if row.kind == "phase" else row.kind for row in world.rows}
    assert seen >= {"crash", "log_close", "minority", "primary", "cut off", "replica_set"}


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_one_that_was_away_for_long(is_trimmed: bool) -> None:
    for seed in range(3):
        world = World(seed, 3, recent_bytes=65_536)
        world.size = LARGE
        world.quiet()
        world.append(world.nodes[2])
        world.quiet()
        world.nodes[2].crash()
        world.regroup([world.up])
        for count in range(12):
            world.append(world.up[count % 2], f"k{count % 5}")
            world.steps(20)
        world.quiet()
        world.trimmed = 10 if is_trimmed else 0
        world.random_run(changes=2, appends=4)
        for verdict in verdicts(world):
            assert not verdict.count, f"{seed}: {verdict}"
        seen = {
            row.new_state or row.reason if row.kind in ("phase", "fetched") else row.kind
            for row in world.rows
        }
        assert seen >= {"looking on", "runs", "recall"}
        assert ("mark" in seen) is is_trimmed


def test_changes_of_the_set_hold() -> None:
    for seed in range(6):
        world = World(seed, 4)
        world.quiet()
        for processor, weight in ((4, 0), (2, 3), (4, 1)):
            world.random_run(changes=2, appends=4)
            world.change(world.nodes[seed % 3], processor, weight)
            world.steps(seed * 5)
        world.random_run(changes=4, appends=4)
        for verdict in verdicts(world):
            assert not verdict.count, f"{seed}: {verdict}"
        assert {row.reason for row in world.rows if row.kind == "replica_set"} >= {"primary", "change"}


def _act_at_once(self: Journal, act: Callable[[], None]) -> None:
    act()


def _count_what_is_queued(self: Tally, frames: int, is_own: bool) -> None:
    self.taken += 1
    self.durable = self.awaited = self.taken


def _without_high(self: Fences, fence: Fence) -> FenceMark | None:
    mark = self.mark(fence.name)
    return None if fence.low <= mark.number else mark


BROKEN: dict[str, tuple[type, str, Any, str]] = {
    "said before the disk has it": (Journal, "gate", _act_at_once, "durable-before-acknowledged"),
    "acknowledged when queued": (Tally, "take", _count_what_is_queued, "durable-before-acknowledged"),
    "yellow after a transitional view": (
        *(Member, "is_ordering"),
        *(property(lambda self: self.phase is Phase.PRIMARY), "colours"),
    ),
    "green by one acknowledgement": (Ordering, "_is_durable", lambda self, there: True, "yellow"),
    "keys forgotten": (Zones, "_repeats", lambda self, log, keys: (), "once-per-key"),
    "high does not count": (Fences, "keeps_out", _without_high, "fences"),
    "the mark is not moved": (Fences, "move", lambda self, fence, position: None, "fences"),
    "any members form a primary": (ReplicaSet, "may_form", lambda self, *known: True, "sets"),
}


@pytest.mark.search
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_replica_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, what, instead, wanted = BROKEN[name]
    monkeypatch.setattr(where, what, instead)
    for seed in range(60):
        world = World(seed, 5 if seed % 2 else 3)
        with suppress(AssertionError):  # a replica may notice that itself
            world.random_run(changes=10, appends=8)
        if any(verdict.count and verdict.property == f"corel-{wanted}" for verdict in verdicts(world)):
            return
    raise AssertionError(f"{name}: nothing was noticed")
