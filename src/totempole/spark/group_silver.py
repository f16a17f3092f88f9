"""Silver of the group layer: what `checkers.group_history.GroupHistory` has, for all runs at once.

A process is a program on a processor for the time of one connection. It is known by its birth, the (node,
step) of its first row; a name may be borne twice, where a life left its incarnation to the next. Processes
come in the order of birth, and the events of each by (node, step): so the checks look at them, and "first"
means that. A membership is a process's time in one group, numbered from 1 in the order of asking.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.group_messages import messages_of, sends_of
from totempole.spark.group_places import place_of_row, set_of
from totempole.spark.group_standing import with_memberships
from totempole.spark.silver import Silver, ring_id

_KINDS = (
    *("process", "group_join", "group_leave", "group_send", "group_deliver", "group_view", "group_safe"),
    "group_state",
)
_COLUMNS = (
    *("run", "node", "step", "at_us", "kind", "message", "origin", "process", "service", "ring", "seq"),
    *("configuration", "configuration_kind", "group", "count", "bytes", "digest", "reason"),
    *("groups_to", "groups_index", "groups_processes", "groups_together", "groups_offers_state"),
    *("groups_wants_state", "groups_stage", "groups_peer"),
)
_ROW = ("node", "step", "message", "at_us", "process")
_MEMBERSHIP = ("run", "birth", "group", "membership")
_VIEW = (
    *("row", "place", "configuration", "configuration_kind", "regular", "changed", "members", "together"),
    "membership",
)

COMPANIES = (
    "array<struct<step:bigint,life:bigint,id:struct<seq:bigint,representative:bigint>,members:array<bigint>>>"
)


@dataclass(frozen=True)
class GroupSilver:
    """Tables of the group layer's events. Each is planned when it is first asked for."""

    silver: Silver

    def prepare(self) -> GroupSilver:
        """Keeps what is asked for again and again."""
        for table in self.kept:
            table.persist()
        return self

    @property
    def kept(self) -> tuple[DataFrame, ...]:
        tables = (self.events, self.processes, self.configurations, self.views, self.memberships, self.states)
        return (
            *(self.silver.lives, self.silver.nodes, *tables, self.deliveries, self.receptions, self.sends),
            self.messages,
        )

    @cached_property
    def events(self) -> DataFrame:
        """All rows of the group layer.

        Beside the raw columns: birth (struct: node, step), of the process that the row is of; row (struct:
        node, step, message, at_us, process), the row as evidence; place, in the total order, or null.
        """
        rows = self.silver.bronze.where(F.col("kind").isin(*_KINDS)).select(*_COLUMNS)
        of_name = Window.partitionBy("run", "process").orderBy("node", "step")
        connects = (F.col("kind") == "process") & (F.col("reason") == "connect")
        begins = connects | (F.row_number().over(of_name) == 1)
        born = rows.withColumn("birth", F.when(begins, F.struct("node", "step")))
        return born.withColumns(
            {
                "birth": F.last("birth", ignorenulls=True).over(of_name),
                "row": F.struct(*_ROW),
                "place": place_of_row(),
            }
        )

    @cached_property
    def processes(self) -> DataFrame:
        """run, birth, process, node, life, disconnected; latest: the last of its name; ended: it or its life
        is; current: its life is the node's last, and not ended; final: the last configuration of its life, or
        null."""
        gone = (F.col("kind") == "process") & (F.col("reason") == "disconnect")
        each = self.events.groupBy("run", "birth", "process").agg(F.bool_or(gone).alias("disconnected"))
        lives = self.silver.lives.select("run", "node", "life", "last_step", "ended", "current")
        latest = F.col("birth") == F.max("birth").over(Window.partitionBy("run", "process"))
        # The life that it was born in is the first that ends no earlier.
        homes = (
            each.withColumns({"node": F.col("birth.node"), "latest": latest})
            .join(lives, ["run", "node"])
            .where(F.col("last_step") >= F.col("birth.step"))
            .groupBy("run", "birth", "process", "node", "disconnected", "latest")
            .agg(F.min_by(F.struct("life", "ended", "current"), "life").alias("home"))
        )
        found = homes.select("*", "home.*").drop("home").join(self._finals, ["run", "node", "life"], "left")
        return found.withColumn("ended", F.col("disconnected") | F.col("ended"))

    @cached_property
    def _finals(self) -> DataFrame:
        changes = self.silver.skeleton.where("kind = 'configuration'")
        return changes.groupBy("run", "node", "life").agg(F.max_by("configuration", "step").alias("final"))

    @cached_property
    def configurations(self) -> DataFrame:
        """run, configuration, change (struct: node, step, message, members, configuration_kind): as the first
        who installed it was told of it."""
        changes = self.silver.bronze.where("kind = 'configuration'")
        change = F.struct("node", "step", "message", "members", "configuration_kind")
        first = F.min_by(change, F.struct("node", "step"))
        return changes.groupBy("run", "configuration").agg(first.alias("change"))

    @cached_property
    def companies(self) -> DataFrame:
        """run, node, companies (COMPANIES): its transitional configurations, in order,
        each with who came along. A node has few of them, so they are one list."""
        changes = self.silver.skeleton.where("kind = 'configuration' and configuration_kind != 'regular'")
        change = F.struct("step", "life", ring_id("configuration").alias("id"), "members")
        each = changes.groupBy("run", "node").agg(F.array_sort(F.collect_list(change)).alias("companies"))
        return each.withColumn("companies", F.col("companies").cast(COMPANIES))

    @cached_property
    def _standing(self) -> DataFrame:
        return with_memberships(self.events)

    @cached_property
    def views(self) -> DataFrame:
        """run, birth, process, group; row, place, configuration, configuration_kind, regular, changed;
        members, together: sorted names; membership; id (struct: group, place, configuration); before: the one
        before it in the same membership (struct: row, place … membership, id), or null."""
        views = self._standing.where("kind = 'group_view'").withColumns(
            {
                "regular": F.col("configuration_kind") == "regular",
                "changed": F.col("reason"),
                "members": set_of("groups_processes"),
                "together": set_of("groups_together"),
                "id": F.struct("group", "place", "configuration"),
            }
        )
        along = Window.partitionBy(*_MEMBERSHIP).orderBy("row")
        before = F.lag(F.struct(*_VIEW, "id")).over(along)
        return views.select("run", "birth", "process", "group", *_VIEW, "id", before.alias("before"))

    @cached_property
    def memberships(self) -> DataFrame:
        """run, birth, process, group, membership; join: the request, or null; offers_state, wants_state: of
        it; left: where it asked to leave, or null; last: nothing was asked for after it; first_view,
        last_view: of it (struct as `before` of `views`), or null."""
        requests = self._standing.where("asked > 0").groupBy("run", "birth", "process", "group", "asked")
        joins, leaves = F.col("kind") == "group_join", F.col("kind") == "group_leave"
        each = requests.agg(
            F.min(F.when(joins, F.col("row"))).alias("join"),
            *(_flag(joins, name).alias(name) for name in ("offers_state", "wants_state")),
            F.min(F.when(leaves, F.col("row"))).alias("left"),
        ).withColumnRenamed("asked", "membership")
        view = F.struct(*_VIEW, "id")
        told = self.views.groupBy(*_MEMBERSHIP).agg(
            F.min_by(view, "row").alias("first_view"), F.max_by(view, "row").alias("last_view")
        )
        latest = F.max("membership").over(Window.partitionBy("run", "birth", "group"))
        found = each.join(told, list(_MEMBERSHIP), "left")
        return found.withColumn("last", F.col("membership") == latest)

    @cached_property
    def states(self) -> DataFrame:
        """run, birth, process, group, row, place, membership (0: none), stage, peer, digest."""
        return self._standing.where("kind = 'group_state'").select(
            *("run", "birth", "process", "group", "row", "place", "membership", "digest"),
            *(F.col(f"groups_{name}").alias(name) for name in ("stage", "peer")),
        )

    @cached_property
    def deliveries(self) -> DataFrame:
        """run, birth, process, row, place, and raw columns."""
        return self.events.where("kind = 'group_deliver'").drop("kind", "configuration_kind")

    @cached_property
    def receptions(self) -> DataFrame:
        """One row for each delivery and each of the groups that the message was sent to.

        run, birth, group; groups: all of them; at: which of them this is; row, place, ring, configuration:
        the delivery's; seen: the receiver's view of the group at that time (struct: row, place,
        configuration, regular, membership), or null.
        """
        seen = F.struct("row", "place", "configuration", "regular", "membership")
        views = self.views.select("run", "birth", "group", "row", seen.alias("seen"))
        nowhere = F.size("groups_to") == 0
        groups = F.when(nowhere, F.array(F.lit(""))).otherwise(F.col("groups_to"))
        each = self.deliveries.select(
            *("run", "birth", "row", "place", "ring", "configuration", F.col("groups_to").alias("groups")),
            F.posexplode(groups).alias("at", "group"),
        )
        along = Window.partitionBy("run", "birth", "group").orderBy("row.node", "row.step")
        latest = F.last("seen", ignorenulls=True).over(along)
        both = each.unionByName(views, allowMissingColumns=True).withColumn("seen", latest)
        return both.where(F.col("at").isNotNull())

    @cached_property
    def notices(self) -> DataFrame:
        """Events of kind group_safe."""
        return self.events.where("kind = 'group_safe'")

    @cached_property
    def sends(self) -> DataFrame:
        """See `sends_of`."""
        delivered = self.silver.bronze.where("kind = 'deliver'").select("run", "node", "step", "ring", "seq")
        packets = delivered.join(self.processes.select("run").distinct(), "run", "left_semi")
        return sends_of(self.events, packets, self.processes, self.configurations)

    @cached_property
    def messages(self) -> DataFrame:
        """See `messages_of`."""
        return messages_of(self.sends, self.deliveries)


def _flag(joins: Column, name: str) -> Column:
    """Of the request, if there is one."""
    return F.coalesce(F.bool_or(F.when(joins, F.col(f"groups_{name}"))), F.lit(False))
