"""Orders in, invoices and a running table out: a Spark program like any other.

    python pipeline.py DIRECTORY
    spark-submit --master 'local[2,4]' pipeline.py DIRECTORY

Both queries read the log "orders" and join it with prices.csv. One writes invoices to the log "invoices",
each of them once. The other keeps a table of what was sold, as Parquet. Kill this program whenever you like
and start it again: it goes on from its checkpoints, which are in DIRECTORY too. Ctrl-C ends it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from threading import Event

from nodes import sockets
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, col, count, from_json, max, struct, sum, to_json
from pyspark.sql.streaming import StreamingQuery

PRICES = str(Path(__file__).with_name("prices.csv").resolve())
ORDER = "id STRING, customer STRING, product STRING, quantity LONG"
TABLES_KEPT = 20

# For `python pipeline.py`. A task that fails is tried four times, as on a cluster; local[2] alone would not.
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--master local[2,4] pyspark-shell")
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def read_sales(spark: SparkSession, nodes: str) -> DataFrame:
    """Orders as they come, with the price of their product and their position in the log."""
    prices = spark.read.csv(PRICES, header=True, schema="product STRING, price LONG")
    orders = (
        spark.readStream.format("totem")
        .option("replicas", nodes)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        orders.select("position", from_json(col("payload").cast("string"), ORDER).alias("order"))
        .select("position", "order.*")
        .join(broadcast(prices), "product")
        .withColumn("amount", col("quantity") * col("price"))
    )


def main(directory: Path) -> None:
    spark = SparkSession.builder.appName("orders").config("spark.sql.shuffle.partitions", 2).getOrCreate()
    nodes = ",".join(sockets(directory))
    sales = read_sales(spark, nodes)

    # Invoices have no keys: that none is there twice is the work of the sink alone.
    invoice = struct("id", "position", "customer", "product", "quantity", "amount")
    invoices = (
        sales.select(to_json(invoice).alias("payload"))
        .writeStream.format("totem")
        .queryName("invoices")
        .option("replicas", nodes)
        .option("log", "invoices")
        .option("checkpointLocation", f"{directory}/checkpoints/invoices")
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    wait_for_sources(invoices)

    def keep_table(table: DataFrame, batch: int) -> None:
        """A batch that is run again after a crash overwrites its own files with the same rows."""
        table.coalesce(1).write.mode("overwrite").parquet(f"{directory}/table/batch={batch}")
        shutil.rmtree(f"{directory}/table/batch={batch - TABLES_KEPT}", ignore_errors=True)

    (
        sales.groupBy("product")
        .agg(
            count("*").alias("orders"),
            sum("quantity").alias("quantity"),
            sum("amount").alias("amount"),
            max("position").alias("position"),
        )
        .writeStream.outputMode("complete")
        .queryName("table")
        .foreachBatch(keep_table)
        .option("checkpointLocation", f"{directory}/checkpoints/table")
        .trigger(processingTime="1 second")
        .start()
    )
    wait(spark)


def wait_for_sources(query: StreamingQuery) -> None:
    """Two queries must not open their sources at the same moment: see docs/spark-table.md, Errors."""
    while query.isActive and query.status["message"] == "Initializing sources":
        time.sleep(0.02)


def wait(spark: SparkSession) -> None:
    """Until Ctrl-C. If a query fails, its error ends the program, and whoever runs it starts it again."""
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        spark.streams.awaitAnyTermination(1)
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve())
