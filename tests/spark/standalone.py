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

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java that is to live for a minute."""
DEFAULTS = f"spark.sql.shuffle.partitions 2\nspark.executor.extraJavaOptions {QUICK_START}\n"


class Member:
    """A master or a worker, and what it writes."""

    def __init__(self, name: str, directory: Path, *command: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.scratch = directory / name
        """Where its executors put what they pass on."""
        launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [str(launcher), *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(self.scratch),
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
    """`url` is the master's. All members are ended with `ends`."""

    def __init__(self, directory: Path, ends: ExitStack) -> None:
        self._directory = directory
        self._ends = ends
        self._workers = 0
        self.master = self._started("master", MASTER, "--port", "0")
        self.url = self.master.wait_for(r"Starting Spark master at (spark://\S+)")

    @property
    def users_environment(self) -> dict[str, str]:
        """For commands that use the cluster: sized for tables of a few thousand rows, and tidy."""
        conf, scratch = self._directory / "conf", self._directory / "scratch"
        for directory in (conf, scratch):
            directory.mkdir(exist_ok=True)
        (conf / "spark-defaults.conf").write_text(DEFAULTS)
        return os.environ | {
            "SPARK_SUBMIT_OPTS": QUICK_START,
            "SPARK_CONF_DIR": str(conf),
            "TOTEM_SPARK_MEMORY": "1g",
            "TOTEM_SPARK_SCRATCH": str(scratch),
        }

    def add_worker(self) -> Member:
        """One more, of one core."""
        self._workers += 1
        name = f"worker-{self._workers}"
        work = self._directory / f"{name}-work"
        sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
        worker = self._started(name, WORKER, *sizes, self.url)
        worker.wait_for(r"(Successfully registered with master)")
        return worker

    def _started(self, name: str, what: str, *options: str) -> Member:
        member = Member(name, self._directory, what, "--host", "127.0.0.1", "--webui-port", "0", *options)
        self._ends.callback(member.kill)
        return member


@contextmanager
def standalone(directory: Path, workers: int) -> Iterator[Cluster]:
    """A master on a port of its own choice and workers, while the block lasts."""
    with ExitStack() as ends:
        cluster = Cluster(directory, ends)
        for _ in range(workers):
            cluster.add_worker()
        yield cluster


def _environment(scratch: Path) -> dict[str, str]:
    scratch.mkdir(exist_ok=True)
    return os.environ | {
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "PYSPARK_PYTHON": sys.executable,
    }
