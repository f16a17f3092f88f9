"""Processes that are started again when they end, as systemd or Kubernetes would do it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

RESTART_S = 0.5
END_S_MAX = 20.0
FAILURES_MAX = 20


class PartFailed(Exception):
    pass


class Part:
    """One program of the demo. What it prints is in NAME.log."""

    def __init__(
        self, name: str, argv: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.argv = name, argv
        self.log = directory / f"{name.replace(' ', '')}.log"
        self.environment = os.environ | dict(environment or {})
        self.process: subprocess.Popen[bytes] | None = None
        self.is_done = False
        """It has done all it was started for."""
        self.failures = 0
        self._again_s = 0.0

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,  # Ctrl-C is for run.py, which ends its parts in order
            )

    def keep_running(self) -> None:
        """Starts it again if it has ended, a little later."""
        if self.is_done:
            return
        if self.process is not None and (code := self.process.poll()) is not None:
            self.process = None
            self.is_done = code == 0
            self._again_s = time.monotonic() + RESTART_S
            self.failures += code > 0
            if self.failures > FAILURES_MAX:
                raise PartFailed(f"{self.name} has failed {self.failures} times: see {self.log}")
        if self.process is None and not self.is_done and time.monotonic() >= self._again_s:
            self.start()

    def kill(self, down_s: float = RESTART_S) -> None:
        """kill -9, with everything that it has started. It comes back after so many seconds."""
        if self.process is None:
            return
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            kill(pid)
        self.process.wait()
        self.process = None
        self._again_s = time.monotonic() + down_s

    def end(self) -> None:
        """Asks it to end, and insists."""
        self.is_done = True
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S_MAX)
        self.kill()


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Of a process: its children, theirs, and so on."""
    assert pid > 1, "all other processes descend from that one"
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, at = [*children.get(pid, ())], 0
    while at < len(found):
        found += children.get(found[at], ())
        at += 1
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
