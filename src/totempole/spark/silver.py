"""Silver: the index of a run's ring events, as `checkers.history.History` has it, for all runs at once.

A life is one incarnation of a node. A stay is a life's time in one configuration. Both are numbered, from 1,
in the node's order; stay 0 is before a life's first configuration. The node's order is by `step`; among
nodes, "first" means the smallest node, then the smallest step.

Lives and stays are derived from the few rows that begin, change or end something, and from where each
incarnation has its first and its last row; only tables of messages look at every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.trace.layers.node import KILLED
from totempole.trace.layers.srp import LEAVE_TIMEOUT, LEFT, RECOVERING

_COLUMNS = (
    *("run", "node", "incarnation", "step", "at_us", "kind", "message", "origin", "service", "ring", "seq"),
    *("timestamp", "configuration", "configuration_kind", "members", "bytes", "reason"),
    *("count", "digest", "old_state", "new_state", "previous", "network", "srp_failed"),
)
_FEW = (
    *("configuration", "crash", "leave", "restart", "suspect"),
    *("state", "join", "blame", "persist", "persisted"),
)
_CHANGE = ("node", "step", "message", "at_us", "ring", "seq", "previous", "configuration_kind")


@dataclass(frozen=True)
class Silver:
    """Tables of ring events. Derived ones are planned when they are first asked for."""

    bronze: DataFrame
    """Raw events."""
    terms: DataFrame
    """run, complete, same_clock, expectation: one row for each run."""

    @cached_property
    def events(self) -> DataFrame:
        """The nodes' own events (not faults, which are done to them) with the life and the stay they fall in.

        Beside the raw columns: life; stay; stay_name, stay_regular: the configuration that the node is in;
        stay_ring: the last regular configuration of this life, that one included. Null in stay 0.
        """
        return _numbered(self.bronze.where(F.col("kind") != "fault").select(*_COLUMNS))

    @cached_property
    def spans(self) -> DataFrame:
        """run, node, incarnation; rows: how many, faults included; events: how many, without them; first,
        last, at_us: the steps of the first and the last event, and its time; grouped: some are of groups;
        logged: some are of the durable order."""
        own = F.col("kind") != "fault"
        step = F.when(own, F.col("step"))
        return self.bronze.groupBy("run", "node", "incarnation").agg(
            F.count("*").alias("rows"),
            F.count_if(own).alias("events"),
            F.min(step).alias("first"),
            F.max(step).alias("last"),
            F.max_by("at_us", step).alias("at_us"),
            F.bool_or(F.col("kind") == "process").alias("grouped"),
            F.bool_or(F.col("layer") == "corel").alias("logged"),
        )

    @cached_property
    def skeleton(self) -> DataFrame:
        """As `events`, but only rows of membership and of stable storage; and for
        each incarnation one of kind `first` and one of kind `last`."""
        few = self.bronze.where(F.col("kind").isin(*_FEW)).select(*_COLUMNS)
        key = ("run", "node", "incarnation", "at_us")
        for kind in ("first", "last"):
            marks = self.spans.where("events > 0").select(
                *key, F.col(kind).alias("step"), F.lit(kind).alias("kind")
            )
            few = few.unionByName(marks, allowMissingColumns=True)
        return _numbered(few)

    @cached_property
    def nodes(self) -> DataFrame:
        """run, node, last_at: who left any trace, if only a fault; last_at is null for those."""
        last = self.lives.groupBy("run", "node").agg(F.max("last_at").alias("last_at"))
        return self.spans.select("run", "node").distinct().join(last, ["run", "node"], "left")

    @cached_property
    def lives(self) -> DataFrame:
        """run, node, life, incarnation, ended, last_step, last_at, stays: how many; current: not ended; end:
        crash, leave, or null when it was killed; hurried: it left when its time was up."""
        is_end = F.col("kind").isin("crash", "leave")
        end = F.when(F.coalesce("reason", F.lit("")) != KILLED, F.col("kind"))
        each = self.skeleton.groupBy("run", "node", "life").agg(
            F.min_by("incarnation", "step").alias("incarnation"),
            F.max_by(end, F.when(is_end, F.col("step"))).alias("end"),
            F.bool_or(is_end).alias("stopped"),
            F.max_by(out_of_time(), F.when(F.col("kind") == "state", F.col("step"))).alias("hurried"),
            F.max("step").alias("last_step"),
            F.max_by("at_us", "step").alias("last_at"),
            F.max("stay").alias("stays"),
        )
        latest = F.max("life").over(Window.partitionBy("run", "node"))
        ended = F.col("stopped") | (F.col("life") < latest)
        return (
            each.withColumn("ended", ended)
            .withColumn("current", ~ended)
            .withColumn("hurried", F.coalesce("hurried", F.lit(False)))
            .drop("stopped")
        )

    @cached_property
    def states(self) -> DataFrame:
        """Rows of kind state."""
        return self.skeleton.where("kind = 'state'")

    @cached_property
    def committed(self) -> DataFrame:
        """run, ring, node, life, step, at_us, members: who first went from Commit to Recover for a ring."""
        row = F.struct("life", "step", "at_us", "members")
        first = (
            self.states.where(moved(RECOVERING))
            .groupBy("run", "ring", "node")
            .agg(F.min_by(row, "step").alias("row"))
        )
        return first.select("run", "ring", "node", "row.*")

    @cached_property
    def on_rings(self) -> DataFrame:
        """run, ring, node, life: the life that was on the ring, by its state, or else by a change."""
        word = self.committed.select("run", "ring", "node", "life", F.lit(0).alias("turn"), "step")
        changes = self.stays.where("regular").select(
            "run", F.col("name").alias("ring"), "node", "life", F.lit(1).alias("turn"), "change.step"
        )
        both = word.unionByName(changes).groupBy("run", "ring", "node")
        return both.agg(F.min_by("life", F.struct("turn", "step")).alias("life"))

    @cached_property
    def receipts(self) -> DataFrame:
        """run, ring, seq, node, life, receipt (struct: node, step, message, at_us): when the life that was on
        the ring first had the message there. An originator has it from its origination."""
        held = self.events.where("kind in ('originate', 'receive')")
        row = F.struct("node", "step", "message", "at_us")
        first = held.groupBy("run", "ring", "seq", "node", "life").agg(F.min_by(row, "step").alias("receipt"))
        return first.join(self.on_rings, ["run", "ring", "node", "life"], "left_semi")

    @cached_property
    def stays(self) -> DataFrame:
        """One row for each configuration that a life installed.

        run, node, life, stay, change (struct: node, step, message, at_us, ring, seq, previous,
        configuration_kind), name, id, regular, members, incarnation, ended (the life has), open (the last of
        a life that has not ended); before and after: the neighbouring stays of the same life (struct: stay,
        name, id, regular, members, step; or null); later: the next regular one (the same struct).
        """
        changes = self.skeleton.where("kind = 'configuration'").select(
            *("run", "node", "life", "stay"),
            F.struct(*_CHANGE).alias("change"),
            F.col("configuration").alias("name"),
            ring_id("configuration").alias("id"),
            F.col("stay_regular").alias("regular"),
            "members",
        )
        life = Window.partitionBy("run", "node", "life").orderBy("stay")
        short = F.struct("stay", "name", "id", "regular", "members", F.col("change.step").alias("step"))
        following = life.rowsBetween(1, Window.unboundedFollowing)
        lives = self.lives.select("run", "node", "life", "incarnation", "ended", "stays")
        return (
            changes.withColumn("before", F.lag(short).over(life))
            .withColumn("after", F.lead(short).over(life))
            .withColumn("later", F.first(F.when(F.col("regular"), short), ignorenulls=True).over(following))
            .join(lives, ["run", "node", "life"])
            .withColumn("open", ~F.col("ended") & (F.col("stay") == F.col("stays")))
            .drop("stays")
        )

    @cached_property
    def configurations(self) -> DataFrame:
        """run, name, members, kind: each configuration as the first who installed it was told of it."""
        first = F.struct("node", "change.step")
        return self.stays.groupBy("run", "name").agg(
            F.min_by("members", first).alias("members"),
            F.min_by("change.configuration_kind", first).alias("kind"),
        )

    @cached_property
    def originations(self) -> DataFrame:
        """Events of kind originate, and `first`: no smaller (node, step) originated the same message."""
        return self._firsts("originate", "run", "message")

    @cached_property
    def deliveries(self) -> DataFrame:
        """Events of kind deliver, and `first`: the node had not delivered the message before, in any life."""
        return self._firsts("deliver", "run", "message", "node")

    def _firsts(self, kind: str, *key: str) -> DataFrame:
        order = Window.partitionBy(*key).orderBy("node", "step")
        rows = self.events.where(F.col("kind") == kind)
        return rows.withColumn("first", F.row_number().over(order) == 1)

    @cached_property
    def receives(self) -> DataFrame:
        return self.events.where("kind = 'receive'")

    @cached_property
    def submissions(self) -> DataFrame:
        return self.events.where("kind = 'submit'")

    @cached_property
    def suspicions(self) -> DataFrame:
        return self.skeleton.where("kind = 'suspect'")

    @cached_property
    def slots(self) -> DataFrame:
        """run, ring, seq, row, rank: places of a ring that carry application messages, ranked from 1 by seq.

        `row` shows it (struct: kind, node, step, message, origin, timestamp, at_us): the first origination
        there, or else the first delivery of a message that nobody before delivered.
        """
        first_of_message = Window.partitionBy("run", "message").orderBy("node", "step")
        delivered = self.events.where("kind = 'deliver'").withColumn(
            "n", F.row_number().over(first_of_message)
        )
        rows = self.events.where("kind = 'originate'").unionByName(delivered.where("n = 1").drop("n"))
        order = F.struct(F.when(F.col("kind") == "originate", 0).otherwise(1), "node", "step")
        row = F.struct("kind", "node", "step", "message", "origin", "timestamp", "at_us")
        places = rows.groupBy("run", "ring", "seq").agg(F.min_by(row, order).alias("row"))
        return places.withColumn(
            "rank", F.row_number().over(Window.partitionBy("run", "ring").orderBy("seq"))
        )

    def only(self, runs: DataFrame) -> Silver:
        """The same of these runs."""
        few = F.broadcast(runs.select("run").distinct())
        return Silver(self.bronze.join(few, "run", "left_semi"), self.terms.join(few, "run", "left_semi"))


def moved(transition: tuple[str, str]) -> Column:
    """Whether a row of kind state leads from the first to the second."""
    old, new = transition
    return (F.col("old_state") == old) & (F.col("new_state") == new)


def out_of_time() -> Column:
    """Whether a row of kind state says that the processor left before it was done."""
    return (F.col("new_state") == LEFT) & (F.col("reason") == LEAVE_TIMEOUT)


def ring_id(name: str | Column) -> Column:
    """What a ring or configuration is compared by: (seq, representative) of its name seq@representative."""
    text = F.col(name) if isinstance(name, str) else name
    return F.struct(
        F.substring_index(text, "@", 1).cast("bigint").alias("seq"),
        F.substring_index(text, "@", -1).cast("bigint").alias("representative"),
    )


def _numbered(events: DataFrame) -> DataFrame:
    """One window, in two rounds: first what counts up along a node, then what begins anew with a life."""
    first = F.col("kind") == "first"  # stands before the row that it tells of, as `last` stands behind it
    mark = F.when(first, 0).when(F.col("kind") == "last", 2).otherwise(1)
    along = Window.partitionBy("run", "node").orderBy("step", mark)
    is_change = F.col("kind") == "configuration"
    is_regular = is_change & (F.col("configuration_kind") == "regular")
    before = F.lag("incarnation").over(along)
    told = (F.lag("kind").over(along) == "first") & (F.lag("step").over(along) == F.col("step"))
    restarts = (F.col("kind") == "restart") & ~F.coalesce(told, F.lit(False))
    begins = before.isNull() | (before != F.col("incarnation")) | restarts
    counted = events.withColumns(
        {
            "begins": begins,
            "changes": F.count_if(is_change).over(along),
            "stay_name": _latest(is_change, F.col("configuration"), along),
            "stay_regular": _latest(is_change, F.col("configuration_kind") == "regular", along),
            "stay_ring": _latest(is_regular, F.col("configuration"), along),
        }
    )
    base = _latest(F.col("begins"), F.col("changes") - is_change.cast("bigint"), along)
    numbered = counted.withColumns(
        {
            "life": F.count_if("begins").over(along),
            "base": base,
            "regulars": _latest(is_regular, F.col("changes"), along),
        }
    )
    inside = F.col("changes") > F.col("base")
    return numbered.withColumns(
        {
            "stay": F.col("changes") - F.col("base"),
            "stay_name": F.when(inside, F.col("stay_name")),
            "stay_regular": F.when(inside, F.col("stay_regular")),
            "stay_ring": F.when(F.col("regulars") > F.col("base"), F.col("stay_ring")),
        }
    ).drop("begins", "changes", "base", "regulars")


def _latest(condition: Column, value: Column, along: object) -> Column:
    return F.last(F.when(condition, value), ignorenulls=True).over(along)  # type: ignore[arg-type]
