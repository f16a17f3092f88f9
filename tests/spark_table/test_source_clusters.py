"""Source and sink where Spark runs: a standalone cluster by spark-submit, without totempole in its Python,
and Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from replicated_logs import Replicas, replicated, write_mixture
from sink_nodes import Records, log_nodes
from standalone import standalone

from totempole.spark.java import java_home
from totempole.spark_table.shipping import pack_code

pytestmark = pytest.mark.long

LIMIT_S = 300.0

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

replicas, daemon, directory, remote, register = sys.argv[1:]
builder = SparkSession.builder
spark = (builder.remote(remote) if remote else builder).getOrCreate()
if register:
    import pyspark_totem

    spark.dataSource.register(pyspark_totem.DefaultSource)
table = spark.read.format("totem").option("replicas", replicas).option("minPartitions", 3).load()
rows = [(row.position, row.message, bytes(row.payload).hex()) for row in table.orderBy("position").collect()]
stream = spark.readStream.format("totem").option("replicas", replicas).option("startingOffsets", "earliest")
query = (
    stream.option("maxOffsetsPerTrigger", 500).load().select("position")
    .writeStream.format("parquet").option("path", directory + "/out")
    .option("checkpointLocation", directory + "/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
streamed = sorted(row.position for row in spark.read.parquet(directory + "/out").collect())

# Enough bytes to be staged by the tasks. A repeated write with the same key writes nothing.
copies = table.orderBy("position").selectExpr("rpad(cast(position as string), 500, '.') as payload")
for _ in range(2):
    writer = copies.write.format("totem").mode("append").option("daemons", daemon)
    writer.option("log", "copies").option("idempotencyKey", "once").save()
written = (
    stream.option("maxOffsetsPerTrigger", 500).load().selectExpr("cast(position as string) as payload")
    .writeStream.format("totem").option("daemons", daemon).option("log", "streamed")
    .option("checkpointLocation", directory + "/written").trigger(availableNow=True).start()
)
written.awaitTermination()
if remote:
    assert not [name for name in sys.modules if "totem" in name], "a client of Spark Connect imports nothing"
with open(directory + "/found.json", "w") as file:
    json.dump({"rows": rows, "streamed": streamed, "batches": len(query.recentProgress)}, file)
spark.stop()
"""

PYTHON = """#!/bin/sh
case "$PWD" in
  *-work/*) PYTHONPATH=$(echo "$PYTHONPATH" | sed "s|{code}||"); export PYTHONPATH; exec {bare} "$@" ;;
  *) exec {driver} "$@" ;;
esac
"""
"""Executors are started in a worker's directory. They have a Python without totempole, and not the driver's
disks: its zip file is not there."""


def run(argv: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """With all that is installed here, but for totempole: .pth files in a path that a .pth file names are not
    looked at."""
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    (site,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.mark.parametrize("driver", ["has the package", "has the zip file"])
def test_spark_submit_ships_the_code(tmp_path: Path, program: Path, bare_python: Path, driver: str) -> None:
    """To executors without totempole, if the program registers the format. What registers itself gets no
    files that are shipped (Spark 4.2 and 4.3)."""
    code = pack_code(tmp_path / "totempole.zip")
    is_installed = driver == "has the package"
    python = Path(sys.executable) if is_installed else bare_python
    chooser = tmp_path / "python"
    chooser.write_text(PYTHON.format(code=code, bare=bare_python, driver=python))
    chooser.chmod(0o755)
    with (
        replicated(tmp_path, 2) as replicas,
        node(tmp_path) as log,
        standalone(tmp_path, workers=1) as cluster,
    ):
        write_mixture(replicas)
        submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
        given = [replicas.option, str(log.socket), str(tmp_path), ""]
        shipping = [*submit, "--py-files", str(code), str(program), *given]
        environment = cluster.users_environment | {
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": str(chooser),
            "PYSPARK_DRIVER_PYTHON": str(chooser),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        if is_installed:
            alone = run([*shipping, ""], environment)
            assert alone.returncode != 0
            assert "No module named 'totempole'" in alone.stderr + alone.stdout
        else:
            environment["PYTHONPATH"] = str(code)
        done = run([*shipping, "register"], environment)
        assert done.returncode == 0, done.stderr[-5000:]
        check_found(tmp_path, replicas)
        check_written(log, replicas)


def test_spark_connect(tmp_path: Path, program: Path) -> None:
    """Read and written, batch and stream, by a client of Spark Connect."""
    with replicated(tmp_path, 2) as replicas, node(tmp_path) as log:
        write_mixture(replicas)
        environment = {
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        given = [replicas.option, str(log.socket), str(tmp_path), "local[2]", ""]
        done = run([sys.executable, str(program), *given], environment)
        assert done.returncode == 0, done.stderr[-5000:]
        check_found(tmp_path, replicas)
        check_written(log, replicas)


@contextmanager
def node(directory: Path) -> Iterator[Records]:
    """What the program writes goes here."""
    home = directory / "nodes"
    home.mkdir()
    with log_nodes(home) as them:
        yield Records(them[1].socket)


def check_found(directory: Path, replicas: Replicas) -> None:
    rows = replicas.rows()
    found = json.loads((directory / "found.json").read_text())
    assert [tuple(row) for row in found["rows"]] == [
        (row.position, row.message, row.payload.hex()) for row in rows
    ]
    assert found["streamed"] == [row.position for row in rows]
    assert found["batches"] == 3


def check_written(log: Records, replicas: Replicas) -> None:
    positions = [row.position for row in replicas.rows()]
    copies = [int(payload.rstrip(b".")) for payload in log.of("copies")]
    assert sorted(copies) == positions, "each once, though it was written twice"
    assert log.staged()
    assert sorted(map(int, log.of("streamed"))) == positions
    log.wait_for_no_holds()
