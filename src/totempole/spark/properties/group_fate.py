"""What became of each accepted message, for Spark: who was entitled to it and never got it.

A process is entitled to a message if it was in the group when the sender's processor accepted it, and if its
processor was with the sender's in the configuration of that time and in all transitional configurations until
the message had its place (docs/groups.md "What is guaranteed").
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from totempole.spark.group_silver import COMPANIES, GroupSilver
from totempole.spark.silver import out_of_time


def missed(groups: GroupSilver) -> DataFrame:
    """One row for each message and each membership that began before it was sent, and in which it was never
    delivered: run, message, sender, number, sent, floor, first, group; birth, member (its name), membership,
    left, last: of the membership."""
    sent = groups.messages.where(F.col("sent").isNotNull() & F.col("floor").isNotNull())
    to_groups = F.explode(F.array_distinct("sent.groups_to")).alias("group")
    sent = sent.select("run", "message", "sender", "number", "sent", "floor", "first", to_groups)
    memberships = groups.memberships.where(F.col("first_view").isNotNull()).select(
        *("run", "group", "birth", "membership", "left", "last"),
        F.col("process").alias("member"),
        F.col("first_view.place").alias("mark"),
    )
    owed = sent.join(memberships, ["run", "group"]).where(F.col("mark") <= F.col("floor")).drop("mark")
    delivered = groups.deliveries.select("run", "birth", "message")
    return owed.join(delivered, ["run", "birth", "message"], "left_anti")


def with_company(groups: GroupSilver, cases: DataFrame, before: Column | None = None) -> DataFrame:
    """Those of `missed` whose processor was with the sender's since the message was accepted: until the
    sender's life ended, or until it installed the ring `before`."""
    lives = groups.processes.select(
        "run", F.col("birth").alias("sent_birth"), "life", F.col("node").alias("sent_node")
    )
    companies = groups.companies.select("run", F.col("node").alias("sent_node"), "companies")
    changes = groups.configurations.select(
        "run", F.col("configuration").alias("sent_in"), F.col("change.members").alias("there")
    )
    known = (
        cases.withColumns({"sent_birth": F.col("sent.birth"), "sent_in": F.col("sent.configuration")})
        .join(lives, ["run", "sent_birth"])
        .join(companies, ["run", "sent_node"], "left")
        .join(changes, ["run", "sent_in"])
    )

    def counts(one: Column) -> Column:
        since = (one["step"] > F.col("sent.step")) & (one["life"] == F.col("life"))
        return since if before is None else since & (one["id"] < before)

    passed = F.filter(F.coalesce("companies", F.array().cast(COMPANIES)), counts)
    node = F.col("birth.node")
    stayed = F.forall(passed, lambda one: F.array_contains(one["members"], node))
    return known.where(F.array_contains("there", node) & stayed)


def left_in_good_order(groups: GroupSilver) -> DataFrame:
    """run, node, life: whose last row says that it left, and that had not run out of time to do so."""
    bronze = groups.silver.bronze
    leaves = bronze.where("kind = 'leave'").select("run", "node", "step")
    hurried = bronze.where((F.col("kind") == "state") & out_of_time())
    lives = groups.silver.lives.select("run", "node", "incarnation", "life", F.col("last_step").alias("step"))
    left = lives.join(leaves, ["run", "node", "step"], "left_semi")
    return left.join(hurried, ["run", "node", "incarnation"], "left_anti").select("run", "node", "life")
