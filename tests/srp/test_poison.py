"""No packet that the codec accepts raises inside the protocol, whatever its numbers; and none poisons them.

The packets are hostile but sound: a key holder's, or those of a processor whose memory flipped a bit before
the check was computed.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from srp_bench import Bench, alone_in

from sweeps import examples
from totempole.srp.packets import (
    CommitEntry,
    CommitToken,
    Join,
    Leave,
    NullMessage,
    Packet,
    RegularMessage,
    RegularToken,
    RetransmissionRequest,
    Unordered,
    Wake,
)
from totempole.srp.reach import CEILING, RING_SEQ_REACH, SEQ_REACH, TIMESTAMP_REACH, leap
from totempole.srp.soundness import commit_is_sound, join_is_sound, message_is_sound, token_is_sound
from totempole.srp.stable import SECONDS_MAX, first_numbers
from totempole.srp.states import State, Timer
from totempole.types import RingId, Service
from totempole.wire.layout import NUMBER_MAX, PROCESSORS_MAX

LAST = NUMBER_MAX - 1
EDGES = (0, 1, 3, 4, 5, 8, 12, 16, SEQ_REACH, RING_SEQ_REACH, TIMESTAMP_REACH, CEILING, CEILING + 1, LAST)
SEARCH = settings(max_examples=examples(60), phases=(Phase.explicit, Phase.reuse, Phase.generate))
"""Shrinking would take minutes, and the packets drawn are few."""

numbers = st.sampled_from(EDGES) | st.integers(0, LAST)
members = st.integers(1, 4)
crowds = st.frozensets(members)


def rings(bench: Bench) -> Any:
    machine = bench[1].machine
    known = [machine.installed.ring_id, machine.current.ring.ring_id, machine.ring_id]
    near = [RingId(ring_id.seq + step, 1) for ring_id in known for step in (0, 1, 2, 4)]
    return st.sampled_from(known + near) | st.builds(RingId, numbers, members)


@st.composite
def sound_messages(draw: Any, bench: Bench, senders: Any = members, deep: bool = True) -> Packet:
    contents: bytes | memoryview = draw(st.binary(max_size=8))
    recovered = deep and draw(st.booleans())
    if recovered:
        contents = bench.codec.encode(draw(sound_messages(bench, deep=False)))
    sender = draw(senders)
    return RegularMessage(
        sender=sender,
        incarnation=draw(st.integers(0, 3)),
        ring_id=draw(rings(bench)),
        seq=draw(numbers),
        number=draw(numbers),
        service=draw(st.sampled_from(Service)),
        timestamp=draw(numbers),
        src_sender=sender,
        src_ring_id=draw(rings(bench)),
        groups=(),
        after_token=draw(st.booleans()),
        recovered=recovered,
        contents=contents,
    )


@st.composite
def sound_tokens(draw: Any, bench: Bench) -> Packet:
    seq = draw(numbers)
    asked = draw(st.sets(st.integers(1, seq), max_size=3)) if seq else ()
    return RegularToken(
        sender=draw(members),
        incarnation=1,
        ring_id=draw(rings(bench)),
        token_seq=draw(numbers),
        seq=seq,
        aru=min(seq, draw(numbers)),
        aru_id=draw(st.integers(0, 4)),
        timestamp=draw(numbers),
        retrans_flg=draw(st.booleans()),
        retrans_round=draw(numbers),
        bytes_round=draw(numbers),
        backlog=draw(numbers),
        block_seq=draw(numbers),
        rtr=tuple(RetransmissionRequest(place) for place in sorted(asked)),
    )


@st.composite
def sound_joins(draw: Any, bench: Bench) -> Packet:
    sender = draw(st.integers(2, 4))
    failed = draw(crowds) - {sender}
    considered = draw(crowds) | failed | {sender}
    if draw(st.booleans()):
        considered |= frozenset(range(100, 1_100))
    return Join(
        sender=sender,
        incarnation=draw(st.integers(1, 3)),
        counter=draw(numbers),
        ring_seq=draw(numbers),
        future_ring_seq=draw(numbers),
        proc_set=considered,
        fail_set=failed,
        rotation_count=draw(numbers),
    )


@st.composite
def sound_commit_tokens(draw: Any, bench: Bench) -> Packet:
    names = sorted(draw(crowds) | {1, 2})
    ring_id = draw(rings(bench))
    entries = []
    for name in names:
        aru = draw(numbers)
        old = draw(rings(bench))
        promised = draw(st.sampled_from([(), (name,), tuple(names)]))
        entries.append(CommitEntry(name, old, aru, min(aru, draw(numbers)), promised, False, True))
    return CommitToken(
        draw(st.sampled_from(names)),
        1,
        draw(numbers),
        RingId(ring_id.seq, 1),
        draw(st.sampled_from([0, 1, 2, 3, 5]) | numbers),
        draw(numbers),
        0,
        tuple(entries),
    )


def sound_packets(bench: Bench) -> Any:
    words = (members, st.integers(0, 3), numbers, rings(bench))
    contents = st.binary(min_size=1, max_size=9)
    notices = [
        st.builds(Leave, *words),
        st.builds(Wake, *words),
        st.builds(NullMessage, *words, members),
        st.builds(Unordered, *words, contents),
    ]
    return st.one_of(
        sound_messages(bench).filter(message_is_sound),
        sound_tokens(bench).filter(token_is_sound),
        sound_joins(bench).filter(join_is_sound),
        sound_commit_tokens(bench).filter(commit_is_sound),
        *notices,
    )


@pytest.mark.search
@pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())
@SEARCH
@given(data=st.data())
def test_no_sound_packet_raises_in_any_state(state: State, data: Any) -> None:
    bench = alone_in(state)
    torment(bench, data)


@SEARCH
@given(data=st.data())
def test_no_sound_packet_raises_on_a_ring_of_two(data: Any) -> None:
    bench = Bench([1, 2])
    bench.form()
    bench.submit(1, b"word")
    bench.rotate(data.draw(st.integers(0, 6)))
    torment(bench, data)


@pytest.mark.search
@SEARCH
@given(data=st.data())
def test_no_sound_packet_raises_while_a_ring_of_two_forms(data: Any) -> None:
    bench = Bench([1, 2])
    bench.start()
    bench.rotate(data.draw(st.integers(0, 40)))
    torment(bench, data)


def torment(bench: Bench, data: Any) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        bench.hand(1, data.draw(sound_packets(bench)))
        bench.submit(1, b"more")
        bench.rotate(5)
    if data.draw(st.booleans()):
        bench.expire(1, data.draw(st.sampled_from(Timer)))
    bench.write_out(1)
    bench.rotate(200)
    bench.expire(1, Timer.TOKEN_LOSS)
    bench.rotate(200)
    assert max(bench.disk[1].values(), default=0) < NUMBER_MAX


# The packets that once killed whoever heard them


def pair() -> Bench:
    bench = Bench([1, 2])
    bench.form()
    return bench


def poison(bench: Bench) -> dict[str, Packet]:
    ring = bench[1].machine.installed
    ring_id = ring.ring_id
    word = RegularMessage(
        2, 1, ring_id, ring.my_aru + 1, 1, Service.AGREED, 1, 2, ring_id, (), False, False, b"word"
    )
    token = RegularToken(2, 1, ring_id, ring.my_token_seq, ring.my_aru, ring.my_aru)
    return {
        "ring number of a Join": Join(2, 1, 90, LAST, 0, frozenset({1, 2}), frozenset(), 0),
        "future ring number of a Join": Join(2, 1, 90, 0, LAST, frozenset({1, 2}), frozenset(), 0),
        "timestamp of a message": word._replace(timestamp=LAST),
        "source ring of a message": word._replace(src_ring_id=RingId(LAST, 2)),
        "timestamp of a token": token._replace(timestamp=LAST),
        "token_seq": token._replace(token_seq=LAST),
        "seq of a token": token._replace(seq=LAST),
        "sums of a token": token._replace(bytes_round=LAST),
    }


@pytest.mark.parametrize("name", poison(pair()))
def test_a_poisoned_packet_is_dropped_and_counted_and_the_ring_goes_on(name: str) -> None:
    bench = pair()
    bench.hand(1, poison(bench)[name])
    assert bench[1].drops == 1
    assert "out of reach" in next(iter(bench[1].dropped))
    bench.submit(1, b"on")
    bench.submit(2, b"we go")
    bench.advance(100_000)
    assert set(bench.delivered(1)) == set(bench.delivered(2)) == {b"on", b"we go"}
    assert max(bench.disk[1].values()) < 2**20
    bench.restart(1)
    bench.advance(5_000_000, until=lambda: all(bench.ring_of(me) == (1, 2) for me in (1, 2)))
    assert bench.ring_of(1) == (1, 2)


def test_a_token_that_is_near_is_within_reach() -> None:
    """The quick way to take a token takes none that the full check refuses."""
    machine = pair()[1].machine
    ring = machine.installed
    seq = max(ring.my_aru, ring.last_sent_seq)
    now = machine.own_numbers(NullMessage(2, 1, 1, ring.ring_id, 2)).timestamp
    usual = RegularToken(2, 1, ring.ring_id, ring.my_token_seq, seq, seq, 0, now)
    assert machine.is_near_token(usual)
    starts = {"token_seq": ring.my_token_seq, "seq": seq, "timestamp": now}
    sums = ("retrans_round", "bytes_round", "backlog", "block_seq")
    judged = set()
    for name in (*starts, *sums):
        start = starts.get(name, 0)
        steps = (-1, 0, 1, 2 * PROCESSORS_MAX, SEQ_REACH, TIMESTAMP_REACH, CEILING - start)
        for value in (start + step + more for step in steps for more in (-1, 0, 1)):
            token = usual._replace(**{name: max(0, value)})
            refused = bool(leap(token, 100, machine.own_numbers(token)))
            near = machine.is_near_token(token)
            assert not (near and refused), (name, value)
            judged.add((near, refused))
    assert judged >= {(True, False), (False, True)}


def test_a_recovered_message_is_judged_by_what_is_inside() -> None:
    bench = pair()
    inner = poison(bench)["source ring of a message"]
    assert bench[1]._decode_old(bench.codec.encode(inner)) is None
    assert bench[1].dropped["ring number out of reach"] == 1


def test_a_commit_token_without_room_for_ones_own_promise_is_refused() -> None:
    bench = pair()
    names = tuple(range(1, 1_025))
    entries = tuple(CommitEntry(me, RingId(2, 1), 0, 0, names, filled=True) for me in range(1, 127))
    token = CommitToken(2, 1, 1, RingId(400, 1), 0, 0, 0, entries)
    bench.hand(1, token)
    assert bench[1].dropped["commit token too long"] == 1


@pytest.mark.parametrize("seconds", [1, SECONDS_MAX - 1])
def test_a_first_life_by_the_clock_meets_one_with_small_numbers(seconds: int) -> None:
    """In both directions: each takes the higher numbers over."""
    bench = Bench([])
    bench.disk[2] = first_numbers(seconds)
    bench.add(1)
    bench.add(2)
    bench.form()
    bench.submit(1, b"word")
    bench.advance(100_000)
    assert bench.delivered(2) == [b"word"]
    assert not bench[1].drops
    assert not bench[2].drops
    assert bench[1].machine.ring_id.seq > seconds * 256


def test_at_the_ceiling_nothing_raises_and_no_ring_forms() -> None:
    bench = Bench([])
    for me in (1, 2):
        bench.disk[me] = {"incarnation": 1, "ring_seq": CEILING, "future_ring_seq": 0, "timestamp": CEILING}
        bench.add(me)
    bench.start()
    bench.submit(1, b"word")
    bench.advance(2_000_000)
    assert bench.delivered(1) == []
    assert bench[1].dropped["ring number out of reach"]
    assert max(bench.disk[1].values()) < NUMBER_MAX
