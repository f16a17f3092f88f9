"""The machines of Totem §4.4, of Totem CACM and of RRP §8, as far as the papers tell what they could do.

Neither paper states what a message costs its processors.

**Sun 4/IPC.** Two numbers, the cost of a packet and that of a byte, were found from the two exact throughputs
of Totem §4.4, five processors sending with a window of 70: 1130 messages/s of 4 bytes and 810 of 1024 bytes.
Each was bisected in turn until the simulator gave its throughput, and rounded. How a cost divides is assumed:

- sending a message costs what receiving it does, as the analytical model of Totem assumes;
- handing it to the application costs twice either. That is the least whole multiple with which the latency at
  400 messages/s is below the published 10 ms; at equal parts it would be 11.3;
- a token costs what a packet costs that is handed to nobody; an input that is no packet, 50 us.

All else must come out by itself. Where it does not, the table of `totem figures` says so.

**SPARCstation 20.** Totem CACM states no throughput but in a figure that is lost. It states two times for
eight of these machines: a crash is detected within 50 ms, which bounds the token loss timeout, and recovery
then takes less than 20 ms, typically. The costs are those of the Sun 4/IPC divided by 3, the least whole
number with which recovery is that quick.

**Pentium II and III.** RRP sends frames of one packet each, and ours are full of a larger packet's segments.
A frame costs its receiver something each time it comes, copies too, and its sender as much. What it contains
costs once more where it is new, and each message in it a little. Three numbers were found from three points
of figure 8, four Pentium II: passive replication at 100 and 1400 bytes, active at 1400. What one network does
is not among them. The Pentium III are quicker by one factor, found from passive replication at 1400 bytes in
figure 9. All are rounded; an input costs 5 us, a token 20 us more.

Stable storage is described nowhere, and no ring is formed before its number is written: 20 ms are assumed for
a write of the older machine, 5 ms for one of the newer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from totempole.sim.conditions import Condition, Costs, Lan
from totempole.srp import RingConfig
from totempole.srp.layout import REGULAR_OVERHEAD

MS = 1_000
S = 1_000_000

ETHERNET = Lan(bandwidth_bytes_per_s=1_250_000, shared=True)
"""10 Mbit/s, one transmission at a time."""
FAST_ETHERNET = Lan(bandwidth_bytes_per_s=12_500_000, shared=True)

CABLE = Condition(delay_us=(10, 10))
FRAME_BYTES = 1_472
"""What an Ethernet frame holds beside the headers of IP and UDP."""
FRAMING_BYTES = 20
"""Roughly what the segment header and the checksum add to a packet."""
TOKEN_BYTES = 110


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of processor and the network between as many of them as the paper had."""

    name: str
    paper: str
    processors: int
    costs: Costs
    lan: Lan
    disk_us: int
    window_packets: int
    calibrated_on: str
    """In words, for whoever reads a figure."""

    def config(self, **settings: int) -> RingConfig:
        """Unless told otherwise, timeouts far above any rotation, and a token that never rests."""
        steady: dict[str, Any] = {
            "window_packets": self.window_packets,
            "each_time_packets": self.window_packets,
            "segment_bytes": FRAME_BYTES,
            "token_loss_us": 400 * MS,
            "token_retransmission_us": 100 * MS,
            "join_us": 300 * MS,
            "consensus_us": S,
            "timeout_stretch_max_percent": 100,
            "idle_rounds": 10**9,
        }
        return RingConfig(**{**steady, **settings})

    # What the analytical model of Totem §4.4 asks for, in microseconds

    def wire_us(self, size: int) -> float:
        """The time that a datagram of so many bytes holds the network."""
        return (size + self.lan.overhead_bytes) * S / self.lan.bandwidth_bytes_per_s

    def broadcast_us(self, size: int) -> float:
        """A message with so many bytes of contents on the wire."""
        return self.wire_us(size + REGULAR_OVERHEAD + FRAMING_BYTES)

    def taking_us(self, size: int) -> float:
        """Receiving a packet with such contents, before it is handed to the application."""
        costs = self.costs
        received = size + REGULAR_OVERHEAD + FRAMING_BYTES
        return (costs.event_ns + costs.datagram_ns + costs.received_byte_ns * received) / 1_000

    def message_us(self, size: int) -> float:
        """Receiving a message and handing it over: with these machines, longer than to broadcast it."""
        costs = self.costs
        return self.taking_us(size) + (costs.delivered_ns + costs.delivered_byte_ns * size) / 1_000

    def sending_us(self, size: int) -> float:
        costs = self.costs
        sent = size + REGULAR_OVERHEAD + FRAMING_BYTES
        return (costs.sent_packet_ns + costs.sent_byte_ns * sent) / 1_000

    def token_us(self) -> float:
        """From the token's arrival at one processor to its arrival at the next, if nothing is sent."""
        costs = self.costs
        fixed_ns = costs.event_ns + costs.datagram_ns + costs.token_ns + costs.sent_packet_ns
        bytes_ns = (costs.received_byte_ns + costs.sent_byte_ns) * TOKEN_BYTES
        return (fixed_ns + bytes_ns) / 1_000 + self.wire_us(TOKEN_BYTES) + CABLE.delay_us[0]


def costs_of(packet_us: float, byte_ns: float, event_us: float) -> Costs:
    """`packet_us` is what a message costs its sender or a receiver, the application's part apart."""
    return Costs(
        event_ns=event_us * 1_000,
        datagram_ns=packet_us * 1_000,
        received_byte_ns=byte_ns,
        token_ns=0,
        sent_packet_ns=packet_us * 1_000,
        sent_byte_ns=byte_ns,
        delivered_ns=2 * packet_us * 1_000,
        delivered_byte_ns=2 * byte_ns,
    )


SUN_4_IPC = Machine(
    name="Sun 4/IPC",
    paper="Totem",
    processors=5,
    costs=costs_of(packet_us=257, byte_ns=93, event_us=50),
    lan=ETHERNET,
    disk_us=20 * MS,
    window_packets=70,
    calibrated_on="1130 messages/s of 4 bytes and 810 of 1024 bytes (Totem §4.4)",
)

SPEED_UP = 3
"""How many times as fast the SPARCstation 20 is; see above."""

SPARCSTATION_20 = Machine(
    name="SPARCstation 20",
    paper="Totem CACM",
    processors=8,
    costs=costs_of(packet_us=257 / SPEED_UP, byte_ns=93 / SPEED_UP, event_us=50 / SPEED_UP),
    lan=FAST_ETHERNET,
    disk_us=5 * MS,
    window_packets=70,
    calibrated_on="a crash detected within 50 ms and recovered from in less than 20 ms (Totem CACM)",
)


def pentium_costs(speed_up: float = 1.0) -> Costs:
    """`delivered_ns` is for each message here, not for each packet (`replication`)."""
    frame_ns, contents_ns, message_ns = (cost / speed_up for cost in (34_500, 59_000, 4_700))
    return Costs(
        event_ns=5_000 / speed_up,
        datagram_ns=frame_ns,
        received_byte_ns=0,
        token_ns=20_000 / speed_up,
        sent_packet_ns=0,
        sent_byte_ns=frame_ns / FRAME_BYTES,
        delivered_ns=message_ns,
        delivered_byte_ns=contents_ns / FRAME_BYTES,
    )


PENTIUM_II = Machine(
    name="Pentium II",
    paper="RRP",
    processors=4,
    costs=pentium_costs(),
    lan=FAST_ETHERNET,
    disk_us=5 * MS,
    window_packets=100,
    calibrated_on="passive replication at 100 and 1400 bytes, active at 1400 (RRP figure 8)",
)

PENTIUM_III = Machine(
    name="Pentium III",
    paper="RRP",
    processors=6,
    costs=pentium_costs(1.15),
    lan=FAST_ETHERNET,
    disk_us=5 * MS,
    window_packets=100,
    calibrated_on="passive replication at 1400 bytes (RRP figure 9); else as the Pentium II",
)

MACHINES = {
    "sun-4-ipc": SUN_4_IPC,
    "sparcstation-20": SPARCSTATION_20,
    "pentium-ii": PENTIUM_II,
    "pentium-iii": PENTIUM_III,
}


def lossy(loss: float) -> Condition:
    """Messages are lost with that probability at each receiver; tokens are not."""
    return replace(CABLE, loss=loss, token_loss=0.0)
