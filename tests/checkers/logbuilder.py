"""A language to write traces of the durable order in: who opened a log, formed a primary, ordered runs.

The builder is an ideal order over an ideal ring: its replicas take the same steps, one node after the other.
What a test wants wrong it breaks afterwards, or leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from tracebuilder import TraceBuilder

from totempole.types import Fence

LIFE = 1 << 20


@dataclass(slots=True)
class Run:
    name: str
    columns: dict[str, Any]
    keys: tuple[str, ...] = ()
    fence: Fence | None = None


@dataclass(slots=True)
class Queue:
    """What one replica has."""

    disk: int
    green: list[Run] = field(default_factory=list)
    yellow: list[Run] = field(default_factory=list)
    red: list[Run] = field(default_factory=list)
    vector: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    position: int = 0
    frames: int = 0
    durable: int = 0
    taken: int = 0
    primary: int = 0
    voters: tuple[int, ...] = ()
    phase: str = "closed"


class LogBuilder(TraceBuilder):
    def __init__(self, *nodes: int, awaits: str = "quorum", rule: str = "majority") -> None:
        super().__init__()
        self.awaits, self.rule = awaits, rule
        self.queues: dict[int, Queue] = {}
        self.replicas: tuple[int, ...] = nodes
        self.is_founded = False
        self.number = 0
        self.rounds = 0
        self.places = 0
        self._numbers: dict[int, int] = {}
        self._openings: dict[int, int] = {}
        self._barriers: dict[int, int] = {}
        self.form(*nodes)
        for node in nodes:
            self.open(node)

    def tell(self, node: int, kind: str, **columns: Any) -> None:
        columns.setdefault("green_runs", len(self.queues[node].green))
        self.row(node, kind, layer="corel", **columns)

    # The log

    def open(self, node: int, **wrong: Any) -> None:
        queue = self.queues.setdefault(node, Queue(100 + node))
        self._openings[node] = self._openings.get(node, 0) + 1
        self._numbers[node] = 0
        vector = tuple(f"{who}.{number}" for who, number in sorted(queue.vector.items()))
        columns = {
            "life": self._life(node),
            "disk": queue.disk,
            "frames": queue.durable,
            "position": queue.position,
            "primary": queue.primary,
            "voters": queue.voters,
            "awaits": self.awaits,
            "vector": vector,
        }
        self.tell(node, "log_open", **{**columns, **wrong})
        if self.is_founded:
            self._set(node, "open", len(queue.green) - 1)
        for place, run in enumerate(queue.yellow, len(queue.green)):
            self.colour(node, run, "", "yellow", place, "open")
        for run in queue.red:
            self.colour(node, run, "", "red", -1, "open")

    def reopen(self, node: int) -> None:
        """After a crash, with all that it had."""
        self.start(node, seq=20)
        self._openings[node] = self._barriers[node] = 0
        self.open(node)

    def _set(self, node: int, why: str, place: int) -> None:
        disks = tuple(self.queues[who].disk for who in self.replicas)
        columns = {"members": self.replicas, "disks": disks, "weights": (1,) * len(disks)}
        self.tell(node, "replica_set", reason=why, place=place, rule=self.rule, floor=1, **columns)

    def sync(self, node: int) -> None:
        queue = self.queues[node]
        queue.durable = queue.frames
        self.tell(node, "durable", frames=queue.durable)

    def say(self, node: int, reason: str, **columns: Any) -> None:
        self.tell(node, "acknowledge", reason=reason, **columns, **self._round())

    def _round(self) -> dict[str, Any]:
        return {"view": f"8@1:{self.rounds}:0", "round": 1}

    # Handlers

    def phase(self, node: int, new: str, members: tuple[int, ...] = (), **columns: Any) -> None:
        queue = self.queues[node]
        where = {"old_state": queue.phase, "new_state": new, "members": members, **self._round()}
        self.tell(node, "phase", disk=queue.disk, primary=queue.primary, **{**where, **columns})
        queue.phase = new if new != "cut off" else queue.phase

    def step(self, node: int) -> int:
        self.queues[node].frames += 1
        return self.queues[node].frames

    def meet(self, *members: int, onlookers: tuple[int, ...] = ()) -> None:
        """A new view: its members exchange states and agree on what the longest of them has."""
        self.rounds += 1
        everyone = tuple(sorted({*members, *onlookers}))
        for node in everyone:
            self.phase(node, "exchanging", everyone)
            self.say(node, "state", frames=self.queues[node].durable)
        for node in onlookers:
            self.phase(node, "looking on", everyone)
        best = max(members, key=lambda node: (self.queues[node].primary, self._length(node), -node))
        for node in members:
            self.phase(node, "agreeing", everyone)
            self._agree(node, best, members)

    def _length(self, node: int) -> int:
        return len(self.queues[node].green) + len(self.queues[node].yellow)

    def _agree(self, node: int, best: int, members: tuple[int, ...]) -> None:
        queue, chosen = self.queues[node], self.queues[best]
        order = [*chosen.green, *chosen.yellow]
        for run in order:
            if run not in (*queue.green, *queue.yellow, *queue.red) and not run.name.startswith("0."):
                self.take(node, run, "red")
        frames = self.step(node)
        is_new = queue.primary != chosen.primary
        queue.primary, queue.voters = chosen.primary, chosen.voters
        for place, run in enumerate(queue.yellow, len(queue.green)):
            if place >= len(order) or order[place] is not run:
                gone = run.name.startswith("0.")
                self.colour(node, run, "yellow", "" if gone else "red", place, "agreed", frames)
                queue.red += [] if gone else [run]
        kept = [
            run
            for place, run in enumerate(queue.yellow, len(queue.green))
            if order[place : place + 1] == [run]
        ]
        queue.yellow = []
        for place, run in enumerate(order):
            if place < len(queue.green):
                continue
            old = "yellow" if run in kept else "red" if run in queue.red else ""
            queue.red = [red for red in queue.red if red is not run]
            if place < max(len(self.queues[who].green) for who in members):
                self._green(node, run, old, "agreed")
            else:
                queue.yellow.append(run)
                if old != "yellow":
                    self.colour(node, run, old, "yellow", place, "agreed", frames)
        if is_new:
            self._primary(node, "learned", ())

    def minority(self, *members: int) -> None:
        self.meet(*members)
        for node in members:
            self.phase(node, "minority", members)

    def establish(self, *members: int, until: str = "established", onlookers: tuple[int, ...] = ()) -> None:
        """The members form the next primary component, or get as far as this."""
        self.meet(*members, onlookers=onlookers)
        self.number += 1
        stages = ("attempted", "committed", "established")
        for node in members:
            self.attempt(node, members)
        if until in stages[1:]:
            record = self.record(self.number)
            for node in members:
                self.commit(node, members, record)
        if until == "established":
            for node in members:
                self.finish(node, members)

    def attempt(self, node: int, members: tuple[int, ...]) -> None:
        self.step(node)
        self._primary(node, "attempted", members)
        self.phase(node, "attempting", members)
        self.sync(node)
        self.say(node, "attempt", primary=self.number)

    def record(self, number: int) -> Run:
        columns = {"run_kind": "primary", "count": 0, "bytes": 10, "digest": number, "stamp": "0@0:0:0"}
        return Run(f"0.{number}.1", {"origin": 0, **columns})

    def commit(self, node: int, members: tuple[int, ...], record: Run) -> None:
        queue = self.queues[node]
        frames = self.step(node)
        queue.primary, queue.voters = self.number, members
        self.colour(node, record, "", "yellow", self._length(node), "committed", frames)
        queue.yellow.append(record)
        for run in sorted(queue.red, key=lambda run: run.columns["stamp"]):
            self.colour(node, run, "red", "yellow", self._length(node), "committed", frames)
            queue.yellow.append(run)
        queue.red = []
        self._primary(node, "committed", members)
        self.phase(node, "committing", members)
        self.sync(node)
        self.say(node, "commit", primary=self.number)

    def finish(self, node: int, members: tuple[int, ...]) -> None:
        queue = self.queues[node]
        self.step(node)
        yellow, queue.yellow = queue.yellow, []
        for run in yellow:
            self._green(node, run, "yellow", "greened")
        queue.taken = 0
        self.phase(node, "primary", members)
        self._primary(node, "established", members)

    def _primary(self, node: int, what: str, members: tuple[int, ...], **wrong: Any) -> None:
        queue = self.queues[node]
        number = self.number if members else queue.primary
        disks = tuple(self.queues[who].disk for who in members)
        columns = {
            "members": members,
            "disks": disks,
            "voters": tuple(who for who in members if who in self.replicas) or queue.voters,
            "primary": number,
            "frames": queue.frames,
        }
        self.tell(node, "primary", reason=what, **{**columns, **wrong})

    # Runs

    def accept(self, node: int, *keys: str, count: int = 1, fence: Fence | None = None) -> Run:
        self._numbers[node] += 1
        name = f"{node}.{self._life(node)}.{self._numbers[node]}"
        columns = {
            "origin": node,
            "run_kind": "records",
            "count": len(keys) or count,
            "bytes": 100,
            "digest": crc32(name.encode()),
        }
        bounds = () if fence is None else (fence.low, fence.high, fence.number)
        fenced = {"fence": "" if fence is None else fence.name, "fence_bounds": bounds}
        self.tell(node, "accept", message=name, log="orders", keys=keys, **columns, **fenced)
        self.places += 1
        return Run(name, {**columns, "stamp": f"8@1:{self.places:04}:0"}, keys, fence)

    def _life(self, node: int) -> int:
        return self._incarnations[node] * LIFE + self._openings[node]

    def colour(
        self, node: int, run: Run, old: str, new: str, place: int, step: str, frames: int = 0, **columns: Any
    ) -> None:
        queue = self.queues[node]
        where = {"primary": queue.primary, "frames": frames or queue.frames, "place": place, "reason": step}
        states = {"old_state": old, "new_state": new}
        self.tell(node, "colour", message=run.name, **{**run.columns, **where, **states, **columns})

    def take(self, node: int, run: Run, colour: str) -> None:
        """The run is delivered, and logged."""
        queue = self.queues[node]
        place = self._length(node) if colour == "yellow" else -1
        self.colour(node, run, "", colour, place, "placed", self.step(node))
        (queue.yellow if colour == "yellow" else queue.red).append(run)
        who, _, number = run.name.rpartition(".")
        queue.vector[who] = int(number)
        queue.taken += colour == "yellow"

    def acknowledge(self, *nodes: int) -> None:
        for node in nodes:
            self.sync(node)
            queue = self.queues[node]
            self.say(node, "runs", count=queue.taken, frames=queue.durable)

    def order(self, *nodes: int) -> None:
        """What is yellow at these becomes green."""
        for node in nodes:
            queue = self.queues[node]
            self.step(node)
            yellow, queue.yellow = queue.yellow, []
            for run in yellow:
                self._green(node, run, "yellow", "greened")

    def _green(self, node: int, run: Run, old: str, step: str) -> None:
        queue = self.queues[node]
        if run.fence is not None:
            mark = queue.marks.get(run.fence.name, (0, -1))
            if not run.fence.low <= mark[0] <= run.fence.high:
                queue.green.append(run)
                columns = {"position": queue.position, "kept_out": mark}
                self.colour(node, run, old, "green", len(queue.green) - 1, step, **columns)
                return
            queue.marks[run.fence.name] = run.fence.number, queue.position
        repeats = [index for index, key in enumerate(run.keys) if key in queue.keys]
        firsts = tuple(queue.keys[run.keys[index]] for index in repeats)
        position = queue.position
        for index, key in enumerate(run.keys):
            if index not in repeats:
                queue.keys[key] = position + index - sum(repeated < index for repeated in repeats)
        queue.position += run.columns["count"] - len(repeats)
        queue.green.append(run)
        place = len(queue.green) - 1
        columns = {"position": position, "repeats": tuple(repeats), "firsts": firsts}
        self.colour(node, run, old, "green", place, step, **columns)
        if run.columns["run_kind"] == "primary" and not self.is_founded:
            self._set(node, "primary", place)

    def send(self, node: int, *nodes: int, keys: tuple[str, ...] = (), fence: Fence | None = None) -> Run:
        """Accepted by the node, then taken, acknowledged and ordered by it and the others."""
        run = self.accept(node, *keys, fence=fence)
        for other in (node, *nodes):
            self.take(other, run, "yellow")
        self.acknowledge(node, *nodes)
        self.order(node, *nodes)
        return run

    def ask(self, node: int) -> int:
        """A program asks for a barrier: its number."""
        number = self._barriers[node] = self._barriers.get(node, 0) + 1
        self.tell(node, "barrier", reason="asked", count=number)
        return number

    def let_pass(self, node: int, count: int, place: int | None = None) -> None:
        green = len(self.queues[node].green)
        self.tell(node, "barrier", reason="passed", count=count, place=green if place is None else place)

    def found(self, *nodes: int) -> None:
        self.establish(*nodes)
        self.is_founded = True

    def fetch(self, node: int, donor: int) -> None:
        """One that looks on gets what it lacks."""
        queue, other = self.queues[node], self.queues[donor]
        start = len(queue.green)
        for run in other.green[start:]:
            self.step(node)
            self._green(node, run, "", "fetched")
            if run.name.startswith("0."):
                queue.primary, queue.voters = int(run.name.split(".")[1]), other.voters
                self._primary(node, "learned", ())
        self.tell(node, "fetched", reason="runs", count=len(other.green) - start, place=start)


def three(awaits: str = "quorum") -> LogBuilder:
    """Three replicas of a log that is founded."""
    trace = LogBuilder(1, 2, 3, awaits=awaits)
    trace.found(1, 2, 3)
    return trace
