"""What offload gives in one piece means the same as its datagrams; and the calls that only a driver makes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from srp_bench import KINDS, Bench, arrival, join_of, message, plain

from totempole.core.effects import Effect, Reachable, Send
from totempole.core.inputs import Narrowed, Start, Written
from totempole.link import Link
from totempole.segment import Burst, Reassembler
from totempole.segment.header import SEGMENT
from totempole.srp import RingConfig
from totempole.srp.alarms import FormerLife, Impostor
from totempole.srp.commands import Rekey
from totempole.srp.config import SEGMENT_BYTES_LEAST
from totempole.srp.engine import GIVE_WAY_MAX
from totempole.srp.packets import Join, Leave, NullMessage, RegularMessage, Unordered, Wake, name_of
from totempole.srp.stable import first_numbers
from totempole.srp.states import State
from totempole.stack import ProcessorStack, RingSpec, StackSpec, build
from totempole.types import RingId, Service
from totempole.wire.seal import SECRET_BYTES, Key, Keyring

CONFIG = RingConfig(segment_bytes=400)
HEARD = Reachable(2, 0, None, just_now=True)
RING = RingId(4, 1)

Lose = Callable[[int], bool]


class BurstBench(Bench):
    """Datagrams of a transmission that are not lost arrive as bursts, as receive offload joins them."""

    lose: Lose = staticmethod(lambda number: False)
    bursts = True

    def step(self) -> bool:
        if not self.wire:
            return False
        _, to, transmit = self.wire.popleft()
        numbers = self.__dict__.setdefault("numbers", count())
        arrived = [datagram for datagram in transmit.datagrams if not self.lose(next(numbers))]
        if self.bursts:
            for burst in joined(arrived):
                self.feed(to, arrival(burst[:1], burst[1]))
        else:
            self.feed(to, arrival(arrived))
        return True


def joined(datagrams: list[bytes]) -> list[Burst]:
    """As the kernel does it: neighbours of one length, and a shorter one ends the burst."""
    found: list[list[bytes]] = []
    for datagram in datagrams:
        last = found[-1] if found else None
        if last and len(last[0]) == len(last[-1]) >= len(datagram):
            last.append(datagram)
        else:
            found.append([datagram])
    return [Burst(b"".join(pieces), len(pieces[0])) for pieces in found]


def loaded(bursts: bool, lose: Lose) -> Bench:
    bench = BurstBench([1, 2, 3], CONFIG)
    bench.bursts, bench.lose = bursts, staticmethod(lose)  # type: ignore[assignment]
    bench.form()
    for number in range(12):
        service = Service.SAFE if number % 3 == 0 else Service.AGREED
        bench.submit(1 + number % 3, bytes([number]) * (1 + 700 * number), service)
    bench.advance(3_000_000)
    return bench


@pytest.mark.parametrize(
    "lose", [lambda number: False, lambda number: number % 11 == 5], ids=["all", "holes"]
)
def test_a_ring_behaves_alike_with_and_without_bursts(lose: Lose) -> None:
    plain, burst = loaded(False, lose), loaded(True, lose)
    for me in (1, 2, 3):
        assert len(plain.delivered(me)) == 12
        assert sorted(plain.delivered(me)) == sorted(burst.delivered(me))
        assert burst.delivered(me) == burst.delivered(1)


def test_without_loss_every_effect_is_the_same() -> None:
    plain, burst = loaded(False, lambda number: False), loaded(True, lambda number: False)
    assert plain.effects == burst.effects


def fresh() -> ProcessorStack:
    bench = Bench([1], CONFIG)
    bench.start()
    bench.pump()
    return bench.stacks[1]


def partials(stack: ProcessorStack) -> Reassembler:
    """What the link has of packets that are not whole."""
    (link,) = [layer for layer in stack.layers if isinstance(layer, Link)]
    return link._reassembler


def cut(packet: RegularMessage) -> tuple[bytes, ...]:
    bench = Bench([9], CONFIG)
    (burst,) = bench.outside.cut(bench.codec.encode(packet), name_of(packet))
    return burst.datagrams


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1_500)), min_size=1, max_size=4), st.data())
def test_any_burst_is_its_datagrams(packets: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whole packets, pieces, several packets, repeated and damaged ones, in any order."""
    pieces = [
        piece for seq, size in packets for piece in cut(message(seq, 2, ring_id=RING, contents=b"x" * size))
    ]
    chosen = data.draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=12) | st.just(pieces))
    damage = data.draw(st.none() | st.tuples(st.integers(0, len(chosen) - 1), st.integers(0, 60)))
    if damage:
        piece = bytearray(chosen[damage[0]])
        piece[damage[1] % len(piece)] ^= 0x55
        chosen = [*chosen[: damage[0]], bytes(piece), *chosen[damage[0] + 1 :]]
    one, two = fresh(), fresh()
    for burst in joined(chosen):
        effects = two.feed(5, arrival(burst[:1], burst.segment_bytes))
        assert one.feed(5, arrival(burst.datagrams)) == effects
    assert one.ring.dropped == two.ring.dropped
    assert partials(one)._bytes == partials(two)._bytes
    assert partials(one)._partials.keys() == partials(two)._partials.keys()


def test_a_burst_whose_packet_has_another_length_than_what_is_here_is_its_datagrams() -> None:
    """As when two lives of a sender give one number to two messages."""
    short, long = (cut(message(1, 2, ring_id=RING, contents=b"x" * size)) for size in (275, 276))
    one, two = fresh(), fresh()
    for stack in (one, two):
        stack.feed(5, arrival(short[1:]))
    one.feed(5, arrival(long))
    two.feed(5, arrival((b"".join(long),), len(long[0])))
    assert one.ring.dropped == two.ring.dropped == {"segment conflict": 1}
    assert partials(one)._bytes == partials(two)._bytes > 0


@given(st.binary(min_size=1, max_size=600), st.integers(1, 700))
def test_junk_never_raises(junk: bytes, segment_bytes: int) -> None:
    stack = fresh()
    stack.feed(5, arrival((junk,), segment_bytes))
    assert sum(stack.ring.dropped.values()) == -(-len(junk) // segment_bytes)


@pytest.mark.parametrize("segment_bytes", [1, SEGMENT.size, SEGMENT.size + 1])
def test_a_forged_step_of_a_true_packet(segment_bytes: int) -> None:
    stack = fresh()
    burst = b"".join(cut(message(1, 2, contents=b"x" * 1_000)))
    stack.feed(5, arrival((burst,), segment_bytes))
    assert stack.ring.state is not State.LEFT


def test_a_burst_that_the_codec_refuses_keeps_no_true_one_out() -> None:
    stack = fresh()
    true = cut(message(1, 2, ring_id=RING, contents=b"x" * 1_000))
    forged = bytearray(b"".join(true))
    forged[SEGMENT.size] ^= 1  # the packet's own magic
    stack.feed(5, arrival((bytes(forged),), len(true[0])))
    assert sum(stack.ring.dropped.values()) == 1
    said = stack.feed(5, arrival((b"".join(true),), len(true[0])))
    assert sum(stack.ring.dropped.values()) == 1
    assert said, "a message of a foreign ring is a reason to gather"
    assert not partials(stack)._partials


# Segments


def sent_sizes(effects: list[Effect]) -> list[int]:
    return [
        max(map(len, effect.datagrams))
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.packet, RegularMessage)
    ]


def two_of_unequal_paths() -> Bench:
    bench = Bench([1, 2], RingConfig(segment_bytes=1_400))
    bench.feed(2, Narrowed(0, 800))
    bench.form()
    return bench


def sizes_of_a_message(bench: Bench) -> list[int]:
    bench.effects[1].clear()
    bench.submit(1, bytes(10_000))
    bench.advance(1_000_000)
    return sent_sizes(bench.effects[1])


def test_a_ring_cuts_for_the_member_that_takes_least() -> None:
    assert sizes_of_a_message(two_of_unequal_paths()) == [800]


def test_a_path_that_takes_less_is_obeyed_at_once() -> None:
    bench = two_of_unequal_paths()
    bench.feed(1, Narrowed(0, 500))
    assert sizes_of_a_message(bench) == [500]


def test_a_path_that_takes_less_than_before_but_more_than_the_ring_changes_nothing() -> None:
    bench = two_of_unequal_paths()
    bench.feed(1, Narrowed(0, 1_000))
    assert sizes_of_a_message(bench) == [800]


def test_no_path_is_so_narrow_that_nothing_fits() -> None:
    bench = two_of_unequal_paths()
    bench.feed(1, Narrowed(0, 1))
    assert sizes_of_a_message(bench) == [SEGMENT_BYTES_LEAST]
    assert bench.delivered(2)[-1] == bytes(10_000)


# Our own name, and keys


def test_a_join_of_our_own_name_is_an_impostors() -> None:
    bench = Bench([1])
    bench.start()
    bench.pump()
    before = bench[1].state
    effects = bench.hand(1, join_of(1, {1, 2}, incarnation=77, counter=5))
    assert [effect for effect in effects if isinstance(effect, Impostor)] == [Impostor(77)]
    assert not any(isinstance(effect, Send) for effect in effects)
    assert bench[1].state is before


def spoken(bench: Bench) -> list[Send]:
    """What processor 1 has said beside messages and tokens."""
    said = (Join, NullMessage, Leave, Wake)
    return [transmit for transmit in bench.of_kind(1, Send) if isinstance(transmit.packet, said)]


def restarted() -> Bench:
    """Processor 1 in its second life, with a Join and a Null said."""
    bench = Bench([1])
    bench.start()
    bench.restart(1)
    bench.advance(600_000)
    assert {type(transmit.packet) for transmit in spoken(bench)} == {Join, NullMessage}
    return bench


def test_an_echo_of_what_we_say_is_dropped_and_counted() -> None:
    bench = restarted()
    echoes = spoken(bench)
    state = bench[1].state
    for transmit in echoes:
        effects = plain(bench.stacks[1].feed(bench.now_us, arrival(transmit.datagrams)))
        assert not any(isinstance(effect, Impostor | Send) for effect in effects)
    assert bench[1].dropped == {"echo of our own": len(echoes)}
    assert bench[1].state is state


def test_an_echo_of_a_former_life_is_dropped_and_counted() -> None:
    bench = Bench([1])
    bench.start()
    bench.advance(600_000)
    former = spoken(bench)
    bench.restart(1)
    bench.advance(600_000)
    for transmit in former:
        assert Impostor(1) not in plain(bench.stacks[1].feed(bench.now_us, arrival(transmit.datagrams)))
    assert bench[1].dropped == {"echo of our own": len(former)}


def test_in_our_own_life_an_impostor_is_known_by_what_we_never_said() -> None:
    bench = restarted()
    last = max(transmit.packet.counter for transmit in spoken(bench))
    ahead = join_of(1, {1, 2}, incarnation=2, counter=last + 1)
    other = join_of(1, {1, 2}, incarnation=2, counter=last)
    unordered = Unordered(1, 2, last + 1, RING, b"past the order")
    for packet in (ahead, other, NullMessage(1, 2, last + 1, RING), Wake(1, 3, 1, RING), unordered):
        assert Impostor(packet.incarnation) in bench.hand(1, packet)
    assert bench[1].dropped == {"processor number of our own": 5}


def test_what_was_said_too_long_ago_counts_as_an_echo() -> None:
    bench = restarted()
    bench[1]._output.said.clear()
    assert Impostor(2) not in bench.hand(1, join_of(1, {1, 9}, incarnation=2, counter=1))


def test_a_first_life_gives_way_to_its_number_a_few_times_only() -> None:
    former = NullMessage(1, 5, 1, RING)
    for gave_way in range(GIVE_WAY_MAX + 1):
        bench = Bench([])
        bench.disk[1] = first_numbers(10) | {"gave_way": gave_way}
        bench.add(1)
        heard = bench.hand(1, former)
        assert (Impostor(5) in heard) == (gave_way < GIVE_WAY_MAX)
        assert Impostor(12) in bench.hand(1, NullMessage(1, 12, 1, RING))


def test_a_join_of_a_processor_that_was_rolled_back_is_refused_and_told() -> None:
    bench = Bench([1])
    bench.start()
    assert HEARD in bench.hand(1, join_of(2, {2}, incarnation=9, counter=1))
    heard = bench.hand(1, join_of(2, {2}, incarnation=7, counter=50))
    assert FormerLife(2, incarnation=7, latest=9) in heard
    assert HEARD not in heard
    assert bench[1].dropped == {"join of a former life": 1}
    assert HEARD in bench.hand(1, join_of(2, {2}, incarnation=10, counter=1))


def key(number: int) -> Key:
    return Key(number, bytes([number]) * SECRET_BYTES)


def stack_of(me: int, *keys: Key) -> ProcessorStack:
    spec = StackSpec(me, rings=(RingSpec(CONFIG),))
    return build(spec, {}, KINDS, Keyring(keys) if keys else None)


def first_join(stack: ProcessorStack) -> tuple[bytes, ...]:
    effects = stack.feed(0, Start()) + stack.feed(0, Written(1))
    return next(effect.datagrams for effect in effects if isinstance(effect, Send))


def test_new_keys_are_taken_while_running() -> None:
    said = first_join(stack_of(2, key(2)))
    stack = stack_of(1, key(1))
    first_join(stack)
    assert HEARD not in stack.feed(1, arrival(said))
    assert sum(stack.ring.dropped.values()) == 1
    assert stack.feed(2, Rekey(Keyring((key(1), key(2))))) == []
    assert HEARD in stack.feed(3, arrival(said))
    assert sum(stack.ring.dropped.values()) == 1


def test_an_unsealed_processor_hears_no_sealed_one_and_the_other_way_round() -> None:
    sealed, unsealed = stack_of(1, key(1)), stack_of(2)
    said = {1: first_join(sealed), 2: first_join(unsealed)}
    assert HEARD not in sealed.feed(1, arrival(said[2]))
    assert Reachable(1, 0, None, just_now=True) not in unsealed.feed(1, arrival(said[1]))
    assert sum(sealed.ring.dropped.values()) == sum(unsealed.ring.dropped.values()) == 1
