"""The properties of groups by name, in the order of `checkers.groups`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame

from totempole.spark.group_silver import GroupSilver
from totempole.spark.properties.group_company import honest_company
from totempole.spark.properties.group_content import whole_or_nothing
from totempole.spark.properties.group_fifo import first_in_first_out
from totempole.spark.properties.group_liveness import group_liveness
from totempole.spark.properties.group_order import one_order
from totempole.spark.properties.group_safe import safe_notices
from totempole.spark.properties.group_state import state_transfer
from totempole.spark.properties.group_synchrony import virtual_synchrony
from totempole.spark.properties.group_views import self_inclusion, view_agreement, views_first

GROUP: dict[str, Callable[[GroupSilver], Iterable[DataFrame]]] = {
    "group-view-agreement": view_agreement,
    "group-self-inclusion": self_inclusion,
    "group-views-first": views_first,
    "group-honest-company": honest_company,
    "group-virtual-synchrony": virtual_synchrony,
    "group-one-order": one_order,
    "group-first-in-first-out": first_in_first_out,
    "group-whole-or-nothing": whole_or_nothing,
    "group-safe-notices": safe_notices,
    "group-state-transfer": state_transfer,
    "group-liveness": group_liveness,
}
