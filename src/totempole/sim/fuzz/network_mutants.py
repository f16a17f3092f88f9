"""Named breakages of the redundant ring: of `rrp`, and of `networks` above it.

`totem fuzz --mutants --networks any --seeds 0:100` hunts them.
"""

from __future__ import annotations

from totempole.sim.fuzz.mutation import Mutant


def _rrp(name: str, where: str, old: str, new: str, seed: int = 0) -> Mutant:
    return Mutant(name, where, old, new, seed, "rrp")


def _networks(name: str, where: str, old: str, new: str, seed: int = 0) -> Mutant:
    return Mutant(name, where, old, new, seed, "networks")


NETWORK_MUTANTS: tuple[Mutant, ...] = (
    # Tokens
    _rrp(
        "the first copy of a token taken",
        "Replicator._is_through",
        "if gate.lost == 0 and (not self.service & ~gate.named):",
        "if gate is not None:",
        4,
    ),
    _rrp(
        "a held token waits for its copies for ever",
        "Replicator._take_token",
        "self._scope.set_timer(Timer.GATE, gate.wait_us(self._ring.token_wait_most_us))",
        "pass",
    ),
    # Routes
    # Health
    _rrp(
        "hellos not counted",
        "Watch._end_round",
        "if not counter or sender not in self._ring.members:",
        "if counter >= 0:",
        1,
    ),
    _rrp(
        "a bad path clear after one round",
        "Path.round",
        "if not self.bad or self._clean < CLEAN_ROUNDS:",
        "if not self.bad:",
        3,
    ),
    # What all agree on
    _networks(
        "rows not told anew in a new configuration",
        "Networks.install",
        "self._told = None",
        "pass",
        2,
    ),
    _networks(
        "one row told, and no other",
        "Networks.deliver",
        "if packet.origin == self._me:",
        "if packet.origin < 0:",
    ),
    _networks(
        "reinstated by each for itself",
        "Networks.expired",
        "self._requests.append(Request(ReportKind.REINSTATE, timer))",
        "self.service._states[timer] = NetworkState.IN_SERVICE",
        1,
    ),
    _networks(
        "who cannot send and who cannot receive mixed up",
        "_part",
        "return _hosts(mute, deaf, len(members))",
        "return _hosts(deaf, mute, len(members))",
    ),
    _networks(
        "reports of others passed over",
        "Service.take_row",
        "self.rows[origin] = row",
        "self.rows.setdefault(origin, row)",
    ),
)
"""Each noticed by a seed."""


NETWORK_STAGED: tuple[Mutant, ...] = (
    _rrp(
        "a copy after the next token counts as lost",
        "TokenGate.settled",
        "if lost and now_us - former.first_us < late_us:",
        "if lost and now_us < former.first_us:",
    ),
    _rrp(
        "counters that never fall",
        "Leak.note",
        "self.level = min(FULL, max(0.0, before + lost - RECOVERY * (1 - lost)))",
        "self.level = min(FULL, before + lost)",
    ),
    _networks(
        "reinstated without probation",
        "Service._judged",
        "return NetworkState.PROBATION if state in OUT else state",
        "return NetworkState.IN_SERVICE if state in OUT else state",
    ),
    _networks(
        "a probation that never grows",
        "Networks._follow",
        "self._relapses[number] = min(self._relapses[number] + 1, RELAPSES_MAX)",
        "pass",
    ),
    _networks(
        "relapses forgotten by those that start anew",
        "Networks._learn_relapses",
        "self._relapses[number] = max(self._relapses[number], count)",
        "pass",
    ),
    _networks(
        "drained networks forgotten with the configuration",
        "Service._begin",
        "if drained >> number & 1:",
        "if drained >> number & 1 and (number < 0):",
    ),
    _networks(
        "a drain that cuts somebody off",
        "Service.drain",
        "if len(cut) == len(rest):",
        "if len(cut) > len(rest):",
    ),
)
"""Each noticed in a scenario that is made for it, one of tests/fuzz/staged."""


NETWORK_BY_HAND: tuple[tuple[Mutant, str], ...] = (
    (
        _rrp(
            "hellos missed on networks that their sender lacks",
            "Watch._end_round",
            "common = speaker.ways.networks if speaker.ways else 0",
            "common = len(self._link)",
        ),
        "test_hellos_count_for_the_networks_that_both_have",
    ),
    (
        _rrp(
            "a token waits for a network that is removed",
            "TokenGate.forget",
            "self.named &= ~(1 << network)",
            "pass",
        ),
        "test_a_token_does_not_wait_for_its_copy_on_a_network_that_is_removed",
    ),
    (
        _rrp(
            "losses charged to the networks that bring",
            "Accounts._charge",
            "due[1] += min(sent, arrived[network])",
            "due[1] += min(sent, arrived[network - 1])",
        ),
        "test_p4_a_network_that_brings_no_messages_is_found_by_what_their_senders_say",
    ),
    (
        _rrp(
            "a recorded hello believed",
            "Watch.take_hello",
            "if hello.counter <= heard[long]:",
            "if hello.counter < 0:",
        ),
        "test_a_replayed_hello_moves_no_address",
    ),
    (
        _rrp(
            "Joins and Commit tokens on one network",
            "Replicator._everyone",
            "return networks_in(self._all & ~self.drained if holds_data else self._all)",
            "return networks_in(self._all & ~self.drained if holds_data else 1)",
        ),
        "test_what_is_sent_again_and_what_forms_a_ring_goes_on_every_network",
    ),
    (
        _rrp(
            "the last byte of a striped message never sent",
            "_stripes",
            "bounds.append((total * sum_ // whole + unit // 2) // unit * unit)",
            "bounds.append(((total - 1) * sum_ // whole + unit // 2) // unit * unit)",
        ),
        "test_stripes_carry_every_byte_on_as_many_networks_as_there_are_copies",
    ),
    (
        _rrp(
            "a path that goes from bad to dead not told",
            "Path.note",
            "if not is_too_many and (not is_end):",
            "if not is_too_many:",
        ),
        "test_a_network_that_lost_some_large_datagrams_and_then_all_is_dead_for_them",
    ),
    (
        _rrp(
            "a token passed again where it went first",
            "Replicator.repeat",
            "networks = tuple((self._networks[place] for place in self._everyone(role)))",
            "networks = sent[0].networks",
        ),
        "test_a_token_passed_again_goes_on_every_network",
    ),
    (
        _rrp(
            "messages sent again in service only",
            "Replicator._everyone",
            "return networks_in(self._all & ~self.drained if holds_data else self._all)",
            "return networks_in(self.service if holds_data else self._all)",
        ),
        "test_what_is_sent_again_and_what_forms_a_ring_goes_on_every_network",
    ),
    (
        _rrp(
            "what is sent again on drained networks too",
            "Replicator._everyone",
            "return networks_in(self._all & ~self.drained if holds_data else self._all)",
            "return networks_in(self._all)",
        ),
        "test_a_drained_network_carries_no_data",
    ),
    (
        _rrp(
            "tokens ordered without their ring",
            "Replicator._take_token",
            "key = (token.ring_id, token.token_seq)",
            "key = (0, token.token_seq)",
        ),
        "test_tokens_of_one_number_on_two_rings_are_two",
    ),
    (
        _rrp(
            "a token of one's own held",
            "Replicator._take_token",
            "if token.sender == self._me:",
            "if token.sender < 0:",
        ),
        "test_a_token_of_one_alone_passes_by",
    ),
    (
        _rrp(
            "the timer started anew by each copy",
            "Replicator._take_token",
            "gate.copy(place, self._io.now_us)",
            "gate.copy(place, self._io.now_us)\n        self._scope.set_timer(Timer.GATE, 1000)",
        ),
        "test_p3_the_timer_is_not_restarted_by_further_copies",
    ),
    (
        _rrp(
            "the skew between copies not learned",
            "TokenGate.copy",
            "self._learn(network, self._number, now_us - self._began_us[-1])",
            "pass",
        ),
        "test_p3_the_timer_follows_the_skew_and_stays_below_what_the_ring_bears",
    ),
    (
        _rrp(
            "departed members monitored",
            "Watch.find",
            "for member in sorted(self._ring.members):",
            "for member in sorted(self._speakers):",
        ),
        "test_departed_members_are_not_monitored",
    ),
    (
        _rrp(
            "a network back in service makes up for its absence",
            "Spread.returned",
            "self._due[number] = max(self._due)",
            "pass",
        ),
        "test_a_network_that_is_back_in_service_does_not_make_up_for_its_absence",
    ),
)
"""Each noticed in a test of that name in tests/rrp: they cost time or packets, or need a rare order of
events."""
