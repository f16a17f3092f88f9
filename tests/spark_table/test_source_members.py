"""A replica set that changes under a reader: hosts behind a name, and a running query beside `totem log`."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from replicated_logs import TIMEOUT, Replicas, change_replicas
from sink_nodes import is_primary

from certificates import Authority
from daemons import LIMIT_S, PATIENT, Cluster, cluster, wait_until
from serving import Service
from totempole.client import blocking
from totempole.errors import SessionError
from totempole.spark_table import survey
from totempole.spark_table.access import Access
from totempole.spark_table.survey import ReplicaSurvey

# Hosts behind a name

NAME = "replicas.example"


class Names:
    """A name server: what it says changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] = []
        self.asked = 0
        self._getaddrinfo = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: Any, *given: Any, **options: Any) -> list[Any]:
        if host != NAME:
            return self._getaddrinfo(host, *given, **options)
        self.asked += 1
        if not self.hosts:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [each for one in self.hosts for each in self._getaddrinfo(one, *given, **options)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


class Hosts:
    """Three replicas, each at an address of its own, 127.0.0.1 to 127.0.0.3, and the same port."""

    def __init__(self, directory: Path) -> None:
        self.replicas = Replicas(directory, 3)
        self._authority = Authority(directory)
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as holder:
            self.port = holder.getsockname()[1]

    @property
    def access(self) -> Access:
        certificate, key = self._authority.issue("reader")
        return Access.of(
            {
                "replicas": f"{NAME}:{self.port}",
                "tlsCertificate": str(certificate),
                "tlsKey": str(key),
                "tlsAuthorities": str(self._authority.path),
                "tlsServerName": "127.0.0.1",
                "timeout": TIMEOUT,
            }
        )

    def __enter__(self) -> Hosts:
        certificate, key = self._authority.issue("node")
        for log in self.replicas.logs:
            service = self.replicas.services[log.processor] = Service(
                log.directory,
                self._directory / f"node{log.processor}-log.sock",
                log.processor,
                listen=f"127.0.0.{log.processor}:{self.port}",
                tls_certificate=str(certificate),
                tls_key=str(key),
                tls_authorities=str(self._authority.path),
            )
            service.start()
        for service in self.replicas.services.values():
            service.wait_until_there()
        return self

    def __exit__(self, *_: object) -> None:
        for service in self.replicas.services.values():
            if service.process is not None:
                service.kill()

    def named(self, *numbers: int) -> tuple[str, ...]:
        return tuple([f"127.0.0.{number}:{self.port}" for number in numbers])


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with Hosts(tmp_path) as found:
        yield found


def test_a_name_stands_for_all_its_hosts(hosts: Hosts, names: Names) -> None:
    names.hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    hosts.replicas.append([b"x"] * 5)
    with closing(ReplicaSurvey(hosts.access)) as found:
        view = found.look()
        assert (view.position, view.replicas, view.is_whole) == (5, hosts.named(1, 2, 3), True)
        asked = names.asked
        found.look()
        assert names.asked == asked, "while all members answer, names are not looked up"


def test_a_replica_that_is_added_is_found_by_its_name(hosts: Hosts, names: Names) -> None:
    """All those that were there before go on to answer: only the replica set says that one is missing. The
    name server may learn of it later than the log."""
    names.hosts = ["127.0.0.1", "127.0.0.2"]
    change_replicas(hosts.replicas, 3, 0)
    hosts.replicas.append([b"x"] * 5)
    with closing(ReplicaSurvey(hosts.access)) as found, pytest.MonkeyPatch.context() as patch:
        assert found.look().replicas == hosts.named(1, 2)
        change_replicas(hosts.replicas, 3, hosts.replicas.logs[2].zones.disk)
        view = found.look()
        assert (view.replicas, view.is_whole) == (hosts.named(1, 2), False)
        names.hosts.append("127.0.0.3")
        patch.setattr(survey, "RESOLVE_S", 0.0)
        wait_until(lambda: found.look().replicas == hosts.named(1, 2, 3))
        assert found.look().is_whole


def test_replicas_that_move_are_followed_by_their_name(hosts: Hosts, names: Names) -> None:
    names.hosts = ["127.0.0.1"]
    hosts.replicas.append([b"x"] * 5)
    with closing(ReplicaSurvey(hosts.access)) as found, pytest.MonkeyPatch.context() as patch:
        assert found.look().replicas == hosts.named(1)
        names.hosts = ["127.0.0.2"]
        patch.setattr(survey, "RESOLVE_S", 0.0)
        hosts.replicas.services[1].kill()
        assert found.look().replicas == hosts.named(2)


def test_a_name_server_that_is_away_changes_nothing(hosts: Hosts, names: Names) -> None:
    names.hosts = ["127.0.0.1", "127.0.0.2"]
    hosts.replicas.append([b"x"] * 5)
    with closing(ReplicaSurvey(hosts.access)) as found, pytest.MonkeyPatch.context() as patch:
        assert found.look().replicas == hosts.named(1, 2)
        names.hosts = []
        patch.setattr(survey, "RESOLVE_S", 0.0)
        hosts.replicas.services[1].kill()
        asked = names.asked
        wait_until(lambda: found.look().replicas == hosts.named(2))
        found.look()
        assert names.asked > asked


def test_a_name_that_is_not_known_is_told(tmp_path: Path, names: Names) -> None:
    with (
        closing(ReplicaSurvey(replace(Hosts(tmp_path).access, patience_s=0.5))) as found,
        pytest.raises(SessionError, match=f"{NAME}.*Name or service not known"),
    ):
        found.look()


# Real nodes


def totem_log(them: Cluster, *words: object) -> None:
    """Of the node that is named last."""
    *words, number = words
    argv = [sys.executable, "-m", "totempole", "log", *map(str, words), "--config", str(them[number].file)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr


class Fed:
    """A streaming query of what is appended, and what it has seen."""

    def __init__(self, spark: SparkSession, them: Cluster, directory: Path) -> None:
        self._spark = spark
        self._them = them
        self._checkpoint = directory / "checkpoint"
        self.appended: list[bytes] = []
        self.seen: list[bytes] = []

    @contextmanager
    def running(self, *replicas: int, timeout: str = "30") -> Iterator[StreamingQuery]:
        sockets = ",".join(str(self._them[number].socket) for number in replicas)
        stream = self._spark.readStream.format("totem").options(replicas=sockets, timeout=timeout)
        rows = stream.option("startingOffsets", "earliest").option("columns", "position,payload").load()
        writer = rows.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(processingTime="100 milliseconds").start()
        try:
            yield query
        finally:
            query.stop()

    def _take(self, frame: Any, _: int) -> None:
        self.seen += [bytes(row.payload) for row in frame.orderBy("position").collect()]

    def append(self, number: int) -> None:
        """By the daemon of this node."""
        start = len(self.appended)
        payloads = [b"%d" % (start + index) for index in range(20)]
        with blocking.connect(self._them[number].socket) as session, session.log("orders") as log:
            log.append_many(payloads, timeout=LIMIT_S)
        self.appended += payloads

    def wait(self, query: StreamingQuery) -> None:
        """Until the query has seen all that was appended, once."""
        wait_until(
            lambda: len(self.seen) >= len(self.appended) or not query.isActive,
            lambda: f"{len(self.seen)} of {len(self.appended)} rows are seen",
        )
        assert query.isActive, query.exception()
        assert self.seen == self.appended


@pytest.mark.nodes
@pytest.mark.long
def test_a_running_query_follows_the_replica_set(spark: SparkSession, tmp_path: Path) -> None:
    """All four nodes are named, and three are replicas. One is replaced, one removed, one added. A query that
    names none of those that are left fails, and says which they are."""
    log = "[log]\nenabled = true\nreplicas = [1, 2, 3]\n"
    with cluster(4, tmp_path, PATIENT + log) as them:
        wait_until(lambda: all(map(is_primary, them.daemons.values())), lambda: them[1].log())
        fed = Fed(spark, them, tmp_path)
        with fed.running(1, 2, 3, 4) as query:
            fed.append(1)
            fed.wait(query)
            totem_log(them, "replace", 1, 4, 2)
            them[1].end()
            fed.append(4)
            fed.wait(query)
            totem_log(them, "remove", 2, 3)
            them[2].end()
            fed.append(3)
            fed.wait(query)
            them[1].start()
            wait_until(lambda: is_primary(them[1]), lambda: them[1].log())
            totem_log(them, "add", 1, 3)
            fed.append(1)
            fed.wait(query)
            assert query.exception() is None
        them[2].start()
        wait_until(lambda: is_primary(them[2]), lambda: them[2].log())
        with fed.running(2, timeout="10") as query:
            with pytest.raises(StreamingQueryException) as told:
                query.awaitTermination(LIMIT_S)
            assert "processors 2) are not in the log's replica set any more" in str(told.value)
            assert "it is 1, 3, 4. Name some of these" in str(told.value)
