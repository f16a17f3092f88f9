"""The switch's packet filter: losses, cuts and marks as nftables rules in the bridge family.

A multicast frame passes the forward hook once for each port it leaves by, so that each host loses other
frames, as on a real LAN. With offload a "frame" is a whole burst, up to 64 KB: `Lab.holes` has them cut into
segments before they get here. ARP and neighbour discovery are lost like everything else.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from enum import IntEnum

from totempole.lab import commands
from totempole.lab.commands import LabError
from totempole.lab.faults import Fault

TABLE = "bridge lab"
FORWARD = f"{TABLE} forward"
LARGE_BYTES = 1_000
"""IP packets that are longer are large."""
ONLY = {
    "": ("",),
    "multicast": ("ip daddr 239.0.0.0/8 ", "ip6 daddr ff15::/16 "),
    "large": (f"meta length > {LARGE_BYTES} ",),
}
"""What a cut is of, as matches. Anything else is a protocol above IP, like udp."""
PARTS = 10_000
"""Shares are drawn in hundredths of a percent."""


class Stage(IntEnum):
    """The order of rules: what is cut is not counted as lost, and only what goes on is marked."""

    CUT = 0
    LOSS = 1
    MARK = 2


def port(number: int, network: int = 0) -> str:
    """The switch's end of a host's cable."""
    return f"n{network}p{number}" if network else f"p{number}"


def ports(numbers: Iterable[int], network: int = 0) -> str:
    return "{ " + ", ".join(f'"{port(number, network)}"' for number in sorted(numbers)) + " }"


def cut_rules(
    senders: Iterable[int], receivers: Iterable[int], only: str = "", network: int = 0
) -> list[str]:
    """`only`: as in ONLY; all frames if it is empty."""
    paths = f"iifname {ports(senders, network)} oifname {ports(receivers, network)}"
    matches = ONLY.get(only, (f"meta l4proto {only} ",))
    return [f"{paths} {match}counter name cut drop" for match in matches]


def loss_rule(sender: int | None, receiver: int, percent: float, network: int = 0) -> str:
    source = "" if sender is None else f'iifname "{port(sender, network)}" '
    return f'{source}oifname "{port(receiver, network)}" {_draw(percent)}counter name lost drop'


def mark_rule(receiver: int, percent: float, queue: str, network: int = 0) -> str:
    end = port(receiver, network)
    return f'oifname "{end}" {_draw(percent)}counter name marked meta priority set {queue}'


def partition_rules(groups: Sequence[Sequence[int]], network: int = 0) -> list[str]:
    pairs = itertools.permutations(groups, 2)
    return [rule for one, other in pairs for rule in cut_rules(one, other, network=network)]


def _draw(percent: float) -> str:
    if not 0 <= percent <= 100:
        raise LabError(f"percent is {percent}: give a share between 0 and 100")
    parts = round(percent * PARTS / 100)
    return f"numgen random mod {PARTS} < {parts} " if parts < PARTS else ""


class Filter:
    """Rules come and go; the counters stay."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._rules: dict[int, tuple[Stage, list[str]]] = {}
        self._next = itertools.count()

    def add(self, name: str, stage: Stage, rules: Iterable[str]) -> Fault:
        key = next(self._next)
        self._rules[key] = (stage, list(rules))
        try:
            self._load()
        except LabError:
            del self._rules[key]
            raise
        return Fault(name, lambda: self._remove(key))

    def _remove(self, key: int) -> None:
        if self._rules.pop(key, None):
            self._load()

    def _load(self) -> None:
        commands.nft(self.render(), self._namespace)

    def render(self) -> str:
        ordered = sorted(self._rules.values(), key=lambda item: item[0])
        lines = [
            f"add table {TABLE}",
            *(f"add counter {TABLE} {name}" for name in ("cut", "lost", "marked")),
            f"add chain {FORWARD} {{ type filter hook forward priority 0; }}",
            f"flush chain {FORWARD}",
            *(f"add rule {FORWARD} {rule}" for _, rules in ordered for rule in rules),
        ]
        return "\n".join(lines) + "\n"

    def counts(self) -> dict[str, int]:
        """Frames (bursts, where they were not cut) by what was done to them."""
        argv = [commands.tool("nft"), "-j", "list", "counters"]
        answer = json.loads(commands.run(commands.inside(self._namespace, argv)))
        counters = [item["counter"] for item in answer["nftables"] if "counter" in item]
        return {counter["name"]: int(counter["packets"]) for counter in counters}
