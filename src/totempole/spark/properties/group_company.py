"""Honest company, for Spark: who a view says is there and came along (Totem CACM "Virtual Synchrony…")."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding, reason
from totempole.spark.group_places import incarnation_of, listed, processor_of, shown
from totempole.spark.group_silver import COMPANIES, GroupSilver
from totempole.spark.properties.group_traces import with_telling


def honest_company(groups: GroupSilver) -> Iterable[DataFrame]:
    yield from _configurations(groups)
    yield _requests(groups)
    yield _reasons(groups)
    yield _changes(groups)


def _configurations(groups: GroupSilver) -> Iterable[DataFrame]:
    """Each view, as the first who was told of these members has it, in the configuration that it names."""
    order = Window.partitionBy("run", "id", "members").orderBy("birth", "row")
    views = groups.views.withColumn("number", F.row_number().over(order)).where("number = 1")
    views = views.join(groups.configurations, ["run", "configuration"], "left")
    nowhere = F.concat(_who(), F.lit(" in no configuration."))
    change = "change.configuration_kind"
    other_kind = F.format_string(
        "%s, a %s one, in the %s configuration %s.", _who(), "configuration_kind", change, "configuration"
    )
    yield failing(
        views,
        (F.col("change").isNull(), finding(True, nowhere, evidence("row"))),
        (F.col(change) != F.col("configuration_kind"), finding(True, other_kind, evidence("row", "change"))),
    )
    members = views.where(F.col("change").isNotNull()).select("*", F.explode("members").alias("name"))
    lives = _installers(groups).withColumnRenamed("node", "processor")
    members = members.withColumn("processor", processor_of("name"))
    yield failing(
        members.join(lives, ["run", "configuration", "processor"], "left"), _not_in_it(), _of_another_life()
    )


def _installers(groups: GroupSilver) -> DataFrame:
    """In which life each node was in a regular configuration."""
    changes = groups.silver.bronze.where("kind = 'configuration' and configuration_kind = 'regular'")
    return changes.groupBy("run", "configuration", "node").agg(
        F.min_by("incarnation", "step").alias("incarnation")
    )


def _not_in_it() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "%s with %s, whose processor is not in configuration %s.", _who(), "name", "configuration"
    )
    outside = ~F.array_contains("change.members", F.col("processor"))
    return outside, finding(True, text, evidence("row"), F.array("row.node", "processor"))


def _of_another_life() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "%s with %s, but node %s was in %s in its life %s.",
        *(_who(), "name", "processor", "configuration", "incarnation"),
    )
    inside = F.array_contains("change.members", F.col("processor"))
    other = inside & (F.col("incarnation") != incarnation_of("name"))
    return other, finding(True, text, evidence("row"), F.array("row.node", "processor"))


def _requests(groups: GroupSilver) -> DataFrame:
    """Whoever is in a view asked to join the group: judged once, at the first view that has it."""
    order = F.struct("birth", "row", "place", "process")
    members = groups.views.select("run", "group", F.explode("members").alias("name"), order.alias("view"))
    first = members.groupBy("run", "group", "name").agg(F.min("view").alias("view"))
    latest = groups.processes.where("latest").select("run", "birth")
    asked = groups.memberships.where(F.col("join").isNotNull()).join(latest, ["run", "birth"], "left_semi")
    asked = asked.select("run", "group", F.col("process").alias("name"))
    unasked = first.join(asked, ["run", "group", "name"], "left_anti").select("*", "view.*")
    rows = with_telling(groups, unasked.withColumn("since", F.col("row.at_us")), "name", "since")
    silent = F.format_string(
        "Node %s, of which %s is in a view of %s, left no trace.", "processor", "name", "group"
    )
    text = F.format_string("%s with %s, which never asked to join.", _who(), "name")
    never = finding(F.col("told"), text, evidence("row"), F.array("row.node", "processor"))
    return failing(rows, (~F.col("known"), reason(silent)), (F.col("known"), never))


def _reasons(groups: GroupSilver) -> DataFrame:
    """Whoever is gone by a leave asked for it, and whoever is gone by a disconnect has disconnected: judged
    once for each, at the first view that says so."""
    gone = F.array_except("before.members", "members")
    views = groups.views.where(F.col("changed").isin("leave", "disconnect")).withColumn("gone", gone)
    each = views.where(F.size("gone") == 1).withColumn("name", F.col("gone")[0])
    order = F.struct("birth", "row", "place", "process")
    first = each.groupBy("run", "group", "name", "changed").agg(F.min(order).alias("view"))
    latest = groups.processes.where("latest").select("run", "birth", "process", "disconnected")
    left = groups.memberships.where(F.col("left").isNotNull()).join(latest, ["run", "birth", "process"])
    left = left.select("run", "group", F.col("process").alias("name"), F.lit("leave").alias("changed"))
    quit = latest.where("disconnected").select(
        "run", F.col("process").alias("name"), F.lit("disconnect").alias("changed")
    )
    unasked = first.join(left, ["run", "group", "name", "changed"], "left_anti")
    unasked = unasked.join(quit, ["run", "name", "changed"], "left_anti").select("*", "view.*")
    rows = with_telling(groups, unasked.withColumn("since", F.col("row.at_us")), "name", "since")
    silent = F.format_string("Node %s, of which %s was in %s, left no trace.", "processor", "name", "group")
    never = F.when(F.col("changed") == "leave", F.lit("asked to leave")).otherwise(F.lit("disconnected"))
    text = F.format_string("%s by %s of %s, which never %s.", _who(), "changed", "name", never)
    wrong = finding(F.col("told"), text, evidence("row"), F.array("row.node", "processor"))
    return failing(rows, (~F.col("known"), reason(silent)), (F.col("known"), wrong))


def _changes(groups: GroupSilver) -> DataFrame:
    """From the view before, if there is one, to this one."""
    before, together = F.col("before.members"), F.col("together")
    stayed = F.array_intersect("members", before)
    views = groups.views.withColumns(
        {
            "come": F.array_except("members", before),
            "gone": F.array_except(before, F.col("members")),
            "strangers": F.array_except(together, F.coalesce(stayed, "members")),
            "left_out": F.array_except(stayed, together),
            "more": F.array_except("members", together),
            "along": F.array_contains("together", F.col("process")),
        }
    )
    views = _with_companions(groups, views)
    fault = F.when(F.col("along"), _fault())
    with_strangers = F.format_string(
        "as come along with %s, which it cannot have", listed(F.col("strangers"))
    )
    none = F.col("before").isNull()
    return failing(
        views,
        (F.size("strangers") > 0, _report(with_strangers)),
        (none & F.col("along"), _report(F.lit("as come along itself, from a view that it did not have"))),
        (~none & ~F.col("along"), _report(F.lit("as if it had not come along itself"))),
        (~none & fault.isNotNull(), _report(fault)),
    )


def _with_companions(groups: GroupSilver, views: DataFrame) -> DataFrame:
    """With companions: the members of the view before whose processors were with this one in all transitional
    configurations since (Totem §3.4)."""
    changes = groups.companies.select("run", F.col("node").alias("here"), "companies")
    since, until = F.col("before.row.step"), F.col("row.step")
    passed = F.filter("companies", lambda one: (one["step"] > since) & (one["step"] <= until))
    known = views.withColumn("here", F.col("row.node")).join(changes, ["run", "here"], "left")
    known = known.withColumn("passed", F.coalesce(passed, F.array().cast(COMPANIES)))

    def came(name: Column) -> Column:
        return F.forall("passed", lambda one: F.array_contains(one["members"], processor_of(name)))

    return known.withColumn("companions", F.filter("before.members", came))


def _fault() -> Column:
    """A change of configuration may bring many and cost many, but a transitional one brings nobody. Any other
    change brings or costs one process, and all the rest come along."""
    by_configuration = F.col("changed") == "configuration"
    brings = ~F.col("regular") & (F.col("members") != F.col("together"))
    joins = F.col("changed") == "join"
    expected = (F.size("come") == joins.cast("int")) & (F.size("gone") == (~joins).cast("int"))
    more = F.format_string("transitional, and with %s more than came along", listed(F.col("more")))
    others = F.format_string(
        "by %s, with %s come and %s gone", "changed", _or_nobody("come"), _or_nobody("gone")
    )
    missing = F.format_string("by %s, as if %s had not come along", "changed", listed(F.col("left_out")))
    company = F.format_string(
        "as come along with %s, when %s did", listed(F.col("together")), listed(F.col("companions"))
    )
    return (
        F.when(by_configuration & brings, more)
        .when(by_configuration & (F.col("companions") != F.col("together")), company)
        .when(~by_configuration & ~expected, others)
        .when(~by_configuration & (F.size("left_out") > 0), missing)
    )


def _or_nobody(names: str) -> Column:
    return F.when(F.size(names) == 0, F.lit("nobody")).otherwise(listed(F.col(names)))


def _report(fault: Column) -> tuple[Column, ...]:
    rows = F.when(F.col("before").isNull(), evidence("row")).otherwise(evidence("before.row", "row"))
    return finding(True, F.format_string("%s %s.", _who(), fault), rows)


def _who() -> Column:
    return F.format_string(
        "Process %s was told of the view of %s at %s", "row.process", "group", shown("place")
    )
