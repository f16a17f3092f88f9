"""Routes of a sender with other networks, and numbers that no message has, say nothing and harm nobody."""

from __future__ import annotations

import pytest

from totempole.rrp.accounts import Accounts, Taken
from totempole.rrp.route import WHOLE, sound_route
from totempole.segment.header import data_name
from totempole.types import RingId

RING = RingId(4, 1)


@pytest.mark.parametrize("route", [0, 0b100, 0b111, 0b001, 0b100 | WHOLE])
@pytest.mark.parametrize("asked", [False, True])
def test_nothing_is_charged_for_a_route_that_makes_no_sense(route: int, asked: bool) -> None:
    """Of two networks each message goes on one: a stripe has two, and there is no third."""
    assert sound_route(route, 0b11, 1) == 0
    accounts = Accounts((1, 1), 1)
    list(accounts.visit(RING, 0, [], 0, 0))
    accounts.note(data_name(RING, 1), 0, 500)
    if asked:
        assert list(accounts.visit(RING, 1, [1], 1_000, 0)) == []
    accounts.take(RING, 1, Taken(2, sound_route(route, 0b11, 1), 1_000))
    for now_us in (2_000, 3_000, 4_000):
        assert list(accounts.visit(RING, 1, [], now_us, 0)) == []


def test_a_message_far_ahead_of_the_token_keeps_no_other_from_being_charged() -> None:
    """Without keys anybody can say that there is one."""
    accounts = Accounts((1, 1), 1)
    list(accounts.visit(RING, 0, [], 0, 0))
    accounts.note(data_name(RING, 10_000), 0, 500)
    accounts.take(RING, 10_000, Taken(2, 0b01 | WHOLE, 500))
    charged = []
    for seq in range(1, 6):
        accounts.note(data_name(RING, seq), 0, 400)
        accounts.take(RING, seq, Taken(2, 0b01 | WHOLE, 500))
        charged += list(accounts.visit(RING, seq, [], 1_000 * seq, 1_000))
    assert charged == [(2, 0, 0.2, 1)] * 4
