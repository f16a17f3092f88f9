"""Three nodes on this machine, each with a replica of the durable log. They need no root.

    python nodes.py DIRECTORY            # until Ctrl-C; prints how to reach them

Each node has an address of its own on the loopback interface. Its settings, socket and log are in
DIRECTORY/node1, node2 and node3.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Self

from totempole.runtime.status import StatusError, read_status

NUMBERS = (1, 2, 3)
START_S_MAX = 60.0

SETTINGS = """\
processor = {number}
directory = "{home}"
lag_alarm_ms = 60000                  # a laptop that is busy with Spark is no alarm

[network]
address = "{network}.{number}"
port = 5400
transport = "mesh"                    # unicast: the loopback interface has no multicast
peers = {peers}

[security]
unsealed = true                       # nothing leaves this machine; elsewhere: totem keygen

[ring]
token_loss_us = 300000                # patient, for the same reason
token_retransmission_us = 50000

[log]
enabled = true
replicas = [1, 2, 3]                  # a majority, two of these, orders records
"""


def sockets(directory: Path) -> list[str]:
    """Where programs reach the nodes: they use one, and go to another when that is gone."""
    return [str(home(directory, number) / "clients.sock") for number in NUMBERS]


def home(directory: Path, number: int) -> Path:
    return directory.resolve() / f"node{number}"


def write_settings(directory: Path, number: int) -> Path:
    place = zlib.crc32(bytes(directory.resolve()))  # two demos on one machine do not meet
    network = f"127.{64 + place % 128}.{place // 128 % 256}"
    peers = [f"{other}@{network}.{other}" for other in NUMBERS]
    file = directory.resolve() / f"node{number}.toml"
    text = SETTINGS.format(number=number, home=home(directory, number), network=network, peers=peers)
    file.write_text(text.replace("'", '"'), encoding="utf-8")
    return file


def command(directory: Path, number: int) -> list[str]:
    """How to start one of them."""
    return [sys.executable, "-m", "totempole", "node", "--config", str(write_settings(directory, number))]


def status(directory: Path, number: int) -> dict[str, object]:
    """What a node says about its log. Empty: it is down."""
    try:
        return read_status(home(directory, number)).get("log") or {}
    except StatusError:
        return {}


def wait_for_log(directory: Path) -> None:
    """Until all three replicas order records together."""
    end_s = time.monotonic() + START_S_MAX
    while any(status(directory, number).get("members") != [*NUMBERS] for number in NUMBERS):
        if time.monotonic() > end_s:
            sys.exit(f"the nodes do not come up: see the logs in {directory}")
        time.sleep(0.05)


class Nodes:
    """The three nodes while a `with` block lasts."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.sockets = sockets(directory)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Starts all, and waits until they order records."""
        try:
            for number in NUMBERS:
                self.start(number)
            wait_for_log(self.directory)
        except BaseException:
            self.close()
            raise

    def start(self, number: int) -> None:
        with (self.directory / f"node{number}.log").open("ab") as log:
            argv = command(self.directory, number)
            self._processes[number] = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)

    def kill(self, number: int) -> None:
        """kill -9, as a crash does it."""
        process = self._processes.pop(number)
        process.kill()
        process.wait()

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for number in list(self._processes):
            try:
                self._processes[number].wait(10)
            except subprocess.TimeoutExpired:
                self.kill(number)
        self._processes.clear()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with Nodes(Path(sys.argv[1])) as nodes:
            print("three nodes order records; their sockets:", *nodes.sockets, sep="\n  ", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print()
