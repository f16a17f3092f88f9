"""A node embedded in an asyncio program, on a thread and in a process."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import LIMIT_S, Place, a_place, wait_until
from members import PATIENT, node_config

from totempole import Group, Node, RingNode, RingView, State
from totempole.client.session import Session
from totempole.core.order import Deliver
from totempole.errors import ConfigurationError, NetworkError, SessionError, StorageError, TotemError
from totempole.groups import Batch, pack
from totempole.groups.packing import MESSAGE_WEIGHT, MESSAGES_MAX
from totempole.runtime import hosting, keyring, separate
from totempole.runtime import ring_node as node_module
from totempole.runtime.config import SecurityConfig
from totempole.runtime.driver import Driver
from totempole.runtime.frames import FRAME_BYTES_MAX
from totempole.runtime.hosting import Relay
from totempole.runtime.ring_node import Placement
from totempole.runtime.storage import Storage
from totempole.types import NO_RING, MessageId, OrderKey, RingId, Service

PLACEMENTS = ["thread", "process"]


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


def run(program: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await program

    asyncio.run(limited())


class Reader:
    """Takes a node's events as they come."""

    def __init__(self, node: RingNode) -> None:
        self.node = node
        self.views: list[RingView] = []
        self.messages: list[bytes] = []
        self.senders: list[int] = []
        self.keys: list[OrderKey] = []
        self.services: list[Service] = []
        self.news = asyncio.Event()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for event in self.node:
                if isinstance(event, RingView):
                    self.views.append(event)
                else:
                    self.messages += event.payloads
                    self.senders += [event.sender] * len(event.payloads)
                    self.services.append(event.service)
                self.keys.append(event.key)
                self.news.set()
        finally:
            self.news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            if self.task.done():
                self.task.result()
                raise AssertionError("the node has left")
            self.news.clear()
            await self.news.wait()

    async def ring(self, *members: int) -> None:
        await self.until(lambda: bool(self.views) and self.views[-1].members == members)

    async def have(self, number: int) -> None:
        await self.until(lambda: len(self.messages) >= number)


@asynccontextmanager
async def entered(
    place: Place, tmp_path: Path, *numbers: int, placement: str = "thread", **settings: Any
) -> AsyncIterator[list[RingNode]]:
    nodes = [
        RingNode(node_config(place, me, tmp_path, **settings), placement=placement)  # type: ignore[arg-type]
        for me in numbers
    ]
    async with nodes[0]:
        if len(nodes) == 1:
            yield nodes
        else:
            async with nodes[1]:
                yield nodes


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_ring_of_embedded_nodes(place: Place, tmp_path: Path, placement: str) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1, 2, placement=placement) as nodes:
            readers = [Reader(node) for node in nodes]
            for reader in readers:
                await reader.ring(1, 2)
            await nodes[0].multicast(b"first", service=Service.SAFE)
            sent: dict[int, list[bytes]] = {1: [], 2: []}
            for number in range(200):
                batch = [b"%d" % number, b"", bytes([number]) * 300]
                await nodes[number % 2].multicast_many(batch)
                sent[1 + number % 2] += batch
            await nodes[1].multicast_many([])
            for reader in readers:
                await reader.have(601)
            document = await nodes[0].status()
            assert document["processor"] == 1
            assert document["members"] == [1, 2]
            assert document["totals"]["messages_delivered"] == 601
        for reader in readers:
            await reader.task  # the iteration has ended by itself
        one, two = readers
        assert one.messages == two.messages[: len(one.messages)]
        assert one.keys == sorted(one.keys)
        assert {one.senders[0], *one.senders} == {1, 2}
        assert Service.SAFE in one.services
        arrived: dict[int, list[bytes]] = {1: [], 2: []}
        for sender, message in zip(one.senders, one.messages, strict=True):
            if message != b"first":  # wherever the order has it
                arrived[sender].append(message)
        assert arrived == sent
        assert [view.kind for view in one.views[:1]] == ["regular"]

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_iteration_ends_when_the_node_has_left(place: Place, tmp_path: Path, placement: str) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1, placement=placement) as (node,):
            reader = Reader(node)
            await reader.ring(1)
        await reader.task
        with pytest.raises(SessionError, match="has left the ring"):
            await node.multicast(b"too late")
        with pytest.raises(StopAsyncIteration):
            await anext(node)
        Storage.open(tmp_path / "node1", 1, 1).close()  # its lock is given back

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_was_multicast_is_delivered_before_leaving(place: Place, tmp_path: Path, placement: str) -> None:
    """The block ends right behind the last multicast."""

    async def program() -> None:
        config = node_config(place, 2, tmp_path)
        async with RingNode(config) as other:
            hearer = Reader(other)
            async with RingNode(node_config(place, 1, tmp_path), placement=placement) as node:  # type: ignore[arg-type]
                await hearer.ring(1, 2)
                for number in range(60):
                    await node.multicast(b"%d" % number + bytes(30_000))
            await hearer.ring(2)
            assert [int(message.rstrip(b"\0")) for message in hearer.messages] == list(range(60))

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_multicast_waits_while_the_ring_pushes_back(place: Place, tmp_path: Path, placement: str) -> None:
    """40 MB, and never much more under way than there may be."""

    async def program() -> None:
        most = 0
        async with entered(place, tmp_path, 1, placement=placement) as (node,):
            reader = Reader(node)
            mailbox = node._mailbox
            assert mailbox is not None
            for _ in range(800):
                await node.multicast(bytes(50_000))
                most = max(most, mailbox._sent_bytes - mailbox._accepted_bytes)
            await reader.have(800)
        assert most < node_module.SENDING_BYTES_MAX + 50_001

    run(program())


def test_empty_messages_wait_too(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no bytes, but each is a thing that waits."""
    monkeypatch.setattr(Driver, "send", lambda self, payloads, service=Service.AGREED: False)
    monkeypatch.setattr(node_module, "SENDING_BYTES_MAX", 1_000)
    sent = 0

    async def program() -> None:
        nonlocal sent
        async with entered(place, tmp_path, 1) as (node,):
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while sent < 5_000:
                        await node.multicast(b"")
                        sent += 1

    run(program())
    assert sent < 5_000, "nothing has been accepted, and multicast never waits"


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_mistakes_are_refused_and_harm_nothing(place: Place, tmp_path: Path, placement: str) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1, placement=placement) as (node,):
            reader = Reader(node)
            with pytest.raises(
                ConfigurationError, match=r"440001 bytes .* packet_bytes_max = 440000: cut it up"
            ):
                await node.multicast_many([b"fine", bytes(440_001)])
            await node.multicast(b"unharmed")
            await reader.have(1)
            assert reader.messages == [b"unharmed"]
            with pytest.raises(SessionError, match="a node is entered once"):
                await node.__aenter__()

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("batch", ["long", "many"])
def test_a_batch_of_any_size_is_taken(place: Place, tmp_path: Path, placement: str, batch: str) -> None:
    """`multicast_many` cuts it into packets, and into frames where there are any."""
    messages = {
        "long": [b"%d" % number + bytes(50_000) for number in range(FRAME_BYTES_MAX // 50_000 + 5)],
        "many": [b"x"] * (MESSAGES_MAX + 5),
    }[batch]

    async def program() -> None:
        async with entered(place, tmp_path, 1, placement=placement) as (node,):
            reader = Reader(node)
            await node.multicast_many(messages)
            await reader.have(len(messages))
            assert reader.messages == messages

    run(program())


def test_the_callers_list_may_be_used_again(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1) as (node,):
            reader = Reader(node)
            batch: list[bytes] = []
            for number in range(100):
                batch[:] = [b"%d" % number, b"x" * number]
                await node.multicast_many(batch)
            batch.clear()
            await node.multicast(b"end")
            await reader.until(lambda: b"end" in reader.messages)
            assert reader.messages[:200:2] == [b"%d" % number for number in range(100)]

    run(program())


# Outside


def test_a_node_is_used_inside_its_block(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        node = RingNode(node_config(place, 1, tmp_path))
        for attempt in (node.multicast(b"x"), node.status(), anext(node)):
            with pytest.raises(SessionError, match="use it inside `async with`"):
                await attempt

    run(program())


def test_a_placement_that_there_is_not(place: Place, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="placement = 'fibre': give thread or process"):
        RingNode(node_config(place, 1, tmp_path), placement="fibre")  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_that_cannot_open_says_so_on_entering(place: Place, tmp_path: Path, placement: str) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1):
            second = RingNode(node_config(place, 1, tmp_path, named="other"), placement=placement)  # type: ignore[arg-type]
            with pytest.raises((NetworkError, SessionError), match=f"UDP port {place.port}: Address already"):
                await second.__aenter__()
            third = RingNode(node_config(place, 1, tmp_path), placement=placement)  # type: ignore[arg-type]
            with pytest.raises((StorageError, SessionError), match="node1"):
                await third.__aenter__()

    run(program())


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_status_of_a_node_that_has_left(place: Place, tmp_path: Path, placement: str) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1, placement=placement) as (node,):
            await node.status()
        with pytest.raises(TotemError):
            await node.status()

    run(program())


def test_a_program_that_gives_up_entering_leaves_no_node_behind(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timeout around `async with`: nobody else can stop the node."""
    monkeypatch.setattr(Driver, "installed", lambda self, installed: None)  # so that it is never up
    config = node_config(place, 1, tmp_path)

    async def program() -> None:
        node = RingNode(config)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await node.__aenter__()

    run(program())

    def gone() -> bool:
        return not [thread for thread in threading.enumerate() if thread.name == "totempole-1"]

    try:
        with suppress(AssertionError):
            monkeypatch.setattr("loopback.LIMIT_S", 5)
            wait_until(gone)
        assert gone(), "its thread still runs"
        Storage.open(config.directory, 1, 1).close()
    finally:
        for found in leaked_drivers():
            found.stop_at_once()


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
        entering = asyncio.create_task(RingNode(config).__aenter__())
        await asyncio.to_thread(opened.wait, LIMIT_S)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        go_on.set()

    run(program())
    Storage.open(config.directory, 1, 1).close()  # the lock is free again


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_that_starts_again_gets_the_state_of_the_others(
    place: Place, tmp_path: Path, placement: Placement
) -> None:
    """It joins its groups when it has met the others, not before: alone it would begin with nothing."""
    one, two = (node_config(place, me, tmp_path) for me in (1, 2))

    async def state_at_two() -> bytes | None:
        async with Node(two, placement=placement) as session, session.join("g", want_state=True) as group:
            async for event in group:
                if isinstance(event, State):
                    return event.data
        raise AssertionError("no state")

    async def serve(group: Group) -> None:
        async for _ in group:
            pass

    async def program() -> None:
        async with Node(one) as session, session.join("g", state=lambda: b"what was") as group:
            serving = asyncio.create_task(serve(group))
            for _ in range(2):
                assert await state_at_two() == b"what was"
            serving.cancel()

    run(program())


def test_giving_up_before_the_node_has_settled_ends_the_session(place: Place, tmp_path: Path) -> None:
    config = node_config(place, 1, tmp_path)

    async def program() -> None:
        ours, theirs = socket.socketpair()
        node = RingNode(config)
        await node.start_with(theirs)
        leaving = asyncio.create_task(node.__aexit__(None, None, None))
        with pytest.raises(SessionError, match="leaves the ring"):
            await Session.over(ours).__aenter__()
        await leaving

    run(program())


def test_giving_up_while_the_session_begins_stops_the_node(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = Session._open

    async def never_done(self: Session) -> None:
        await open_(self)
        await asyncio.Event().wait()

    monkeypatch.setattr(Session, "_open", never_done)
    config = node_config(place, 1, tmp_path)

    async def program() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await Node(config).__aenter__()

    run(program())
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "totempole-1"])
    Storage.open(config.directory, 1, 1).close()


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_keys_are_read_again(place: Place, tmp_path: Path, placement: str) -> None:
    file = tmp_path / "ring.key"
    keyring.create(file)
    security = SecurityConfig(key_file=file)

    async def program() -> None:
        async with entered(place, tmp_path, 1, 2, placement=placement, security=security) as nodes:
            readers = [Reader(node) for node in nodes]
            for reader in readers:
                await reader.ring(1, 2)
            for step in (keyring.add, keyring.activate, keyring.retire):
                step(file)
                for node in nodes:
                    await node.reload_keys()
                    await node.multicast(b"under way")
            while (await nodes[0].status())["key_ids"] != [2]:
                await asyncio.sleep(0.01)
            for reader in readers:
                await reader.have(6)
            file.chmod(0o644)
            with pytest.raises(ConfigurationError, match=r"ring\.key"):
                await nodes[0].reload_keys()
            assert (await nodes[0].status())["dropped"] == {}
        file.chmod(0o600)
        with pytest.raises(SessionError, match="answers no more"):
            await nodes[0].reload_keys()

    run(program())


def test_an_unsealed_node_has_no_keys_to_read(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1) as (node,):
            with pytest.raises(ConfigurationError, match="unsealed"):
                await node.reload_keys()

    run(program())


def test_a_late_status_is_not_taken_for_the_next(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1, placement="process") as (node,):
            with monkeypatch.context() as impatient:
                impatient.setattr(separate, "ANSWER_WAIT_S", 0.0)
                for _ in range(3):
                    with suppress(SessionError):
                        await node.status()
            reader = Reader(node)
            await node.multicast(b"since")
            await reader.have(1)
            assert (await node.status())["totals"]["messages_delivered"] == 1

    run(program())


def leaked_drivers() -> list[Driver]:
    return [found for found in gc.get_objects() if isinstance(found, Driver) and found.running]


# Programs and nodes that fail


def test_a_program_that_falls_behind_loses_its_node(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "RECEIVED_BYTES_MAX", 500_000)
    one_at_a_time = replace(PATIENT, packet_bytes_max=60_000)

    async def program() -> None:
        async with entered(place, tmp_path, 1, ring=one_at_a_time) as (node,):
            with pytest.raises(SessionError, match="take messages faster"):
                await multicast_for_ever(node)
            reader = Reader(node)
            await asyncio.wait([reader.task])
            with pytest.raises(SessionError, match="take messages faster"):
                await reader.task
            taken = sum(map(len, reader.messages))
            assert 400_000 < taken <= 500_000, "what came before is all there"

    run(program())


async def multicast_for_ever(node: RingNode) -> None:
    while True:
        await node.multicast(bytes(50_000))


def delivery(seq: int, size: int) -> tuple[Deliver, Batch]:
    body = pack([bytes(size)])
    key = OrderKey(RingId(4, 1), seq, NO_RING)
    return Deliver(MessageId(1, 1, seq), 1, body, Service.AGREED, key, 0, RingId(4, 1)), Batch(body)


class FakeMailbox:
    def __init__(self) -> None:
        self.taken_bytes = 0
        self.seqs: list[int] = []

    def put(self, event: Any, size: int) -> None:
        self.seqs.append(event.key.seq)

    def accepted(self, size: int) -> None: ...

    def ended(self, error: TotemError | None) -> None: ...


class FakeDriver:
    def __init__(self) -> None:
        self.failures: list[TotemError] = []

    def fail(self, error: TotemError) -> None:
        self.failures.append(error)


def overfed(sizes: list[int], taken_after: dict[int, int]) -> tuple[FakeMailbox, FakeDriver]:
    mailbox, driver = FakeMailbox(), FakeDriver()
    relay = Relay(mailbox)
    relay.driver = driver  # type: ignore[assignment]
    for seq, size in enumerate(sizes, 1):
        relay.delivered(*delivery(seq, size))
        mailbox.taken_bytes = taken_after.get(seq, mailbox.taken_bytes)
    return mailbox, driver


def test_nothing_is_handed_up_behind_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """More deliveries come in the same breath; the program has just taken something; there is a gap."""
    monkeypatch.setattr(hosting, "RECEIVED_BYTES_MAX", 1_000)
    mailbox, driver = overfed([600, 600, 100], {2: 600})
    assert mailbox.seqs == [1]
    assert len(driver.failures) == 1


def test_untaken_messages_without_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "RECEIVED_BYTES_MAX", 1_000)
    mailbox, driver = overfed([0] * 1_001, {})
    assert driver.failures, f"{len(mailbox.seqs)} events wait"


def test_a_process_that_is_killed_is_an_error(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1, placement="process") as (node,):
            process = node._hosting._process  # type: ignore[union-attr]
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(SessionError, match=r"ended unexpectedly \(exit code -9\)"):
                async for _ in node:
                    pass
            with pytest.raises(SessionError, match="ended unexpectedly"):
                await node.multicast(b"x")

    run(program())


def test_a_process_leaves_nothing_behind(place: Place, tmp_path: Path) -> None:
    before = set(threading.enumerate())

    async def program() -> None:
        async with entered(place, tmp_path, 1, placement="process") as (node,):
            process = node._hosting._process  # type: ignore[union-attr]
        wait_until(lambda: process.returncode == 0)

    run(program())

    def left() -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - before if "totempole" in thread.name]

    with suppress(AssertionError), pytest.MonkeyPatch().context() as patch:
        patch.setattr("loopback.LIMIT_S", 5)
        wait_until(lambda: not left())
    assert not left()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_node_that_breaks_does_not_pass_for_one_that_left(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake in the node, or in the kernel's answer, is no graceful leave."""

    async def program() -> None:
        async with entered(place, tmp_path, 1) as (node,):
            reader = Reader(node)
            await reader.ring(1)

            def breaks(self: Driver) -> None:
                raise RuntimeError("broken")

            monkeypatch.setattr(Driver, "_turn", breaks)
            await asyncio.wait([reader.task])
            assert reader.task.exception() is not None, "the iteration has ended as if the node had left"

    run(program())


def test_a_program_that_has_taken_all_is_not_behind(place: Place, tmp_path: Path) -> None:
    """What it takes while the ring is idle counts too, in the node's process as well."""
    views = 10 * hosting.VIEW_WEIGHT
    whole, rest = divmod(hosting.RECEIVED_BYTES_MAX - views, 59_000 + MESSAGE_WEIGHT)
    rest = max(0, rest - MESSAGE_WEIGHT)

    async def program() -> None:
        async with entered(place, tmp_path, 2) as (sender,):
            hearer = RingNode(node_config(place, 1, tmp_path), placement="process")
            async with hearer:
                echo = Reader(sender)
                await echo.ring(1, 2)
                for size in (*[59_000] * whole, rest):
                    await sender.multicast(bytes(size))
                await echo.have(whole + 1)
                while (await hearer.status())["totals"]["messages_delivered"] <= whole:
                    await asyncio.sleep(0.05)
                reader = Reader(hearer)
                await reader.have(whole + 1)
                await sender.multicast_many([bytes(59_000)] * 8)
                await reader.have(whole + 9)

    run(program())


def test_the_status_is_plain_data(place: Place, tmp_path: Path) -> None:
    async def program() -> None:
        async with entered(place, tmp_path, 1) as (node,):
            document = await node.status()
            assert json.loads(json.dumps(document)) == document

    run(program())
