"""A node's log: its settings, how it is opened, fails and is opened again, and what is shown of it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import a_place, wait_until
from members import PATIENT, Member, node_config, started
from prometheus_client.core import Metric
from rich.console import Console

import totempole
from status_document import healthy, with_log
from totempole.cli.status import page
from totempole.corel.commands import ReadBarrier
from totempole.corel.events import BarrierPassed, LogAnswer
from totempole.errors import ConfigurationError
from totempole.log.reader import LogReader
from totempole.log.segments import segment_name
from totempole.runtime import node_log
from totempole.runtime.config import LogSection, NodeConfig
from totempole.runtime.config_text import print_config
from totempole.runtime.metrics import StatusCollector
from totempole.runtime.snapshot import snapshot
from totempole.runtime.storage import take_lock

ALONE = LogSection(enabled=True, replicas=(1,), segment_bytes=65_536)
TOP = 'processor = 1\ndirectory = "d"\n[network]\naddress = "127.0.0.1"\n[security]\nunsealed = true\n[log]\n'


# Settings


def load(tmp_path: Path, text: str) -> NodeConfig:
    file = tmp_path / "node.toml"
    file.write_text(TOP + text)
    return NodeConfig.load(file)


def test_settings_are_read_and_printed(tmp_path: Path) -> None:
    config = load(tmp_path, "enabled = true\nreplicas = [1, 2, 3]\nweights = [2, 1, 1]\nsync = false\n")
    assert config.log.replicas == (1, 2, 3)
    assert config.log_directory == tmp_path / "d" / "log"
    protocol = config.log.protocol
    assert protocol is not None
    assert protocol.weights == (2, 1, 1)
    file = tmp_path / "printed.toml"
    file.write_text(print_config(config))
    assert NodeConfig.load(file) == config


def test_a_node_has_no_log_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert load(tmp_path, "").log.protocol is None
    assert load(tmp_path, "replicas = [2, 3]\n").log.protocol is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replicas = [1, 2]\n", "processor 1, this node, is one of them; set enabled = true"),
        ("enabled = true\nreplicas = [1, 1]\n", "name each processor once"),
        ("enabled = true\nreplicas = [1, 0]\n", "give a list of whole numbers from 1"),
        ("enabled = true\nreplicas = 1\n", "give a list of whole numbers from 1"),
        ("enabled = true\nreplicas = [1, 2]\nweights = [1]\n", "give one for each of 2 replicas"),
        ('enabled = true\nrule = "luck"\n', "give one of majority, dynamic"),
        ("enabled = true\nsegment_bytes = 10\n", "give a whole number from 65536"),
        ('level = "info"\n', r"\[log\] level = .*: it belongs in .*\[logging\]"),
        ("enabled = true\n[groups]\nmessage_bytes_max = 100000\n", "message_bytes_max = 100000: .*log"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, text)


# Life


def log_of(member: Member) -> dict[str, Any]:
    found: dict[str, Any] = snapshot(member.driver)["log"]
    return found


def test_a_log_that_fails_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_log, "RETRY_US", 200_000)
    directory = tmp_path / "elsewhere"
    directory.write_text("in the way")
    with a_place() as place:
        config = node_config(
            place, 1, tmp_path, log=LogSection(enabled=True, replicas=(1,), directory=directory)
        )
        with started(config) as (member,):
            wait_until(lambda: log_of(member)["failure"])
            assert log_of(member)["standing"] == "closed"
            assert len(member.logged("the log cannot be opened")) == 1
            directory.unlink()
            wait_until(lambda: log_of(member)["standing"] == "primary")
            assert log_of(member)["failure"] == ""
            assert member.logged("the log is open again")
            log = member.driver.log
            assert log is not None
            opening = log._opening
            assert opening is not None
            opening.failed(OSError("the disk is gone"))  # type: ignore[arg-type]
            wait_until(lambda: member.logged("the log has failed", "the disk is gone"))
            wait_until(lambda: log_of(member)["standing"] == "primary")
            assert log_of(member)["alarms"] == {"failed": 2}


def test_a_new_life_opens_the_log_again(tmp_path: Path) -> None:
    with a_place() as place, started(node_config(place, 1, tmp_path, log=ALONE)) as (member,):
        wait_until(lambda: log_of(member)["standing"] == "primary")
        before = log_of(member)
        driver = member.driver
        driver.call(lambda: driver._live_again(driver.stack.incarnation + 5))
        wait_until(lambda: log_of(member)["primary"] > before["primary"])
        after = log_of(member)
        assert (after["log"], after["disk"]) == (before["log"], before["disk"])
        assert member.error is None


def test_a_barrier_waits_for_the_log_and_passes(tmp_path: Path) -> None:
    heard: list[LogAnswer] = []
    with a_place() as place, started(node_config(place, 1, tmp_path, log=ALONE)) as (member,):
        driver = member.driver
        driver.call(lambda: driver.log_listeners.append(heard.append))
        driver.call(lambda: driver.feed(ReadBarrier(node_log.OWN_PROCESS, 7)))
        wait_until(lambda: heard)
        shown = log_of(member)
        assert heard == [BarrierPassed(node_log.OWN_PROCESS, 7, shown["green_runs"])]
        assert shown["standing"] == "primary"


def test_an_embedded_node_has_a_log(tmp_path: Path) -> None:
    async def first(config: NodeConfig) -> str:
        async with totempole.Node(config) as session, session.log("a") as log:
            return str(await log.append(b"a", key="a", until="red"))

    async def second(config: NodeConfig, receipt: str) -> None:
        async with totempole.Node(config) as session, session.log("a") as log:
            assert await log.receipt(receipt).position(timeout=30) == 0
            assert await log.append_many([b"a", b"b"], ["a", "b"]) == [0, 1]

    with a_place() as place:
        config = node_config(place, 1, tmp_path, log=ALONE)
        asyncio.run(second(config, asyncio.run(first(config))))


def fill(config: NodeConfig, count: int) -> None:
    async def run() -> None:
        async with totempole.Node(config) as session, session.log("a") as log:
            for number in range(count):
                await log.append_many([b"%d" % number] * 10)

    asyncio.run(run())


def test_a_log_of_another_node_or_cluster_is_refused_and_left_alone(tmp_path: Path) -> None:
    with a_place() as place:
        mine = replace(ALONE, directory=tmp_path / "mine")
        fill(node_config(place, 1, tmp_path, log=mine), 2)
        before = {file.name: file.read_bytes() for file in (tmp_path / "mine").glob("*.segment")}
        assert before
        theirs = replace(mine, replicas=(2,))
        with started(node_config(place, 2, tmp_path, log=theirs)) as (member,):
            wait_until(lambda: "holds the log of processor = 1" in log_of(member)["failure"])
            assert member.running
        ring = replace(PATIENT, cluster_id=9)
        with started(node_config(place, 1, tmp_path, log=mine, ring=ring, named="other")) as (member,):
            wait_until(lambda: "holds the log of cluster_id" in log_of(member)["failure"])
            assert member.running
        assert {file.name: file.read_bytes() for file in (tmp_path / "mine").glob("*.segment")} == before


def test_a_directory_in_use_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_log, "RETRY_US", 200_000)
    with a_place() as place:
        config = node_config(place, 1, tmp_path, log=ALONE)
        (tmp_path / "node1").mkdir()
        (tmp_path / "node1" / "log").mkdir()
        lock = take_lock(tmp_path / "node1" / "log")
        with started(config) as (member,):
            wait_until(lambda: "in use" in log_of(member)["failure"])
            os.close(lock)
            wait_until(lambda: log_of(member)["standing"] == "primary")


def test_flipped_bits_amid_the_log_are_an_alarm(tmp_path: Path) -> None:
    """The disk has forgotten something: it does not vote as what it was, and its node goes on."""
    with a_place() as place:
        config = node_config(place, 1, tmp_path, log=ALONE)
        fill(config, 20)
        reader = LogReader(config.log_directory)
        file = config.log_directory / segment_name(reader.headers()[-1].number)
        content = bytearray(file.read_bytes())
        content[len(content.rstrip(b"\0")) // 2] ^= 1
        file.write_bytes(content)
        with started(config) as (member,):
            wait_until(lambda: log_of(member)["alarms"].get("damaged"))
            wait_until(lambda: log_of(member)["standing"] == "minority")
            assert "cannot be read" in log_of(member)["last_alarm"]
            assert member.running


# What is shown


def shown(document: dict[str, Any]) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(page(document))
    return captured.get()


def test_the_page_of_a_status() -> None:
    assert "replicas" not in shown(healthy())
    text = " ".join(shown(with_log()).split())
    for words in (
        "primary, primary 4, members 1 2; position 1,234, 77 runs green; 2 yellow of 300 bytes; "
        "5 red of 6,000 bytes",
        "1 on disk 0000000000000001, 2 on disk 0000000000000002 with weight 2, "
        "3 on disk 0000000000000003 with weight 3 (missing)",
        "! the log lacks replicas: 3",
        "! the log's last alarm: replica 3 has an old disk",
    ):
        assert words in text


def test_the_page_warns() -> None:
    document = with_log()
    document["log"] |= {"failure": "the disk is full", "replicas": []}
    text = shown(document)
    assert "! the log is closed: the disk is full" in text
    assert "not founded yet" in text
    document["log"] |= {"failure": "", "standing": "minority"}
    assert "! the log waits for a majority of its replicas" in shown(document)


def test_metrics() -> None:
    def values(document: dict[str, Any]) -> dict[str, float]:
        metrics: list[Metric] = list(StatusCollector(lambda: document).collect())
        return {
            sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
            for metric in metrics
            for sample in metric.samples
        }

    assert not [name for name in values(healthy()) if "_log_" in name]
    found = values(with_log())
    assert found["totempole_log_position"] == 1_234
    assert found["totempole_log_red_bytes"] == 6_000
    assert found["totempole_log_missing"] == 1
    assert found["totempole_log_failed"] == 0
    assert found["totempole_log_standing primary"] == 1
    assert found["totempole_log_standing minority"] == 0
    assert found["totempole_log_alarms_total rolled-back"] == 1
