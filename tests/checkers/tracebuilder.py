"""A small language to write traces in: who started, moved, originated, received, delivered, crashed.

Every row gets the next instant of one global clock. What is natural is filled in; what a test wants wrong
it says, or breaks afterwards with `without` and `changed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from totempole.checkers import Report
from totempole.trace.schema import OWN, Row, in_layers

PAYLOAD_BYTES = 100
COVERED = 10**6
"""Every timestamp is below what was written for it."""


class TraceBuilder:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.at_us = 0
        self._stamp = 0
        self._steps: dict[int, int] = {}
        self._incarnations: dict[int, int] = {}
        self._configurations: dict[int, str] = {}
        self._last_seq: dict[str, int] = {}
        self._delivered_seq: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        self._agreed: set[tuple[str, int]] = set()
        self._tickets = 0

    def row(self, node: int, kind: str, *, layer: str = "srp", **columns: Any) -> None:
        self.at_us += 10
        self._steps[node] = self._steps.get(node, 0) + 1
        columns.setdefault("configuration", self._configurations.get(node, ""))
        incarnation = self._incarnations.get(node, 0)
        self.rows.append(
            Row(
                *("test", node, incarnation, self._steps[node], self.at_us, layer, kind),
                **in_layers(layer, columns),
            )
        )

    def start(self, *nodes: int, seq: int = 4) -> None:
        for node in nodes:
            self._incarnations[node] = self._incarnations.get(node, 0) + 1
            self._configurations[node] = ""
            self._counts[node] = 0
            self.row(node, "restart")
            self.write(node, seq)
            self.regular(f"{seq}@{node}", [node], agreed=())

    def write(self, node: int, ring_seq: int, done: bool = True) -> None:
        """A ring number goes to stable storage."""
        self._tickets += 1
        self.row(node, "persist", count=self._tickets, seq=ring_seq, timestamp=COVERED)
        if done:
            self.row(node, "persisted", count=self._tickets)

    def agree(self, name: str, members: Iterable[int], *nodes: int) -> None:
        """The nodes, up and members, propose and accept a membership, write the ring's number, go on."""
        members = tuple(sorted(members))
        able = [node for node in nodes if self._configurations.get(node) and (name, node) not in self._agreed]
        self._agreed.update((name, node) for node in able)
        for node in able:
            self.row(node, "join", members=members)
        for node in able:
            self.row(node, "state", ring=name, members=members, **move("gather>commit consensus"))
            self.write(node, int(name.partition("@")[0]))
        for node in able:
            columns = move("commit>recover commit token")
            self.row(node, "state", ring=name, members=members, **columns)

    def regular(
        self,
        name: str,
        members: Iterable[int],
        by: Iterable[int] | None = None,
        agreed: Iterable[int] | None = None,
    ) -> None:
        """Installed `by` some, or all. All members have agreed to it, or `agreed`."""
        members = tuple(sorted(members))
        self.agree(name, members, *(members if agreed is None else agreed))
        for node in members if by is None else by:
            self._install(node, name, "regular", members, ring=name, seq=0)

    def transitional(self, name: str, members: Iterable[int], by: Iterable[int] | None = None) -> None:
        members = tuple(sorted(members))
        for node in members if by is None else by:
            ring = self._configurations[node]
            self._install(node, name, "transitional", members, ring, self._delivered_seq.get(node, 0))

    def _install(
        self, node: int, name: str, kind: str, members: tuple[int, ...], ring: str, seq: int
    ) -> None:
        previous = self._configurations[node] or "0@0"
        self._configurations[node] = name
        if kind == "regular":
            self._delivered_seq[node] = 0
        self.row(
            node,
            "configuration",
            configuration_kind=kind,
            members=members,
            ring=ring,
            seq=seq,
            previous=previous,
        )

    def originate(self, node: int, service: str = "agreed", seq: int = 0, submitted: bool = True) -> str:
        ring = self._configurations[node]
        seq = seq or self._last_seq.get(ring, 0) + 1
        self._last_seq[ring] = max(seq, self._last_seq.get(ring, 0))
        self._counts[node] += 1
        self._stamp += 1
        message = f"{node}.{self._incarnations[node]}.{self._counts[node]}"
        if submitted:
            digest = crc32(message.encode())
            self.row(
                *(node, "submit"),
                message=message,
                origin=node,
                service=service,
                bytes=PAYLOAD_BYTES,
                digest=digest,
            )
        self._messages[message] = {
            "message": message,
            "origin": node,
            "service": service,
            "ring": ring,
            "seq": seq,
            "timestamp": self._stamp,
            "count": 1,
            "bytes": PAYLOAD_BYTES,
            "digest": crc32(message.encode()),
        }
        self.row(node, "originate", **self._messages[message])
        return message

    def receive(self, message: str, *nodes: int) -> None:
        for node in nodes:
            self.row(node, "receive", **self._messages[message])

    def deliver(self, message: str, *nodes: int, **wrong: Any) -> None:
        for node in nodes:
            self._delivered_seq[node] = self._messages[message]["seq"]
            self.row(node, "deliver", **{**self._messages[message], **wrong})

    def send(self, node: int, *others: int, service: str = "agreed", seq: int = 0) -> str:
        """Originated by the node, then received and delivered by it and the others."""
        message = self.originate(node, service, seq)
        self.receive(message, *others)
        self.deliver(message, node, *others)
        return message

    def crash(self, *nodes: int, reason: str = "") -> None:
        for node in nodes:
            self.row(node, "crash", reason=reason)
            self._configurations[node] = ""

    def leave(self, *nodes: int) -> None:
        for node in nodes:
            self.row(node, "leave")
            self._configurations[node] = ""

    def form(self, *nodes: int, seq: int = 8) -> str:
        """Starts the nodes and joins them into the ring seq@lowest."""
        self.start(*nodes)
        for node in nodes:
            self.transitional(f"{seq - 2}@{node}", [node])
        name = f"{seq}@{min(nodes)}"
        self.regular(name, nodes)
        return name

    def move(self, *nodes: int, seq: int) -> str:
        """The nodes go from one ring to the next, seq@lowest, together and with nothing left to deliver."""
        self.transitional(f"{seq - 2}@{min(nodes)}", nodes)
        name = f"{seq}@{min(nodes)}"
        self.regular(name, nodes)
        return name


def move(text: str) -> dict[str, str]:
    """The columns of "old>new reason"."""
    states, _, reason = text.partition(" ")
    old, _, new = states.partition(">")
    return {"old_state": old, "new_state": new, "reason": reason}


def column(row: Row, name: str) -> Any:
    """A column of the row or of a layer's own."""
    layer = _LAYER_OF.get(name)
    return getattr(row, name) if layer is None else getattr(getattr(row, layer), name)


def with_columns(row: Row, **columns: Any) -> Row:
    for layer in OWN:
        columns = in_layers(layer, columns, row)
    return row._replace(**columns)


_LAYER_OF = {name: layer for layer, own in OWN.items() for name in own._fields}


def matches(row: Row, where: dict[str, Any]) -> bool:
    return all(column(row, name) == value for name, value in where.items())


def without(rows: list[Row], **where: Any) -> list[Row]:
    """The rows but for those whose columns have these values. There must be some."""
    left = [row for row in rows if not matches(row, where)]
    assert len(left) < len(rows), f"no row has {where}"
    return left


def changed(rows: list[Row], where: dict[str, Any], **columns: Any) -> list[Row]:
    """The rows, with other columns in those that match."""
    assert any(matches(row, where) for row in rows), f"no row has {where}"
    return [with_columns(row, **columns) if matches(row, where) else row for row in rows]


def violated(report: Report) -> set[str]:
    return {verdict.property for verdict in report.violated}


def undecided(report: Report) -> set[str]:
    return {verdict.property for verdict in report.undecided}
