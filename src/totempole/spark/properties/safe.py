"""Delivery in safe order: Totem §3.5, theorem 4.15. The oracle is `checkers.safe`.

A safe message delivered in configuration C promises that every member of C has it and delivers it too, in
whatever configuration (figure 4.16), unless the member fails before it installs its next regular one.
Leaving is no failure.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.spark.findings import finding
from totempole.spark.silver import Silver, ring_id


def safe_delivery(silver: Silver) -> Iterable[DataFrame]:
    promised = _promised(silver)
    yield _not_delivered(silver, promised)
    yield _not_received(silver, promised)


def _promised(silver: Silver) -> DataFrame:
    """Each safe message, each configuration that it was delivered in, each of its members.

    run, message, name, member; node, step, at_us, ring and seq are those of the earliest delivery there.
    """
    stays = silver.stays.select("run", "node", "life", "stay", "name", F.col("members").alias("company"))
    delivery = F.struct("at_us", "node", "step", "ring", "seq", "company")
    first = (
        silver.events.where("kind = 'deliver' and service = 'safe' and stay > 0")
        .join(stays, ["run", "node", "life", "stay"])
        .groupBy("run", "message", "name")
        .agg(F.min(delivery).alias("first"))
        .select("run", "message", "name", "first.*")
    )
    return first.withColumn("member", F.explode("company")).drop("company")


def _not_delivered(silver: Silver, promised: DataFrame) -> DataFrame:
    """Undecided where the member may yet deliver it, or nothing is known of it."""
    delivered = silver.events.where("kind = 'deliver'").select(
        "run", "message", F.col("node").alias("member")
    )
    owed = promised.join(delivered, ["run", "message", "member"], "left_anti")
    fates = _fates(silver, owed.select("run", "ring", "member").distinct())
    known = owed.join(fates, ["run", "ring", "member"], "left").join(silver.terms, "run")
    due = known.where("fate is null or fate.later is not null or not fate.ended or fate.left")
    later = F.col("fate.later")
    text = F.when(
        F.col("fate").isNull(), F.format_string("Nothing is known of node %d on ring %s.", "member", "ring")
    ).otherwise(
        F.concat(
            F.format_string("Node %d delivered %s as safe in %s, and its member %d ", *_PROMISE),
            F.coalesce(
                F.concat(F.lit("installed "), later["name"], F.lit(" without having delivered it.")),
                F.when(F.col("fate.left"), F.lit("left without having delivered it.")),
                F.lit("never delivered it."),
            ),
        )
    )
    done = later.isNotNull() | F.col("fate.left") | F.col("complete")
    violated = F.col("fate").isNotNull() & done
    return due.select("run", *_about(violated, text, F.col("member"), later["step"], F.lit("")))


_PROMISE = ("node", "message", "name", "member")


def _about(violated: Column, text: Column, *proof: Column) -> tuple[Column, ...]:
    """A finding about both, who delivered and the member.

    `proof` is node, step and message of the member's row that shows it; the step is null if there is none.
    """
    row = F.struct("node", "step", "message")
    other = F.struct(
        *(value.alias(name) for value, name in zip(proof, ("node", "step", "message"), strict=True))
    )
    rows = F.array(row, F.when(proof[1].isNotNull(), other))
    return finding(violated, text, rows, F.array("node", "member"))


def _fates(silver: Silver, expected: DataFrame) -> DataFrame:
    """run, ring, member, fate (struct: later, ended, left): of the member's life that was to be on the ring.

    left: it ended by leaving, and not because its time to leave was up.

    It is seen from the stay there, or else from the last stay below the ring: identifiers only grow, over
    restarts too, so the last life that began below the ring's is the one.
    """
    left = F.coalesce(F.expr("end = 'leave' and not hurried"), F.lit(False))
    lives = silver.lives.select("run", "node", "life", left.alias("left"))
    stays = silver.stays.join(lives, ["run", "node", "life"]).select(
        *("run", F.col("node").alias("member"), "life", "stay", "name", "id", "regular", "later", "ended"),
        "left",
    )
    there = F.col("regular") & (F.col("name") == F.col("ring"))
    below = F.col("id") < ring_id("ring")
    place, fate = F.struct("life", "stay"), F.struct("later", "ended", "left")
    return (
        expected.join(stays, ["run", "member"])
        .where(there | below)
        .groupBy("run", "ring", "member")
        .agg(
            F.coalesce(F.min_by(fate, F.when(there, place)), F.max_by(fate, F.when(below, place))).alias(
                "fate"
            )
        )
    )


def _not_received(silver: Silver, promised: DataFrame) -> DataFrame:
    """With one clock and rows for receipts: the members that did not have it when it was delivered.

    A receipt by another life of the member is none. A life that was killed is judged up to its last row.
    """
    judged = silver.receives.select("run").distinct().join(silver.terms.where("same_clock"), "run")
    killed = F.bool_or(F.col("ended") & F.col("end").isNull()).alias("some_killed")
    nodes = silver.nodes.join(
        silver.lives.groupBy("run", "node").agg(killed), ["run", "node"], "left"
    ).select("run", F.col("node").alias("member"), F.lit(True).alias("traced"), "some_killed")
    early = (
        promised.join(judged.select("run", "complete"), "run")
        .join(_receipts(silver), ["run", "ring", "seq", "member"], "left")
        .where("received_us is null or received_us > at_us")
        .join(nodes, ["run", "member"], "left")
        .join(_on_ring(silver), ["run", "ring", "member"], "left")
    )
    text = F.when(
        F.col("traced").isNull(),
        F.format_string("Node %d of configuration %s left no trace.", "member", "name"),
    ).otherwise(
        F.format_string(
            "Node %d delivered %s as safe in %s when its member %d had not received it.", *_PROMISE
        )
    )
    reaches = F.coalesce(F.col("last_at") >= F.col("at_us"), F.lit(False))
    # A life that shows nothing of the ring may be one that was killed.
    whole = F.col("complete") & ~F.coalesce(F.col("killed"), F.col("some_killed"), F.lit(False))
    told = F.col("received_us").isNotNull() | whole | reaches
    violated = F.col("traced").isNotNull() & told
    return early.select(
        "run", *_about(violated, text, F.col("member"), F.col("received_step"), F.col("received"))
    )


def _receipts(silver: Silver) -> DataFrame:
    """run, ring, seq, member, received_us, received_step, received: who had what is there, and since when."""
    return silver.receipts.select(
        *("run", "ring", "seq", F.col("node").alias("member")),
        F.col("receipt.at_us").alias("received_us"),
        F.col("receipt.step").alias("received_step"),
        F.col("receipt.message").alias("received"),
    )


def _on_ring(silver: Silver) -> DataFrame:
    """run, ring, member, last_at, killed: its life on the ring; killed: no row says how it ended."""
    killed = F.col("ended") & F.col("end").isNull()
    lives = silver.lives.select("run", "node", "life", "last_at", killed.alias("killed"))
    return silver.on_rings.join(lives, ["run", "node", "life"]).select(
        "run", "ring", F.col("node").alias("member"), "last_at", "killed"
    )
