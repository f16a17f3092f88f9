"""Answers what one program asks. The socket's back-pressure is the only pace: a slow reader waits here, and
holds one step's worth of runs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import msgspec

from totempole.corel.run import Records, RecordsHead, RunKind, head_of, log_name_of, pack_body
from totempole.corel.zones import Ordered
from totempole.errors import LogTrimmedError
from totempole.log.selection import LogSelection, Meter
from totempole.log_service.source import Source
from totempole.log_service.tail import Shipped, Walk
from totempole.session.log_frames import (
    BEAT_S,
    COLUMNS,
    EARLIEST,
    LATEST,
    Answer,
    EncodedRuns,
    Failed,
    Finished,
    Locate,
    Located,
    Measure,
    Measured,
    Missing,
    OrderedRun,
    Reached,
    Read,
    ReplicaStatus,
    Segments,
)

STEP_BYTES = 256 * 1024
"""Of runs in one frame."""
SKIPPED_STEPS = 50
"""After so many steps without a run that is wanted, the reader is told how far it has come."""

Send = Callable[[Answer | EncodedRuns], Awaitable[None]]


class Walking:
    """Runs in their order, step by step: from the segments, and then from the tail. Whoever takes a step
    moves `place` on."""

    def __init__(self, source: Source, start: int, place: int = 0) -> None:
        self.place = place
        """Of the next run that is wanted."""
        self._source = source
        self._start = start
        """A position, or EARLIEST."""

    async def steps(self) -> AsyncGenerator[list[Shipped], None]:
        """Those that are there by now. Raises LogTrimmedError."""
        source = self._source
        while source.tail is not None:
            tail = source.tail
            if self.place < tail.first_place:
                async for step in self._older():  # perhaps because it was too slow for the tail
                    yield step
                if self.place < tail.first_place and tail is source.tail:
                    return
            elif self.place < tail.place:
                yield tail.after(self.place, STEP_BYTES)
            else:
                return

    async def _older(self) -> AsyncIterator[list[Shipped]]:
        """From the segments, until the tail has what is next."""
        source = self._source
        walk = self._walk()
        try:
            while source.tail is not None and self.place < source.tail.first_place:
                step = walk.step(STEP_BYTES)
                if not step and walk.is_at_end:
                    return
                yield step
        finally:
            walk.close()

    def _walk(self) -> Walk:
        """A place says more than a position, if the reader has come by one."""
        if self.place:
            return self._source.walk_to_place(self.place)
        if self._start == EARLIEST:
            return self._source.walk_from_earliest()
        return self._source.walk_to_position(max(self._start, 0))


class Answering:
    """One `Read`."""

    def __init__(self, source: Source, request: Read, send: Send) -> None:
        self._source = source
        self._request = request
        self._send = send
        self._walking = Walking(source, request.start, request.place)
        self._position = 0
        self._left_bytes = request.bytes_max or 2**63
        self._stop = request.stop
        self._is_whole = "payload" in request.columns and "key" in request.columns
        self._selection = LogSelection(request.logs or (request.log,) * bool(request.log), request.without)
        self._skipped = 0
        self._told_place = request.place
        """What the reader knows of the place."""

    async def run(self) -> None:
        """Raises LogTrimmedError."""
        request, source = self._request, self._source
        self._position = max(request.start, 0)
        if request.start == LATEST and source.tail is not None:
            self._position = source.position
            self._walking.place = max(self._walking.place, source.tail.place)
        if self._stop < 0 and not request.follow:
            self._stop = source.position
        if request.start != EARLIEST:
            await self._tell_reached()
        async for steps in self._steps():
            if not await self._ship(steps):
                break
        await self._send(Finished(self._position, self._walking.place))

    @property
    def _is_done(self) -> bool:
        return 0 <= self._stop <= self._position or self._left_bytes <= 0

    async def _steps(self) -> AsyncIterator[list[Shipped]]:
        """Runs in their order, step by step, from the segments and then from the tail."""
        if self._is_done:
            return
        walking = self._walking
        while True:
            async for step in walking.steps():
                yield step
            if not self._request.follow:
                return
            if walking.place > self._told_place:
                await self._tell_reached()  # who waits for the end of the log need not wait for a beat
            elif not await self._source.wait_for_more(BEAT_S):
                await self._tell_reached()

    async def _ship(self, step: list[Shipped]) -> bool:
        """Sends those that are wanted. Whether the reader wants more."""
        items: list[OrderedRun | msgspec.Raw] = []
        told_place = self._told_place
        for shipped in step:
            ordered = shipped.ordered
            if 0 <= self._stop <= ordered.position and ordered.stop > ordered.position:
                self._position = max(self._position, self._stop)
                break
            self._walking.place = max(self._walking.place, ordered.place + 1)
            if self._is_wanted(shipped):
                items.append(shipped.item if self._is_whole else self._cut(ordered))
                self._left_bytes -= shipped.size
                told_place = ordered.place + 1
            self._position = max(self._position, ordered.stop)
            if self._is_done:
                break
        if items:
            self._skipped = 0
            self._told_place = told_place
            await self._send(EncodedRuns(items))
        else:
            self._skipped += 1
            if self._skipped >= SKIPPED_STEPS:
                await self._tell_reached()
            await asyncio.sleep(0)
        return not self._is_done

    def _is_wanted(self, shipped: Shipped) -> bool:
        ordered = shipped.ordered
        if ordered.run.kind is not RunKind.RECORDS:
            return self._request.notices and ordered.position >= self._position
        return ordered.stop > max(self._position, ordered.position) and self._selection.has(shipped.log)

    def _cut(self, ordered: OrderedRun) -> OrderedRun:
        """Without the columns that are not wanted."""
        if ordered.run.kind is not RunKind.RECORDS:
            return ordered
        head, columns = head_of(ordered.run), self._request.columns
        batch = head.batch if "payload" in columns else memoryview(b"")
        keys = head.keys if "key" in columns else ()
        body = pack_body(RecordsHead(head.log, batch, keys))
        return msgspec.structs.replace(ordered, run=msgspec.structs.replace(ordered.run, body=body))

    async def _tell_reached(self) -> None:
        self._skipped = 0
        place = self._told_place = self._walking.place
        await self._send(Reached(self._position, place, self._source.position))


def check_read(request: Read) -> Failed | None:
    """What is wrong with the request."""
    unknown = [name for name in request.columns if name not in COLUMNS]
    if unknown:
        return Failed("request", f"column {unknown[0]!r}: a record has {', '.join(COLUMNS)}")
    if request.start < LATEST or request.place < 0 or request.bytes_max < 0:
        return Failed("request", "a position, a place or a number of bytes that cannot be")
    return None


async def answer_read(source: Source, request: Read, send: Send) -> None:
    failed = check_read(request)
    if failed is not None:
        await send(failed)
        return
    if request.follow:
        source.followers += 1
    try:
        await Answering(source, request, send).run()
    except LogTrimmedError as error:
        await send(Failed("trimmed", str(error), error.earliest or source.earliest()))
    finally:
        if request.follow:
            source.followers -= 1


async def measure(source: Source, request: Measure, send: Send) -> Measured:
    """Walks as a `Read` does, and counts instead of sending. Raises LogTrimmedError."""
    selection = LogSelection(request.logs, request.without)
    meter = Meter(
        request.start, request.stop, selection, rows_max=request.rows_max, bytes_max=request.bytes_max
    )
    walking = Walking(source, request.start)
    if not meter.is_done:
        async with aclosing(walking.steps()) as steps:
            number = 0
            async for step in steps:
                if not _count(meter, step, walking):
                    break
                number += 1
                if number % SKIPPED_STEPS == 0:
                    await send(Reached(meter.position, walking.place, source.position))
                await asyncio.sleep(0)
    return Measured(meter.position, meter.rows, meter.bytes)


def _count(meter: Meter, step: list[Shipped], walking: Walking) -> bool:
    """Whether there is room for more."""
    for shipped in step:
        ordered = shipped.ordered
        if not meter.take(shipped.log, ordered.position, ordered.stop, shipped.size):
            return False
        walking.place = ordered.place + 1
    return True


async def answer_measure(source: Source, request: Measure, send: Send) -> None:
    if request.start < 0 or request.rows_max < 0 or request.bytes_max < 0:
        await send(Failed("request", "a position, a number of records or of bytes that cannot be"))
        return
    try:
        await send(await measure(source, request, send))
    except LogTrimmedError as error:
        await send(Failed("trimmed", str(error), error.earliest or source.earliest()))


def segments_of(source: Source) -> Segments:
    return Segments(source.earliest(), source.position, tuple(source.segments()))


async def answer_locate(source: Source, request: Locate) -> Answer:
    """Reads old segments on another thread, a few at a time."""
    run = request.run
    if not source.has(run):
        return Missing(run, "unknown")
    if source.is_pending(run):
        return Missing(run, "pending")
    async with source.locating:
        ordered = await asyncio.get_running_loop().run_in_executor(source.threads, source.locate, run)
    return Missing(run, "trimmed") if ordered is None else Located(_without_body(ordered))


def _without_body(ordered: Ordered) -> OrderedRun:
    bare = msgspec.structs.replace(ordered.run, body=pack_body(Records(log_name_of(ordered.run), b"")))
    return OrderedRun.of(ordered._replace(run=bare))


def status_of(source: Source, cluster_id: int, processor: int, readers: int) -> ReplicaStatus:
    zones = source.zones
    segments, size = source.sizes()
    return ReplicaStatus(
        cluster_id=cluster_id,
        processor=processor,
        log=zones.log,
        disk=zones.disk,
        first=source.earliest(),
        position=source.position,
        runs=zones.green_runs,
        time_us=zones.time_us,
        yellow_runs=len(zones.yellow),
        red_runs=len(zones.red),
        pending_bytes=zones.pending_bytes,
        primary=zones.committed.number,
        members=zones.committed.members,
        replicas={who: (voter.disk, voter.weight) for who, voter in sorted(zones.replicas.voters.items())},
        rule=zones.replicas.rule,
        holds=dict(sorted(zones.holds.items())),
        segments=segments,
        bytes=size,
        readers=readers,
    )
