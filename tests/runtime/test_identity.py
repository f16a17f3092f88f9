"""Who gives way when two nodes have one number."""

from __future__ import annotations

import pytest

from totempole.identity import LIVES_MAX, LIVES_US, PROBATION_US, Answer, Identity

YOUNG, OLD = PROBATION_US - 1, PROBATION_US


@pytest.mark.parametrize(
    ("other", "age_us", "has_spoken", "answer"),
    [
        (6, YOUNG, False, Answer.GIVE_WAY),
        (6, YOUNG, True, Answer.GIVE_WAY),
        (5, YOUNG, True, Answer.GIVE_WAY),
        (4, YOUNG, False, Answer.GIVE_WAY),
        (4, YOUNG, True, Answer.STAY),
        (6, OLD, True, Answer.OUTLIVE),
        (5, OLD, True, Answer.OUTLIVE),
        (4, OLD, True, Answer.STAY),
    ],
)
def test_what_a_node_in_life_5_does(other: int, age_us: int, has_spoken: bool, answer: Answer) -> None:
    assert Identity().meet(other, 5, 10**9, age_us, has_spoken) is answer


def test_after_several_lives_in_a_minute_a_node_gives_way() -> None:
    identity = Identity()
    for life in range(LIVES_MAX):
        assert identity.meet(6, 5, life, OLD, True) is Answer.OUTLIVE
        identity.begin_life(life)
    assert identity.meet(6, 5, LIVES_MAX, OLD, True) is Answer.GIVE_WAY
    assert identity.meet(4, 5, LIVES_MAX, OLD, True) is Answer.STAY
    assert identity.meet(6, 5, LIVES_US, OLD, True) is Answer.OUTLIVE
