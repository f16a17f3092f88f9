"""What surrounds a run: how many take part, on what network, under a seal or not, and which harms are in it.

Most seeds have a ring as it usually is. The others each have one thing that lasts: a crowd, a full ring, a
link that stays dead, minutes without traffic, or a slow LAN with large packets. Half of all seeds do every
kind of harm, the others a random subset (swarm testing): where everything goes wrong at once, some things
hide others.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from totempole.sim.conditions import Lan
from totempole.sim.fuzz.profiles import HARMS, RARE, Profile
from totempole.sim.script import Setting
from totempole.types import ProcessorId

PLAIN = "plain"
CROWD = "crowd"
FULL = "full"
SEVERED = "severed"
IDLE = "idle"
SLOW_LAN = "slow-lan"

SHAPES = ((72, PLAIN), (4, CROWD), (6, FULL), (7, SEVERED), (4, IDLE), (7, SLOW_LAN))
"""Weights and names."""

NEEDED = {SEVERED: frozenset({"sever"}), IDLE: frozenset({"pause", "crash"})}
"""The harm that a shape is about."""

SEALED = 0.12
UNEQUAL = 0.25
SWARM = 0.5
HARMS_LEAST = 3
"""Kinds of harm in a swarm's seed."""

CROWDS = (10, 10, 11, 12)
BANDWIDTHS = (12_500_000, 40_000_000, 125_000_000)
"""Of a slow LAN, in bytes a second."""

TIMEOUTS = ("token_loss_us", "token_retransmission_us", "idle_hold_us", "join_us", "consensus_us")
PERCENTS = (70, 130)
OTHERS: dict[str, tuple[int, ...]] = {
    "null_us": (80_000, 300_000),
    "leave_us": (20_000, 1_000_000),
    "fail_to_receive_rounds": (10, 40),
    "idle_rounds": (1, 3, 8),
    "laggard_us": (50_000, 1_000_000),
    "requests_max": (2, 10, 80),
    "segment_bytes": (400, 1_200, 5_000),
    "timestamp_interval": (250, 5_000),
}
"""Settings in which processors of one ring may differ, and values for those that do."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    shape: str
    sealed: bool
    unequal: bool
    harms: Profile
    """What may go wrong in this seed."""


def draw(random: Random, profile: Profile) -> Circumstances:
    """A seed's circumstances. A profile that leaves harms out keeps the rest of the seed as it is."""
    shape = random.choices([name for _, name in SHAPES], [weight for weight, _ in SHAPES])[0]
    sealed, unequal = random.random() < SEALED, random.random() < UNEQUAL
    swarm = random.random() < SWARM
    chosen = random.sample(HARMS, random.randint(HARMS_LEAST, len(HARMS) - 1))
    needed = NEEDED.get(shape, frozenset())
    if not needed <= profile.harms:
        shape = PLAIN
    if not (swarm and profile.whole):
        return Circumstances(shape, sealed, unequal, profile)
    return Circumstances(shape, sealed, unequal, Profile("swarm", "some of it", needed.union(chosen, RARE)))


def lan(random: Random) -> Lan:
    return Lan(bandwidth_bytes_per_s=random.choice(BANDWIDTHS), shared=random.random() < 0.5)


def unequal_settings(
    random: Random, everyone: tuple[ProcessorId, ...], values: dict[str, int]
) -> list[Setting]:
    """Some processors have other timeouts than `values` has, or other limits. What must agree does."""
    settings = []
    for me in random.sample(everyone, random.randint(1, len(everyone))):
        percent = random.choice(PERCENTS)
        if random.random() < 0.6:
            settings += [Setting(name, values[name] * percent // 100, (me,)) for name in TIMEOUTS]
            settings.append(Setting("timeout_stretch_max_percent", 100, (me,)))
        for name in random.sample(sorted(OTHERS), random.randint(0, 3)):
            settings.append(Setting(name, random.choice(OTHERS[name]), (me,)))
    return settings
