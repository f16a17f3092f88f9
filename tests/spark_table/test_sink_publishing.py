"""Batches of a producer appear once, whatever happens to drivers and connections: random walks through a
model of the log (`sink_model`), and mutants of `publishing` that the walks must catch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

import pytest
from sink_model import PRODUCER, RUN_RECORDS, ModelLog, ModelOrder, Sent, Wrong, walk

from totempole.client.appending import FencedError
from totempole.errors import LogError
from totempole.groups.packing import pack
from totempole.spark_table import packed_rows, publishing
from totempole.spark_table.manifest import (
    Manifest,
    PackedRun,
    batch_of,
    complete,
    encode,
    is_complete,
    step_number,
)
from totempole.spark_table.publishing import Order, Outcome, Publisher
from totempole.types import FENCE_NUMBER_MAX, Fence

SEEDS = 200
MUTANT_SEEDS = 600


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few rows are large."""
    monkeypatch.setattr(packed_rows, "RUN_RECORDS_MAX", RUN_RECORDS)
    monkeypatch.setattr(publishing, "STEPS_UNDER_WAY", 3)


def test_every_walk_has_each_batch_once() -> None:
    assert sum(len(walk(seed).overtaken) for seed in range(SEEDS)), "a paused driver comes too late in some"


@pytest.mark.long
def test_many_walks_have_each_batch_once() -> None:
    for seed in range(SEEDS, 20 * SEEDS):
        walk(seed)


# Mutants


class Refenced(ModelOrder):
    """Changes fences on their way."""

    def __init__(self, order: Order, change: Callable[[Fence], Fence]) -> None:
        assert isinstance(order, ModelOrder)
        self.__dict__ = order.__dict__
        self.change = change

    async def append(self, run: PackedRun, fence: Fence) -> None:
        await super().append(run, self.change(fence))


class DirectUnchecked(Publisher):
    """A run that completes its batch at once is let in behind anything."""

    def __init__(self, order: Order, *rest: object) -> None:
        def change(fence: Fence) -> Fence:
            is_direct = fence.number == complete(batch_of(fence.number)) and is_complete(fence.low)
            return fence._replace(low=0, high=fence.number - 1) if is_direct else fence

        super().__init__(Refenced(order, change), *rest)  # type: ignore[arg-type]


class StepsUnchecked(Publisher):
    """A step is let in behind any one before it."""

    def __init__(self, order: Order, *rest: object) -> None:
        def change(fence: Fence) -> Fence:
            is_step = fence.number < FENCE_NUMBER_MAX and not is_complete(fence.low)
            return fence._replace(low=0) if is_step else fence

        super().__init__(Refenced(order, change), *rest)  # type: ignore[arg-type]


class OwnManifest(Publisher):
    """An attempt that comes second goes on with what it has staged itself."""

    async def _decide(self, runs: Sequence[PackedRun], positions: Sequence[int]) -> bool:
        await super()._decide(runs, positions)
        if self._manifest is not None and positions:
            self._manifest = Manifest.of(self._batch, positions)
        return True


class ReleasedBefore(Publisher):
    """Holds go when the batch is decided."""

    async def _decide(self, runs: Sequence[PackedRun], positions: Sequence[int]) -> bool:
        found = await super()._decide(runs, positions)
        await self.release(())
        return found


class LeftUnfinished(Publisher):
    """A batch that another driver has begun is left to it."""

    async def _begin(self, run: PackedRun, number: int) -> Outcome:
        self._number = number
        return await super()._begin(run, number)

    async def _finish(self, mark: int) -> None:
        if mark == self._number:
            await super()._finish(mark)


class OneTooFar(Publisher):
    """Where another driver copies, too, a step is left out."""

    async def _reached(self, batch: int, of: int, fenced: FencedError, under_way: Iterable[object]) -> int:
        return min(of, 1 + await super()._reached(batch, of, fenced, under_way))  # type: ignore[arg-type]


class EmptyUnmarked(Publisher):
    """A batch without rows leaves no mark."""

    async def publish(self, inline: Sequence[PackedRun], positions: Sequence[int]) -> Outcome:
        if not inline and not positions:
            return Outcome.WRITTEN
        return await super().publish(inline, positions)


MUTANTS = (
    DirectUnchecked,
    StepsUnchecked,
    OwnManifest,
    ReleasedBefore,
    LeftUnfinished,
    OneTooFar,
    EmptyUnmarked,
)


@pytest.mark.search
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_walk_catches(mutant: type[Publisher]) -> None:
    for seed in range(MUTANT_SEEDS):
        try:
            walk(seed, mutant)
        except Wrong:
            return
    raise AssertionError(f"{mutant.__name__} passes {MUTANT_SEEDS} walks")


# Single steps


class Instant(ModelOrder):
    """All that is sent arrives at once."""

    def __init__(self, log: ModelLog) -> None:
        super().__init__(log, random.Random(0))
        self.appends: list[tuple[str, Fence]] = []

    async def append(self, run: PackedRun, fence: Fence) -> None:
        self.appends.append((run.log, fence))
        await super().append(run, fence)

    async def _ask(self, sent: Sent) -> list[int]:
        sent.arrive(self.log)
        sent.tell()
        return await sent.answer


def run_of(*payloads: bytes, log: str = "a") -> PackedRun:
    return PackedRun(log, len(payloads), pack(payloads))


def publish(
    log: ModelLog, batch: int, *inline: PackedRun, positions: Sequence[int] = (), first_batch: int = 0
) -> tuple[Outcome, Instant]:
    async def run() -> tuple[Outcome, Instant]:
        order = Instant(log)
        publisher = Publisher(order, PRODUCER, batch, first_batch)
        return await publisher.publish(inline, positions), order

    return asyncio.run(run())


def stage(log: ModelLog, *runs: PackedRun) -> list[int]:
    return log.append(PRODUCER.staged_log, [encode(run) for run in runs], None)


def written(log: ModelLog, name: str = "a") -> list[bytes]:
    return [payload for where, payload in log.records if where == name]


def test_a_small_batch_is_one_append() -> None:
    log = ModelLog()
    outcome, order = publish(log, 0, run_of(b"1"), run_of(b"2", b"3"))
    assert outcome is Outcome.WRITTEN
    assert order.appends == [("a", Fence(PRODUCER.rows, complete(0), 0, 0))]
    outcome, order = publish(log, 1, run_of(b"4"))
    assert order.appends == [("a", Fence(PRODUCER.rows, complete(1), complete(0), complete(0)))]
    assert written(log) == [b"1", b"2", b"3", b"4"]
    assert len(log.records) == 4


def test_a_batch_that_comes_again_writes_nothing() -> None:
    log = ModelLog()
    for _ in range(3):
        publish(log, 0, run_of(b"1"))
    assert publish(log, 0, run_of(b"another"))[0] is Outcome.REPEATED
    assert publish(log, 0, positions=stage(log, run_of(b"x"), run_of(b"y")))[0] is Outcome.REPEATED
    assert written(log) == [b"1"]


def test_a_large_batch_is_staged_decided_and_copied() -> None:
    log = ModelLog()
    positions = stage(log, run_of(b"1", b"2"), run_of(b"lost"), run_of(b"3"))
    del positions[1]
    outcome, order = publish(log, 0, run_of(b"4", log="b"), run_of(b"5"), positions=positions)
    assert outcome is Outcome.WRITTEN
    assert written(log) == [b"1", b"2", b"3", b"5"]
    assert written(log, "b") == [b"4"]
    numbers = [fence.number for where, fence in order.appends if where in ("a", "b")]
    assert numbers == [step_number(0, step, 4) for step in range(1, 5)]
    assert numbers[-1] == complete(0)
    assert publish(log, 0, run_of(b"4"), run_of(b"5"), positions=positions)[0] is Outcome.REPEATED


def test_rows_for_two_logs_are_no_single_run() -> None:
    log = ModelLog()
    publish(log, 0, run_of(b"1", log="b"), run_of(b"2"))
    assert (written(log), written(log, "b")) == ([b"2"], [b"1"])


def test_a_manifest_without_steps_is_finished_by_the_next_attempt() -> None:
    log = ModelLog()
    positions = stage(log, run_of(b"1"), run_of(b"2"))
    record = encode(Manifest.of(0, positions))
    log.append(PRODUCER.staged_log, [record], Fence(PRODUCER.batches, 1, 0, 0))
    others = stage(log, run_of(b"x"), run_of(b"y"), run_of(b"z"))
    assert publish(log, 0, positions=others)[0] is Outcome.FINISHED
    assert written(log) == [b"1", b"2"]


def test_a_batch_in_the_middle_is_finished_by_an_attempt_that_would_be_direct() -> None:
    log = ModelLog()
    positions = stage(log, run_of(b"1"), run_of(b"2"), run_of(b"3"))
    log.append(PRODUCER.staged_log, [encode(Manifest.of(0, positions))], Fence(PRODUCER.batches, 1, 0, 0))
    log.append("a", [b"1"], Fence(PRODUCER.rows, step_number(0, 1, 3), 0, 0))
    assert publish(log, 0, run_of(b"direct"))[0] is Outcome.FINISHED
    assert written(log) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_log_that_was_rolled_back_is_an_error(is_staged: bool, is_finished: bool) -> None:
    """Spark has committed batch 6, and the log has some of batch 4. `firstBatch` goes on behind that."""
    log = ModelLog()
    positions = stage(log, run_of(b"1"), run_of(b"2"), run_of(b"3"))
    log.append(PRODUCER.staged_log, [encode(Manifest.of(4, positions))], Fence(PRODUCER.batches, 5, 0, 4))
    log.append("a", [b"1"], Fence(PRODUCER.rows, step_number(4, 1, 3), 0, 0))
    if is_finished:
        publish(log, 4, run_of(b"x"), first_batch=4)
    more = stage(log, run_of(b"5"), run_of(b"6")) if is_staged else []
    for first_batch in (0, 4, 6, 8):
        with pytest.raises(LogError, match=r"batch 7 comes behind batch 6, and the log knows of batch 4\."):
            publish(log, 7, run_of(b"4"), positions=more, first_batch=first_batch)
    assert publish(log, 7, run_of(b"4"), positions=more, first_batch=7)[0] is Outcome.WRITTEN
    assert publish(log, 7, run_of(b"4"), positions=more, first_batch=7)[0] is Outcome.REPEATED
    assert publish(log, 8, run_of(b"7"), first_batch=7)[0] is Outcome.WRITTEN
    assert written(log) == [b"1", b"2", b"3", *([b"5", b"6"] if is_staged else []), b"4", b"7"]


OLD = (
    r"batch 0 comes behind batch {}, which the log has already; it was not written.* older copy.* two drivers"
)


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize("last", [1, 2])
def test_a_batch_that_comes_behind_later_ones_is_an_error(is_staged: bool, last: int) -> None:
    """Spark repeats the last batch only: its checkpoint is an old one, or another driver has gone on."""
    log = ModelLog()
    for batch in range(last + 1):
        publish(log, batch, run_of(b"%d" % batch))
    before = written(log)
    more = stage(log, run_of(b"x"), run_of(b"y")) if is_staged else []
    for inline in ([], [run_of(b"new")]):
        for first_batch in (0, last, last + 1):
            with pytest.raises(LogError, match=OLD.format(last)):
                publish(log, 0, *inline, positions=more, first_batch=first_batch)
    assert written(log) == before
    assert publish(log, last, run_of(b"new"), positions=more)[0] is Outcome.REPEATED
    assert publish(log, last + 1, run_of(b"next"))[0] is Outcome.WRITTEN
    assert written(log) == [*before, b"next"]


def test_a_batch_whose_successor_is_begun_is_an_error() -> None:
    """Another driver is in the middle of the next batch, and stays there."""
    log = ModelLog()
    publish(log, 0, run_of(b"0"))
    positions = stage(log, run_of(b"1"), run_of(b"2"))
    log.append(PRODUCER.staged_log, [encode(Manifest.of(1, positions))], Fence(PRODUCER.batches, 2, 0, 1))
    assert publish(log, 0, run_of(b"x"))[0] is Outcome.REPEATED, "the next one has no rows in the log yet"
    log.append("a", [b"1"], Fence(PRODUCER.rows, step_number(1, 1, 2), complete(0), complete(0)))
    for more in ([], stage(log, run_of(b"x"), run_of(b"y"))):
        with pytest.raises(LogError, match=OLD.format(1)):
            publish(log, 0, run_of(b"z"), positions=more)
    assert written(log) == [b"0", b"1"]


def test_a_batch_that_another_driver_finishes_and_goes_on_behind_is_in_the_log_once() -> None:
    """The paused driver was in the middle of it, so its batch is there: it is told so."""

    class Overtaken(Instant):
        async def append(self, run: PackedRun, fence: Fence) -> None:
            if fence.number == step_number(0, 2, 3):
                publish_in_between = Publisher(Instant(self.log), PRODUCER, 0)
                assert await publish_in_between.publish([run_of(b"x")], ()) is Outcome.FINISHED
                await Publisher(Instant(self.log), PRODUCER, 1).publish([run_of(b"next")], ())
            await super().append(run, fence)

    log = ModelLog()
    positions = stage(log, run_of(b"1"), run_of(b"2"), run_of(b"3"))
    outcome = asyncio.run(Publisher(Overtaken(log), PRODUCER, 0).publish((), positions))
    assert outcome is Outcome.WRITTEN
    assert written(log) == [b"1", b"2", b"3", b"next"]


@pytest.mark.parametrize("is_staged", [False, True])
def test_a_producer_that_is_forgotten_is_an_error(is_staged: bool) -> None:
    log = ModelLog()
    publish(log, 0, run_of(b"1"))
    log.marks.clear()
    more = stage(log, run_of(b"2"), run_of(b"3")) if is_staged else []
    with pytest.raises(LogError, match=r"none of its batches.* give the option firstBatch = 1"):
        publish(log, 1, run_of(b"4"), positions=more)
    assert written(log) == [b"1"]
    assert publish(log, 1, run_of(b"4"), positions=more, first_batch=1)[0] is Outcome.WRITTEN


def test_a_manifest_that_is_forgotten_in_the_middle_is_an_error() -> None:
    log = ModelLog()
    positions = stage(log, run_of(b"1"), run_of(b"2"), run_of(b"3"))
    log.append("a", [b"1"], Fence(PRODUCER.rows, step_number(0, 1, 3), 0, 0))
    for batch, more in ((0, []), (1, []), (1, positions)):
        with pytest.raises(LogError, match="has forgotten"):
            publish(log, batch, run_of(b"x"), positions=more, first_batch=1)
    log.marks[PRODUCER.batches] = 2, 0
    with pytest.raises(LogError, match="has forgotten"):
        publish(log, 1, run_of(b"direct"), first_batch=1)


def test_steps_that_are_forgotten_in_the_middle_are_an_error() -> None:
    class Forgetful(Instant):
        async def append(self, run: PackedRun, fence: Fence) -> None:
            if fence.number == step_number(0, 3, 9):
                self.log.marks.pop(PRODUCER.rows)
            await super().append(run, fence)

    log = ModelLog()
    positions = stage(log, *[run_of(b"%d" % number) for number in range(9)])
    with pytest.raises(LogError, match="batch 0 is begun, and the log has forgotten"):
        asyncio.run(Publisher(Forgetful(log), PRODUCER, 0).publish((), positions))
    assert written(log) == [b"0", b"1"]


def test_a_batch_without_rows_takes_its_step_and_no_place_in_a_log() -> None:
    log = ModelLog()
    assert publish(log, 0)[0] is Outcome.WRITTEN
    assert publish(log, 0, run_of(b"late"))[0] is Outcome.REPEATED
    assert written(log) == []
    assert publish(log, 1, run_of(b"1"))[0] is Outcome.WRITTEN


def test_holds_of_a_batch_and_those_before_go_and_others_stay() -> None:
    log = ModelLog()
    mine = {PRODUCER.hold(batch, 10 * batch): 10 * batch for batch in (1, 2, 3)}
    others = {"reader": 0, f"{PRODUCER}x/1/0": 0, f"{PRODUCER}/rows": 0, "spark/": 0}
    log.holds, log.older_holds = mine | others, mine | others
    asyncio.run(Publisher(Instant(log), PRODUCER, 2).release(["named/by/a/task"]))
    assert log.holds == {PRODUCER.hold(3, 30): 30} | others
