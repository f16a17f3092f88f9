"""What a processor thinks of the others: who is proposed for the next ring, and who is a reason to form one.

`gathering` has the sets of figures 4.5 to 4.8, `outsiders` what is remembered beyond them. Here the two are
asked about a packet: is it new, does it concern us, what does it change (Totem §4.2, figures 4.4 and 4.6)?

Deviations:
- every Join is numbered, and late or repeated ones are dropped; a stale Join cannot fake a consensus;
- a processor that was expelled as a laggard, or was left out of the ring several times, is for some time no
  reason to form a new one (outsiders.py, docs/decisions/0008-laggards.md);
- a Join tells the largest datagram that its sender can take, and a ring's packets are cut for its members.
"""

from __future__ import annotations

from collections.abc import Collection

from totempole.srp.alarms import SettingsDiffer
from totempole.srp.config import RingConfig
from totempole.srp.gathering import ATTEMPTS_MAX, Absorbed, Gathering
from totempole.srp.ordering import LAGGARD, Blame
from totempole.srp.output import Output
from totempole.srp.outsiders import Outsiders, remember
from totempole.srp.packets import Join, Leave, NullMessage, Packet, RegularMessage, SharedSettings
from totempole.srp.ring import Ring
from totempole.srp.timeouts import Timeouts
from totempole.types import ProcessorId


class Peers:
    """One processor's view of all others. It outlives states; its `gathering` is renewed with each ring."""

    __slots__ = (
        "_config",
        "_me",
        "_output",
        "_segment_bytes",
        "_settings_told",
        "_timeouts",
        "gathering",
        "outsiders",
        "settings",
    )

    def __init__(self, me: ProcessorId, config: RingConfig, output: Output, timeouts: Timeouts) -> None:
        self._me = me
        self._config = config
        self._output = output
        self._timeouts = timeouts
        self.gathering = Gathering(me, (me,), config.members_max)
        self.outsiders = Outsiders(config)
        self.settings = SharedSettings(*(getattr(config, name) for name in SharedSettings._fields))
        """This processor's own, as its Joins tell them."""
        self._settings_told: dict[ProcessorId, SharedSettings] = {}
        """Of processors whose settings differ, so that each difference is reported once."""
        self._segment_bytes: dict[ProcessorId, int] = {}
        """The largest datagram that others can take, as they say."""

    # Joins

    def is_fresh(self, join: Join) -> bool:
        """Whether it is not a repetition. What it says beside its sets is remembered."""
        if not self.outsiders.is_fresh_join(join):
            self._output.drop("stale join")
            return False
        remember(self._segment_bytes, join.sender, join.segment_bytes)
        self._compare_settings(join)
        self._output.heard(join.sender, just_now=True)
        return True

    def _compare_settings(self, join: Join) -> None:
        """Tells of each difference once. The order stays right with it, but the ring may break up often."""
        if join.settings == self._settings_told.get(join.sender, self.settings):
            return
        remember(self._settings_told, join.sender, join.settings)
        for name, theirs, mine in zip(SharedSettings._fields, join.settings, self.settings, strict=True):
            if theirs != mine:
                self._output.branch("settings differ")
                self._output.alarm(SettingsDiffer(join.sender, name, theirs, mine))

    def absorb(self, join: Join, installed: Ring, ring: Ring) -> Absorbed:
        """Takes over what the Join says. `ring` is the one whose token this processor waits for."""
        if not self.gathering.fits(join.proc_set):
            self.refuse(join.sender, join.proc_set)
        if join.sender in installed.members:
            self.bar_laggard(ring, join.fail_set)
        before = set(self.gathering.fail_set)
        absorbed = self.gathering.absorb(join)
        suspects = self.gathering.fail_set - before
        if suspects and self._output.traces("suspect"):
            self._output.trace("suspect", origin=join.sender, members=tuple(sorted(suspects)))
        return absorbed

    def is_called_in_vain(self, join: Join) -> bool:
        """By one with whom there was no ring lately: its Join does not name this processor, or belongs to the
        attempt that failed."""
        outsiders, now_us = self.outsiders, self._output.now_us
        if self._me not in join.proc_set and outsiders.fails_often(join.sender, now_us):
            return True
        attempt_us = ATTEMPTS_MAX * (self._timeouts.token_loss_us + self._timeouts.consensus_us)
        return outsiders.still_tries(join.sender, now_us, attempt_us)

    def refuse(self, processor: ProcessorId, company: frozenset[ProcessorId]) -> None:
        self._output.branch("no room on the ring")
        self.outsiders.refuse(processor, company)

    # Foreign messages

    def considers(self, message: Packet) -> bool:
        """Whether the sender of a foreign message is new, and proposed for the next ring from now on.

        If it is recovering, it is not to be disturbed.
        """
        if isinstance(message, NullMessage):
            # It may have started long ago, and its Joins gone to nobody.
            self._output.heard(message.sender, just_now=False)
            if self.gathering.has_room_for(message.members):
                self.outsiders.note_room(message.sender)
        recovering = isinstance(message, RegularMessage) and message.recovered
        if recovering or not self._is_worth_a_ring(message.sender) or not self.gathering.add(message.sender):
            self._output.drop("foreign message")
            return False
        return True

    def _is_worth_a_ring(self, processor: ProcessorId) -> bool:
        """Whether a new membership for its sake has a chance."""
        outsiders, now_us = self.outsiders, self._output.now_us
        if outsiders.fails_often(processor, now_us):
            self._output.branch("called again later")
            return False
        return (
            not self.is_barred(processor)
            and not outsiders.is_shunned_by(processor, now_us)
            and self.gathering.fits(outsiders.refused_company(processor))
        )

    # Those who go

    def has_left(self, leave: Leave, installed: Ring) -> bool:
        """Whether the sender was proposed for the next ring, and is not any more."""
        assert leave.sender != self._me, "a processor hears its own Leave"
        stale = leave.ring_id.seq < installed.ring_id.seq
        if stale or leave.sender not in self.gathering.proc_set:
            self._output.drop("leave that does not concern us")
            return False
        if not self.gathering.fail(leave.sender):
            return False
        self._output.branch("graceful leave")
        return True

    def expel(self, blame: Blame, ring: Ring) -> None:
        """The others cannot wait for this processor any longer."""
        assert blame.processor != self._me, "a processor expels itself"
        self._output.branch(blame.reason)
        self.gathering.fail(blame.processor)
        if blame.reason == LAGGARD:
            self.bar_laggard(ring, self.gathering.fail_set)

    def bar_laggard(self, ring: Ring, expelled: Collection[ProcessorId]) -> None:
        """Whoever saw the processor lag does not want it back at once, and it knows that by itself."""
        if ring.notorious == self._me and self._me in expelled:
            self.outsiders.note_shunned(ring.members, self._output.now_us)
        elif ring.notorious in expelled:
            self.outsiders.bar(ring.notorious, self._output.now_us)

    def is_barred(self, processor: ProcessorId) -> bool:
        barred = self.outsiders.is_barred(processor, self._output.now_us)
        if barred:
            self._output.branch("laggard not taken back yet")
        return barred

    # A new ring

    def limit_segments(self, ring: Ring) -> None:
        """Packets are cut for the member that can take least."""
        told = [self._segment_bytes[q] for q in ring.members if q in self._segment_bytes]
        self._output.limit_segments(min(told, default=self._output.segment_bytes))

    def note_installed(self, old: Ring, new: Ring, spread: float) -> None:
        """The sets begin again with the new ring's members; who did not get on it is remembered."""
        failed = self.gathering.fail_set
        assert failed.isdisjoint(new.members), f"{sorted(failed)} failed, and {new.members} on the ring"
        self.outsiders.note_ring(
            old.ring_id,
            set(old.members) - set(new.members),
            new.members,
            failed,
            self._output.now_us,
            spread,
        )
        self.gathering = Gathering(self._me, new.members, self._config.members_max)
        self.limit_segments(new)
