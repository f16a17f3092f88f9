"""What cannot be written is refused before any work starts, with the option, the value and the way out."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_loop import Daemon, daemon
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType
from sink_nodes import PAYLOAD, options_of

from totempole.corel.config import LogConfig
from totempole.errors import ConfigurationError, SessionError
from totempole.spark_table.staging import OrderStreamWriter, OrderWriter

ALONE = LogConfig(replicas=(1,))
TLS = {"tlsCertificate": "a", "tlsKey": "b", "tlsAuthorities": "c"}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("daemon"), log=ALONE) as it:
        yield it


def columns(**kinds: DataType) -> StructType:
    found = StructType()
    for name, kind in kinds.items():
        found.add(name, kind)
    return found


@pytest.mark.parametrize("payload", [BinaryType(), StringType()])
@pytest.mark.parametrize("more", [{}, {"key": StringType()}, {"log": StringType()}])
def test_what_can_be_written(there: Daemon, payload: DataType, more: dict[str, DataType]) -> None:
    schema = columns(**{"payload": payload} | more)
    options = options_of([there.path], log="" if "log" in more else "orders", checkpointLocation="/c")
    for writer in (OrderWriter(options, schema, False), OrderStreamWriter(options, schema, False)):
        assert pickle.loads(pickle.dumps(writer))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (columns(payload=IntegerType()), "column payload is of type int: give binary or string"),
        (columns(value=StringType()), "column value: a log takes the columns payload, key and log"),
        (columns(Payload=StringType()), "column Payload: a log takes the columns payload, key and log"),
        (columns(key=StringType()), "column payload is missing: the columns are key"),
        (columns(payload=StringType(), key=BinaryType()), "column key is of type binary: give string"),
        (columns(payload=StringType(), log=IntegerType()), "column log is of type int: give string"),
        (columns(payload=StringType()).add("payload", StringType()), "give each once"),
        (StructType(), "column payload is missing: the columns are none"),
    ],
)
def test_columns_that_cannot_be_written(there: Daemon, schema: StructType, says: str) -> None:
    for kind in (OrderWriter, OrderStreamWriter):
        with pytest.raises(ConfigurationError) as caught:
            kind(options_of([there.path]), schema, False)
        assert says in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"log": ""}, "option log is missing: name the log, or give a column log"),
        ({"log": "x" * 101}, "give 1 to 100 bytes"),
        ({"log": "a\nb"}, "letters that can be printed"),
        (
            {"log": "objects/bank"},
            "option log = 'objects/bank': nothing was appended: log 'objects/bank' has the",
        ),
        ({"log": "staged/x"}, "option log = 'staged/x': logs named staged/… have rows of batches"),
        ({"daemons": ""}, 'option daemons is missing: give "host:port,…"'),
        ({"daemons": "/a/b,host:1"}, "option daemons: give paths of sockets or addresses, not both"),
        ({"daemons": "host:1"}, "option daemons = host:1: other hosts are reached by TLS"),
        ({"timeout": "soon"}, "option timeout = soon: give seconds"),
        ({"path": "/some/log"}, "save('/some/log'): rows are appended by a daemon, not in a directory"),
        ({"topic": "x"}, "option topic is not known"),
        ({"logs": "x"}, "option logs is not known: did you mean log?"),
    ],
)
def test_options_that_cannot_be(there: Daemon, given: dict[str, str], says: str) -> None:
    options = CaseInsensitiveDict(dict(options_of([there.path])) | given)
    options = CaseInsensitiveDict({name: value for name, value in options.items() if value})
    for kind in (OrderWriter, OrderStreamWriter):
        with pytest.raises(ConfigurationError) as caught:
            kind(options, PAYLOAD, False)
        assert says in str(caught.value)


def test_keys_of_writes(there: Daemon) -> None:
    for key in ("", "x" * 65, "a\nb"):
        options = CaseInsensitiveDict(dict(options_of([there.path])) | {"idempotencyKey": key})
        with pytest.raises(ConfigurationError, match="option idempotencyKey = "):
            OrderWriter(options, PAYLOAD, False)
    with pytest.raises(ConfigurationError, match="idempotencyKey is for batch writes"):
        OrderStreamWriter(options_of([there.path], idempotencyKey="x"), PAYLOAD, False)


def test_first_batches(there: Daemon) -> None:
    with pytest.raises(ConfigurationError, match="option firstBatch = -1: give the number of a batch"):
        OrderStreamWriter(options_of([there.path], firstBatch="-1"), PAYLOAD, False)
    with pytest.raises(ConfigurationError, match="option firstBatch is for streams"):
        OrderWriter(options_of([there.path], firstBatch="1"), PAYLOAD, False)
    assert OrderStreamWriter(options_of([there.path], firstBatch="17"), PAYLOAD, False)


def test_a_log_only_grows(there: Daemon) -> None:
    with pytest.raises(ConfigurationError, match=r'mode\("overwrite"\): a log only grows'):
        OrderWriter(options_of([there.path]), PAYLOAD, True)
    with pytest.raises(ConfigurationError, match=r'outputMode\("complete"\): a log only grows'):
        OrderStreamWriter(options_of([there.path]), PAYLOAD, True)


def test_daemons_of_other_hosts_need_replicas_to_read_from() -> None:
    options = CaseInsensitiveDict({"daemons": "10.0.0.1:1", "log": "a"} | TLS)
    with pytest.raises(ConfigurationError, match=r"option replicas is missing: .* what tasks have staged"):
        OrderWriter(options, PAYLOAD, False)
    options["replicas"] = "10.0.0.1:2"
    with pytest.raises(SessionError, match=r"tls: .*the files are a, b, c"):
        OrderWriter(options, PAYLOAD, False)


def test_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"no daemon at .*nobody"):
        OrderWriter(options_of([tmp_path / "nobody"]), PAYLOAD, False)
    with pytest.raises(SessionError, match=r"no daemon at .*nobody"):
        OrderStreamWriter(options_of([tmp_path / "nobody"], timeout="0.3"), PAYLOAD, False)


def test_a_daemon_without_a_log(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, pytest.raises(SessionError, match=r"option daemons = .*keeps no log"):
        OrderWriter(options_of([it.path]), PAYLOAD, False)


def test_a_stream_waits_for_its_daemon(tmp_path: Path) -> None:
    """Between two batches it may be restarted."""
    made: list[OrderStreamWriter] = []
    options = options_of([tmp_path / "clients.sock"], timeout="60")
    waits = threading.Thread(target=lambda: made.append(OrderStreamWriter(options, PAYLOAD, False)))
    waits.start()
    time.sleep(0.3)
    assert not made
    with daemon(tmp_path, log=ALONE):
        waits.join()
        assert made
