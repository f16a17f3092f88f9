"""Recover: the new ring carries the old messages, then it is installed (Totem §4.3, figures 4.11 to 4.14).

How the exchange is counted and what it decides is in `recovery`.

Deviation: old-ring messages that arrive in Recover other than through the new ring are dropped: only what all
members of the new ring receive may change what is delivered on the old one.
"""

from __future__ import annotations

from totempole.srp.forming import Forming
from totempole.srp.packets import CommitToken, Join, Leave, RegularMessage, RegularToken
from totempole.srp.phase import Phase, Shifts
from totempole.srp.processor import RING_SEQ_STEP, Processor
from totempole.srp.recovery import Recovery
from totempole.srp.ring import Held
from totempole.srp.states import State
from totempole.types import ConfigurationKind, RingId


class Recover(Phase):
    """From the Commit token's second visit until the ring is installed."""

    __slots__ = ("_holder", "forming", "recovery")

    state = State.RECOVER

    def __init__(self, processor: Processor, shift: Shifts, forming: Forming, recovery: Recovery) -> None:
        assert forming.ring.ring_id == processor.ring_id, "recovery on another ring than the latest agreed on"
        assert processor.me in recovery.trans_memb, "a processor does not come along with itself"
        super().__init__(processor, shift, forming.ring)
        self.forming = forming
        self.recovery = recovery
        self._holder = forming.holder

    def begin(self, token: CommitToken) -> None:
        self.processor.rotation_count += 1
        self.forming.pass_commit_token(token)

    # The token

    def on_commit_token(self, token: CommitToken, data: bytes) -> None:
        """Turn it into the regular token, as representative."""
        # Its third arrival there.
        if not self.forming.is_current(token) or self.ring.leader != self.processor.me:
            return
        self.on_token(
            RegularToken(
                sender=token.sender,
                incarnation=token.incarnation,
                ring_id=token.ring_id,
                token_seq=token.token_seq,
                seq=0,
                aru=0,
                timestamp=token.timestamp,
            ),
            data,
        )

    def on_token(self, token: RegularToken, data: bytes) -> None:
        """Visit; install the ring when all is exchanged."""
        if self._holder.take(token, data):
            self._visit(token)

    def on_written(self, ticket: int) -> None:
        """Visit a token that waits for it."""
        token = self._holder.written(ticket)
        if token is not None:
            self._visit(token)

    def _visit(self, token: RegularToken) -> None:
        blame = self._holder.visit(token, self.recovery)
        if blame is not None:
            self.processor.peers.expel(blame, self.ring)
            self._abandon(blame.reason)
            return
        self.processor.rotation_count += 1
        self._go_on()

    def on_token_retransmission_timeout(self) -> None:
        """Pass the token again."""
        self._holder.retransmit()

    def on_token_loss(self) -> None:
        """Gather."""
        assert self.processor.rotation_count >= 2, "in Recover before the Commit token's second visit"
        self.output.branch("recovery failed")
        if self.processor.rotation_count == 2:
            self.output.branch("commit token lost on its second rotation")
        if self.processor.promise:
            self.output.branch("recovery failed after a promise")
        self._abandon("token loss")

    def _abandon(self, reason: str) -> None:
        self.forming.note_fruitless()
        self.shift.to_gather(reason)

    # The exchange

    def on_new_ring_message(self, message: RegularMessage, data: bytes) -> None:
        """Take in, and the old message inside it."""
        processor = self.processor
        old_data = bytes(message.contents) if message.recovered else b""
        old = processor.decode(old_data) if message.recovered else None
        if message.recovered and old is None:
            # Damaged inside. Taken in, it would count as received: it has to come again.
            return
        if not processor.ordering.accept(self.ring, Held(message, data)):
            return
        self._holder.note_alive(message)
        if old is not None and old.ring_id == processor.installed.ring_id:
            self._take_in_old_message(Held(old, old_data))

    def _take_in_old_message(self, held: Held) -> None:
        self.processor.ordering.take_in(self.processor.installed, held)
        self.recovery.queue.pop(held.message.seq, None)

    def _go_on(self) -> None:
        """After each visit: promise, install, or wait for the next one."""
        processor, recovery = self.processor, self.recovery
        assert recovery.deliver_memb.issuperset(recovery.trans_memb), "companions left out of the promise"
        if recovery.received and processor.promise != recovery.deliver_memb:
            # Totem "Failure of Recovery": the promise outlives a recovery that fails.
            processor.promise = recovery.deliver_memb
            self.output.branch("promise given")
        if not recovery.complete:
            return
        if processor.installed.my_aru < recovery.high_ring_delivered:
            # Somebody said that it had delivered what nobody has.
            self.output.branch("gap below a delivered message")
            self._abandon("gap")
        else:
            self._install_ring()

    # Install (figure 4.14)

    def _install_ring(self) -> None:
        """Steps 2 to 6, one atomic action: the old ring's messages, then the new ring."""
        processor, output, recovery = self.processor, self.output, self.recovery
        old, new = processor.installed, self.ring
        assert recovery.complete, "installed before everyone has everything"
        assert processor.promise == recovery.deliver_memb, "installed without the promise to deliver"
        assert new.ring_id.seq > old.ring_id.seq, f"ring {new.ring_id} follows {old.ring_id}"
        assert not new.delivered, "messages of the new ring delivered before it was installed"
        deliveries = recovery.deliveries(old)
        for message in deliveries.regular:
            output.deliver(message)
        transitional = RingId(new.ring_id.seq - RING_SEQ_STEP // 2, recovery.trans_memb[0])
        output.install(
            ConfigurationKind.TRANSITIONAL, transitional, recovery.trans_memb, old.ring_id, old.delivered
        )
        for message in deliveries.transitional:
            output.deliver(message)
        output.install(ConfigurationKind.REGULAR, new.ring_id, new.members, new.ring_id, 0)

        processor.installed = new
        processor.promise = frozenset()
        processor.ordering.last_originated = 0
        processor.peers.note_installed(old, new, processor.draw())
        self.shift.to_operational(self._holder)

    # What else comes

    def on_join(self, join: Join, _data: bytes) -> None:
        """Gather, if the sender gave the ring up."""
        processor = self.processor
        if processor.peers.is_fresh(join) and self.forming.is_given_up_by(join):
            self.forming.note_fruitless()
            processor.peers.absorb(join, processor.installed, self.ring)
            self.shift.to_gather("join")

    def on_leave(self, leave: Leave, _data: bytes) -> None:
        """Gather without the sender."""
        if self.processor.peers.has_left(leave, self.processor.installed):
            self._abandon("leave")
