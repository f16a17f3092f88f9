"""A host whose clock is ahead: who is told, and what becomes of the order's time and of leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from loopback import a_place, wait_until
from members import PATIENT, node_config

import totempole
from totempole.cli.log_status import warnings
from totempole.log.reader import LogReader
from totempole.objects.commands import Refused
from totempole.objects.locks import Election, Lock
from totempole.runtime.config import LogSection, NodeConfig
from totempole.runtime.driver import Driver
from totempole.runtime.log_clocks import CLOCK_AHEAD_US_MAX, Clocks
from totempole.runtime.status import read_status

NOW_US = 1_700_000_000_000_000
FAR_US = 365 * 86_400 * 1_000_000
BOUND_US = CLOCK_AHEAD_US_MAX
HERE = 1


# What is an alarm


def told(clocks: Clocks, times: dict[int, int], order_us: int = 0, now_us: int = NOW_US) -> list[int]:
    alarms = clocks.compare(HERE, times, order_us, now_us)
    assert {alarm.kind for alarm in alarms} <= {"clock"}
    return [alarm.processor for alarm in alarms]


def test_a_clock_that_is_ahead_is_told_once_until_it_is_corrected() -> None:
    clocks = Clocks()
    assert told(clocks, {2: NOW_US + BOUND_US}) == []
    (alarm,) = clocks.compare(HERE, {2: NOW_US + FAR_US, 3: NOW_US}, 0, NOW_US)
    assert (alarm.kind, alarm.processor) == ("clock", 2)
    assert "the clock of replica 2's host is 31,536,000.0 s ahead of this host's" in alarm.text
    assert clocks.document(NOW_US + FAR_US, NOW_US) == {
        "ahead_us": {"2": FAR_US},
        "order_ahead_us": FAR_US,
        "ahead_us_max": CLOCK_AHEAD_US_MAX,
    }
    assert told(clocks, {2: NOW_US + FAR_US + 1}) == []
    assert told(clocks, {}, now_us=NOW_US + 2 * FAR_US) == []
    assert told(clocks, {2: NOW_US - 5}) == []
    assert clocks.document(0, NOW_US)["ahead_us"] == {}
    assert told(clocks, {2: NOW_US + FAR_US, 3: NOW_US + BOUND_US + 1}) == [2, 3]


def test_runs_that_come_late_are_no_alarm() -> None:
    assert told(Clocks(), {2: NOW_US - FAR_US, 3: 0}) == []


def test_an_order_that_was_ahead_before_the_start_is_told_once() -> None:
    clocks = Clocks()
    assert told(clocks, {}, NOW_US + FAR_US) == [HERE]
    assert told(clocks, {}, NOW_US + FAR_US) == []
    assert told(clocks, {}, NOW_US) == []
    assert told(clocks, {}, NOW_US + FAR_US) == [HERE]


def test_this_hosts_own_clock_may_have_been_set_back() -> None:
    (alarm,) = Clocks().compare(HERE, {HERE: NOW_US + FAR_US}, NOW_US + FAR_US, NOW_US)
    assert alarm.text.startswith("this host's clock was 31,536,000.0 s ahead of what it is now")


# Nodes


@pytest.fixture
def wrong_clocks(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """By processor: how far its host's clock is ahead. The kernel has one clock for all of them."""
    ahead_us: dict[int, int] = {}
    right = Driver.wall_us
    monkeypatch.setattr(
        Driver, "wall_us", lambda driver: right(driver) + ahead_us.get(driver.config.processor, 0)
    )
    return ahead_us


@pytest.fixture
def configs(tmp_path: Path) -> Iterator[list[NodeConfig]]:
    section = LogSection(enabled=True, replicas=(1, 2, 3))
    with ExitStack() as stack:
        place = stack.enter_context(a_place())
        yield [node_config(place, number, tmp_path, log=section, ring=PATIENT) for number in (1, 2, 3)]


def status_of(config: NodeConfig) -> dict[str, Any]:
    found: dict[str, Any] = read_status(config.directory)["log"]
    return {"processor": config.processor, **found}


def status_once_it_is_green(config: NodeConfig) -> dict[str, Any]:
    """Of a node that has been told of a clock: a run comes first, and is ordered a little later."""
    wait_until(lambda: status_of(config)["alarms"] and status_of(config)["clocks"]["order_ahead_us"])
    return status_of(config)


def times_of(config: NodeConfig, count: int) -> list[int]:
    """Of the records of log a: the green line is written a little later."""

    def times() -> list[int]:
        return [record.time_us for record in LogReader(config.log_directory).records(log="a")]

    wait_until(lambda: len(times()) == count)
    return times()


def test_a_host_whose_clock_is_a_year_ahead_is_named_and_leases_do_not_end(
    configs: list[NodeConfig], wrong_clocks: dict[int, int]
) -> None:
    async def run() -> None:
        async with (
            totempole.Node(configs[0]) as one,
            totempole.Node(configs[1]),
            totempole.Node(configs[2]) as three,
            one.replica(Lock, "locks") as locks,
            one.replica(Election, "election") as election,
            three.log("a") as ahead,
        ):
            await ahead.append(b"before")
            held_before = await locks.call(Lock.acquire, "early", "ann", 600.0)
            assert all(not status_of(config)["alarms"].get("clock") for config in configs)

            wrong_clocks[3] = FAR_US
            await ahead.append(b"from the future")
            for config in configs[:2]:
                status = await asyncio.to_thread(status_once_it_is_green, config)
                assert status["alarms"] == {"clock": 1}
                assert set(status["clocks"]["ahead_us"]) == {"3"}
                assert "the clock of replica 3's host is 31,53" in status["last_alarm"]
                texts = list(warnings(status))
                assert any("the clock of replica 3's host is 31,53" in text for text in texts)
                assert any("the order's time is 31,53" in text for text in texts)
            assert not status_of(configs[2])["alarms"].get("clock")

            # A lease that was running has ended at once.
            with pytest.raises(Refused):
                await locks.call(Lock.renew, "early", held_before, 1.0)

            # The clock is corrected: the order's time stands still, and no lease ends.
            wrong_clocks.clear()
            await ahead.append(b"corrected")
            before, future, corrected = await asyncio.to_thread(times_of, configs[0], 3)
            assert future - before > FAR_US * 0.99
            assert corrected == future
            await locks.call(Lock.acquire, "printer", "ann", 0.05)
            await election.call(Election.campaign, "ann", 0.05)
            await asyncio.sleep(0.3)
            with pytest.raises(Refused, match=r"printer is held by ann for another 0\.050 s"):
                await locks.call(Lock.acquire, "printer", "bob", 1.0)
            assert (await election.call(Election.campaign, "bob", 1.0)).owner == "ann"

            # The way out: anybody can release what a program that is gone has held.
            lease = await locks.read(Lock.holder, "printer")
            assert lease is not None
            await locks.call(Lock.release, "printer", lease.token)
            await locks.call(Lock.acquire, "printer", "bob", 1.0)
            await election.call(Election.resign, "ann")
            assert (await election.call(Election.campaign, "bob", 1.0)).owner == "bob"

            for config in configs:
                await asyncio.to_thread(
                    wait_until, lambda config=config: not status_of(config)["clocks"]["ahead_us"]
                )
                assert status_of(config)["alarms"].get("clock", 0) <= 2
                assert status_of(config)["clocks"]["order_ahead_us"] > FAR_US * 0.99

    asyncio.run(run())
