"""Log services as processes, and both kinds of readers with one face, for tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import totempole
from totempole.client.blocking_log_reader import LogReader as BlockingReader
from totempole.client.endpoint import Endpoint, Reconnect, Tls
from totempole.client.log_endpoints import log_endpoints
from totempole.client.log_reader import LogReader as AsyncReader
from totempole.client.log_records import LogBatch, Notice, Reading, Record
from totempole.log_service.settings import ServiceSettings, encode_settings
from written_logs import CLUSTER

LIMIT_S = 30.0
QUICK = Reconnect(first_s=0.02, most_s=0.1, give_up_s=20.0)


class Service:
    """One process, as a node starts it."""

    def __init__(self, directory: Path, socket: Path, processor: int = 1, **settings: Any) -> None:
        self.settings = ServiceSettings(
            str(directory), CLUSTER, processor, socket=str(socket), log_level="debug", **settings
        )
        self.socket = socket
        self.log = socket.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "totempole.runtime.log_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(encode_settings(self.settings))
        self.process.stdin.flush()

    def wait_until_there(self) -> None:
        end_s = time.monotonic() + LIMIT_S
        while "log service socket" not in self.told():
            assert time.monotonic() < end_s, self.told()
            assert self.process is not None
            assert self.process.poll() is None, self.told()
            time.sleep(0.01)

    def told(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._reap()

    def end(self) -> int:
        """As when its node has ended."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._reap()

    def _reap(self) -> int:
        assert self.process is not None
        code = self.process.wait(LIMIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process = None
        return code


@contextmanager
def serving(directory: Path, socket: Path, processor: int = 1, **settings: Any) -> Iterator[Service]:
    service = Service(directory, socket, processor, **settings)
    service.start()
    try:
        service.wait_until_there()
        yield service
    finally:
        if service.process is not None:
            service.kill()


class Reader:
    """What a test asks, of the blocking reader or of that for asyncio."""

    def __init__(self, kind: str, endpoints: Sequence[Endpoint], log: str = "") -> None:
        self.kind = kind
        self._endpoints = endpoints
        self._log = log

    @classmethod
    def at(cls, kind: str, *sockets: Path, log: str = "") -> Reader:
        return cls(kind, [endpoint for path in sockets for endpoint in log_endpoints(path)], log)

    @classmethod
    def by_tls(cls, kind: str, address: str, tls: Tls, log: str = "") -> Reader:
        return cls(kind, log_endpoints(None, address, tls), log)

    def blocking(self) -> BlockingReader:
        return BlockingReader(self._endpoints, log=self._log, reconnect=QUICK)

    def records(self, *arguments: Any, most: int = 10**9, **options: Any) -> list[Record]:
        """So many at most: a reading that follows does not end."""
        if self.kind == "blocking":
            found = []
            for record in self.blocking().read(*arguments, **options):
                found.append(record)
                if len(found) >= most:
                    break
            return found
        return self._run(self._records(most, *arguments, **options))

    async def _records(self, most: int, *arguments: Any, **options: Any) -> list[Record]:
        found = []
        async for record in self._reader().read(*arguments, **options):
            found.append(record)
            if len(found) >= most:
                break
        return found

    def items(self, reading: Reading) -> list[LogBatch | Notice]:
        if self.kind == "blocking":
            return list(self.blocking().follow(reading))

        async def collect() -> list[LogBatch | Notice]:
            return [item async for item in self._reader().follow(reading)]

        return self._run(collect())

    def ask(self, what: str, *arguments: Any) -> Any:
        """`status` or `locate`."""
        if self.kind == "blocking":
            return getattr(self.blocking(), what)(*arguments)
        return self._run(getattr(self._reader(), what)(*arguments))

    def _reader(self) -> AsyncReader:
        return AsyncReader(self._endpoints, log=self._log, reconnect=QUICK)

    @staticmethod
    def _run(work: Any) -> Any:
        return totempole.run(asyncio.wait_for(work, LIMIT_S))
