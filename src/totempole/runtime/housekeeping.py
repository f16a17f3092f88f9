"""What a node looks after a few times a second, and what it tells the people who run it, once each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from totempole.runtime import hints
from totempole.runtime.hints import NO_ADDRESS
from totempole.runtime.logs import event
from totempole.runtime.network import Network
from totempole.runtime.record import NodeRecord
from totempole.srp.alarms import FormerLife, SettingsDiffer
from totempole.types import ProcessorId


class Reports:
    """Lines in the log: each reason once, counters when they have changed."""

    def __init__(self, logger: logging.Logger, processor: ProcessorId, sealed: bool) -> None:
        self._logger = logger
        self._processor = processor
        self._sealed = sealed
        self._reported: set[str] = set()
        self._drops = 0

    def log(self, level: int, name: str, **fields: Any) -> None:
        event(self._logger, level, name, processor=self._processor, **fields)

    def once(self, what: str, reason: str) -> None:
        if reason and reason not in self._reported:
            self._reported.add(reason)
            self.log(logging.WARNING, what, reason=reason)

    def drops(self, dropped: Counter[str], total: int, last_from: str) -> None:
        """What has been dropped since the last time."""
        if total == self._drops:
            return
        self._drops = total
        self.log(logging.WARNING, "packets dropped", last_from=last_from, reasons=dict(dropped))
        for reason in dropped:
            self.once("why packets are dropped, most likely", hints.dropped(reason, self._sealed))

    def forget_drops(self) -> None:
        """A new life counts from 0."""
        self._drops = 0

    def unreachable(self, processor: ProcessorId) -> None:
        self.once(
            "a member of the ring cannot be reached", f"processor {processor}: {hints.refused(NO_ADDRESS)}"
        )

    def settings_differ(self, differ: SettingsDiffer) -> None:
        self.log(
            logging.WARNING,
            "another node has another setting: give all nodes of a ring the same",
            setting=differ.name,
            here=differ.mine,
            there=differ.theirs,
            node=differ.processor,
        )

    def former_life(self, former: FormerLife) -> None:
        self.once("a processor speaks in a life that is over", hints.former_life(former))

    def networks(self, networks: Sequence[Network], record: NodeRecord) -> None:
        for network in networks:
            self.once("going on without offload", network.sockets.offload.reason)
            if network.resolver is not None:
                self.once("peers_dns is not resolved", network.resolver.failure)
        self.once("going on without a trace", record.failure)


def follow_paths(networks: Sequence[Network], narrowed: Callable[[Network, int], None]) -> None:
    """An interface may take less than before. Raises NetworkAbsentError if it is gone."""
    for network in networks:
        fits = network.interface_bytes()
        if fits < network.segment_bytes:
            narrowed(network, fits)
