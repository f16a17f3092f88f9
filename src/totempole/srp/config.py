"""The settings of one ring: every timeout, window and limit that the single-ring protocol has."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from totempole.errors import ConfigurationError
from totempole.settings import whole_number as setting
from totempole.srp.layout import PLAIN_CONTENTS_MAX, REQUESTS_MAX
from totempole.types import RingKind
from totempole.wire.layout import DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, PACKET_BYTES_MAX, PROCESSORS_MAX

SEGMENT_BYTES_LEAST = DATAGRAM_BYTES_MIN
DATAGRAM_MAX = DATAGRAM_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RingConfig:
    """Checked on construction. Units stand last in the names; appendix A's names stand in the meanings."""

    cluster_id: int = setting(1, "packets of other clusters are dropped", least=0)
    ring_kind: RingKind = field(
        default=RingKind.CLASSIC, metadata={"meaning": "classic, or accelerated (docs/accelerated.md)"}
    )

    token_loss_us: int = setting(80_000, "no token for so long: the ring is gone (TOKEN_TMO)")
    token_retransmission_us: int = setting(
        20_000, "no sign of the token after passing it on: pass it again (MAX_TKN_RETRANS)"
    )
    join_us: int = setting(10_000, "how often a Join is broadcast again in Gather (JOIN_TMO)")
    consensus_us: int = setting(50_000, "how long Gather waits for agreement (CONSENSUS_TMO)")
    timeout_stretch_max_percent: int = setting(
        1_000,
        "how far a slow ring stretches the four timeouts above; 100: they stay as they are set",
        least=100,
        most=100_000,
    )
    null_us: int = setting(250_000, "how often a quiet processor shows itself (NULL_PERIODIC_TMO)")
    idle_hold_us: int = setting(
        10_000, "how long an idle ring's token rests with the last to send (MAX_DELAY_PROC)"
    )
    idle_rounds: int = setting(
        1, "rotations, after all messages are safe, before the token rests (MAX_FAST_ROUNDS)"
    )
    leave_us: int = setting(2_000_000, "how long a leaving processor tries to see its messages delivered")
    fail_to_receive_rounds: int = setting(
        50, "rotations with an unchanged aru before its setter is expelled (FAIL_RCV_LIMIT)", least=2
    )
    laggard_us: int = setting(
        2_000_000, "how long one may be behind by an eighth of window_packets before it is expelled"
    )
    readmission_us: int = setting(
        10_000_000,
        "how long a laggard, or one that often fails to get on the ring, is no reason to form a new one",
        least=0,
    )

    window_packets: int = setting(100, "packets that all may send in a rotation (WINDOW_SIZE)")
    each_time_packets: int = setting(30, "packets that one may send in a token visit (EACH_TIME)")
    window_bytes: int = setting(5_000_000, "bytes that all may send in a rotation")
    each_time_bytes: int = setting(2_200_000, "bytes that one may send in a token visit")
    rotation_target_us: int = setting(
        40_000, "what a loaded rotation may last: slow links get a smaller window_bytes for it"
    )
    outstanding_packets_max: int = setting(250, "largest seq - aru before new packets wait")
    accelerated_window: int = setting(
        15, "packets that may follow the token instead of preceding it", least=0
    )
    requests_max: int = setting(90, "entries of the token's rtr list (MAX_REQUESTS)", most=REQUESTS_MAX)
    send_queue_max: int = setting(300, "submissions queued before push-back (MAX_SRP_SND_Q)")
    send_queue_ready: int = setting(250, "queue length at which push-back ends (MIN_SRP_SND_Q)", least=0)
    members_max: int = setting(60, "processors of a ring (MAX_PROC_RING)", most=PROCESSORS_MAX)
    packet_bytes_max: int = setting(
        440_000,
        "contents of one packet, at most; the default fills seven bursts of 64 KiB",
        least=64,
        most=PLAIN_CONTENTS_MAX,
    )
    segment_bytes: int = setting(
        1_400,
        "a datagram, header included, at most",
        least=SEGMENT_BYTES_LEAST,
        most=DATAGRAM_MAX,
    )
    check_contents: int = setting(
        1,
        "unsealed packets: 1, their check covers the contents; 0, the protocol's fields only",
        least=0,
        most=1,
    )
    reassembly_bytes_max: int = setting(
        8_000_000, "memory for packets that have arrived in part", least=PACKET_BYTES_MAX
    )
    timestamp_interval: int = setting(
        10_000, "timestamps covered by one write to stable storage (Totem §5.1)"
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            if "least" in item.metadata:
                self._check_number(item.name, item.metadata["least"], item.metadata["most"])
        if not isinstance(self.ring_kind, RingKind):
            kinds = ", ".join(kind.name.lower() for kind in RingKind)
            raise ConfigurationError(f"ring_kind = {self.ring_kind!r}: give one of {kinds}")
        if self.send_queue_ready >= self.send_queue_max:
            raise ConfigurationError(
                f"send_queue_ready = {self.send_queue_ready} is not below send_queue_max = "
                f"{self.send_queue_max}: push-back would end while the queue is full; lower send_queue_ready"
            )
        self._order("idle_hold_us", "token_retransmission_us", "the ring would retransmit a held token")
        self._order("token_retransmission_us", "token_loss_us", "a lost token would never be retransmitted")
        self._order("join_us", "consensus_us", "no Join would be repeated")
        self._order("packet_bytes_max", "each_time_bytes", "a full packet could never be sent")
        self._order("each_time_bytes", "window_bytes", "the window could never be used")
        self._order("each_time_packets", "window_packets", "the window could never be used")
        if 2 * self.each_time_packets >= self.timestamp_interval:
            raise ConfigurationError(
                f"timestamp_interval = {self.timestamp_interval} is used up by two token visits of "
                f"each_time_packets = {self.each_time_packets}: raise timestamp_interval"
            )

    def _check_number(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ConfigurationError(f"{name} = {value!r}: give a whole number from {least} to {most}")

    def _order(self, low: str, high: str, why: str) -> None:
        if getattr(self, low) > getattr(self, high):
            raise ConfigurationError(
                f"{low} = {getattr(self, low)} is above {high} = {getattr(self, high)}: {why}; lower {low}"
            )
