"""A session whose daemon has gone away while the program has much to take: when it comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from scripted_daemon import OTHER, Door, ScriptedDaemon, messages, view, welcome

import totempole
from totempole.client import endpoint
from totempole.client.endpoint import Reconnect
from totempole.client.events import Messages, Reconnected, View
from totempole.client.protocol import RECEIVED_BYTES_MAX, Phase
from totempole.client.session import Session, connect
from totempole.objects import Counter
from totempole.session import Bye, Done, Ended, Hello, Join, Leave
from totempole.testing import Cluster, cluster
from totempole.testing import run as simulate

LIMIT_S = 10.0
QUICK = Reconnect(first_s=0.01, most_s=0.02, give_up_s=LIMIT_S)
MESSAGE = bytes(60_000)
HELD = RECEIVED_BYTES_MAX // 2 // len(MESSAGE) + 5
"""So many keep the session away."""
PAUSES = RECEIVED_BYTES_MAX // len(MESSAGE) + 5
"""So many keep it from reading on."""


def serve(daemon: ScriptedDaemon) -> None:
    """As an empty daemon would, until the program says goodbye."""
    seq = 1000
    while True:
        seq += 1
        match daemon.hear(object):
            case Join(request, group):
                daemon.say(Done(request), view(seq, group=group, me=OTHER, first=True))
            case Leave(request):
                daemon.say(Done(request))
            case Bye():
                daemon.say(Ended(""))
                return


def send_much_and_hang_up(daemon: ScriptedDaemon) -> None:
    """To g, once the program has joined h and g."""
    daemon.greet()
    for number in range(2):
        daemon.let_join(1 + number)
    daemon.say(*(messages(10 + number, MESSAGE) for number in range(HELD)))


def greet_and_hang_up(daemon: ScriptedDaemon) -> None:
    daemon.greet()
    daemon.let_join(1)


def greet_again(daemon: ScriptedDaemon) -> None:
    daemon.greet(OTHER)
    serve(daemon)


async def stays_away(it: Session) -> None:
    """The daemon has gone away, and the session waits for the program to take events."""
    protocol = it.protocol
    while protocol.phase is Phase.OPEN or protocol.inbox.meter.bytes < HELD * len(MESSAGE):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert protocol.phase is Phase.CONNECTING


def played(path: Path, program: Callable[[Session], Awaitable[None]], *scripts: Callable[..., None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S), connect(path, reconnect=QUICK) as it:
            await program(it)

    with Door(path, *scripts):
        asyncio.run(main())


def test_who_leaves_the_group_whose_events_it_has_not_taken_comes_back(tmp_path: Path) -> None:
    async def program(it: Session) -> None:
        async with it.join("h") as h:
            async with it.join("g"):
                assert isinstance(await anext(h), View)
                await stays_away(it)
            assert isinstance(await anext(h), Reconnected)

    played(tmp_path / "s", program, send_much_and_hang_up, greet_again)


def test_who_gives_up_a_group_whose_events_it_has_not_taken_comes_back(tmp_path: Path) -> None:
    async def program(it: Session) -> None:
        async with it.join("h") as h, it.join("g"):
            assert isinstance(await anext(h), View)
            await stays_away(it)
            it.receiving.abandon("g")
            assert isinstance(await anext(h), Reconnected)

    played(tmp_path / "s", program, send_much_and_hang_up, greet_again)


def test_who_closes_the_events_that_it_has_not_taken_comes_back(tmp_path: Path) -> None:
    async def program(it: Session) -> None:
        async with it.join("h") as h, it.join("g"):
            events = it.events()
            await stays_away(it)
            events.close()
            assert isinstance(await anext(h), Reconnected)

    played(tmp_path / "s", program, send_much_and_hang_up, greet_again)


def test_who_joins_a_group_before_it_takes_its_events_comes_back_first(tmp_path: Path) -> None:
    async def program(it: Session) -> None:
        async with it.join("h"), it.join("g"):
            await stays_away(it)
            async with it.join("another") as another:
                assert isinstance(await anext(another), Reconnected)
                assert isinstance(await anext(another), View)

    played(tmp_path / "s", program, send_much_and_hang_up, greet_again)


def test_a_session_reads_on_when_a_group_was_given_up_whose_events_nobody_took(tmp_path: Path) -> None:
    def send_much(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        for number in range(2):
            daemon.let_join(1 + number)
        daemon.say(*(messages(10 + number, MESSAGE) for number in range(PAUSES)))
        daemon.say(messages(1000, b"go", groups=("h",)))
        serve(daemon)

    async def program(it: Session) -> None:
        async with it.join("h") as h, it.join("g"):
            assert isinstance(await anext(h), View)
            while it.protocol.inbox.meter.bytes <= RECEIVED_BYTES_MAX:
                await asyncio.sleep(0.001)
            it.receiving.abandon("g")
            assert isinstance(await anext(h), Messages)

    played(tmp_path / "s", program, send_much)


def test_an_answer_that_came_while_the_program_was_busy_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop finds the daemon's welcome and the end of the time for it in one turn."""
    monkeypatch.setattr(endpoint, "ANSWER_S_MAX", 0.5)

    def late(daemon: ScriptedDaemon) -> None:
        daemon.hear(Hello)
        time.sleep(0.1)
        daemon.say(welcome(OTHER))
        serve(daemon)

    async def main() -> None:
        async with connect(door.path, reconnect=QUICK) as it, it.join("h") as h:
            assert isinstance(await anext(h), View)
            asyncio.get_running_loop().call_later(0.05, time.sleep, 1.5)
            before = it.process
            event = await anext(h)
            assert isinstance(event, Reconnected)
            assert (event.before, event.process, it.process) == (before, OTHER, OTHER)
            assert isinstance(await anext(h), View)

    with Door(tmp_path / "s", greet_and_hang_up, late) as door:
        asyncio.run(main())


@pytest.mark.parametrize("asks", ["call", "read", "after"])
def test_a_replica_goes_on_although_its_program_has_not_taken_the_events_of_its_groups(asks: str) -> None:
    """The session reads no further when so much is unread, unless somebody waits for what comes behind it."""

    async def ask(c: Cluster, counter: totempole.Replica[Counter]) -> None:
        if asks == "call":
            assert await counter.call(Counter.add, 1) == 1
        elif asks == "read":
            assert await counter.read(Counter.get) == 0
        else:
            async with totempole.connect(c.socket(1)) as other, other.replica(Counter, "n") as its:
                await its.call(Counter.add, 1)
                assert its._running._feed is not None
                await counter.after(its._running._feed.position)
            assert counter.peek(Counter.get) == 1

    async def test() -> None:
        async with (
            cluster(1, seed=1) as c,
            totempole.connect(c.socket(1)) as session,
            session.join("g") as group,
            session.replica(Counter, "n") as counter,
        ):
            await group.multicast_many([MESSAGE] * PAUSES)
            while session.protocol.inbox.meter.bytes <= RECEIVED_BYTES_MAX:
                await asyncio.sleep(0.1)
            async with asyncio.timeout(30):
                await ask(c, counter)

    simulate(test)
