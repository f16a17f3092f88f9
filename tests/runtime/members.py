"""Drivers on threads of a test, on loopback: what they deliver, install and log, and how they end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopback import LIMIT_S, Place, wait_until

from totempole.core.order import Deliver, InstallConfiguration
from totempole.groups import Batch
from totempole.runtime.config import NetworkConfig, NodeConfig, Peer, SecurityConfig
from totempole.runtime.driver import Driver
from totempole.runtime.service import load_keyring
from totempole.srp.config import RingConfig
from totempole.structured_log import fields_of, name_of
from totempole.types import ConfigurationKind, OrderKey, ProcessorId, Service

PATIENT = RingConfig(token_loss_us=2_000_000, token_retransmission_us=200_000, consensus_us=100_000)
"""A machine that stands still for a second breaks no ring of a test."""

NETWORK_FIELDS = frozenset(NetworkConfig.__dataclass_fields__)


def node_config(place: Place, number: int, directory: Path, **settings: Any) -> NodeConfig:
    """Settings of the network go there, all others to the node."""
    network: dict[str, Any] = {"address": place.address(number), "port": place.port}
    network |= {name: settings.pop(name) for name in list(settings) if name in NETWORK_FIELDS}
    settings.setdefault("security", SecurityConfig(unsealed=True))
    settings.setdefault("ring", PATIENT)
    settings.setdefault("lag_alarm_ms", 60_000)
    return NodeConfig(
        processor=settings.pop("processor", number),
        directory=directory / settings.pop("named", f"node{number}"),
        network=NetworkConfig(**network),
        **settings,
    )


def mesh_of(place: Place, *numbers: int) -> dict[str, Any]:
    peers = tuple(Peer(number, place.address(number), place.port) for number in numbers)
    return {"transport": "mesh", "peers": peers}


class Lines(logging.Handler):
    """What was logged, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        fields = fields_of(record)
        self.lines.append(" ".join([name_of(record), *(f"{name}={fields[name]}" for name in fields)]))


class Member:
    """One driver, and the program above it."""

    def __init__(self, config: NodeConfig, logger: logging.Logger | None = None) -> None:
        self.log = Lines()
        self.logger = logger or logging.Logger(f"member {config.processor}")
        self.logger.addHandler(self.log)
        self.messages: list[bytes] = []
        self.keys: list[OrderKey] = []
        self.services: list[Service] = []
        self.members: tuple[ProcessorId, ...] = ()
        self.kinds: list[str] = []
        self.readies = 0
        self.error: BaseException | None = None
        self.on_delivered: Callable[[Deliver], None] = lambda packet: None
        self.on_ready: Callable[[], None] = lambda: None
        self.driver = Driver(config, self, self.logger, load_keyring(config, self.logger))
        self._thread = threading.Thread(target=self._run, name=f"member-{config.processor}", daemon=True)

    # The application

    def delivered(self, packet: Deliver, messages: Batch) -> None:
        self.keys.append(packet.key)
        self.services.append(packet.service)
        self.messages += messages
        self.on_delivered(packet)

    def installed(self, installed: InstallConfiguration) -> None:
        self.kinds.append(installed.configuration.kind.value)
        if installed.configuration.kind is ConfigurationKind.REGULAR:
            self.members = installed.configuration.members

    def ready(self) -> None:
        self.readies += 1
        self.on_ready()

    # Life

    def _run(self) -> None:
        try:
            self.driver.run()
        except BaseException as error:
            self.error = error

    def start(self) -> Member:
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        if self.running:
            self.driver.stop_at_once()
            self.end()
        else:
            self.driver._open.close()  # for one that was never started

    def end(self) -> BaseException | None:
        self._thread.join(LIMIT_S)
        assert not self.running, "the driver does not end"
        return self.error

    def send(self, *messages: bytes, service: Service = Service.AGREED) -> None:
        """Sends until it is taken."""
        sent: list[bool] = []
        done = threading.Event()

        def attempt() -> None:
            sent.append(self.driver.sender.send(messages, service))
            done.set()

        def retried() -> bool:
            done.clear()
            self.driver.call(attempt)
            while not done.wait(0.1):  # no second attempt before the first is over
                if not self.running:
                    return True
            return sent[-1]

        wait_until(retried)
        assert self.running, self.error

    def logged(self, *words: str) -> list[str]:
        return [line for line in self.log.lines if all(word in line for word in words)]


@contextmanager
def started(*configs: NodeConfig) -> Iterator[list[Member]]:
    members: list[Member] = []
    try:
        for config in configs:
            members.append(Member(config))  # noqa: PERF401 - those opened so far are to be closed
        for member in members:
            member.start()
        yield members
    finally:
        for member in members:
            member.stop()


def wait_for_ring(*members: Member) -> None:
    wanted = tuple(sorted(member.driver.config.processor for member in members))

    def formed() -> bool:
        for member in members:
            assert member.error is None, member.error
        return all(member.members == wanted for member in members)

    wait_until(formed, f"no ring of {wanted}")
