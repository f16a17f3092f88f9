"""Which membership of a group each request, view and state of a process belongs to (GroupHistory._active).

A process that left and asked to join again is in the old membership until a view has it as newly come. In a
loop that is state; here it is a count with a ceiling. The first view makes the first membership the active
one. After that, each view that has the process as newly come moves the active one on by one, if it was left
and there is a next. So the ceiling is the number of requests so far, or the first request that was not
followed by a leave, if that is less. A count that stops at a ceiling which never sinks is the free count less
the most by which the free count has ever been above the ceiling.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

KINDS = ("group_join", "group_leave", "group_view", "group_state")
_GROUP = ("run", "birth", "group")
_SCRATCH = ("is_first", "unasked", "come", "left", "ceiling")


def with_memberships(events: DataFrame) -> DataFrame:
    """Rows of these kinds, with `asked`, how many requests there were so far, and `membership`, from 1.

    A first view that nobody asked for stands for a request too. A leave belongs to what was asked for last;
    a view to the active membership, and a state as well, if there is one. 0: there is none at all.
    """
    along = Window.partitionBy(*_GROUP).orderBy("node", "step")
    counted = _counted(events.where(F.col("kind").isin(*KINDS)), along)
    limited = counted.withColumn("ceiling", F.least("asked", _first_not_left()))
    above = F.max(F.when(_is("group_view"), F.col("come") - F.col("ceiling"))).over(along)
    active = F.col("come") - F.greatest(F.lit(0), above)
    is_told = _is("group_view") | (_is("group_state") & (F.col("come") > 0))
    membership = F.when(is_told, active).otherwise(F.col("asked"))
    return limited.withColumn("membership", membership).drop(*_SCRATCH)


def _counted(rows: DataFrame, along: WindowSpec) -> DataFrame:
    """With asked; come: the first view and those that have the process as newly come; and left: there is a
    leave between this request and the next."""
    stays = F.array_contains(F.col("groups_together"), F.col("process"))
    firsts = rows.withColumns(
        {
            "is_first": _is("group_view") & (F.count_if(_is("group_view")).over(along) == 1),
            "unasked": F.count_if(_is("group_join")).over(along) == 0,
        }
    )
    opens = _is("group_join") | (F.col("is_first") & F.col("unasked"))
    counted = firsts.withColumns(
        {
            "asked": F.count_if(opens).over(along),
            "come": F.count_if(F.col("is_first") | (_is("group_view") & ~stays)).over(along),
        }
    )
    within = Window.partitionBy(*_GROUP, "asked")
    return counted.withColumn("left", F.bool_or(_is("group_leave")).over(within))


def _first_not_left() -> Column:
    open_request = F.when((F.col("asked") > 0) & ~F.col("left"), F.col("asked"))
    return F.min(open_request).over(Window.partitionBy(*_GROUP))


def _is(kind: str) -> Column:
    return F.col("kind") == kind
