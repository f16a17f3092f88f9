"""A node's log: its settings, how it is opened, fails and is opened again, and what is shown of it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
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
from totempole.cli.log_status import warnings
from totempole.cli.status import page
from totempole.corel.commands import ReadBarrier
from totempole.corel.events import BarrierPassed, LogAnswer
from totempole.errors import ConfigurationError
from totempole.log.check import check
from totempole.log.reader import LogReader
from totempole.log.segments import segment_name
from totempole.runtime import log_files, node_log
from totempole.runtime.config import LogSection, NodeConfig
from totempole.runtime.config_text import print_config
from totempole.runtime.metrics import StatusCollector
from totempole.runtime.snapshot import snapshot
from totempole.runtime.status import LOG_ALARMS, read_status
from totempole.runtime.storage import take_lock

ROOT = Path(__file__).resolve().parents[2]
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
        driver.call(lambda: driver._lives.outlive(driver.stack.incarnation + 5))
        wait_until(lambda: log_of(member)["primary"] > before["primary"])
        after = log_of(member)
        assert (after["log"], after["disk"]) == (before["log"], before["disk"])
        assert member.error is None


def test_a_barrier_waits_for_the_log_and_passes(tmp_path: Path) -> None:
    heard: list[LogAnswer] = []
    with a_place() as place, started(node_config(place, 1, tmp_path, log=ALONE)) as (member,):
        driver = member.driver
        log = driver.log
        assert log is not None
        driver.call(lambda: log.listeners.append(heard.append))
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
        flip_a_bit(file)
        with started(config) as (member,):
            wait_until(lambda: log_of(member)["alarms"].get("damaged"))
            wait_until(lambda: log_of(member)["standing"] == "minority")
            assert "cannot be read" in log_of(member)["last_alarm"]
            assert member.running


def flip_a_bit(file: Path) -> None:
    """Amid what is written to it."""
    content = bytearray(file.read_bytes())
    content[len(content.rstrip(b"\0")) // 2] ^= 1
    file.write_bytes(content)


def test_a_damaged_last_segment_is_fetched_again_from_two_good_replicas(tmp_path: Path) -> None:
    section = LogSection(enabled=True, replicas=(1, 2, 3), segment_bytes=65_536)

    def records(config: NodeConfig) -> list[tuple[int, bytes]]:
        return [(record.position, record.payload) for record in LogReader(config.log_directory).records()]

    async def run(one: NodeConfig, two: NodeConfig, three: NodeConfig) -> None:
        def status() -> dict[str, Any]:
            found: dict[str, Any] = read_status(three.directory)["log"]
            return found

        async with totempole.Node(one) as session, totempole.Node(two), session.log("a") as log:
            async with totempole.Node(three):
                for number in range(200):
                    await log.append_many([b"%d-%d" % (number, index) + bytes(40) for index in range(10)])
                wait_until(lambda: len(records(three)) == 2_000)
                disk = status()["disk"]
            file = three.log_directory / segment_name(LogReader(three.log_directory).headers()[-1].number)
            flip_a_bit(file)
            kept = len(records(three))
            assert kept < 2_000
            assert not check(three.log_directory).is_good
            await log.append(b"meanwhile")
            async with totempole.Node(three) as back:
                wait_until(lambda: status()["alarms"].get("damaged"))
                assert "cannot be read" in status()["last_alarm"]
                await asyncio.to_thread(wait_until, lambda: len(records(three)) == 2_001)
                assert records(three) == records(one)
                # It votes again, as a new disk, and takes records.
                wait_until(lambda: not status()["missing"] and status()["standing"] == "primary")
                assert status()["disk"] != disk
                async with back.log("a") as its_log:
                    assert await its_log.append(b"last") == 2_001

    with a_place() as place:
        asyncio.run(run(*(node_config(place, who, tmp_path, log=section) for who in (1, 2, 3))))
        assert records(node_config(place, 3, tmp_path, log=section))[-1] == (2_001, b"last")


def test_damage_that_readers_find_is_an_alarm_of_the_node(tmp_path: Path) -> None:
    """It is in an old segment, which the node itself does not read."""

    async def run(config: NodeConfig) -> None:
        async with totempole.Node(config) as session, session.log("a") as log:
            for _ in range(3):
                with pytest.raises(totempole.LogError, match="no log service can read on"):
                    await read_all(config)
            status = read_status(config.directory)["log"]
            assert status["alarms"] == {"damaged": 1}
            assert "cannot be read" in status["last_alarm"]
            assert "move its log's directory away and start it" in status["last_alarm"]
            assert status["standing"] == "primary"
            await log.append(b"more")

    async def read_all(config: NodeConfig) -> None:
        async for _ in totempole.log_reader(path=config.clients_socket).read(0):
            pass

    with a_place() as place:
        config = node_config(place, 1, tmp_path, log=ALONE)
        fill(config, 20)
        fill(config, 20)
        flip_a_bit(config.log_directory / segment_name(1))
        asyncio.run(run(config))


def test_a_hold_that_never_moves_is_warned_of_and_named_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log, "RETRY_US", 200_000)
    section = replace(ALONE, retention_bytes=100_000)
    payloads = [bytes(1000)] * 50

    async def run(config: NodeConfig) -> None:
        def log_of_node() -> dict[str, Any]:
            found: dict[str, Any] = read_status(config.directory)["log"]
            return found

        async with totempole.Node(config) as session, session.log("a") as log:
            await log.append_many(payloads)
            await log.hold("a reader", 3)
            for _ in range(8):
                await log.append_many(payloads)
            status = log_of_node()
            oldest = status["oldest_hold"]
            assert (oldest["reader"], oldest["position"], oldest["behind"]) == ("a reader", 3, 447)
            on_disk = sum(file.stat().st_size for file in config.log_directory.glob("*.segment"))
            assert 100_000 < oldest["kept_bytes"] < on_disk - 100_000
            warning = "reader a reader holds all from position 3 on, 447 behind"
            assert warning in shown(read_status(config.directory))
            (words,) = [each for each in warnings({"processor": 1, **status}) if warning in each]
            assert words.endswith("totem log hold 'a reader' --release")

            with monkeypatch.context() as full:
                full.setattr(log_files.os, "posix_fallocate", failing_with(errno.ENOSPC))
                for _ in range(4):
                    with suppress(totempole.SessionError):
                        await log.append_many(payloads, timeout=1)
                wait_until(lambda: "disk is full" in log_of_node()["failure"])
                assert "totem log hold NAME --release" in log_of_node()["failure"]
                assert "Reader 'a reader' holds all from position 3 on" in log_of_node()["failure"]
            wait_until(lambda: log_of_node()["standing"] == "primary")

            await log.hold("a reader", -1)
            for _ in range(3):
                await log.append_many(payloads)
            assert log_of_node()["oldest_hold"] is None
            wait_until(lambda: LogReader(config.log_directory).first_position > 50)

    with a_place() as place:
        asyncio.run(run(node_config(place, 1, tmp_path, log=section)))


def failing_with(number: int) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


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
        "! reader spark holds all from position 7 on, 1,227 behind: it keeps 5,000 bytes more than "
        "retention_bytes = 4,000. If nobody needs them: totem log hold spark --release",
        "! the clock of replica 2's host is 31,536,000.0 s ahead of this host's: correct the "
        "one that is wrong",
        "! the order's time is 31,535,000.0 s ahead of this host's clock",
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
    assert found["totempole_log_alarms_total forked"] == 0
    assert found["totempole_log_retention_bytes"] == 4_000
    assert found["totempole_log_clock_ahead_seconds 2"] == 31_536_000
    assert found["totempole_log_time_ahead_seconds"] == 31_535_000
    assert found["totempole_log_hold_behind_records spark"] == 1_227
    assert found["totempole_log_hold_kept_bytes spark"] == 5_000


def test_kinds_of_alarms_are_those_that_are_raised() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src/totempole").rglob("*.py"))
    raised = set(re.findall(r'(?:_alarm|LogAlarm)\(\s*"([\w-]+)"', source))
    assert raised | {"failed"} == set(LOG_ALARMS)
