"""Simulator and sockets run one protocol object: the same submissions give the same deliveries on both."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from loopback import wait_until
from members import PATIENT, Member, started, wait_for_ring

from totempole.core.effects import Effect
from totempole.core.order import Deliver
from totempole.groups import Batch, Outbox
from totempole.runtime import keyring
from totempole.runtime.config import NetworkConfig, NodeConfig, Peer, SecurityConfig
from totempole.sim.host import Host
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.types import ConfigurationKind, ProcessorId, RingKind, Service

ALL = (1, 2, 3)
STEP_US, STEPS_MAX = 10_000, 10_000
OUTBOX_BYTES_MAX = 4_000_000
LOOPBACK = "127.0.0.1"


class Submission(NamedTuple):
    origin: ProcessorId
    payloads: tuple[bytes, ...]
    service: Service


class Delivery(NamedTuple):
    origin: ProcessorId
    payload: bytes
    service: Service


Log = dict[ProcessorId, list[Delivery]]
"""What each processor delivered, in its order."""


def numbered(origin: ProcessorId, count: int, size: int, service: Service, name: str) -> Submission:
    payloads = tuple(f"{origin} {name} {number} ".encode().ljust(size, b".") for number in range(count))
    return Submission(origin, payloads, service)


ROUNDS = (
    numbered(1, 1, 10, Service.AGREED, "first"),
    numbered(2, 50, 100, Service.SAFE, "small"),
    numbered(3, 3, 50_000, Service.AGREED, "large"),
    numbered(1, 2_000, 64, Service.SAFE, "many"),
    Submission(2, (b"", b"x", b"", b"y" * 3_000), Service.AGREED),
    numbered(3, 40, 1_600, Service.SAFE, "last"),
)
"""One after the other, so that their order is given and not a matter of who was quicker."""

AT_ONCE = tuple(
    numbered(origin, 300, 200, service, service.name)
    for origin in ALL
    for service in (Service.AGREED, Service.SAFE)
)


def deliveries_of(submissions: Sequence[Submission]) -> list[Delivery]:
    return [Delivery(item.origin, payload, item.service) for item in submissions for payload in item.payloads]


# The simulator


class Simulated:
    def __init__(self, config: RingConfig) -> None:
        self.log: Log = {me: [] for me in ALL}
        self._config = config
        self._world = World(7, len(ALL), config)
        for host in self._world.hosts.values():
            host.listener = self._note
        self._world.start()
        self._until(self._is_whole)

    def _note(self, host: Host, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            batch = Batch(effect.payload)
            self.log[host.me] += [Delivery(effect.origin, payload, effect.service) for payload in batch]

    def _is_whole(self) -> bool:
        last = [host.configurations[-1:] for host in self._world.hosts.values()]
        return all(
            configuration.kind is ConfigurationKind.REGULAR and configuration.members == ALL
            for configurations in last
            for configuration in configurations
        ) and all(last)

    def _until(self, condition: Callable[[], bool]) -> None:
        for _ in range(STEPS_MAX):
            if condition():
                return
            self._world.run_for(STEP_US)
        raise AssertionError(f"not in {STEPS_MAX * STEP_US} us")

    def play(self, rounds: Sequence[Sequence[Submission]]) -> Log:
        due = 0
        for submissions in rounds:
            due += len(deliveries_of(submissions))
            for submission in submissions:
                self._submit(submission)
            self._until(lambda due=due: all(len(delivered) >= due for delivered in self.log.values()))
        return self.log

    def _submit(self, submission: Submission) -> None:
        """Packed as a node packs."""
        outbox = Outbox(self._config.packet_bytes_max, OUTBOX_BYTES_MAX)
        outbox.add(submission.payloads, submission.service)
        while outbox:
            body, service = outbox.take()
            self._until(
                lambda body=body, service=service: self._world.submit(submission.origin, body, service)
            )


# Sockets


class OnSockets:
    def __init__(self, configs: Sequence[NodeConfig]) -> None:
        self.log: Log = {me: [] for me in ALL}
        self._configs = configs

    def play(self, rounds: Sequence[Sequence[Submission]]) -> Log:
        with started(*self._configs) as members:
            wait_for_ring(*members)
            for me, member in zip(ALL, members, strict=True):
                member.on_delivered = partial(self._note, me)
            self._play(dict(zip(ALL, members, strict=True)), rounds)
        return self.log

    def _play(self, members: dict[ProcessorId, Member], rounds: Sequence[Sequence[Submission]]) -> None:
        due = 0
        for submissions in rounds:
            due += len(deliveries_of(submissions))
            for submission in submissions:
                members[submission.origin].send(*submission.payloads, service=submission.service)
            wait_until(lambda due=due: all(len(delivered) >= due for delivered in self.log.values()))

    def _note(self, me: ProcessorId, packet: Deliver) -> None:
        self.log[me] += [
            Delivery(packet.origin, payload, packet.service) for payload in Batch(packet.payload)
        ]


def free_ports(count: int) -> Iterator[int]:
    """Each with the one above it."""
    with ExitStack() as taken:
        while count:
            low, high = (
                taken.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
            )
            low.bind((LOOPBACK, 0))
            port = low.getsockname()[1]
            try:
                high.bind((LOOPBACK, port + 1))
            except (OSError, OverflowError):
                continue
            count -= 1
            yield port


@pytest.fixture(
    params=[(RingKind.CLASSIC, False), (RingKind.ACCELERATED, True)], ids=["classic", "accelerated"]
)
def configs(request: pytest.FixtureRequest, tmp_path: Path) -> list[NodeConfig]:
    """A mesh on loopback, cut into the simulator's segments."""
    ring_kind, sealed = request.param
    security = SecurityConfig(unsealed=True)
    if sealed:
        keyring.create(tmp_path / "ring.key")
        security = SecurityConfig(key_file=tmp_path / "ring.key")
    ring = replace(PATIENT, ring_kind=ring_kind)
    peers = tuple(Peer(me, LOOPBACK, port) for me, port in zip(ALL, list(free_ports(len(ALL))), strict=True))
    return [
        NodeConfig(
            processor=peer.processor,
            directory=tmp_path / f"node-{peer.processor}",
            network=NetworkConfig(
                address=LOOPBACK,
                port=peer.port,
                transport="mesh",
                peers=peers,
                segment_bytes=ring.segment_bytes,
            ),
            security=security,
            ring=ring,
        )
        for peer in peers
    ]


def on_both(configs: Sequence[NodeConfig], rounds: Sequence[Sequence[Submission]]) -> tuple[Log, Log]:
    simulated = Simulated(configs[0].ring).play(rounds)
    return simulated, OnSockets(configs).play(rounds)


def test_what_is_sent_in_turn_is_delivered_alike(configs: list[NodeConfig]) -> None:
    simulated, on_sockets = on_both(configs, [[submission] for submission in ROUNDS])
    assert simulated == on_sockets == dict.fromkeys(ALL, deliveries_of(ROUNDS))


def test_what_is_sent_at_once_is_one_order_on_each_and_the_same_messages_on_both(
    configs: list[NodeConfig],
) -> None:
    """How the senders' messages fall between each other is a matter of time, and so of the clock."""
    logs = on_both(configs, [AT_ONCE])
    for log in logs:
        assert log[1] == log[2] == log[3]
        for origin in ALL:
            own = [delivery for delivery in log[1] if delivery.origin == origin]
            assert own == deliveries_of([item for item in AT_ONCE if item.origin == origin])
    assert sorted(logs[0][1]) == sorted(logs[1][1])
