"""Network namespaces by name, and what runs in them. A name tells who made it: tp-PROCESS-LAB-HOST."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from totempole.lab import commands

DIRECTORY = Path("/run/netns")
NAME = re.compile(r"tp-(\d+)-.+-(\d+|sw)")
ENDING_S_MAX = 5.0
"""How long a killed process may take to be gone."""


def existing() -> list[str]:
    try:
        return sorted(entry.name for entry in DIRECTORY.iterdir())
    except FileNotFoundError:
        return []


def orphans() -> list[str]:
    """Namespaces of labs whose process is gone."""
    matches = ((name, NAME.fullmatch(name)) for name in existing())
    return [name for name, match in matches if match and not is_alive(int(match[1]))]


def remove(names: Iterable[str]) -> None:
    """With all that runs inside."""
    wanted = set(names)
    there = [name for name in existing() if name in wanted]
    if there:
        _end(there)
        commands.ip([f"netns del {name}" for name in there], go_on=True)


def processes(names: Iterable[str]) -> list[int]:
    """The processes in these namespaces, whoever started them; not this one."""
    inodes = {_inode(DIRECTORY / name) for name in names} - {None}
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _inode(Path(f"/proc/{pid}/ns/net")) in inodes]


def _end(names: list[str]) -> None:
    give_up_s = time.monotonic() + ENDING_S_MAX
    while (left := processes(names)) and time.monotonic() < give_up_s:
        for pid in left:
            _kill(pid)
        time.sleep(0.005)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_alive(pid: int) -> bool:
    """A zombie is not: it is in no namespace any more."""
    return _inode(Path(f"/proc/{pid}/ns/net")) is not None
