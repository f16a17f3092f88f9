"""Options of the source: every mistake is found before a replica is asked, and says the way out."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from certificates import Authority
from totempole.errors import ConfigurationError
from totempole.log.selection import LogSelection
from totempole.spark_table.access import Access
from totempole.spark_table.columns import TYPES, schema_of
from totempole.spark_table.options import COLUMNS, ReadOptions, check_batch, check_stream
from totempole.spark_table.reading import arrow_schema_of

SOCKET = {"replicas": "/run/node1.sock"}


def test_defaults() -> None:
    found = ReadOptions.of(SOCKET)
    assert found.selection == LogSelection(without="staged/")
    assert found.columns == COLUMNS == tuple(TYPES)
    assert (found.starting, found.ending, found.fails_on_data_loss) == (None, None, True)
    assert (found.partitions_min, found.rows_max, found.bytes_max, found.hold) == (0, 0, 0, "")
    assert found.access.patience_s == 60


def test_values_are_taken() -> None:
    found = ReadOptions.of(
        SOCKET
        | {
            "subscribe": "orders, payments,orders",
            "columns": "payload, position",
            "startingOffsets": "17",
            "failOnDataLoss": "FALSE",
            "minPartitions": "3",
            "maxOffsetsPerTrigger": "1000",
            "maxBytesPerTrigger": "5000",
            "hold": "spark-7",
            "timeout": "2.5",
        }
    )
    assert found.selection == LogSelection(("orders", "payments"))
    assert found.columns == ("payload", "position")
    assert (found.starting, found.fails_on_data_loss, found.partitions_min) == (17, False, 3)
    assert (found.rows_max, found.bytes_max, found.hold) == (1000, 5000, "spark-7")
    assert found.access.daemons == ("/run/node1.sock",)
    assert found.access.patience_s == 2.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingoffset": "5"}, "option startingoffset is not known: did you mean startingOffsets?"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"subscribePattern": "a.*"}, "did you mean subscribe?"),
        ({"kafka.bootstrap.servers": "a:1"}, "The options are columns, daemons"),
        ({"startingOffsets": "first"}, "option startingOffsets = first: give earliest, latest or a position"),
        ({"startingOffsets": "-1"}, "option startingOffsets = -1"),
        ({"startingOffsets": '{"orders":{"0":5}}'}, "or a position from 0"),
        ({"endingOffsets": "earliest"}, "option endingOffsets = earliest: give latest or a position from 0"),
        ({"failOnDataLoss": "no"}, "option failOnDataLoss = no: give true or false"),
        ({"minPartitions": "0"}, "option minPartitions = 0: give a whole number from 1"),
        ({"maxOffsetsPerTrigger": "1e6"}, "option maxOffsetsPerTrigger = 1e6: give a whole number"),
        ({"maxBytesPerTrigger": "64m"}, "option maxBytesPerTrigger = 64m: give a whole number"),
        ({"columns": "position,value"}, "option columns: value is none of position, time, origin"),
        ({"columns": "key,key"}, "option columns: key is there twice"),
        ({"columns": " , "}, "option columns is empty"),
        ({"subscribe": ""}, "option subscribe is empty"),
        ({"subscribe": "a" * 300}, "option subscribe: log name"),
        ({"timeout": "soon"}, "option timeout = soon: give seconds"),
        ({"path": "/var/log/totem"}, "option replicas and a directory are given: give one of them"),
        ({"replicas": ""}, "option replicas is missing"),
        ({"replicas": "10.0.0.1:5411"}, "other hosts are reached by TLS; give the options tlsCertificate"),
        ({"tlsCertificate": "a.crt"}, "option tlsKey is missing"),
        ({"hold": "a\nb"}, "option hold: log name"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        ReadOptions.of(SOCKET | options)
    assert words in str(found.value)


def test_a_hold_needs_a_daemon(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="option hold = spark-7: a hold is set by a daemon"):
        ReadOptions.of({"path": str(tmp_path), "hold": "spark-7"})


def test_batches_and_streams_have_options_of_their_own() -> None:
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "hold"):
        with pytest.raises(ConfigurationError, match=f"option {name} is for streams: use readStream"):
            check_batch({name: "5"})
    with pytest.raises(ConfigurationError, match="option endingOffsets is for batches"):
        check_stream({"endingOffsets": "5"})
    with pytest.raises(ConfigurationError, match="startingOffsets = latest: a batch has nothing to read"):
        check_batch({"startingOffsets": "Latest"})


def test_a_schema_of_ones_own_is_refused() -> None:
    options = ReadOptions.of(SOCKET | {"columns": "position"})
    mine = StructType([StructField("position", LongType()), StructField("id", LongType())])
    with pytest.raises(ConfigurationError, match="leave schema"):
        arrow_schema_of(mine, options)
    assert arrow_schema_of(schema_of(SOCKET), ReadOptions.of(SOCKET)).names == list(COLUMNS)


# Access


def tls_options(directory: Path) -> dict[str, str]:
    authority = Authority(directory)
    certificate, key = authority.issue("reader")
    return {
        "tlsCertificate": str(certificate),
        "tlsKey": str(key),
        "tlsAuthorities": str(authority.path),
    }


def test_addresses_that_cannot_be_are_named(tmp_path: Path) -> None:
    options = tls_options(tmp_path)
    with pytest.raises(ConfigurationError, match="option replicas = nowhere: give host:port"):
        ReadOptions.of(options | {"replicas": "nowhere"})
    with pytest.raises(ConfigurationError, match="options tlsCertificate, tlsKey, tlsAuthorities"):
        ReadOptions.of(options | {"replicas": "127.0.0.1:5411", "tlsKey": str(tmp_path / "none")})


def test_an_access_travels_to_executors_after_it_was_used(tmp_path: Path) -> None:
    access = Access.of(tls_options(tmp_path) | {"replicas": "127.0.0.1:5411,/run/node1.sock"})
    before = [str(endpoint) for endpoint in access.endpoints()]
    assert before == ["127.0.0.1:5411", "/run/node1-log.sock"]
    again = pickle.loads(pickle.dumps(access))
    assert again == access
    assert [str(endpoint) for endpoint in again.endpoints()] == before


def test_replicas_are_asked_in_turn_and_preferred_ones_first() -> None:
    access = Access.of({"replicas": "/run/a.sock,/run/b.sock,/run/c.sock"})
    a, b, c = (f"/run/{name}-log.sock" for name in "abc")

    def order(*arguments: int, **options: tuple[str, ...]) -> list[str]:
        return [str(endpoint) for endpoint in access.reader(*arguments, **options).endpoints]

    assert order() == [a, b, c]
    assert order(1) == [b, c, a]
    assert order(prefer=(c, a)) == [c, a, b]
    assert order(1, prefer=("/run/gone", c)) == [c, b, a]


def test_a_name_stands_for_all_its_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does when it is asked: a new host is found without a new option."""
    hosts = ["10.0.0.1", "10.0.0.2"]

    def resolve(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        assert (host, port) == ("replicas.example", 5411)
        return [(2, 1, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    access = Access.of(tls_options(tmp_path) | {"replicas": "replicas.example:5411"})
    assert [str(endpoint) for endpoint in access.endpoints()] == ["10.0.0.1:5411", "10.0.0.2:5411"]
    hosts.append("10.0.0.3")
    assert [endpoint.host for endpoint in access.endpoints()] == hosts
    assert {endpoint.server_name for endpoint in access.endpoints()} == {"replicas.example"}


def test_a_schema_is_told_without_arrow() -> None:
    """Spark asks for it in a new process, which imports all that it needs."""
    asked = "import sys, totempole.spark_table.columns; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0
