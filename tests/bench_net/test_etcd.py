"""etcd as a peer: the bodies that are posted to it, what its client logs, and a short run. No speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.bench import etcd
from totempole.bench.etcd import (
    Cluster,
    EtcdError,
    Request,
    check_statuses,
    parse_log,
    put_body,
    summary,
)
from totempole.bench.replicated import Load, sync_us
from totempole.lab.loopback import LoopbackLab

MISSING = etcd.missing()
needs_etcd = pytest.mark.skipif(bool(MISSING), reason=MISSING or "etcd can be run")


def test_a_put_is_two_fields_behind_five_bytes() -> None:
    assert put_body(b"k", b"vw") == b"\0\0\0\0\x07" + b"\x0a\x01k" + b"\x12\x02vw"


def test_lengths_over_127_take_more_octets() -> None:
    body = put_body(b"k", bytes(300))
    assert body[:5] == b"\0" + (3 + 3 + 300).to_bytes(4, "big")
    assert body[8:11] == b"\x12\xac\x02"


def test_the_clients_log_is_read_but_for_a_line_cut_short() -> None:
    text = "1700000000000100\t200\t250\n1700000000000200\t200\t350\n1700000000000300\t2"
    assert parse_log(text) == [Request(1700000000000100, 200, 250), Request(1700000000000200, 200, 350)]
    assert parse_log("1\t200\t\n") == []


def test_what_was_not_answered_well_is_no_measurement() -> None:
    with pytest.raises(EtcdError, match="1 of 2 calls failed, the first with status 503"):
        check_statuses([Request(1, 200, 5), Request(2, 503, 5)])
    with pytest.raises(EtcdError, match="no request"):
        check_statuses([])


def test_only_the_last_seconds_count() -> None:
    requests = [Request(number * 100_000, 200, 1_000 + number) for number in range(20)]
    assert summary(requests, 1.0, cpu_s=0.01, under_way=7) == Load(10.0, 1_015, 1_019, 500, 7)


def test_the_disk_is_probed(tmp_path: Path) -> None:
    assert sync_us(tmp_path, count=3) > 0
    assert list(tmp_path.iterdir()) == []


@needs_etcd
@pytest.mark.parametrize("synced", [True, False])
def test_three_members_are_measured_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: bool
) -> None:
    monkeypatch.setattr(etcd, "WARM_UP_S", 0.1)
    with Cluster(LoopbackLab(3), tmp_path, synced, under_way=(20,)) as cluster:
        members = list(cluster.members.values())
        load = cluster.load(etcd.WAY, 100, seconds=0.5)
        assert load.records_per_s > 0
        assert 0 < load.p50_us <= load.p99_us
        assert load.under_way == 20
        assert len(cluster.turns_us(100, 5)) == 5
    assert all(member.poll() is not None for member in members)


@needs_etcd
def test_a_put_is_done_again_after_the_leader_was_killed(tmp_path: Path) -> None:
    with Cluster(LoopbackLab(3), tmp_path, synced=False, under_way=(20,)) as cluster:
        assert cluster.failover_ms() > 0
        assert len(cluster.members) == 3
        assert cluster.turns_us(100, 2)


@needs_etcd
def test_a_member_that_ends_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "member-1").write_text("not a directory")
    with (
        pytest.raises(EtcdError, match=r"(?s)member 1 has ended: .*member-1"),
        Cluster(LoopbackLab(3), tmp_path),
    ):
        pass
