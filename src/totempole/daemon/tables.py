"""Answers to GROUPS. Making the table takes time that grows with it, on the ring's thread: it is made once
for all who ask meanwhile, and not again before many times that time has passed."""

from __future__ import annotations

from collections.abc import Callable

from totempole.daemon.connection import Connection
from totempole.daemon.queue import Outgoing
from totempole.groups import GroupLayer
from totempole.groups.layer import RESERVED
from totempole.session import EncodedTable
from totempole.session.codec import cut, pack_table

INTERVAL_US = 20_000
SHARE = 20
"""At most one part in so many of the time goes into tables."""


class Tables:
    def __init__(self, layer: Callable[[], GroupLayer], now_us: Callable[[], int]) -> None:
        self._layer = layer
        self._now_us = now_us
        self._asked: dict[Connection, int] = {}
        self._next_us = 0

    def ask(self, connection: Connection, request: int) -> bool:
        """False when it has asked already and was not answered."""
        if connection in self._asked:
            return False
        self._asked[connection] = request
        return True

    def remove(self, connection: Connection) -> None:
        self._asked.pop(connection, None)

    def due_us(self) -> int | None:
        return self._next_us if self._asked else None

    def answer(self) -> None:
        """All who have asked, if it is time."""
        began_us = self._now_us()
        if not self._asked or began_us < self._next_us:
            return
        asked, self._asked = self._asked, {}
        layer = self._layer()
        groups = {name: who for name, who in layer.groups.items() if not name.startswith(RESERVED)}
        table = pack_table(groups, layer.info)
        for connection, request in asked.items():
            connection.put([Outgoing(buffers) for buffers in cut(EncodedTable(request, table))])
        now_us = self._now_us()
        self._next_us = now_us + max(INTERVAL_US, SHARE * (now_us - began_us))
