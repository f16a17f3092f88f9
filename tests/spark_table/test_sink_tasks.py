"""Tasks and the driver's commit with real nodes, without Spark: staged and direct batches, attempts that
fail, and drivers that are killed between any two appends."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sink_nodes import (
    KEYED,
    PAYLOAD,
    ROUTED,
    Records,
    batch_of,
    is_primary,
    log_nodes,
    options_of,
    rows,
    tasks_of,
)

from daemons import Cluster, pause, resume, wait_until
from totempole.errors import SessionError
from totempole.spark_table.access import Access
from totempole.spark_table.committing import SessionOrder, TaskRows, commit, release
from totempole.spark_table.publishing import Outcome
from totempole.spark_table.staging import OrderWriter

pytestmark = pytest.mark.nodes


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    """A log of one replica."""
    with log_nodes(tmp_path_factory.mktemp("node")) as them:
        yield Records(them[1].socket)


@pytest.fixture
def log(node: Records) -> Records:
    node.skip()
    return node


def access_of(log: Records) -> Access:
    return Access.of(options_of([log.socket]))


def test_a_small_batch_is_one_run_and_a_large_one_is_staged(log: Records) -> None:
    small = tasks_of(options_of([log.socket]), "sizes", 0, [batch_of(rows(0, 10))], [batch_of(rows(10, 20))])
    assert all(task.inline and not task.positions for task in small)
    assert commit(access_of(log), 0, small[::-1]) is Outcome.WRITTEN
    assert log.of("orders") == rows(0, 20)
    assert log.staged() == 0

    large = tasks_of(
        options_of([log.socket]), "sizes", 1, [batch_of(rows(20, 9_000))], [batch_of(rows(9_000, 9_010))]
    )
    assert [len(task.positions) for task in large] == [3, 0]
    assert set(log.holds()) >= {large[0].hold}
    assert commit(access_of(log), 1, large) is Outcome.WRITTEN
    assert log.of("orders") == rows(0, 9_010)
    assert log.staged() == 3 + 1 + 1  # runs, the rest that came inline, and the manifest
    log.wait_for_no_holds()


def test_a_batch_that_is_committed_again_writes_nothing(log: Records) -> None:
    for partitions in ([rows(0, 5)], [rows(0, 6_000), rows(6_000, 12_000)]):
        query, start = f"again{len(partitions)}", len(log.of("orders"))
        for attempt in range(3):
            tasks = tasks_of(options_of([log.socket]), query, 0, *[[batch_of(each)] for each in partitions])
            assert commit(access_of(log), 0, tasks) is (Outcome.REPEATED if attempt else Outcome.WRITTEN)
        assert log.of("orders")[start:] == [row for each in partitions for row in each]
    log.wait_for_no_holds()


def test_only_attempts_that_count_are_published(log: Records) -> None:
    options = options_of([log.socket])
    lost = tasks_of(options, "attempts", 0, [batch_of(rows(0, 5_000))], [batch_of(rows(5_000, 9_000))])
    (first, _), (_, second) = lost, tasks_of(options, "attempts", 0, [], [batch_of(rows(5_000, 9_000))])
    late = tasks_of(options, "attempts", 0, [batch_of(rows(0, 5_000))])
    assert len({task.hold for task in (*lost, second, *late)}) == 4
    assert commit(access_of(log), 0, [second, first]) is Outcome.WRITTEN
    assert sorted(log.of("orders")) == sorted(rows(0, 9_000))
    found, partition = log.of("orders"), set(rows(0, 5_000))
    assert [row for row in found if row in partition] == rows(0, 5_000)
    log.wait_for_no_holds()  # those of attempts that do not count, too


def test_rows_go_to_the_logs_that_they_name(log: Records) -> None:
    logs = ["a" if number % 3 else "b" if number % 2 else None for number in range(9_000)]
    payloads = rows(0, 9_000)
    for query, count in (("few", 90), ("many", 9_000)):
        log.skip()
        batch = batch_of(payloads[:count], log=logs[:count])
        tasks = tasks_of(options_of([log.socket], log="rest"), query, 0, [batch], schema=ROUTED)
        assert commit(access_of(log), 0, tasks) is Outcome.WRITTEN
        for name, given in (("a", "a"), ("b", "b"), ("rest", None)):
            assert log.of(name) == [
                row for row, to in zip(payloads[:count], logs, strict=False) if to == given
            ]
    log.wait_for_no_holds()


def test_a_key_makes_a_row_one(log: Records) -> None:
    keys = [f"k{number % 5_000}" if number % 7 else None for number in range(9_000)]
    payloads = rows(0, 9_000)
    options = options_of([log.socket], log="keyed")
    tasks = tasks_of(options, "keys", 0, [batch_of(payloads, key=keys)], schema=KEYED)
    assert tasks[0].positions
    assert commit(access_of(log), 0, tasks) is Outcome.WRITTEN
    seen: set[str | None] = set()
    wanted = []
    for key, payload in zip(keys, payloads, strict=True):
        if key is None or key not in seen:
            wanted.append((key or "", payload))
        seen.add(key)
    assert log.keyed("keyed") == wanted


def test_rows_of_any_size(log: Records) -> None:
    sizes = [0, 1, 100_000, 0, 430_081, 1_000_000, 3]
    payloads = [bytes([65 + place]) * size for place, size in enumerate(sizes)]
    tasks = tasks_of(options_of([log.socket]), "wide", 0, [batch_of(payloads)])
    assert commit(access_of(log), 0, tasks) is Outcome.WRITTEN
    assert log.of("orders") == payloads


def test_a_batch_without_rows(log: Records) -> None:
    empty = tasks_of(options_of([log.socket]), "empty", 0, [], [batch_of([])])
    assert commit(access_of(log), 0, empty) is Outcome.WRITTEN
    late = tasks_of(options_of([log.socket]), "empty", 0, [batch_of(rows(0, 1))])
    assert commit(access_of(log), 0, late) is Outcome.REPEATED
    tasks = tasks_of(options_of([log.socket]), "empty", 1, [batch_of(rows(1, 2))])
    assert commit(access_of(log), 1, tasks) is Outcome.WRITTEN
    assert log.of("orders") == rows(1, 2)


def test_a_write_with_a_key_that_is_there_says_so(log: Records, caplog: pytest.LogCaptureFixture) -> None:
    options = options_of([log.socket], idempotencyKey="day 7")
    for payloads in (rows(0, 3), rows(3, 9)):
        writer = OrderWriter(options, PAYLOAD, False)
        with caplog.at_level(logging.WARNING, "totempole.spark_table"):
            writer.commit([writer.write(iter([batch_of(payloads)]))])
    assert log.of("orders") == rows(0, 3)
    (line,) = caplog.messages
    assert line == "idempotencyKey = day 7: a write with this key is in the log already; nothing was written"


def test_a_write_that_is_aborted_leaves_no_hold(log: Records) -> None:
    writer = OrderWriter(options_of([log.socket]), PAYLOAD, False)
    message = writer.write(iter([batch_of(rows(0, 5_000))]))
    assert log.holds()
    writer.abort([message, None])
    log.wait_for_no_holds()
    assert log.of("orders") == []
    release(access_of(log), [TaskRows("x", 0, 0)])


def test_what_is_staged_is_kept_until_it_is_copied_and_no_longer(tmp_path: Path) -> None:
    settings = "segment_bytes = 65536\nretention_bytes = 262144\n"
    with log_nodes(tmp_path, settings=settings) as them:
        log, options = Records(them[1].socket), options_of([them[1].socket])
        before = tasks_of(options, "before", 0, [batch_of(rows(0, 20_000))])
        assert commit(Access.of(options), 0, before) is Outcome.WRITTEN
        tasks = tasks_of(options, "kept", 0, [batch_of(rows(0, 20_000))], [batch_of(rows(20_000, 40_000))])
        wait_until(lambda: log.first() > before[0].positions[-1])
        log.skip()
        assert commit(Access.of(options), 0, tasks) is Outcome.WRITTEN
        assert log.of("orders") == rows(0, 40_000)
        after = tasks_of(
            options, "after", 0, [batch_of(rows(0, 20_000))]
        )  # it makes the log look what it keeps
        wait_until(lambda: log.first() > tasks[1].positions[-1])
        assert commit(Access.of(options), 0, after) is Outcome.WRITTEN


# Drivers that are killed


def die(deadly: int, access: Access, batch: int, tasks: list[TaskRows]) -> None:
    """Commits, and is killed at the ask of this number. What was sent before may be under way."""
    asks = 0
    insist = SessionOrder._insist

    async def ask(self: SessionOrder, *given: Any) -> Any:
        nonlocal asks
        asks += 1
        if asks == deadly:
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGKILL)
        return await insist(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionOrder, "_insist", ask)
        commit(access, batch, tasks)


def commit_dying(*given: Any) -> bool:
    """Whether it was killed."""
    process = multiprocessing.get_context("fork").Process(target=die, args=given)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.mark.parametrize("is_large", [False, True], ids=["direct", "staged"])
def test_a_driver_that_is_killed_between_any_two_asks(log: Records, is_large: bool) -> None:
    """Each batch is killed one ask later than the one before, until one comes through."""
    options, query = options_of([log.socket]), f"killed {is_large}"
    sizes = (5_000, 1_500, 10) if is_large else (5, 7)
    wanted: list[list[bytes]] = []
    for batch in range(30):
        starts = [100_000 * batch + 10_000 * place for place in range(len(sizes))]
        partitions = [rows(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        tasks = tasks_of(options, query, batch, *[[batch_of(each)] for each in partitions])
        was_killed = commit_dying(batch + 1, access_of(log), batch, tasks)
        again = tasks_of(options, query, batch, *[[batch_of(each)] for each in partitions])
        outcome = commit(access_of(log), batch, again)
        assert outcome is not Outcome.WRITTEN or was_killed
        wanted += partitions
        if not was_killed:
            break
    else:
        raise AssertionError("it never comes through")
    assert batch >= (8 if is_large else 1)
    found = log.of("orders")
    assert len(found) == sum(map(len, wanted))
    for partition in wanted:
        mine = set(partition)
        assert [row for row in found if row in mine] == partition
    log.wait_for_no_holds()


# Nodes that are away


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with log_nodes(tmp_path_factory.mktemp("three"), 3) as them:
        yield them


def test_a_task_waits_while_there_is_no_majority(three: Cluster) -> None:
    options = options_of([three[1].socket], timeout="60")
    records = Records(three[1].socket)
    pause(three, 2, 3)
    resumed = threading.Timer(1.0, resume, (three, 2, 3))
    resumed.start()
    try:
        tasks = tasks_of(options, "minority", 0, [batch_of(rows(0, 9_000))])
    finally:
        resumed.join()
    assert commit(Access.of(options), 0, tasks) is Outcome.WRITTEN
    assert records.of("orders") == rows(0, 9_000)


def test_a_log_that_takes_nothing_is_an_error_in_time(three: Cluster) -> None:
    options = options_of([three[1].socket], log="nobody", timeout="0.5")
    few = tasks_of(options, "nobody", 0, [batch_of(rows(0, 3))])
    pause(three, 2, 3)
    try:
        with pytest.raises(SessionError, match=r"taken \d+ bytes to be staged within 0\.5 s .*majority"):
            tasks_of(options, "nobody", 0, [batch_of(rows(0, 9_000))])
        with pytest.raises(SessionError, match=r"taken 3 rows for log 'nobody' within 0\.5 s .*majority"):
            commit(Access.of(options), 0, few)
    finally:
        resume(three, 2, 3)
    later = options_of([three[1].socket], timeout="60")
    assert commit(Access.of(later), 0, few) in (Outcome.WRITTEN, Outcome.REPEATED)
    assert Records(three[1].socket).of("nobody") == rows(0, 3)


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_daemons_that_are_killed_meanwhile(three: Cluster, rounds: int) -> None:
    """Rows are staged and copied again and again while one daemon after the other is killed."""
    query, sockets = f"fire {rounds}", [three[number].socket for number in (1, 2, 3)]
    options = options_of(sockets, log=query, timeout="60")

    def kill() -> None:
        for number in (1, 2, 3) * rounds:
            time.sleep(0.4)
            three[number].end(signal.SIGKILL)
            time.sleep(0.3)
            three[number].start()
            wait_until(lambda number=number: is_primary(three[number]))  # type: ignore[misc]

    killer = threading.Thread(target=kill)
    killer.start()
    batch = 0
    while killer.is_alive() or batch < 3:
        first = 100_000 * batch
        tasks = tasks_of(options, query, batch, [batch_of(rows(first, first + 9_000))])
        commit(Access.of(options), batch, tasks)
        batch += 1
    killer.join()
    wanted = [row for each in range(batch) for row in rows(100_000 * each, 100_000 * each + 9_000)]
    assert Records(three[1].socket).of(query) == wanted
