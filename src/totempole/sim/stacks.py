"""What simulated processors run: the real stack, built as a node builds it, with the same random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from totempole.core.order import Between, Deliver
from totempole.corel.config import LogConfig
from totempole.groups.config import GroupConfig
from totempole.jitter import jitter
from totempole.rrp.config import RedundancyConfig
from totempole.sim.memo import shared_codec
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, Parts, ProcessorStack, RingSpec, StackSpec, build, new_codec
from totempole.types import ProcessorId
from totempole.wire import Codec
from totempole.wire.seal import SECRET_BYTES, Key, Keyring, Seal

FIRST_KEYS = (1,)


def sim_codec(config: RingConfig, seal: Seal | None, routed: bool = False) -> Codec:
    if seal is not None:
        return new_codec(config, seal, routed)
    return shared_codec(config.cluster_id, config.ring_kind, bool(config.check_contents), routed)


SIM_PARTS = Parts(codec=sim_codec)


class Tap(Between):
    """Tells of each delivery on its way to the group layer, which costs the processor time."""

    def deliver(self, packet: Deliver) -> None:
        self.scope.tell(packet)
        self.above.deliver(packet)


@dataclass(slots=True)
class Keys:
    """The keys of a sealed ring: those of processors whose keys have changed, by their numbers."""

    changed: dict[ProcessorId, tuple[int, ...]] = field(default_factory=dict)

    def of(self, me: ProcessorId) -> Keyring:
        return keyring(self.changed.get(me, FIRST_KEYS))


def keyring(ids: tuple[int, ...]) -> Keyring:
    """The keys of these numbers, the active one first. The simulator's secrets are no secrets."""
    return Keyring(tuple(Key(number, bytes([number % 256]) * SECRET_BYTES) for number in ids))


@dataclass(frozen=True, slots=True)
class RealStack:
    """A StackFactory: the ring, with groups on it and a seal around it where these are asked for."""

    groups: GroupConfig | None = None
    keys: Keys | None = None
    parts: Parts = SIM_PARTS
    networks: tuple[NetworkSpec, ...] = (NetworkSpec(),)
    redundancy: RedundancyConfig | None = None
    """How the ring uses its networks, if they are several."""
    log: LogConfig | None = None

    def spec(self, me: ProcessorId, config: RingConfig) -> StackSpec:
        between = () if self.groups is None else (Tap,)
        ring = RingSpec(config, tuple(range(len(self.networks))), self.redundancy, between=between)
        return StackSpec(me, self.networks, (ring,), self.groups, self.log)

    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> ProcessorStack:
        keys = None if self.keys is None else self.keys.of(me)
        return build(self.spec(me, config), stable, trace_kinds, keys, jitter(me, stable), self.parts)
