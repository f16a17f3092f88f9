"""Whole or nothing: what a process gets is what another sent, all of it, once."""

from __future__ import annotations

from totempole.checkers.group_history import NO_DIGEST, Delivery, GroupHistory, Message, Process, processor_of
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row


def whole_or_nothing(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    for message in groups.messages.values():
        for row in message.again:
            assert message.sent is not None
            found.violated(f"Message {message.name} was sent twice.", message.sent, row)
        if message.sent is None:
            _check_unknown(groups, terms, message, found)
    compared = True
    for process in groups.processes:
        compared &= _check_process(process, terms, found)
    if not compared:
        found.undecided("The contents were not compared: the trace's level has no digests of them.")


def _check_process(process: Process, terms: Terms, found: Findings) -> bool:
    """Whether all contents could be compared."""
    seen: dict[Message, Delivery] = {}
    compared = True
    for delivery in process.deliveries:
        message = delivery.message
        before = seen.setdefault(message, delivery)
        if before is not delivery:
            found.violated(
                f"Process {process.name} delivered {message.name} twice.", before.row, delivery.row
            )
        if message.sent is not None:
            _check_same(terms, message.sent, delivery, found)
            compared &= NO_DIGEST not in (delivery.row.digest, message.sent.digest)
    return compared


def _check_same(terms: Terms, sent: Row, delivery: Delivery, found: Findings) -> None:
    row = delivery.row
    differences = [
        f"{name} {theirs} for {ours}"
        for name, ours, theirs in (
            ("count", sent.count, row.count),
            ("bytes", sent.bytes, row.bytes),
            ("service", sent.service, row.service),
            ("origin", sent.node, row.origin),
        )
        if ours != theirs
    ]
    if sent.groups.to != row.groups.to:
        differences.append(f"groups {', '.join(row.groups.to)} for {', '.join(sent.groups.to)}")
    if sent.digest != row.digest and NO_DIGEST not in (sent.digest, row.digest):
        differences.append(f"digest {row.digest:08x} for {sent.digest:08x}")
    if differences:
        found.violated(
            f"Process {row.process} delivered {row.message} not as it was sent: {', '.join(differences)}.",
            sent,
            row,
        )
    early = row.step < sent.step if row.node == sent.node else terms.same_clock and row.at_us < sent.at_us
    if early:
        found.violated(f"Process {row.process} delivered {row.message} before it was sent.", sent, row)


def _check_unknown(groups: GroupHistory, terms: Terms, message: Message, found: Findings) -> None:
    assert message.first is not None
    row = message.first.row
    node = processor_of(message.sender)
    if node not in groups.ring.by_node:
        found.undecided(f"Node {node}, from where {message.name} comes, left no trace.")
        return
    found.overdue(
        groups.must_tell(terms, message.sender, row),
        f"Process {row.process} delivered {message.name}, which process {message.sender} never sent.",
        row,
        nodes=[row.node, node],
    )
