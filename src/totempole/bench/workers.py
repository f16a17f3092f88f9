"""Programs on the hosts of a lab that are led by lines of text and answer with lines of JSON."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from totempole.errors import TotemError
from totempole.lab import Host
from totempole.lab.loopback import LoopbackHost

ANSWER_S_MAX = 30.0
"""A machine that is busy takes its time."""
SETTLING_S_MAX = 60.0
PAUSE_S = 0.01
LOG_SHOWN = 2_000


class WorkerError(TotemError):
    """A program did not do what it was to do. The text has the end of its log."""


class Worker:
    """A module that runs on a host: `python -m MODULE WORDS`. Ends with its standard input."""

    def __init__(self, host: Host | LoopbackHost, module: str, words: Iterable[object], log: Path) -> None:
        self.host = host
        self.name = f"{module.rpartition('.')[2]} on host {host.number}"
        self.told: dict[str, dict[str, Any]] = {}
        """What it said last, by event; but reports go to who asked for them."""
        self._log = log
        self._reports: queue.Queue[dict[str, Any]] = queue.Queue()
        with log.open("ab") as errors:
            self.process: subprocess.Popen[str] = host.popen(
                [sys.executable, "-P", "-m", module, *map(str, words)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if not line.endswith("\n"):
                return  # it was killed in the middle of a word
            said = json.loads(line)
            if said["event"] == "report":
                self._reports.put(said)
            else:
                self.told[said["event"]] = said

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise self.failure("has ended") from error

    def report(self, limit_s: float = ANSWER_S_MAX) -> dict[str, Any]:
        self.tell("report")
        return self.answer(limit_s)

    def answer(self, limit_s: float = ANSWER_S_MAX) -> dict[str, Any]:
        """The next report, which something else has asked for."""
        give_up_s = time.monotonic() + limit_s
        while time.monotonic() < give_up_s:
            with suppress(queue.Empty):
                return self._reports.get(timeout=0.2)
            if self.process.poll() is not None:
                raise self.failure("has ended")
        raise self.failure("does not answer")

    def failure(self, what: str) -> WorkerError:
        said = self._log.read_text(encoding="utf-8", errors="replace")[-LOG_SHOWN:]
        return WorkerError(f"{self.name} {what}: {said.strip() or '(it wrote nothing)'}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what was written to it last found nobody there
                pipe.close()


def wait_until(
    holds: Callable[[], bool], workers: Iterable[Worker], what: str, limit_s: float = SETTLING_S_MAX
) -> None:
    """WorkerError when a worker ends meanwhile, or when it takes too long."""
    watched = list(workers)
    give_up_s = time.monotonic() + limit_s
    while not holds():
        for worker in watched:
            if worker.process.poll() is not None:
                raise worker.failure("has ended")
        if time.monotonic() > give_up_s:
            raise watched[0].failure(f"waits for {what} in vain")
        time.sleep(PAUSE_S)
