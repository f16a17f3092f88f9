"""A node embedded in a program, on a thread and in a process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from loopback import LIMIT_S, Place, a_place, wait_until
from members import node_config

import totempole
from totempole import Group, Messages, Node, Session, State, View, blocking
from totempole.cli import main
from totempole.errors import ConfigurationError, NetworkError, SessionError, StorageError, TotemError
from totempole.runtime import driver, keyring
from totempole.runtime.admission import Admission
from totempole.runtime.config import LoggingConfig, MetricsConfig, NodeConfig, SecurityConfig
from totempole.runtime.config_text import print_config
from totempole.runtime.driver import Driver
from totempole.runtime.embedding import Placement, ProcessNode, ThreadNode
from totempole.runtime.storage import Storage
from totempole.types import Service

EVERY_PLACEMENT = ["thread", "process"]
PLACEMENTS = ["thread", pytest.param("process", marks=pytest.mark.nodes)]


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


ALONE_US = driver.ALONE_US


@pytest.fixture(autouse=True)
def soon_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes on threads of these tests do not wait a second for others."""
    monkeypatch.setattr(driver, "ALONE_US", 50_000)


def run(program: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await program

    asyncio.run(limited())


@asynccontextmanager
async def entered(*nodes: Node) -> AsyncIterator[list[Session]]:
    """Started at the same time."""
    sessions = await asyncio.gather(*(node.__aenter__() for node in nodes))
    try:
        yield sessions
    finally:
        await asyncio.gather(*(node.__aexit__(None, None, None) for node in nodes))


async def members_of(group: Group, count: int) -> None:
    async for event in group:
        if isinstance(event, View) and event.kind == "regular" and len(event.members) == count:
            return


async def messages_of(group: Group, count: int) -> list[bytes]:
    found: list[bytes] = []
    async for event in group:
        if isinstance(event, Messages):
            found += event.payloads
        if len(found) >= count:
            break
    return found


async def state_of(group: Group) -> bytes | None:
    async for event in group:
        if isinstance(event, State):
            return event.data
    raise AssertionError("no state")


async def serve(group: Group) -> None:
    async for _ in group:
        pass


@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_a_ring_of_embedded_nodes(place: Place, tmp_path: Path, placement: Placement) -> None:
    nodes = [Node(node_config(place, me, tmp_path), placement=placement) for me in (1, 2)]

    async def program() -> None:
        async with entered(*nodes) as (one, two), one.join("g") as at_one, two.join("g") as at_two:
            await asyncio.gather(members_of(at_one, 2), members_of(at_two, 2))
            for number in range(100):
                group = (at_one, at_two)[number % 2]
                await group.multicast_many([b"%d" % number, b"", bytes([number]) * 300])
            await at_one.multicast(b"safe", Service.SAFE)
            heard = [await messages_of(group, 301) for group in (at_one, at_two)]
            assert heard[0] == heard[1]
            numbers = [int(message) for message in heard[0] if message.isdigit() and len(message) < 3]
            for first in (0, 1):
                assert [each for each in numbers if each % 2 == first] == list(range(first, 100, 2))

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_was_multicast_is_delivered_before_leaving(
    place: Place, tmp_path: Path, placement: Placement
) -> None:
    """The block ends right behind the last multicast."""
    one, two = (node_config(place, me, tmp_path) for me in (1, 2))

    async def program() -> None:
        async with Node(two) as session, session.join("g") as hearing:
            async with Node(one, placement=placement) as leaving, leaving.join("g") as group:
                await members_of(group, 2)
                for number in range(60):
                    await group.multicast(b"%d" % number + bytes(30_000))
            heard = await messages_of(hearing, 60)
            assert [int(message.rstrip(b"\0")) for message in heard] == list(range(60))

    run(program())


# State


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_one_of_three_that_starts_again_gets_the_state_of_the_others(
    place: Place, tmp_path: Path, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins its groups when it has met the others, not before: alone it would begin with nothing."""
    monkeypatch.setattr(driver, "ALONE_US", ALONE_US)
    configs = [node_config(place, me, tmp_path) for me in (1, 2, 3)]

    async def restarted() -> bytes | None:
        async with (
            Node(configs[2], placement=placement) as session,
            session.join("g", state=lambda: b"afresh", want_state=True) as group,
        ):
            return await state_of(group)

    async def program() -> None:
        async with Node(configs[0]) as one, one.join("g", state=lambda: b"what was") as first:
            serving = [asyncio.create_task(serve(first))]
            async with Node(configs[1]) as two, two.join("g", state=lambda: b"what was") as second:
                serving.append(asyncio.create_task(serve(second)))
                for _ in range(2):
                    assert await restarted() == b"what was"
                for task in serving:
                    task.cancel()

    run(program())


# What a node shows


def one_node(place: Place, tmp_path: Path, **settings: Any) -> tuple[NodeConfig, Path]:
    config = node_config(place, 1, tmp_path, **settings)
    file = tmp_path / "node.toml"
    file.write_text(print_config(config))
    return config, file


@pytest.mark.parametrize("placement", EVERY_PLACEMENT)
def test_an_embedded_node_is_seen_as_a_daemon_is(
    place: Place, tmp_path: Path, placement: Placement, capsys: pytest.CaptureFixture[str]
) -> None:
    """`totem status`, `totem groups`, `totem send` and Prometheus; the program hears what was sent."""
    config, file = one_node(place, tmp_path, metrics=MetricsConfig(port=place.port + 4))

    async def totem(*words: str) -> str:
        assert await asyncio.to_thread(main, [words[0], "--config", str(file), *words[1:]]) == 0
        return capsys.readouterr().out

    async def program() -> None:
        node = Node(file, placement=placement)
        async with node as session, session.join("orders") as group:
            assert "operational" in await totem("status")
            assert "orders" in await totem("groups")
            await totem("send", "orders", "buy 10")
            assert await messages_of(group, 1) == [b"buy 10"]
            url = f"http://127.0.0.1:{config.metrics.port}/metrics"
            metrics = await asyncio.to_thread(lambda: urlopen(url, timeout=LIMIT_S).read().decode())
            assert "totempole_ring_members 1.0" in metrics
            document = await node.status()
            assert (document["processor"], document["members"]) == (1, [1])
            assert json.loads(json.dumps(document)) == document
        assert not config.clients_socket.exists()
        assert not (config.directory / "status.sock").exists()
        with pytest.raises(TotemError, match="no node runs in this directory"):
            await node.status()

    run(program())


def test_other_programs_connect_to_an_embedded_node(place: Place, tmp_path: Path) -> None:
    config, file = one_node(place, tmp_path)

    async def program() -> None:
        async with (
            Node(str(file)) as session,
            session.join("g") as group,
            totempole.connect(config.clients_socket) as other,
        ):
            await other.multicast("g", b"from outside")
            assert await messages_of(group, 1) == [b"from outside"]
            assert list(await other.groups()) == ["g"]

    run(program())


def test_a_node_that_lets_nobody_in_serves_its_own_program(place: Place, tmp_path: Path) -> None:
    config, _ = one_node(place, tmp_path, clients=totempole.ClientsConfig(enabled=False))

    async def program() -> None:
        async with Node(config) as session, session.join("g") as group:
            await group.multicast(b"x")
            assert await messages_of(group, 1) == [b"x"]
            assert not config.clients_socket.exists()

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_metrics_port_that_is_taken(place: Place, tmp_path: Path, placement: Placement) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = node_config(place, 1, tmp_path, metrics=MetricsConfig(port=port))

        async def program() -> None:
            with pytest.raises(TotemError, match=rf"\[metrics\] address = 127.0.0.1, port = {port}"):
                await Node(config, placement=placement).__aenter__()

        run(program())
    reopened(config)


def reopened(config: NodeConfig) -> None:
    """Its lock is given back: nothing of it is left."""

    def free() -> bool:
        try:
            Storage.open(config.directory, 1, 1).close()
        except StorageError:
            return False
        return True

    wait_until(free, "the node is still there")


# What is given to a node


def test_what_is_not_used_is_refused(place: Place, tmp_path: Path) -> None:
    config = node_config(place, 1, tmp_path)
    with pytest.raises(ConfigurationError, match="placement = 'fibre': give thread or process"):
        Node(config, placement="fibre")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="logger: a node in a process of its own logs to standard"):
        Node(config, placement="process", logger=logging.getLogger("mine"))
    talkative, file = one_node(place, tmp_path, logging=LoggingConfig(level="debug"))
    for given in (talkative, file):
        with pytest.raises(ConfigurationError, match=r'\[logging\] level = "debug": .*: leave it out'):
            Node(given)
    Node(talkative, placement="process")


def test_a_configuration_or_the_name_of_its_file(place: Place, tmp_path: Path) -> None:
    _, file = one_node(place, tmp_path)
    Node(file)
    Node(str(file))
    with pytest.raises(ConfigurationError, match=r"no\.toml: no such file"):
        Node("no.toml")
    with pytest.raises(ConfigurationError, match="a node wants a NodeConfig, or the name of a file"):
        Node(5)  # type: ignore[arg-type]


def test_a_node_is_used_inside_its_block_and_once(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        node = Node(node_config(place, 1, tmp_path))
        for attempt in (node.status(), node.reload_keys(), node.__aexit__(None, None, None)):
            with pytest.raises(SessionError, match="use it inside `async with`"):
                await attempt
        async with node:
            with pytest.raises(SessionError, match="a node is entered once"):
                await node.__aenter__()

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_keys_are_read_again(place: Place, tmp_path: Path, placement: Placement) -> None:
    file = tmp_path / "ring.key"
    keyring.create(file)
    configs = [node_config(place, me, tmp_path, security=SecurityConfig(key_file=file)) for me in (1, 2)]
    nodes = [Node(config, placement=placement) for config in configs]

    async def program() -> None:
        async with entered(*nodes) as (one, two), one.join("g") as group, two.join("g"):
            await members_of(group, 2)
            for step in (keyring.add, keyring.activate, keyring.retire):
                step(file)
                for node in nodes:
                    await node.reload_keys()
                for session in (one, two):
                    await session.multicast("g", b"under way")
            assert (await nodes[0].status())["key_ids"] == [2]
            await messages_of(group, 6)
            file.chmod(0o644)
            with pytest.raises(ConfigurationError, match=r"ring\.key"):
                await nodes[0].reload_keys()
            assert (await nodes[0].status())["dropped"] == {}
            file.chmod(0o600)
        with pytest.raises(TotemError, match="no node runs"):
            await nodes[0].reload_keys()

    run(program())


def test_an_unsealed_node_has_no_keys_to_read(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        node = Node(node_config(place, 1, tmp_path))
        async with node:
            with pytest.raises(ConfigurationError, match="unsealed"):
                await node.reload_keys()

    run(program())


# Programs that give up


def test_a_program_that_gives_up_entering_leaves_no_node_behind(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout around `async with`: nobody else can stop the node."""
    monkeypatch.setattr(Admission, "open", lambda self: None)  # so that it never lets anybody in
    config = node_config(place, 1, tmp_path)

    async def program() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await Node(config).__aenter__()

    run(program())
    reopened(config)
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "totempole-1"])


def test_giving_up_while_the_node_opens(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that opens it cannot be stopped, and finds nobody when it is done."""
    opened, go_on = threading.Event(), threading.Event()
    open_all = Driver._open_all

    def slowly(self: Driver, *arguments: Any) -> None:
        open_all(self, *arguments)
        opened.set()
        assert go_on.wait(LIMIT_S)

    monkeypatch.setattr(Driver, "_open_all", slowly)
    config = node_config(place, 1, tmp_path)

    async def program() -> None:
        entering = asyncio.create_task(Node(config).__aenter__())
        await asyncio.to_thread(opened.wait, LIMIT_S)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        go_on.set()

    run(program())
    reopened(config)


@pytest.mark.parametrize("kind", [ThreadNode, ProcessNode])
def test_a_node_that_was_given_up_is_not_started(place: Place, tmp_path: Path, kind: Any) -> None:
    config = node_config(place, 1, tmp_path)
    node = kind(config, logging.getLogger("totempole")) if kind is ThreadNode else kind(config)
    node.leave()
    ours, theirs = socket.socketpair()
    node.start(theirs)
    with ours:
        assert ours.recv(1) == b""
    reopened(config)


def test_giving_up_before_the_node_has_settled_ends_the_session(place: Place, tmp_path: Path) -> None:
    node = ThreadNode(node_config(place, 1, tmp_path), logging.getLogger("totempole"))

    async def program() -> None:
        ours, theirs = socket.socketpair()
        node.start(theirs)
        node.leave()
        with pytest.raises(SessionError, match="the embedded node refused the session: the node leaves the"):
            await Session.over(ours).__aenter__()

    run(program())
    node.wait()


# Nodes that fail


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_that_cannot_open_says_so_on_entering(
    place: Place, tmp_path: Path, placement: Placement
) -> None:
    taken = (NetworkError, StorageError, SessionError)

    async def program() -> None:
        async with Node(node_config(place, 1, tmp_path)):
            for named, words in (
                ("other", f"UDP port {place.port}: Address already"),
                ("node1", "in use by"),
            ):
                second = Node(node_config(place, 1, tmp_path, named=named), placement=placement)
                with pytest.raises(taken, match=words):
                    await second.__aenter__()

    run(program())


def test_a_node_that_has_to_stop_tells_why(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        node = Node(node_config(place, 1, tmp_path))
        async with node as session, session.join("g") as group:
            its_driver = node._embedding._service._driver  # type: ignore[attr-defined]
            its_driver.call(lambda: its_driver.fail(StorageError("the disk is gone")))
            with pytest.raises(SessionError, match="the node had to stop: the disk is gone"):
                await serve(group)

    run(program())


def test_a_node_that_stops_before_it_lets_its_program_in_tells_why(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admission, "open", lambda self: self._fail(StorageError("the disk is gone")))

    async def program() -> None:
        with pytest.raises(SessionError, match=r"the embedded node refused .* had to stop: the disk is gone"):
            await Node(node_config(place, 1, tmp_path)).__aenter__()

    run(program())


def test_a_node_that_breaks_does_not_pass_for_one_that_left(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the node, or in the kernel's answer, is no graceful leave."""

    def breaks(self: Driver) -> None:
        raise RuntimeError("broken")

    async def program() -> None:
        async with Node(node_config(place, 1, tmp_path)) as session, session.join("g") as group:
            monkeypatch.setattr(Driver, "_turn", breaks)
            with pytest.raises(SessionError, match="the node broke: RuntimeError: broken"):
                await serve(group)

    run(program())


@pytest.mark.nodes
def test_a_process_that_is_killed_is_an_error(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        node = Node(node_config(place, 1, tmp_path), placement="process")
        async with node as session, session.join("g") as group:
            os.kill(node._embedding.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            with pytest.raises(SessionError, match="the session with the embedded node is over"):
                await serve(group)

    run(program())


@pytest.mark.nodes
def test_a_process_leaves_nothing_behind(place: Place, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    node = Node(node_config(place, 1, tmp_path), placement="process")

    async def program() -> None:
        async with node:
            pass

    run(program())
    assert node._embedding._process.returncode == 0  # type: ignore[attr-defined]
    left = [thread.name for thread in set(threading.enumerate()) - before if "totempole" in thread.name]
    assert not left


# Without asyncio


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_without_asyncio(place: Place, tmp_path: Path, placement: Placement) -> None:
    config, file = one_node(place, tmp_path)
    node = blocking.Node(file, placement=placement)
    with pytest.raises(SessionError, match="not running"):
        node.status()
    with node as session, session.join("g") as group:
        group.multicast(b"buy 10")
        assert next(list(event.payloads) for event in group if isinstance(event, Messages)) == [b"buy 10"]
        assert node.status()["members"] == [1]
        with pytest.raises(SessionError, match="entered once"):
            node.__enter__()
    reopened(config)


def test_a_node_without_asyncio_that_cannot_open(place: Place, tmp_path: Path) -> None:
    config = node_config(place, 1, tmp_path)
    with blocking.Node(config), pytest.raises(StorageError, match="is in use by"):
        blocking.Node(config).__enter__()
