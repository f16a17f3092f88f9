"""A language to write traces of process groups in: who connected, joined, sent, delivered, left.

The builder is an ideal group layer over an ideal ring: each node has a table of who is in which group, which
changes at places of the order. What a test wants wrong it breaks afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from tracebuilder import TraceBuilder


@dataclass(frozen=True, slots=True)
class Sent:
    """A message on its way: what its sender said of it, and the ring packet that carries it."""

    name: str
    packet: str
    groups: tuple[str, ...]
    columns: dict[str, Any]
    digest: int


def node_of(process: str) -> int:
    return int(process.split(".")[0])


class GroupBuilder(TraceBuilder):
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, dict[str, list[str]]] = {}
        """For each node, who is in which group."""
        self.gone: set[str] = set()
        self._ring_of: dict[int, tuple[int, ...]] = {}
        self._kind: dict[int, str] = {}
        self._lineage: dict[int, set[int]] = {}
        self._processes: dict[int, int] = {}
        self._numbers: dict[str, int] = {}

    def tell(self, kind: str, process: str, **columns: Any) -> None:
        self.row(node_of(process), kind, layer="groups", process=process, **columns)

    # Rings

    def start(self, *nodes: int, seq: int = 4) -> None:
        for node in nodes:
            self.tables[node] = {}
            self._processes[node] = 0
            self._lineage[node] = {node}
        super().start(*nodes, seq=seq)

    def _install(
        self, node: int, name: str, kind: str, members: tuple[int, ...], ring: str, seq: int
    ) -> None:
        super()._install(node, name, kind, members, ring, seq)
        self._ring_of[node], self._kind[node] = members, kind

    def ring(self, *nodes: int, seq: int = 8) -> None:
        """Starts the nodes on one ring, with tables exchanged."""
        self.form(*nodes, seq=seq)
        for node in nodes:
            self._lineage[node] = {node}
        self.exchange(*nodes)

    def crash(self, *nodes: int) -> None:
        super().crash(*nodes)
        for node in nodes:
            del self.tables[node]

    def cut(self, *nodes: int, seq: int) -> None:
        """The nodes go into a transitional configuration; their groups lose who does not come along."""
        self.transitional(f"{seq - 2}@{min(nodes)}", nodes)
        for node in nodes:
            self._lineage[node] = set(nodes)
            before, after = self.tables[node], {}
            for group, old in before.items():
                after[group] = [process for process in old if node_of(process) in nodes]
            self.tables[node] = {group: members for group, members in after.items() if members}
            ring, place = self._last_place(node)
            for index, group in enumerate(sorted(before)):
                if after[group] != before[group]:
                    self._view(node, group, after[group], ring, place, index, "configuration")

    def merge(self, *nodes: int, seq: int) -> None:
        """From transitional configurations into a regular one, with an exchange of tables."""
        self.regular(f"{seq}@{min(nodes)}", nodes)
        self.exchange(*nodes)

    def move(self, *nodes: int, seq: int) -> str:
        self.cut(*nodes, seq=seq)
        self.merge(*nodes, seq=seq)
        return f"{seq}@{min(nodes)}"

    def exchange(self, *nodes: int) -> None:
        packet = ""
        for node in nodes:
            packet = super().send(node, *(other for other in nodes if other != node))
        merged: dict[str, list[str]] = {}
        for node in sorted(nodes):
            for group, members in self.tables[node].items():
                merged.setdefault(group, []).extend(name for name in members if node_of(name) == node)
        ring, seq = self._place(packet)
        for node in nodes:
            before = self.tables[node]
            self.tables[node] = {group: sorted(members) for group, members in merged.items()}
            for index, group in enumerate(sorted(merged)):
                old = before.get(group, [])
                along = [name for name in old if node_of(name) in self._lineage[node]]
                if self._here(node, group):  # told even where nothing has changed
                    self._view(node, group, along, ring, seq, index, "configuration")

    def _place(self, packet: str) -> tuple[str, int]:
        columns = self._messages[packet]
        return columns["ring"], columns["seq"]

    def _last_place(self, node: int) -> tuple[str, int]:
        change = next(row for row in reversed(self.rows) if row.node == node and row.kind == "configuration")
        return change.ring, change.seq

    # Processes

    def connect(self, node: int) -> str:
        self._processes[node] += 1
        process = f"{node}.{self._incarnations[node]}.{self._processes[node]}"
        self.tell("process", process, reason="connect")
        return process

    def disconnect(self, process: str) -> None:
        self.tell("process", process, reason="disconnect")
        self.gone.add(process)
        for group in sorted(self.tables[node_of(process)]):
            if process in self.tables[node_of(process)][group]:
                self._out(process, group, "disconnect")

    def join(self, process: str, *groups: str, offers_state: bool = False, wants_state: bool = False) -> None:
        wishes = {"offers_state": offers_state, "wants_state": wants_state}
        for group in groups:
            self.tell("group_join", process, group=group, **wishes)
            ring, seq = self._packet(process)
            for node in self._ring_of[node_of(process)]:
                before = self.tables[node].get(group, [])
                self.tables[node][group] = sorted([*before, process])
                self._view(node, group, before, ring, seq, 0, "join")

    def leave_group(self, process: str, group: str) -> None:
        self.tell("group_leave", process, group=group)
        self._out(process, group, "leave")

    def _out(self, process: str, group: str, why: str) -> None:
        ring, seq = self._packet(process)
        for node in self._ring_of[node_of(process)]:
            left = [name for name in self.tables[node][group] if name != process]
            self.tables[node][group] = left
            self._view(node, group, left, ring, seq, 0, why)
            if not left:
                del self.tables[node][group]

    def _packet(self, process: str) -> tuple[str, int]:
        node = node_of(process)
        packet = super().send(node, *(other for other in self._ring_of[node] if other != node))
        return self._place(packet)

    def _here(self, node: int, group: str) -> list[str]:
        members = self.tables[node].get(group, [])
        return [name for name in members if node_of(name) == node and name not in self.gone]

    def _view(
        self, node: int, group: str, together: Iterable[str], ring: str, seq: int, index: int, why: str
    ) -> None:
        members = self.tables[node].get(group, [])
        company = tuple(together)
        for process in self._here(node, group):
            self.tell(
                "group_view",
                process,
                group=group,
                configuration_kind=self._kind[node],
                ring=ring,
                seq=seq,
                members=tuple(sorted({node_of(name) for name in members})),
                count=len(members),
                reason=why,
                index=index,
                processes=tuple(members),
                together=company,
            )

    # Messages

    def say(self, process: str, *groups: str, **columns: Any) -> str:
        """Sent and delivered by all members."""
        sent = self.offer(process, *groups, **columns)
        self.bring(sent, *self._ring_of[node_of(process)])
        return sent.name

    def offer(
        self,
        process: str,
        *groups: str,
        count: int = 1,
        service: str = "agreed",
        to: Iterable[int] | None = None,
    ) -> Sent:
        """Sent and received by all processors, or by these, and not delivered yet."""
        name, digest = self.ask(process, *groups, count=count, service=service)
        node = node_of(process)
        packet = self.originate(node, service)
        self.receive(packet, *(other for other in to or self._ring_of[node] if other != node))
        columns = {"count": count, "service": service, "bytes": 100 * count, "to": groups}
        return Sent(name, packet, groups, {"message": name, **columns}, digest)

    def ask(self, process: str, *groups: str, count: int = 1, service: str = "agreed") -> tuple[str, int]:
        """Sent, and no more than that."""
        number = self._numbers.get(process, 1)
        self._numbers[process] = number + count
        name = f"{process}:{number}"
        digest = crc32(name.encode())
        self.tell(
            "group_send",
            process,
            message=name,
            count=count,
            bytes=100 * count,
            service=service,
            to=groups,
            digest=digest,
        )
        return name, digest

    def bring(self, sent: Sent, *nodes: int, only: Iterable[str] | None = None) -> None:
        """Delivered by the members on these nodes."""
        ring, seq = self._place(sent.packet)
        origin = node_of(sent.name)
        for node in nodes:
            self.deliver(sent.packet, node)
            receivers = {name for group in sent.groups for name in self._here(node, group)}
            for process in sorted(receivers if only is None else receivers & set(only)):
                self.tell(
                    "group_deliver",
                    process,
                    **sent.columns,
                    origin=origin,
                    ring=ring,
                    seq=seq,
                    digest=sent.digest,
                )

    def safe(self, sent: Sent, *processes: str) -> None:
        ring, seq = self._place(sent.packet)
        for process in processes:
            columns = {name: sent.columns[name] for name in ("message", "count", "to")}
            self.tell("group_safe", process, **columns, ring=ring, seq=seq)

    def state(
        self, process: str, group: str, stage: str, place: tuple[str, int], peer: str = "", digest: int = 0
    ) -> None:
        ring, seq = place
        columns = {"stage": stage, "peer": peer, "digest": digest}
        self.tell("group_state", process, group=group, ring=ring, seq=seq, **columns)

    def last_view(self, process: str) -> tuple[str, int]:
        row = next(row for row in reversed(self.rows) if row.kind == "group_view" and row.process == process)
        return row.ring, row.seq
