"""One batch of a producer appears in its logs once, whoever tries, how often, and wherever it breaks off.

Several drivers may try at the same time: one that was paused and taken for dead, and those after it. Each may
end between any two appends. What they agree on is the order itself, by two fences (`manifest`):

*Direct*. All rows fit one run of one log: that run is let in only behind a complete batch, and completes its
own. So it is there, or not at all.

*Staged*. Tasks have put their rows into the staged log before, where nobody reads them. A manifest names the
staged runs that count; the fence `batches` lets in one for each batch. Then the runs are *copied* to their
logs in the order of their positions, one step each, and the fence `rows` lets in each step behind the one
before. After the manifest everybody copies the same: whoever finds a batch begun finishes it.

The first step of a batch, or its direct run, decides between the two ways, if attempts differ in that. It is
let in only behind a mark that says that a batch is complete, never behind one of a batch in the middle.

No Spark, and no I/O but through `Order`: a test walks through all of it (tests/spark_table).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from enum import Enum
from typing import Protocol

from totempole.client.appending import FencedError
from totempole.corel.fences import FENCES_MAX
from totempole.errors import LogError, LogTrimmedError
from totempole.groups.packing import pack
from totempole.spark_table.manifest import (
    Manifest,
    PackedRun,
    Producer,
    batch_of,
    complete,
    decode,
    encode,
    is_complete,
    step_number,
    step_of,
)
from totempole.spark_table.packed_rows import joined
from totempole.types import FENCE_NUMBER_MAX, Fence

STEPS_UNDER_WAY = 16
"""As the client's session has runs under way, and some more that wait there."""


class Order(Protocol):
    """The durable log, as a driver sees it."""

    async def append(self, run: PackedRun, fence: Fence) -> None:
        """Raises FencedError. Appends that are begun one after the other are sent in that order."""

    async def stage(self, log: str, records: Sequence[bytes]) -> list[int]:
        """Their positions. If it is not known whether an append was done, it is done again."""

    def staged(self, log: str, positions: Sequence[int]) -> AsyncGenerator[bytes, None]:
        """The records at these positions, which ascend."""

    async def hold(self, name: str, position: int) -> None:
        """Nothing from this position on is trimmed; -1: the hold is given up."""

    async def holds(self) -> Iterable[str]:
        """Those that a replica knows of."""


class Outcome(Enum):
    WRITTEN = "written"
    FINISHED = "finished: an earlier attempt had begun"
    REPEATED = "in the log already: nothing was written"


class Publisher:
    def __init__(self, order: Order, producer: Producer, batch: int, first_batch: int = 0) -> None:
        """Batches follow each other without a gap; `first_batch` may come behind anything."""
        self._order = order
        self._producer = producer
        self._batch = batch
        self._is_first = batch in (0, first_batch)
        self._manifest: Manifest | None = None
        """Of this batch, once it is decided."""

    async def publish(self, inline: Sequence[PackedRun], positions: Sequence[int]) -> Outcome:
        """`inline`: rows that came with the tasks' messages, in the order of partitions. `positions`: those
        of the runs that tasks have staged."""
        runs = joined(inline)
        try:
            if positions or len(runs) > 1:
                return await self._publish_staged(runs, positions)
            # A batch without rows takes its step, too: a paused driver that has some comes too late then.
            run = runs[0] if runs else self._record(Manifest(self._batch))
            return await self._begin(run, complete(self._batch))
        except LogTrimmedError:
            # Another driver may have finished the batch meanwhile, and released what it was made of.
            if not self._is_done((await self._mark_of(self._producer.rows)).mark):
                raise
            return Outcome.REPEATED

    async def _publish_staged(self, runs: Sequence[PackedRun], positions: Sequence[int]) -> Outcome:
        mark = (await self._mark_of(self._producer.rows)).mark
        if self._is_done(mark):
            return Outcome.REPEATED
        if batch_of(mark) < self._batch:
            self._check_follows(mark)
            await self._finish(mark)  # before a new manifest takes the place of its
        is_own = await self._decide(runs, positions)
        if self._manifest is None:
            return Outcome.REPEATED
        staged = self._manifest.positions
        (first,) = [run async for run in self._staged_runs(staged[:1])]
        outcome = await self._begin(first, step_number(self._batch, 1, len(staged)))
        return Outcome.FINISHED if outcome is Outcome.WRITTEN and not is_own else outcome

    # The first step

    async def _begin(self, run: PackedRun, number: int) -> Outcome:
        """The first step, and all that follows from it."""
        expected = complete(self._batch - 1)
        while True:
            outcome, mark = Outcome.WRITTEN, number
            try:
                await self._order.append(run, Fence(self._producer.rows, number, expected, expected))
            except FencedError as fenced:
                outcome, mark = Outcome.FINISHED, fenced.mark
                if self._is_done(mark):
                    return Outcome.REPEATED
            if batch_of(mark) < self._batch:
                self._check_follows(mark)
            await self._finish(mark)
            if batch_of(mark) == self._batch:
                return outcome
            if expected == complete(batch_of(mark)):
                raise self._forgotten(batch_of(mark))  # nobody can finish it
            expected = complete(batch_of(mark))

    def _is_done(self, mark: int) -> bool:
        """Whether all of this batch is in the log. LogError: a later one is, too, or is begun. Spark
        repeats no batch but the last. So the checkpoint is an old one, and what it makes of this number
        need not be what the log has; or there is another driver."""
        last = batch_of(mark)
        if last > self._batch:
            raise LogError(
                f"{self._producer}: batch {self._batch} comes behind batch {last}, which the log has "
                "already; it was not written. If the query's checkpoint was restored from an older copy: "
                f"go on with the one that has batch {last}, or take a new checkpointLocation and begin "
                f"behind what batch {last} has read (what was read before would be written twice). If two "
                "drivers run this query: stop one"
            )
        return mark == complete(self._batch)

    def _check_follows(self, mark: int) -> None:
        """LogError: the batch before this one is not in the log, or nobody knows."""
        if self._is_first or mark == complete(self._batch - 1):
            return
        last = f"batch {batch_of(mark)}" if mark else "none of its batches"
        raise LogError(
            f"{self._producer}: batch {self._batch} comes behind batch {self._batch - 1}, and the log knows "
            f"of {last}. It was rolled back or rescued since, or has forgotten the producer (it remembers "
            f"the fences of {FENCES_MAX} names), or the query wrote elsewhere before. If batch {self._batch} "
            f"is not in the log, give the option firstBatch = {self._batch}"
        )

    # Manifests

    async def _decide(self, runs: Sequence[PackedRun], positions: Sequence[int]) -> bool:
        """Finds the manifest of this batch. Whether it is this attempt's. None is left if the batch is long
        complete."""
        decided = await self._mark_of(self._producer.batches)  # else inline rows are staged in vain
        if decided.mark <= self._batch:
            manifest = Manifest.of(self._batch, [*positions, *await self._stage(runs)])
            fence = Fence(self._producer.batches, self._batch + 1, 0, self._batch)
            try:
                await self._order.append(self._record(manifest), fence)
                self._manifest = manifest
                return True
            except FencedError as fenced:
                decided = fenced
        self._manifest = await self._decided(decided, self._batch)
        return False

    async def _decided(self, decided: FencedError, batch: int) -> Manifest | None:
        """What the fence of manifests says of a batch. None: a later one was decided since."""
        if decided.mark > batch + 1:
            return None
        if decided.mark <= batch:
            raise self._forgotten(batch)
        async with aclosing(self._order.staged(self._producer.staged_log, [decided.position])) as records:
            async for record in records:
                manifest = decode(record)
                assert isinstance(manifest, Manifest), "its fence has set the mark"
                assert manifest.batch == batch, "likewise"
                return manifest
        raise LogError(f"{self._producer}: no manifest at position {decided.position}")

    async def _stage(self, runs: Sequence[PackedRun]) -> list[int]:
        """Rows that came inline, and are too many for one run."""
        if not runs:
            return []
        log = self._producer.staged_log
        positions = await self._order.stage(log, [encode(run) for run in runs])
        await self._order.hold(self._producer.hold(self._batch, positions[0]), positions[0])
        return positions

    async def _mark_of(self, name: str) -> FencedError:
        """Asks for a mark by a fence that lets nothing in."""
        never = FENCE_NUMBER_MAX - 1
        try:
            await self._order.append(
                self._record(Manifest(self._batch)), Fence(name, never + 1, never, never)
            )
        except FencedError as fenced:
            return fenced
        raise AssertionError("no mark is so high")

    def _record(self, manifest: Manifest) -> PackedRun:
        return PackedRun(self._producer.staged_log, 1, pack([encode(manifest)]))

    def _forgotten(self, batch: int) -> LogError:
        return LogError(
            f"{self._producer}: batch {batch} is begun, and the log has forgotten how far it is, or what it "
            f"is made of: it remembers the fences of {FENCES_MAX} names. Some of its rows are in their logs; "
            f"its staged runs are in the log {self._producer.staged_log}"
        )

    # Further steps

    async def _finish(self, mark: int) -> None:
        """Copies what the batch of this mark still lacks."""
        if is_complete(mark):
            return
        batch, step = batch_of(mark), step_of(mark)
        manifest = self._manifest if batch == self._batch else None
        if manifest is None:
            manifest = await self._decided(await self._mark_of(self._producer.batches), batch)
        if manifest is None:
            return  # others have finished it since
        positions = manifest.positions
        while step < len(positions):
            step = await self._copy(batch, positions, step)

    async def _copy(self, batch: int, positions: Sequence[int], done: int) -> int:
        """Copies the runs behind the first `done`, until a step is kept out. How many are in their logs."""
        under_way: deque[tuple[int, asyncio.Task[None]]] = deque()
        step, of = done, len(positions)
        try:
            async with aclosing(self._staged_runs(positions[done:])) as runs:
                async for run in runs:
                    before, step = step_number(batch, step, of), step + 1
                    fence = Fence(self._producer.rows, step_number(batch, step, of), before, before)
                    under_way.append((step, asyncio.ensure_future(self._order.append(run, fence))))
                    if len(under_way) >= STEPS_UNDER_WAY:
                        await under_way.popleft()[1]
            while under_way:
                await under_way.popleft()[1]
            return of
        except FencedError as fenced:
            return await self._reached(batch, of, fenced, under_way)
        finally:
            for _, task in under_way:
                task.cancel()
            await asyncio.gather(*[task for _, task in under_way], return_exceptions=True)

    async def _reached(
        self, batch: int, of: int, fenced: FencedError, under_way: Iterable[tuple[int, asyncio.Task[None]]]
    ) -> int:
        """Another driver copies, too. How far it and this one have come."""
        marks = [fenced.mark]
        for step, task in under_way:
            try:
                await task
                marks.append(step_number(batch, step, of))
            except FencedError as error:
                marks.append(error.mark)
        mark = max(marks)
        if mark >= complete(batch):
            return of
        if batch_of(mark) < batch:
            raise self._forgotten(batch)
        return step_of(mark)

    async def _staged_runs(self, positions: Sequence[int]) -> AsyncGenerator[PackedRun, None]:
        count = 0
        async with aclosing(self._order.staged(self._producer.staged_log, positions)) as records:
            async for record in records:
                run = decode(record)
                assert isinstance(run, PackedRun), "a manifest names staged runs"
                count += 1
                yield run
        assert count == len(positions), "staged runs are held until they are copied"

    # Holds

    async def release(self, held: Iterable[str]) -> None:
        """The batch is complete: nothing staged for it, or for one before, is needed any more."""
        batches = {name: self._producer.batch_held(name) for name in await self._order.holds()}
        old = {name for name, batch in batches.items() if batch is not None and batch <= self._batch}
        await asyncio.gather(*[self._order.hold(name, -1) for name in sorted(old | set(held))])
