"""The peer's set-up and the raw pump: that they are what they say. No test of speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from totempole.bench import corosync
from totempole.bench.corosync import (
    Cluster,
    CorosyncError,
    Reading,
    Throughput,
    Transport,
    configuration,
    transports,
    windows,
)
from totempole.bench.pump import PumpError, PumpResult, best, burst_bytes, pump
from totempole.lab import Lab
from totempole.lab import missing as missing_lab
from totempole.lab.namespaces import processes

MISSING_PEER = missing_lab() or corosync.missing()
needs_lab = pytest.mark.skipif(bool(missing_lab()), reason=missing_lab() or "a lab can be had")
needs_corosync = pytest.mark.skipif(bool(MISSING_PEER), reason=MISSING_PEER or "corosync can be run")

ADDRESSES = {1: ["10.77.0.1"], 2: ["10.77.0.2"]}


def written(transport: Transport, encrypted: bool = False, realtime: bool = True) -> str:
    return configuration(ADDRESSES, transport, encrypted, Path("/x/log"), Path("/x/key"), realtime)


GOLDEN = """\
totem {
    version: 2
    cluster_name: totempole-bench
    transport: udp
    crypto_cipher: none
    crypto_hash: none
    interface {
        ringnumber: 0
        bindnetaddr: 10.77.0.0
        mcastport: 5405
        mcastaddr: 239.192.77.1
    }
}
nodelist {
    node {
        ring0_addr: 10.77.0.1
        nodeid: 1
        name: host1
    }
    node {
        ring0_addr: 10.77.0.2
        nodeid: 2
        name: host2
    }
}
logging {
    to_syslog: no
    to_stderr: no
    to_logfile: yes
    logfile: /x/log
    timestamp: hires
}
"""


def test_the_whole_file() -> None:
    assert written(Transport.UDP) == GOLDEN


def test_two_links() -> None:
    addresses = {1: ["10.77.0.1", "10.77.1.1"], 2: ["10.77.0.2", "10.77.1.2"]}
    places = Path("/x/log"), Path("/x/key")
    text = configuration(addresses, Transport.KNET, False, *places, link_mode="rr")
    assert "    link_mode: rr\n" in text
    assert "        ring0_addr: 10.77.0.2\n        ring1_addr: 10.77.1.2\n" in text


@pytest.mark.parametrize("transport", list(Transport))
def test_timeouts_and_windows_are_left_at_their_defaults(transport: Transport) -> None:
    text = written(transport)
    for setting in ("token", "consensus", "window_size", "netmtu", "max_messages", "sched_rr", "hold"):
        assert f"{setting}:" not in text


def test_realtime_scheduling_can_be_turned_off() -> None:
    assert written(Transport.UDP, realtime=False) == GOLDEN + "system {\n    sched_rr: no\n}\n"


def test_encryption_is_over_knet_only() -> None:
    assert transports(encrypted=True) == [Transport.KNET]
    assert transports(encrypted=False) == list(Transport)
    text = written(Transport.KNET, encrypted=True)
    assert "crypto_cipher: aes256\n" in text
    assert "crypto_hash: sha256\n" in text
    assert "keyfile: /x/key\n" in text
    with pytest.raises(CorosyncError, match="transport is udp: corosync 3 encrypts over knet only"):
        Cluster(Lab("unused", hosts=2), Transport.UDP, encrypted=True)


def test_figures() -> None:
    assert Reading(3_000_000_000, 250, 0).messages_per_s_since(Reading(1_000_000_000, 50, 0)) == 100
    assert Throughput(Transport.UDP, False, 500, True, 8, 2_000).megabytes_per_s == 1
    assert windows(64) == [250, 1000, 4000, 15625]
    assert windows(40_000) == [4, 6, 25]


@needs_corosync
def test_a_ring_of_two_is_measured_and_leaves_nothing() -> None:
    with Lab("peer", hosts=2) as lab:
        with Cluster(lab, Transport.UDP, realtime=False) as cluster:
            directory = cluster.directory
            assert cluster.throughput(320, seconds=0.2).messages_per_s > 0
            assert len(cluster.latency(64, rate=100, count=20)) == 20
        assert not directory.exists()
        for host in lab.hosts.values():
            assert processes([host.namespace]) == []


def test_bursts_hold_whole_messages() -> None:
    assert [burst_bytes(size) for size in (64, 320, 1600, 8000, 40_000)] == [
        59_968,
        59_840,
        59_200,
        56_000,
        40_000,
    ]
    with pytest.raises(PumpError, match="message_bytes is 60001"):
        burst_bytes(60_001)


def test_pump_figures() -> None:
    result = PumpResult(8_000, 56_000, 1_400, True, 8, 16e6, 0.0)
    assert (result.messages_per_s, result.megabytes_per_s) == (2_000, 16)


@needs_lab
@pytest.mark.parametrize("offload", [True, False])
def test_the_pump_pumps(offload: bool) -> None:
    with Lab("pump", hosts=3) as lab:
        result = pump(lab, 8_000, seconds=0.2, offload=offload, window=2)
    assert result.bytes_per_s > 0
    assert result.loss < 0.5


@needs_lab
def test_the_pump_takes_loss_for_loss_and_goes_on() -> None:
    with Lab("pump", hosts=2) as lab:
        pump(lab, 8_000, seconds=0.1, window=2)  # the hosts know each other: a lost ARP answer costs a second
        lab.loss(2, percent=30)
        result = best(lab, 8_000, seconds=0.3, windows=(2, 4))
    assert result.bytes_per_s > 0
    assert 0.05 < result.loss < 0.7
