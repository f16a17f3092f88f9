"""Packets that no group layer sends: a faulty node's, or a forger's on an unsealed ring. They are dropped and
counted, and change nothing."""

from __future__ import annotations

import json

import pytest
from layers_by_hand import Cluster, Submission

from totempole.errors import CodecError
from totempole.groups.body import Part, RunKind, head, pack_part, run_head, unpack_part
from totempole.types import RingId, Service


def table(epoch: RingId, *parts: Part) -> bytes:
    body = head(epoch)
    for part in parts:
        content = pack_part(part)
        body += run_head(RunKind.TABLE, 0, 0, 0, 0, 0, len(content), b"", len(content)) + content
    return body


def nothing_of(*processors: int) -> Part:
    return Part(frozenset(processors), {})


def in_exchange(processors: int) -> Cluster:
    """All have just installed a ring, and nobody has told its part of the table."""
    cluster = Cluster(processors)
    cluster.change([range(1, processors + 1)])
    return cluster


def test_the_part_of_an_outsider_does_not_stall_an_exchange() -> None:
    cluster = in_exchange(2)
    cluster.inject(1, table(cluster.rings[1].id, nothing_of(99)), origin=99)
    cluster.run()
    for layer in cluster.layers.values():
        assert layer.dropped == {"group table out of place": 1}
        assert layer.views_in_force


def test_a_second_part_behind_the_last_does_not_end_the_views() -> None:
    cluster = in_exchange(1)
    twice = table(cluster.rings[1].id, nothing_of(1), nothing_of(1))
    cluster.rings[1].log.append(cluster.orders[1].queue.popleft()._replace(payload=twice))
    cluster.deliver(1)
    assert cluster.layers[1].dropped == {"group table out of place": 1}
    assert cluster.layers[1].views_in_force


def test_a_packet_in_our_own_name_that_we_did_not_send() -> None:
    cluster = Cluster(2)
    forged = Submission(1, 1, 77, table(cluster.rings[1].id), Service.AGREED)
    cluster.rings[1].log.append(forged)
    cluster.run()
    assert cluster.layers[1].dropped == {"group packet of our own that we did not send": 1}
    assert all(layer.views_in_force for layer in cluster.layers.values())


@pytest.mark.parametrize("source", [[[1], 1, 1], ["1", 1, 1], [1, 1, 1.5], [1, 1]])
def test_a_table_whose_donor_is_no_process(source: list[object]) -> None:
    asked = [[[4, 1], 1, [0, 0]], 0]
    content = {"together": [1], "processes": {"5": {"g": [False, source, asked]}}}
    with pytest.raises(CodecError, match="group table malformed"):
        unpack_part(json.dumps(content).encode())
