"""The group layer's rows of the trace. A row is built only where the level asks for its kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from zlib import crc32

from totempole.core.effects import Trace
from totempole.groups.events import (
    BecameSafe,
    GroupEvent,
    GroupMessages,
    GroupView,
    StateAsked,
    StateBegins,
    StateChunk,
)
from totempole.types import Payload, Place, ProcessId, ProcessorId, Service

LAYER = "groups"

CRC_START = 1
"""Where digests begin, so that the digest of nothing is not 0, which stands for no digest."""

Transfer = TypeVar("Transfer", tuple[int, str], tuple[int, str, ProcessId, Place])


class GroupTrace:
    def __init__(self, me: ProcessorId, incarnation: int, kinds: frozenset[str]) -> None:
        self._me = me
        self._incarnation = incarnation
        self.on = "group_deliver" in kinds
        self.drops = "drop" in kinds
        self._digests = "receive" in kinds
        """Whether contents are compared: not at the level that is cheap enough to leave on."""
        self._given: dict[tuple[int, str, ProcessId, Place], int] = {}
        self._got: dict[tuple[int, str], int] = {}

    def branch(self, name: str) -> Trace:
        """A rare turn that was taken, for whoever counts or waits for them."""
        return Trace("branch", {"reason": name}, LAYER)

    def process(self, number: int, what: str) -> Trace:
        if what == "disconnect":
            self._given = {key: digest for key, digest in self._given.items() if key[0] != number}
            self._got = {key: digest for key, digest in self._got.items() if key[0] != number}
        return self._row("process", number, reason=what)

    def joined(self, number: int, group: str, donor: bool, wants_state: bool) -> Trace:
        return self._row("group_join", number, group=group, offers_state=donor, wants_state=wants_state)

    def left(self, number: int, group: str) -> Trace:
        return self._row("group_leave", number, group=group)

    def sent(
        self, number: int, first: int, count: int, groups: tuple[str, ...], batch: Payload, service: Service
    ) -> Trace:
        return self._row(
            "group_send",
            number,
            message=f"{self._process(number)}:{first}",
            count=count,
            bytes=len(batch),
            service=service,
            to=groups,
            digest=self._digest(batch),
        )

    def given(
        self, number: int, group: str, joiner: ProcessId, place: Place, content: Payload, last: bool
    ) -> list[Trace]:
        digest = self._sum(self._given, (number, group, joiner, place), content, last)
        if not last:
            return []
        return [self._transfer(number, group, place, "given", joiner, digest)]

    def told(self, numbers: Iterable[int], event: GroupEvent) -> list[Trace]:
        match event:
            case GroupMessages():
                return self._delivered(numbers, event)
            case GroupView():
                return self._viewed(numbers, event)
            case BecameSafe():
                return self._safe(numbers, event)
            case StateAsked(group, joiner, place):
                return [self._transfer(number, group, place, "asked", joiner) for number in numbers]
            case StateBegins(group, donor, place):
                for number in numbers:
                    self._got.pop((number, group), None)
                return [self._transfer(number, group, place, "begins", donor) for number in numbers]
            case StateChunk():
                return self._chunk(numbers, event)

    def _delivered(self, numbers: Iterable[int], event: GroupMessages) -> list[Trace]:
        key, index = event.place
        columns = {
            "message": f"{event.sender}:{event.number}",
            "origin": event.sender.processor,
            "to": event.groups,
            "service": event.service,
            "count": event.count,
            "bytes": len(event.batch),
            "ring": key.ring_id,
            "seq": key.seq,
            "index": index,
            "digest": self._digest(event.batch),
        }
        return [self._row("group_deliver", number, **columns) for number in numbers]

    def _viewed(self, numbers: Iterable[int], event: GroupView) -> list[Trace]:
        columns = {
            "group": event.group,
            "reason": event.changed,
            "configuration_kind": event.kind.value,
            "members": tuple(dict.fromkeys(process.processor for process in event.members)),
            "count": len(event.members),
            "processes": tuple(map(str, event.members)),
            "together": tuple(map(str, event.together)),
        }
        return [self._place("group_view", number, event.place, **columns) for number in numbers]

    def _safe(self, numbers: Iterable[int], event: BecameSafe) -> list[Trace]:
        columns = {
            "message": f"{event.sender}:{event.number}",
            "origin": event.sender.processor,
            "count": event.count,
            "to": event.groups,
        }
        return [self._place("group_safe", number, event.place, **columns) for number in numbers]

    def _chunk(self, numbers: Iterable[int], event: StateChunk) -> list[Trace]:
        rows = []
        for number in numbers:
            digest = self._sum(self._got, (number, event.group), event.content, event.last)
            if event.last:
                rows.append(self._transfer(number, event.group, event.place, "last", event.donor, digest))
        return rows

    def _sum(self, sums: dict[Transfer, int], transfer: Transfer, content: Payload, last: bool) -> int:
        """The digest of a transfer so far."""
        if not self._digests:
            return 0
        digest = crc32(content, sums.pop(transfer, CRC_START))
        if not last:
            sums[transfer] = digest
        return digest

    def _digest(self, content: Payload) -> int:
        return crc32(content, CRC_START) if self._digests else 0

    def _transfer(
        self, number: int, group: str, place: Place, stage: str, peer: ProcessId | None, digest: int = 0
    ) -> Trace:
        columns = {"group": group, "stage": stage, "peer": str(peer or ""), "digest": digest}
        return self._place("group_state", number, place, **columns)

    def _place(self, kind: str, number: int, place: Place, **columns: object) -> Trace:
        key, index = place
        return self._row(kind, number, ring=key.ring_id, seq=key.seq, index=index, **columns)

    def _row(self, kind: str, number: int, **columns: object) -> Trace:
        return Trace(kind, {"process": self._process(number), **columns}, LAYER)

    def _process(self, number: int) -> str:
        return f"{self._me}.{self._incarnation}.{number}"
