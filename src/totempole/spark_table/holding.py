"""Moves a query's hold behind what it has committed, on a thread of its own.

A hold that stays behind keeps more of the log than is needed, and nothing worse. So a query neither waits for
its hold nor fails with it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from totempole.errors import TotemError
from totempole.spark_table.access import Access

PAUSE_S = 0.5
"""Between two moves: each is a record of the log's own."""
RETRY_S = 5.0
"""After a move that has failed; and as long as one may take."""

_logger = logging.getLogger("totempole.spark_table")


class HoldMover:
    def __init__(self, access: Access, name: str) -> None:
        self._access = replace(access, patience_s=min(access.patience_s, RETRY_S))
        self._name = name
        self._changed = threading.Condition()
        self._wanted = -1
        self._moved = -1
        """So far the hold is, as far as is known."""
        self._is_failing = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"hold {name}", daemon=True)
        self._thread.start()

    def move(self, position: int) -> None:
        """To this position, soon."""
        with self._changed:
            self._wanted = max(self._wanted, position)
            self._changed.notify_all()

    def wait(self) -> None:
        """Until the hold is where it is wanted; not while it cannot be moved."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._moved >= self._wanted or self._is_failing, PAUSE_S + 2 * RETRY_S
            )

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._wanted > self._moved)
                position = self._wanted
                if position <= self._moved:
                    return
            has_moved = self._set(position)
            with self._changed:
                self._moved = position if has_moved else self._moved
                self._is_failing = not has_moved
                self._changed.notify_all()
                if self._is_closed and not has_moved:
                    return
                self._changed.wait_for(lambda: self._is_closed, PAUSE_S if has_moved else RETRY_S)

    def _set(self, position: int) -> bool:
        try:
            with self._access.session("spark hold") as session, session.log("spark") as log:
                log.hold(self._name, position, timeout=self._access.patience_s)
        except (TotemError, TimeoutError) as error:
            _logger.warning(
                "hold %s cannot be moved to position %d: %s. The query goes on; the log keeps what it has "
                "read until the hold can be moved",
                self._name,
                position,
                error,
            )
            return False
        return True
