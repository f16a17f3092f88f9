"""Power cuts for a process that was killed: takes back what it wrote and never synced (powercut.c).

What a disk may have of unsynced writes is any part of them, sector by sector. Names that were created,
changed or removed since the directory was synced last are taken back from the last one on, as a file system
with a journal does it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random
from struct import Struct

SOURCE = Path(__file__).with_name("powercut.c")
SECTOR_BYTES = 512
WRITTEN, RESIZED, SYNCED, CREATED, RENAMED, REMOVED, DIRECTORY_SYNCED, SYNC_FAILED = range(1, 9)
_HEAD = Struct("=IIQQQQQ")


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(directory: Path) -> Path:
    """The library to preload."""
    library = directory / "powercut.so"
    found = compiler()
    assert found is not None, "there is no C compiler"
    subprocess.run([found, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
    return library


@dataclass(frozen=True, slots=True)
class Change:
    """A record of the library's journal."""

    kind: int
    inode: int
    offset: int
    old_size: int
    covered: int
    names: tuple[Path, ...]
    old: bytes


def read_journal(path: Path) -> list[Change]:
    content = path.read_bytes() if path.exists() else b""
    changes = []
    at = 0
    while at < len(content):
        kind, names_bytes, inode, offset, old_bytes, old_size, covered = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        names = content[at : at + names_bytes].split(b"\0")[:-1]
        at += names_bytes
        old = content[at : at + old_bytes]
        at += old_bytes
        changes.append(
            Change(
                kind, inode, offset, old_size, covered, tuple(Path(os.fsdecode(name)) for name in names), old
            )
        )
    return changes


class PowerCut:
    def __init__(self, root: Path, journal: Path, random: Random) -> None:
        self.root = root
        self.journal = journal
        self._random = random

    def environment(self, at: int, fail: int = 0) -> dict[str, str]:
        """For the process: it dies at its so-manieth change, and its so-manieth sync fails; 0: never."""
        return {
            "POWERCUT_ROOT": str(self.root),
            "POWERCUT_JOURNAL": str(self.journal),
            "POWERCUT_AT": str(at),
            "POWERCUT_FAIL": str(fail),
            "POWERCUT_RECORDS": str(len(read_journal(self.journal))),
        }

    def take_back(self) -> int:
        """The power has failed. Returns how many changes no sync had covered."""
        changes = read_journal(self.journal)
        unsynced = self._take_back_names(changes)
        files = {each.stat().st_ino: each for each in self.root.iterdir()}
        by_file: dict[int, list[Unsynced]] = defaultdict(list)
        for each in _unsynced_contents(changes):
            unsynced += 1
            by_file[each.change.inode].append(each)
        for inode, of_file in by_file.items():
            if inode in files:
                self._take_back_contents(files[inode], of_file)
        for grave in self.journal.parent.glob(f"{self.journal.name}*"):
            grave.unlink()
        return unsynced

    def _take_back_names(self, changes: list[Change]) -> int:
        covered = max((each.covered for each in changes if each.kind == DIRECTORY_SYNCED), default=0)
        pending = [each for each in changes[covered:] if each.kind in (CREATED, RENAMED, REMOVED)]
        for change in reversed(pending[self._random.randint(0, len(pending)) :]):
            first = change.names[0]
            if change.kind == CREATED:
                first.unlink(missing_ok=True)
            elif change.kind == REMOVED:
                os.link(f"{self.journal}.{change.inode}", first)
            elif change.names[1].exists():
                os.rename(change.names[1], first)
        return len(pending)

    def _take_back_contents(self, path: Path, unsynced: list[Unsynced]) -> None:
        """Each sector has what it held before one of the writes, or after the last."""
        random = self._random
        kept = random.choice((0.0, 0.1, 0.5, 0.9))
        size = path.stat().st_size
        if random.random() >= kept:
            size = next((each.change.old_size for each in unsynced if not each.is_size_synced), size)
        with open(path, "r+b") as file:
            chosen: dict[int, int] = {}
            for index in range(len(unsynced) - 1, -1, -1):
                change = unsynced[index].change
                start, end = change.offset, change.offset + len(change.old)
                for sector in sorted(unsynced[index].sectors):
                    if chosen.setdefault(sector, _version(random, kept, index)) <= index:
                        low, high = max(start, sector * SECTOR_BYTES), min(end, (sector + 1) * SECTOR_BYTES)
                        file.seek(low)
                        file.write(change.old[low - start : high - start])
            file.truncate(size)


def _version(random: Random, kept: float, last: int) -> int:
    """Writes from this one on are taken back in a sector that was last changed by the write `last`."""
    return last + 1 if random.random() < kept else random.randint(0, last)


@dataclass(slots=True)
class Unsynced:
    """A change of a file's content or size that is not on the disk, or not all of it."""

    change: Change
    sectors: set[int]
    """Those that are not."""
    is_lost: bool = False
    """A sync has failed after it: no later one writes it, unless it is written again."""
    is_size_synced: bool = False


def _unsynced_contents(changes: list[Change]) -> list[Unsynced]:
    """Of all files, in their order."""
    unsynced: dict[int, Unsynced] = {}
    """By the numbers of the changes."""
    for index, change in enumerate(changes):
        if change.kind in (WRITTEN, RESIZED):
            unsynced[index] = Unsynced(change, _sectors(change))
        elif change.kind in (SYNCED, SYNC_FAILED):
            covered = {
                number: each
                for number, each in unsynced.items()
                if each.change.inode == change.inode and number < change.covered
            }
            if change.kind == SYNC_FAILED:
                for each in covered.values():
                    each.is_lost = True
                continue
            written: set[int] = set()
            for number, each in covered.items():
                if not each.is_lost:
                    written |= each.sectors
                    del unsynced[number]
            for number, each in covered.items():
                each.sectors -= written  # of what was lost, so much was written again
                each.is_size_synced = True
                if number in unsynced and not each.sectors:
                    del unsynced[number]
    return [each for _, each in sorted(unsynced.items())]


def _sectors(change: Change) -> set[int]:
    end = change.offset + len(change.old)
    return set(range(change.offset // SECTOR_BYTES, -(-end // SECTOR_BYTES))) if change.old else set()
