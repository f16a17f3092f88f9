"""When a node lets its clients in: once it has met the other nodes, or has waited and found none.

A client that was let in earlier would join its groups alone, begin with no state, and meet those who have
the group's state a moment later. The program that embeds the node may connect before: it waits here.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import replace

from totempole.daemon.listeners import turn_away
from totempole.daemon.service import ClientService
from totempole.errors import TotemError
from totempole.runtime.config import NodeConfig


class Admission:
    """Holds the node's clients back until `open`. All methods are for the loop's thread."""

    def __init__(
        self,
        config: NodeConfig,
        logger: logging.Logger,
        packet_bytes_max: int,
        fail: Callable[[TotemError], None],
        *,
        listens: bool,
        has_log: bool,
    ) -> None:
        """`listens`: a daemon, which lets clients connect from outside. `fail` stops the node."""
        self.clients = ClientService(
            replace(config.clients, socket=config.clients_socket) if listens else config.clients,
            config.groups,
            logger,
            processor=config.processor,
            cluster_id=config.ring.cluster_id,
            packet_bytes_max=packet_bytes_max,
            has_log=has_log,
        )
        self._fail = fail
        self._listens = listens
        self._is_open = False
        self._is_leaving = False
        self._early: list[socket.socket] = []
        """Programs that connected before the node was open."""

    def check(self) -> None:
        """Raises for settings with which `open` would fail."""
        if self._listens:
            self.clients.check()

    def admit(self, client: socket.socket) -> None:
        """Takes a program that is connected already: now, or when the node opens."""
        if self._is_open or self._is_leaving:
            self.clients.adopt(client)
        else:
            self._early.append(client)

    def open(self) -> None:
        """Lets clients in. Further calls do nothing."""
        if self._is_open:
            return
        self._is_open = True
        self._admit_early()
        if self._listens and not self._is_leaving:
            try:
                self.clients.open()
            except TotemError as error:
                self._fail(error)

    def leave(self) -> None:
        """Ends all sessions because the node leaves the ring."""
        self._is_leaving = True
        self.clients.finish("the node leaves the ring")
        self._admit_early()  # they are told that the node leaves

    def close(self, last_words: str) -> None:
        """Turns away whoever still waits, and closes all sessions."""
        for client in self._early:
            turn_away(client, last_words)
        self.clients.close(last_words)

    def _admit_early(self) -> None:
        early, self._early = self._early, []
        for client in early:
            self.clients.adopt(client)
