"""Faults that once cost too much: tokens at a wrong address, dead links, changes during a graceful leave."""

from __future__ import annotations

import pytest
from test_sim_faults import FOUR, faults, hold, play, rows

from totempole.sim.scenario import parse, run

STEADY = """
processors 1 2 3 4
seed 3
"""


def test_a_token_shown_to_another_member_breaks_nothing() -> None:
    steps = "\n".join(f"at {at}ms show token from 1 to 3" for at in range(400, 1_400, 20))
    outcome = play(f"{steps}\nend 4s\nexpect settled 2s")
    assert "shown token from 1 to 3" in faults(outcome)
    assert outcome.world.counters["shown"] == 50
    hold(outcome)


def test_a_token_shown_to_another_member_re_forms_nothing() -> None:
    steps = "\n".join(f"at {at}ms show token from 1 to 3" for at in range(400, 1_400, 20))
    outcome = play(f"{steps}\nend 4s")
    assert not [row for row in outcome.rows if row.kind == "configuration" and row.at_us > 400_000]


def test_a_token_that_comes_back_to_its_sender_is_no_news() -> None:
    outcome = play(
        "at 1s reflect token count=20\nat 1.2s crash 4\nat 1.5s restart 4\nend 6s\nexpect settled 2s"
    )
    assert any(detail.startswith("reflected token") for detail in faults(outcome))
    hold(outcome)


@pytest.mark.search
@pytest.mark.parametrize(("source", "target"), [(2, 1), (1, 2)])
def test_one_link_dead_one_way_costs_others_little(source: int, target: int) -> None:
    """In a minute at most ten configurations at processors whose links are whole, and all they send."""
    lines = [f"at 200ms load {me} rate=2 size=100 until=62s" for me in (1, 2, 3, 4)]
    text = "\n".join([STEADY, *lines, f"at 1s sever {source} {target}", "end 64s", "expect settled 2s"])
    hold(run(parse(text), level="checked"))


def test_what_programs_had_handed_in_is_sent_before_a_graceful_leave() -> None:
    """Also when the configuration changes just then."""
    head = FOUR + "groups\n"
    steps = ["at 500ms join 3.a orders", "at 500ms join 2.a orders"]
    steps += ["at 1s multicast 1.a orders units=40 size=20000", "at 1001ms retire 1", "at 1001200us crash 4"]
    text = "\n".join([head, *steps, "end 6s", "expect checkers hold"])
    outcome = run(parse(text), level="checked")
    hold(outcome)
    assert "retire 1" in faults(outcome)
    assert rows(outcome, 1, "leave")
    sent = [row for row in outcome.rows if row.kind == "group_send" and row.node == 1]
    got = {row.message for row in outcome.rows if row.kind == "group_deliver" and row.node == 3}
    assert len(sent) > 10
    assert {row.message for row in sent} <= got
