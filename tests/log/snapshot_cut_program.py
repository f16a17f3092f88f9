"""Snapshots under power cuts: one life after the other puts snapshots until it is killed with -9. To be run
with powercut.c preloaded.

    snapshot_cut_program.py DIRECTORY ROUNDS SEED [MISTAKE]

After some kills the power fails too: what was not synced is taken back in part. Then every snapshot that has
its name must fit its checksum, what a life was told to be kept must be there, and a put that broke off must
go on. Prints what it did as JSON; leaves with status 1 and what is wrong, if something is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random
from unittest import mock
from zlib import crc32

from powercut import PowerCut

from totempole.log.snapshots import HEAD_BYTES, SnapshotFile, StoredHead, heads_in
from totempole.log_service import snapshot_files
from totempole.log_service.snapshot_files import RefusedError, SnapshotFiles, Unfinished

MISTAKES = ("no-sync", "no-directory-sync", "rename-first", "prune-first", "kept-one", "sync-again", "blind")
OBJECTS = ("bank", "a queue/with a name" * 10)
CHANGES_MAX = 60
LOG = 7


def content_of(name: str, position: int) -> bytes:
    return Random(f"{name} {position}").randbytes(position % 7 * 9_000 + 700)


def head_of(name: str, position: int) -> StoredHead:
    content = content_of(name, position)
    return StoredHead(name, position, "Bank", 1, len(content), crc32(content), LOG)


def make(mistake: str) -> None:
    publish, prune, sync = Unfinished.publish, SnapshotFiles.prune, Unfinished.sync
    nothing = mock.Mock()
    if mistake == "no-sync":
        Unfinished.sync = nothing  # type: ignore[method-assign]
    elif mistake == "no-directory-sync":
        snapshot_files.sync_directory = nothing
    elif mistake == "rename-first":

        def rename_first(unfinished: Unfinished) -> Path:
            Unfinished.sync = nothing  # type: ignore[method-assign]
            path = publish(unfinished)
            with suppress(OSError), open(path, "rb") as file:
                os.fdatasync(file.fileno())
            Unfinished.sync = sync  # type: ignore[method-assign]
            return path

        Unfinished.publish = rename_first  # type: ignore[method-assign]
    elif mistake == "prune-first":

        def prune_first(unfinished: Unfinished) -> Path:
            heads, _ = heads_in(unfinished._path.parent, unfinished.head.object)
            for old in heads[1:]:
                os.unlink(unfinished._path.with_name(snapshot_files.snapshot_name(old.object, old.position)))
            return publish(unfinished)

        Unfinished.publish = prune_first  # type: ignore[method-assign]
    elif mistake == "kept-one":
        snapshot_files.KEPT = 1
        SnapshotFiles.prune = lambda files, head: (*prune(files, head), 0)  # type: ignore[method-assign]
    elif mistake == "sync-again":

        def sync_again(unfinished: Unfinished) -> None:
            try:
                os.fdatasync(unfinished._file)
            except OSError:
                os.fdatasync(unfinished._file)

        Unfinished.sync = sync_again  # type: ignore[method-assign]
    elif mistake == "blind":
        left = snapshot_files._left

        def believe(file: int, path: Path, head: StoredHead) -> tuple[int, int] | None:
            """What is there of it is what was written."""
            if left(file, path, head) is None:
                return None
            offset = min(os.fstat(file).st_size - HEAD_BYTES, head.size)
            return offset, crc32(content_of(head.object, head.position)[:offset])

        snapshot_files._left = believe


def live(directory: Path, random: Random, start: dict[str, int], told: int) -> None:
    """Puts one snapshot after the other until it is killed; says which are kept as soon as it hears of it."""
    files = SnapshotFiles(directory, lambda text: None)
    while True:
        name = random.choice(OBJECTS)
        put(files, name, start[name], random, told)
        start[name] += 1


def put(files: SnapshotFiles, name: str, position: int, random: Random, told: int) -> None:
    head, content = head_of(name, position), content_of(name, position)
    try:
        unfinished = files.begin(head)
        if unfinished is None:
            kept = files.prune(head)
        else:
            if unfinished.crc != crc32(content[: unfinished.offset]):
                os.write(told, b"garbled\n")
                unfinished.restart()
            while unfinished.offset < head.size:
                unfinished.write(content[unfinished.offset :][: random.choice((512, 4_000, 20_000))])
                if random.random() < 0.3:
                    unfinished.sync()
            kept = files.finish(unfinished)
    except RefusedError as error:
        os.write(told, f"refused {error.kind}\n".encode())
        return
    os.write(told, f"kept {OBJECTS.index(name)} {position} {len(kept)}\n".encode())


def run_life(directory: Path, cut: PowerCut, random: Random, start: dict[str, int]) -> list[list[str]]:
    """A process of its own. What it said."""
    environment = cut.environment(
        random.randrange(1, CHANGES_MAX), random.choice((0, 0, random.randrange(1, 12)))
    )
    reading, told = os.pipe()
    seed = random.getrandbits(32)
    child = os.fork()
    if not child:
        try:
            os.environ.update(environment)
            live(directory, Random(seed), dict(start), told)
        except BaseException:
            traceback.print_exc()
        os._exit(3)  # a life ends by a signal only
    os.close(told)
    heard = b""
    while piece := os.read(reading, 65_536):
        heard += piece
    os.close(reading)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "a life has failed: see above"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return [line.split() for line in heard.decode().splitlines()]


def examine(directory: Path, newest: dict[str, int], puts: dict[str, int]) -> str:
    """What is wrong; empty if nothing is."""
    heads, problems = heads_in(directory)
    if problems:
        return "; ".join(problems)
    for head in heads:
        if head != head_of(head.object, head.position):
            return f"{head} was never put"
        with SnapshotFile(directory / snapshot_files.snapshot_name(head.object, head.position)) as file:
            if b"".join(file.chunks()) != content_of(head.object, head.position):
                return f"the content of {head} is not what was put"
    for name in OBJECTS:
        there = [head.position for head in heads if head.object == name]
        if newest[name] and newest[name] not in there:
            return f"position {newest[name]} of {name[:10]} was kept, and there are {there}"
        if len(there) < min(2, puts[name]):
            return f"{puts[name]} snapshots of {name[:10]} were kept, and there are {there}"
    return ""


def main() -> int:
    directory, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    make(sys.argv[4] if len(sys.argv) > 4 else "")
    random = Random(seed)
    cut = PowerCut(directory, directory.with_name("journal"), random)
    newest = dict.fromkeys(OBJECTS, 0)
    puts = dict.fromkeys(OBJECTS, 0)
    counts = {"kills": 0, "cuts": 0, "taken_back": 0, "kept": 0, "garbled": 0, "refused": 0}
    for _ in range(rounds):
        for word, *rest in run_life(directory, cut, random, {name: newest[name] + 1 for name in OBJECTS}):
            counts[word] += 1
            if word == "kept":
                name = OBJECTS[int(rest[0])]
                newest[name] = int(rest[1])
                puts[name] += 1
        counts["kills"] += 1
        if random.random() < 0.8:
            counts["cuts"] += 1
            counts["taken_back"] += cut.take_back()
        if wrong := examine(directory, newest, puts):
            print(json.dumps(counts | {"wrong": wrong}))
            return 1
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
