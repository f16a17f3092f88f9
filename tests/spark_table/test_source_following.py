"""The driver's part of a stream: offsets, bounds, what is trimmed, checkpoints that do not fit the log."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from replicated_logs import Replicas, replicated

from totempole.errors import ConfigurationError, LogError, LogTrimmedError, SessionError
from totempole.spark_table import holding, streaming
from totempole.spark_table.access import Access
from totempole.spark_table.columns import schema_of
from totempole.spark_table.holding import HoldMover
from totempole.spark_table.streaming import OrderStreamReader
from written_logs import LOG

ALL = ReadAllAvailable()


def fill(replicas: Replicas) -> None:
    """Three segments: 100 records of 100 bytes, 100 of another log, 100 of 1000 bytes."""
    for _ in range(10):
        replicas.append([bytes(100)] * 10)
    replicas.begin_segment()
    for _ in range(10):
        replicas.append([bytes(100)] * 10, log="notes")
    replicas.begin_segment()
    for _ in range(10):
        replicas.append([bytes(1000)] * 10)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """One."""
    with replicated(tmp_path) as found:
        fill(found)
        yield found


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Replicas]:
    with replicated(tmp_path, 2) as found:
        fill(found)
        yield found


class Stream:
    """A reader, and how far its query is."""

    def __init__(self, replicas: Replicas, **options: str) -> None:
        given = replicas.options | {"startingOffsets": "earliest"} | options
        self.reader = OrderStreamReader(given, schema_of(given))
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()

    def next(self, limit: ReadLimit | None = None) -> int:
        """The rows of the next batch."""
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        rows = sum(
            batch.num_rows
            for part in self.reader.partitions(self.offset, end)
            for batch in pickle.loads(pickle.dumps(self.reader)).read(part)
        )
        self.reader.commit(self.offset)
        self.offset = end
        return rows

    @property
    def position(self) -> int:
        found: int = self.offset["position"]
        return found


def at(position: int, log: int = LOG) -> dict[str, Any]:
    return {"position": position, "log": f"{log:x}"}


@pytest.mark.parametrize(
    ("starting", "position"), [("earliest", 0), ("latest", 300), ("17", 17), ("300", 300)]
)
def test_where_a_stream_begins(replicas: Replicas, starting: str, position: int) -> None:
    with Stream(replicas, startingOffsets=starting) as stream:
        assert stream.offset == at(position)


def test_without_bounds_a_batch_is_all_that_is_there(replicas: Replicas) -> None:
    with Stream(replicas) as stream:
        assert stream.reader.getDefaultReadLimit() == ALL
        assert (stream.next(), stream.position) == (300, 300)
        assert (stream.next(), stream.position) == (0, 300)
        replicas.append([b"x"] * 7)
        assert (stream.next(), stream.position) == (7, 307)
        assert stream.reader.partitions(at(307), at(307)) == []


def test_batches_are_bounded_by_rows(replicas: Replicas) -> None:
    with Stream(replicas, maxOffsetsPerTrigger="130") as stream:
        assert stream.reader.getDefaultReadLimit() == ReadMaxRows(130)
        assert [stream.next() for _ in range(4)] == [130, 130, 40, 0]


def test_batches_are_bounded_by_rows_of_the_logs_that_are_read(replicas: Replicas) -> None:
    with Stream(replicas, maxOffsetsPerTrigger="130", subscribe="orders") as stream:
        assert [(stream.next(), stream.position) for _ in range(3)] == [(130, 230), (70, 300), (0, 300)]


def test_batches_are_bounded_by_bytes(replicas: Replicas) -> None:
    with Stream(replicas, maxBytesPerTrigger="30000") as stream:
        assert stream.reader.getDefaultReadLimit() == ReadMaxBytes(30_000)
        rows = [stream.next() for _ in range(6)]
        assert sum(rows) == 300
        assert 200 < rows[0] < 210, "small ones, and few that are large"
        assert all(0 < count < 30 for count in rows[1:5])


def test_one_record_is_read_however_large(replicas: Replicas) -> None:
    with Stream(replicas, maxBytesPerTrigger="10", startingOffsets="250") as stream:
        assert [stream.next() for _ in range(3)] == [1, 1, 1]


def test_both_bounds_hold(replicas: Replicas) -> None:
    """Spark asks for one limit, and passes it on: the other is kept, too."""
    with Stream(replicas, maxOffsetsPerTrigger="150", maxBytesPerTrigger="20000") as stream:
        assert stream.reader.getDefaultReadLimit() == ReadMaxRows(150)
        rows = [stream.next() for _ in range(4)]
        assert rows[0] == 150
        assert rows[1] < 100
        assert rows[2] < 25


def test_spark_may_ask_for_all_nevertheless(replicas: Replicas) -> None:
    with Stream(replicas, maxOffsetsPerTrigger="130") as stream:
        assert stream.next(ALL) == 300


def test_available_now_ends_where_the_log_ended(replicas: Replicas) -> None:
    with Stream(replicas, maxOffsetsPerTrigger="130") as stream:
        stream.reader.prepareForTriggerAvailableNow()
        replicas.append([b"later"] * 50)
        assert [stream.next() for _ in range(5)] == [130, 130, 40, 0, 0]
        assert stream.position == 300
    with Stream(replicas, subscribe="nothing") as stream:
        stream.reader.prepareForTriggerAvailableNow()
        assert (stream.next(), stream.position) == (0, 350)


def test_other_logs_give_no_batches(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the offset moves on now and then, and so does a hold."""
    with Stream(replicas, subscribe="notes", startingOffsets="200") as stream:
        for _ in range(3):
            replicas.append([b"x"] * 10)
            assert stream.next() == 0
            assert stream.position == 200
        replicas.append([b"x"] * 3, log="notes")
        assert (stream.next(), stream.position) == (3, 333)
        replicas.append([b"x"] * 10)
        monkeypatch.setattr(streaming, "IDLE_S", 0.0)
        assert (stream.next(), stream.position) == (0, 343)


def test_progress_says_how_far_behind_a_query_is(replicas: Replicas) -> None:
    with Stream(replicas, maxOffsetsPerTrigger="130") as stream:
        stream.next()
        assert stream.reader.reportLatestOffset() == at(300) | {"behind": 170}
        stream.next()
        replicas.append([b"x"] * 10)
        stream.next()
        assert stream.reader.reportLatestOffset() == at(310) | {"behind": 0}


# Trimmed positions


def test_a_trimmed_offset_is_an_error(replicas: Replicas) -> None:
    with Stream(replicas, maxOffsetsPerTrigger="30") as stream:
        stream.next()
        replicas.trim(2)
        with pytest.raises(LogTrimmedError) as found:
            stream.next()
        for words in ("positions 30 to 99", "begins with position 100", "failOnDataLoss to false", "hold"):
            assert words in str(found.value)
        with pytest.raises(LogTrimmedError, match="positions 30 to 99"):
            stream.reader.partitions(at(30), at(150))


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "30"}, {"subscribe": "notes"}])
def test_or_the_stream_goes_on_with_the_earliest(replicas: Replicas, options: dict[str, str]) -> None:
    with Stream(replicas, failOnDataLoss="false", startingOffsets="30", **options) as stream:
        replicas.trim(2)
        rows = stream.next()
        assert rows == {(): 200, ("maxOffsetsPerTrigger",): 30, ("subscribe",): 100}[tuple(options)]


def test_what_one_replica_has_kept_is_not_lost(two: Replicas) -> None:
    with Stream(two) as stream:
        two.logs[0].trim(3)
        assert stream.next() == 300


def test_a_start_that_is_trimmed(replicas: Replicas) -> None:
    replicas.trim(2)
    with pytest.raises(LogTrimmedError, match="positions 30 to 99"):
        Stream(replicas, startingOffsets="30")
    with Stream(replicas, startingOffsets="30", failOnDataLoss="false") as stream:
        assert stream.position == 100


# Checkpoints


def restarted(replicas: Replicas, **options: str) -> OrderStreamReader:
    """Spark does not ask for the first offset of a query that goes on."""
    given = replicas.options | options
    return OrderStreamReader(given, schema_of(given))


@pytest.mark.parametrize("call", ["latestOffset", "partitions"])
def test_a_checkpoint_of_another_log(replicas: Replicas, call: str) -> None:
    reader = restarted(replicas)
    offset = at(5, LOG + 1)
    with pytest.raises(LogError, match=r"checkpoint is of log a11cf, and the replicas have log a11ce"):
        getattr(reader, call)(*((offset, ALL) if call == "latestOffset" else (offset, at(9, LOG + 1))))
    reader.stop()


@pytest.mark.parametrize("call", ["latestOffset", "partitions"])
def test_a_checkpoint_ahead_of_the_log(replicas: Replicas, call: str) -> None:
    reader = restarted(replicas, timeout="1")
    with pytest.raises(
        LogError, match=r"ahead of the log.*before position 305.*gets position 300.*rolled back"
    ):
        getattr(reader, call)(*((at(305), ALL) if call == "latestOffset" else (at(200), at(305))))
    reader.stop()


def test_a_log_that_catches_up_with_the_checkpoint(replicas: Replicas) -> None:
    """Those that had it are away for a moment."""
    reader = restarted(replicas)
    timer = threading.Timer(0.5, lambda: replicas.append([b"x"] * 10))
    timer.start()
    assert reader.latestOffset(at(305), ALL) == at(310)
    timer.join()
    reader.stop()


def test_a_checkpoint_of_another_source(replicas: Replicas) -> None:
    reader = restarted(replicas)
    with pytest.raises(ConfigurationError, match="belongs to another source"):
        reader.latestOffset({"orders": {"0": 5}}, ALL)
    reader.stop()


def test_a_start_ahead_of_the_log(replicas: Replicas) -> None:
    with pytest.raises(LogError, match="option startingOffsets = 301: the log ends before that"):
        Stream(replicas, startingOffsets="301", timeout="1")


# Replicas that go away


def test_a_stream_goes_on_with_the_replicas_that_are_there(two: Replicas) -> None:
    with Stream(two) as stream:
        assert stream.next() == 300
        two.services[1].kill()
        two.append([b"x"] * 10)
        assert stream.next() == 10
        two.services[1].start()
        two.services[2].kill()
        two.append([b"x"] * 10)
        assert stream.next() == 10
        two.services[1].kill()
        two.services[2].start()
        timer = threading.Timer(0.5, lambda: two.append([b"x"] * 10))
        timer.start()
        rows = 0
        while rows < 10:
            rows += stream.next()
        timer.join()


def test_the_last_replica_had_more(two: Replicas) -> None:
    """The others say less for a moment: nothing is new, and nothing is wrong."""
    with Stream(two) as stream:
        two.append([b"x"] * 10, without=1)
        assert stream.next() == 310
        two.services[2].kill()
        assert (stream.next(), stream.position) == (0, 310)
        two.append([b"x"] * 10, without=2)
        assert (stream.next(), stream.position) == (0, 310)
        two.append([b"x"] * 5, without=2)
        assert (stream.next(), stream.position) == (5, 315)


def test_all_are_away(two: Replicas) -> None:
    with Stream(two, timeout="1") as stream:
        for service in two.services.values():
            service.kill()
        with pytest.raises(SessionError, match="none could be read from for 1 s"):
            stream.next()


# Holds


class Session:
    """A daemon that takes holds, or does not."""

    def __init__(self, moves: list[int], error: Exception | None = None) -> None:
        self._moves = moves
        self._error = error

    def log(self, name: str) -> Session:
        return self

    def __enter__(self) -> Session:
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def hold(self, name: str, position: int, timeout: float) -> None:
        assert name == "spark-7"
        self._moves.append(position)


def test_a_hold_moves_behind_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every batch, if they are many; and never back."""
    moves: list[int] = []
    monkeypatch.setattr(Access, "session", lambda self, name: Session(moves))
    mover = HoldMover(Access(daemons=("/run/a.sock",)), "spark-7")
    for position in range(1000):
        mover.move(position)
    mover.move(5)
    mover.wait()
    mover.move(1500)
    mover.wait()
    mover.close()
    assert moves[-1] == 1500
    assert moves == sorted(set(moves))
    assert len(moves) < 10


def test_a_hold_that_cannot_be_moved_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moves: list[int] = []
    errors: list[Exception | None] = [SessionError("no daemon at /run/a.sock"), None]
    monkeypatch.setattr(Access, "session", lambda self, name: Session(moves, errors.pop(0)))
    monkeypatch.setattr(holding, "RETRY_S", 0.1)
    mover = HoldMover(Access(daemons=("/run/a.sock",)), "spark-7")
    with caplog.at_level(logging.WARNING, "totempole.spark_table"):
        mover.move(5)
        mover.wait()
    assert "hold spark-7 cannot be moved to position 5: no daemon at /run/a.sock" in caplog.text
    while not moves:
        mover.wait()
    mover.close()
    assert moves == [5]
