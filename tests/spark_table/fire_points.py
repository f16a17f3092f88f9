"""The sink and the source as they are, but for points where a process of theirs is killed, or waits.

A test *aims*: it names a point and a victim, in a file. The first process that comes to the point takes the
file, and does what it says: the driver with all of its processes dies, or only the process that commits, or
an executor; or the process waits until a replica is killed, or until another driver has taken its place.

This runs in Spark's processes, of which the driver starts several for each batch: as the data source
"totem_under_fire", which a program registers. It also counts how batches were published.

Mutants (`Start.mutant`) are broken on purpose: a test under fire must find them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from totempole.client.appending import RUN_RECORDS_MAX
from totempole.groups.packing import Batch
from totempole.spark_table import committing, packed_rows, publishing, staging, streaming
from totempole.spark_table.manifest import LAST_STEP, Manifest, PackedRun, step_of
from totempole.spark_table.source import TotemDataSource
from totempole.types import FENCE_NUMBER_MAX, Fence

STAGE = "FIRE_STAGE"
"""The environment variable with the directory that all of a test's processes share."""
EVENTS, AIMS, FIRED, GO_ON, START = "events.jsonl", "aims", "fired", "go-on", "start.json"
WAIT_S_MAX = 300.0
"""A process that waits for a test that was killed itself ends after this."""
SENDING_S = 0.02
"""A process that is killed while it appends dies at some time within this."""

# Of tasks, on executors
READING = "a task has read some rows"
TASK_STAGED = "a task has staged some rows"
TASK_DONE = "a task has written all of its rows"
# Of the driver's process that commits
COMMITTING = "a batch is to be committed"
STAGED = "rows of small tasks are staged"
DECIDING = "a manifest is on its way"
DECIDED = "a manifest is in the log"
SENDING_DIRECT = "a small batch is on its way"
DIRECT = "a small batch is in the log"
SENDING_STEP = "a step is on its way"
STEP = "a step is in the log"
PUBLISHED = "a batch is in the log"
RELEASED = "holds are released"

OF_TASKS = (READING, TASK_STAGED, TASK_DONE)
OF_STAGED_BATCHES = (TASK_STAGED, DECIDING, DECIDED, SENDING_STEP, STEP)
OF_SMALL_BATCHES = (SENDING_DIRECT, DIRECT)
OF_ALL_BATCHES = (COMMITTING, PUBLISHED, RELEASED)
SENDING = {DECIDING: DECIDED, SENDING_DIRECT: DIRECT, SENDING_STEP: STEP}

DRIVER, COMMITTER, EXECUTOR, REPLICA, PAUSED = "driver", "committer", "executor", "replica", "paused driver"
VICTIMS = (DRIVER, COMMITTER, EXECUTOR, REPLICA, PAUSED)


class Aim(msgspec.Struct, frozen=True):
    """The victim dies at the first process's `at`-th pass of the point, or a later one."""

    id: str
    point: str
    victim: str
    at: int = 1


class Start(msgspec.Struct, frozen=True):
    """How a driver is started. Drivers that follow each other cut the same batch differently."""

    number: int
    replicas: str
    parts: int
    """Partitions of a batch."""
    rows_max: int
    """Of a batch."""
    inline_bytes: int = staging.INLINE_BYTES
    run_records: int = RUN_RECORDS_MAX
    steps_under_way: int = publishing.STEPS_UNDER_WAY
    padding: int = 0
    """Bytes that each row of the log "out" has besides."""
    mutant: str = ""
    master: str = "local[2,4]"


def stage() -> Path:
    return Path(os.environ[STAGE])


@cache
def start() -> Start:
    """Of the driver that this process belongs to."""
    return msgspec.json.decode((stage() / START).read_bytes(), type=Start)


def note(event: str, **more: object) -> None:
    """In one write, so that lines of several processes do not mix."""
    line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time()} | more) + "\n"
    file = os.open(stage() / EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


# Aims


def taken(point: str, at: int) -> Aim | None:
    """The aim at this point, if there is one and no other process has taken it."""
    for file in sorted((stage() / AIMS).glob("*.json")):
        try:
            aim = msgspec.json.decode(file.read_bytes(), type=Aim)
            if aim.point != point or at < aim.at:
                continue
            file.rename(stage() / FIRED / file.name)
        except FileNotFoundError:
            continue  # another process was faster, or the test has withdrawn it
        note("fired", aim=aim.id, point=point, victim=aim.victim, at=at)
        return aim
    return None


def pass_point(point: str, at: int = 1) -> None:
    aim = taken(point, at)
    if aim is not None:
        fire(aim)


def fire(aim: Aim) -> None:
    if aim.victim == DRIVER:
        kill_session()
    if aim.victim == PAUSED:
        kill_session(spared=os.getpid())
    if aim.victim == EXECUTOR:
        kill_executor()
    if aim.victim in (DRIVER, COMMITTER, EXECUTOR):
        kill(os.getpid())
    wait_for_test(aim)
    note("goes on", aim=aim.id, victim=aim.victim)


def wait_for_test(aim: Aim) -> None:
    """Blocks the whole process, its connections too."""
    end_s = time.monotonic() + WAIT_S_MAX
    while not (stage() / GO_ON / aim.id).exists():
        if time.monotonic() > end_s or not stage().exists():
            kill(os.getpid())
        time.sleep(0.01)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Processes of a driver: it began a session of its own. Groups would not do, for PySpark has its own."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def kill_session(spared: int = 0) -> None:
    """The driver and all of its processes; this one last."""
    own = os.getpid()
    for pid in session_members(os.getsid(0)):
        if pid not in (own, spared):
            kill(pid)
    if own != spared:
        kill(own)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_executor() -> None:
    """With a cluster: the executor that this process is a worker of. Otherwise workers are executors."""
    executor = parent_of(parent_of(os.getpid()))
    if "CoarseGrainedExecutorBackend" in command_line(executor):
        kill(executor)


# The sink


class FireTask(staging._Task):
    _stagings = 0

    def _stage(self) -> None:
        super()._stage()
        self._stagings += 1
        pass_point(TASK_STAGED, self._stagings)


class FireOrder(committing.SessionOrder):
    """Passes a point before and after each append that counts."""

    async def append(self, run: PackedRun, fence: Fence) -> None:
        if fence.number == FENCE_NUMBER_MAX:  # it only asks
            return await super().append(run, fence)
        sending, at = self._kind(fence)
        aim = taken(sending, at)
        if aim is not None:
            under_way = asyncio.ensure_future(self._append(run, fence))
            await asyncio.sleep(SENDING_S * crc32(aim.id.encode()) / 2**32)
            fire(aim)
            await under_way
        else:
            await self._append(run, fence)
        pass_point(SENDING[sending], at)
        return None

    def _kind(self, fence: Fence) -> tuple[str, int]:
        if fence.name.endswith("/batches"):
            return DECIDING, 1
        step = step_of(fence.number)
        if FirePublisher.is_direct and step == LAST_STEP:
            return SENDING_DIRECT, 1
        return SENDING_STEP, step

    async def _append(self, run: PackedRun, fence: Fence) -> None:
        if start().mutant != "unfenced" or fence.name.endswith("/batches"):
            await super().append(run, fence)
            return
        # Mutant: nothing keeps a second attempt out.
        await self._session.log(run.log).append_many(Batch(run.batch))

    async def stage(self, log: str, records: Sequence[bytes]) -> list[int]:
        positions = await super().stage(log, records)
        pass_point(STAGED)
        return positions


class FirePublisher(publishing.Publisher):
    is_direct = True

    async def publish(self, inline: Sequence[PackedRun], positions: Sequence[int]) -> publishing.Outcome:
        FirePublisher.is_direct = True
        outcome = await super().publish(inline, positions)
        way = "direct" if FirePublisher.is_direct else "staged"
        steps = len(self._manifest.positions) if self._manifest else 1
        note("published", batch=self._batch, way=way, outcome=outcome.name, steps=steps, start=start().number)
        pass_point(PUBLISHED)
        return outcome

    async def _publish_staged(
        self, runs: Sequence[PackedRun], positions: Sequence[int]
    ) -> publishing.Outcome:
        FirePublisher.is_direct = False
        return await super()._publish_staged(runs, positions)

    async def _decide(self, runs: Sequence[PackedRun], positions: Sequence[int]) -> bool:
        if start().mutant != "undecided":
            return await super()._decide(runs, positions)
        # Mutant: each attempt copies what it has staged itself.
        self._manifest = Manifest.of(self._batch, [*positions, *await self._stage(runs)])
        return True


class FireStreamWriter(staging.OrderStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        load_points()
        message = super().write(iterator)
        pass_point(TASK_DONE)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        load_points()
        pass_point(COMMITTING)
        super().commit(messages, batchId)
        pass_point(RELEASED)


def load_points() -> None:
    """Spark's processes are many, and each has modules of its own."""
    how = start()
    staging.INLINE_BYTES = how.inline_bytes
    packed_rows.RUN_RECORDS_MAX = how.run_records
    publishing.STEPS_UNDER_WAY = how.steps_under_way
    staging._Task = FireTask  # type: ignore[misc]
    committing.SessionOrder = FireOrder  # type: ignore[misc]
    committing.Publisher = FirePublisher  # type: ignore[misc]


# The source


class FireFollowing(streaming.Following):
    _is_begun = False

    def plan(self, start: streaming.Offset, end: streaming.Offset) -> list[Any]:
        """Mutant: the first batch after a start has all that was read before, too."""
        if not self._is_begun:
            start = start | {"position": 0}
        self._is_begun = True
        return super().plan(start, end)


class FireStreamReader(streaming.OrderStreamReader):
    @property
    def _driver(self) -> streaming.Following:
        if self._following is None and start().mutant == "forgetful":
            self._following = FireFollowing(self._options)
        return super()._driver

    def read(self, partition: Any) -> Iterator[Any]:
        for number, batch in enumerate(super().read(partition), 1):
            yield batch
            pass_point(READING, number)


class FireDataSource(TotemDataSource):
    @classmethod
    def name(cls) -> str:
        return "totem_under_fire"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FireStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FireStreamWriter(self.options, schema, overwrite)  # type: ignore[return-value]
