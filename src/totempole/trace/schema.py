"""The one schema of everything that happened: the simulator, the nodes, the checkers and Spark share it.

A row says what one processor did, in its own order of events (`step`). Columns that do not apply keep their
empty value. Rows are written at three levels: `delivery` is cheap enough to leave on, `checked` is all that
the checkers read, and `protocol` is everything.
"""

from __future__ import annotations

from typing import NamedTuple

SCHEMA_VERSION = 2


class Row(NamedTuple):
    run: str
    node: int
    incarnation: int
    step: int
    """The node's own event counter: never repeats within a run, restarts included."""
    at_us: int
    layer: str
    kind: str
    message: str = ""
    """The message's unique identity: origin.incarnation.number."""
    origin: int = 0
    process: str = ""
    service: str = ""
    ring: str = ""
    """The ring of the message or token, as seq@representative."""
    seq: int = 0
    timestamp: int = 0
    source_ring: str = ""
    network: int = 0
    configuration: str = ""
    """The configuration in force, or that a `configuration` row installs."""
    configuration_kind: str = ""
    members: tuple[int, ...] = ()
    group: str = ""
    count: int = 0  # type: ignore[assignment]
    bytes: int = 0
    detail: str = ""
    digest: int = 0
    """CRC-32 of the message's payload; 0 below the level `checked`."""
    failed: tuple[int, ...] = ()
    """my_fail_set, beside the proposed or agreed processors in `members`."""


DELIVERY_KINDS = frozenset(
    {
        "submit",  # the application handed a message over
        "originate",  # the message was broadcast for the first time: it has a ring and a seq now
        "deliver",
        "configuration",  # detail: the configuration that this one terminates; seq: last seq before it
        "state",  # ring, members: formed or installed; failed: at consensus; detail: "old>new reason"
        "branch",  # detail: the name of a rare branch taken
        "fault",  # detail: what was injected (simulator and tests)
        "crash",
        "restart",
        "leave",  # the processor left of its own will
        "process",  # detail: connect or disconnect
        "group_join",  # a process asked for it
        "group_leave",
        "group_send",  # message: the first of `count`; detail: digest
        "group_deliver",  # process: who received; ring and seq: the place; detail: "index digest"
        "group_view",  # detail: "index reason members=… together=…"
        "group_safe",  # messages delivered before are now at every processor
        "group_state",  # state for a joiner; detail: what about it
    }
)

PROTOCOL_KINDS = DELIVERY_KINDS | frozenset(
    {
        "receive",  # a message entered the store of its ring for the first time
        "token",  # a token visit: seq, count = token_seq, detail = "aru=… …"
        "retransmit",
        "safe",  # seq: everything up to it is at every member
        "suspect",  # members: who is newly in my_fail_set; origin: whose Join said so, or the node itself
        "join",  # a Join was sent; members: my_proc_set; failed: my_fail_set
        "blame",  # origin: who is expelled; seq: its aru; count: us since the last visit; detail: why
        "persist",  # a write begins; count: ticket; seq: ring number; timestamp: covers all below
        "persisted",  # a write is done; count: its ticket
        "drop",  # detail: the reason
    }
)

CHECKED_KINDS = DELIVERY_KINDS | {"receive", "suspect", "safe", "join", "blame", "persist", "persisted"}
"""All that a checker reads: what a search records."""

LEVELS = {"delivery": DELIVERY_KINDS, "checked": CHECKED_KINDS, "protocol": PROTOCOL_KINDS}
