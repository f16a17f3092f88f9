"""All processes of a run under fire: three nodes whose power can fail, programs that append, and a driver.

Who dies when is the plan's to say (`fire_plan`). Here is how, and how each comes back.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from fire_points import (
    AIMS,
    EVENTS,
    FIRED,
    GO_ON,
    PAUSED,
    REPLICA,
    STAGE,
    START,
    Aim,
    Start,
    command_line,
    kill,
    parent_of,
    session_members,
)
from powercut import PowerCut

import totempole
from daemons import Cluster, Daemon, cluster
from totempole.client.endpoint import Reconnect
from totempole.errors import SessionError
from totempole.runtime.status import StatusError, read_status

LOG = "[log]\nenabled = true\nreplicas = [1, 2, 3]\nsegment_bytes = 65536\n"
BRISK = "token_loss_us = 300000\ntoken_retransmission_us = 50000\nconsensus_us = 50000\n"
QUICK = Reconnect(first_s=0.05, most_s=0.2)
HERE = Path(__file__).parent
LIMIT_S = 300.0
"""What must come has come by then, on a machine that has much else to do."""
POLL_S = 0.02


class Stuck(AssertionError):
    """Something that must come does not."""


# Nodes


class Node:
    """A replica whose log forgets what was not synced when its power fails."""

    def __init__(self, daemon: Daemon, library: Path, random: Random) -> None:
        self.daemon = daemon
        self.taken_back = 0
        self.back_s: float | None = None
        """When it is started again; None: it runs."""
        self._library = library
        self._cut = PowerCut(
            daemon.directory / "log", daemon.directory.parent / f"journal{daemon.number}", random
        )

    @property
    def is_up(self) -> bool:
        return self.back_s is None

    def start(self) -> None:
        self._cut.root.mkdir(parents=True, exist_ok=True)
        self.daemon.environment = {**os.environ, "LD_PRELOAD": str(self._library), **self._cut.environment(0)}
        self.daemon.start()
        self.back_s = None

    def stop(self) -> None:
        assert self.daemon.process is not None, "it is up"
        self.daemon.process.send_signal(signal.SIGSTOP)

    def kill(self, down_s: float, *, power: bool) -> None:
        """`power`: it fails. Otherwise the process dies, its log service ends by itself, and the disk has all
        that the kernel has."""
        assert self.daemon.process is not None, "it is up"
        services = children_of(self.daemon.process.pid) if power else []
        self.daemon.end(signal.SIGKILL)
        if power:
            for pid in services:
                kill(pid)
            while any(map(is_alive, services)):
                time.sleep(0.001)
            self.taken_back += self._cut.take_back()
        self.back_s = time.monotonic() + down_s

    @property
    def log(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = read_status(self.daemon.directory).get("log", {})
            return found
        except StatusError:
            return {}


# Programs that append


class Appenders:
    """Programs that append rows with keys to the log "in", through whatever happens to the daemons."""

    def __init__(self, sockets: list[str], count: int = 3) -> None:
        self.payloads: dict[str, bytes] = {}
        """By key, of all that was given to them."""
        self.told: dict[str, int] = {}
        """The positions that they were told."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="appenders", daemon=True)
        self._thread.start()
        self._under_way: list[Future[None]] = []
        self._queues: list[asyncio.Queue[list[str] | None]] = [asyncio.Queue() for _ in range(count)]
        self._programs = [
            asyncio.run_coroutine_threadsafe(
                self._run(queue, sockets[number % 3 :] + sockets[: number % 3]), self._loop
            )
            for number, queue in enumerate(self._queues)
        ]

    def append(self, random: Random, rows: int) -> None:
        """Begins; does not wait."""
        for queue in self._queues:
            keys = []
            for _ in range(max(1, rows // len(self._queues))):
                key = f"row-{len(self.payloads)}"
                self.payloads[key] = f"{key}|".encode() + random.randbytes(random.randint(0, 300))
                keys.append(key)
            self._loop.call_soon_threadsafe(queue.put_nowait, keys)

    @property
    def is_done(self) -> bool:
        for program in self._programs:
            if program.done():
                program.result()
        return len(self.told) == len(self.payloads)

    def close(self) -> None:
        for queue in self._queues:
            self._loop.call_soon_threadsafe(queue.put_nowait, None)
        for program in self._programs:
            with suppress(Exception):
                program.result(5)
            program.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _run(self, queue: asyncio.Queue[list[str] | None], sockets: list[str]) -> None:
        await self._first(sockets[0])
        async with totempole.connect(sockets, reconnect=QUICK) as session, session.log("in") as log:
            while (keys := await queue.get()) is not None:
                while True:
                    try:
                        found = await log.append_many([self.payloads[key] for key in keys], keys, timeout=20)
                        break
                    except SessionError:  # keys make it safe to do it again
                        await asyncio.sleep(0.1)
                self.told.update(zip(keys, found, strict=True))

    async def _first(self, socket: str) -> None:
        while not Path(socket).exists():
            await asyncio.sleep(POLL_S)


# The driver


class Driver:
    """The program under fire, with Java and all of Spark's processes: a session of its own."""

    def __init__(self, directory: Path) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.spared: set[int] = set()
        """Paused processes of drivers that are dead otherwise."""
        self._directory = directory

    def start(self, how: Start) -> None:
        file = self._directory / START
        partial = file.with_suffix(".new")
        partial.write_bytes(msgspec.json.encode(how))
        partial.rename(file)
        environment = {**os.environ} | {
            STAGE: str(self._directory),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "SPARK_LOCAL_DIRS": str(self._directory / "scratch"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # Spark starts several processes for each batch
        with (self._directory / f"driver{how.number}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "fire_pipeline.py")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        """With all of its processes, but for those that are paused."""
        if self.process is None:
            return
        while left := [pid for pid in session_members(self.process.pid) if pid not in self.spared]:
            for pid in left:
                kill(pid)
            time.sleep(0.01)
        self.process.wait()
        self.process = None

    def executors(self) -> list[int]:
        """Those of a cluster that work for this driver; without one, Python processes that run tasks."""
        if self.process is None:
            return []
        own = f"{STAGE}={self._directory}"
        found = [pid for pid in processes() if "CoarseGrainedExecutorBackend" in command_line(pid)]
        return [pid for pid in found if own in environment_of(pid)] or self._workers()

    def _workers(self) -> list[int]:
        """Their daemon is PySpark's, or `totempole.spark.quiet_daemon`."""
        assert self.process is not None, "it runs"
        members = session_members(self.process.pid)
        daemons = {pid for pid in members if "daemon pyspark.worker" in command_line(pid)}
        found = []
        for pid in members:
            with suppress(OSError):
                if parent_of(pid) in daemons:
                    found.append(pid)
        return found


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def children_of(pid: int) -> list[int]:
    found = []
    for each in processes():
        with suppress(OSError):
            if parent_of(each) == pid:
                found.append(each)
    return found


def environment_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Everything


class Stage:
    def __init__(self, directory: Path, them: Cluster, library: Path, random: Random) -> None:
        self.directory = directory
        self.nodes = {
            number: Node(daemon, library, Random(random.random())) for number, daemon in them.daemons.items()
        }
        self.sockets = [str(daemon.socket) for daemon in them.daemons.values()]
        self.driver = Driver(directory)
        self.starts: list[Start] = []
        self.fired: Counter[str] = Counter()
        """What was killed, how often."""
        self.events: list[dict[str, Any]] = []
        self.appenders: Appenders
        self.random = random
        self._events_read = 0
        self._paused: dict[str, tuple[int, int]] = {}
        """Aims whose process waits for another driver: its id, and how many events there were then."""
        self._late: dict[str, int] = {}
        """Likewise those that go on now."""
        self._aims = 0
        self._next_start: Callable[[int], Start] = lambda number: Start(number, "", 1, 100)
        self._is_ending = False
        for name in (AIMS, FIRED, GO_ON, "scratch"):
            (directory / name).mkdir(parents=True)

    # Starting and ending

    def start_nodes(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.wait(self._is_primary, self._node_logs)
        self.appenders = Appenders(self.sockets)

    def start_driver(self, next_start: Callable[[int], Start]) -> None:
        """`next_start` says how each one is started, by its number."""
        self._next_start = next_start
        self._start_driver()

    def _start_driver(self) -> None:
        how = self._next_start(len(self.starts))
        self.starts.append(how)
        self.driver.start(how)

    def end_driver(self) -> None:
        """Both queries have stopped, and the program has ended well."""
        self._is_ending = True
        (self.directory / "end").touch()
        self.wait(lambda: self.driver.process is None, lambda: self.driver_log())

    def close(self) -> None:
        self.driver.kill()
        for pid in self.driver.spared:
            if f"{STAGE}={self.directory}" in environment_of(pid):
                kill(pid)

    # What is killed

    def aim(self, point: str, victim: str, at: int = 1) -> Aim:
        self._aims += 1
        aim = Aim(f"aim{self._aims}", point, victim, at)
        partial = self.directory / f"{aim.id}.partial"
        partial.write_bytes(msgspec.json.encode(aim))
        partial.rename(self.directory / AIMS / f"{aim.id}.json")
        return aim

    def withdraw(self, aim: Aim) -> bool:
        """Whether it had not fired."""
        try:
            (self.directory / AIMS / f"{aim.id}.json").unlink()
            return True
        except FileNotFoundError:
            return False

    def has_fired(self, aim: Aim) -> bool:
        return not (self.directory / AIMS / f"{aim.id}.json").exists()

    def kill_driver(self) -> None:
        if self.driver.process is not None:
            self.driver.kill()
            self.fired["driver"] += 1
            self._note("driver killed")

    def kill_executor(self) -> bool:
        executors = self.driver.executors()
        if executors:
            kill(self.random.choice(executors))
            self.fired["executor"] += 1
            self._note("executor killed")
        return bool(executors)

    def kill_replicas(self, numbers: list[int], down_s: float, *, power: bool) -> None:
        """All at the same instant."""
        up = [self.nodes[number] for number in numbers if self.nodes[number].is_up]
        for node in up:
            node.stop()  # one after the other would let the last one order without the others
        for node in up:
            node.kill(down_s, power=power)
            self.fired["replica's power" if power else "replica"] += 1
            self._note(f"replica {node.daemon.number} {'loses power' if power else 'killed'}")
        if len(up) == len(self.nodes):
            self.fired["all replicas"] += 1

    # What comes back

    def tend(self) -> None:
        """Nodes that are due are started; a driver that is dead is started again; aims that wait are
        answered."""
        now_s = time.monotonic()
        for node in self.nodes.values():
            if node.back_s is not None and now_s >= node.back_s:
                node.start()
        self._read_events()
        process = self.driver.process
        if process is not None and process.poll() is not None:
            code = process.returncode
            self._read_events()  # one of its processes may be paused
            self.driver.kill()
            if code == 0 and self._is_ending:
                return
            if code >= 0:
                self._note("driver ended", code=code, text=self.driver_log()[-3000:])
        if self.driver.process is None and self.starts and not self._is_ending:
            self._start_driver()
        self._resume_paused()

    def _read_events(self) -> None:
        try:
            with (self.directory / EVENTS).open("rb") as file:
                file.seek(self._events_read)
                for line in file:
                    if line.endswith(b"\n"):
                        self._events_read += len(line)
                        self._take(json.loads(line))
        except FileNotFoundError:
            pass

    def _take(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["event"] != "fired":
            return
        self.fired[event["point"]] += 1
        if event["victim"] != REPLICA:  # those are counted where they are killed
            self.fired[event["victim"]] += 1
        if event["victim"] == REPLICA:
            first = self.sockets.index(self.starts[-1].replicas.split(",")[0]) + 1
            chosen = first if self.random.random() < 0.7 else self.random.choice([*self.nodes])
            self.kill_replicas([chosen], self.random.uniform(0.1, 2), power=self.random.random() < 0.6)
            (self.directory / GO_ON / event["aim"]).touch()
        elif event["victim"] == PAUSED:
            self.driver.spared.add(event["pid"])
            self._paused[event["aim"]] = (event["pid"], len(self.events))

    def _resume_paused(self) -> None:
        """Once another driver has published something."""
        for aim, (pid, since) in list(self._paused.items()):
            if any(each["event"] == "published" for each in self.events[since:]):
                (self.directory / GO_ON / aim).touch()
                self._late[aim] = pid
                del self._paused[aim]
        for aim, pid in list(self._late.items()):
            if not is_alive(pid):
                del self._late[aim]

    @property
    def has_paused(self) -> bool:
        return bool(self._paused or self._late)

    # Waiting

    def wait(self, holds: Callable[[], object], what: Callable[[], str]) -> None:
        end_s = time.monotonic() + LIMIT_S
        while not holds():
            self.tend()
            if time.monotonic() > end_s:
                raise Stuck(what())
            time.sleep(POLL_S)

    def _is_primary(self) -> bool:
        return all(
            node.is_up and node.log.get("standing") == "primary" and node.log.get("members") == [1, 2, 3]
            for node in self.nodes.values()
        )

    def wait_for_replicas(self) -> None:
        self.wait(self._is_primary, self._node_logs)

    def _node_logs(self) -> str:
        return "\n".join(node.daemon.log()[-2000:] for node in self.nodes.values())

    def driver_log(self) -> str:
        file = self.directory / f"driver{len(self.starts) - 1}.log"
        return file.read_text(errors="backslashreplace") if file.exists() else ""

    def _note(self, event: str, **more: object) -> None:
        self.events.append({"event": event, "time": time.time()} | more)

    # How far queries are

    def committed(self, query: str) -> int:
        """Positions before this one are read, and what came of them is written."""
        commits = self.directory / "checkpoints" / query / "commits"
        numbers = [int(file.name) for file in commits.glob("*") if file.name.isdecimal()]
        if not numbers:
            return 0
        offsets = self.directory / "checkpoints" / query / "offsets" / str(max(numbers))
        return int(json.loads(offsets.read_text().splitlines()[-1])["position"])

    @property
    def has_caught_up(self) -> bool:
        """All that was given to appenders is in the log, and both queries are behind it."""
        if not self.appenders.is_done:
            return False
        last = max(self.appenders.told.values(), default=-1)
        return all(self.committed(query) > last for query in ("out", "table"))


@contextmanager
def staged(directory: Path, library: Path, seed: int) -> Iterator[Stage]:
    """Nodes that order records, and programs that can append. No driver yet."""
    with ExitStack() as ends:
        them = ends.enter_context(cluster(3, directory, BRISK + LOG, start=False))
        stage = Stage(directory / "stage", them, library, Random(seed))
        ends.callback(stage.close)
        stage.start_nodes()
        ends.callback(stage.appenders.close)
        yield stage
