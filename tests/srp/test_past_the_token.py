"""What a ring does for those who need not wait for its token: messages without a place, and messages that are
sent while the token rests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from srp_bench import Bench, alone_in

from totempole.core.effects import Send
from totempole.srp import RingConfig, SingleRing
from totempole.srp.operational import AT_REST_BYTES, AT_REST_PACKETS
from totempole.srp.packets import RegularMessage, RegularToken, Unordered, Wake
from totempole.srp.states import State, Timer
from totempole.types import RingId, RingKind, Service


def act(bench: Bench, me: int, do: Callable[[SingleRing], object]) -> list[type]:
    """What a layer above asks for. The kinds of the packets that leave."""
    do(bench[me])
    effects = bench.stacks[me]._io.take()
    bench.do(me, effects)
    return [type(effect.packet) for effect in effects if isinstance(effect, Send)]


def formed(config: RingConfig | None = None) -> Bench:
    """Three on a ring whose token rests with the first."""
    bench = Bench([1, 2, 3], config)
    bench.form()
    assert holder_of(bench).held is not None
    bench.forget()
    return bench


def holder_of(bench: Bench, me: int = 1) -> Any:
    return bench[me].machine.current.holder  # type: ignore[attr-defined]


# Without a place


def heard(bench: Bench) -> list[tuple[int, int, bytes]]:
    """Receiver, sender and contents of what comes without a place from now on."""
    told: list[tuple[int, int, bytes]] = []

    def listen(me: int) -> None:
        above: Any = bench[me]._output.above
        above.deliver_unordered = lambda sender, contents: told.append((me, sender, contents))

    for me in bench.stacks:
        listen(me)
    return told


def test_it_comes_to_the_others_and_leaves_the_token_where_it_is() -> None:
    bench = formed()
    told = heard(bench)
    assert act(bench, 2, lambda ring: ring.send_unordered(b"at once")) == [Unordered]
    bench.pump()
    assert told == [(1, 2, b"at once"), (3, 2, b"at once")]
    assert holder_of(bench).held is not None


def test_a_call_for_the_token_that_it_overtakes_counts() -> None:
    """It was dropped as an old notice, and the token rested on."""
    bench = formed()
    told = heard(bench)
    assert Wake in act(bench, 2, lambda ring: ring.submit(b"x", Service.AGREED))
    assert act(bench, 2, lambda ring: ring.send_unordered(b"at once")) == [Unordered]
    bench.wire = deque(sorted(bench.wire, key=lambda sent: type(sent[2].packet) is Wake))
    bench.pump()
    assert told == [(1, 2, b"at once"), (3, 2, b"at once")]
    assert bench.delivered(1) == [b"x"]


def test_it_is_said_only_on_a_ring_with_others() -> None:
    for state in State:
        assert act(alone_in(state), 1, lambda ring: ring.send_unordered(b"nobody hears")) == []


def test_recordings_and_strangers_are_not_passed_up() -> None:
    bench = formed()
    told = heard(bench)
    act(bench, 2, lambda ring: ring.send_unordered(b"said once"))
    (said,) = [t.packet for t in bench.of_kind(2, Send) if type(t.packet) is Unordered]
    bench.pump()
    del told[:]
    here = said.ring_id
    later = said._replace(counter=said.counter + 100)
    for packet in (
        said,
        said._replace(contents=b"another word in its place"),
        said._replace(incarnation=0, counter=10**6),
        later._replace(ring_id=RingId(here.seq + 4, here.representative)),
        later._replace(sender=9),
    ):
        bench.hand(1, packet)
    assert told == []
    bench.hand(1, later._replace(counter=later.counter + 1))
    assert len(told) == 1


def test_it_does_not_stand_for_a_null() -> None:
    """Other rings learn from Nulls that there is somebody, and pass over what has no place."""
    bench = formed()
    before = bench[2]._output.last_multicast_us
    bench.now_us += 1_000
    act(bench, 2, lambda ring: ring.send_unordered(b"at once"))
    assert bench[2]._output.last_multicast_us == before


# While the token rests


def send(bench: Bench, payload: bytes = b"at rest", me: int = 1, **how: Any) -> list[type]:
    how = {"service": Service.AGREED, "at_rest": True, **how}
    return act(bench, me, lambda ring: ring.submit(payload, **how))


def test_a_message_is_delivered_by_all_and_the_token_rests_on() -> None:
    bench = formed()
    for number in range(3):
        assert send(bench, b"%d" % number) == [RegularMessage]
    bench.pump()
    for me in bench.stacks:
        assert bench.delivered(me) == [b"0", b"1", b"2"]
    held = holder_of(bench).held
    assert held is not None
    assert held.seq == held.aru + 3


def test_it_goes_round_when_its_time_is_over_and_all_is_safe_then() -> None:
    bench = formed()
    send(bench)
    bench.pump()
    assert bench[1].machine.installed.safe_up_to == 0
    bench.expire(1, Timer.HOLD)
    bench.pump()
    assert [bench[me].machine.installed.safe_up_to for me in bench.stacks] == [1, 1, 1]


def test_who_missed_it_gets_it_when_the_token_comes() -> None:
    bench = formed()
    bench.lost = lambda source, to, packet: to == 3 and type(packet) is RegularMessage
    send(bench)
    bench.pump()
    assert bench.delivered(3) == []
    bench.lost = lambda source, to, packet: False
    bench.expire(1, Timer.HOLD)
    bench.pump()
    assert bench.delivered(3) == [b"at rest"]


@pytest.mark.parametrize(
    "how",
    [{"at_rest": False}, {"service": Service.SAFE}, {"payload": bytes(AT_REST_BYTES + 1)}],
    ids=["not asked for", "safe", "large"],
)
def test_other_messages_take_the_token_along(how: dict[str, Any]) -> None:
    bench = formed()
    assert RegularToken in send(bench, **how)


def test_only_so_many_leave_before_the_token_does() -> None:
    bench = formed()
    for _ in range(AT_REST_PACKETS):
        assert send(bench) == [RegularMessage]
    assert send(bench) == [RegularMessage, RegularToken]
    bench.pump()
    assert send(bench) == [RegularMessage], "it rests again, and all had what came before"


def test_only_so_much_leaves_before_the_token_does() -> None:
    bench = formed()
    assert RegularToken not in send(bench, bytes(AT_REST_BYTES - 1))
    assert RegularToken in send(bench, bytes(2))


def test_the_accelerated_ring_passes_its_token_on() -> None:
    bench = formed(RingConfig(ring_kind=RingKind.ACCELERATED))
    assert RegularToken in send(bench)


def test_who_waits_for_the_token_wakes_it() -> None:
    bench = formed()
    send(bench, b"first")
    send(bench, b"second", me=2)
    bench.pump()
    for me in bench.stacks:
        assert bench.delivered(me) == [b"first", b"second"]


def test_the_end_of_its_holder_loses_nothing_that_one_of_the_others_has() -> None:
    bench = formed()
    bench.lost = lambda source, to, packet: to == 3 and type(packet) is RegularMessage
    send(bench)
    bench.pump()
    assert (bench.delivered(2), bench.delivered(3)) == ([b"at rest"], [])
    bench.lost = lambda source, to, packet: 1 in (source, to)
    bench.advance(2_000_000, until=lambda: bench.ring_of(2) == bench.ring_of(3) == (2, 3))
    assert (bench.delivered(2), bench.delivered(3)) == ([b"at rest"], [b"at rest"])


def test_a_timestamp_that_storage_does_not_cover_waits_for_it() -> None:
    bench = formed(RingConfig(timestamp_interval=100, each_time_packets=10, window_packets=10))
    bench.disk_stands_still = True
    sent = [send(bench) for _ in range(200)]
    assert [] in sent, "one waits for the disk"
    bench.disk_stands_still = False
    bench.write_out(1)
    bench.pump()
    assert len(bench.delivered(3)) == 200
