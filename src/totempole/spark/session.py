"""The one place that builds a Spark session, or adopts the one that is there.

Embedded by default, on all cores of this machine, and bound to loopback; `spark://…` names a real cluster, to
whose executors totempole's code is shipped.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import totempole
from totempole.errors import ConfigurationError
from totempole.spark.java import java_home, quiet_home

EMBEDDED = "local[*]"
PARTITIONS_PER_CORE = 2
DRIVER_MEMORY = "2g"

_LOGGING = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
QUICK_JAVA = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m {_LOGGING}"
"""For Java that is to live for a minute: it starts sooner, and leaves the cores to Python."""
LARGE_ROWS = 1_000_000
LARGE = {"spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {_LOGGING}"}
"""Settings for work on more rows than that, which pays for what Java does to become fast."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Runs have names like "17" and "groups-17": a directory's name stays text.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # Everything is partitioned by run: what is grouped or joined by run and more is there already.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Events are flat, so this prunes nothing of what is read; and it loses columns of structs (4.3.0) where a
    # list is exploded beside them ("Could not find _extract_…").
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What Spark 4.3 infers of checkpointed rows names columns that their union has not: "key not found".
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    # A job of a second is worth no contest between two copies of a task, and a sink must not see two.
    "spark.speculation": "false",
}


@contextmanager
def open_session(
    app: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session while the work lasts. One that is there already is left running."""
    active = SparkSession.getActiveSession()
    if active is not None:
        _check_same(active, master)
        yield active
        return
    spark = build_session(app, master or EMBEDDED, settings or {})
    try:
        yield spark
    finally:
        spark.stop()


def build_session(app: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    _prepare(master)
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in (_SETTINGS | _settings_of(master) | dict(settings)).items():
        builder = builder.config(name, value)
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise ConfigurationError(f"--master {master}: Spark does not start: {_first_line(error)}") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # PySpark's own calls Java from within a call to Java
    if not master.startswith("local"):
        spark.addArtifacts(str(_packed_code()), pyfile=True)
    return spark


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at once."""
    return max(
        1, int(spark.conf.get("spark.totempole.cores", "0") or 0) or spark.sparkContext.defaultParallelism
    )


def _check_same(active: SparkSession, master: str | None) -> None:
    there = active.conf.get("spark.master", "")
    if master is not None and master != there:
        raise ConfigurationError(f"--master {master}: this program has a Spark session on {there} already")


def _prepare(master: str) -> None:
    """Before the Java process starts: afterwards it would be too late."""
    os.environ["JAVA_HOME"] = str(quiet_home(java_home()))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _is_near(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _settings_of(master: str) -> dict[str, str]:
    found = {
        "spark.driver.memory": os.environ.get("TOTEM_SPARK_MEMORY", DRIVER_MEMORY),
        "spark.driver.extraJavaOptions": QUICK_JAVA,
    }
    if master.startswith("local"):
        cores = _local_cores(master)
        found["spark.sql.shuffle.partitions"] = str(PARTITIONS_PER_CORE * cores)
        found["spark.python.daemon.module"] = "totempole.spark.quiet_daemon"  # a cluster's hosts lack it
    else:
        found["spark.checkpoint.dir"] = os.environ.get("TOTEM_SPARK_SCRATCH", tempfile.gettempdir())
    if _is_near(master):
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return found


def _local_cores(master: str) -> int:
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    if inside == "*":
        return len(os.sched_getaffinity(0))
    if inside and not inside.isdigit():
        raise ConfigurationError(f"--master {master}: write local[*], local[4] or spark://HOST:PORT")
    return int(inside or 1)


def _is_near(master: str) -> bool:
    """Whether nothing leaves this machine."""
    return master.startswith("local") or urlsplit(master).hostname in ("127.0.0.1", "localhost")


def _packed_code() -> Path:
    """The package as a zip file, as executors take it."""
    root = Path(totempole.__file__).parent
    packed = Path(tempfile.mkdtemp(prefix="totempole-code-")) / "totempole.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                archive.write(file, file.relative_to(root.parent))
    return packed


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
