"""Which client is read when: each in its turn, and all together only for a bounded time in a round of the
loop.

However many clients send however much, the ring is seen to between any two rounds, and each client gets its
piece before any gets a second one.
"""

from __future__ import annotations

from collections.abc import Callable

from totempole.daemon.connection import Connection

ROUND_US = 2_000
"""What a round of the loop spends on reading from clients; a piece that is begun is finished."""


class Turns:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._spent_us = 0
        self._waiting: dict[Connection, None] = {}
        """In order."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, connection: Connection) -> None:
        """It has something to be read: now, if there is time left and nobody waits; else in its turn."""
        if self._waiting or self._spent_us >= ROUND_US:
            self._waiting[connection] = None
        else:
            self._serve(connection)

    def remove(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)

    def begin_round(self) -> None:
        self._spent_us = 0
        while self._waiting and self._spent_us < ROUND_US:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        began_us = self._now_us()
        connection.take_turn()
        self._spent_us += self._now_us() - began_us
        if connection.wants_turn:
            self._waiting[connection] = None
