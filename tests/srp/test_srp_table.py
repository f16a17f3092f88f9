"""Every cell of the machine's tables is decided, and decided as figures 4.4 to 4.13 of Totem say."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from srp_bench import alone_in, join_of, message

from totempole.core.effects import Send, Write
from totempole.core.order import Deliver, InstallConfiguration
from totempole.srp.commit import Commit
from totempole.srp.gather import Gather
from totempole.srp.machine import EVENT_OF_PACKET, OWN_TABLE, TABLE, TIMER_TABLE
from totempole.srp.operational import Operational
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    RetransmissionRequest,
    Unordered,
    Wake,
)
from totempole.srp.phase import Left, Phase, Starting
from totempole.srp.recover import Recover
from totempole.srp.states import EVENT_OF_TIMER, Event, State, Timer
from totempole.types import RingId

FOREIGN = RingId(400, 9)
EVERYTHING = {**TABLE, **TIMER_TABLE, **OWN_TABLE}
COLUMNS = (Starting, Operational, Gather, Commit, Recover, Left)


@pytest.mark.parametrize(
    ("event", "state"), list(product(Event, State)), ids=lambda value: value.name.lower()
)
def test_every_cell_is_decided(event: Event, state: State) -> None:
    row = EVERYTHING[event]
    assert callable(row[state])
    assert len(row) == len(State)


@pytest.mark.parametrize(
    ("event", "state"), list(product(Event, State)), ids=lambda value: value.name.lower()
)
def test_every_cell_is_a_method_of_its_column(event: Event, state: State) -> None:
    method = EVERYTHING[event][state]
    assert getattr(COLUMNS[state], method.__name__) is method


def test_every_method_for_an_event_is_in_a_table() -> None:
    cells = {cell for row in EVERYTHING.values() for cell in row}
    for column in COLUMNS:
        methods = {method for name, method in vars(column).items() if name.startswith("on_")}
        assert methods <= cells, column


def test_each_event_is_in_one_table_only() -> None:
    assert [event for table in (TABLE, TIMER_TABLE, OWN_TABLE) for event in table] == list(Event)


def test_states_are_columns_in_order() -> None:
    assert [int(state) for state in State] == list(range(len(State)))
    assert tuple(column.state for column in COLUMNS) == tuple(State)


def test_every_timer_and_every_packet_is_an_event() -> None:
    assert set(EVENT_OF_TIMER) == set(Timer)
    assert set(EVENT_OF_TIMER.values()) == set(TIMER_TABLE)
    assert set(EVENT_OF_PACKET) | {RegularMessage} == set(get_args(Packet))


ALL = set(State)
ACTIVE_IN = {
    # event: the states in which it does something, and where the paper says so
    Event.REGULAR_TOKEN: {State.OPERATIONAL, State.RECOVER},  # figures 4.1, 4.12; discard_regular_token else
    Event.REGULAR_MESSAGE: {State.OPERATIONAL, State.GATHER, State.COMMIT},  # figures 4.2, 4.6, 4.10
    Event.NEW_RING_MESSAGE: {State.RECOVER},  # figure 4.12
    Event.FOREIGN_MESSAGE: {State.OPERATIONAL, State.GATHER},  # figures 4.4, 4.6; discarded in 4.10, 4.12
    Event.JOIN: {State.OPERATIONAL, State.GATHER, State.COMMIT, State.RECOVER},  # 4.4, 4.6, 4.10, 4.12
    Event.COMMIT_TOKEN: {State.GATHER, State.COMMIT, State.RECOVER},  # 4.7, 4.10, 4.13; discarded in 4.4
    Event.TOKEN_RETRANSMISSION_TIMEOUT: {State.OPERATIONAL, State.COMMIT, State.RECOVER},  # §4.1, 4.9, 4.11
    Event.TOKEN_LOSS_TIMEOUT: {State.OPERATIONAL, State.GATHER, State.COMMIT, State.RECOVER},  # 4.4 to 4.13
    Event.JOIN_TIMEOUT: {State.GATHER},  # figure 4.7
    Event.CONSENSUS_TIMEOUT: {State.GATHER},  # figure 4.7
}


@pytest.mark.parametrize("event", ACTIVE_IN, ids=lambda event: event.name.lower())
def test_an_event_acts_in_the_states_where_the_figures_say_so(event: Event) -> None:
    nothing = (Phase.drop, Phase.idle)
    row = EVERYTHING[event]
    assert {state for state in State if row[state] not in nothing} == ACTIVE_IN[event]


def _strange_packets(ring_id: RingId) -> list[Packet]:
    """One of each kind, from processor 2, none of which fits the ring it names."""
    entries = tuple(CommitEntry(me, RingId(2, 9), 7, 7, (), filled=True) for me in (1, 2))
    return [
        RegularToken(2, 1, ring_id, 10**6, 3, 1, 2, rtr=(RetransmissionRequest(2, ((0, 5),)),)),
        message(3, sender=2, ring_id=ring_id),
        message(1, sender=2, ring_id=ring_id, recovered=True, contents=b"no packet at all"),
        join_of(2, {1, 2, 3}, {3}, counter=7, ring_seq=ring_id.seq),
        join_of(2, {1, 2}, {1}, counter=8, ring_seq=ring_id.seq),
        CommitToken(2, 1, 1, RingId(ring_id.seq, 1), 10**6, 5, 1, entries),
        CommitToken(2, 1, 1, RingId(ring_id.seq + 4, 1), 1, 5, 1, entries),
        NullMessage(2, 1, 1, ring_id),
        Leave(2, 1, 1, ring_id),
        Wake(2, 1, 1, ring_id),
        Unordered(2, 1, 1, ring_id, b"past the order"),
    ]


@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("of", ["the ring it is on", "another ring"])
def test_no_packet_raises_in_any_state(state: State, number: int, of: str) -> None:
    bench = alone_in(state)
    ring_id = bench[1].machine.ring_id if of == "the ring it is on" else FOREIGN
    bench.hand(1, _strange_packets(ring_id)[number])
    bench.hand(1, _strange_packets(ring_id)[number])


@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
@pytest.mark.parametrize("timer", Timer, ids=lambda timer: timer.name.lower())
def test_no_timer_raises_in_any_state(state: State, timer: Timer) -> None:
    bench = alone_in(state)
    bench.expire(1, timer)
    bench.expire(1, timer)


@pytest.mark.parametrize("number", range(11))
def test_nothing_is_said_before_stable_storage_has_the_first_ring_number(number: int) -> None:
    """Totem §4.2: the number is on stable storage before it is used; the incarnation too."""
    bench = alone_in(State.STARTING)
    assert [type(effect) for effect in bench.effects[1]] == [Write]
    assert bench.hand(1, _strange_packets(FOREIGN)[number])[1:] == []
    assert not bench.of_kind(1, Send)


@pytest.mark.parametrize("number", range(11))
def test_one_that_has_left_neither_speaks_nor_delivers(number: int) -> None:
    bench = alone_in(State.LEFT)
    bench.forget()
    for of in (bench[1].machine.ring_id, FOREIGN):
        bench.hand(1, _strange_packets(of)[number])
    for timer in Timer:
        bench.expire(1, timer)
    spoken = (Send, Deliver, InstallConfiguration)
    assert not [effect for effect in bench.effects[1] if isinstance(effect, spoken)]
    assert bench.timers[1] == {}
