"""Replicas of one log on disk, with the same records, and their log services: for tests of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from serving import Service, serving
from totempole.corel.frames import Colour, Placed
from totempole.corel.run import Change, RunKind, pack_body
from totempole.log.reader import LogReader
from written_logs import LOG, WrittenLog

TIMEOUT = "20"
"""Seconds that a test waits for what is away, at most."""


class Row(NamedTuple):
    """As the table has it."""

    position: int
    time_us: int
    origin: int
    log: str
    message: str
    colour: str
    key: str | None
    payload: bytes


class Replicas:
    """What is written is written to all of them that are not left out."""

    def __init__(self, directory: Path, count: int = 1, log: int = LOG) -> None:
        self.directory = directory
        self.logs = [
            WrittenLog(directory / f"log{number}", processor=number, log=log)
            for number in range(1, count + 1)
        ]
        self.services: dict[int, Service] = {}

    def append(
        self, payloads: Sequence[bytes], keys: tuple[str, ...] = (), *, without: int = 0, **options: Any
    ) -> None:
        for log in self.logs:
            if log.processor != without:
                log.append(payloads, keys, **{"origin": 1} | options)

    def begin_segment(self) -> None:
        for log in self.logs:
            log.begin_segment()

    def trim(self, before: int) -> None:
        for log in self.logs:
            log.trim(before)

    @property
    def position(self) -> int:
        return max(log.zones.position for log in self.logs)

    def socket(self, number: int) -> Path:
        return self.directory / f"node{number}.sock"

    @property
    def option(self) -> str:
        """For the option replicas."""
        return ",".join(str(self.socket(log.processor)) for log in self.logs)

    @property
    def options(self) -> dict[str, str]:
        return {"replicas": self.option, "timeout": TIMEOUT}

    def rows(self, start: int = 0, stop: int | None = None, logs: Sequence[str] = ()) -> list[Row]:
        """What a table has to have."""
        longest = max(self.logs, key=lambda log: log.zones.position)
        return [
            Row(
                record.position,
                record.time_us,
                record.run.origin,
                record.log,
                f"{record.run}.{record.index}",
                "green",
                record.key or None,
                record.payload,
            )
            for record in LogReader(longest.directory).records(start, stop)
            if record.log in (logs or (record.log,)) and (logs or not record.log.startswith("staged/"))
        ]


@contextmanager
def replicated(
    directory: Path, count: int = 1, *, log: int = LOG, served: Sequence[int] | None = None
) -> Iterator[Replicas]:
    """So many replicas, and the services of those that are `served`; all unless given."""
    directory.mkdir(exist_ok=True)
    found = Replicas(directory, count, log)
    with ExitStack() as ends:
        for each in found.logs:
            if served is None or each.processor in served:
                socket = directory / f"node{each.processor}-log.sock"
                found.services[each.processor] = ends.enter_context(
                    serving(each.directory, socket, each.processor)
                )
        yield found


def change_replicas(replicas: Replicas, processor: int, disk: int, *, without: int = 0) -> None:
    """What `totem log add` and `remove` order. Disk 0: the processor is removed."""
    for log in replicas.logs:
        if log.processor != without:
            body = pack_body(Change(processor, disk))
            log.write(Placed(log.run(RunKind.CHANGE, 0, body, 1), Colour.YELLOW))
            log.green()


def write_mixture(replicas: Replicas) -> None:
    """Runs of one length and of several, keys that repeat, three logs, one of them staged, four segments."""
    for number in range(120):
        count = (1, 7, 40)[number % 3]
        sizes = [(number * 7 + index) % 50 for index in range(count)] if number % 2 else [12] * count
        keys = tuple(f"k{(number + index) % 90}" if index % 2 else "" for index in range(count))
        log = ("orders", "payments", "staged/orders", "orders", "häuser")[number % 5]
        payloads = [f"{number}-{index}".encode().ljust(size, b".") for index, size in enumerate(sizes)]
        replicas.append(payloads, keys if number % 4 == 0 else (), log=log, origin=1 + number % 2)
        if number % 30 == 29:
            replicas.begin_segment()
