"""Sessions with a daemon that does exactly what a test says: what real ones do rarely, or too fast."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from scripted_daemon import CREDIT, ME, OTHER, Door, Script, ScriptedDaemon, asked, messages, view

from totempole.client import blocking, connection
from totempole.client.endpoint import Reconnect
from totempole.client.events import Messages, Reconnected, View
from totempole.client.session import Session, connect
from totempole.errors import SessionError
from totempole.groups import Batch
from totempole.session import (
    FOR_GOOD,
    Bye,
    Credit,
    Done,
    Ended,
    Hello,
    Join,
    Large,
    Refused,
    Send,
    State,
    cost_of,
)

LIMIT_S = 60.0
QUICK = Reconnect(first_s=0.01, most_s=0.02, give_up_s=LIMIT_S)


async def played(script: Script, program: Callable[[Session], Any]) -> None:
    """The script on a thread, the program over the other end of its socket."""
    mine, its = socket.socketpair()
    with its:
        playing = asyncio.create_task(asyncio.to_thread(script, ScriptedDaemon(its)))
        async with asyncio.timeout(LIMIT_S):
            async with Session.over(mine) as it:
                await program(it)
            await playing


def part(daemon: ScriptedDaemon) -> None:
    daemon.hear(Bye)
    daemon.say(Ended(""))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    def run(main: Any) -> None:
        factory = None
        if request.param == "uvloop":
            factory = pytest.importorskip("uvloop").new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main)

    return run


def test_a_multicast_waits_for_credit_and_others_behind_it(run: Any) -> None:
    heard: list[bytes] = []

    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet(credit=1_000)
        heard.extend(daemon.hear_messages(1))
        waiting.wait(LIMIT_S)
        daemon.say(Credit(5_000))
        heard.extend(daemon.hear_messages(2))
        part(daemon)

    async def program(it: Session) -> None:
        await it.multicast("g", b"1" * 600)
        second = asyncio.create_task(it.multicast("g", b"2" * 600))
        await asyncio.sleep(0)
        third = asyncio.create_task(it.multicast("g", b"3"))
        await asyncio.sleep(0)
        assert not second.done()
        assert not third.done(), "a small one does not overtake"
        waiting.set()
        await second
        await third

    waiting = threading.Event()
    run(played(script, program))
    assert [payload[:1] for payload in heard] == [b"1", b"2", b"3"]


def test_a_sender_that_is_cancelled_has_sent_nothing(run: Any) -> None:
    heard: list[bytes] = []

    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet(credit=1_000)
        heard.extend(daemon.hear_messages(1))
        cancelled.wait(LIMIT_S)
        daemon.say(Credit(3_000))
        heard.extend(daemon.hear_messages(1))
        part(daemon)

    async def program(it: Session) -> None:
        await it.multicast("g", b"1" * 600)
        waiting = asyncio.create_task(it.multicast("g", b"2" * 600))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        cancelled.set()
        await it.multicast("g", b"3" * 600)

    cancelled = threading.Event()
    run(played(script, program))
    assert [payload[:1] for payload in heard] == [b"1", b"3"]


def test_a_join_that_is_cancelled_is_left(run: Any) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.hear(Join)
        daemon.let_leave()
        part(daemon)

    async def program(it: Session) -> None:
        joining = asyncio.create_task(it.join("g").__aenter__())
        await asyncio.sleep(0.01)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

    run(played(script, program))


def test_who_is_refused_at_the_door_hears_why(run: Any) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.hear(Hello)
        daemon.say(Refused(0, "user 1001 may not connect"))

    async def program(it: Session) -> None:
        raise AssertionError("not reached")

    with pytest.raises(SessionError, match="refused the session: user 1001 may not"):
        run(played(script, program))


def test_the_end_of_the_daemon_is_the_end_of_a_session_over_a_socket(run: Any) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.say(messages(2, b"last"), Ended("the node leaves the ring"))

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            assert [type(await anext(group)) for _ in range(2)] == [View, Messages]
            with pytest.raises(SessionError, match="the node leaves the ring"):
                await anext(group)

    run(played(script, program))


def test_a_daemon_that_does_not_answer_the_farewell_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S_MAX", 0.05)
    monkeypatch.setattr(blocking, "ANSWER_S_MAX", 0.05)

    async def main() -> None:
        mine, its = socket.socketpair()
        with its:
            threading.Thread(target=ScriptedDaemon(its).greet).start()
            async with Session.over(mine) as it:
                await it.multicast("g", b"x")
            assert ScriptedDaemon(its).hear_messages(1) == [b"x"], "what was accepted is written"

    asyncio.run(main())
    assert "farewell" in caplog.text
    mine, its = socket.socketpair()
    with its:
        threading.Thread(target=ScriptedDaemon(its).greet).start()
        with blocking.Session.over(mine):
            pass


def test_a_provider_is_called_when_all_before_is_worked_off(run: Any) -> None:
    state = []

    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1, OTHER)
        daemon.say(messages(2, b"a"), messages(3, b"b"), asked(4), messages(5, b"c"))
        given = daemon.hear(State)
        assert (bytes(given.content), given.last, given.joiner) == (b"ab", True, OTHER)
        daemon.say(messages(6, b"end"))
        daemon.let_leave()
        part(daemon)

    async def program(it: Session) -> None:
        async with it.join("g", state=lambda: b"".join(state)) as group:
            async for event in group:
                await asyncio.sleep(0.001)  # the work
                if isinstance(event, Messages):
                    state.extend(event.payloads)
                    if event.payloads[0] == b"end":
                        break

    run(played(script, program))
    assert state == [b"a", b"b", b"c", b"end"]


def test_a_state_that_is_cancelled_while_it_is_made_is_made_again(run: Any) -> None:
    attempts = []

    async def provider() -> bytes:
        attempts.append(1)
        await asyncio.sleep(0.02 if len(attempts) == 1 else 0)
        return b"made"

    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1, OTHER)
        daemon.say(asked(4), messages(5, b"c"))
        assert bytes(daemon.hear(State).content) == b"made"
        daemon.say(messages(6, b"d"))
        daemon.let_leave()
        part(daemon)

    async def program(it: Session) -> None:
        async with it.join("g", state=provider) as group:
            assert isinstance(await anext(group), View)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await anext(group)
            assert [type(await anext(group)) for _ in range(2)] == [Messages, Messages]

    run(played(script, program))
    assert len(attempts) == 2


# Losing the daemon at awkward moments


def greet_and_hear_two(daemon: ScriptedDaemon) -> None:
    daemon.greet()
    daemon.let_join(1)
    daemon.hear_messages(3)
    daemon.say(Credit(CREDIT + cost_of(4 + 2 + 9 + 1)))


def greet_again(daemon: ScriptedDaemon) -> None:
    daemon.greet(OTHER)
    daemon.let_join(9, me=OTHER)
    with suppress(EOFError):
        daemon.let_leave()
        part(daemon)


def test_what_is_not_known_to_be_accepted_is_counted(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(door.path, reconnect=QUICK) as it, it.join("g") as group:
            await group.multicast(b"1")
            await asyncio.sleep(0)
            await group.multicast(b"2")
            await group.multicast(b"3")
            assert isinstance(await anext(group), View)
            event = await anext(group)
            assert isinstance(event, Reconnected)
            assert event.unacknowledged == 2
            assert (event.before, event.process) == (ME, OTHER)

    with Door(tmp_path / "s", greet_and_hear_two, greet_again) as door:
        asyncio.run(main())


def test_the_blocking_session_counts_the_same(tmp_path: Path) -> None:
    with (
        Door(tmp_path / "s", greet_and_hear_two, greet_again) as door,
        blocking.connect(door.path, reconnect=QUICK) as it,
        it.join("g") as group,
    ):
        group.multicast(b"1")
        group.multicast_many([b"2", b"3"])
        assert isinstance(group.next(LIMIT_S), View)
        event = group.next(LIMIT_S)
        assert isinstance(event, Reconnected)
        assert event.unacknowledged == 2


def test_a_large_message_that_was_cut_off_is_sent_again(tmp_path: Path) -> None:
    payload = b"x" * 5_000_000
    heard: list[Any] = []

    def cut_off(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.say(Done(daemon.hear(Large).request))
        daemon.socket.recv(100_000)

    def before_leave(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.hear(Large)

    def take(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.say(Done(daemon.hear(Large).request))
        heard.append(list(Batch(daemon.hear(Send).batch)))
        part(daemon)

    async def main() -> None:
        async with connect(door.path, reconnect=QUICK) as it:
            await it.multicast("g", payload)

    with Door(tmp_path / "s", cut_off, before_leave, take) as door:
        asyncio.run(main())
    with (
        Door(tmp_path / "t", cut_off, before_leave, take) as door,
        blocking.connect(door.path, reconnect=QUICK) as it,
    ):
        it.multicast("g", payload)
    assert [list(map(len, payloads)) for payloads in heard] == [[len(payload)]] * 2


def test_a_refused_large_message_is_an_error_and_no_more(run: Any) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.say(Refused(daemon.hear(Large).request, "not now"))
        assert daemon.hear_messages(1) == [b"small"]
        part(daemon)

    async def program(it: Session) -> None:
        with pytest.raises(SessionError, match="not now"):
            await it.multicast("g", b"x" * 200_000)
        await it.multicast("g", b"small")

    run(played(script, program))


def test_a_session_comes_back_again_and_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A connection that is lost before it is welcomed is just another failed attempt."""

    def rude(daemon: ScriptedDaemon) -> None:
        daemon.hear(Hello)

    def refuse(daemon: ScriptedDaemon) -> None:
        daemon.hear(Hello)
        daemon.say(Refused(0, "too many clients"))

    def once(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)

    async def main() -> None:
        async with connect(door.path, reconnect=QUICK) as it, it.join("g") as group:
            assert isinstance(await anext(group), View)
            event = await anext(group)
            assert isinstance(event, Reconnected)
            assert isinstance(await anext(group), View)

    with caplog.at_level(logging.INFO, "totempole.client"):
        with Door(tmp_path / "s", once, rude, refuse, greet_again) as door:
            asyncio.run(main())
        with (
            Door(tmp_path / "t", once, rude, refuse, greet_again) as door,
            blocking.connect(door.path, reconnect=QUICK) as it,
            it.join("g") as group,
        ):
            kinds = [type(group.next(LIMIT_S)) for _ in range(3)]
            assert kinds == [View, Reconnected, View]
    assert caplog.text.count("too many clients") == 2


@pytest.mark.parametrize("greets", [True, False])
def test_a_session_that_is_refused_for_good_does_not_come_back(greets: bool, tmp_path: Path) -> None:
    """In its midst, or when it comes back to a daemon that does not want it any more."""

    def once(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        if greets:
            daemon.say(Refused(FOR_GOOD, "JOIN malformed"))

    def refuse(daemon: ScriptedDaemon) -> None:
        daemon.hear(Hello)
        daemon.say(Refused(FOR_GOOD, "JOIN malformed"))

    scripts = (once,) if greets else (once, refuse)

    async def main() -> None:
        async with connect(door.path, reconnect=QUICK) as it, it.join("g") as group:
            assert isinstance(await anext(group), View)
            with pytest.raises(SessionError, match="JOIN malformed"):
                await anext(group)

    with Door(tmp_path / "s", *scripts) as door:
        asyncio.run(main())
    with (
        Door(tmp_path / "t", *scripts) as door,
        blocking.connect(door.path, reconnect=QUICK) as it,
        it.join("g") as group,
    ):
        assert isinstance(group.next(LIMIT_S), View)
        with pytest.raises(SessionError, match="JOIN malformed"):
            group.next(LIMIT_S)


def test_a_daemon_that_talks_nonsense_is_left(run: Any) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.socket.sendall(b"\xff" * 100)

    async def program(it: Session) -> None:
        with pytest.raises(SessionError, match="cannot read"):
            await it.groups()

    run(played(script, program))


def test_views_of_a_group_do_not_need_a_consumer(run: Any) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.say(view(2, OTHER))
        daemon.let_leave()
        part(daemon)

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            assert group.members == (ME,)
            assert group.name == "g"

    run(played(script, program))
