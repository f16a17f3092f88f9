"""A real node's inputs, fed to the stack again. Only `stack` and `feed` know the contract of the day.

The file was recorded on loopback: three nodes with groups, safe and agreed messages, a message in pieces, a
node that stops, a graceful leave. What each input sent is beside it, as a CRC-32 of destinations and bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from totempole.effects import Effect, Transmit
from totempole.groups import GroupConfig, GroupLayer
from totempole.groups.over_ring import over_ring
from totempole.jitter import jitter
from totempole.runtime.recording import TYPED
from totempole.srp import Endpoint, RingConfig
from totempole.types import RingKind

FILE = Path(__file__).with_name("node.json.gz")


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def stack(header: dict[str, Any]) -> GroupLayer:
    settings = dict(header["config"], ring_kind=RingKind(header["config"]["ring_kind"]))
    config, me, stable = RingConfig(**settings), header["processor"], header["stable"]
    endpoint = Endpoint(me, config, stable, frozenset(), None, jitter(me, stable))
    return over_ring(endpoint, config, GroupConfig(**header["groups"]), frozenset())


def feed(layer: GroupLayer, method: str, now_us: int, arguments: list[Any]) -> list[Effect]:
    values = [
        TYPED[method, place](value) if (method, place) in TYPED else value
        for place, value in enumerate(map(_value, arguments))
    ]
    effects: list[Effect] = getattr(layer, method)(now_us, *values)
    return effects


def _value(plain: Any) -> Any:
    if isinstance(plain, dict):
        return bytes.fromhex(plain["hex"])
    return tuple(map(_value, plain)) if isinstance(plain, list) else plain


def sent(effects: Iterable[Effect]) -> int:
    crc = 0
    for effect in effects:
        if isinstance(effect, Transmit):
            crc = zlib.crc32(f"{effect.to} {int(effect.channel)}".encode(), crc)
            for burst in effect.bursts:
                crc = zlib.crc32(burst.data, crc)
    return crc
