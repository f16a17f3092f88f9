"""A run as a story for eyes and golden files: one line an event, deliveries summed up by configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from totempole.trace.schema import Row
from totempole.trace.told import told
from totempole.types import ProcessorId

TOLD = frozenset(
    {
        "configuration",
        "network",
        "state",
        "branch",
        "fault",
        "crash",
        "restart",
        "leave",
        "process",
        "group_join",
        "group_leave",
        "group_view",
        "group_state",
    }
)


@dataclass(slots=True)
class _Delivered:
    """What one processor has delivered in the configuration that it is in."""

    configuration: str = ""
    first_us: int = 0
    last_us: int = 0
    origins: Counter[ProcessorId] = field(default_factory=Counter)


def render_story(rows: Iterable[Row], names: Mapping[ProcessorId, str] | None = None) -> str:
    """One line for each configuration, state, rare branch, fault and end; one for all deliveries in a
    configuration. A branch is told once until its processor changes its state."""
    teller = _Teller(names or {})
    for row in rows:
        teller.hear(row)
    return teller.story()


class _Teller:
    def __init__(self, names: Mapping[ProcessorId, str]) -> None:
        self._names = names
        self._lines: list[str] = []
        self._delivered: dict[ProcessorId, _Delivered] = {}
        self._branches: dict[ProcessorId, set[str]] = {}
        """What each processor has told since its last change of state."""
        self._now_us = 0

    def hear(self, row: Row) -> None:
        self._now_us = row.at_us
        if row.kind == "deliver":
            self._count(row)
        elif row.kind in TOLD and not self._is_repeated(row):
            if row.kind in ("configuration", "crash", "restart", "leave"):
                self._sum_up(row.node)
            self._tell(row.at_us, row.node, _event(row, self._name))

    def story(self) -> str:
        for node in sorted(self._delivered):
            self._sum_up(node)
        return "\n".join([*self._lines, ""])

    def _is_repeated(self, row: Row) -> bool:
        if row.kind == "state":
            self._branches.pop(row.node, None)
        if row.kind != "branch":
            return False
        told = self._branches.setdefault(row.node, set())
        what = _event(row, self._name)
        repeated = what in told
        told.add(what)
        return repeated

    def _count(self, row: Row) -> None:
        found = self._delivered.setdefault(
            row.node, _Delivered(configuration=row.configuration, first_us=row.at_us)
        )
        if found.configuration != row.configuration:
            self._sum_up(row.node)
            found = self._delivered[row.node] = _Delivered(row.configuration, row.at_us)
        found.last_us = row.at_us
        found.origins[row.origin] += row.count or 1

    def _sum_up(self, node: ProcessorId) -> None:
        found = self._delivered.pop(node, None)
        if found is None:
            return
        shares = ", ".join(
            f"{count} of {self._name(origin)}" for origin, count in sorted(found.origins.items())
        )
        when = f"from {_time(found.first_us)} to {_time(found.last_us)}"
        total = found.origins.total()
        self._tell(self._now_us, node, f"delivered {total} in {found.configuration} {when}: {shares}")

    def _tell(self, at_us: int, node: ProcessorId, what: str) -> None:
        who = self._name(node) if node else "-"
        self._lines.append(f"{_time(at_us):>12}  {who:<4} {what}".rstrip())

    def _name(self, node: ProcessorId) -> str:
        return self._names.get(node) or str(node)


def _event(row: Row, name: object) -> str:
    assert callable(name)
    if row.kind == "configuration":
        opening, closing = "{}" if row.configuration_kind == "regular" else "[]"
        members = " ".join(name(member) for member in row.members)
        return f"installs {opening}{members}{closing} {row.configuration_kind} {row.configuration}"
    if row.kind == "group_view":
        opening, closing = "{}" if row.configuration_kind == "regular" else "[]"
        listed = " ".join(row.groups.processes)
        return f"tells {row.process} of {row.group} {opening}{listed}{closing} by {row.reason}"
    if row.process:
        what = row.kind.removeprefix("group_") if row.group else ""
        return " ".join(filter(None, (row.process, what, row.group, *_of_group(row))))
    if row.kind == "network":
        why = f": {row.reason}" if row.reason else ""
        return f"network {row.network} {row.old_state}>{row.new_state}{why}"
    if row.kind == "restart":
        return f"starts, incarnation {row.incarnation}"
    return f"{row.kind} {told(row)}".rstrip()


def _of_group(row: Row) -> tuple[str, ...]:
    own = row.groups
    if row.kind == "group_state":
        digest = f"{row.digest:08x}" if row.digest else ""
        return own.stage, str(own.index), own.peer or ("none" if own.stage == "begins" else ""), digest
    wishes = ("donor" if own.offers_state else "", "wants_state" if own.wants_state else "")
    return row.reason, *wishes


def _time(at_us: int) -> str:
    return f"{at_us // 1_000_000}.{at_us % 1_000_000:06d}s"
