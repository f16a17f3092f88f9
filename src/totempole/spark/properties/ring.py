"""The properties of one ring by name, in the order of `checkers.ring`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame

from totempole.spark.properties.agreed import agreed_order
from totempole.spark.properties.causal import causal_order
from totempole.spark.properties.consensus import membership_agreement
from totempole.spark.properties.content import service_kept, timestamps
from totempole.spark.properties.liveness import liveness
from totempole.spark.properties.membership import (
    configuration_change_consistency,
    outsiders_break_no_ring,
    termination,
    unique_configurations,
)
from totempole.spark.properties.notices import justified_expulsion, safe_notices
from totempole.spark.properties.reliable import (
    no_spurious_delivery,
    self_delivery,
    single_delivery,
    unique_messages,
)
from totempole.spark.properties.safe import safe_delivery
from totempole.spark.properties.steady import steady_rings
from totempole.spark.properties.storage import written_before_used
from totempole.spark.properties.synchrony import (
    all_messages_absent_change,
    delivery_in_origin_configuration,
    same_messages_in_consecutive_configurations,
    transitional_delivery,
)
from totempole.spark.properties.total import global_order
from totempole.spark.silver import Silver

RING: dict[str, Callable[[Silver], Iterable[DataFrame]]] = {
    "unique-configurations": unique_configurations,
    "membership-agreement": membership_agreement,
    "termination": termination,
    "configuration-change-consistency": configuration_change_consistency,
    "outsiders-break-no-ring": outsiders_break_no_ring,
    "justified-expulsion": justified_expulsion,
    "steady-rings": steady_rings,
    "written-before-used": written_before_used,
    "unique-messages": unique_messages,
    "single-delivery": single_delivery,
    "no-spurious-delivery": no_spurious_delivery,
    "self-delivery": self_delivery,
    "all-messages-absent-change": all_messages_absent_change,
    "delivery-in-origin-configuration": delivery_in_origin_configuration,
    "same-messages-in-consecutive-configurations": same_messages_in_consecutive_configurations,
    "transitional-delivery": transitional_delivery,
    "causal-order": causal_order,
    "agreed-order": agreed_order,
    "safe-delivery": safe_delivery,
    "safe-notices": safe_notices,
    "service-kept": service_kept,
    "global-order": global_order,
    "timestamps": timestamps,
    "liveness": liveness,
}
