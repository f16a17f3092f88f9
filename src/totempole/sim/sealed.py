"""A ring under a seal: every simulated processor has the cluster's keys, and its keys can be rotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from totempole.sim.contract import SansIo
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId
from totempole.wire.seal import SECRET_BYTES, Key, Keyring

FIRST_KEYS = (1,)


class Sealable(Protocol):
    """An EndpointFactory that can be given keys."""

    def __call__(
        self,
        me: ProcessorId,
        config: RingConfig,
        stable: Mapping[str, int],
        trace_kinds: frozenset[str],
        keyring: Keyring | None,
        /,
    ) -> SansIo: ...


def keyring(ids: tuple[int, ...]) -> Keyring:
    """The keys of these numbers, the active one first. The simulator's secrets are no secrets."""
    return Keyring(tuple(Key(number, bytes([number % 256]) * SECRET_BYTES) for number in ids))


@dataclass(frozen=True, slots=True)
class Sealed:
    """An EndpointFactory. `keys` has the keys of processors whose keys have changed."""

    ring: Sealable
    keys: dict[ProcessorId, tuple[int, ...]] = field(default_factory=dict)

    def __call__(
        self, me: ProcessorId, config: RingConfig, stable: Mapping[str, int], trace_kinds: frozenset[str], /
    ) -> SansIo:
        return self.ring(me, config, stable, trace_kinds, keyring(self.keys.get(me, FIRST_KEYS)))
