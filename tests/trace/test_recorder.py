"""The recorder: which rows it writes, at which level, and what stands in them."""

from __future__ import annotations

from zlib import crc32

import pytest

from totempole.core.effects import CancelTimer, SetTimer, Stopped, Tell, TimerName, Trace
from totempole.core.order import Deliver, InstallConfiguration, PushBack, Ready
from totempole.trace.recorder import Recorder
from totempole.trace.schema import Row
from totempole.types import (
    NO_RING,
    Configuration,
    ConfigurationKind,
    MessageId,
    OrderKey,
    RingId,
    Service,
)

RING = RingId(8, 1)
OLD = RingId(4, 1)
DELIVERED = Deliver(
    MessageId(2, 1, 7), 2, b"hello", Service.SAFE, OrderKey(RING, 3, NO_RING), 55, configuration=RING
)
INSTALLED = InstallConfiguration(
    Configuration(ConfigurationKind.REGULAR, RING, (1, 2), RING, 0, OLD), OrderKey(RING, 0, OLD)
)


def row(kind: str, columns: object, layer: str = "srp") -> Trace:
    return Trace(kind, columns, layer)


DELIVER = row("deliver", DELIVERED)
INSTALL = row("configuration", INSTALLED)
SAFE = row("safe", {"ring": RING, "seq": 4})


def recorder(level: str = "protocol") -> tuple[Recorder, list[Row]]:
    rows: list[Row] = []
    made = Recorder("run", 1, level, rows.append)
    made.incarnation = 1
    return made, rows


def test_a_delivery() -> None:
    made, rows = recorder()
    made.effects(10, [INSTALL, DELIVER])
    assert rows[1] == Row(
        run="run",
        node=1,
        incarnation=1,
        step=2,
        at_us=10,
        layer="srp",
        kind="deliver",
        message="2.1.7",
        origin=2,
        service="safe",
        ring="8@1",
        seq=3,
        timestamp=55,
        configuration="8@1",
        count=1,
        bytes=5,
        digest=crc32(b"hello"),
    )


def test_the_level_of_deliveries_has_no_digests() -> None:
    made, rows = recorder("delivery")
    made.effects(10, [INSTALL, DELIVER])
    assert rows[1].digest == 0


def test_a_configuration() -> None:
    made, rows = recorder()
    made.effects(10, [INSTALL])
    assert rows == [
        Row(
            run="run",
            node=1,
            incarnation=1,
            step=1,
            at_us=10,
            layer="srp",
            kind="configuration",
            ring="8@1",
            configuration="8@1",
            configuration_kind="regular",
            members=(1, 2),
            previous="4@1",
        )
    ]


def test_every_row_has_the_configuration_in_force() -> None:
    made, rows = recorder()
    made.record(1, "restart")
    made.effects(2, [INSTALL, row("token", {"ring": RING, "seq": 9}), SAFE])
    made.record(3, "crash")
    made.incarnation = 2
    made.record(4, "restart")
    assert [(row.kind, row.configuration) for row in rows] == [
        ("restart", ""),
        ("configuration", "8@1"),
        ("token", "8@1"),
        ("safe", "8@1"),
        ("crash", "8@1"),
        ("restart", ""),
    ]


def test_steps_never_repeat_over_restarts() -> None:
    made, rows = recorder()
    made.record(1, "restart")
    made.record(2, "crash")
    made.incarnation = 2
    made.record(3, "restart")
    assert [(row.incarnation, row.step) for row in rows] == [(1, 1), (1, 2), (2, 3)]


def test_the_layer_tells_the_driver_from_the_protocol() -> None:
    made, rows = recorder()
    made.record(1, "fault", reason="cut")
    made.effects(2, [row("drop", {"reason": "foreign"}), row("drop", {}, "segment")])
    assert [row.layer for row in rows] == ["sim", "srp", "segment"]


def test_the_papers_types_become_plain_ones() -> None:
    made, rows = recorder()
    columns = {"message": MessageId(1, 2, 3), "ring": RING, "service": Service.AGREED, "bytes": 4}
    made.effects(1, [row("originate", columns)])
    assert (rows[0].message, rows[0].ring, rows[0].service, rows[0].bytes) == ("1.2.3", "8@1", "agreed", 4)


def test_the_delivery_level_leaves_protocol_rows_out() -> None:
    made, rows = recorder("delivery")
    made.effects(1, [SAFE, row("token", {}), row("state", {"reason": "c"}), DELIVER])
    made.record(1, "retransmit")
    assert [row.kind for row in rows] == ["state", "deliver"]
    assert (made.wants("deliver"), made.wants("receive")) == (True, False)
    assert recorder("protocol")[0].wants("receive")


def test_all_else_is_ignored() -> None:
    made, rows = recorder()
    timer = TimerName("srp", 0, 1)
    made.effects(1, [SetTimer(timer, 5), CancelTimer(timer), Stopped()])
    made.effects(2, [Tell(("order", 0), event) for event in (PushBack(), Ready(), DELIVERED, INSTALLED)])
    assert rows == []


def test_an_unknown_kind_is_a_mistake() -> None:
    made, _ = recorder("delivery")
    with pytest.raises(AssertionError, match="no rows of kind 'tokne'"):
        made.effects(1, [row("tokne", {})])
    with pytest.raises(AssertionError, match="no rows of kind 'tokne'"):
        made.record(1, "tokne")
