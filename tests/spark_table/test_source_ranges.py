"""What a task reads: the same rows whichever replica serves them, and whatever happens to it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from replicated_logs import Replicas, Row, replicated, write_mixture

from totempole.errors import LogError, LogTrimmedError, SessionError
from totempole.log import arrow
from totempole.spark_table.columns import schema_of
from totempole.spark_table.options import ReadOptions
from totempole.spark_table.reading import PositionRange, arrow_schema_of, plan, read_range
from totempole.spark_table.survey import survey_of
from written_logs import LOG


def planned(options: dict[str, str], start: int = 0, stop: int | None = None) -> list[PositionRange]:
    given = ReadOptions.of(options)
    with closing(survey_of(given.access)) as survey:
        view = survey.look()
    return plan(view, start, view.position if stop is None else stop, given.partitions_min)


def batches(options: dict[str, str], part: PositionRange) -> Iterator[Any]:
    given = ReadOptions.of(options)
    return read_range(given, arrow_schema_of(schema_of(options), given), part)


def rows_of(batch: Any) -> list[Row]:
    return [
        Row(row["position"], round(row.pop("time").timestamp() * 1_000_000), *list(row.values())[1:])
        for row in batch.to_pylist()
    ]


def read(options: dict[str, str], *parts: PositionRange) -> list[Row]:
    return [
        row
        for part in parts or planned(options)
        for batch in batches(options, part)
        for row in rows_of(batch)
    ]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    with replicated(tmp_path_factory.mktemp("mixture"), 3) as replicas:
        write_mixture(replicas)
        yield replicas


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_parts_together_are_the_log(mixture: Replicas, count: int, replicas: int) -> None:
    named = ",".join(str(mixture.socket(number)) for number in range(1, replicas + 1))
    options = mixture.options | {"replicas": named, "minPartitions": str(count)}
    parts = planned(options)
    assert len(parts) == count
    assert len({part.replicas[0] for part in parts}) == min(count, replicas), "in turn"
    assert read(options) == mixture.rows()


def test_a_directory_gives_the_same(mixture: Replicas) -> None:
    for directory in ("log1", "log3"):
        options = {"path": str(mixture.directory / directory), "minPartitions": "3"}
        assert read(options) == mixture.rows()


@pytest.mark.parametrize("logs", [("orders",), ("payments", "häuser"), ("staged/orders",), ("nothing",)])
def test_some_logs(mixture: Replicas, logs: tuple[str, ...]) -> None:
    options = mixture.options | {"subscribe": ",".join(logs), "minPartitions": "2"}
    assert read(options) == mixture.rows(logs=logs)
    assert read({"path": str(mixture.directory / "log1"), "subscribe": ",".join(logs)}) == read(options)


@pytest.mark.parametrize(
    "columns", ["position", "message,position", "key", "time,payload", "log,colour,origin"]
)
def test_some_columns(mixture: Replicas, columns: str) -> None:
    options = mixture.options | {"columns": columns}
    wanted = [Row._fields.index(name if name != "time" else "time_us") for name in columns.split(",")]
    found = []
    for part in planned(options):
        for batch in batches(options, part):
            assert batch.schema.names == columns.split(",")
            for row in batch.to_pylist():
                if "time" in row:
                    row["time"] = round(row["time"].timestamp() * 1_000_000)
                found.append(tuple(row.values()))
    assert found == [tuple(row[number] for number in wanted) for row in mixture.rows()]


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (17, 18), (300, 1000), (1500, 1500)])
def test_a_range_of_positions(mixture: Replicas, start: int, stop: int) -> None:
    parts = planned(mixture.options | {"minPartitions": "3"}, start, stop)
    assert read(mixture.options, *parts) == mixture.rows(start, stop) or start == stop


def test_payloads_that_are_not_wanted_are_not_sent(
    mixture: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    to_batches = arrow.to_batches

    def spy(runs: Iterator[Any], *arguments: Any, **options: Any) -> Iterator[Any]:
        def watched() -> Iterator[Any]:
            for ordered in runs:
                seen.append((ordered.run.count, len(ordered.run.body)))
                yield ordered

        return to_batches(watched(), *arguments, **options)

    monkeypatch.setattr(arrow, "to_batches", spy)
    read_count = sum(
        batch.num_rows
        for part in planned(mixture.options | {"columns": "position"})
        for batch in batches(mixture.options | {"columns": "position"}, part)
    )
    assert read_count == len(mixture.rows())
    assert max(size for _, size in seen) < 40
    assert sum(count for count, _ in seen) < len(mixture.rows()) + 200, "nor those of logs that are not"


# Replicas that go away, or are behind


def fill(replicas: Replicas, runs: int = 300, **options: Any) -> None:
    """More than sockets and a batch hold."""
    for number in range(runs):
        replicas.append([f"{number}-{index}".encode().ljust(500, b".") for index in range(100)], **options)


@pytest.mark.parametrize("killed", [1, 2, 3])
def test_another_replica_takes_over_in_the_middle(tmp_path: Path, killed: int) -> None:
    """One after the other is killed between two batches. The last one is started again."""
    with replicated(tmp_path, 3) as replicas:
        fill(replicas)
        (part,) = planned(replicas.options | {"minPartitions": "1"})
        found: list[Row] = []
        for number, batch in enumerate(batches(replicas.options, part)):
            found += rows_of(batch)
            if number < killed:
                service = replicas.services[1 + number]
                assert str(service.socket) == part.replicas[number]
                service.kill()
                if number == 2:
                    service.start()
        assert found == replicas.rows()


def test_a_replica_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    """The one that had it has gone: the others get it soon."""
    with replicated(tmp_path, 2) as replicas:
        fill(replicas, 5)
        fill(replicas, 5, without=1)
        (part,) = planned(replicas.options)
        replicas.services[2].kill()
        timer = threading.Timer(0.5, lambda: fill(replicas, 5, without=2))
        timer.start()
        found = read(replicas.options, part)
        timer.join()
        assert found == replicas.rows()


def test_a_replica_that_stays_behind_is_an_error(tmp_path: Path) -> None:
    with replicated(tmp_path, 2) as replicas:
        fill(replicas, 5)
        fill(replicas, 5, without=1)
        options = replicas.options | {"timeout": "2"}
        (part,) = planned(options)
        replicas.services[2].kill()
        with pytest.raises(
            SessionError, match=r"nothing behind position 500 for 2 s.*position 999 was green"
        ):
            read(options, part)


def test_a_directory_that_is_behind_is_an_error(tmp_path: Path) -> None:
    """Each executor sees another disk: rows would be missing, and nobody would know."""
    with replicated(tmp_path, 2, served=()) as replicas:
        fill(replicas, 5)
        fill(replicas, 5, without=2)
        (part,) = planned({"path": str(tmp_path / "log1")})
        behind = {"path": str(tmp_path / "log2"), "timeout": "1"}
        with pytest.raises(SessionError, match="has to be the same log for the driver and all executors"):
            read(behind, part)
        timer = threading.Timer(0.3, lambda: fill(replicas, 5, without=1))
        timer.start()
        assert read(behind | {"timeout": "20"}, part) == replicas.rows()
        timer.join()


def test_another_log_is_not_read(tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as mine, replicated(tmp_path / "b", log=LOG + 1) as other:
        fill(mine, 1)
        fill(other, 1)
        (part,) = planned(mine.options)
        with pytest.raises(LogError, match="another cluster's, or was rescued since"):
            read(other.options, part)
        with pytest.raises(LogError, match=r"has log a11cf here, and log a11ce on the driver"):
            read({"path": str(tmp_path / "b" / "log1")}, part)


# Trimming between planning and reading


@pytest.fixture(params=["service", "directory"])
def segmented(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Replicas, dict[str, str]]]:
    """Five segments of 1000 records."""
    with replicated(tmp_path, 2) as replicas:
        for _ in range(5):
            fill(replicas, 10)
            replicas.begin_segment()
        options = replicas.options if request.param == "service" else {"path": str(tmp_path / "log1")}
        yield replicas, options


def test_a_part_that_is_trimmed_is_an_error(segmented: tuple[Replicas, dict[str, str]]) -> None:
    replicas, options = segmented
    (part,) = planned(options | {"minPartitions": "1"})
    replicas.trim(3)
    with pytest.raises(LogTrimmedError) as found:
        read(options, part)
    for words in ("Some data may have been lost: positions 0 to 1999", "failOnDataLoss", "position 2000"):
        assert words in str(found.value)
    assert found.value.earliest == 2000


def test_or_is_read_from_the_earliest_on(segmented: tuple[Replicas, dict[str, str]]) -> None:
    replicas, options = segmented
    parts = planned(options | {"minPartitions": "5"})
    replicas.trim(3)
    careless = options | {"failOnDataLoss": "false"}
    assert [len(read(careless, part)) for part in parts] == [0, 0, 1000, 1000, 1000]
    assert read(careless, *parts) == replicas.rows(2000)


@pytest.mark.parametrize("fails", [True, False])
def test_trimming_in_the_middle_of_a_part(tmp_path: Path, fails: bool) -> None:
    """What was not sent is lost, and said to be."""
    with replicated(tmp_path) as replicas:
        for _ in range(8):
            fill(replicas, 100)
            replicas.begin_segment()
        options = replicas.options | {"failOnDataLoss": str(fails)}
        (part,) = planned(options | {"minPartitions": "1"})
        reading = batches(options, part)
        found = rows_of(next(reading))
        replicas.services[1].kill()  # it has files open
        replicas.trim(7)
        replicas.services[1].start()
        if fails:
            with pytest.raises(
                LogTrimmedError, match=r"Some data may have been lost: positions \d+ to 59999"
            ):
                list(reading)
            return
        found += [row for batch in reading for row in rows_of(batch)]
        kept = next(row.position for row in reversed(found) if row.position < 60_000) + 1
        assert [row.position for row in found[:kept]] == [*range(kept)]
        assert found[kept:] == replicas.rows(60_000)
