"""`totempole.Primary` as programs use it: on simulated nodes with their true daemons and sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import daemon

import totempole
from sweeps import daily, first_of
from totempole import NotPrimary, Primary, Unknown
from totempole.errors import SessionError
from totempole.testing import Cluster, Crashed, Program, cluster, run


class Store:
    """A key-value store. A command is a key and its new value, or a key to be read."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, command: bytes) -> str | None:
        key, *value = json.loads(command)
        if value:
            self.values[key] = value[0]
        return self.values.get(key)

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, snapshot: bytes) -> None:
        self.values = json.loads(snapshot)


Stores = dict[int, Program[Primary[Store]]]


@asynccontextmanager
async def store() -> AsyncIterator[Primary[Store]]:
    async with totempole.connect() as session, Primary(session, "kv", Store, expected=3) as primary:
        yield primary


async def started(c: Cluster) -> Stores:
    programs: Stores = {node: await c.start(node, store) for node in c.nodes}
    await asyncio.gather(*(program.run(Primary.primary) for program in programs.values()))
    return programs


def put(key: str, value: str) -> bytes:
    return json.dumps([key, value]).encode()


def get(key: str) -> bytes:
    return json.dumps([key]).encode()


def test_a_store_that_is_right_through_partition_crash_and_restart() -> None:
    async def test() -> None:
        async with cluster(3, seed=5) as c:
            stores = await started(c)
            assert await stores[1].run(Primary.do, put("a", "1")) == "1"
            c.part([1], [2, 3])
            await c.settled()
            assert await stores[2].run(Primary.do, put("a", "2")) == "2"
            with pytest.raises(NotPrimary, match="1 of 3 nodes are here: no majority"):
                await stores[1].run(Primary.do, put("a", "minority"))
            assert stores[1].value.machine.values == {"a": "1"}, "and it can be told from an old state"
            assert not stores[1].value.is_primary
            c.heal()
            await c.settled()
            assert await stores[1].run(Primary.do, get("a")) == "2"
            c.crash(3)
            await c.settled()
            assert await stores[1].run(Primary.do, put("b", "3")) == "3"
            c.restart(3)
            await c.settled()
            await stores[3].run(Primary.primary)
            assert await stores[3].run(Primary.do, get("b")) == "3"
            assert stores[3].value.machine.values == {"a": "2", "b": "3"}
            assert stores[3].value.is_certain

    run(test)


def test_a_program_whose_daemon_crashes_gets_the_state_again() -> None:
    async def test() -> None:
        async with cluster(3, seed=6) as c:
            stores = await started(c)
            await stores[1].run(Primary.do, put("a", "1"))
            c.crash_daemon(1)
            waiting = asyncio.ensure_future(stores[1].run(Primary.do, put("a", "lost"), 1.0))
            with pytest.raises((NotPrimary, Unknown)):
                await waiting
            assert await stores[2].run(Primary.do, put("a", "2")) == "2"
            c.restart(1)
            await c.settled()
            await stores[1].run(Primary.primary)
            assert await stores[1].run(Primary.do, get("a")) == "2"

    run(test)


@pytest.mark.parametrize("seed", [*first_of(range(4)), *daily(range(4, 40), 0)])
def test_a_store_in_a_storm_loses_nothing_that_it_has_acknowledged(seed: int) -> None:
    async def test() -> None:
        async with cluster(3, seed=seed) as c:
            stores = await started(c)
            kept: dict[str, str] = {}
            certain = [True]

            async def writes(node: int) -> None:
                for number in range(30):
                    key, value = f"{node}.{number}", str(number)
                    try:
                        await stores[node].run(Primary.do, put(key, value), 5.0)
                        kept[key] = value
                    except (NotPrimary, Unknown, Crashed, SessionError):
                        await c.sleep(0.3)
                    certain[0] = certain[0] and stores[node].value.is_certain
                    await c.sleep(0.05)

            async def reads(node: int) -> None:
                """A session may not be back yet, when all the rest is."""
                while True:
                    with suppress(NotPrimary, Unknown):
                        await stores[node].run(Primary.do, get("x"), 5.0)
                        return
                    await c.sleep(0.3)

            writing = [asyncio.ensure_future(writes(node)) for node in c.nodes]
            await c.storm(5.0)
            await asyncio.gather(*writing)
            c.heal()
            await c.settled()
            await asyncio.gather(*(program.run(Primary.primary) for program in stores.values()))
            await asyncio.gather(*(reads(node) for node in c.nodes))
            states = [program.value.machine.values for program in stores.values()]
            assert states[0] == states[1] == states[2]
            assert kept
            if certain[0] and all(program.value.is_certain for program in stores.values()):
                assert kept.items() <= states[0].items()

    run(test)


def test_what_a_command_raises_and_a_deadline(tmp_path: Path) -> None:
    async def main() -> None:
        async with totempole.connect(it.path) as session:
            async with Primary(session, "kv", Store, expected=1) as alone:
                with pytest.raises(json.JSONDecodeError):
                    await alone.do(b"no json")
                with pytest.raises(TypeError, match="bytes"):
                    await alone.do("text")  # type: ignore[arg-type]
                assert await alone.do(put("a", "1"), timeout=30.0) == "1"
            with pytest.raises(SessionError, match="closed"):
                await alone.do(b"x")
            async with Primary(session, "two", Store, expected=2) as waits:
                with pytest.raises(NotPrimary, match="1 of 2 nodes"):
                    await waits.do(put("a", "1"))
                assert waits.problem
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waits.primary(), 0.01)

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_a_timeout_of_the_machine_is_not_one_of_the_call(tmp_path: Path) -> None:
    class Late(Store):
        def apply(self, command: bytes) -> Any:
            raise TimeoutError("mine")

    async def main() -> None:
        async with totempole.connect(it.path) as session, Primary(session, "g", Late, expected=1) as late:
            with pytest.raises(TimeoutError, match="mine"):
                await late.do(b"x", timeout=30.0)
            await late.primary()
            waiting = asyncio.ensure_future(late.do(b"y"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_a_state_that_cannot_be_given_ends_the_member_and_says_why() -> None:
    class Broken(Store):
        def snapshot(self) -> bytes:
            raise OSError("no state")

    @asynccontextmanager
    async def broken() -> AsyncIterator[Primary[Broken]]:
        async with totempole.connect() as session, Primary(session, "kv", Broken, expected=3) as primary:
            yield primary

    async def test() -> None:
        async with cluster(3, seed=8) as c:
            stores = {node: await c.start(node, broken) for node in c.nodes}
            await asyncio.gather(*(program.run(Primary.primary) for program in stores.values()))
            c.crash(3)
            await c.settled()
            c.restart(3)
            await c.settled()
            await c.sleep(2)
            with pytest.raises(SessionError, match="OSError: no state"):
                await stores[1].run(Primary.do, put("a", "1"))

    run(test)
