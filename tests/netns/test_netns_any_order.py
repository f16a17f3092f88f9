"""Faults of every kind in an order that a seed chooses, without waiting for the ring in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from netns_stage import Stage, StageMaker

from totempole.lab import Fault
from totempole.lab.cluster import Setup
from totempole.runtime import keyring
from totempole.srp.config import RingConfig
from totempole.types import RingKind

STEPS = 16
PAUSES_S = (0.02, 0.1, 0.3, 0.6)
SIZES = (100, 300, 5_000, 20_000)


class Mischief:
    """What may be done to a stage; `done` names what was."""

    def __init__(self, ring: Stage, random: Random) -> None:
        self.done: list[str] = []
        self._ring = ring
        self._random = random
        self._losses: list[Fault] = []

    def step(self) -> None:
        kinds: tuple[Callable[[int], str], ...] = (
            self._partition,
            self._cut,
            self._heal,
            self._lose,
            self._kill_or_restart,
            self._pause_or_resume,
        )
        act = self._random.choice(kinds)
        self.done.append(act(self._random.choice(list(self._ring.lab.hosts))))
        time.sleep(self._random.choice(PAUSES_S))

    def load(self, *numbers: int) -> None:
        for number in numbers:
            self._ring.load(self._random.choice(SIZES), rate=60, numbers=[number])

    def end(self) -> None:
        """All are up and connected again."""
        ring = self._ring
        for loss in self._losses:
            loss.undo()
        for number in sorted(ring.paused):
            ring.resume(number)
        for number in sorted(ring.down):
            ring.restart(number)
        ring.heal()

    def _partition(self, number: int) -> str:
        groups: list[list[int]] = [[], []]
        for other in self._ring.lab.hosts:
            groups[other == number or self._random.random() < 0.5].append(other)
        return self._ring.lab.partition(groups).name

    def _cut(self, number: int) -> str:
        others = [other for other in self._ring.lab.hosts if other != number]
        return self._ring.lab.cut(number, self._random.choice(others)).name

    def _heal(self, number: int) -> str:
        self._ring.lab.heal()
        return "heal"

    def _lose(self, number: int) -> str:
        if self._losses:
            self._losses.pop().undo()
            return "loss ends"
        self._losses.append(self._ring.lab.loss(number, self._random.choice((2, 10, 30, 60))))
        return self._losses[-1].name

    def _kill_or_restart(self, number: int) -> str:
        ring = self._ring
        if number in ring.down:
            ring.restart(number)
            self.load(number)
            return f"restart {number}"
        ring.paused.discard(number)
        ring.kill(number)
        return f"kill {number}"

    def _pause_or_resume(self, number: int) -> str:
        ring = self._ring
        if number in ring.paused:
            ring.resume(number)
            return f"resume {number}"
        if number in ring.down:
            return "nothing"
        ring.pause(number)
        return f"pause {number}"


@pytest.mark.parametrize(
    ("seed", "transport", "ring_kind"),
    [
        (1, "multicast", RingKind.CLASSIC),
        (2, "mesh", RingKind.ACCELERATED),
        (3, "multicast", RingKind.CLASSIC),
    ],
)
def test_faults_in_any_order(
    stage: StageMaker, tmp_path: Path, seed: int, transport: str, ring_kind: RingKind
) -> None:
    key_file = tmp_path / "ring.key"
    keyring.create(key_file)
    setup = Setup(ring=RingConfig(ring_kind=ring_kind), transport=transport, key_file=key_file)
    with stage(hosts=5, setup=setup, prepare=lambda lab: lab.holes()) as ring:
        mischief = Mischief(ring, Random(seed))
        mischief.load(*ring.lab.hosts)
        before = ring.changes()
        for _ in range(STEPS):
            mischief.step()
        mischief.end()
        ring.load()
        ring.deliver(50)
        assert ring.changes() > before, mischief.done
