"""Named breakages of the ring. A search that does not notice one of them is blind to its kind.

`mutation` makes protocols of them. `totem fuzz --mutants` hunts them.
"""

from __future__ import annotations

from totempole.sim.fuzz.mutation import Mutant, hunt, mutated_stack

__all__ = ["BY_HAND", "HARMLESS", "MUTANTS", "STAGED", "UNNOTICED", "Mutant", "hunt", "mutated_stack"]

MUTANTS: tuple[Mutant, ...] = (
    # Totem §4.1, ordering
    Mutant("safe after one rotation", "Ring.forwarded", "safe = min(aru, self.last_aru_seen)", "safe = aru"),
    Mutant(
        "safe delivered as agreed",
        "Ring.take_deliverable",
        "if message.service is Service.SAFE and message.seq > self.safe_up_to:",
        "if message.seq < 0:",
    ),
    Mutant(
        "deliver past a gap",
        "Ring.take_deliverable",
        "self.messages.get(self.delivered + 1)) is not None",
        "self.messages.get(min({s for s in self.messages if s > self.delivered}, default=0)))",
        5,
    ),
    Mutant(
        "rebroadcast messages delivered",
        "Ring.take_deliverable",
        "if not message.recovered:",
        "if message.seq:",
        3,
    ),
    Mutant(
        "aru never lowered",
        "Ring.updated_aru",
        "if mine < aru or aru_id in (me, NO_PROCESSOR):",
        "if aru_id in (me, NO_PROCESSOR):",
        0,
    ),
    Mutant(
        "buffers freed before safe",
        "Ring.release",
        "stop = min(self.safe_up_to, self.delivered)",
        "stop = self.delivered",
        52,
    ),
    Mutant(
        "nothing asked for again",
        "Ring.request_missing",
        "if self.my_aru >= up_to:",
        "if self.my_aru >= 0:",
        5,
    ),
    Mutant(
        "a stale token accepted",
        "TokenHolder.take",
        "if token.token_seq < ring.my_token_seq:",
        "if token.token_seq < 0:",
    ),
    Mutant(
        "seq not advanced",
        "Ordering.visit",
        "seq = token.seq + len(sent.new)",
        "seq = token.seq + len(sent.new) // 2",
    ),
    Mutant(
        "timestamp of the token ignored",
        "TokenHolder.take",
        "self._clock.witness(token.timestamp)",
        "pass",
    ),
    Mutant(
        "timestamp restarts at zero",
        "TimestampClock.__init__",
        "self._stable = stored + interval",
        "self._stable = interval",
    ),
    Mutant(
        "timestamps stand still",
        "TimestampClock.next",
        "self.now += 1",
        "self.now += 0",
    ),
    Mutant(
        "every message delivered twice to oneself",
        "Ordering._send_before_token",
        "self.deliver(ring)",
        "self.deliver(ring)\n            ring.delivered -= ring.delivered > 0",
    ),
    Mutant(
        "nobody named who holds the aru down",
        "Ring.updated_aru",
        "aru_id = NO_PROCESSOR if aru == seq else me",
        "aru_id = NO_PROCESSOR",
    ),
    Mutant(
        "message numbers used twice",
        "Ordering._originate",
        "self.last_originated = ring.last_numbered = seq + len(new)",
        "self.last_originated = ring.last_numbered = seq + len(new)\n        self._number -= 1",
    ),
    # Totem §4.2, membership
    Mutant(
        "ring number not persisted",
        "SingleRing.__init__",
        "ring_seq = max(stable.get('ring_seq', 0), stable.get('future_ring_seq', 0))",
        "ring_seq = 0",
    ),
    Mutant(
        "ring number persisted after the token has left",
        "Commit.on_commit_token",
        "if self._ticket:",
        "if self._ticket < 0:",
        160,
    ),
    Mutant(
        "restart on the number of the last ring",
        "Processor.__init__",
        "self.ring_id = RingId(ring_seq + RING_SEQ_STEP, me)",
        "self.ring_id = RingId(max(ring_seq, RING_SEQ_STEP), me)",
        3,
    ),
    Mutant(
        "an outsider's fail set believed",
        "Gathering._believable_failures",
        "join.fail_set - self._memb",
        "join.fail_set",
        3,
    ),
    Mutant(
        "idle rings never meet",
        "Operational.on_null_timeout",
        "processor.multicast(null)",
        "pass",
        1,
    ),
    Mutant(
        "transitional configuration reuses the ring's name",
        "Recover._install_ring",
        "RING_SEQ_STEP // 2",
        "0",
    ),
    Mutant(
        "the silent never fail",
        "Gathering.fail_the_silent",
        "for processor in silent:",
        "for processor in silent[:0]:",
    ),
    Mutant(
        "incarnation kept",
        "SingleRing.__init__",
        "self.incarnation = incarnation",
        "self.incarnation = incarnation = max(1, stable.get('incarnation', 0))",
    ),
    Mutant(
        "what was delivered not told",
        "Forming._new_entry",
        "high_delivered=old.delivered,",
        "high_delivered=0,",
        3,
    ),
    Mutant(
        "received past a gap told as received without one",
        "Forming._new_entry",
        "old_ring_aru=old.my_aru,",
        "old_ring_aru=max(old.messages, default=old.my_aru),",
        3,
    ),
    # Timeouts, resting and laggards (docs/decisions/0007, 0008)
    Mutant(
        "a resting token never let go",
        "Operational.on_token",
        "self.output.set_timer(Timer.HOLD, self._config.idle_hold_us)",
        "pass",
    ),
    Mutant("an early timer taken for due", "LazyTimer.ran_out", "if left_us <= 0:", "if left_us <= NEVER:"),
    Mutant(
        "a moved timer forgotten", "LazyTimer.ran_out", "if self.due_us != NEVER:", "if self.due_us < 0:", 1
    ),
    Mutant(
        "an expelled laggard never taken back",
        "Outsiders.bar",
        "remember(self._barred_until_us, processor, now_us + self._config.readmission_us)",
        "remember(self._barred_until_us, processor, 2 ** 62)",
        27,
    ),
    # Totem §4.3, recovery
    Mutant(
        "no transitional configuration",
        "Output.install",
        "self._install(InstallConfiguration(configuration, key))",
        "if regular:\n        self._install(InstallConfiguration(configuration, key))",
    ),
    Mutant(
        "everyone of the new ring in the transitional configuration",
        "Recover._install_ring",
        "transitional, recovery.trans_memb",
        "transitional, new.members",
    ),
    Mutant(
        "the received promise forgotten",
        "Forming._new_entry",
        "deliver_memb=tuple(sorted(promise)),",
        "deliver_memb=(),",
        27,
    ),
    Mutant(
        "the promise never given",
        "Recover._go_on",
        "processor.promise = recovery.deliver_memb",
        "processor.promise = frozenset()",
        27,
    ),
    Mutant(
        "old-ring buffers replaced before delivery",
        "Recover.begin",
        "self.processor.rotation_count += 1",
        "self.processor.rotation_count += 1\n    self.processor.installed.messages.clear()",
    ),
    Mutant(
        "messages of other old rings taken in",
        "Recover.on_new_ring_message",
        "if old is not None and old.ring_id == processor.installed.ring_id:",
        "if old is not None:",
        52,
    ),
    Mutant(
        "nothing exchanged",
        "Recovery.__init__",
        "for seq in sorted(old.messages) if seq > self.low_ring_aru",
        "for seq in sorted(old.messages) if seq < 0",
        3,
    ),
    Mutant(
        "exchange starts too late",
        "Recovery.__init__",
        "self.low_ring_aru = min((entry.old_ring_aru for entry in companions))",
        "self.low_ring_aru = max((entry.old_ring_aru for entry in companions))",
        3,
    ),
    Mutant(
        "what a companion delivered ignored",
        "Recovery.__init__",
        "self.high_ring_delivered = max((entry.high_delivered for entry in companions))",
        "self.high_ring_delivered = min((entry.high_delivered for entry in companions))",
        3,
    ),
    Mutant(
        "installed before everyone has everything",
        "Recovery.complete",
        "return self._quiet_rounds >= 3 and self._covered_rounds >= 2",
        "return self._quiet_rounds >= 1",
        27,
    ),
    Mutant(
        "unsafe messages delivered on the old ring",
        "Recovery._deliverable_on_old_ring",
        "if message.service is Service.SAFE and message.seq > self.high_ring_delivered:",
        "if message.seq < 0:",
        4,
    ),
    Mutant(
        "everything delivered past a gap",
        "Recovery._deliverable_in_transition",
        "if seq > old.delivered and (seq <= old.my_aru or message.sender in self.deliver_memb):",
        "if seq > old.delivered:",
        27,
    ),
    Mutant(
        "nothing delivered past a gap",
        "Recovery._deliverable_in_transition",
        "if seq > old.delivered and (seq <= old.my_aru or message.sender in self.deliver_memb):",
        "if old.delivered < seq <= old.my_aru:",
    ),
    Mutant(
        "departed senders left out before the gap",
        "Recovery._deliverable_in_transition",
        "if seq > old.delivered and (seq <= old.my_aru or message.sender in self.deliver_memb):",
        "if seq > old.delivered and message.sender in self.deliver_memb:",
        4,
    ),
    Mutant(
        "the promise outlives the ring",
        "Recover._install_ring",
        "processor.promise = frozenset()",
        "pass",
        27,
    ),
    Mutant(
        "installed after two quiet rounds",
        "Recovery.complete",
        "return self._quiet_rounds >= 3 and self._covered_rounds >= 2",
        "return self._quiet_rounds >= 2 and self._covered_rounds >= 1",
        19,
    ),
    Mutant(
        "the first write not waited for",
        "Starting.on_started",
        "self.ticket = self.processor.persist()",
        "self.processor.persist()\n    self.install_alone()",
        6,
    ),
    Mutant(
        "foreign messages ignored",
        "TABLE",
        "(_drop, Operational.on_foreign_message, Gather.on_foreign_message, _drop, _drop, _drop),",
        "(_drop,) * 6,",
        1,
    ),
    Mutant(
        "the queue forgotten with the ring",
        "Recover._install_ring",
        "processor.ordering.last_originated = 0",
        "processor.ordering.last_originated = 0\n    processor.ordering.queue.clear()",
    ),
    Mutant(
        "transitional configurations of all sides share a name",
        "Recover._install_ring",
        "recovery.trans_memb[0])",
        "new.members[0])",
    ),
    Mutant(
        "a lost Commit token waited for on its first rotation",
        "TIMER_TABLE",
        "Commit.on_token_loss,",
        "_idle,",
        2,
    ),
    Mutant(
        "no consensus timeout",
        "TIMER_TABLE",
        "Event.CONSENSUS_TIMEOUT: (_idle, _idle, Gather.on_consensus_timeout, _idle, _idle, _idle),",
        "Event.CONSENSUS_TIMEOUT: (_idle,) * 6,",
    ),
    Mutant(
        "token loss on the ring waited for",
        "TIMER_TABLE",
        "Operational.on_token_loss,",
        "_idle,",
        2,
    ),
    Mutant(
        "Joins ignored on a ring",
        "TABLE",
        "Operational.on_join,",
        "_drop,",
    ),
    Mutant(
        "a failed recovery waited for",
        "TIMER_TABLE",
        "Recover.on_token_loss,",
        "_idle,",
        50,
    ),
    Mutant(
        "consensus without agreement",
        "Gathering._agrees",
        "return processor == self._me or (join is not None and self._matches(join))",
        "return processor == self._me or join is not None",
    ),
    Mutant(
        "contents lost on delivery",
        "Output.deliver",
        "message.contents",
        "bytes(len(message.contents))",
    ),
    Mutant(
        "safe told too early",
        "Ordering.visit",
        "output.safe(ring.ring_id, ring.safe_up_to)",
        "output.safe(ring.ring_id, seq)",
    ),
    Mutant(
        "timestamps used before they are stored",
        "TimestampClock.outruns_storage",
        "return self.now + steps >= self._stable + self._interval",
        "return False",
        1,
    ),
    Mutant(
        "the wrong processor expelled",
        "Ordering.blame",
        "return Blame(aru_id, FAILURE_TO_RECEIVE)",
        "return Blame(ring.successor, FAILURE_TO_RECEIVE)",
        32,
    ),
    Mutant(
        "a Commit token that never comes waited for",
        "TIMER_TABLE",
        "Gather.on_token_loss,",
        "_idle,",
        1,
    ),
    Mutant(
        "timeouts never relax on an idle ring",
        "Timeouts.token_left",
        "self._left_us = now_us",
        "self._left_us = UNKNOWN if may_rest else now_us",
        2,
    ),
    Mutant(
        "anybody says that the exchange is over",
        "Recovery.update_flag",
        "if retrans_flg and self._flag_is_mine:",
        "if retrans_flg:",
        19,
    ),
    Mutant(
        "a Commit token of another membership taken",
        "Gather.on_commit_token",
        "members == gathering.candidates",
        "processor.me in members",
        56,
    ),
    Mutant(
        "a Commit token with an old number taken",
        "Gather.on_commit_token",
        "newer = token.ring_id.seq > max(processor.ring_id.seq, gathering.highest_ring_seq())",
        "newer = True",
        35,
    ),
    Mutant(
        "timestamps of messages ignored",
        "Ordering.take_in",
        "self.clock.witness(message.timestamp)",
        "pass",
        14,
    ),
)
"""Noticed in a random run, each at its seed."""


STAGED: tuple[Mutant, ...] = (
    Mutant(
        "a repeated token shown to nobody",
        "TokenHolder.retransmit",
        "self._show_to(self._relay.next())",
        "pass",
    ),
    Mutant(
        "a shown token dropped",
        "TokenHolder._hand_on",
        "output.relay_token(successor_of(token.sender, members), token, data)",
        "pass",
    ),
    Mutant(
        "a dead link found anew in every rotation",
        "Relay.came_round",
        "self.through, self.shown = (self.shown, NO_PROCESSOR)",
        "self.through = self.shown = NO_PROCESSOR",
    ),
    Mutant(
        "a Join said once",
        "TIMER_TABLE",
        "Event.JOIN_TIMEOUT: (_idle, _idle, Gather.broadcast_join, _idle, _idle, _idle),",
        "Event.JOIN_TIMEOUT: (_idle,) * 6,",
    ),
    Mutant(
        "timeouts stretched without bound",
        "Timeouts._stretch",
        "return min(max(100, wanted), self._config.timeout_stretch_max_percent)",
        "return max(100, wanted)",
    ),
    Mutant(
        "rings numbered by the representative alone",
        "Gather._new_commit_token",
        "max(processor.ring_id.seq, processor.future_ring_seq, gathering.highest_ring_seq())",
        "processor.ring_id.seq",
    ),
    Mutant(
        "a Join of the new ring's number ignored",
        "Forming.is_given_up_by",
        "if join.sender not in self.ring.members or join.ring_seq < self.ring.ring_id.seq:",
        "if join.sender not in self.ring.members or join.ring_seq <= self.ring.ring_id.seq:",
    ),
    Mutant(
        "failure to receive never found",
        "Ordering.blame",
        "return Blame(aru_id, FAILURE_TO_RECEIVE)",
        "return None",
    ),
    Mutant(
        "the strongest fails for the weakest",
        "Gathering.fail_the_weakest",
        "weakest = min(",
        "weakest = max(",
    ),
    Mutant(
        "the same membership tried for ever",
        "Gathering.exhausted",
        "return self._attempts >= ATTEMPTS_MAX and",
        "return self._attempts < 0 and",
    ),
    Mutant(
        "a Leave ignored",
        "TABLE",
        "Operational.on_leave, Gather.on_leave, Commit.on_leave, Recover.on_leave,",
        "*(_drop,) * 4,",
    ),
    Mutant(
        "a stale Leave believed",
        "Peers.has_left",
        "stale = leave.ring_id.seq < installed.ring_id.seq",
        "stale = False",
    ),
    Mutant(
        "a lost token never passed again",
        "TokenHolder.retransmit",
        "self.passed is not None",
        "False",
    ),
    Mutant(
        "the token rests before all is safe",
        "Ring.note_idleness",
        "unchanged = seq == aru == self.last_sent_seq == self.last_aru_seen",
        "unchanged = seq == self.last_sent_seq",
    ),
    Mutant(
        "the window ignored",
        "FlowControl.allowance",
        "room = min(self._window - (token.seq - self._last_seq) - others_repeats, config.each_time_packets)",
        "room = config.each_time_packets",
    ),
    Mutant(
        "the outstanding limit ignored",
        "FlowControl.allowance",
        "new_packets = min(room - repeats.packets, outstanding)",
        "new_packets = room - repeats.packets",
    ),
    Mutant(
        "leaves before its messages are safe",
        "Operational._leave_if_done",
        "if ring.safe_up_to >= ring.acknowledges_to:",
        "if ring.acknowledges_to:",
    ),
    Mutant(
        "laggards never expelled",
        "Ordering.blame",
        "return Blame(aru_id, LAGGARD) if lag_us",
        "return None if lag_us",
    ),
    Mutant(
        "a call to wake the ring ignored",
        "TABLE",
        "(_drop, Operational.on_wake, _drop, _drop, _drop, _drop)",
        "(_drop,) * 6",
    ),
    Mutant(
        "any message proves that the token lives",
        "TokenHolder.note_alive",
        "if message.seq > self.ring.last_sent_seq:",
        "if message:",
    ),
    Mutant(
        "a ring of two never broadcasts",
        "Ordering._broadcast",
        "if len(ring.members) > 1:",
        "if len(ring.members) > 2:",
    ),
    Mutant(
        "a leave that never ends",
        "Phase.on_leave_timeout",
        "self.shift.to_left('leave timeout')",
        "pass",
    ),
    Mutant(
        "a Commit token taken from anybody in Gather",
        "Gather.on_commit_token",
        "(token.sender == predecessor_of(processor.me, members))",
        "token.sender",
    ),
    Mutant(
        "a request answered in vain not passed on",
        "Ring.answer",
        "passed_on: list[RetransmissionRequest] = []",
        "passed_on: list[RetransmissionRequest] = []\n    self.answered.clear()\n    self._last_answers = {}",
    ),
    Mutant(
        "readmission not damped",
        "Peers._is_worth_a_ring",
        "if outsiders.fails_often(processor, now_us):",
        "if processor < 0:",
    ),
    Mutant(
        "failure to receive counts rotations only",
        "Ordering.blame",
        "if rounds > config.fail_to_receive_rounds and still_us >= config.token_loss_us:",
        "if rounds > config.fail_to_receive_rounds:",
    ),
    Mutant(
        "failure to receive counts time only",
        "Ordering.blame",
        "if rounds > config.fail_to_receive_rounds and still_us >= config.token_loss_us:",
        "if rounds and still_us >= config.token_loss_us:",
    ),
    Mutant(
        "old messages out of reach dropped in recovery",
        "Recover._take_in_old_message",
        "self.processor.ordering.take_in(self.processor.installed, held)",
        "self.processor.ordering.accept(self.processor.installed, held)",
    ),
    Mutant(
        "stale notices believed",
        "Machine.receive",
        "if isinstance(packet, NOTICES) and (not self.outsiders.is_fresh_notice(packet)):",
        "if packet is None:",
    ),
    Mutant(
        "messages of rings long gone believed",
        "Machine.receive",
        "if event is Event.FOREIGN_MESSAGE and (not self.outsiders.is_fresh_message(packet)):",
        "if event is None:",
    ),
    Mutant(
        "stale Joins taken",
        "Outsiders.is_fresh_join",
        "return self._is_newer(self._joins, join.sender, (join.incarnation, join.counter))",
        "return self._is_newer(self._joins, join.sender, (join.incarnation, join.counter)) or True",
    ),
    Mutant(
        "patience without end",
        "Outsiders._note_failure",
        "until_us = now_us + int(min(wait_us, self._config.readmission_us) * (1 + spread / 4))",
        "until_us = now_us + 1000 * wait_us",
    ),
    Mutant(
        "old-ring messages taken in beside the exchange",
        "TABLE",
        "Operational.on_message, Gather.on_message, Commit.on_message, _drop",
        "Operational.on_message, Gather.on_message, *(Commit.on_message,) * 2",
    ),
    Mutant(
        "promised without having all",
        "Recovery.note_visit",
        "self.received = self.received or my_aru >= self.install_seq",
        "self.received = True",
    ),
    Mutant(
        "a token taken from anybody",
        "TokenHolder.take",
        "if token.sender != ring.predecessor:",
        "if token.sender < 0:",
    ),
    Mutant(
        "installed after one covered round",
        "Recovery.complete",
        "return self._quiet_rounds >= 3 and self._covered_rounds >= 2",
        "return self._quiet_rounds >= 3 and self._covered_rounds >= 1",
    ),
    Mutant(
        "the timestamp not written with the ring's number",
        "Commit.begin",
        "self._ticket = processor.persist_with_clock()",
        "self._ticket = processor.persist()",
    ),
    Mutant(
        "a new life does not clear the record",
        "Outsiders._failures_of",
        "if failures is None or failures.incarnation != incarnation:",
        "if failures is None:",
    ),
    Mutant(
        "a Commit token of the second rotation taken in Gather",
        "Gather.on_commit_token",
        "first_rotation = token.token_seq < len(members)",
        "first_rotation = True",
    ),
    Mutant(
        "those who agreed fail with the silent",
        "Gathering.fail_the_silent",
        "if not self._agrees(q) and self._agreed.get(q) != sets]",
        "if not self._agrees(q)]",
    ),
    Mutant(
        "requests that cannot be met forgotten",
        "Ring.answer",
        "elif request.seq > self.released:",
        "elif request.seq < 0:",
    ),
    Mutant(
        "a leap of the clock not written",
        "TimestampClock.runs_low",
        "covered = self.to_store + (self._interval if self.writing else self._interval // 2)",
        "covered = self._stable + (2 ** 62 if self.writing else self._interval // 2)",
    ),
    Mutant(
        "consensus timeouts run in step",
        "Gather._consensus_us",
        "percent = 100 + int(CONSENSUS_SPREAD_PERCENT * self.processor.draw())",
        "percent = 100",
    ),
    Mutant(
        "old messages rebroadcast by all who have them",
        "Recover._take_in_old_message",
        "self.recovery.queue.pop(held.message.seq, None)",
        "pass",
    ),
    Mutant(
        "messages of the old ring not taken in Gather and Commit",
        "TABLE",
        "Operational.on_message, Gather.on_message, Commit.on_message",
        "Operational.on_message, _drop, _drop",
    ),
    Mutant(
        "a refused Commit token waited for",
        "Commit.on_join",
        "if self._is_refused_by(join):",
        "if join is None:",
    ),
    Mutant(
        "a Commit token waited for that others gave up",
        "Gather.on_join",
        "if self._is_given_up_by(join):",
        "if join is None:",
    ),
)
"""Each noticed in a scenario that is made for it, one of tests/fuzz/staged. Random runs hardly ever notice:
most of these break a bound on time, or on what a fault may cost, and random faults follow each other too
closely for such bounds. The others need a rare order of events."""


BY_HAND: tuple[Mutant, ...] = (
    # A token of another life has an entry of a ring that this life was never on: a life begins with a number
    # above all that were written before, and no ring is installed before its members have written its number.
    # So the recovery has no companions, not even this processor, and raises.
    Mutant(
        "a Commit token of another life taken",
        "Forming.is_current",
        "return complete and members == ring.members and (self.my_entry in token.memb_list)",
        "return complete and members == ring.members",
    ),
    # No fault of the simulator changes what is inside a packet whose sum is right.
    Mutant(
        "a damaged old message counted as received",
        "Recover.on_new_ring_message",
        "if message.recovered and old is None:",
        "if message.recovered and old is None and (message.seq < 0):",
    ),
)
"""Each noticed in a test of its own, in tests/fuzz/test_mutants_by_hand.py: no fault of the simulator makes
the packet that it needs, or it raises an exception."""


UNNOTICED: tuple[Mutant, ...] = ()
"""Breakages that nothing notices yet. Each says what should, or where else it is held."""


HARMLESS: tuple[Mutant, ...] = (
    # Messages name the ring on which they were originated. That is the ring itself as long as there are no
    # gateways, and its number is known from its Commit token.
    Mutant(
        "rings heard of in messages not remembered",
        "Processor.note_ring_heard_of",
        "if ring_id.seq > self.future_ring_seq:",
        "if ring_id.seq < 0:",
    ),
    # Whoever numbers a message on the new ring installed it at a visit of the token before. By the time the
    # token comes back to it, all others have installed the ring too, so none of them is in Recover.
    Mutant(
        "messages delivered before the ring is installed",
        "Recover.on_new_ring_message",
        "self._holder.note_alive(message)",
        "self._holder.note_alive(message)\n    processor.ordering.deliver(self.ring)",
    ),
    # A warning to people. tests/sim/test_attacks.py has a test that it comes.
    Mutant(
        "what differs in settings not told",
        "Peers._compare_settings",
        "self._output.alarm(SettingsDiffer(join.sender, name, theirs, mine))",
        "pass",
    ),
    # Theorem 4.9 allows both the regular configuration and the transitional one that follows it. Theorem 4.10
    # wants the same one at all companions, and so it is: they have the same entries of the Commit token, and
    # from them the same high_ring_delivered.
    Mutant(
        "agreed messages kept for the transitional configuration",
        "Recovery._deliverable_on_old_ring",
        "if message.service is Service.SAFE and message.seq > self.high_ring_delivered:",
        "if message.seq > self.high_ring_delivered:",
    ),
    # What is taken in Commit is complete, of the ring that was agreed to, with this processor's own entry.
    # Such a token is the same whoever shows it: no entry changes after the first rotation. Each member still
    # waits for its own disk, and drops regular tokens until then. In Recover only the representative takes a
    # Commit token. It turns it into a regular token, and `TokenHolder.take` refuses that from anybody else.
    Mutant(
        "a Commit token taken from anybody",
        "Forming.is_current",
        "if token.sender != ring.predecessor:",
        "if token.sender < 0:",
    ),
    # A promise counts only where some member of the failed ring has installed it, and then all of its members
    # have promised. my_fail_set only grows until a ring is installed, so whoever is a companion now was on
    # that ring: all companions have promised, and for the same processors. Decision 0003 keeps promises by
    # name so that safe delivery does not depend on this.
    Mutant(
        "the promise withdrawn as the paper has it",
        "Recovery.__init__",
        "entry.deliver_memb for entry in companions",
        "one.deliver_memb for one in companions if all((other.deliver_memb for other in companions))",
    ),
    # As the one before.
    Mutant(
        "promises of companions ignored",
        "Recovery.__init__",
        "*(entry.deliver_memb for entry in companions)",
        "*(entry.deliver_memb for entry in companions[:1])",
    ),
)
"""Changes that break no promise: each with the argument for it. No seed may give one away."""
