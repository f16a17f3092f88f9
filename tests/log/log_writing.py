"""A replica that only logs: runs become yellow, then green, and every step goes to a store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from totempole.core.inputs import Recalled
from totempole.corel.config import LogConfig
from totempole.corel.frames import Agreed, Attempted, Colour, Committed, Frame, Greened, Identified, Placed
from totempole.corel.journal import Journal
from totempole.corel.quorum import Formation, ReplicaSet, Voter
from totempole.corel.run import Run, RunId, RunKind, Stamp, pack_records, primary_run
from totempole.errors import StorageError
from totempole.runtime.log_store import LogStore

PROCESSOR, CLUSTER, LOG, DISK = 3, 77, 4711, 99
SEGMENT_BYTES = 65_536


class Answers:
    """What a store has called back with."""

    def __init__(self) -> None:
        self.tickets: list[int] = []
        self.recalled: dict[int, Recalled] = {}
        self.failures: list[StorageError] = []
        self.damage: list[str] = []
        self._changed = threading.Condition()

    def appended(self, tickets: tuple[int, ...]) -> None:
        with self._changed:
            self.tickets += tickets
            self._changed.notify_all()

    def take_recalled(self, answer: Recalled) -> None:
        with self._changed:
            self.recalled[answer.ticket] = answer
            self._changed.notify_all()

    def failed(self, error: StorageError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def wait(self, condition: Any, timeout_s: float = 20) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition() or self.failures, timeout_s), "no answer came"


def open_store(
    directory: Path, answers: Answers, processor: int = PROCESSOR, cluster: int = CLUSTER, **options: Any
) -> LogStore:
    options.setdefault("segment_bytes", SEGMENT_BYTES)
    return LogStore.open(
        directory,
        processor,
        cluster,
        appended=answers.appended,
        recalled=answers.take_recalled,
        failed=answers.failed,
        damaged=answers.damage.append,
        **options,
    )


class _Scope:
    def __init__(self) -> None:
        self.tickets = 0
        self.appends: list[tuple[int, tuple[bytes, ...], bool]] = []

    def append(self, frames: tuple[bytes, ...], is_segment: bool) -> int:
        self.tickets += 1
        self.appends.append((self.tickets, frames, is_segment))
        return self.tickets


class LoggingReplica:
    """Its life number is that of the opening."""

    def __init__(self, directory: Path, *, life: int = 1, segment_bytes: int = SEGMENT_BYTES, **options: Any):
        self.answers = Answers()
        self.store = open_store(directory, self.answers, segment_bytes=segment_bytes, **options)
        self.life = life
        self.number = 0
        self.places: list[RunId] = []
        """Of this life, in their order."""
        self.frames_after: dict[int, int] = {}
        """By ticket: how many frames are durable with it."""
        self._scope = _Scope()
        config = LogConfig(replicas=(PROCESSOR,), segment_bytes=segment_bytes)
        self.journal = Journal(self._scope, config, SimpleNamespace(durable=lambda _: None))  # type: ignore[arg-type]
        self.journal.open(self.store.opened.frames)
        self.frames_found = self.journal.durable
        if not self.zones.disk:
            self.found()
        else:
            self.step(Identified(self.zones.disk))
            self.flush()

    @property
    def zones(self) -> Any:
        return self.journal.zones

    def step(self, frame: Frame) -> None:
        self.places += [each.run.id for each in self.journal.step(frame)]

    def found(self) -> None:
        """The log's first primary component: this replica alone."""
        formation = Formation(1, (PROCESSOR,))
        self.step(Identified(DISK))
        self.step(Agreed(0, (), 0, Formation(0, ()), LOG))
        self.step(Attempted(formation))
        founding = ReplicaSet({PROCESSOR: Voter(DISK, 1)})
        self.step(Committed(formation, primary_run(formation, {PROCESSOR: DISK}, founding), ()))
        self.green()

    def place(
        self,
        payloads: Sequence[bytes],
        keys: tuple[str, ...] = (),
        log: str = "orders",
        colour: Colour = Colour.YELLOW,
    ) -> Run:
        self.number += 1
        run = Run(
            RunId(PROCESSOR, self.life, self.number),
            Stamp(1, PROCESSOR, self.zones.frames, 0),
            1_000_000 + self.number,
            RunKind.RECORDS,
            len(payloads),
            pack_records(log, list(payloads), keys),
        )
        self.step(Placed(run, colour))
        return run

    def green(self) -> None:
        self.step(Greened(self.zones.green_runs + len(self.zones.yellow)))
        self.journal.hurry()
        self.flush()

    def flush(self) -> None:
        self.journal.flush()
        for append in self._scope.appends:
            self.frames_after[append[0]] = self.zones.frames
            self.store.append(*append)
        self._scope.appends.clear()

    def write(self, count: int, size: int = 100, records: int = 10, **options: Any) -> None:
        """So many runs, each made green at once."""
        for _ in range(count):
            first = self.zones.position
            self.place([f"{first + i:08d}".encode().ljust(size, b".") for i in range(records)], **options)
            self.green()

    @property
    def tickets(self) -> int:
        """So many have been handed to the store."""
        return self._scope.tickets

    def sync(self) -> None:
        last = self.tickets
        self.answers.wait(lambda: not last or (self.answers.tickets and self.answers.tickets[-1] >= last))
        assert not self.answers.failures, self.answers.failures

    def close(self) -> None:
        self.sync()
        self.store.close()
