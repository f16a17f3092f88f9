"""Measures what healthy nodes of four deliver while one link is dead one way and all send.

`python tests/sim/saturated_bad_links.py SECONDS BYTES_PER_S [RATE_PER_S [start|accelerated]]` prints it for
each link: on a LAN where each sender has so much, at full load (rate 0) or with senders of a fixed rate
(messages of 20 kB). With `start` the link is dead before there is a ring; with `accelerated` the ring is an
accelerated one.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

from totempole.core.order import Deliver
from totempole.sim.conditions import Lan
from totempole.sim.host import Host
from totempole.sim.load import Arrivals, Load, Saturation
from totempole.sim.world import World
from totempole.srp.config import RingConfig
from totempole.types import ProcessorId, RingKind

S = 1_000_000
REST_US = 5_000
BYTES_PER_S = 2_000_000
MESSAGE_BYTES = 20_000
FAULT_US = 12 * S

Link = tuple[ProcessorId, ProcessorId]
LINKS: list[Link] = list(permutations((1, 2, 3, 4), 2))
WITH_TOKEN = [link for link in LINKS if link[1] == link[0] % 4 + 1]
"""The token goes from 1 to 2 to 3 to 4."""
WITHOUT_TOKEN = [link for link in LINKS if link not in WITH_TOKEN]


class InCompany(Saturation):
    """A node that is alone sends to itself at the speed of memory, which says nothing about the ring."""

    def go_on(self) -> None:
        configuration = self.host.regular_configuration
        if configuration is not None and len(configuration.members) > 1:
            super().go_on()
        else:
            self.blocked = False
            self.world.scheduler.at(self.world.now_us + REST_US, self.go_on)


@dataclass
class Measured:
    delivered: Counter[ProcessorId] = field(default_factory=Counter)
    """Bytes, by receiver."""
    from_sender: Counter[ProcessorId] = field(default_factory=Counter)
    """Bytes that all received, by sender."""
    configurations: Counter[ProcessorId] = field(default_factory=Counter)

    def part(self, me: ProcessorId, whole: Measured) -> float:
        return self.delivered[me] / whole.delivered[me]


@lru_cache
def measure(
    link: Link | None,
    rate_per_s: float = 0.0,
    fault_us: int = FAULT_US,
    bytes_per_s: int = BYTES_PER_S,
    from_start: bool = False,
    kind: RingKind = RingKind.CLASSIC,
) -> Measured:
    """With senders of a fixed rate, or at full load. The link breaks on a ring at work, or is dead before
    there is one."""
    world = World(1, 4, RingConfig(ring_kind=kind), lans=(Lan(bandwidth_bytes_per_s=bytes_per_s),))
    if link is not None and from_start:
        world.cut(*link)
    world.start()
    world.run_for(S)
    for me in world.hosts:
        load: Load = InCompany(world, me, size=MESSAGE_BYTES)
        if rate_per_s:
            load = Arrivals(world, me, rate_per_s, poisson=False, size=MESSAGE_BYTES)
        load.start()
    world.run_for(S)
    found = Measured()

    def listen(host: Host, event: object) -> None:
        if type(event) is Deliver:
            found.delivered[host.me] += len(event.payload)
            found.from_sender[event.origin] += len(event.payload)

    before = {me: len(host.configurations) for me, host in world.hosts.items()}
    for host in world.hosts.values():
        host.listener = listen
    if link is not None:
        world.cut(*link)
    world.run_for(fault_us)
    for me, host in world.hosts.items():
        found.configurations[me] = sum(each.kind == "regular" for each in host.configurations[before[me] :])
    return found


def healthy(link: Link) -> list[ProcessorId]:
    return [me for me in (1, 2, 3, 4) if me not in link]


def main(seconds: str, bytes_per_s: str, rate_per_s: str = "0", which: str = "") -> None:
    kind = RingKind.ACCELERATED if which == "accelerated" else RingKind.CLASSIC
    how = float(rate_per_s), int(float(seconds) * S), int(bytes_per_s), which == "start", kind
    whole = measure(None, *how)
    for link in LINKS:
        found = measure(link, *how)
        shown = [f"{me}: {found.part(me, whole):.1%}, {found.configurations[me]}" for me in healthy(link)]
        print(f"{link[0]} to {link[1]}{' (token)' * (link in WITH_TOKEN)}", *shown, sep="; ", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
