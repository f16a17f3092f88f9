"""Operational: the token goes round, messages are ordered and delivered (Totem §4.1, figures 4.1, 4.2, 4.4).

What a visit of the token does is in `ordering`. Here is when there is one, what ends the ring, and how a
processor leaves it.

Deviation: an idle ring's token rests with the processor that broadcast last, not a little with everyone as in
appendix A, until it is woken or the hold timeout runs out; and not after a number of rounds, but as soon as
everyone knows that all messages are safe. A lone sender then has the token at hand.
"""

from __future__ import annotations

from totempole.srp.packets import (
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    Unordered,
    Wake,
)
from totempole.srp.phase import Phase, Shifts
from totempole.srp.processor import Processor
from totempole.srp.ring import Held
from totempole.srp.states import State, Timer
from totempole.srp.token_holder import TokenHolder

AT_REST_PACKETS = 16
AT_REST_BYTES = 65_536
"""What may be sent with a token that goes on resting, until it has gone round again: it is too little to
overrun anybody, and whoever misses some of it hears of that within idle_hold_us."""

_new = tuple.__new__
"""Makes a named tuple at a third of the cost of calling its class."""


class Operational(Phase):
    """The installed ring's token is here, or on its way."""

    __slots__ = ("_at_rest_bytes", "_at_rest_packets", "_config", "_ordering", "holder")

    state = State.OPERATIONAL

    def __init__(self, processor: Processor, shift: Shifts, holder: TokenHolder) -> None:
        assert holder.ring is processor.installed, "operational on a ring that is not installed"
        assert holder.held is None, "a token held from before the ring was installed"
        super().__init__(processor, shift, holder.ring)
        self._config = processor.config
        self._ordering = processor.ordering
        self.holder = holder
        self._at_rest_packets = self._at_rest_bytes = 0
        """What may still be sent before the token that rests here goes on."""

    def begin(self) -> None:
        """What came of the new ring before it was installed is delivered first."""
        # What it forwards on an installed ring says nothing about the attempt to form the next one.
        self.processor.rotation_count = 0
        self._ordering.deliver(self.ring)

    # The token

    def on_token(self, token: RegularToken, data: bytes) -> None:
        """Visit, or let it rest."""
        if not self.holder.take(token, data):
            return
        if self._may_rest(token):
            self.holder.hold(token)
            self.output.set_timer(Timer.HOLD, self._config.idle_hold_us)
            self._at_rest_packets, self._at_rest_bytes = AT_REST_PACKETS, AT_REST_BYTES
        else:
            self._visit(token)

    def _may_rest(self, token: RegularToken) -> bool:
        """An idle ring's token waits with the last to send."""
        ring = self.ring
        return (
            ring.idle_rounds >= self._config.idle_rounds
            and ring.rests_here(token.seq, self.processor.me)
            and token.seq == token.aru == ring.last_sent_seq
            and not token.rtr
            and not self._ordering.queue
            and not self.processor.leaving
        )

    def _visit(self, token: RegularToken) -> None:
        blame = self.holder.visit(token, None)
        if blame is not None:
            self.processor.peers.expel(blame, self.ring)
            self.shift.to_gather(blame.reason)
            return
        self._ordering.deliver(self.ring)
        self._leave_if_done()

    def release_resting_token(self) -> None:
        """Visit a token that rests."""
        if self.holder.held is not None and not self.holder.ticket:
            self.output.cancel_timer(Timer.HOLD)
            token = self.holder.released()
            if token is not None:
                self._visit(token)

    def on_written(self, ticket: int) -> None:
        """Visit a token that waits for it."""
        token = self.holder.written(ticket)
        if token is not None:
            self._visit(token)

    def on_submitted(self) -> None:
        """Visit a resting token, or wake the ring."""
        ring = self.ring
        if self.holder.held is not None:
            if not self._send_at_rest():
                self.release_resting_token()
        elif (
            len(self._ordering.queue) == 1
            and ring.idle_rounds >= self._config.idle_rounds
            and not ring.rests_here(ring.last_sent_seq, self.processor.me)  # or else it is on its way here
        ):
            # Whoever holds the token lets it go, and nobody else need say so again.
            ring.idle_rounds = 0
            processor = self.processor
            wake = Wake(processor.me, processor.incarnation, processor.count(), processor.ring_id)
            processor.multicast(wake)

    def _send_at_rest(self) -> bool:
        """Whether what was submitted is sent, and the token rests on."""
        ordering, holder = self._ordering, self.holder
        if holder.ticket or self.processor.leaving or len(self.ring.members) == 1:
            return False
        self._at_rest_packets -= len(ordering.queue)
        self._at_rest_bytes -= sum(len(each.payload) for each in ordering.queue)
        if min(self._at_rest_packets, self._at_rest_bytes) < 0 or not ordering.may_send_at_rest:
            return False
        token = holder.released()
        if token is not None:
            holder.held = ordering.send_at_rest(self.ring, token)
        return True

    def on_wake(self, wake: Wake, _data: bytes) -> None:
        """Visit a resting token."""
        if wake.ring_id == self.ring.ring_id:
            # Whether the token is here or still on its way.
            self.ring.idle_rounds = 0
            if self.holder.held is not None:
                self.output.branch("idle ring woken")
                self.release_resting_token()

    def on_token_retransmission_timeout(self) -> None:
        """Pass the token again."""
        self.holder.retransmit()

    def on_token_loss(self) -> None:
        """Gather."""
        me = self.processor.me
        if self.ring.laggard == me:
            # The others have probably gone on without this processor.
            self.processor.peers.bar_laggard(self.ring, (me,))
        self.shift.to_gather("token loss")

    # Messages

    def on_message(self, message: RegularMessage, data: bytes) -> None:
        """Take in and deliver."""
        ring = self.ring
        held: Held = _new(Held, (message, data))
        if not self._ordering.accept(ring, held):
            return
        self.holder.note_alive(message)
        self.processor.note_ring_heard_of(message.src_ring_id)
        self._ordering.deliver(ring)

    def on_unordered(self, message: Unordered, _data: bytes) -> None:
        """Pass up, if it is of this ring."""
        if message.ring_id == self.ring.ring_id and message.sender in self.ring.members:
            self.output.deliver_unordered(message.sender, message.contents)
        else:
            self.output.drop("unordered message of another ring")

    # What starts a new membership (figure 4.4)

    def on_foreign_message(self, message: Packet, _data: bytes) -> None:
        """Gather, if it is worth it."""
        if self.processor.peers.considers(message):
            if isinstance(message, NullMessage):
                self.output.branch("idle rings meet")
            self.shift.to_gather("foreign message")

    def on_join(self, join: Join, _data: bytes) -> None:
        """Gather, if it is worth it."""
        processor, peers = self.processor, self.processor.peers
        if not peers.is_fresh(join):
            return
        expelled = processor.me in join.fail_set
        late = join.sender in peers.gathering.proc_set and join.ring_seq < processor.ring_id.seq
        if expelled and join.sender in self.ring.members:
            peers.bar_laggard(self.ring, join.fail_set)
        if expelled or late or peers.is_barred(join.sender) or peers.is_called_in_vain(join):
            self.output.drop("join that does not concern us")
            return
        if not peers.gathering.fits(join.proc_set):
            is_news = peers.outsiders.refused_company(join.sender) != join.proc_set
            peers.refuse(join.sender, join.proc_set)
            if is_news or processor.me in join.proc_set:
                # So that it knows who is here, and need not ask again. An answer is not answered again: it is
                # known by then, and names nobody but its sender's ring.
                self.output.send(join.sender, processor.new_join())
            return
        peers.absorb(join, self.ring, self.ring)
        self.shift.to_gather("join")

    def on_leave(self, leave: Leave, _data: bytes) -> None:
        """Gather without the sender."""
        if self.processor.peers.has_left(leave, self.ring):
            self.shift.to_gather("leave")

    def on_null_timeout(self) -> None:
        """Broadcast a Null, unless something was sent lately."""
        # Totem appendix A: two idle rings on a mended network would otherwise never meet.
        quiet_us = self.output.now_us - self.output.last_multicast_us
        if quiet_us >= self._config.null_us:
            processor, members = self.processor, len(self.ring.members)
            null = NullMessage(
                processor.me, processor.incarnation, processor.count(), processor.ring_id, members
            )
            processor.multicast(null)
        self.output.set_timer(Timer.NULL, self._config.null_us)

    # Leaving

    def _leave_if_done(self) -> None:
        """When its own messages are safe, and every safe message that it acknowledged is delivered: others
        deliver those on its word (Totem §3.3). It acknowledges no further ones, or it could never leave while
        others send."""
        ring, ordering = self.ring, self._ordering
        if self.processor.takes_more or ordering.queue or ring.my_aru < ordering.last_originated:
            return
        assert ordering.last_originated <= ring.last_sent_seq, "originated what no token has counted"
        ring.acknowledges_to = min(ring.acknowledges_to, ring.my_aru)
        if ring.safe_up_to >= ring.acknowledges_to:
            self.shift.to_left("left")
