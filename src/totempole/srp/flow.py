"""Flow control (Totem §4.4, figure 4.17), in packets and in bytes.

The figure is missing from the scan; the prose gives the rule. What all others sent since this processor last
forwarded the token (new packets by `seq`, retransmissions by `retrans_round`) counts against the window.

Deviations:
- the same rule runs over bytes, because a packet may be 60 bytes or 60 kilobytes;
- while others have packets waiting too (the token's `backlog`), a visit takes no more of the window than its
  share: one packet, and of what is left in proportion to what waits. With each_time alone, the first few
  members of a saturated ring use the window up at each rotation and the last ones never send. So that there
  is one packet for each, the window is never smaller than the ring. Shares are of what retransmissions leave
  of the window, whoever sends them. A member that repeats much for others, because one of their links is
  bad, would otherwise send nothing of its own. On the accelerated ring each pays for what it repeats itself;
- one retransmission is always allowed, so that a full window cannot stop the repair that would empty it;
- the window in bytes is what the ring has lately carried in `rotation_target_us`, if that is less than
  `window_bytes`. It begins small and doubles while rotations are short. A window that takes a slow link
  longer than the token may be missing would cost the ring its token at every rotation. On the accelerated
  ring what was sent in one rotation is still being carried in the next one, which it makes long;
- packets are only so large that the window has room for one from each who has something to send, and while
  packets have to be retransmitted, they are smaller: the holes of a large one are too many to name;
- `outstanding_packets_max` bounds seq - aru as the token tells it, and with it the memory that a slow
  receiver can cost the others: so much, and what a rotation sends before that receiver has lowered the aru.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from totempole.srp.config import RingConfig
from totempole.srp.packets import RegularToken
from totempole.types import RingKind

WINDOW_BYTES_LEAST = 60_000
"""So much a rotation may carry however long it takes, and the first one in any case."""
PACKET_BYTES_LEAST = 20_000
"""However small the window, and enough for the names of a message to many groups."""
LOSSY_PACKET_BYTES = 189_000
"""While packets are lost: three bursts of 64 KiB."""


class Allowance(NamedTuple):
    """What one token visit may send."""

    packets: int
    """New and repeated."""
    new_packets: int
    new_bytes: int
    """The last packet may exceed it: nothing is too large to be sent."""


class Repeats(NamedTuple):
    """What is retransmitted on this visit, and by others since the last one. The token has their packets."""

    packets: int = 0
    bytes: int = 0
    others_bytes: int = 0


NO_REPEATS = Repeats()


class Rounds(NamedTuple):
    """The token's sums over the last rotation, as this processor leaves them."""

    retrans: int
    bytes: int
    backlog: int


class FlowControl:
    """One processor's view of one ring's window."""

    __slots__ = (
        "_accelerated",
        "_bytes",
        "_config",
        "_last",
        "_last_seq",
        "_members",
        "_sent",
        "_target_us",
        "_us",
        "_visited_us",
        "_window",
        "loaded",
        "packet_bytes",
        "packets_ahead",
        "window_bytes",
    )

    def __init__(self, config: RingConfig, member_count: int) -> None:
        self._config = config
        self.window_bytes = min(config.window_bytes, WINDOW_BYTES_LEAST)
        """What a rotation may carry at present."""
        self._bytes = self._us = 0
        """What loaded rotations carried, and how long they took: each counts half as much as the next one."""
        self._sent = 0
        """What all sent in the rotation before this one."""
        self._accelerated = config.ring_kind is RingKind.ACCELERATED
        self._target_us = min(config.rotation_target_us, config.token_loss_us // 2)
        self._visited_us = 0
        self._members = member_count
        self._window = max(config.window_packets, member_count)
        self._last_seq = 0
        self._last = Rounds(0, 0, 0)
        """What this processor added to the sums at its last visit."""
        self.loaded = False
        """Whether packets were left waiting at this processor's last visit."""
        self._size_packets(others_wait=False, lossy=False)

    def note_visit(self, now_us: int, bytes_round: int) -> None:
        """The token is here; all have sent so many bytes since it last was."""
        rotation_us = now_us - self._visited_us if self._visited_us else 0
        assert rotation_us >= 0, "the clock ran backwards"
        self._visited_us = now_us
        carried = self._sent if self._accelerated else bytes_round
        self._sent = bytes_round
        if rotation_us > 0 and 2 * carried >= self.window_bytes:
            self._bytes = self._bytes // 2 + carried
            self._us = self._us // 2 + rotation_us
            fits = max(WINDOW_BYTES_LEAST, self._bytes * self._target_us // self._us)
            self.window_bytes = min(fits, 2 * self.window_bytes, self._config.window_bytes)
            assert self.window_bytes > 0, "a window that nothing fits in"

    def _size_packets(self, others_wait: bool, lossy: bool) -> None:
        """How large packets should be at present, and how many of them one visit of the token can take: it is
        no use to have more of them ready."""
        config = self._config
        fits = max(PACKET_BYTES_LEAST, self.window_bytes // (self._members if others_wait else 2))
        most = min(config.packet_bytes_max, LOSSY_PACKET_BYTES) if lossy else config.packet_bytes_max
        self.packet_bytes = min(fits, most)
        by_bytes = config.each_time_bytes // self.packet_bytes
        self.packets_ahead = min(config.each_time_packets, by_bytes, config.send_queue_max)
        assert self.packets_ahead > 0, "a full packet could never be sent"

    def allowance(self, token: RegularToken, waiting: int, repeats: Repeats = NO_REPEATS) -> Allowance:
        """For a processor with so many packets waiting, which repeats so much on this visit."""
        config, last = self._config, self._last
        assert self._window >= self._members, "a window without a packet for each member"
        others_repeats = token.retrans_round - last.retrans
        room = min(self._window - (token.seq - self._last_seq) - others_repeats, config.each_time_packets)
        room_bytes = min(self.window_bytes - (token.bytes_round - last.bytes), config.each_time_bytes)
        outstanding = config.outstanding_packets_max - (token.seq - token.aru)
        new_packets = min(room - repeats.packets, outstanding)
        new_bytes = room_bytes - repeats.bytes
        some_are_left = new_bytes > 0 or not repeats.packets
        others_waiting = token.backlog - last.backlog
        if others_waiting > 0:
            all_waiting = waiting + others_waiting
            share, share_bytes = self._share(waiting, all_waiting, others_repeats, repeats)
            new_packets = min(new_packets, share)
            new_bytes = min(new_bytes, share_bytes)
            some_are_left = share_bytes > 0 or not repeats.packets
        return Allowance(max(1, room), max(0, new_packets), max(int(some_are_left), new_bytes))

    def _share(
        self, waiting: int, all_waiting: int, others_repeats: int, repeats: Repeats
    ) -> tuple[int, int]:
        """Of the window, new packets and bytes of one who has this part of all that waits."""
        spare, spare_bytes = self._window - self._members, self.window_bytes
        if self._accelerated:
            # Senders overlap, each on a link of its own: repeats take the place of one's own new packets.
            share, share_bytes = 1 + spare * waiting // all_waiting, spare_bytes * waiting // all_waiting
            return share - repeats.packets, share_bytes - repeats.bytes
        spare = max(0, spare - others_repeats - repeats.packets)
        spare_bytes -= repeats.others_bytes + repeats.bytes
        return 1 + spare * waiting // all_waiting, spare_bytes * waiting // all_waiting

    def others_repeats(self, token: RegularToken, bytes_of: Callable[[int, int], int]) -> int:
        """How many bytes others have retransmitted since the last visit: what they sent, less what was new.

        `bytes_of` gives the size of the messages after one sequence number and up to another.
        """
        if self._accelerated or token.retrans_round <= self._last.retrans:
            return 0
        return max(0, token.bytes_round - self._last.bytes - bytes_of(self._last_seq, token.seq))

    def account(
        self, token: RegularToken, seq: int, retransmitted: int, sent_bytes: int, waiting: int
    ) -> Rounds:
        """Remembers this visit; gives the sums that go into the token."""
        last = self._last
        assert seq >= token.seq, f"seq falls from {token.seq} to {seq}"
        self._last_seq = seq
        self._last = Rounds(retransmitted, sent_bytes, waiting)
        self._size_packets(token.backlog > last.backlog, token.retrans_round > 0 or retransmitted > 0)
        backlog = max(0, token.backlog - last.backlog) + waiting
        self.loaded = backlog > 0
        return Rounds(
            max(0, token.retrans_round - last.retrans) + retransmitted,
            max(0, token.bytes_round - last.bytes) + sent_bytes,
            backlog,
        )
