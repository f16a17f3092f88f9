"""Small protocol objects and stations for testing the simulator without a real protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from totempole.effects import (
    CancelTimer,
    Channel,
    Effect,
    Persist,
    PushBack,
    SetTimer,
    Stopped,
    Transmit,
)
from totempole.segment import Burst
from totempole.sim.clock import Scheduler
from totempole.srp.config import RingConfig
from totempole.srp.packets import NullMessage
from totempole.types import NO_RING, Service

PACKET = NullMessage(1, 1, 1, NO_RING)


def burst(*datagrams: bytes, to: int | None = None, channel: Channel = Channel.DATA) -> Transmit:
    bursts = tuple(Burst(datagram, len(datagram)) for datagram in datagrams)
    return Transmit(to, channel, bursts, PACKET)


class Alarm(IntEnum):
    FIRST = 1
    SECOND = 2


class Ear:
    """A station that writes down what it hears and when."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.heard: list[tuple[int, Channel, tuple[bytes, ...]]] = []

    def arrive(self, channel: Channel, datagrams: Sequence[bytes], size: int, source: int) -> None:
        assert size == sum(map(len, datagrams))
        self.heard.append((self._scheduler.now_us, channel, tuple(datagrams)))

    @property
    def datagrams(self) -> list[bytes]:
        return [datagram for _, _, datagrams in self.heard for datagram in datagrams]


class Puppet:
    """A protocol that does what the first word of a submission says, and logs what it is fed."""

    def __init__(
        self, me: int, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str]
    ) -> None:
        self.me = me
        self.stable = dict(stable)
        self.incarnation = stable.get("incarnation", 0) + 1
        self.token_first = False
        self.log: list[tuple[Any, ...]] = []

    def start(self, now_us: int) -> list[Effect]:
        self.log.append(("start", now_us))
        return [Persist(1, {"incarnation": self.incarnation})]

    def receive_burst(self, now_us: int, burst: bytes, segment_bytes: int) -> list[Effect]:
        return self.receive(now_us, Burst(burst, segment_bytes).datagrams)

    def receive(self, now_us: int, datagrams: Sequence[bytes]) -> list[Effect]:
        self.log.append(("receive", now_us, tuple(datagrams)))
        if b"explode" in datagrams:
            raise AssertionError("aru went backwards")
        return []

    def expire(self, now_us: int, timer: Any) -> list[Effect]:
        self.log.append(("expire", now_us, timer))
        return []

    def submit(self, now_us: int, payload: bytes, service: Service) -> list[Effect]:
        word, *arguments = payload.decode().split()
        match word:
            case "set":
                return [SetTimer(Alarm[arguments[0]], now_us + int(arguments[1]))]
            case "cancel":
                return [CancelTimer(Alarm[arguments[0]])]
            case "say":
                return [burst(arguments[0].encode())]
            case "token":
                return [burst(arguments[0].encode(), channel=Channel.TOKEN)]
            case "self":
                return [burst(arguments[0].encode(), to=self.me)]
            case "write":
                return [Persist(int(arguments[1]), {arguments[0]: int(arguments[1])})]
            case "full":
                return [PushBack()]
        raise ValueError(payload)

    def persisted(self, now_us: int, ticket: int) -> list[Effect]:
        self.log.append(("persisted", now_us, ticket))
        return []

    def leave(self, now_us: int, *, more_to_come: bool = False) -> list[Effect]:
        return [Stopped()]

    def fed(self, method: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.log if entry[0] == method]
