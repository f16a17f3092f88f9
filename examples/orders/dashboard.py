"""One page that shows the demo live.

    python dashboard.py DIRECTORY [--port 8000]        # then open http://127.0.0.1:8000

It reads the order of all logs from any node that is alive, and the running table from its files. `/state` is
the same as JSON, `/live` as Server-Sent Events, twice a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from asyncio import StreamReader, StreamWriter
from collections import deque
from contextlib import suppress
from pathlib import Path

from books import Books, Sale, newest_table
from nodes import NUMBERS, sockets, status

import totempole

PAGE = Path(__file__).with_name("dashboard.html")
TICK_S = 0.5
SHOWN_S = 120


class Dashboard:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.books = Books()
        self.table: dict[str, dict[str, int]] = {}
        self.nodes: list[dict[str, object]] = []
        self.position = -1
        self.last: dict[str, deque[dict[str, object]]] = {
            "orders": deque(maxlen=8),
            "invoices": deque(maxlen=8),
        }
        self.delays_ms: deque[float] = deque(maxlen=500)
        self.history: dict[float, tuple[int, int]] = {}
        """Orders and invoices in the log, by the time of the records."""

    async def read(self) -> None:
        """Follows the order. When its node is killed, the reading goes on at another one, without a gap."""
        order = totempole.log_reader(path=sockets(self.directory), reconnect=totempole.Reconnect(most_s=1.0))
        async for batch in order.batches(follow=True):
            for record in batch:
                invoiced = self.books.add(record.log, record.position, record.time_us, record.payload)
                if invoiced:
                    self.delays_ms.append((record.time_us - invoiced.time_us) / 1000)
                if record.log in self.last:
                    self.last[record.log].appendleft(json.loads(record.payload))
                self.position = record.position
            self._remember(batch.time_us / 1e6)

    def _remember(self, time_s: float) -> None:
        tick = time_s // TICK_S * TICK_S
        self.history[tick] = len(self.books.orders), self.books.invoices
        while next(iter(self.history)) < tick - SHOWN_S:
            del self.history[next(iter(self.history))]

    async def look(self) -> None:
        """What is not in the log: the running table, and which nodes are alive."""
        while True:
            self.table = await asyncio.to_thread(newest_table, self.directory) or self.table
            self.books.check_table(self.table)
            self.nodes = await asyncio.gather(*[asyncio.to_thread(self._node, number) for number in NUMBERS])
            await asyncio.sleep(TICK_S)

    def _node(self, number: int) -> dict[str, object]:
        log = status(self.directory, number)
        standing = log.get("standing", "down")
        return {"number": number, "standing": standing, "position": log.get("position", 0)}

    def state(self) -> dict[str, object]:
        books, delays = self.books, sorted(self.delays_ms)
        return {
            "position": self.position,
            "orders": len(books.orders),
            "invoices": books.invoices,
            "waiting": len(books.waiting),
            "oldest_s": _age_s(next(iter(books.waiting.values()), None)),
            "delay_ms": {"p50": _share(delays, 0.5), "p99": _share(delays, 0.99)},
            "ordered": books.amount_ordered,
            "invoiced": books.amount_invoiced,
            "unpaid": sum(sale.amount for sale in books.waiting.values()),
            "problems": books.problems[:5],
            "table": [{"product": product} | row for product, row in sorted(self.table.items())],
            "table_position": books.table_position,
            "nodes": self.nodes,
            "last": {log: [*shown] for log, shown in self.last.items()},
            "history": [(time_s, *counts) for time_s, counts in self.history.items()],
            "kills": kills(self.directory),
            "time": time.time(),
        }

    async def answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One HTTP request."""
        with suppress(ConnectionError, ValueError):
            _, path, _ = (await reader.readline()).decode().split(maxsplit=2)
            while (await reader.readline()).strip():
                pass
            if path == "/":
                _respond(writer, "text/html; charset=utf-8", PAGE.read_bytes())
            elif path == "/state":
                _respond(writer, "application/json", json.dumps(self.state()).encode())
            elif path == "/live":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                while not writer.is_closing():
                    writer.write(f"data: {json.dumps(self.state())}\n\n".encode())
                    await writer.drain()
                    await asyncio.sleep(TICK_S)
            else:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()


def _respond(writer: StreamWriter, kind: str, content: bytes) -> None:
    head = f"Content-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close"
    writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + content)


def _share(ordered: list[float], share: float) -> float | None:
    return ordered[int(share * (len(ordered) - 1))] if ordered else None


def _age_s(sale: Sale | None) -> float:
    return max(0.0, time.time() - sale.time_us / 1e6) if sale else 0.0


def kills(directory: Path) -> list[dict[str, object]]:
    """What `run.py --fire` has killed."""
    file = directory / "kills.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="of the nodes")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    dashboard = Dashboard(given.directory)
    server = await asyncio.start_server(dashboard.answer, "127.0.0.1", given.port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(dashboard.read())
        tasks.create_task(dashboard.look())


if __name__ == "__main__":
    try:
        totempole.run(main())
    except KeyboardInterrupt:
        print()
