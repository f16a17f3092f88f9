"""One attempt to carry the messages of the old ring over to the new one (Totem §4.3, figures 4.11 to 4.14).

Deviations:
- the promise (my_received_flg) is kept as the set of processors that it was given for, is told to the others
  in the Commit token by name, and everyone who transitions together delivers for all of them. With the
  paper's flag, a processor that promised on a failed ring and then meets an old companion that was not on
  that ring drops its promise (some flag is false), although members of the failed ring may have delivered
  safe messages on the strength of it;
- in the transitional configuration, messages up to the first gap are delivered whoever sent them (theorem
  4.10); the prose of steps 4 to 6 would leave out those of processors that are gone;
- the exchange always runs, even when every flag is true: the promises may stem from different failed rings,
  and then the processors do not hold the same messages. When they do, little is sent: `low_ring_aru` is high.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from totempole.srp.packets import CommitEntry, RegularMessage
from totempole.srp.ring import Held, Ring
from totempole.types import ProcessorId, Service


class OldRingDeliveries(NamedTuple):
    """Steps 2 and 4 of the recovery algorithm: what is delivered before and after the transitional change."""

    regular: list[RegularMessage]
    transitional: list[RegularMessage]


class Recovery:
    """The exchange on the new ring, and what it decides."""

    def __init__(self, entries: tuple[CommitEntry, ...], old: Ring) -> None:
        companions = [entry for entry in entries if entry.old_ring_id == old.ring_id]
        assert companions, f"nobody says anything about the old ring {old.ring_id}"
        self.trans_memb: tuple[ProcessorId, ...] = tuple(sorted(entry.processor for entry in companions))
        self.deliver_memb: frozenset[ProcessorId] = frozenset(self.trans_memb).union(
            *(entry.deliver_memb for entry in companions)
        )
        self.low_ring_aru = min(entry.old_ring_aru for entry in companions)
        self.high_ring_delivered = max(entry.high_delivered for entry in companions)
        assert self.low_ring_aru <= old.my_aru, "this processor's own word about the old ring is not counted"
        self.queue: dict[int, Held] = {
            seq: old.messages[seq] for seq in sorted(old.messages) if seq > self.low_ring_aru
        }
        """retrans_message_queue: old-ring messages that nobody has been heard to rebroadcast yet."""
        self.received = False
        self.install_seq: int | None = None
        self._flag_is_mine = False
        self._quiet_rounds = 0
        """my_retrans_flg_count"""
        self._covered_rounds = 0
        """Successive visits with an aru of at least my_install_seq."""

    def update_flag(self, retrans_flg: bool) -> bool:
        """The token's retrans_flg after this processor has looked at it."""
        if self.queue:
            self._flag_is_mine = self._flag_is_mine or not retrans_flg
            return True
        if retrans_flg and self._flag_is_mine:
            self._flag_is_mine = False
            return False
        return retrans_flg

    def note_visit(self, retrans_flg: bool, seq: int, aru: int, my_aru: int) -> None:
        """Figure 4.12: what the token says as it leaves."""
        assert aru <= seq, f"aru {aru} above seq {seq}"
        assert aru <= my_aru, f"the token leaves with aru {aru}, and only {my_aru} received here"
        assert retrans_flg or not self.queue, "the exchange called over with messages left to rebroadcast"
        self._quiet_rounds = 0 if retrans_flg else self._quiet_rounds + 1
        if self._quiet_rounds == 2:
            self.install_seq = seq
        if self._quiet_rounds < 2 or self.install_seq is None:
            self._covered_rounds = 0
            return
        self.received = self.received or my_aru >= self.install_seq
        self._covered_rounds = self._covered_rounds + 1 if aru >= self.install_seq else 0
        assert self._covered_rounds < self._quiet_rounds, "more rounds with everything than quiet ones"

    @property
    def complete(self) -> bool:
        """Every member of the new ring has everything, and has promised to deliver it."""
        return self._quiet_rounds >= 3 and self._covered_rounds >= 2

    def deliveries(self, old: Ring) -> OldRingDeliveries:
        """Splits the old ring's undelivered messages between its last two configurations."""
        regular = list(self._deliverable_on_old_ring(old))
        transitional = list(self._deliverable_in_transition(old))
        assert old.delivered <= old.my_aru, "delivered past a gap on the old ring"
        return OldRingDeliveries(regular, transitional)

    def _deliverable_on_old_ring(self, old: Ring) -> Iterator[RegularMessage]:
        """Up to the first gap, or to the first safe message that nobody is known to have delivered."""
        while (held := old.messages.get(old.delivered + 1)) is not None:
            message = held.message
            if message.service is Service.SAFE and message.seq > self.high_ring_delivered:
                break
            old.delivered = message.seq
            if not message.recovered:
                yield message
        assert old.delivered >= self.high_ring_delivered, "the exchange left a gap below a delivered message"

    def _deliverable_in_transition(self, old: Ring) -> Iterator[RegularMessage]:
        """All up to the first gap; past it only messages of those who can have left no gap of their own."""
        for seq in sorted(old.messages):
            message = old.messages[seq].message
            if seq > old.delivered and (seq <= old.my_aru or message.sender in self.deliver_memb):
                yield message
