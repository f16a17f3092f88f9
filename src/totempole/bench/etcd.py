"""etcd as a peer to be measured beside: three members on loopback, driven by a C client.

The client is `h2load` of nghttp2, which posts one body again and again over HTTP/2: a gRPC call of
`/etcdserverpb.KV/Put`. So etcd is measured, and not a Python client of it. All puts have the same key: etcd
keeps every revision. They go to the leader, which spares them a hop. The number of puts under way is the best
of several. That puts succeeded is checked by the revision, which each of them raises by one.

All of etcd's settings but addresses are its defaults; `synced=False` adds `--unsafe-no-fsync`. Needs Debian's
etcd-server and nghttp2-client: `missing()` tells.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from totempole.bench.compare import percentile
from totempole.bench.replicated import REPLICAS, CpuMeter, Load
from totempole.errors import TotemError
from totempole.lab.commands import find_tool
from totempole.lab.loopback import LoopbackHost, LoopbackLab

CLIENT_PORT, PEER_PORT = 2379, 2380
METHOD = "/etcdserverpb.KV/Put"
WAY = "gRPC Put by h2load"
KEY = b"bench"
START_S_MAX = 60.0
FAILOVER_S_MAX = 60.0
ANSWER_S_MAX = 10.0
PUT_S_MAX = 0.25
"""After a failure another put is tried: etcd answers one that was sent to a dead leader after 7 s only."""
PAUSE_S = 0.02
UNDER_WAY = (100, 300, 1_000)
"""Puts that are tried at full load."""
CONNECTION_STREAMS_MAX = 100
HEADERS = ("content-type: application/grpc", "te: trailers")
WARM_UP_S, SETTLING_S, TRIAL_S = 1.0, 0.3, 1.0
LOG_SHOWN = 2_000


class EtcdError(TotemError):
    """etcd or its client did not do what it was to do."""


def missing() -> str:
    """Why etcd cannot be measured here; empty when it can."""
    tools = {"etcd": "etcd-server", "h2load": "nghttp2-client"}
    packages = [package for tool, package in tools.items() if find_tool(tool) is None]
    return f"install the packages {', '.join(packages)}" if packages else ""


# The call


def put_body(key: bytes, value: bytes) -> bytes:
    """A PutRequest (key = 1, value = 2)."""
    return framed(field(1, key) + field(2, value))


def framed(message: bytes) -> bytes:
    """As gRPC has it: a flag for compression and the length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, or of a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def varint(number: int) -> bytes:
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


# The client's log


@dataclass(frozen=True, slots=True)
class Request:
    """One line of h2load's log."""

    start_us: int
    """Since the epoch."""
    status: int
    latency_us: int

    @property
    def end_us(self) -> int:
        return self.start_us + self.latency_us


def parse_log(text: str) -> list[Request]:
    """Columns are separated by tabs. The last line of a client that was ended may be cut short."""
    lines = [line.split("\t") for line in text.splitlines()]
    return [Request(*map(int, words[:3])) for words in lines if len(words) >= 3 and words[2]]


def check_statuses(requests: list[Request]) -> None:
    failed = [request.status for request in requests if request.status != 200]
    if failed:
        raise EtcdError(f"{len(failed)} of {len(requests)} calls failed, the first with status {failed[0]}")
    if not requests:
        raise EtcdError("h2load made no request: see that it runs, as `h2load --version`")


def summary(requests: list[Request], seconds: float, cpu_s: float, under_way: int) -> Load:
    """Of those that ended in the last so many seconds. `cpu_s`: spent while all of these were made."""
    last_us = max(request.end_us for request in requests)
    latencies: list[float] = [
        request.latency_us for request in requests if request.end_us > last_us - seconds * 1e6
    ]
    return Load(
        len(latencies) / seconds,
        percentile(latencies, 50),
        percentile(latencies, 99),
        cpu_s * 1e6 / len(requests),
        under_way,
    )


def streams_of(under_way: int) -> list[str]:
    """Options of h2load for so many calls under way."""
    clients = -(-under_way // CONNECTION_STREAMS_MAX)
    while under_way % clients:
        clients += 1
    return [f"--clients={clients}", f"--max-concurrent-streams={under_way // clients}"]


class Cluster:
    """A member on each host of the lab. Their data is under `directory`."""

    def __init__(
        self,
        lab: LoopbackLab,
        directory: Path,
        synced: bool = True,
        under_way: tuple[int, ...] = UNDER_WAY,
    ) -> None:
        assert len(lab.hosts) == REPLICAS, "a lab of three hosts"
        directory.mkdir(parents=True, exist_ok=True)
        self._hosts = lab.hosts
        self._directory = directory
        self._synced = synced
        self._under_way = under_way
        self.members: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            for number in self._hosts:
                self.start(number)
            self._wait_until_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for number in list(self.members):
            self.kill(number)

    def start(self, number: int) -> None:
        host = self._hosts[number]
        with self._log(number).open("ab") as log:
            self.members[number] = host.popen(
                ["etcd", *self._options(number)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _options(self, number: int) -> list[str]:
        def url(host: LoopbackHost, port: int) -> str:
            return f"http://{host.address}:{port}"

        host = self._hosts[number]
        everyone = ",".join(f"m{other}={url(each, PEER_PORT)}" for other, each in self._hosts.items())
        options = {
            "name": f"m{number}",
            "data-dir": str(self._directory / f"member-{number}"),
            "listen-peer-urls": url(host, PEER_PORT),
            "initial-advertise-peer-urls": url(host, PEER_PORT),
            "listen-client-urls": url(host, CLIENT_PORT),
            "advertise-client-urls": url(host, CLIENT_PORT),
            "initial-cluster": everyone,
            "initial-cluster-state": "new",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        return words if self._synced else [*words, "--unsafe-no-fsync"]

    def kill(self, number: int) -> None:
        process = self.members.pop(number)
        process.kill()
        process.wait()

    def _log(self, number: int) -> Path:
        return self._directory / f"etcd-{number}.log"

    def _failure(self, number: int, what: str) -> EtcdError:
        said = self._log(number).read_text(encoding="utf-8", errors="replace")[-LOG_SHOWN:]
        return EtcdError(f"etcd's member {number} {what}: {said.strip() or '(it wrote nothing)'}")

    def _wait_until_healthy(self) -> None:
        give_up_s = time.monotonic() + START_S_MAX
        waiting = set(self.members)
        while waiting:
            for number in list(waiting):
                if self.members[number].poll() is not None:
                    raise self._failure(number, "has ended")
                if self._is_healthy(number):
                    waiting.remove(number)
            if time.monotonic() > give_up_s:
                raise self._failure(min(waiting), "is not healthy")
            time.sleep(PAUSE_S)

    def _is_healthy(self, number: int) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self._ask(number, "GET", "/health").get("health") == "true"
        return False

    # Questions, by etcd's own translation of gRPC into JSON

    def _ask(
        self,
        number: int,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
        limit_s: float = ANSWER_S_MAX,
    ) -> dict[str, Any]:
        """Empty when the member refuses."""
        connection = http.client.HTTPConnection(self._hosts[number].address, CLIENT_PORT, timeout=limit_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            content = response.read()
            found: dict[str, Any] = json.loads(content) if response.status == 200 else {}
            return found
        finally:
            connection.close()

    def _status(self, number: int) -> dict[str, Any]:
        return self._ask(number, "POST", "/v3/maintenance/status", {})

    @property
    def leader(self) -> int:
        for number in self.members:
            status = self._status(number)
            if status and status.get("leader") == status["header"]["member_id"]:
                return number
        raise EtcdError("etcd has no leader")

    def revision(self, number: int) -> int:
        return int(self._status(number)["header"]["revision"])

    def put(self, number: int, value: bytes) -> bool:
        """Whether the member has answered that it is done."""
        words = {"key": base64.b64encode(KEY).decode(), "value": base64.b64encode(value).decode()}
        with suppress(OSError, http.client.HTTPException):
            return bool(self._ask(number, "POST", "/v3/kv/put", words, PUT_S_MAX))
        return False

    # What is measured

    def load(self, way: str, record_bytes: int, seconds: float) -> Load:
        assert way == WAY, "there is one way to put records"
        under_way = self._best_under_way(record_bytes)
        return self._load(record_bytes, under_way, WARM_UP_S, seconds)

    def _best_under_way(self, record_bytes: int) -> int:
        if len(self._under_way) == 1:
            return self._under_way[0]
        rates = {
            count: self._load(record_bytes, count, SETTLING_S, TRIAL_S).records_per_s
            for count in self._under_way
        }
        return max(rates, key=rates.__getitem__)

    def _load(self, record_bytes: int, under_way: int, settling_s: float, seconds: float) -> Load:
        meter = self.cpu_meter()
        options = [*streams_of(under_way), f"--duration={round((settling_s + seconds) * 1000)}ms"]
        return summary(self._h2load(record_bytes, options), seconds, meter.spent_s(), under_way)

    def cpu_meter(self) -> CpuMeter:
        return CpuMeter(member.pid for member in self.members.values())

    def turns_us(self, record_bytes: int, count: int) -> list[float]:
        options = ["--clients=1", "--max-concurrent-streams=1", f"--requests={count}"]
        return [float(request.latency_us) for request in self._h2load(record_bytes, options)]

    def _h2load(self, record_bytes: int, options: list[str]) -> list[Request]:
        return self.post_writes(METHOD, put_body(KEY, os.urandom(record_bytes)), options)

    def post_writes(self, method: str, body: bytes, options: list[str]) -> list[Request]:
        """Each of them is to raise the revision."""
        leader = self.leader
        before = self.revision(leader)
        requests, _ = self.post(leader, method, body, options)
        done = self.revision(leader) - before
        if done < len(requests):
            raise EtcdError(f"{len(requests)} calls were answered, and only {done} have been done")
        return requests

    def post(self, number: int, method: str, body: bytes, options: list[str]) -> tuple[list[Request], str]:
        """A body again and again, to one member: the requests, and what h2load has printed. An error of gRPC
        does not show in them: it is in the trailers, which h2load does not read."""
        host = self._hosts[number]
        file, log = self._directory / "body", self._directory / "requests"
        file.write_bytes(body)
        log.unlink(missing_ok=True)
        url = f"http://{host.address}:{CLIENT_PORT}{method}"
        headers = [f"--header={header}" for header in HEADERS]
        client = host.popen(
            ["h2load", *options, *headers, f"--data={file}", f"--log-file={log}", url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = client.communicate()
        said = output.decode(errors="replace")
        if client.returncode:
            raise EtcdError(f"h2load failed: {said[-LOG_SHOWN:].strip()}")
        requests = parse_log(log.read_text(encoding="ascii"))
        check_statuses(requests)
        return requests, said

    def failover_ms(self) -> float:
        """From kill -9 of the leader until another member has done a put. That member is started again."""
        victim = self.leader
        asked = next(number for number in self.members if number != victim)
        start_s = time.monotonic()
        self.kill(victim)
        while not self.put(asked, b"again"):
            if time.monotonic() - start_s > FAILOVER_S_MAX:
                raise self._failure(asked, "does no put after its leader was killed")
            time.sleep(PAUSE_S / 4)
        passed_ms = (time.monotonic() - start_s) * 1000
        self.start(victim)
        self._wait_until_healthy()
        return passed_ms
