"""Networks that fall apart and come together: under load, at rest, one after the other, and one way only."""

from __future__ import annotations

import pytest
from netns_stage import Stage, StageMaker

from totempole.lab.cluster import Setup
from totempole.srp.config import RingConfig
from totempole.types import RingKind

CASCADE = (
    ([1, 2, 3, 4], [5, 6, 7, 8]),
    ([1, 2], [3, 4], [5, 6], [7, 8]),
    ([1, 3, 5], [2, 4, 6, 7], [8]),
    ([1, 2, 3, 4, 5, 6], [7, 8]),
)


@pytest.mark.parametrize("ring_kind", list(RingKind))
def test_both_sides_of_a_partition_go_on_and_merge(stage: StageMaker, ring_kind: RingKind) -> None:
    with stage(hosts=5, setup=Setup(ring=RingConfig(ring_kind=ring_kind))) as ring:
        ring.load()
        ring.deliver()
        ring.partition([1, 2], [3, 4, 5])
        ring.deliver()
        ring.heal()
        ring.deliver()


def test_a_ring_at_rest_falls_apart_and_merges(stage: StageMaker) -> None:
    with stage(hosts=4) as ring:
        send_one_each(ring)
        ring.partition([1, 4], [2, 3])
        ring.heal()
        send_one_each(ring)


def send_one_each(ring: Stage) -> None:
    """Then nothing: the token rests."""
    ring.load(rate=20)
    ring.deliver(5)
    ring.cluster.tell("quiet")
    ring.drain()


def test_partitions_one_after_the_other(stage: StageMaker) -> None:
    with stage(hosts=8) as ring:
        ring.load(rate=30)
        for groups in CASCADE:
            ring.partition(*groups)
            ring.deliver(30)
        ring.heal()
        ring.deliver(30)


def test_partitions_that_do_not_wait_for_the_ring(stage: StageMaker) -> None:
    """The next comes while the ring is still busy with the last.

    The rings may fit the next already: those of three fail to merge, and the network parts along them again.
    """
    with stage(hosts=6) as ring:
        ring.load(rate=50)
        ring.deliver()
        before = ring.changes()
        for groups in 3 * (([1, 2, 3], [4, 5, 6]), ([1, 4], [2, 5], [3, 6]), ([1, 2, 3, 4, 5, 6],)):
            installed = ring.changes()
            ring.lab.partition(groups)
            ring.wait(
                lambda installed=installed, groups=groups: ring.changes() > installed or ring.fits(*groups),
                "a configuration",
            )
        ring.heal()
        ring.deliver()
        assert ring.changes() > before
        assert ring.lab.counters().cut > 0


def test_who_cannot_hear_one_member_gets_its_messages_from_another(stage: StageMaker) -> None:
    """The token passes from 1 to 2 to 3: only messages are lost from 1 to 3."""
    with stage(hosts=4) as ring:
        ring.load()
        ring.deliver()
        with ring.lab.cut(1, 3):
            ring.deliver(300)
            assert ring.lab.counters().cut > 0
            assert ring.sum_of("retransmissions") > 0


@pytest.mark.parametrize("transport", ["multicast", "mesh"])
def test_links_that_work_one_way_only(stage: StageMaker, transport: str) -> None:
    """The ring goes on meanwhile: members hand tokens on, and repeat what the link loses."""
    with stage(hosts=4, setup=Setup(transport=transport)) as ring:
        ring.load()
        ring.deliver()
        for frm, to in ((1, 2), (4, 1), (3, 4)):
            cut = ring.lab.counters().cut
            with ring.lab.cut(frm, to):
                ring.deliver()
                ring.wait(lambda cut=cut: ring.lab.counters().cut > cut, "a packet that was cut off")
            ring.heal()
            ring.deliver()
