"""A ring on real hosts for one test, and the end that every such test has: heal, settle, drain, judge.

Progress is counted in deliveries, never in seconds: a busy machine makes a test slow, not wrong.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from totempole.checkers import Liveness, check
from totempole.lab import Lab
from totempole.lab.cluster import Cluster, Setup
from totempole.trace.schema import Row

WAIT_S = 120.0
"""For whatever must happen at all."""
POLL_S = 0.1
DRAIN_S = 0.6
"""Longer than a node keeps rows of its trace to itself (HOUSEKEEPING_US), twice over."""


class Stage:
    """A cluster on a lab. `rows` and what is counted from them are there once it has been judged."""

    def __init__(self, lab: Lab, cluster: Cluster) -> None:
        self.lab = lab
        self.cluster = cluster
        self.rows: list[Row] = []
        self.killed: set[int] = set()
        """Whose last rows are missing."""
        self.down: set[int] = set()
        self.paused: set[int] = set()

    # Load and progress

    @property
    def running(self) -> list[int]:
        players = self.cluster.players
        return [number for number in players if players[number].alive and number not in self.paused]

    def load(self, size: int = 300, rate: int = 100, numbers: Collection[int] | None = None) -> None:
        """A modest load: odd hosts ask for agreed delivery, even ones for safe."""
        for number in numbers or self.running:
            service = "agreed" if number % 2 else "safe"
            self.cluster.players[number].tell("pace", size, service, rate)

    def deliver(self, messages: int = 150, numbers: Collection[int] | None = None) -> None:
        """Waits until each host has delivered so many more messages."""
        waiting = list(numbers or self.running)
        goal = {number: self._delivered(number) + messages for number in waiting}
        self.wait(
            lambda: all(self._delivered(number) >= goal[number] for number in waiting),
            f"{messages} more deliveries at {waiting}",
        )

    def _delivered(self, number: int) -> int:
        return int(self.totals(number)["messages_delivered"])

    def status(self, number: int) -> dict[str, Any]:
        status: dict[str, Any] = self.cluster.players[number].report()["status"]
        return status

    def totals(self, number: int) -> dict[str, int]:
        totals: dict[str, int] = self.status(number)["totals"]
        return totals

    def dropped(self, number: int) -> int:
        return sum(self.status(number)["dropped"].values())

    def sum_of(self, name: str) -> int:
        return sum(self.totals(number)[name] for number in self.running)

    def changes(self) -> int:
        """Regular configurations that were installed so far, by all."""
        return sum(len(player.views) for player in self.cluster.players.values())

    def fits(self, *groups: Collection[int]) -> bool:
        """Whether each group is a configuration of its own now."""
        return self.cluster.fits(groups)

    def wait_for(self, *groups: Collection[int]) -> None:
        """Until each group is a configuration."""
        self.cluster.wait_for(groups, WAIT_S)

    def wait_whole(self) -> None:
        self.wait_for(self.running)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < give_up_s, f"waited {WAIT_S} s in vain for {what}\n{self.logs()}"
            time.sleep(POLL_S)

    def logs(self) -> str:
        return "\n".join(
            f"--- {number}\n{player.log[-1500:]}" for number, player in self.cluster.players.items()
        )

    # Faults

    @contextmanager
    def loss(self, percent: float) -> Iterator[None]:
        """Every host loses its share; that something was lost is seen to."""
        before = self.lab.counters().lost
        with ExitStack() as faults:
            for number in self.lab.hosts:
                faults.enter_context(self.lab.loss(number, percent))
            yield
        assert self.lab.counters().lost > before, "nothing was lost"

    def partition(self, *groups: Sequence[int]) -> None:
        """Returns when each group is a ring of its own."""
        before = self.lab.counters().cut
        self.lab.partition(groups)
        self.wait_for(*groups)
        assert self.lab.counters().cut > before, "nothing was cut"

    def heal(self) -> None:
        self.lab.heal()
        self.wait_whole()

    def kill(self, number: int) -> None:
        self.cluster.players[number].kill()
        self.killed.add(number)
        self.down.add(number)

    def restart(self, number: int) -> None:
        self.cluster.start(number)
        self.down.discard(number)

    def leave(self, number: int) -> None:
        self.cluster.players[number].end()
        self.down.add(number)

    def pause(self, number: int) -> None:
        self.paused.add(number)
        self.cluster.players[number].signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.cluster.players[number].signal(signal.SIGCONT)
        self.paused.discard(number)

    # The end

    def finish(self) -> None:
        """Heals, drains, judges; then all leave, and the whole of it is judged."""
        self.lab.heal()
        for number in sorted(self.paused):
            self.resume(number)
        healed_us = time.time_ns() // 1000
        self.cluster.tell("quiet")
        up = tuple(self.running)
        expectation = Liveness(healed_us, (up,), round(2 * WAIT_S * 1_000_000))
        self.judge(self._quiescent_rows(), up, expectation)
        self.cluster.end()
        self.judge(self.cluster.trace(), up)

    def _quiescent_rows(self) -> list[Row]:
        """The traces while all are together and nothing happens: here a checker may ask for all that is due.

        On a machine so busy that a ring breaks by itself, the next one is waited for.
        """
        found: list[Row] = []

        def is_quiescent() -> bool:
            nonlocal found
            ring = self.drain()
            found = self.cluster.trace()
            last = {row.node: row.configuration for row in found if row.kind == "configuration"}
            return all(last[number] == ring for number in self.running) and ring == self.drain()

        self.wait(is_quiescent, "the ring to be at rest")
        return found

    def drain(self) -> str:
        """Waits until all are together, nothing waits to be sent, and nothing more is delivered; the ring."""
        before: dict[int, tuple[str, int, int]] = {}

        def is_drained() -> bool:
            nonlocal before
            last, before = before, {number: self._doing(number) for number in self.running}
            whole = tuple(self.running)
            together = all(self.cluster.players[number].members == whole for number in whole)
            if last == before and together and len({ring for ring, _, _ in before.values()}) == 1:
                return all(waiting == 0 for _, _, waiting in before.values())
            time.sleep(DRAIN_S)
            return False

        self.wait(is_drained, "the ring to be whole and drained")
        return next(iter(before.values()))[0]

    def _doing(self, number: int) -> tuple[str, int, int]:
        """Its ring, what it has delivered, and what still waits to be sent."""
        status = self.status(number)
        waiting = status["queue"]["send"] + status["queue"]["application"]
        return status["ring"], status["totals"]["messages_delivered"], waiting

    def judge(self, rows: list[Row], up: Collection[int], expectation: Liveness | None = None) -> None:
        """Every property, on a trace that shows deliveries at each of those that are `up`.

        The hosts of a lab share one clock. A killed node is judged up to its last row.
        """
        self.rows = with_crashes(rows, self.killed & self.down)
        deliverers = {row.node for row in self.rows if row.kind == "deliver"}
        assert set(up) <= deliverers, f"only {deliverers} of {up} delivered anything"
        report = check(self.rows, complete=True, expectation=expectation)
        violated = list(report.violated)
        assert not violated, "\n".join([*map(str, violated), f"trace: {self.cluster.trace_directory}"])
        if expectation is not None:
            assert not report["liveness"].reasons, report["liveness"]

    def of_kind(self, kind: str) -> list[Row]:
        return [row for row in self.rows if row.kind == kind]

    @property
    def branches(self) -> Counter[str]:
        """The rare branches that the nodes took, by name."""
        return Counter(row.reason for row in self.of_kind("branch"))


def with_crashes(rows: list[Row], dead: Collection[int]) -> list[Row]:
    """A killed node cannot write that it crashed: who killed it does."""
    last = {row.node: row for row in rows if row.node in dead}
    crashes = [
        Row(row.run, row.node, row.incarnation, row.step + 1, row.at_us, "test", "crash", reason="killed")
        for row in last.values()
    ]
    return [*rows, *crashes]


class StageMaker(Protocol):
    def __call__(
        self,
        hosts: int,
        *,
        setup: Setup | None = ...,
        nodes: Collection[int] | None = ...,
        prepare: Callable[[Lab], object] | None = ...,
    ) -> AbstractContextManager[Stage]: ...


@contextmanager
def staged(
    directory: Path,
    hosts: int,
    *,
    setup: Setup | None = None,
    nodes: Collection[int] | None = None,
    prepare: Callable[[Lab], object] | None = None,
) -> Iterator[Stage]:
    """`nodes`: the hosts that get one, if not all. `prepare` is done to the network before any starts."""
    setup = setup or Setup()
    with Lab("ring", hosts=hosts, networks=setup.networks) as lab:
        if prepare is not None:
            prepare(lab)
        with cluster_on(lab, directory, setup, nodes) as cluster:
            stage = Stage(lab, cluster)
            stage.wait_whole()
            yield stage
            stage.finish()


def cluster_on(lab: Lab, directory: Path, setup: Setup, hosts: Collection[int] | None = None) -> Cluster:
    """With all that a checker reads in its trace, or more."""
    directory.mkdir(exist_ok=True)
    trace = "protocol" if setup.trace == "protocol" else "checked"
    return Cluster(lab, directory, replace(setup, trace=trace), hosts)
