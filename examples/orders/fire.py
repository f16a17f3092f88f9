"""Kills parts of the demo at random, with kill -9: nodes, executors, the driver, the producers."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from parts import Part, command_line, descendants, kill

NODE_PAUSE_S = (3.0, 6.0)
PROGRAM_PAUSE_S = (1.0, 3.0)
DOWN_S = (0.2, 3.0)
"""How long a node is away."""
PROGRAMS = ("executor", "producers", "driver")


class Fire:
    def __init__(
        self, directory: Path, nodes: list[Part], pipeline: Part, producers: Part, random: Random
    ) -> None:
        self.nodes, self.pipeline, self.producers = nodes, pipeline, producers
        self.killed: Counter[str] = Counter()
        self._file = directory / "kills.jsonl"
        self._random = random
        self._programs = self._shuffled()
        self._program = next(self._programs)
        self._node_due_s = self._program_due_s = 0.0
        self._invoices = 0
        """There were so many when a program was killed last."""

    def step(self, invoices: int) -> str:
        """Kills something, if it is time for that. What it was."""
        now_s = time.monotonic()
        if not invoices:
            return ""  # the show has not begun
        if now_s >= self._node_due_s:
            self._node_due_s = now_s + self._random.uniform(*NODE_PAUSE_S)
            return self._kill_node()
        # A driver that is killed again before it has done anything would never come to an end.
        if now_s >= self._program_due_s and invoices > self._invoices:
            killed = self._kill_program()
            if killed:
                self._program_due_s = now_s + self._random.uniform(*PROGRAM_PAUSE_S)
                self._invoices = invoices
                self._program = next(self._programs)
            return killed
        return ""

    def _shuffled(self) -> Iterator[str]:
        yield from PROGRAMS  # a short run has them all
        while True:
            yield from self._random.sample(PROGRAMS, len(PROGRAMS))

    def _kill_node(self) -> str:
        node = self._random.choice(self.nodes)
        if node.process is None:
            return ""
        node.kill(self._random.uniform(*DOWN_S))
        return self._note("node", node.name)

    def _kill_program(self) -> str:
        if self._program == "driver" and self.pipeline.process:
            self.pipeline.kill()
            return self._note("driver", "the driver")
        if self._program == "producers" and self.producers.process:
            self.producers.kill()
            return self._note("producers", "the producers")
        victims = executors(self.pipeline.process.pid) if self.pipeline.process else []
        if not victims:
            return ""
        kill(self._random.choice(victims))
        return self._note("executor", "an executor")

    def _note(self, kind: str, what: str) -> str:
        """For the dashboard."""
        self.killed[kind] += 1
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), "what": what}) + "\n")
        return what


def executors(driver: int) -> list[int]:
    """Processes that run tasks. With master local[…] these are the Python workers: forks of their daemon."""
    commands = {pid: command_line(pid) for pid in descendants(driver)}
    found = [pid for pid, command in commands.items() if "CoarseGrainedExecutorBackend" in command]
    if found:
        return found
    daemons = [pid for pid, command in commands.items() if "pyspark.daemon pyspark.worker" in command]
    return [pid for daemon in daemons for pid in descendants(daemon)]
