"""What a network can do to a datagram, and what a processor can bear: the settings of the simulated world."""

from __future__ import annotations

from dataclasses import dataclass, fields

from totempole.errors import ConfigurationError

Range = tuple[int, int]
"""Least and greatest value, both included."""


class Checked:
    """Checks every field by its type: probabilities lie in 0..1, ranges ascend, no number is negative."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            problem = _problem(value, str(item.type))
            if problem:
                raise ConfigurationError(f"{item.name} = {value!r}: {problem}")


def _problem(value: object, kind: str) -> str:
    if isinstance(value, tuple):
        return "" if 0 <= value[0] <= value[1] else "give least..greatest, not negative"
    if kind.startswith("Probability"):
        return "" if value is None or 0.0 <= float(value) <= 1.0 else "give a probability, 0 to 1"  # type: ignore[arg-type]
    if isinstance(value, (int, float)) and value < 0:
        return "give a number that is not negative"
    return ""


Probability = float


@dataclass(frozen=True, slots=True)
class Condition(Checked):
    """The condition of one directed link. Each datagram of each copy meets its own fate."""

    loss: Probability = 0.0
    token_loss: Probability | None = None
    """Loss on the token channel; as `loss` when not given (appendix A: cmm -t beside cmm -m)."""
    duplicate: Probability = 0.0
    reorder: Probability = 0.0
    """A reordered datagram leaves its place in the link's order and takes `reorder_us` longer."""
    reorder_us: Range = (100, 2_000)
    late: Probability = 0.0
    """A late datagram is held past the protocol's timeouts, so that old rings are heard from again."""
    late_us: Range = (100_000, 1_000_000)
    corrupt: Probability = 0.0
    """One bit is flipped."""
    delay_us: Range = (50, 100)

    def loss_on(self, token: bool) -> float:
        return self.token_loss if token and self.token_loss is not None else self.loss


@dataclass(frozen=True, slots=True)
class Lan(Checked):
    """A network's capacity. Without bandwidth, sending takes no time."""

    bandwidth_bytes_per_s: int = 0
    """Of each sender, or of all together when `shared`; 0 is no limit."""
    shared: bool = False
    """One transmission at a time on the whole LAN, as on 10 Mbit/s Ethernet."""
    overhead_bytes: int = 66
    """Preamble, Ethernet, IP and UDP headers, checksum and gap: what a datagram costs beside its bytes."""


@dataclass(frozen=True, slots=True)
class Costs(Checked):
    """The processor time that things take, in nanoseconds; fractions are allowed."""

    event_ns: float = 2_000
    datagram_ns: float = 500
    received_byte_ns: float = 0.2
    token_ns: float = 5_000
    sent_packet_ns: float = 3_000
    sent_byte_ns: float = 0.2
    delivered_ns: float = 0.0
    """What handing a message to the application takes, after all that the same input sends has left."""
    delivered_byte_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Buffers(Checked):
    """The two receive buffers. A stock Linux socket holds 208 KiB."""

    data_bytes: int = 212_992
    data_datagrams: int = 4_096
    token_bytes: int = 212_992
    token_datagrams: int = 1_024


@dataclass(frozen=True, slots=True)
class DiskSpeed(Checked):
    latency_us: Range = (200, 2_000)
    torn: Probability = 0.5
    """The chance that a write under way at a crash, which did not survive whole, is left torn."""
