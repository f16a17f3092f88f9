"""The papers' measurements of faults: a lost token (Totem §4.4), a crash (Totem CACM "Performance")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from totempole.core.effects import Send
from totempole.errors import TotemError
from totempole.sim.packet_filter import DropRule
from totempole.sim.paper.machines import MS, Machine
from totempole.sim.paper.ring import PaperRing
from totempole.srp import RingConfig
from totempole.srp.packets import RegularToken
from totempole.trace.schema import Row
from totempole.types import ProcessorId, RingId

INSTALLED = ("recover", "operational")
"""The states that the installation of a ring leads from and to."""
MISSED = ("operational", "gather")
"""And those when the token is missed."""

TOKEN_LOSS_US = 100 * MS
"""Totem §4.4: the token loss timeout of these experiments was 100 milliseconds, and set by hand."""
RETRANSMISSION_US = 15 * MS
"""Totem does not say after how long a token was passed again."""
SETTLING_US = 300 * MS
FOREVER = 10**9


class TokenLoss(DropRule):
    """Drops tokens of one ring."""

    def __init__(self, ring_id: RingId, count: int) -> None:
        super().__init__("token", count=count)
        self._ring_id = ring_id

    def hits(self, source: ProcessorId, transmit: Send, routes: object, network: int = 0) -> bool:
        packet = transmit.packet
        hit = self.count > 0 and isinstance(packet, RegularToken) and packet.ring_id == self._ring_id
        self.count -= hit
        return hit


def token_losses(
    machine: Machine,
    seed: int,
    *,
    retransmission: bool,
    rate_per_s: float | None = None,
    losses: int = 20,
    size: int = 1_024,
) -> list[float]:
    """Loses the token again and again, at times that have nothing to do with the ring's.

    Gives, for each loss, how long it was until the ring worked again: until all had installed a new ring or,
    if none was needed, until somebody held the token. Messages come at a rate, or all send all that they can.
    Without retransmission every copy of the token is lost, and nobody passes it again while it is missed.
    """
    config = _token_loss_config(machine, RETRANSMISSION_US if retransmission else TOKEN_LOSS_US)
    ring = PaperRing(machine, seed, config, level="protocol")
    if rate_per_s is None:
        ring.saturate(size)
    else:
        ring.arrive(rate_per_s, size, poisson=True, safe=False, until_us=2**62)
    random = ring.world.random("losses")
    times = []
    for _ in range(losses):
        ring.world.run_for(200 * MS + random.randrange(100 * MS))
        times.append(_lose_token(ring, copies=1 if retransmission else FOREVER))
    return times


def _token_loss_config(machine: Machine, token_retransmission_us: int) -> RingConfig:
    return machine.config(
        token_loss_us=TOKEN_LOSS_US,
        token_retransmission_us=token_retransmission_us,
        join_us=15 * MS,
        consensus_us=75 * MS,
        idle_hold_us=10 * MS,
        idle_rounds=3,
    )


def _lose_token(ring: PaperRing, copies: int) -> float:
    world = ring.world
    (ring_id,) = ring.rings
    first = len(world.rows)
    world.medium.drop_next(TokenLoss(ring_id, copies))
    _settle(ring)
    world.medium.heal()
    rows = world.rows[first:]
    lost_us = next(row.at_us for row in rows if row.kind == "fault")
    if ring.rings == {ring_id}:
        return next(row.at_us for row in rows if row.kind == "token" and row.at_us > lost_us) - lost_us
    return _last(rows, INSTALLED) - lost_us


def _settle(ring: PaperRing) -> None:
    ring.world.run_for(SETTLING_US)
    if not ring.is_whole:
        raise TotemError(f"{ring.machine.name}, seed {ring.world.seed}: no ring 300 ms after a fault")


def _last(rows: Sequence[Row], states: tuple[str, str]) -> int:
    return max(row.at_us for row in rows if (row.old_state, row.new_state) == states)


@dataclass(frozen=True, slots=True)
class Crash:
    detection_us: float
    """From the crash until somebody misses the token."""
    recovery_us: float
    """From there until all that are left have installed a ring without the crashed."""


def crashes(
    machine: Machine, seed: int, *, rate_per_s: float = 1_000, size: int = 1_000, count: int = 10
) -> list[Crash]:
    """Crashes one processor after another, at any instant, and has it back before the next.

    Totem CACM states the times but not the timeouts. Here the token counts as lost after 40 ms (a message
    that is still on its way at the crash starts the timer anew), a Join is repeated after 2 ms, and who has
    not agreed after 6 ms is left out: the consensus timeout is 4.8 ms, and each processor adds up to a
    quarter at random (srp/gather.py).
    """
    config = machine.config(
        token_loss_us=40 * MS, token_retransmission_us=10 * MS, join_us=2 * MS, consensus_us=4_800
    )
    ring = PaperRing(machine, seed, config, level="protocol")
    ring.arrive(rate_per_s, size, poisson=True, safe=False, until_us=2**62)
    random = ring.world.random("crashes")
    found = []
    for _ in range(count):
        ring.world.run_for(100 * MS + random.randrange(100 * MS))
        found.append(_crash_one(ring, random.choice(ring.alive)))
    return found


def _crash_one(ring: PaperRing, me: ProcessorId) -> Crash:
    world = ring.world
    crashed_us, first = world.now_us, len(world.rows)
    world.crash(me)
    _settle(ring)
    rows = [row for row in world.rows[first:] if row.kind == "state"]
    missed_us = next(row.at_us for row in rows if (row.old_state, row.new_state) == MISSED)
    back_us = _last(rows, INSTALLED)
    world.restart(me)
    _settle(ring)
    return Crash(missed_us - crashed_us, back_us - missed_us)
