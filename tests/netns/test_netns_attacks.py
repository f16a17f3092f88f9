"""What once hurt a ring, on real sockets: tokens shown to a wrong member, and links that are dead one way.

tests/sim/test_attacks.py has the same attacks, and more of them, in simulation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from eavesdropper import Eavesdropper
from group_stage import STEADY, GroupStage, GroupStageMaker
from netns_stage import StageMaker

from totempole.lab.cluster import Setup
from totempole.runtime import keyring
from totempole.srp.config import RingConfig
from totempole.trace.schema import Row

EVERYBODY = ("p1", "p2", "p3", "p4")


# A token is for its successor


def test_a_token_that_is_shown_to_another_member_is_not_a_second_token(
    stage: StageMaker, tmp_path: Path
) -> None:
    """The seal does not help: who shows it need not read it. Taken, it would give two messages one place."""
    key_file = tmp_path / "ring.key"
    keyring.create(key_file)
    setup = Setup(ring=STEADY, transport="mesh", key_file=key_file, trace="protocol")
    with stage(hosts=5, nodes=(1, 2, 3, 4), setup=setup) as ring:
        ring.load()
        ring.deliver()
        before = ring.changes()
        eavesdropper = Eavesdropper(ring.lab, host=5)
        with eavesdropper.showing(1, 2, wrong=3):
            ring.deliver(600)
            ring.wait(lambda: len(handed_on_by_3(ring.cluster.trace())) >= 20, "copies that come in time")
        assert ring.changes() == before
        assert all(ring.status(number)["sealed"] for number in ring.running)
    assert eavesdropper.shown >= len(handed_on_by_3(ring.rows))


def handed_on_by_3(rows: Iterable[Row]) -> list[Row]:
    """Tokens that 3 would have taken, had it not looked at their sender. Later copies are redundant."""
    return [row for row in rows if (row.node, row.kind, row.reason) == (3, "branch", "token handed on")]


# Links that are dead one way. The token goes from 1 to 2 to 3 to 4.


def test_a_link_that_carries_no_token_may_be_dead_one_way(groups: GroupStageMaker) -> None:
    """What 2 cannot tell 1, others can."""
    rounds = RingConfig().fail_to_receive_rounds
    ring = replace(STEADY, token_loss_us=1_500_000, fail_to_receive_rounds=rounds)
    with groups(hosts=4, setup=Setup(ring=ring, transport="mesh")) as stage:
        all_send(stage)
        before = stage.configuration_changes()
        with stage.lab.cut(2, 1, only="udp"):
            stage.deliver(800)  # for longer than one that receives nothing is borne with
            assert stage.lab.counters().cut > 0
        assert stage.configuration_changes() == before
    stage.assert_nothing_lost(dict.fromkeys(EVERYBODY, "g"))


FAULT_S = 12.0


def test_a_link_that_carries_the_token_may_be_dead_one_way(groups: GroupStageMaker) -> None:
    """3 or 4 hands on what 1 cannot pass to 2."""
    with groups(hosts=4, setup=Setup(ring=STEADY, transport="mesh")) as stage:
        all_send(stage)
        before = stage.configuration_changes()
        sent, received = sent_by(stage, *EVERYBODY), received_from(stage, *EVERYBODY)
        with stage.lab.cut(1, 2, only="udp"):
            time.sleep(FAULT_S)
            sent, received = sent_by(stage, *EVERYBODY) - sent, received_from(stage, *EVERYBODY) - received
            assert stage.lab.counters().cut > 0
        assert stage.configuration_changes() == before
    assert received >= 0.9 * sent > 0
    handed_on = [row for row in stage.of_kind("branch") if row.reason == "token handed on"]
    assert {row.node for row in handed_on} & {3, 4}
    assert "is dead, in one direction at least" in stage.logs()
    stage.assert_nothing_lost(dict.fromkeys(EVERYBODY, "g"))


def all_send(stage: GroupStage) -> None:
    for name in EVERYBODY:
        stage.program(name, int(name[1]), "g")
    stage.wait_members("g", *EVERYBODY)
    for name in EVERYBODY:
        stage.pace(name, "g", 50)
    stage.deliver(100)


def sent_by(stage: GroupStage, *names: str) -> int:
    return sum(report["sent"]["g"] for report in stage.reports(names).values())


def received_from(stage: GroupStage, *senders: str) -> int:
    """At the program of 3."""
    received = stage.reports(["p3"])["p3"]["received"]
    return sum(received[f"{sender}:g"] for sender in senders)
