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

from totempole.core.effects import Channel, Effect, Send, TimerName
from totempole.core.inputs import Arrived, Expired, Input, Start, Written
from totempole.core.order import Leave
from totempole.groups import GroupConfig
from totempole.groups.commands import Connect, Disconnect, JoinGroup, LeaveGroup, Multicast
from totempole.jitter import jitter
from totempole.srp import RingConfig
from totempole.stack import ProcessorStack, RingSpec, StackSpec, build
from totempole.types import RingKind, Service

FILE = Path(__file__).with_name("node.json.gz")


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def stack(header: dict[str, Any]) -> ProcessorStack:
    settings = dict(header["config"], ring_kind=RingKind(header["config"]["ring_kind"]))
    me, stable = header["processor"], header["stable"]
    groups = GroupConfig(**header["groups"])
    spec = StackSpec(me, rings=(RingSpec(RingConfig(**settings)),), groups=groups)
    return build(spec, stable, draw=jitter(me, stable))


def _input(method: str, arguments: list[Any]) -> Input:
    match method, arguments:
        case "start", _:
            return Start()
        case "receive", [datagrams]:
            return Arrived(0, Channel.DATA, datagrams, 0, None)
        case "receive_burst", [burst, segment_bytes]:
            return Arrived(0, Channel.DATA, (burst,), segment_bytes, None)
        case "expire", [timer]:
            return Expired(TimerName("srp", 0, timer))
        case "persisted", [ticket]:
            return Written(ticket)
        case "leave", _:
            return Leave()
        case "connect", [process]:
            return Connect(process)
        case "disconnect", [process]:
            return Disconnect(process)
        case "join", [process, group, *flags]:
            return JoinGroup(process, group, *flags)
        case "leave_group", [process, group]:
            return LeaveGroup(process, group)
        case "multicast", [process, groups, batch, service, *notice]:
            return Multicast(process, groups, batch, Service(service), *notice)
    raise AssertionError(method)


def feed(stack: ProcessorStack, method: str, now_us: int, arguments: list[Any]) -> list[Effect]:
    return stack.feed(now_us, _input(method, list(map(_value, arguments))))


def _value(plain: Any) -> Any:
    if isinstance(plain, dict):
        return bytes.fromhex(plain["hex"])
    return tuple(map(_value, plain)) if isinstance(plain, list) else plain


def sent(effects: Iterable[Effect]) -> int:
    crc = 0
    for effect in effects:
        if isinstance(effect, Send):
            crc = zlib.crc32(f"{effect.to} {int(effect.channel)}".encode(), crc)
            for burst in effect.bursts:
                crc = zlib.crc32(burst.data, crc)
    return crc
