"""A model of the durable log, of drivers and of what can happen between them, for tests of `publishing`.

Each driver stages and publishes batch after batch, as Spark makes it do. What it appends is under way for as
long as the run likes; a driver may be killed, or paused while another one takes over; a connection may be
lost, so that appends are sent again while the first copies arrive later, or never; and the log is trimmed up
to what holds allow. One seed is one run.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import NamedTuple

from totempole.client.appending import FencedError
from totempole.errors import LogTrimmedError
from totempole.groups.packing import Batch, pack
from totempole.spark_table.manifest import PackedRun, Producer, encode
from totempole.spark_table.publishing import Publisher
from totempole.types import Fence

PRODUCER = Producer("q")
LOGS = ("a", "b")
OVERTAKEN = re.compile(r"batch \d+ comes behind batch \d+, which the log has already")
"""What a driver is told that was paused while others went on."""
ROUNDS_MAX = 1_000
"""In which undisturbed drivers come to an end."""
RUN_RECORDS = 3
"""In place of thousands."""


class Row(NamedTuple):
    batch: int
    attempt: int
    log: str
    partition: int
    number: int

    def payload(self) -> bytes:
        return repr(tuple(self)).encode()

    @classmethod
    def of(cls, payload: bytes) -> Row:
        return cls(*eval(payload))


class Wrong(Exception):
    """What must not be."""


class ModelLog:
    """The same rule as `corel.fences`, and positions."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes]] = []
        self.first = 0
        self.marks: dict[str, tuple[int, int]] = {}
        self.holds: dict[str, int] = {}
        self.older_holds: dict[str, int] = {}
        self.fresh: dict[object, int] = {}
        """By driver: what it has staged last. A log is never trimmed so soon that there is no time to set a
        hold."""

    def append(self, log: str, payloads: Iterable[bytes], fence: Fence | None) -> list[int]:
        start = len(self.records)
        if fence is not None:
            assert not fence.problem, fence.problem
            mark, position = self.marks.get(fence.name, (0, -1))
            if not fence.low <= mark <= fence.high:
                raise FencedError("fenced", mark, position)
            self.marks[fence.name] = fence.number, start
        self.records += [(log, bytes(payload)) for payload in payloads]
        return list(range(start, len(self.records)))

    def trim(self) -> None:
        self.first = max(self.first, min([len(self.records), *self.fresh.values(), *self.holds.values()]))

    def hold(self, name: str, position: int) -> None:
        self.older_holds = dict(self.holds)
        if position < 0:
            self.holds.pop(name, None)
        else:
            self.holds[name] = position

    def rows(self) -> list[Row]:
        """In their logs, in the order of positions."""
        return [Row.of(payload) for log, payload in self.records if log in LOGS]


class Sent:
    """Something that a driver has asked of the log."""

    def __init__(self, log: str, payloads: tuple[bytes, ...], fence: Fence | None) -> None:
        self.log = log
        self.payloads = payloads
        self.fence = fence
        self.hold: tuple[str, int] | None = None
        self.is_staged = False
        self.answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self.outcome: list[int] | FencedError | None = None

    def arrive(self, log: ModelLog) -> None:
        if self.hold is not None:
            log.hold(*self.hold)
            self.outcome = []
            return
        try:
            self.outcome = log.append(self.log, self.payloads, self.fence)
        except FencedError as fenced:
            self.outcome = fenced

    def tell(self) -> None:
        if self.answer.done():
            return
        if isinstance(self.outcome, FencedError):
            self.answer.set_exception(self.outcome)
        else:
            assert self.outcome is not None
            self.answer.set_result(self.outcome)


class ModelOrder:
    """A driver's connection. What it sends arrives in that order."""

    def __init__(self, log: ModelLog, rng: random.Random) -> None:
        self.log = log
        self._rng = rng
        self.sent: deque[Sent] = deque()
        self.arrived: deque[Sent] = deque()
        self.ghosts: deque[Sent] = deque()
        """Copies on connections that are lost."""

    # What `Order` says

    async def append(self, run: PackedRun, fence: Fence) -> None:
        assert len(Batch(run.batch)) == run.count
        await self._ask(Sent(run.log, tuple(Batch(run.batch)), fence))

    async def stage(self, log: str, records: Sequence[bytes]) -> list[int]:
        sent = Sent(log, tuple(records), None)
        sent.is_staged = True
        return await self._ask(sent)

    async def staged(self, log: str, positions: Sequence[int]) -> AsyncGenerator[bytes, None]:
        for position in positions:
            await asyncio.sleep(0)
            if position < self.log.first:
                raise LogTrimmedError(f"position {position} of {log} is trimmed", self.log.first)
            name, payload = self.log.records[position]
            assert name == log
            yield payload

    async def hold(self, name: str, position: int) -> None:
        sent = Sent("", (), None)
        sent.hold = name, position
        await self._ask(sent)

    async def holds(self) -> Iterable[str]:
        return self._rng.choice([self.log.holds, self.log.older_holds]).copy()

    async def _ask(self, sent: Sent) -> list[int]:
        self.sent.append(sent)
        return await sent.answer

    # What can happen

    def arrive(self) -> None:
        sent = self.sent.popleft()
        self.log.fresh.pop(self, None)
        if sent.is_staged:
            self.log.fresh[self] = len(self.log.records)
        sent.arrive(self.log)
        self.arrived.append(sent)

    def haunt(self) -> None:
        self.ghosts.popleft().arrive(self.log)

    def refuse(self) -> None:
        """The daemon takes nothing at the moment. What it refuses is sent once more, behind what was sent
        meanwhile."""
        self.sent.rotate(-1)

    def lose_connection(self) -> None:
        """What is not answered is sent again; of what was sent, the first copies may still arrive."""
        for sent in self.sent:
            ghost = Sent(sent.log, sent.payloads, sent.fence)
            ghost.hold = sent.hold
            self.ghosts.append(ghost)
        if self._rng.random() < 0.5:
            self.ghosts.clear()
        while self.arrived:
            self.sent.appendleft(self.arrived.pop())


class ModelDriver:
    """Stages and publishes batch after batch. Each batch of it is an attempt, with rows of its own."""

    def __init__(self, world: World, first: int) -> None:
        self.order = ModelOrder(world.log, world.rng)
        self.is_paused = False
        self.batch = first
        self._world = world
        self.task = asyncio.ensure_future(self._run(first))

    async def _run(self, first: int) -> None:
        world = self._world
        for batch in range(first, world.batches):
            self.batch = batch
            if not world.begin(batch, self):
                return
            attempt = len(world.attempts[batch])
            rows: list[Row] = []
            world.attempts[batch].append(rows)
            inline, positions, held = await self._tasks(batch, attempt, rows)
            publisher = world.publisher(self.order, PRODUCER, batch)
            await publisher.publish(inline, positions)
            world.published(batch)
            if positions:
                await publisher.release(held)
            if not world.commit(batch):
                return

    async def _tasks(
        self, batch: int, attempt: int, rows: list[Row]
    ) -> tuple[list[PackedRun], list[int], list[str]]:
        rng = self._world.rng
        inline: list[PackedRun] = []
        positions: list[int] = []
        held: list[str] = []
        stages = rng.random() < 0.5
        number = 0
        for partition in range(rng.choice([1, 1, 2, 3])):
            if stages and rng.random() < 0.2:  # an attempt of the task that fails
                lost = Row(batch, -1, "a", partition, 0)
                await self.order.stage(PRODUCER.staged_log, [encode(_run([lost]))])
            mine: list[list[Row]] = []
            for _ in range(rng.choice([0, 1, 1, 2, 4] if stages else [0, 0, 1, 1, 2])):
                log = rng.choice(LOGS) if rng.random() < 0.3 else "a"
                count = rng.randint(1, RUN_RECORDS)
                mine.append([Row(batch, attempt, log, partition, number + index) for index in range(count)])
                number += count
            rows += [row for run in mine for row in run]
            if not stages or len(mine) < 2:
                inline += [_run(run) for run in mine]
                continue
            found: list[int] = []
            for run in mine:
                found += await self.order.stage(PRODUCER.staged_log, [encode(_run(run))])
                if len(found) == 1:
                    held.append(PRODUCER.hold(batch, found[0]))
                    await self.order.hold(held[-1], found[0])
            positions += found
        return inline, positions, held


def _run(rows: Sequence[Row]) -> PackedRun:
    return PackedRun(rows[0].log, len(rows), pack([row.payload() for row in rows]))


class World:
    def __init__(self, seed: int, publisher: type[Publisher] = Publisher, batches: int = 4) -> None:
        self.rng = random.Random(seed)
        self.publisher = publisher
        self.batches = batches
        self.log = ModelLog()
        self.attempts: dict[int, list[list[Row]]] = defaultdict(list)
        self.drivers: list[ModelDriver] = []
        self.overtaken: set[ModelDriver] = set()
        """Those that were told that another one has gone on behind their batch."""
        self._offsets: dict[int, ModelDriver] = {}
        """Who planned a batch, as Spark's checkpoint has it."""
        self._committed: set[int] = set()
        self._winners: dict[int, int] = {}
        """The attempt that a batch was first seen with; -1: it has no rows."""

    # The checkpoint

    def begin(self, batch: int, driver: ModelDriver) -> bool:
        """Another one's batch is run again by whoever starts there. To plan one that is planned is an error,
        as in Spark's checkpoint, which ends the driver."""
        if self._offsets.get(batch) not in (None, driver) and self.first() < batch:
            return False
        self._offsets.setdefault(batch, driver)
        return batch not in self._committed

    def commit(self, batch: int) -> bool:
        is_first = batch not in self._committed
        self._committed.add(batch)
        return is_first

    def first(self) -> int:
        return max(self._committed, default=-1) + 1

    # A run

    async def run(self, steps_max: int = 2_000) -> None:
        try:
            self._start()
            for _ in range(steps_max):
                await _settle()
                self._check_drivers()
                if len(self._committed) == self.batches and all(each.task.done() for each in self.drivers):
                    break
                self._step()
            await self._end()
            self.published(self.batches - 1)
        finally:
            for driver in self.drivers:
                driver.task.cancel()
            await asyncio.gather(*[driver.task for driver in self.drivers], return_exceptions=True)

    async def _end(self) -> None:
        """Nobody disturbs any more: all paused drivers go on, and what is under way arrives."""
        for _ in range(ROUNDS_MAX):
            if len(self._committed) == self.batches and all(each.task.done() for each in self.drivers):
                break
            await _settle()
            self._check_drivers()
            if not any(self._can_move(each) for each in self.drivers):
                if all(each.task.done() for each in self.drivers) and self.first() < self.batches:
                    self._start()
                continue
            for driver in self.drivers:
                self._move(driver)
        else:
            raise Wrong("it does not come to an end")
        for driver in self.drivers:
            while driver.order.ghosts:
                driver.order.haunt()

    def _start(self) -> None:
        self.drivers.append(ModelDriver(self, self.first()))

    def _check_drivers(self) -> None:
        for driver in self.drivers:
            if driver.task.done() and not driver.task.cancelled() and driver.task.exception() is not None:
                if OVERTAKEN.search(str(driver.task.exception())) and self.first() > driver.batch:
                    self.overtaken.add(driver)
                    continue
                raise Wrong(f"a driver failed: {driver.task.exception()!r}") from driver.task.exception()

    def _can_move(self, driver: ModelDriver) -> bool:
        return bool(driver.order.sent or driver.order.arrived)

    def _move(self, driver: ModelDriver) -> None:
        order = driver.order
        if order.sent and (not order.arrived or self.rng.random() < 0.5):
            order.arrive()
        elif order.arrived:
            order.arrived.popleft().tell()

    def _step(self) -> None:
        chance = self.rng.random()
        driver = self.rng.choice(self.drivers)
        if chance < 0.02 and len(self.drivers) < 8:
            driver.is_paused = True  # taken for dead
            self._start()
        elif chance < 0.03:
            driver.task.cancel()  # killed; what it has sent may still arrive
            driver.order.ghosts.extend(driver.order.sent)
            driver.order.sent.clear()
            driver.order.arrived.clear()
            self.log.fresh.pop(driver.order, None)
            if all(each.task.done() or each is driver for each in self.drivers) and len(self.drivers) < 8:
                self._start()
        elif chance < 0.06:
            driver.order.lose_connection()
        elif chance < 0.10 and driver.order.ghosts:
            driver.order.haunt()
        elif chance < 0.12:
            driver.order.refuse()
        elif chance < 0.16:
            self.log.trim()
        elif chance < 0.18:
            driver.is_paused = not driver.is_paused
        elif not driver.is_paused:
            self._move(driver)

    # What must hold

    def published(self, batch: int) -> None:
        """A driver says so: all batches so far are there, each as one attempt had it."""
        rows = self.log.rows()
        batches = [row.batch for row in rows]
        if batches != sorted(batches):
            raise Wrong(f"batches are mixed up: {batches}")
        for number in range(batch + 1):
            found = [row for row in rows if row.batch == number]
            attempts = {row.attempt for row in found} or {-1}
            winner = self._winners.setdefault(number, min(attempts))
            if attempts != {winner}:
                raise Wrong(f"batch {number} had rows of attempt {winner}, and has of {attempts}")
            if winner >= 0:
                self._check_rows(number, found, self.attempts[number][winner])
            elif all(self.attempts[number]):
                raise Wrong(f"batch {number} is lost")

    def _check_rows(self, batch: int, found: list[Row], wanted: list[Row]) -> None:
        for log in LOGS:
            for partition in {row.partition for row in wanted}:
                of = [row for row in found if (row.log, row.partition) == (log, partition)]
                want = [row for row in wanted if (row.log, row.partition) == (log, partition)]
                if of != want:
                    raise Wrong(f"batch {batch}, log {log}, partition {partition}: {of}, not {want}")


async def _settle() -> None:
    """All that can go on without the log goes on."""
    for _ in range(12):
        await asyncio.sleep(0)


def walk(seed: int, publisher: type[Publisher] = Publisher) -> World:
    """One run. Raises `Wrong`."""

    async def run() -> World:
        world = World(seed, publisher)
        await world.run()
        return world

    return asyncio.run(run())
