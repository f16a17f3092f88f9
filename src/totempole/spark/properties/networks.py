"""What processors are told of a ring's networks, and what faults of these may do to it (RRP §§3, 5, 6).

The oracles are `checkers.network_history` and `checkers.network_faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.checkers.network_faults import FAILED
from totempole.spark.findings import evidence, failing, finding
from totempole.spark.silver import Silver

_RING = ("run", "ring")
_CONTENT = ("seq", "network", "old_state", "new_state", "reason")


def _row() -> Column:
    return F.struct("node", "step", F.lit("").alias("message"), "at_us", *_CONTENT)


def _told(silver: Silver) -> DataFrame:
    """run, node, life, stay, stay_name, stay_regular, ring, row: all rows on networks."""
    rows = silver.events.where("kind = 'network'")
    return rows.select(
        "run", "node", "life", "stay", "stay_name", "stay_regular", "ring", _row().alias("row")
    )


# network-agreement


def agreement(silver: Silver) -> Iterable[DataFrame]:
    told = _told(silver).where("stay_regular and ring = stay_name")
    told = told.join(_stays(silver), ["run", "ring", "node", "life", "stay"], "left_semi")
    told = told.select("run", "ring", "node", "row")
    first = told.groupBy(*_RING).agg(F.min("row.seq").alias("first"))
    reached = _reached(silver, told).join(first, list(_RING))
    order = Window.partitionBy(*_RING).orderBy(F.col("reached").desc(), "node")
    ranked = reached.withColumn("place", F.row_number().over(order))
    longest = ranked.where("place = 1").select(*_RING, F.col("node").alias("other"))
    each = ranked.where("place > 1").drop("place").join(longest, list(_RING))
    yield _different(told, each)
    yield _different_at_first(told, each)


def _stays(silver: Silver) -> DataFrame:
    """The first stay of each node in each regular configuration."""
    stays = silver.stays.where("regular")
    order = Window.partitionBy("run", "name", "node").orderBy("life", "stay")
    first = stays.withColumn("n", F.row_number().over(order)).where("n = 1")
    return first.select("run", F.col("name").alias("ring"), "node", "life", "stay", "ended", "after")


def _reached(silver: Silver, told: DataFrame) -> DataFrame:
    """run, ring, node, reached: how far each came in each configuration."""
    key = ["run", "ring", "node", "life", "stay"]
    places = silver.events.where("kind = 'deliver' and ring = stay_name").groupBy(*key)
    delivered = places.agg(F.max("seq").alias("delivered"))
    cut_short = (F.col("ended") & F.col("after").isNull()).cast("bigint")
    stays = _stays(silver).join(delivered, key, "left").join(told.select(*_RING).distinct(), list(_RING))
    own = told.groupBy("run", "ring", "node").agg(F.max("row.seq").alias("own"))
    whole = F.coalesce("delivered", F.lit(0)) - cut_short
    far = F.greatest(whole, F.coalesce("own", whole))
    return stays.join(own, ["run", "ring", "node"], "left").select(
        "run", "ring", "node", far.alias("reached")
    )


def _different(told: DataFrame, each: DataFrame) -> DataFrame:
    """The first place in the lists of two at which they differ, or one ends."""
    pair = ("run", "ring", "node", "other")
    along = Window.partitionBy(*pair).orderBy("step")
    mine = told.join(each, ["run", "ring", "node"]).where("row.seq > first")
    others = told.withColumnRenamed("node", "other").join(each, ["run", "ring", "other"])
    others = others.where("row.seq > first and row.seq <= reached")
    numbered = [
        rows.withColumn("step", F.col("row.step"))
        .withColumn("n", F.row_number().over(along))
        .select(*pair, "n", F.col("row").alias(name))
        for rows, name in ((mine, "mine"), (others, "theirs"))
    ]
    both = numbered[0].join(numbered[1], [*pair, "n"], "full")
    content = [F.struct(*(F.col(f"{name}.{part}") for part in _CONTENT)) for name in ("mine", "theirs")]
    alone = F.col("mine").isNull() | F.col("theirs").isNull()
    wrong = both.where(alone | (content[0] != content[1]))
    firsts = wrong.groupBy(*pair).agg(F.min_by(F.struct("mine", "theirs"), "n").alias("at"))
    firsts = firsts.select("run", "ring", "node", "other", "at.mine", "at.theirs")
    shown = F.coalesce("mine", "theirs")
    silent = F.when(F.col("mine").isNull(), F.col("node")).otherwise(F.col("other"))
    apart = F.format_string(
        "On ring %s node %d was told that %s, and node %d that %s.",
        *("ring", "mine.node", _text("mine"), "theirs.node", _text("theirs")),
    )
    found = firsts.withColumns(
        {
            "alone": F.col("mine").isNull() | F.col("theirs").isNull(),
            "apart": apart,
            "shown": shown,
            "silent": silent,
        }
    )
    alone_text = F.format_string(
        "On ring %s node %d was told that %s, and node %d was not.",
        *("ring", "shown.node", _text("shown"), "silent"),
    )
    return failing(
        found,
        (~F.col("alone"), finding(True, F.col("apart"), evidence("mine", "theirs"))),
        (F.col("alone"), finding(True, alone_text, evidence("shown"), F.array("shown.node", "silent"))),
    )


def _different_at_first(told: DataFrame, each: DataFrame) -> DataFrame:
    mine = told.join(each, ["run", "ring", "node"]).where("row.seq = first")
    theirs = told.withColumnRenamed("node", "other").withColumnRenamed("row", "theirs")
    both = mine.withColumnRenamed("row", "mine").join(theirs, ["run", "ring", "other"])
    wrong = both.where(
        "theirs.seq = first and mine.network = theirs.network and mine.new_state != theirs.new_state"
    )
    text = F.format_string(
        "On ring %s node %d was told that %s, and node %d that %s.",
        *("ring", "mine.node", _text("mine"), "theirs.node", _text("theirs")),
    )
    return wrong.select("run", *finding(True, text, evidence("mine", "theirs")))


def _text(row: str) -> Column:
    reason = F.col(f"{row}.reason")
    why = F.when(reason != "", F.concat(F.lit(" ("), reason, F.lit(")"))).otherwise("")
    return F.format_string(
        "network %d went from %s to %s%s at %d",
        *(f"{row}.network", f"{row}.old_state", f"{row}.new_state", why, f"{row}.seq"),
    )


# What faults may do, and what is told of them


def _stretches(silver: Silver, name: str) -> DataFrame:
    return silver.terms.select("run", F.explode(name).alias("calm"))


def _within(at_us: str) -> Column:
    return F.expr(f"{at_us} > calm.settled_us and {at_us} <= calm.to_us")


def no_configuration(silver: Silver) -> Iterable[DataFrame]:
    changes = silver.stays.select("run", "node", "name", "change").join(_stretches(silver, "shared"), "run")
    text = F.format_string(
        "Node %d installed %s at %d us, and since %d us every two processors shared a network.",
        *("node", "name", "change.at_us", "calm.from_us"),
    )
    yield failing(changes, (_within("change.at_us"), finding(True, text, evidence("change"))))


def no_needless_retransmission(silver: Silver) -> Iterable[DataFrame]:
    row = F.struct("node", "step", "message")
    sent = silver.events.where("kind = 'retransmit'").select(
        "run", "node", "ring", "seq", "at_us", row.alias("row")
    )
    text = F.format_string(
        "Node %d sent %s %d again at %d us, and nothing was lost since %d us.",
        *("node", "ring", "seq", "at_us", "calm.from_us"),
    )
    during = sent.join(_stretches(silver, "lossless"), "run")
    yield failing(during, (_within("at_us"), finding(True, text, evidence("row"))))


def no_false_alarm(silver: Silver) -> Iterable[DataFrame]:
    failed = F.col("row.new_state").isin(*FAILED) & (F.col("row.new_state") != F.col("row.old_state"))
    during = _told(silver).where(failed).join(_stretches(silver, "lossless"), "run")
    text = F.format_string(
        "Node %d was told that network %d is %s at %d us, and nothing was lost since %d us.",
        *("node", "row.network", "row.new_state", "row.at_us", "calm.from_us"),
    )
    yield failing(during, (_within("row.at_us"), finding(True, text, evidence("row"))))


def alarms(silver: Silver) -> Iterable[DataFrame]:
    faults = silver.terms.select("run", F.explode("alarmed").alias("fault"))
    lives = silver.lives.where("current and stays > 0").select("run", "node", "life").join(faults, "run")
    rows = _told(silver).select("run", "node", "life", "row")
    mine = lives.join(rows, ["run", "node", "life"], "left")
    since = F.expr("row.network = fault.network and row.at_us >= fault.from_us")
    step, reason = F.when(since, F.col("row.step")), F.col("row.reason")
    told = F.when(since & (reason != ""), F.col("row.step"))
    known = mine.groupBy("run", "node", "life", "fault").agg(
        F.min_by("row", told).alias("first"), F.max_by("row", step).alias("last")
    )
    never = F.col("first").isNull()
    when = F.when(never, F.lit("never")).otherwise(F.format_string("at %d us", "first.at_us"))
    late_text = F.format_string(
        "Node %d was told %s that network %d fails, which it does since %d us.",
        *("node", when, "fault.network", "fault.from_us"),
    )
    shown = F.when(never, evidence()).otherwise(evidence("first"))
    late = never | (F.col("first.at_us") > F.col("fault.told_us"))
    wrong_text = F.format_string(
        "Node %d was told of network %d at last: %s; it is %s.",
        *("node", "fault.network", _quoted("last.reason"), _quoted("fault.why")),
    )
    wrong = ~never & (F.col("last.reason") != F.col("fault.why"))
    yield failing(
        known,
        (late, finding(True, late_text, shown, F.array("node"))),
        (wrong, finding(True, wrong_text, evidence("last"))),
    )


def _quoted(name: str) -> Column:
    return F.concat(F.lit("'"), F.col(name), F.lit("'"))


NETWORKS: dict[str, Callable[[Silver], Iterable[DataFrame]]] = {
    "network-agreement": agreement,
    "network-no-configuration": no_configuration,
    "network-alarmed": alarms,
    "network-no-false-alarm": no_false_alarm,
    "no-needless-retransmission": no_needless_retransmission,
}
