"""Views, for Spark: all see the same ones, each is in its own, and they come before their messages."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from totempole.spark.findings import evidence, failing, finding
from totempole.spark.group_places import is_regular, listed, shown
from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group_traces import without_trace


def view_agreement(groups: GroupSilver) -> Iterable[DataFrame]:
    """Who installs a view is told the same of it as all others who do.

    Who came along differs where parts of a group merge, each with its own past; but whoever is named as
    company by several has the same company for all of them.
    """
    told = ("row", "configuration_kind", "regular", "changed", "members")
    of_view = Window.partitionBy("run", "id").orderBy("birth", "row")
    views = groups.views.withColumns(
        {"first": F.first(F.struct(*told)).over(of_view), "this": F.struct(*told)}
    )
    mine, yours = (
        F.struct(*(f"{view}.{name}" for name in ("regular", "changed", "members")))
        for view in ("first", "this")
    )
    text = _told_differently(_named("first"), _named("this"))
    yield failing(views, (mine != yours, finding(True, text, evidence("first.row", "this.row"))))
    yield _companies(groups)
    firsts = views.where(F.col("first.row") == F.col("row"))
    names = firsts.select("run", F.explode("members").alias("name"))
    yield without_trace(groups, names, "Node %s, of which processes are in views, left no trace.")


def _told_differently(mine: Column, yours: Column) -> Column:
    return F.format_string(
        "Processes %s and %s were told differently of the view of group %s at %s: %s, and %s.",
        *("first.row.process", "this.row.process", "id.group", shown("id.place"), mine, yours),
    )


def _named(view: str) -> Column:
    columns = (f"{view}.configuration_kind", f"{view}.changed", listed(F.col(f"{view}.members")))
    return F.format_string("%s by %s {%s}", *columns)


def _companies(groups: GroupSilver) -> DataFrame:
    """Each company of a view, as the first who names it has it, against those named before."""
    order = F.struct("birth", "row", "together")
    first = groups.views.groupBy("run", "id", "together").agg(F.min(order).alias("company"))
    several = first.groupBy("run", "id").agg(F.array_sort(F.collect_list("company")).alias("companies"))
    pairs = F.explode(_overlapping(F.col("companies"))).alias("pair")
    found = several.where(F.size("companies") > 1).select("run", "id", "companies", pairs)
    found = found.withColumns({name: F.col("companies")[F.col(f"pair.{name}")] for name in ("first", "this")})
    mine, yours = (
        F.concat(F.lit("together "), listed(F.col(f"{name}.together"))) for name in ("first", "this")
    )
    text = _told_differently(mine, yours)
    return found.select("run", *finding(True, text, evidence("first.row", "this.row")))


def _overlapping(companies: Column) -> Column:
    """Which companies share a name with an earlier one, each once: pairs of positions.

    One after the other: a name belongs to the first company that has it and shares no smaller name.
    """
    numbered = F.transform(
        companies, lambda company, at: F.struct(at.alias("at"), company["together"].alias("names"))
    )
    nothing = F.struct(
        F.map_from_arrays(F.array().cast("array<string>"), F.array().cast("array<int>")).alias("owners"),
        F.array().cast("array<struct<first:int,this:int>>").alias("pairs"),
    )
    return F.aggregate(numbered, nothing, _add_company, lambda known: known["pairs"])


def _add_company(known: Column, company: Column) -> Column:
    owners = known["owners"]
    shared = F.get(F.filter(company["names"], lambda name: F.map_contains_key(owners, name)), F.lit(0))
    fresh = F.filter(company["names"], lambda name: shared.isNull() | (name < shared))
    mine = F.map_from_arrays(fresh, F.transform(fresh, lambda _: company["at"]))
    pair = F.struct(F.element_at(owners, shared).alias("first"), company["at"].alias("this"))
    pairs = F.when(shared.isNull(), known["pairs"]).otherwise(F.concat(known["pairs"], F.array(pair)))
    return F.struct(F.map_concat(owners, mine).alias("owners"), pairs.alias("pairs"))


def self_inclusion(groups: GroupSilver) -> Iterable[DataFrame]:
    """A process is in its views, and gets the messages of groups that it is in, and no others."""
    outside = F.format_string(
        "Process %s installed a view of group %s at %s and is not in it: %s.",
        *("process", "group", shown("place"), listed(F.col("members"))),
    )
    views = groups.views.select("*", (~F.array_contains("members", F.col("process"))).alias("outside"))
    yield failing(views, (F.col("outside"), finding(True, outside, evidence("row"))))
    yield failing(_receivers(groups), _in_no_view(), _in_no_later_view())


def _receivers(groups: GroupSilver) -> DataFrame:
    """Each delivery with seen: there is a view of one of its groups; inside: one of them says nothing against
    it; and witness: the view that does.

    Nobody is told that he has left. A later view of another must do, if there is one on the same ring: there
    all see the same members, though some may not come as far.
    """
    views = _regular_views(groups).select("run", "group", "place", "witness", F.lit(1).alias("rank"))
    receptions = groups.receptions.withColumn("rank", F.lit(0))
    before = Window.partitionBy("run", "group", "place.ring").orderBy("place", "rank")
    latest = F.last("witness", ignorenulls=True).over(before)
    both = receptions.unionByName(views, allowMissingColumns=True).withColumn("witness", latest)
    witness = F.col("witness")
    speaks = ~(
        (witness["place"] <= F.col("seen.place")) | F.array_contains(witness["members"], F.col("row.process"))
    )
    is_seen = F.col("seen").isNotNull()
    return (
        both.where("rank = 0")
        .groupBy("run", "birth", "row", "place", "ring", "configuration", "groups")
        .agg(
            F.bool_or(is_seen).alias("seen"),
            F.bool_or(is_seen & ~F.coalesce(speaks, F.lit(False))).alias("inside"),
            F.max_by(witness, F.when(is_seen, F.col("at"))).alias("witness"),
        )
    )


def _regular_views(groups: GroupSilver) -> DataFrame:
    """For each group and place the regular view there, as the last who was told of it has it."""
    order = F.struct("birth", "row")
    told = F.struct("group", "row", "place", "members")
    views = groups.views.where("regular").groupBy("run", "group", "place", "configuration")
    each = views.agg(F.min(order).alias("since"), F.max_by(told, order).alias("witness"))
    return each.groupBy("run", "group", "place").agg(F.max_by("witness", "since").alias("witness"))


def _in_no_view() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s delivered %s to %s at %s and is in no view of it.",
        *("row.process", "row.message", listed(F.col("groups")), shown("place")),
    )
    return ~F.col("seen"), finding(True, text, evidence("row"))


def _in_no_later_view() -> tuple[Column, tuple[Column, ...]]:
    text = F.format_string(
        "Process %s delivered %s to %s at %s and is not in the view of %s at %s, which process %s installed: "
        "%s.",
        *(
            "row.process",
            "row.message",
            listed(F.col("groups")),
            shown("place"),
            "witness.group",
            shown("witness.place"),
        ),
        *("witness.row.process", listed(F.col("witness.members"))),
    )
    # In a transitional configuration the members were cut off from others on the same ring.
    on_the_ring = F.col("configuration") == F.col("ring")
    wrong = F.col("seen") & on_the_ring & ~F.col("inside")
    return wrong, finding(True, text, evidence("row", "witness.row"))


def views_first(groups: GroupSilver) -> Iterable[DataFrame]:
    """The members of a new ring exchange their tables first: before that there are no views to deliver in.
    A transitional view ends with its configuration."""
    ring = F.col("place.ring").alias("ring")
    opening = groups.views.where("regular and changed = 'configuration'")
    starts = opening.groupBy("run", ring).agg(F.min(F.struct("place", "birth", "row")).alias("start"))
    events = groups.views.select("run", "group", "row", "place", ring).unionByName(
        groups.deliveries.select("run", "group", "row", "place", ring)
    )
    # A transitional configuration has its place on the old ring, whose exchange may never have ended.
    early = (F.col("place") < F.col("start.place")) & is_regular("place")
    yield failing(events.join(starts, ["run", "ring"]), (early, _too_early()))
    yield _outlived(groups)


def _too_early() -> tuple[Column, ...]:
    is_view = F.col("row.message") == ""
    what = F.when(is_view, F.concat(F.lit("installed a view of "), "group")).otherwise(
        F.concat(F.lit("delivered "), "row.message")
    )
    text = F.format_string(
        "Process %s %s at %s, before the exchange of tables ended with the views at %s, which process %s "
        "installed.",
        *("row.process", what, shown("place"), shown("start.place"), "start.row.process"),
    )
    return finding(True, text, evidence("row", "start.row"))


def _outlived(groups: GroupSilver) -> DataFrame:
    old = groups.receptions.where(
        ~F.col("seen.regular") & (F.col("seen.configuration") != F.col("configuration"))
    )
    left = groups.memberships.where(F.col("left").isNotNull()).select("run", "birth", "group", "membership")
    kept = old.withColumn("membership", F.col("seen.membership")).join(
        left, ["run", "birth", "group", "membership"], "left_anti"
    )
    text = F.format_string(
        "Process %s delivered %s in %s, when its view of %s was still the transitional one at %s of %s.",
        *("row.process", "row.message", "configuration", "group", shown("seen.place"), "seen.configuration"),
    )
    return kept.select("run", *finding(True, text, evidence("seen.row", "row")))
