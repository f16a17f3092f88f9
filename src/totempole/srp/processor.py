"""What a processor is in every state: its numbers, its queue, its installed ring, what it has promised.

Each state is an object of its own (`operational`, `gather`, `commit`, `recover`, and the two in `phase`) and
owns what exists only in it. What must outlive a state is here, and nothing else.

Deviation: a processor starts on the singleton ring numbered stable + 4, not stable. With the number of its
last ring it would pass for a member of that ring that has lost all messages.
"""

from __future__ import annotations

from collections.abc import Callable

from totempole.srp.config import RingConfig
from totempole.srp.ordering import Ordering
from totempole.srp.output import Output
from totempole.srp.packets import Join, Packet, RegularMessage
from totempole.srp.peers import Peers
from totempole.srp.ring import Held, Ring
from totempole.srp.states import Timer
from totempole.srp.timeouts import NEVER, LazyTimer, Timeouts
from totempole.types import ProcessorId, RingId

RING_SEQ_STEP = 4
"""Totem §4.2: a new ring's number is four above the highest; two below it names the transitional one."""

Decode = Callable[[bytes], RegularMessage | None]
"""Reads the packet inside a message that was rebroadcast in recovery; nothing if it is damaged."""


class Processor:
    """One life of a processor. States read and write it; it knows no state."""

    __slots__ = (
        "clock_ticket",
        "config",
        "counter",
        "decode",
        "draw",
        "future_ring_seq",
        "incarnation",
        "installed",
        "joined_us",
        "leaving",
        "me",
        "ordering",
        "output",
        "peers",
        "promise",
        "ring_id",
        "rotation_count",
        "takes_more",
        "timeouts",
        "token_loss",
        "token_retransmission",
    )

    def __init__(
        self,
        me: ProcessorId,
        incarnation: int,
        ring_seq: int,
        config: RingConfig,
        ordering: Ordering,
        output: Output,
        draw: Callable[[], float],
        decode: Decode,
    ) -> None:
        """`ring_seq` is the highest ring number that stable storage knows of. `draw` gives random numbers
        from 0 to 1."""
        assert incarnation >= 1, f"life {incarnation}"
        self.me = me
        self.incarnation = incarnation
        self.config = config
        self.ordering = ordering
        self.output = output
        self.draw = draw
        self.decode = decode
        self.timeouts = Timeouts(config, output)
        self.token_loss = LazyTimer(Timer.TOKEN_LOSS, output)
        self.token_retransmission = LazyTimer(Timer.TOKEN_RETRANSMISSION, output)

        self.ring_id = RingId(ring_seq + RING_SEQ_STEP, me)
        """my_ring_id: of the most recent Commit token accepted."""
        self.future_ring_seq = self.ring_id.seq
        self.installed = Ring(self.ring_id, (me,), me, config)
        """Still owed to the application while the next ring is agreed on."""
        self.peers = Peers(me, config, output, self.timeouts)
        self.promise: frozenset[ProcessorId] = frozenset()
        """my_deliver_memb, once my_received_flg is true; until a ring is installed."""
        self.rotation_count = 0
        """Tokens forwarded since the last consensus, while its ring is being formed; Joins tell it."""
        self.joined_us = -NEVER
        """When this processor last broadcast a Join."""
        self.clock_ticket = 0
        """The write that moves the bound of the timestamps."""
        self.counter = 0
        """Of what this processor has said in this life, messages and regular tokens left out."""
        self.leaving = False
        self.takes_more = True
        """Submissions: not once the layer above has handed over its last."""

    # Saying something

    def count(self) -> int:
        """The number of the next Join, Commit token or notice."""
        self.counter += 1
        return self.counter

    def multicast(self, packet: Packet) -> None:
        self.output.multicast(packet, self.output.encode(packet))

    def new_join(self) -> Join:
        proc_set, fail_set = self.peers.gathering.sets
        assert self.me in proc_set - fail_set, "a Join that does not propose its sender"
        if self.output.traces("join"):
            self.output.trace("join", members=tuple(sorted(proc_set)), failed=tuple(sorted(fail_set)))
        return Join(
            sender=self.me,
            incarnation=self.incarnation,
            counter=self.count(),
            ring_seq=self.ring_id.seq,
            future_ring_seq=self.future_ring_seq,
            proc_set=proc_set,
            fail_set=fail_set,
            rotation_count=self.rotation_count,
            segment_bytes=self.output.segment_bytes,
            settings=self.peers.settings,
        )

    # Stable storage

    def persist(self) -> int:
        """Writes all numbers; gives the ticket of the write."""
        assert self.future_ring_seq >= self.ring_id.seq, "the ring's number is above those heard of"
        ticket = self.output.persist(
            {
                "incarnation": self.incarnation,
                "ring_seq": self.ring_id.seq,
                "future_ring_seq": self.future_ring_seq,
                "timestamp": self.ordering.clock.to_store,
            }
        )
        if self.output.traces("persist"):
            covered = self.ordering.clock.to_store + self.config.timestamp_interval
            self.output.trace("persist", count=ticket, seq=self.ring_id.seq, timestamp=covered)
        return ticket

    def persist_with_clock(self) -> int:
        """Writes all numbers, the timestamp as it is now."""
        self.ordering.clock.begin_write()
        self.clock_ticket = self.persist()
        return self.clock_ticket

    def write_clock_ahead(self) -> None:
        if self.ordering.clock.runs_low(self.config.each_time_packets):
            self.persist_with_clock()

    def note_written(self, ticket: int) -> None:
        assert ticket > 0, f"write {ticket}: they are counted from 1"
        if ticket == self.clock_ticket:
            self.ordering.clock.written()

    # Timers

    def reset_token_loss(self) -> None:
        self.token_loss.set(self.timeouts.token_loss_us)

    def reset_token_retransmission(self) -> None:
        self.token_retransmission.set(self.timeouts.token_retransmission_us)

    # Messages of the installed ring

    def take_message(self, message: RegularMessage, data: bytes) -> None:
        """In Gather and Commit, messages of the installed ring may still come and be delivered."""
        ring = self.installed
        if self.ordering.accept(ring, Held(message, data)):
            self.note_ring_heard_of(message.src_ring_id)
            self.ordering.deliver(ring)

    def note_ring_heard_of(self, ring_id: RingId) -> None:
        """Totem §5.1: rings are numbered above every ring that anyone has heard of, crashes included."""
        if ring_id.seq > self.future_ring_seq:
            self.future_ring_seq = ring_id.seq
            self.persist()

    # Leaving

    def begin_leaving(self, more_to_come: bool) -> None:
        if not self.leaving:
            self.leaving = True
            self.output.set_timer(Timer.LEAVE, self.config.leave_us)
        self.takes_more = self.takes_more and more_to_come
