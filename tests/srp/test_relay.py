"""Tokens by way of another member, packet by packet. Whole rings are in tests/sim/test_attacks.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from srp_bench import Bench

from totempole.core.effects import Effect, Role, Send
from totempole.srp.alarms import DeadLink
from totempole.srp.packets import RegularToken
from totempole.srp.relay import CERTAIN_ROTATIONS
from totempole.srp.states import Timer


def tokens(effects: Iterable[Effect]) -> list[tuple[int | None, int]]:
    """To whom tokens go, and whose they are."""
    sends = [effect for effect in effects if isinstance(effect, Send)]
    return [(send.to, send.packet.sender) for send in sends if isinstance(send.packet, RegularToken)]


def formed(*processors: int) -> Bench:
    """A ring whose token rests with the first."""
    bench = Bench(processors)
    bench.form()
    bench.forget()
    return bench


def holder_of(bench: Bench, me: int) -> Any:
    return bench[me].machine.current.holder  # type: ignore[attr-defined]


def passed_in_vain(*processors: int) -> tuple[Bench, RegularToken]:
    """The first has passed its token, and the successor has not got it."""
    bench = formed(*processors)
    bench.lost = lambda source, to, packet: isinstance(packet, RegularToken)
    bench.submit(1, b"x")
    bench.pump()
    bench.lost = lambda source, to, packet: False
    (token,) = [send.packet for send in holder_of(bench, 1).passed]
    assert isinstance(token, RegularToken)
    return bench, token


def test_a_token_that_is_passed_a_third_time_is_shown_to_each_of_the_others_in_turn() -> None:
    bench, _ = passed_in_vain(1, 2, 3, 4)
    bench.lost = lambda source, to, packet: isinstance(packet, RegularToken)
    assert tokens(bench.expire(1, Timer.TOKEN_RETRANSMISSION)) == [(2, 1)]
    shown = [tokens(bench.expire(1, Timer.TOKEN_RETRANSMISSION)) for _ in range(4)]
    assert [first for first, _ in shown] == [(2, 1)] * 4
    assert [second for _, second in shown] == [(4, 1), (3, 1), (4, 1), (3, 1)]


def test_whoever_is_shown_a_token_hands_it_on_and_does_not_take_it() -> None:
    bench, token = passed_in_vain(1, 2, 3, 4)
    before = bench[4].machine.current.ring.my_token_seq
    (send,) = [effect for effect in bench.hand(4, token) if isinstance(effect, Send)]
    assert (send.to, send.packet, send.role) == (2, token, Role.TOKEN_AGAIN)
    assert bench[4].machine.current.ring.my_token_seq == before
    bench.pump()
    assert bench[2].machine.current.ring.my_token_seq > token.token_seq


@pytest.mark.parametrize("change", [{"sender": 9}, {"token_seq": 0}])
def test_a_strangers_or_an_old_token_is_not_handed_on(change: dict[str, int]) -> None:
    bench, token = passed_in_vain(1, 2, 3, 4)
    assert tokens(bench.hand(4, token._replace(**change))) == []


def test_what_comes_twice_is_sent_back() -> None:
    bench, token = passed_in_vain(1, 2, 3)
    bench.lost = lambda source, to, packet: isinstance(packet, RegularToken)
    assert tokens(bench.hand(2, token)) == [(3, 2)]
    assert tokens(bench.hand(2, token)) == [(1, 1)]
    assert tokens(bench.hand(2, token._replace(token_seq=token.token_seq - 3))) == []


def test_a_link_works_if_the_token_came_more_often_than_it_was_shown() -> None:
    """Shown to two, it comes twice though the link is dead, and is sent back once."""
    bench, token = passed_in_vain(1, 2, 3, 4)
    bench.lost = lambda source, to, packet: isinstance(packet, RegularToken)
    relay = holder_of(bench, 1)._relay
    for _ in range(3):
        bench.expire(1, Timer.TOKEN_RETRANSMISSION)
    shown = relay.shown
    assert shown
    bench.hand(1, token)
    assert relay.shown == shown
    bench.hand(1, token)
    assert not relay.shown


@pytest.mark.parametrize("processors", [(1,), (1, 2)])
def test_nothing_is_shown_or_sent_back_where_nobody_else_is(processors: tuple[int, ...]) -> None:
    """Alone, a processor would send its own token back to itself for ever."""
    bench, token = passed_in_vain(*processors)
    bench.lost = lambda source, to, packet: isinstance(packet, RegularToken)
    successor = processors[-1]
    assert tokens(bench.expire(1, Timer.TOKEN_RETRANSMISSION)) == [(successor, 1)]
    bench.hand(successor, token)
    assert tokens(bench.hand(successor, token)) == []


def on_a_dead_link(slow: bool) -> Bench:
    """1 to 2 is dead. If the ring is slow, 2's token has not got to 3 before 1 passes its own once more."""
    bench = formed(1, 2, 3, 4)

    def lost(source: int, to: int, packet: Any) -> bool:
        delayed = slow and (source, to) == (2, 3) and isinstance(packet, RegularToken)
        return (source, to) == (1, 2) or delayed

    bench.lost = lost
    bench.submit(1, b"x")
    bench.pump()
    for _ in range(3):
        bench.expire(1, Timer.TOKEN_RETRANSMISSION)
        bench.pump()
    bench.lost = lambda source, to, packet: (source, to) == (1, 2)
    if slow:
        bench.expire(2, Timer.TOKEN_RETRANSMISSION)
    for _ in range(CERTAIN_ROTATIONS):
        bench.submit(2, b"y")
        bench.pump()
    return bench


@pytest.mark.parametrize("slow", [False, True])
def test_a_link_is_dead_though_a_token_that_two_were_shown_comes_twice(slow: bool) -> None:
    bench = on_a_dead_link(slow)
    assert len(bench.of_kind(1, DeadLink)) == 1
    assert holder_of(bench, 1)._relay.through != 0


def test_a_link_that_works_again_is_used_again() -> None:
    bench = on_a_dead_link(slow=True)
    bench.lost = lambda source, to, packet: False
    bench.submit(2, b"y")
    bench.pump()
    assert holder_of(bench, 1)._relay.through == 0


def handed_back(token: RegularToken, rotations: int) -> int:
    """Who hands 1's tokens on, when this copy of one has come back after the token has come round."""
    bench = on_a_dead_link(slow=False)
    bench.hand(1, token._replace(token_seq=bench[1].machine.current.ring.my_token_seq - 4 * rotations))
    through: int = holder_of(bench, 1)._relay.through
    return through


def test_a_copy_that_comes_back_late_counts_for_one_rotation() -> None:
    """It may have been behind data, which an accelerated ring sends after the token."""
    _, token = passed_in_vain(1, 2, 3, 4)
    assert handed_back(token, rotations=1) == 0
    assert handed_back(token, rotations=2) != 0
    assert handed_back(token._replace(sender=3), rotations=1) != 0


def test_what_was_shown_to_two_and_comes_back_once_and_late_proves_nothing() -> None:
    """On a dead link the successor gets both copies, and sends one back."""
    bench, token = passed_in_vain(1, 2, 3, 4)
    bench.lost = lambda source, to, packet: {source, to} == {1, 2}
    for _ in range(3):
        bench.expire(1, Timer.TOKEN_RETRANSMISSION)
    relay = holder_of(bench, 1)._relay
    bench.pump(until=lambda: bool(relay.through))
    bench.hand(1, token)
    assert relay.through
    bench.hand(1, token)
    assert not relay.through


def test_a_dead_link_is_told_of_once_and_a_token_that_comes_back_ends_it() -> None:
    bench = formed(1, 2, 3)
    bench.lost = lambda source, to, packet: (source, to) == (1, 2)
    bench.submit(1, b"x")
    bench.pump()
    for _ in range(2):
        bench.expire(1, Timer.TOKEN_RETRANSMISSION)
    for _ in range(3 * CERTAIN_ROTATIONS):
        bench.submit(2, b"y")
        bench.pump()
    assert bench.of_kind(1, DeadLink) == [DeadLink(2, 3)]
    assert holder_of(bench, 1)._relay.through == 3
    bench.lost = lambda source, to, packet: False
    bench.submit(2, b"y")
    bench.pump()
    assert holder_of(bench, 1)._relay.through == 0
