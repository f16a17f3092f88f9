"""Faults of disks, inputs, addresses, keys and links: each one fires, and does what it says."""

from __future__ import annotations

import pytest

from totempole.checkers import check
from totempole.errors import ScenarioError
from totempole.sim.disk import WIPED
from totempole.sim.load import Burst
from totempole.sim.scenario import Outcome, build, parse, run
from totempole.sim.settling import check_lasting
from totempole.trace.schema import Row
from totempole.trace.told import told
from totempole.types import Service

FOUR = """
processors 1 2 3 4
seed 3
set timeout_stretch_max_percent 100
set readmission_us 400000
"""
BUSY = "\n".join(f"at 200ms load {me} rate=20 size=200 safe=0.3 until=2s" for me in (1, 2, 3, 4))


def play(steps: str, head: str = FOUR, level: str = "protocol") -> Outcome:
    """The scenario, which must also survive being written down."""
    lines = sorted(f"{BUSY}\n{steps}".strip().splitlines(), key=_time)
    scenario = parse("\n".join([head, *lines]))
    assert parse(scenario.to_text(), scenario.name) == scenario
    return run(scenario, level=level)


def _time(line: str) -> float:
    """Expectations without a time come last."""
    words = line.split()
    if words[0] != "at":
        return float("inf") if words[0] == "expect" else 1e9
    return float(words[1].removesuffix("ms")) / 1e3 if words[1].endswith("ms") else float(words[1][:-1])


def faults(outcome: Outcome) -> list[str]:
    return [told(row) for row in outcome.rows if row.kind == "fault"]


def rows(outcome: Outcome, node: int, kind: str) -> list[Row]:
    return [row for row in outcome.rows if row.node == node and row.kind == kind]


def hold(outcome: Outcome) -> None:
    assert not outcome.failures, outcome.failures


# Disks


def test_a_wiped_disk_starts_a_life_above_all_that_was_used_before() -> None:
    outcome = play("at 1s crash 2\nat 1s disk 2 wipe\nat 1.2s restart 2\nend 4s\nexpect settled 1s")
    hold(outcome)
    assert "disk 2 wipe" in faults(outcome)
    life = rows(outcome, 2, "restart")[-1]
    assert life.incarnation == 1_200 + 1
    rings = [int(row.configuration.split("@")[0]) for row in rows(outcome, 2, "configuration")]
    assert rings == sorted(rings)
    assert rings[-1] > 1_200 * 16


def test_without_numbers_from_the_clock_a_wiped_disk_would_be_noticed() -> None:
    """The fault has teeth: numbers that begin again at nothing are used twice."""
    scenario = parse(f"{FOUR}{BUSY}\nend 4s\nexpect checkers hold")
    world = build(scenario, level="checked")
    for host in world.hosts.values():
        host.disk.first_numbers = lambda _now_us: {}
    world.start()
    world.run_until(1_000_000)
    for me in world.hosts:
        world.damage_disk(me, WIPED)
        world.crash(me)
        world.restart(me)
    for me in world.hosts:
        Burst(world, me, 5, size=20, service=Service.AGREED).start()
    world.run_until(3_000_000)
    assert {"unique-configurations", "unique-messages"} & {v.property for v in check(world.rows).violated}


def test_a_disk_that_lost_some_numbers_keeps_the_others() -> None:
    steps = "at 1s disk 3 lose timestamp future_ring_seq\nat 1.1s crash 3\nat 1.2s restart 3"
    outcome = play(f"{steps}\nend 4s\nexpect settled 1s")
    hold(outcome)
    assert "disk 3 lose timestamp future_ring_seq" in faults(outcome)
    assert rows(outcome, 3, "restart")[-1].incarnation == 2
    back = [row for row in rows(outcome, 3, "originate") if row.at_us > 1_200_000]
    assert min(row.timestamp for row in back) > 1_200 * 4_000


def test_damage_waits_for_the_next_start() -> None:
    outcome = play("at 1s disk 2 wipe\nend 4s\nexpect settled 1s")
    hold(outcome)
    assert not any(detail.startswith("disk") for detail in faults(outcome))


def test_a_rolled_back_disk_gives_an_old_state() -> None:
    outcome = play("at 1s crash 2\nat 1s disk 2 rollback 99\nat 1.2s restart 2\nend 4s")
    assert "disk 2 rollback 99" in faults(outcome)
    assert [row.incarnation for row in rows(outcome, 2, "restart")] == [1, 1]


def test_a_slow_disk_holds_up_a_new_ring_until_it_has_written() -> None:
    outcome = play("at 1s disk 2 slow 60ms..60ms\nat 1s crash 4\nend 4s\nexpect settled 2s")
    hold(outcome)
    assert "disk 2 slow" in faults(outcome)
    usual = play("at 1s crash 4\nend 4s")
    assert _ring_of_three(outcome) > _ring_of_three(usual) + 50_000


def _ring_of_three(outcome: Outcome) -> int:
    return next(row.at_us for row in rows(outcome, 2, "configuration") if row.members == (1, 2, 3))


def test_a_stuck_disk_keeps_its_processor_out_until_it_is_mended() -> None:
    steps = "at 1s disk 2 stick\nat 1s crash 4\nat 2.5s expect members 1 (1 3)\nat 3s disk 2 mend"
    outcome = play(f"{steps}\nend 6s\nexpect members 1 (1 2 3)\nexpect checkers hold")
    hold(outcome)
    assert "disk 2 stick" in faults(outcome)


def test_a_restart_frees_a_stuck_disk() -> None:
    steps = "at 1s disk 2 stick\nat 1s crash 4\nat 2s crash 2\nat 2.2s restart 2"
    hold(play(f"{steps}\nend 6s\nexpect members 1 (1 2 3)\nexpect settled 2s"))


# A crash between two effects


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_crash_within_an_input_leaves_the_first_effects(after: int) -> None:
    outcome = play(f"at 1s crash-within 2 after={after}\nat 2s restart 2\nend 5s\nexpect settled 2s")
    hold(outcome)
    assert f"crash-within 2 after={after}" in faults(outcome)
    assert len(rows(outcome, 2, "crash")) == 1


def test_where_it_strikes_does_not_depend_on_how_much_is_traced() -> None:
    steps = "at 1s crash-within 2 after=2\nend 3s"
    assert _struck(steps, "delivery") == _struck(steps, "protocol")


def _struck(steps: str, level: str) -> int:
    return rows(play(steps, level=level), 2, "crash")[0].at_us


# Packets astray


def test_a_misdirected_token_comes_to_nobody_else() -> None:
    outcome = play("at 1s misdirect token from 1 to 3 count=30\nend 4s\nexpect settled 2s")
    assert faults(outcome).count("misdirected token from 1 to 3") == outcome.world.counters["misdirected"]
    assert outcome.world.counters["misdirected"] > 1
    hold(outcome)


@pytest.mark.parametrize("kind", ["join", "message", "null"])
def test_packets_that_come_back_to_their_sender_are_no_news(kind: str) -> None:
    steps = f"at 1s reflect {kind} count=20\nat 1.2s crash 4\nat 1.5s restart 4"
    outcome = play(f"{steps}\nend 6s\nexpect settled 2s")
    hold(outcome)
    if kind != "null":
        assert any(detail.startswith(f"reflected {kind}") for detail in faults(outcome))


def test_recorded_packets_come_again_much_later() -> None:
    steps = "at 1s replay message from 2 after=700ms count=5\nat 1s replay token from 2 to 4 after=300ms"
    outcome = play(f"{steps}\nend 5s\nexpect settled 2s")
    hold(outcome)
    again = [row for row in outcome.rows if row.reason == "replayed"]
    assert outcome.world.counters["replayed"] == len(again) == 5 * 3 + 1
    assert min(row.at_us for row in again if "message" in told(row)) > 1_700_000


def test_heal_calls_off_what_would_still_go_astray() -> None:
    steps = "at 1s replay message after=700ms count=5\nat 1.1s heal\nat 1.1s show commit-token to 3"
    outcome = play(f"{steps}\nat 1.2s heal\nend 5s\nexpect settled 2s")
    hold(outcome)
    assert not outcome.world.counters["replayed"]
    assert not outcome.world.counters["shown"]


# Links


def test_heal_does_not_mend_a_severed_link_and_mend_does() -> None:
    outcome = play("at 1s sever 1 2\nat 2s heal\nend 3s")
    assert outcome.world.medium.severed == {(1, 2)}
    assert "sever 1 2" in faults(outcome)
    hold(play("at 1s sever 1 2\nat 2s mend 1 2\nend 6s\nexpect settled 3s"))


def test_a_sharp_partition_loses_what_is_under_way() -> None:
    slow = FOUR + "condition delay=5ms..5ms\nset token_loss_us 300000\n"
    for sharp in ("", " sharp"):
        outcome = play(f"at 1s partition (1 2) (3 4){sharp}\nat 2s heal\nend 6s\nexpect settled 3s", slow)
        hold(outcome)
        assert bool(outcome.world.counters["cut under way"]) is bool(sharp)


def test_the_judge_of_severed_links_sees_a_ring_that_breaks_up() -> None:
    """Here because 4 comes and goes, and is alone in the end: it has just started again."""
    outcome = play("at 1s sever 2 1\nat 1s sever 1 2\nend 3s", FOUR + "set readmission_us 10000000\n")
    world = outcome.world
    for _ in range(40):
        world.crash(4)
        world.run_for(200_000)
        world.restart(4)
        world.run_for(200_000)
    world.crash(4)
    world.restart(4)
    world.run_for(10_000)
    (verdict,) = check_lasting(world, 1_000_000, 1_000_000)
    assert "regular configurations in" in str(verdict)
    assert "could be one, and are not" in str(verdict)


# Full rings, segments, keys


def test_full_rings_settle() -> None:
    head = "processors 1 2 3 4 5\nset members_max 3\n"
    hold(run(parse(f"{head}at 1s send 1 3\nat 1s crash 2\nat 1.5s restart 2\nend 6s\nexpect settled 4s")))


def test_smaller_segments_from_one_moment_on() -> None:
    outcome = play(
        "at 1s segments 2 600\nat 1.2s crash 4\nat 1.5s send 2 4 size=9000\nend 5s\nexpect settled 2s"
    )
    hold(outcome)
    assert "segments 2 600" in faults(outcome)


def test_keys_rotate_under_a_seal() -> None:
    first = "\n".join(f"at {500 + 10 * me}ms keys {me} 1 2" for me in (1, 2, 3, 4))
    then = "\n".join(f"at {700 + 10 * me}ms keys {me} 2 1" for me in (1, 2, 3, 4))
    last = "\n".join(f"at {900 + 10 * me}ms keys {me} 2" for me in (1, 2, 3, 4))
    outcome = play(
        f"{first}\n{then}\n{last}\nat 1s crash 3\nat 1.3s restart 3\nend 5s\nexpect settled 2s", SEALED
    )
    hold(outcome)
    assert "keys 3 2" in faults(outcome)
    assert not [row for row in rows(outcome, 1, "configuration") if 500_000 < row.at_us < 1_000_000]


SEALED = FOUR + "sealed\n"


def test_one_without_the_new_key_stays_alone() -> None:
    steps = "\n".join(f"at 1s keys {me} 2" for me in (1, 2, 3))
    hold(play(f"{steps}\nend 5s\nexpect members 1 (1 2 3)\nexpect members 4 (4)", SEALED))


def test_under_a_seal_flipped_bits_cost_packets_only() -> None:
    outcome = play(
        "at 1s condition corrupt=0.05\nat 1.5s condition corrupt=0\nend 5s\nexpect settled 2s", SEALED
    )
    hold(outcome)
    assert outcome.world.counters["corrupted"] > 20


# Sequences


def test_an_ambush_may_lie_in_wait_behind_another() -> None:
    steps = 'at 1s when "operational>gather" when "promise given" by 1 crash 2\nat 1s crash 4'
    outcome = play(f"{steps}\nend 6s\nexpect settled 4s")
    hold(outcome)
    crash = rows(outcome, 2, "crash")[0].at_us
    said = [row.at_us for row in outcome.rows if (row.old_state, row.new_state) == ("operational", "gather")]
    assert min(said) < crash
    assert any(row.at_us == crash and row.reason == "promise given" for row in outcome.rows)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("show token", "say to whom"),
        ("reflect token to 2", "takes no `to`"),
        ("replay token", "say when it comes again"),
        ("disk 1", "write `disk p wipe"),
        ("disk 1 burn", "'burn' is not allowed here"),
        ("disk 1 lose", "say what is lost"),
        ("disk 1 lose weight", "'weight' is not allowed here"),
        ("disk 1 rollback 0", "not a whole number of at least 1"),
        ("crash-within 1", "write `crash-within p after=3`"),
        ("segments 1 10", "not a whole number of at least"),
        ("keys 1 2", "no seal here"),
    ],
)
def test_a_bad_line_says_what_is_allowed(line: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        parse(f"processors 1 2\nat 1s {line}\nend 2s\n")


def test_a_node_retires_once_its_programs_messages_are_sent() -> None:
    outcome = run(parse(f"{FOUR}groups\nat 1s multicast 1.a x units=40 size=20000\nat 1s retire 1\nend 3s"))
    assert "retire 1" in faults(outcome)
    leave = rows(outcome, 1, "leave")[0].at_us
    sent = [row.at_us for row in outcome.rows if row.kind == "originate" and row.node == 1]
    assert 1_000_000 < max(sent) < leave
