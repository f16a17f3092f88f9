"""A standalone Spark cluster on loopback, from the package alone: a master, and workers that can be killed.

Each is the leader of a process group of its own, with its executors in it; all are ended and waited for.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from totempole.spark.java import java_home

READY_S = 120.0
"""A cluster is up in ten seconds; a machine at work on much else may take longer."""
POLL_S = 0.1


class Member:
    """A master or a worker, and what it writes."""

    def __init__(self, name: str, directory: Path, *command: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [str(launcher), *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(directory / name),
                start_new_session=True,
            )

    def wait_for(self, pattern: str) -> str:
        """What the log says that fits, its first group."""
        end_s = time.monotonic() + READY_S
        while time.monotonic() < end_s:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            assert self._process.poll() is None, f"{self.name} ended:\n{self.log.read_text()}"
            time.sleep(POLL_S)
        raise AssertionError(f"{self.name}: nothing like {pattern!r} in\n{self.log.read_text()}")

    def kill(self) -> None:
        """At once, with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Cluster:
    def __init__(self, master: Member, url: str, workers: list[Member]) -> None:
        self.master = master
        self.url = url
        self.workers = workers


@contextmanager
def standalone(directory: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master on a port of its own choice and workers of one core each, while the block lasts."""
    with ExitStack() as ends:
        master = Member(
            "master", directory, "org.apache.spark.deploy.master.Master", *_on_loopback(), "--port", "0"
        )
        ends.callback(master.kill)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")
        started = []
        for number in range(1, workers + 1):
            worker = _worker(f"worker-{number}", directory, url)
            ends.callback(worker.kill)
            started.append(worker)
        for worker in started:
            worker.wait_for(r"(Successfully registered with master)")
        yield Cluster(master, url, started)


def _worker(name: str, directory: Path, url: str) -> Member:
    sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"{name}-work"))
    return Member(name, directory, "org.apache.spark.deploy.worker.Worker", *_on_loopback(), *sizes, url)


def _on_loopback() -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--webui-port", "0")


def _environment(scratch: Path) -> dict[str, str]:
    scratch.mkdir(exist_ok=True)
    return os.environ | {
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }
