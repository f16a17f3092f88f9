"""The analytical model of Totem §4.4: how long the token's rotation takes, and with it a message.

Its letters: N processors, b the time that a token takes at one of them and to the next, a the time to
broadcast a message, ra the time to process and broadcast it, M the window_size, rho the utilisation of the
medium. With a load of `rate` messages a second, rho is rate * a, so that r * rho is rate * ra.

The paper takes receiving a message to last as long as broadcasting it, and says that where it lasts longer
ra is to be derived from receiving: here it is whatever lasts longest. All is taken from the same machine
that the simulator has, and nothing is fitted. What the model leaves out is that a message must be on the
wire before it can be received: the simulator's ring is slower by that, once in each token visit that sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from totempole.sim.paper.machines import Machine, S


@dataclass(frozen=True, slots=True)
class RingModel:
    """One ring whose messages are of one size. Times are in microseconds."""

    processors: int
    token_us: float
    """b"""
    message_us: float
    """ra"""
    useful_us: float
    """a, as far as it is useful: the time that the contents alone hold the medium (figure 4.19)."""
    window: int
    """M"""

    @classmethod
    def of(cls, machine: Machine, size: int, processors: int | None = None) -> RingModel:
        longest_us = max(machine.message_us(size), machine.sending_us(size), machine.broadcast_us(size))
        return cls(
            processors or machine.processors,
            machine.token_us(),
            longest_us,
            size * S / machine.lan.bandwidth_bytes_per_s,
            machine.window_packets,
        )

    @property
    def idle_rotation_us(self) -> float:
        """Nb"""
        return self.processors * self.token_us

    @property
    def rotation_max_us(self) -> float:
        """Nb + Mra"""
        return self.idle_rotation_us + self.window * self.message_us

    def rotation_us(self, rate_per_s: float) -> float:
        """T = Nb / (1 - r * rho); infinite where more is sent than can be."""
        left = 1 - rate_per_s * self.message_us / S
        return self.idle_rotation_us / left if left > 0 else inf

    def agreed_us(self, rate_per_s: float) -> float:
        """Half a rotation, as long as flow control holds nobody back."""
        return self.rotation_us(rate_per_s) / 2

    def safe_us(self, rate_per_s: float) -> float:
        """Two rotations."""
        return self.rotation_us(rate_per_s) * 2

    @property
    def throughput_per_s(self) -> float:
        """M messages in the longest rotation."""
        return self.window * S / self.rotation_max_us

    @property
    def utilisation(self) -> float:
        """Ma / (Nb + Mra)"""
        return self.window * self.useful_us / self.rotation_max_us
