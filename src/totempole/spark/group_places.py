"""Places in the total order, and names of processes, as Spark compares them.

A place is a struct that compares as `types.Place` does: (ring, seq, conf, index), where ring and conf are
(seq, representative) and conf is (0, 0) but for the views of a transitional configuration.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from totempole.checkers.group_history import INDEX_MAX
from totempole.spark.silver import ring_id


def place_of_row() -> Column:
    """The place of a row of a view, a delivery, a notice or a state; null for others."""
    kind = F.col("kind")
    by_change = (
        (kind == "group_view")
        & (F.col("configuration_kind") == "transitional")
        & (F.col("reason") == "configuration")
    )
    return F.when(
        kind.isin("group_view", "group_deliver", "group_safe", "group_state"),
        _place(
            ring_id("ring"),
            F.col("seq"),
            F.when(by_change, ring_id("configuration")).otherwise(_no_ring()),
            F.col("groups_index"),
        ),
    )


def start_of(configuration: Column) -> Column:
    """Before all places of that ring."""
    return _place(ring_id(configuration), F.lit(0).cast("bigint"), _no_ring(), F.lit(-1).cast("bigint"))


def end_of_packet() -> Column:
    """Behind all places within the packet of a row."""
    return _place(ring_id("ring"), F.col("seq"), _no_ring(), F.lit(INDEX_MAX).cast("bigint"))


def _place(ring: Column, seq: Column, conf: Column, index: Column) -> Column:
    return F.struct(ring.alias("ring"), seq.alias("seq"), conf.alias("conf"), index.alias("index"))


def _no_ring() -> Column:
    zero = F.lit(0).cast("bigint")
    return F.struct(zero.alias("seq"), zero.alias("representative"))


def is_regular(place: str) -> Column:
    """Whether it is on its ring, and not that of a view of a transitional configuration."""
    return F.col(f"{place}.conf") == _no_ring()


def shown(place: str) -> Column:
    return F.format_string(
        "%d@%d:%d:%d",
        *(F.col(f"{place}.{part}") for part in ("ring.seq", "ring.representative", "seq", "index")),
    )


def set_of(names: str) -> Column:
    """Sorted, each once."""
    return F.array_sort(F.array_distinct(names))


def listed(names: Column) -> Column:
    return F.array_join(names, ", ")


def processor_of(name: str | Column) -> Column:
    """Null where the name is no process's."""
    return F.substring_index(name, ".", 1).try_cast("bigint")


def incarnation_of(name: str | Column) -> Column:
    return F.substring_index(F.substring_index(name, ".", 2), ".", -1).try_cast("bigint")


def order_of(name: str | Column) -> Column:
    """Names sort as processes do, by number."""
    number = F.substring_index(name, ".", -1).try_cast("bigint")
    parts = (processor_of(name), incarnation_of(name), number)
    return F.struct(*(part.alias(key) for key, part in zip(("node", "life", "number"), parts, strict=True)))
