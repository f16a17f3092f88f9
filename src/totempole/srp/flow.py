"""Flow control (000 §4.4, figure 4.17), in packets and in bytes.

The figure is missing from the scan; the prose gives the rule. What all others sent since this processor last
forwarded the token (new packets by `seq`, retransmissions by `retrans_round`) counts against the window.

Deviations:
- the same rule runs over bytes, because a packet may be 60 bytes or 60 kilobytes;
- a visit never takes more than its share (window / members). With each_time alone, the first few members of
  a saturated ring use up the window at each rotation and the last ones never send. For the same reason the
  window holds at least one packet of each member;
- one retransmission is always allowed, so that a full window cannot stop the repair that would empty it;
- `outstanding_packets_max` bounds seq - aru, and with it the memory that a slow receiver can cost the others.
"""

from __future__ import annotations

from typing import NamedTuple

from totempole.srp.config import RingConfig
from totempole.wire.packets import RegularToken


class Allowance(NamedTuple):
    """What one token visit may send. The last packet may exceed `bytes`: nothing is too large to be sent."""

    packets: int
    new_packets: int
    bytes: int


class FlowControl:
    """One processor's view of one ring's window."""

    __slots__ = (
        "_config",
        "_last_bytes",
        "_last_retrans",
        "_last_seq",
        "_share_bytes",
        "_share_packets",
        "_window_packets",
    )

    def __init__(self, config: RingConfig, member_count: int) -> None:
        self._config = config
        self._window_packets = max(config.window_packets, member_count)
        self._share_packets = min(config.each_time_packets, self._window_packets // member_count)
        self._share_bytes = max(1, min(config.each_time_bytes, config.window_bytes // member_count))
        self._last_seq = 0
        self._last_retrans = 0
        self._last_bytes = 0

    def allowance(self, token: RegularToken) -> Allowance:
        config = self._config
        sent = (token.seq - self._last_seq) + (token.retrans_round - self._last_retrans)
        sent_bytes = token.bytes_round - self._last_bytes
        packets = min(self._share_packets, self._window_packets - sent)
        outstanding = config.outstanding_packets_max - (token.seq - token.aru)
        return Allowance(
            packets=max(1, packets),
            new_packets=max(0, min(packets, outstanding)),
            bytes=max(1, min(self._share_bytes, config.window_bytes - sent_bytes)),
        )

    def account(self, token: RegularToken, seq: int, retransmitted: int, sent_bytes: int) -> tuple[int, int]:
        """Remembers this visit; gives the token's new retrans_round and bytes_round."""
        retrans_round = max(0, token.retrans_round - self._last_retrans) + retransmitted
        bytes_round = max(0, token.bytes_round - self._last_bytes) + sent_bytes
        self._last_seq = seq
        self._last_retrans = retransmitted
        self._last_bytes = sent_bytes
        return retrans_round, bytes_round
