"""A node's log under power cuts: one life after the other appends until it is killed with -9. To be run with
powercut.c preloaded.

    powercut_program.py DIRECTORY ROUNDS SEED [MISTAKE]

After some kills the power fails too: what was not synced is taken back in part. Then the log must be whole:
every frame that a life was told to be durable is there, and no position ever changes. Prints what it did as
JSON; leaves with status 1 and what was lost, if something was. MISTAKE is one that must be noticed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from unittest import mock

from log_writing import LoggingReplica
from powercut import PowerCut

from totempole.errors import StorageError
from totempole.log.check import check
from totempole.log.reader import LogReader, Record
from totempole.runtime import log_files, log_store

MISTAKES = ("no-sync", "no-directory-sync", "no-sync-at-open", "only-sync-at-open", "sync-again", "early")
CHANGES_MAX = 400
LIFE_S_MAX = 0.15


def sync_only(path: Path, _: object) -> None:
    """What a sync that failed has lost is not written again."""
    file = os.open(path, os.O_RDWR)
    os.fdatasync(file)
    os.close(file)


def sync_again(file: log_files.SegmentFile) -> None:
    """As databases did until 2018."""
    try:
        os.fdatasync(file._file)
    except OSError:
        os.fdatasync(file._file)


def make(mistake: str) -> None:
    nothing = mock.Mock()
    if mistake == "no-directory-sync":
        log_files.sync_directory = nothing
        log_store.sync_directory = nothing
    elif mistake == "no-sync-at-open":
        log_store._make_durable = nothing
        log_store.sync_directory = nothing
    elif mistake == "only-sync-at-open":
        log_store._make_durable = sync_only
    elif mistake == "sync-again":
        log_files.SegmentFile.sync = sync_again  # type: ignore[method-assign]
    elif mistake == "early":
        write, sync = log_files.SegmentFile.write, log_files.SegmentFile.sync
        log_files.SegmentFile.sync = nothing  # type: ignore[method-assign]

        def sync_then_write(file: log_files.SegmentFile, buffers: list[bytes]) -> None:
            sync(file)
            write(file, buffers)

        log_files.SegmentFile.write = sync_then_write  # type: ignore[assignment,method-assign]


def live(directory: Path, life: int, random: Random, told: int, *, sync: bool) -> LoggingReplica:
    """Appends until it is killed, or its disk fails. Says how many frames are durable as soon as it hears of
    it."""

    def say(frames: int) -> None:
        os.write(told, b"%d\n" % frames)

    replica = LoggingReplica(directory, life=life, sync=sync)
    say(replica.frames_found)
    appended = replica.answers.appended

    def tell(tickets: tuple[int, ...]) -> None:
        appended(tickets)
        say(replica.frames_after[tickets[-1]])

    replica.store._appended = tell
    while True:
        if replica.answers.failures:
            return replica
        for _ in range(random.randrange(1, 6)):
            replica.write(1, size=random.choice((8, 60, 600, 6000)), records=random.randrange(1, 8))
        if random.random() < 0.02:
            replica.store.trim(max(0, replica.zones.green_runs - 200))
        if random.random() < 0.5:
            replica.answers.wait(lambda: replica.answers.tickets[-1:] == [replica.tickets])


def run_life(directory: Path, cut: PowerCut, life: int, random: Random, *, sync: bool) -> int:
    """A process of its own. Returns how many frames it was told to be durable."""
    is_timed = random.random() < 0.3
    environment = cut.environment(
        0 if is_timed else random.randrange(1, CHANGES_MAX), random.choice((0, random.randrange(1, 60)))
    )
    reading, told = os.pipe()
    seed = random.getrandbits(32)
    child = os.fork()
    if not child:
        try:
            os.environ.update(environment)
            inner = Random(seed)
            for opening in count(life << 20):
                with suppress(StorageError):  # that opening has failed
                    live(directory, opening, inner, told, sync=sync).store.close()
        except BaseException:
            traceback.print_exc()
        os._exit(3)  # a life ends by a signal only
    os.close(told)
    deadline = time.monotonic() + (random.random() * LIFE_S_MAX if is_timed else 30)
    heard = b""
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(reading, 65_536)
        if not piece:
            break
        heard += piece
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while piece := os.read(reading, 65_536):
        heard += piece
    os.close(reading)
    assert os.WIFSIGNALED(status), f"life {life} failed: see above"
    return int(heard.split(b"\n")[-2]) if b"\n" in heard else 0


def examine(directory: Path, durable: int, known: dict[int, tuple[object, ...]]) -> str:
    """What is wrong with the log; empty if nothing is."""
    if not any(directory.glob("*.segment")):
        return f"{durable} frames were durable, and there is no log" if durable else ""
    report = check(directory)
    if not report.is_good:
        return "; ".join(report.all_problems)
    reader = LogReader(directory)
    with reader.at_end() as cursor:
        frames = cursor.zones.frames
    if frames < durable:
        return f"{durable} frames were durable, and {frames} are there"
    records: list[Record] = list(reader.records(reader.first_position))
    for record in records:
        content = (record.run, record.index, record.payload)
        if known.setdefault(record.position, content) != content:
            return f"position {record.position} was {known[record.position]} and is {content}"
    positions = [record.position for record in records]
    if positions != list(range(reader.first_position, reader.first_position + len(positions))):
        return f"positions {positions[:3]}...{positions[-3:]} have gaps"
    return ""


def main() -> int:
    directory, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    mistake = sys.argv[4] if len(sys.argv) > 4 else ""
    make(mistake)
    random = Random(seed)
    cut = PowerCut(directory, directory.with_name("journal"), random)
    known: dict[int, tuple[object, ...]] = {}
    counts = {"kills": 0, "cuts": 0, "taken_back": 0, "durable": 0}
    durable = 0
    for life in range(1, rounds + 1):
        durable = max(durable, run_life(directory, cut, life, random, sync=mistake != "no-sync"))
        counts["kills"] += 1
        counts["durable"] = durable
        if random.random() < 0.7:
            counts["cuts"] += 1
            counts["taken_back"] += cut.take_back()
            wrong = examine(directory, durable, known)
            if wrong:
                print(json.dumps(counts | {"life": life, "wrong": wrong}))
                return 1
            durable = 0  # what is there now is durable: the next life finds at least that
            if any(directory.glob("*.segment")):
                with LogReader(directory).at_end() as cursor:
                    durable = cursor.zones.frames
    print(json.dumps(counts | {"positions": len(known)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
