"""A node with something to say, for tests and benchmarks: a driver and a load, led by lines of text.

`python -m totempole.lab.player CONFIG` joins the ring and prints a line of JSON for each configuration. It
takes commands on standard input, one a line, with numbers and words after them:

    flood SIZE SERVICE        keeps the outbox full of messages of so many bytes
    pace SIZE SERVICE RATE    so many messages a second, each with the time it was sent at
    quiet                     sends nothing from here on
    mark                      counts from here on
    report                    prints what was counted since the mark, and the longest gap between deliveries
    rekey                     reads the key file again
    cut [ADDRESS…]            hears nothing from these addresses, and everything from others; on loopback only
    leave                     leaves the ring and ends
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Any

from totempole.core.order import Deliver, InstallConfiguration
from totempole.errors import TotemError
from totempole.groups import Batch
from totempole.runtime.config import NodeConfig
from totempole.runtime.driver import Driver
from totempole.runtime.logs import start_logging
from totempole.runtime.memory import prepare_for_packets
from totempole.runtime.packet_filter import PacketFilter, check_loopback
from totempole.runtime.service import load_keyring
from totempole.runtime.snapshot import snapshot
from totempole.types import ConfigurationKind, Service

BATCH_BYTES = 58_000
"""Flood hands messages over in batches of about a packet, as a busy program would."""
LATENCIES_MAX = 200_000
_SENT_AT = Struct(">Q")
SIZE_LEAST = _SENT_AT.size


class Player:
    """The application above one driver."""

    def __init__(self, config: NodeConfig) -> None:
        logger = start_logging(config.logging.level, config.logging.format)
        self.driver = Driver(config, self, logger, load_keyring(config, logger))
        self.driver.watch(sys.stdin.fileno(), self._on_command)
        self._config = config
        self._logger = logger
        self._me = config.processor
        self._batch: list[bytes] = []
        self._service = Service.AGREED
        self._interval_us = 0
        self._paced_size = 0
        self._due_us = 0
        self._buffer = b""
        self.sent = 0
        """Messages that the node has taken, since its start."""
        self.delivered_from: Counter[int] = Counter()
        """Messages delivered since the start, by their origin."""
        self._mark()

    def _mark(self) -> None:
        self._messages = self._bytes = self._packets = 0
        self._latencies_us: list[float] = []
        self._marked_ns = time.monotonic_ns()
        self._cpu_s = time.process_time()
        self._changes = 0
        self._delivered_ns = self._marked_ns
        self._gap_ns = 0

    # The application

    def delivered(self, packet: Deliver, messages: Batch) -> None:
        now_ns = time.monotonic_ns()
        self._gap_ns = max(self._gap_ns, now_ns - self._delivered_ns)
        self._delivered_ns = now_ns
        self._packets += 1
        self._messages += len(messages)
        self._bytes += messages.size
        self.delivered_from[packet.origin] += len(messages)
        if self._interval_us and packet.origin == self._me and len(self._latencies_us) < LATENCIES_MAX:
            self._note_latencies(messages)

    def _note_latencies(self, messages: Batch) -> None:
        now_ns = time.monotonic_ns()
        for message in messages:
            (sent_ns,) = _SENT_AT.unpack_from(message)
            if self._marked_ns <= sent_ns <= now_ns:  # not one of an earlier flood
                self._latencies_us.append((now_ns - sent_ns) / 1000)

    def installed(self, installed: InstallConfiguration) -> None:
        configuration = installed.configuration
        self._changes += 1
        if configuration.kind is ConfigurationKind.REGULAR:
            _say(event="view", members=configuration.members, at_us=time.monotonic_ns() // 1000)

    def ready(self) -> None:
        while self._batch and self.driver.sender.send(self._batch, self._service):
            self.sent += len(self._batch)

    # Commands

    def _on_command(self, events: int) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            self.driver.unwatch(sys.stdin.fileno())
            self.driver.leave()  # whoever led us is gone
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            verb, *arguments = line.decode().split()
            COMMANDS[verb](self, *arguments)

    def _flood(self, size: str, service: str) -> None:
        self._quiet()
        length = int(size)
        self._service = Service[service.upper()]
        self._batch = [os.urandom(length)] * max(1, BATCH_BYTES // (length + 4))
        self.ready()

    def _pace(self, size: str, service: str, rate: str) -> None:
        self._quiet()
        self._service = Service[service.upper()]
        self._paced_size = max(SIZE_LEAST, int(size))
        self._interval_us = round(1_000_000 / float(rate))
        self._due_us = time.monotonic_ns() // 1000
        self._send_paced()

    def _send_paced(self) -> None:
        if not self._interval_us:
            return
        sent_at = _SENT_AT.pack(time.monotonic_ns())
        if self.driver.sender.send((sent_at + bytes(self._paced_size - SIZE_LEAST),), self._service):
            self.sent += 1
        self._due_us = max(self._due_us + self._interval_us, time.monotonic_ns() // 1000)
        self.driver.at(self._due_us, self._send_paced)

    def _quiet(self) -> None:
        self._batch = []
        self._interval_us = 0

    def _report(self) -> None:
        _say(
            event="report",
            messages=self._messages,
            bytes=self._bytes,
            packets=self._packets,
            seconds=(time.monotonic_ns() - self._marked_ns) / 1e9,
            cpu_s=time.process_time() - self._cpu_s,
            rss_bytes=_resident_bytes(),
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            changes=self._changes,
            gap_ms=max(self._gap_ns, time.monotonic_ns() - self._delivered_ns) / 1e6,
            sent=self.sent,
            delivered_from=self.delivered_from,
            latencies_us=self._latencies_us,
            networks=self._networks(),
            status=snapshot(self.driver),
        )

    def _networks(self) -> list[dict[str, str]]:
        """Of a ring on several networks: the state of each, and what is wrong with it."""
        services = [networks.service for networks in self.driver.stack.networks]
        return [
            {"state": state.name.lower(), "why": why}
            for service in services
            for state, why in zip(service.states, service.why, strict=True)
        ]

    def _rekey(self) -> None:
        keys = load_keyring(self._config, self._logger)
        assert keys is not None, "a player without a key file cannot be given keys"
        self.driver.rekey(keys)

    def _cut(self, *addresses: str) -> None:
        check_loopback(self._config)
        self.driver.receiver.filter = PacketFilter(addresses)

    def _leave(self) -> None:
        self._quiet()
        self.driver.leave()


COMMANDS: dict[str, Callable[..., None]] = {
    "flood": Player._flood,
    "pace": Player._pace,
    "quiet": Player._quiet,
    "mark": Player._mark,
    "report": Player._report,
    "rekey": Player._rekey,
    "cut": Player._cut,
    "leave": Player._leave,
}


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def main() -> int:
    try:
        player = Player(NodeConfig.load(sys.argv[1]))
        prepare_for_packets()
        player.driver.run()
        _say(event="ended", sent=player.sent, delivered_from=player.delivered_from)
    except (TotemError, OSError) as error:
        logging.getLogger("totempole").error("%s", error)
        print(f"player: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
