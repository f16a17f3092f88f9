"""Rounds under fire: rows are appended, something dies, everything comes back, and all tables are compared.

A seed says what is appended, who dies and at which point; when exactly is the machine's to say.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import fire_points as points
from fire_points import COMMITTER, DRIVER, EXECUTOR, PAUSED, REPLICA, Start
from fire_stage import Stage
from fire_verdict import (
    Row,
    differences,
    judge_answers,
    judge_appended,
    judge_files,
    judge_replicas,
    judge_served,
    rows_of_log,
    rows_of_table,
    table_files,
)

LOCAL = "local[2,4]"
"""Python's workers are the executors; a task that fails is tried again."""
SMALL = 3
LARGE = (200, 450)
"""Rows that are appended at once: one batch without staging, or several with."""
TINY, INLINE = 600, 100_000
"""Bytes of rows that a task gives to the driver. Batches of a hundred rows are staged by tasks, or by it."""
VICTIM_S = 120.0
"""Within this time there is something to shoot at: what was killed is back."""
AGAIN_MAX = 2
"""So often rows are appended for an aim that has not fired."""

DIES = re.compile(
    r"Python worker exited unexpectedly|EOFException|Connection reset|Broken pipe|Socket closed"
    r"|Python worker failed to connect back"
)
"""Why a query may fail: one of its processes was killed; or the machine is so busy that one has not started
within the ten seconds that Spark waits."""


class Burst(NamedTuple):
    delay_s: float
    rows: int


class Shot(NamedTuple):
    """At a time, not at a point."""

    delay_s: float
    victim: str
    replicas: tuple[int, ...] = ()
    power: bool = False
    down_s: float = 0.0


class Round(NamedTuple):
    bursts: list[Burst]
    aims: list[tuple[str, str, int]]
    shots: list[Shot]


# Drawing


def draw_start(seed: int, stage: Stage, number: int, **more: str) -> Start:
    """Small bounds make batches of a hundred rows large. With its own bounds, the sink has large rows."""
    random = Random(f"{seed}/start/{number}")
    replicas = ",".join(random.sample(stage.sockets, len(stage.sockets)))
    parts = random.randint(1, 3)
    if random.random() < 0.75:
        rows_max, records = random.randint(60, 200), random.choice((8, 16, 40))
        steps, inline = random.choice((2, 2, 16)), random.choice((TINY, TINY, TINY, INLINE))
        return Start(number, replicas, parts, rows_max, inline, records, steps, **more)
    return Start(number, replicas, parts, random.randint(250, 450), padding=4_000, **more)


Draw = Callable[..., Start]
"""As `draw_start`."""


def draw_round(random: Random, start: Start) -> Round:
    """`start`: of the driver that runs now."""
    rows = SMALL if random.random() < 0.3 else random.randint(*LARGE)
    aims = []
    shots = []
    chosen = random.random()
    if chosen < 0.5:
        aims.append(draw_commit_aim(random, rows, start))
    elif chosen < 0.75:
        # On a cluster a task has another parent than the driver.
        victims = [EXECUTOR, EXECUTOR, REPLICA, *([DRIVER] if start.master == LOCAL else [])]
        is_staging = rows > SMALL and start.inline_bytes != INLINE
        of_rows = points.OF_TASKS if is_staging else (points.READING, points.TASK_DONE)
        aims.append((random.choice(of_rows), random.choice(victims), 1))
    else:
        shots.append(Shot(random.uniform(0, 4), DRIVER if chosen < 0.87 else EXECUTOR))
    if random.random() < 0.6:
        shots.append(draw_replicas(random))
    bursts = [Burst(random.uniform(0, 0.5), rows)]
    while random.random() < 0.4:
        bursts.append(Burst(random.uniform(0, 4), SMALL if random.random() < 0.5 else random.randint(*LARGE)))
    return Round(sorted(bursts), aims, sorted(shots))


def draw_commit_aim(random: Random, rows: int, start: Start) -> tuple[str, str, int]:
    of_rows = points.OF_SMALL_BATCHES if rows == SMALL else points.OF_STAGED_BATCHES
    point = random.choice([*of_rows, *of_rows, *points.OF_ALL_BATCHES])
    if point == points.TASK_STAGED and start.inline_bytes == INLINE:
        point = points.STAGED
    if point in points.OF_TASKS:
        return point, random.choice((EXECUTOR, REPLICA)), 1
    at = random.randint(1, 4) if point in (points.STEP, points.SENDING_STEP) else 1
    return point, random.choice((DRIVER, DRIVER, PAUSED, COMMITTER, REPLICA)), at


def draw_replicas(random: Random) -> Shot:
    count = random.choice((1, 1, 1, 1, 2, 3))
    replicas = tuple(sorted(random.sample((1, 2, 3), count)))
    power, down_s = random.random() < 0.6, random.uniform(0.1, 2.5)
    return Shot(random.uniform(0, 4), REPLICA, replicas, power, down_s)


# Running


class Campaign:
    """Rounds on one stage."""

    def __init__(
        self, stage: Stage, seed: int, *, mutant: str = "", master: str = LOCAL, draw: Draw = draw_start
    ) -> None:
        self.stage = stage
        self.rounds = 0
        self.unfired = 0
        self.rows = 0
        """In the log "in", at the last verdict."""
        self._seed = seed
        self._random = Random(f"{seed}/run")
        stage.start_driver(lambda number: draw(seed, stage, number, mutant=mutant, master=master))

    def run(self, rounds: int) -> list[str]:
        """What is wrong after so many rounds of the plan, or after the first that has something wrong."""
        for number in range(self.rounds, self.rounds + rounds):
            random = Random(f"{self._seed}/round/{number}")
            wrong = self.play(draw_round(random, self.stage.starts[-1]))
            if wrong:
                return [f"seed {self._seed}, round {number}: {each}" for each in wrong]
        return []

    def play(self, plan: Round) -> list[str]:
        stage = self.stage
        aims = [stage.aim(*aim) for aim in plan.aims]
        self._play_out(plan)
        self._wait_until_idle()
        for _ in range(AGAIN_MAX):
            if all(map(stage.has_fired, aims)) or self._failures():
                break
            stage.appenders.append(self._random, plan.bursts[0].rows)
            self._wait_until_idle()
        self.unfired += sum(map(stage.withdraw, aims))
        self._wait_until_idle()
        self.rounds += 1
        return self.verdict()

    def _play_out(self, plan: Round) -> None:
        bursts, shots = list(plan.bursts), list(plan.shots)
        begun_s = time.monotonic()
        while bursts or shots:
            self.stage.tend()
            now_s = time.monotonic() - begun_s
            while bursts and now_s >= bursts[0].delay_s:
                self.stage.appenders.append(self._random, bursts.pop(0).rows)
            if shots and now_s >= shots[0].delay_s and self._shoot(shots[0]):
                del shots[0]
            assert now_s < VICTIM_S, f"there is nothing to shoot at: {shots}"
            time.sleep(0.01)

    def _shoot(self, shot: Shot) -> bool:
        """Whether there was something to be killed."""
        stage = self.stage
        if shot.victim == REPLICA:
            up = [number for number in shot.replicas if stage.nodes[number].is_up]
            stage.kill_replicas(up, shot.down_s, power=shot.power)
            return bool(up)
        if shot.victim == EXECUTOR:
            return stage.kill_executor()
        stage.kill_driver()
        return True

    def _wait_until_idle(self) -> None:
        stage = self.stage
        stage.wait(
            lambda: (stage.has_caught_up and not stage.has_paused) or self._failures(),
            lambda: f"queries do not catch up: {self._where()}\n{stage.driver_log()[-5000:]}",
        )

    def _where(self) -> str:
        stage = self.stage
        told = stage.appenders.told
        return (
            f"{len(told)} of {len(stage.appenders.payloads)} rows are appended, the last at "
            f"{max(told.values(), default=-1)}; out is at {stage.committed('out')}, table at "
            f"{stage.committed('table')}; nodes {[node.is_up for node in stage.nodes.values()]}; paused "
            f"{stage.has_paused}; events {stage.events[-15:]}"
        )

    # Judging

    def verdict(self) -> list[str]:
        """While nothing moves."""
        if failures := self._failures():
            return failures
        stage = self.stage
        stage.wait_for_replicas()
        logs = self._equal_logs()
        log = logs[1]
        rows = [row for row in log if row.log == "in"]
        commits = stage.directory / "checkpoints" / "table" / "commits"
        batches = max([int(file.name) for file in commits.glob("*") if file.name.isdecimal()], default=-1) + 1
        table = rows_of_table(table_files(stage.directory / "table", batches))
        self.rows = len(rows)
        return [
            *judge_replicas(logs),
            *judge_appended(rows, stage.appenders.payloads, stage.appenders.told),
            *judge_answers(rows, [row for row in log if row.log == "out"], stage.starts),
            *differences("the table", table, rows),
        ]

    def _equal_logs(self) -> dict[int, list[Row]]:
        """The green line is written a moment after programs are told. What stays different is judged."""
        end_s = time.monotonic() + 20
        while True:
            logs = {
                number: rows_of_log(node.daemon.directory / "log")
                for number, node in self.stage.nodes.items()
            }
            if all(log == logs[1] for log in logs.values()) or time.monotonic() > end_s:
                return logs
            self.stage.tend()
            time.sleep(0.1)

    def _failures(self) -> list[str]:
        """Of queries and drivers, but for those whose processes were killed."""
        events = self.stage.events
        failed = [each for each in events if each["event"] == "failed" and not DIES.search(each["text"])]
        ended = [each for each in events if each["event"] == "driver ended"]
        return [f"a query or a driver has failed: {each['text']}" for each in (*failed, *ended)]

    def end(self) -> list[str]:
        """The driver stops its queries, and reads both logs as a table. Everything is judged once more, each
        replica by its log service, and the files of each when it has stopped."""
        stage = self.stage
        stage.end_driver()
        wrong = self.verdict()
        log = rows_of_log(stage.nodes[1].daemon.directory / "log")
        rows = [row for row in log if row.log in ("in", "out")]
        wrong += differences(
            "what Spark reads at once", rows_of_table(table_files(stage.directory / "both")), rows
        )
        for number, node in stage.nodes.items():
            wrong += judge_served(number, node.daemon.socket, log)
        for node in stage.nodes.values():
            node.daemon.end()
        return wrong + judge_files(node.daemon.directory / "log" for node in stage.nodes.values())

    @property
    def published(self) -> Counter[str]:
        """Batches by the way they took, and by what became of an attempt."""
        told = [each for each in self.stage.events if each["event"] == "published"]
        return Counter([each["way"] for each in told] + [each["outcome"] for each in told])

    def summary(self) -> str:
        stage = self.stage
        taken_back = sum(node.taken_back for node in stage.nodes.values())
        return (
            f"seed {self._seed}: {self.rounds} rounds, {self.rows} rows, {len(stage.starts)} drivers; "
            f"killed {dict(stage.fired)}; {self.unfired} aims did not fire; {taken_back} writes taken back; "
            f"published {dict(self.published)}"
        )
