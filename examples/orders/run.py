"""The whole demo: three nodes, producers, the Spark pipeline and a dashboard.

    python run.py [DIRECTORY]            # then open http://127.0.0.1:8000
    python run.py --fire                 # and kill nodes, executors, the driver and producers meanwhile

What ends is started again. When all orders have their invoices, the logs of all three replicas are compared
with what was sent, and the running table with the log. Exit status 0: they are equal, row for row.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from books import Books, compare, newest_table
from fire import Fire
from nodes import NUMBERS, command, sockets, wait_for_log
from parts import Part, PartFailed

from totempole import Reconnect, blocking
from totempole.spark.java import java_home

HERE = Path(__file__).parent
TICK_S = 0.1
SHOW_S = 5.0
SAME_S_MAX = 10.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", nargs="?", type=Path, help="a new one; else a temporary one")
    parser.add_argument("--orders", type=int, default=5000, metavar="N", help="until there are so many")
    parser.add_argument("--rate", type=float, default=100, metavar="N", help="orders a second")
    parser.add_argument(
        "--ahead", type=int, default=1000, metavar="N", help="at most so many without invoice"
    )
    parser.add_argument("--fire", action="store_true", help="kill parts at random, with kill -9")
    parser.add_argument("--seed", type=int, help="of what is killed when")
    parser.add_argument("--stay", action="store_true", help="when all is compared, go on until Ctrl-C")
    parser.add_argument("--limit", type=float, default=900, metavar="S", help="give up after so many seconds")
    parser.add_argument("--port", type=int, default=8000, help="of the dashboard")
    parser.add_argument("--master", default="local[2,4]", help="of Spark")
    return parser.parse_args()


class Demo:
    def __init__(self, directory: Path, given: argparse.Namespace) -> None:
        self.directory, self.given = directory, given
        self.nodes = [Part(f"node {number}", command(directory, number), directory) for number in NUMBERS]
        flow = ("--orders", given.orders, "--rate", given.rate, "--ahead", given.ahead)
        self.producers = self.program("produce", *flow, "--since", time.time())
        self.pipeline = self.program("pipeline", environment=spark_environment(given.master))
        self.dashboard = self.program("dashboard", "--port", given.port)
        self.parts = [*self.nodes, self.producers, self.pipeline, self.dashboard]
        random = Random(given.seed)
        self.fire = Fire(directory, self.nodes, self.pipeline, self.producers, random) if given.fire else None
        self.books = Books()
        """Of what any replica has shown so far."""
        self.position = 0
        self.start_s = time.monotonic()

    def program(self, name: str, *words: object, environment: dict[str, str] | None = None) -> Part:
        argv = [sys.executable, str(HERE / f"{name}.py"), str(self.directory), *map(str, words)]
        return Part(name, argv, self.directory, environment)

    def say(self, *words: object) -> None:
        print(f"{time.monotonic() - self.start_s:6.1f} s ", *words, flush=True)

    def run(self) -> bool:
        """Whether the logs and the table are as they must be in the end."""
        try:
            for node in self.nodes:
                node.start()
            wait_for_log(self.directory)
            self.say(f"three nodes order records; the dashboard is at http://127.0.0.1:{self.given.port}")
            self.until_done()
            self.pipeline.end()
            self.producers.end()
            holds = self.judge()
            if self.given.stay:
                self.say("the nodes and the dashboard go on until Ctrl-C")
                while True:
                    self.keep_running()
            return holds
        finally:
            for part in reversed(self.parts):
                part.end()

    def until_done(self) -> None:
        """All orders are in the log, with their invoices, and in the running table; or there is no hope."""
        order = blocking.log_reader(path=sockets(self.directory), reconnect=Reconnect(most_s=1.0))
        shown, shown_s = (-1, -1), 0.0
        while not self.is_done():
            self.keep_running()
            for record in order.read(self.position):
                self.books.add(record.log, record.position, record.time_us, record.payload)
                self.position = record.position + 1
            killed = self.fire.step(self.books.invoices) if self.fire else None
            if killed:
                self.say("kill -9", killed)
            counts, now_s = (len(self.books.orders), self.books.invoices), time.monotonic()
            if counts != shown and now_s > shown_s + SHOW_S:
                shown, shown_s = counts, now_s
                self.say(f"{counts[0]} orders, {counts[1]} invoices")
            if self.books.problems or now_s > self.start_s + self.given.limit:
                return

    def keep_running(self) -> None:
        for part in self.parts:
            part.keep_running()
        time.sleep(TICK_S)

    def is_done(self) -> bool:
        """Every order has an invoice, and the running table has them all."""
        books = self.books
        if len(books.orders) < self.given.orders or books.waiting:
            return False
        books.check_table(newest_table(self.directory))
        return books.table_position == max(sale.position for sale in books.orders.values())

    def judge(self) -> bool:
        """Compares what was sent with the log of each replica, and with the running table."""
        while any(node.process is None for node in self.nodes):
            self.keep_running()
        wait_for_log(self.directory)
        replicas = read_replicas(self.directory)
        rows = compare(replicas[0][0], newest_table(self.directory), self.given.orders)
        rows.append(("different replicas", 1, len({digest for _, digest in replicas})))
        print(f"\n{'':36}{'expected':>28}{'found':>28}")
        for what, expected, found in rows:
            print(f"{what:36}{expected:>28}{found:>28}  {'ok' if expected == found else 'WRONG'}")
        for problem in [*self.books.problems, *replicas[0][0].problems][:10]:
            print("  ", problem)
        if self.fire:
            print("killed:", ", ".join(f"{what} {count} times" for what, count in self.fire.killed.items()))
        return all(expected == found for _, expected, found in rows) and not self.books.problems


def read_replicas(directory: Path) -> list[tuple[Books, str]]:
    """All of them, once they have the same; or as they are after a while."""
    end_s = time.monotonic() + SAME_S_MAX
    while True:
        replicas = [read_replica(path) for path in sockets(directory)]
        if len({digest for _, digest in replicas}) == 1 or time.monotonic() > end_s:
            return replicas
        time.sleep(TICK_S)


def read_replica(path: str) -> tuple[Books, str]:
    """The books as one replica has them, and a digest of all its records."""
    books, digest = Books(), hashlib.sha256()
    for record in blocking.log_reader(path=path).read():
        books.add(record.log, record.position, record.time_us, record.payload)
        digest.update(repr((record.position, record.log, record.key, bytes(record.payload))).encode())
    return books, digest.hexdigest()


def spark_environment(master: str) -> dict[str, str]:
    """A Spark that starts quickly, and stays on this machine."""
    settings = "--driver-memory 1g --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"
    return {
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_SUBMIT_ARGS": f"--master {master} {settings} pyspark-shell",
    }


def main() -> None:
    given = options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        if given.directory:
            given.directory.mkdir(parents=True)
            sys.exit(0 if Demo(given.directory.resolve(), given).run() else 1)
        with tempfile.TemporaryDirectory(prefix="orders-") as directory:
            sys.exit(0 if Demo(Path(directory), given).run() else 1)
    except FileExistsError:
        sys.exit(f"{given.directory} exists: name a new directory")
    except PartFailed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted")


if __name__ == "__main__":
    main()
