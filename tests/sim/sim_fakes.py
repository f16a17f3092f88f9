"""Small protocol objects and stations for testing the simulator without a real protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from totempole.core.effects import (
    CancelTimer,
    Channel,
    Effect,
    Role,
    Send,
    SetTimer,
    Stopped,
    Tell,
    TimerName,
    Write,
)
from totempole.core.inputs import Arrived, Expired, Input, Start, Written
from totempole.core.order import Leave, PushBack, Submit
from totempole.segment import Burst
from totempole.sim.clock import Scheduler
from totempole.srp.config import RingConfig
from totempole.srp.packets import NullMessage
from totempole.types import NO_RING

PACKET = NullMessage(1, 1, 1, NO_RING)


def burst(*datagrams: bytes, to: int | None = None, channel: Channel = Channel.DATA) -> Send:
    bursts = tuple(Burst(datagram, len(datagram)) for datagram in datagrams)
    return Send((0,), to, channel, bursts, Role.CONTROL, PACKET)


class Alarm(IntEnum):
    FIRST = 1
    SECOND = 2


def timer(alarm: Alarm) -> TimerName:
    return TimerName("puppet", 0, alarm)


class Ear:
    """A station that writes down what it hears and when."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.heard: list[tuple[int, Channel, tuple[bytes, ...]]] = []

    def arrive(
        self, channel: Channel, datagrams: Sequence[bytes], size: int, source: int, network: int = 0
    ) -> None:
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
        self.log: list[tuple[Any, ...]] = []
        self.wants_the_token = False

    def token_first(self, network: int = 0) -> bool:
        return self.wants_the_token

    def feed(self, now_us: int, given: Input) -> list[Effect]:
        match given:
            case Start():
                self.log.append(("start", now_us))
                return [Write(1, {"incarnation": self.incarnation})]
            case Arrived(datagrams=datagrams, segment_bytes=segment_bytes):
                if segment_bytes:
                    datagrams = Burst(datagrams[0], segment_bytes).datagrams
                self.log.append(("receive", now_us, tuple(datagrams)))
                if b"explode" in datagrams:
                    raise AssertionError("aru went backwards")
            case Expired(timer=name):
                self.log.append(("expire", now_us, Alarm(name.timer)))
            case Written(ticket=ticket):
                self.log.append(("persisted", now_us, ticket))
            case Submit(payload=payload):
                return self._do(now_us, *payload.decode().split())
            case Leave():
                return [Stopped()]
        return []

    def _do(self, now_us: int, word: str, *arguments: str) -> list[Effect]:
        match word:
            case "set":
                return [SetTimer(timer(Alarm[arguments[0]]), now_us + int(arguments[1]))]
            case "cancel":
                return [CancelTimer(timer(Alarm[arguments[0]]))]
            case "say":
                return [burst(arguments[0].encode())]
            case "token":
                return [burst(arguments[0].encode(), channel=Channel.TOKEN)]
            case "self":
                return [burst(arguments[0].encode(), to=self.me)]
            case "write":
                return [Write(int(arguments[1]), {arguments[0]: int(arguments[1])})]
            case "full":
                return [Tell(("puppet", 0), PushBack())]
        raise ValueError(word)

    def fed(self, method: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.log if entry[0] == method]
