"""The table over TLS: rows written by a daemon's address, and read by a log service's. Certificates that are
refused are told before any task runs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from sink_nodes import log_nodes

from certificates import Authority

pytestmark = pytest.mark.nodes

AT_ONCE_S = 20.0
"""Much less than the option timeout, on a busy machine too."""


class Node:
    """One, which programs reach by TLS, and the options of a program that it lets in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._authority = Authority(directory)
        self._stranger = Authority(directory, "stranger")
        self.daemon, self.service = _free_address(), _free_address()
        self._certificate, self._key = self._authority.issue("node")

    @property
    def settings(self) -> str:
        """Of the log, and what follows them."""
        return (
            f'listen = "{self.service}"\n[clients]\nlisten = "{self.daemon}"\n'
            f'tls_certificate = "{self._certificate}"\ntls_key = "{self._key}"\n'
            f'tls_authorities = "{self._authority.path}"\n'
        )

    def options(self, mine: str = "mine", trusted: str = "mine", **more: str) -> dict[str, str]:
        """Whose authority has signed the program's certificate, and whose it trusts."""
        by = {"mine": self._authority, "stranger": self._stranger}
        certificate, key = by[mine].issue(f"spark-{mine}")
        return {
            "replicas": self.service,
            "tlsCertificate": str(certificate),
            "tlsKey": str(key),
            "tlsAuthorities": str(by[trusted].path),
            "timeout": "60",
        } | more

    def writing(self, mine: str = "mine", trusted: str = "mine", **more: str) -> dict[str, str]:
        return self.options(mine, trusted, daemons=self.daemon, log="orders") | more


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    found = Node(tmp_path_factory.mktemp("tls"))
    with log_nodes(found.directory, settings=found.settings):
        yield found


def test_rows_are_written_and_read_over_tls(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    """Staged rows of a batch, and those of a stream that reads over TLS, too."""
    rows = spark.range(0, 3_000, 1, 2).selectExpr("rpad(cast(id as string), 200, '.') as payload")
    rows.write.format("totem").mode("append").options(**node.writing()).save()
    stream = spark.readStream.format("totem").options(**node.options()).option("subscribe", "orders")
    query = (
        stream.option("startingOffsets", "earliest").load().select("payload")
        .writeStream.format("totem").options(**node.writing(log="copies"))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    for log in ("orders", "copies"):
        found = spark.read.format("totem").options(**node.options(subscribe=log)).load().collect()
        assert sorted(int(bytes(row.payload).rstrip(b".")) for row in found) == list(range(3_000)), log


REFUSED = [("stranger", "mine"), ("mine", "stranger")]
SIDES = ["the daemon refuses", "the program refuses"]


def refusal(act: Callable[[], Any]) -> str:
    """Of a certificate; at once."""
    start_s = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        act()
    assert time.monotonic() - start_s < AT_ONCE_S
    text = str(caught.value)
    assert "check the certificates of both sides" in text, text
    return text


def traced(rows: DataFrame, mark: Path) -> DataFrame:
    """Each of its tasks leaves a mark."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        mark.touch()
        yield from batches

    return rows.mapInArrow(run, rows.schema)


@pytest.mark.parametrize(("mine", "trusted"), REFUSED, ids=SIDES)
def test_a_sink_whose_certificate_is_refused_does_no_work(
    spark: SparkSession, node: Node, tmp_path: Path, mine: str, trusted: str
) -> None:
    rows = traced(spark.range(10).selectExpr("cast(id as string) as payload"), tmp_path / "worked")
    writer = rows.write.format("totem").mode("append").options(**node.writing(mine, trusted, log="none"))
    assert node.daemon in refusal(writer.save)
    source = spark.readStream.format("rate").load().selectExpr("cast(value as string) as payload")
    stream = traced(source, tmp_path / "worked").writeStream.format("totem")
    stream.options(**node.writing(mine, trusted, log="none"))
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert node.daemon in refusal(query.awaitTermination)
    assert not (tmp_path / "worked").exists()


@pytest.mark.parametrize(("mine", "trusted"), REFUSED, ids=SIDES)
def test_a_source_whose_certificate_is_refused_does_no_work(
    spark: SparkSession, node: Node, tmp_path: Path, mine: str, trusted: str
) -> None:
    rows = spark.read.format("totem").options(**node.options(mine, trusted)).load()
    assert node.service in refusal(traced(rows, tmp_path / "worked").collect)
    assert not (tmp_path / "worked").exists()
