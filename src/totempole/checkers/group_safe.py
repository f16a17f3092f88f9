"""Safe notices: by now every processor of the configuration has the message that was delivered (Totem
§3.5)."""

from __future__ import annotations

from totempole.checkers.group_history import Delivery, GroupHistory, Process
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.schema import Row
from totempole.types import ProcessorId

_Packet = tuple[str, int]


def safe_notices(groups: GroupHistory, terms: Terms, found: Findings) -> None:
    earliest: dict[tuple[_Packet, str], Row] = {}
    for process in groups.processes:
        if process.notices:
            _check_process(process, found)
        for row, _ in process.notices:
            key = ((row.ring, row.seq), row.configuration)
            known = earliest.setdefault(key, row)
            if row.at_us < known.at_us:
                earliest[key] = row
    if all(_alone(groups, configuration) for _, configuration in earliest):
        return
    if not groups.ring.facts.receipts or not terms.same_clock:
        found.undecided("What each processor had received, and when, the trace does not tell.")
        return
    receipts = _receipts(groups, {packet for packet, _ in earliest})
    for (packet, _), row in earliest.items():
        _check_receipts(groups, terms, row, receipts.get(packet, {}), found)


def _alone(groups: GroupHistory, configuration: str) -> bool:
    change = groups.ring.configurations.get(configuration)
    return change is not None and len(change.members) == 1


def _check_process(process: Process, found: Findings) -> None:
    delivered: dict[str, Delivery] = {}
    for delivery in process.deliveries:
        delivered.setdefault(delivery.row.message, delivery)
    told: dict[str, Row] = {}
    for row, place in process.notices:
        first = told.setdefault(row.message, row)
        if first is not row:
            found.violated(f"Process {process.name} was told twice that {row.message} is safe.", first, row)
        known = delivered.get(row.message)
        text = f"Process {process.name} was told that {row.message} is safe"
        if known is None or known.row.step > row.step:
            found.violated(f"{text} and had not delivered it.", row)
        elif (known.place, known.row.count) != (place, row.count):
            found.violated(
                f"{text}, {row.count} at {place}, and had delivered {known.row.count} at {known.place}.",
                known.row,
                row,
            )


def _receipts(groups: GroupHistory, wanted: set[_Packet]) -> dict[_Packet, dict[ProcessorId, Row]]:
    """Who had each of these packets, and since when."""
    receipts: dict[_Packet, dict[ProcessorId, Row]] = {packet: {} for packet in wanted}
    for rows in (groups.ring.originations, groups.ring.receives):
        for row in rows:
            holders = receipts.get((row.ring, row.seq))
            if holders is not None:
                holders.setdefault(row.node, row)
    return receipts


def _check_receipts(
    groups: GroupHistory, terms: Terms, row: Row, holders: dict[ProcessorId, Row], found: Findings
) -> None:
    change = groups.ring.configurations.get(row.configuration)
    if change is None:
        found.violated(f"Process {row.process} was told that {row.message} is safe in no configuration.", row)
        return
    for member in change.members:
        receipt = holders.get(member)
        if receipt is not None and receipt.at_us <= row.at_us:
            continue
        if member not in groups.ring.by_node:
            found.undecided(f"Node {member} of configuration {row.configuration} left no trace.")
            continue
        told = receipt is not None or _tells(groups, terms, member, row)
        found.overdue(
            told,
            f"Process {row.process} was told that {row.message} is safe in {row.configuration}, when node "
            f"{member} had not received packet {row.seq} of {row.ring}.",
            row,
            *([receipt] if receipt is not None else []),
            nodes=[row.node, member],
        )


def _tells(groups: GroupHistory, terms: Terms, member: ProcessorId, row: Row) -> bool:
    """Whether the member's trace has all up to the row. The last rows of a killed life were never written."""
    installed = groups.ring.installers.get(row.ring, {}).get(member)
    life = installed[0] if installed is not None else None
    if life is not None and life.last is not None and life.cut_short:
        return life.last.at_us >= row.at_us
    return terms.complete or groups.ring.last_at.get(member, -1) >= row.at_us
