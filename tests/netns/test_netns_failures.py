"""Nodes that are killed, stopped, or leave, each in the middle of traffic."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from netns_stage import StageMaker

from totempole.lab.cluster import PlayerProcess, Setup
from totempole.runtime import keyring
from totempole.runtime.config import NodeConfig
from totempole.runtime.config_text import print_config
from totempole.srp.config import RingConfig
from totempole.types import RingKind

ASLEEP_S = 0.5
"""Longer than any timeout of a quick ring."""


@pytest.mark.parametrize("victim", [1, 3])
def test_a_killed_node_is_given_up_and_comes_back_with_its_disk(stage: StageMaker, victim: int) -> None:
    """Processor 1 is the ring's representative, 3 is not."""
    with stage(hosts=4) as ring:
        others = [number for number in ring.lab.hosts if number != victim]
        ring.load()
        ring.deliver()
        ring.kill(victim)
        ring.wait_for(others)
        ring.deliver()
        ring.restart(victim)
        ring.wait_whole()
        ring.load(numbers=[victim])
        ring.deliver()
    lives = {row.incarnation for row in ring.rows if row.node == victim and row.kind == "deliver"}
    assert len(lives) == 2


def test_two_killed_at_once_and_one_of_them_for_good(stage: StageMaker, tmp_path: Path) -> None:
    key_file = tmp_path / "ring.key"
    keyring.create(key_file)
    config = RingConfig(ring_kind=RingKind.ACCELERATED)
    with stage(hosts=5, setup=Setup(ring=config, transport="mesh", key_file=key_file)) as ring:
        ring.load()
        ring.deliver()
        ring.kill(2)
        ring.kill(5)
        ring.wait_for([1, 3, 4])
        ring.deliver()
        ring.restart(5)
        ring.wait_for([1, 3, 4, 5])
        ring.deliver()


def test_a_stopped_node_is_given_up_and_comes_back_when_it_goes_on(stage: StageMaker) -> None:
    with stage(hosts=4) as ring:
        ring.load()
        ring.deliver()
        ring.pause(2)
        ring.wait_for([1, 3, 4])
        ring.deliver()
        ring.resume(2)
        ring.wait_whole()
        ring.deliver()


def test_all_stopped_at_once_go_on_together(stage: StageMaker) -> None:
    """As when the machine below them all is put to sleep."""
    with stage(hosts=3) as ring:
        ring.load()
        ring.deliver()
        for number in ring.lab.hosts:
            ring.pause(number)
        time.sleep(ASLEEP_S)
        for number in ring.lab.hosts:
            ring.resume(number)
        ring.deliver()
        assert all(ring.status(number)["lag"]["max_ms"] > ASLEEP_S * 500 for number in ring.lab.hosts)


def test_a_node_with_a_number_in_use_gives_way(stage: StageMaker, tmp_path: Path) -> None:
    with stage(hosts=4, nodes=[1, 2, 3]) as ring:
        ring.load()
        ring.deliver()
        host = ring.lab.hosts[4]
        changes = [f"network.address={host.address}", f"directory={tmp_path / 'second'}", "trace.level=off"]
        file = tmp_path / "second.toml"
        file.write_text(print_config(NodeConfig.load(tmp_path / "node-1.toml", changes)), encoding="utf-8")
        second = PlayerProcess(host, file)
        ring.wait(lambda: not second.alive, "the second node to stop")
        second.close()
        assert "processor = 1" in second.log
        assert second.process.returncode == 3
        ring.deliver()


@pytest.mark.parametrize("command", [("pace", 300, "safe", 300), ("flood", 200, "agreed")])
def test_who_leaves_under_load_loses_nothing_of_what_it_sent(
    stage: StageMaker, command: tuple[object, ...]
) -> None:
    with stage(hosts=4) as ring:
        ring.load(numbers=[1, 3])
        leaver = ring.cluster.players[2]
        leaver.tell(*command)
        ring.deliver()
        ring.leave(2)
        ring.wait_for([1, 3, 4])
        ring.deliver()
        assert leaver.ended["sent"] > 0
        for number in (1, 3, 4):
            delivered = ring.cluster.players[number].report()["delivered_from"]["2"]
            assert delivered == leaver.ended["sent"], f"at {number}"
    assert len(ring.of_kind("leave")) == 4
