"""What a node tells the people who run it: lines in its log, each reason once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from totempole.rrp.alarms import WaysDiffer
from totempole.runtime import hints
from totempole.runtime.hints import NO_ADDRESS
from totempole.runtime.logs import event
from totempole.runtime.network import Network
from totempole.runtime.record import NodeRecord
from totempole.srp.alarms import DeadLink, FormerLife, SettingsDiffer
from totempole.types import Configuration, ConfigurationKind, ProcessorId

WAYS = {
    "networks": "the number of [[network]] tables",
    "copies": "[redundancy] style, copies",
    "tokens": "[redundancy] tokens",
    "names": "[[network]] name, and their order",
    "capacities": "[[network]] capacity",
}
"""The settings behind what nodes tell each other of their networks (rrp.hello.Ways)."""
DIGESTS = frozenset({"names", "capacities"})


DROPS_INTERVAL_US, DROPS_INTERVAL_MAX_US = 1_000_000, 60_000_000
"""From one line about dropped packets to the next: at first, and at last."""

LINE_ABSENT = "network is absent: going on without it"
LINE_BACK = "network is back"


class Reports:
    """Lines in the log: each reason once, counters when they have changed."""

    def __init__(self, logger: logging.Logger, processor: ProcessorId, sealed: bool) -> None:
        self._logger = logger
        self._processor = processor
        self._sealed = sealed
        self._reported: set[str] = set()
        self.forget_drops()

    def log(self, level: int, name: str, **fields: Any) -> None:
        event(self._logger, level, name, processor=self._processor, **fields)

    def started(self, networks: Sequence[Network], sealed: bool) -> None:
        for network in networks:
            address, port = network.own
            which = {"network": network.name} if len(networks) > 1 else {}
            if network.is_there:
                self.log(logging.INFO, "started", **which, address=address, port=port, sealed=sealed)
            else:
                self.network_changed(network)

    def installed(self, configuration: Configuration) -> None:
        self.log(
            logging.INFO if configuration.kind is ConfigurationKind.REGULAR else logging.DEBUG,
            f"{configuration.kind.value} configuration",
            ring=str(configuration.id),
            members=",".join(map(str, configuration.members)),
        )

    def left(self, messages: int, packets: int) -> None:
        """`messages` were not sent, and `packets` are not known to be everywhere."""
        self.log(logging.INFO, "left the ring")
        if messages or packets:
            self.log(
                logging.WARNING,
                "leave_us was over before all was sent: some of it may be lost",
                messages=messages,
                packets=packets,
            )

    def network_added(self, network: Network) -> None:
        address, port = network.own
        self.log(logging.INFO, "network added", network=network.name, address=address, port=port)
        if not network.is_there:
            self.network_changed(network)

    def once(self, what: str, reason: str) -> None:
        if reason and reason not in self._reported:
            self._reported.add(reason)
            self.log(logging.WARNING, what, reason=reason)

    def forget_drops(self) -> None:
        """A new life counts from 0."""
        self._drops = 0
        self._drop_reasons: set[str] = set()
        self._drops_due_us = 0
        """When drops for known reasons are told next."""
        self._drops_interval_us = DROPS_INTERVAL_US

    def drops(self, dropped: Counter[str], total: int, last_from: str, now_us: int) -> None:
        """What has been dropped in all: at once for a new reason, and then more and more seldom. With a wrong
        key packets are dropped for hours, one now and then."""
        if total == self._drops:
            return
        if self._drop_reasons.issuperset(dropped) and now_us < self._drops_due_us:
            return
        if now_us - self._drops_due_us > self._drops_interval_us:
            self._drops_interval_us = DROPS_INTERVAL_US
        self._drops_due_us = now_us + self._drops_interval_us
        self._drops_interval_us = min(2 * self._drops_interval_us, DROPS_INTERVAL_MAX_US)
        self._drops = total
        self._drop_reasons.update(dropped)
        self.log(logging.WARNING, "packets dropped", last_from=last_from, reasons=dict(dropped))
        for reason in dropped:
            self.once("why packets are dropped, most likely", hints.dropped(reason, self._sealed))

    def unreachable(self, processor: ProcessorId) -> None:
        self.once(
            "a member of the ring cannot be reached", f"processor {processor}: {hints.refused(NO_ADDRESS)}"
        )

    def alarmed(self, alarm: object) -> None:
        match alarm:
            case SettingsDiffer():
                self._settings_differ(alarm)
            case DeadLink():
                self._dead_link(alarm)
            case FormerLife():
                self._former_life(alarm)
            case WaysDiffer():
                self._ways_differ(alarm)

    def _settings_differ(self, differ: SettingsDiffer) -> None:
        self.log(
            logging.WARNING,
            "another node has another setting: give all nodes of a ring the same",
            setting=differ.name,
            here=differ.mine,
            there=differ.theirs,
            node=differ.processor,
        )

    def _dead_link(self, dead: DeadLink) -> None:
        self.once(
            "tokens go by way of another node",
            f"the path between this node and node {dead.successor} is dead, in one direction at least. "
            f"Node {dead.through} hands tokens on, and others repeat what is lost",
        )

    def _ways_differ(self, differ: WaysDiffer) -> None:
        """Of names and capacities nodes tell each other a digest, so that is all that can be shown."""
        setting = WAYS[differ.name]
        shown = {} if differ.name in DIGESTS else {"here": differ.mine, "there": differ.theirs}
        self.log(
            logging.WARNING,
            "another node uses the networks in another way: give all nodes of a ring the same",
            setting=setting,
            **shown,
            node=differ.processor,
        )

    def _former_life(self, former: FormerLife) -> None:
        self.once("a processor speaks in a life that is over", hints.former_life(former))

    def network_changed(self, network: Network) -> None:
        address, port = network.own
        place = {"network": network.name, "address": address, "port": port}
        if network.is_there:
            self.log(logging.INFO, LINE_BACK, **place, interface=network.sockets.interface.name)
        else:
            self.log(logging.WARNING, LINE_ABSENT, **place, reason=network.absence)

    def networks(self, networks: Sequence[Network], record: NodeRecord) -> None:
        for network in networks:
            self.once("going on without offload", network.sockets.offload.reason)
            if network.resolver is not None:
                self.once("peers_dns is not resolved", network.resolver.failure)
        self.once("going on without a trace", record.failure)
