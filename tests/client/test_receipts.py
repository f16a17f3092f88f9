"""Receipts of multicasts: where a message was delivered, when it is safe, and what nobody knows."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import daemon
from scripted_daemon import (
    ME,
    OTHER,
    ScriptedDaemon,
    messages,
    place,
    view,
)

import totempole
from totempole import Delivered, Messages, MulticastReceipt, Reconnected, Unknown, View, blocking
from totempole.client.endpoint import Reconnect
from totempole.client.session import Session
from totempole.errors import SessionError
from totempole.groups.events import BecameSafe
from totempole.session import Done, Ended, Join, Refused, Send

LIMIT_S = 60.0


def own(seq: int, number: int, *payloads: bytes, groups: tuple[str, ...] = ("g",)) -> Any:
    return messages(seq, *payloads, groups=groups, sender=ME)._replace(number=number)


def became_safe(seq: int, number: int, count: int = 1) -> BecameSafe:
    return BecameSafe(ME, number, count, ("g",), place(seq))


async def played(script: Callable[[ScriptedDaemon], None], program: Callable[[Session], Any]) -> None:
    mine, its = socket.socketpair()
    with its:
        playing = asyncio.create_task(asyncio.to_thread(script, ScriptedDaemon(its)))
        async with asyncio.timeout(LIMIT_S):
            async with Session.over(mine) as it:
                await program(it)
            await playing


def end(daemon: ScriptedDaemon) -> None:
    daemon.say(Ended("enough"))


# With a real daemon


def test_a_receipt_names_the_place_and_the_view_of_the_delivery(tmp_path: Path) -> None:
    async def main() -> None:
        async with totempole.connect(it.path) as session, session.join("g") as group:
            receipt = await group.multicast(b"one")
            assert isinstance(receipt, MulticastReceipt)
            place, view = await receipt.delivered()
            assert await receipt.delivered() == (place, view), "as often as one asks"
            many = await session.multicast_many(["g", "elsewhere"], [b"two", b"three"])
            later = await many.delivered()
            events = [await anext(group) for _ in range(3)]
            assert events[0] == view
            assert isinstance(events[1], Messages)
            assert isinstance(events[2], Messages)
            assert (events[1].place, events[2].place) == (place, later.place)

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_a_receipt_is_settled_before_the_program_takes_the_message_and_in_the_task_that_iterates(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with totempole.connect(it.path) as session, session.join("g") as group:
            await group.multicast(b"first")
            async for event in group:
                if isinstance(event, Messages):
                    if b"first" not in event.payloads:
                        break
                    receipt = await group.multicast(b"second")
                    assert event.place < (await receipt.delivered()).place

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_a_receipt_waits_although_the_program_has_left_much_unread(tmp_path: Path) -> None:
    """The session reads no further when so much is unread, unless somebody waits for what comes behind it."""

    async def main() -> None:
        async with totempole.connect(it.path) as session, session.join("g") as group:
            for _ in range(12):
                receipt = await group.multicast(bytes(1_000_000))
            await receipt.delivered()
            assert session.protocol.inbox.meter.bytes > 10_000_000

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_safe_is_the_notice_or_the_delivery_of_a_safe_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with totempole.connect(it.path) as session, session.join("g") as group:
            noticed = await group.multicast(b"noticed", safe_notice=True)
            assert await noticed.safe() == await noticed.delivered()
            safe = await group.multicast(b"safe", totempole.SAFE)
            assert await safe.safe() == await safe.delivered()
            agreed = await group.multicast(b"agreed")
            with pytest.raises(SessionError, match="safe_notice=True"):
                await agreed.safe()
            events = [type(await anext(group)) for _ in range(5)]
            assert events == [View, Messages, totempole.Safe, Messages, Messages]

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_large_messages_and_many_have_one_receipt_for_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with totempole.connect(it.path) as session, session.join("g") as group:
            large = await group.multicast(bytes(3_000_000))
            many = await group.multicast_many([b"x" * 50_000] * 200)
            one = await large.delivered()
            last = await many.delivered()
            assert one.place < last.place
            seen = [event async for event in _taken(group, 201)]
            assert (seen[0].place, seen[-1].place) == (one.place, last.place)

    async def _taken(group: Any, count: int) -> Any:
        while count:
            event = await anext(group)
            if isinstance(event, Messages):
                count -= len(event.payloads)
                yield event

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_what_does_not_come_back_is_said_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with totempole.connect(it.path) as session:
            receipt = await session.multicast("g", b"x")
            with pytest.raises(SessionError, match="in none of the groups"):
                await receipt.delivered()
            async with session.join("h", policy="shed") as shedding:
                receipt = await shedding.multicast(b"x")
                with pytest.raises(SessionError, match='policy="shed"'):
                    await receipt.delivered()
                async with session.join("g"):
                    receipt = await session.multicast(["h", "g"], b"x")
                    assert (await receipt.delivered()).view.group == "h", "the first that it is in"
            nothing = await session.multicast_many("g", [])
            with pytest.raises(SessionError, match="no message was sent"):
                await nothing.delivered()

    with daemon(tmp_path) as it:
        totempole.run(main())


def test_the_blocking_session_gives_receipts_too(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, blocking.connect(it.path) as session, session.join("g") as group:
        receipt = group.multicast(b"one", safe_notice=True)
        assert receipt.safe(LIMIT_S) == receipt.delivered(LIMIT_S)
        many = session.multicast_many("g", [b"two", b"three"]).delivered(LIMIT_S)
        large = group.multicast(bytes(3_000_000)).delivered(LIMIT_S)
        events = [group.next(LIMIT_S) for _ in range(5)]
        assert receipt.delivered().view == events[0]
        places = [event.place for event in events if isinstance(event, Messages)]
        assert places == [receipt.delivered().place, many.place, large.place]
        with pytest.raises(SessionError, match="in none of the groups"):
            session.multicast("h", b"x").delivered()
        with pytest.raises(SessionError, match="no message was sent"):
            session.multicast_many("g", []).delivered()


# With a daemon that does what a test says


def test_several_wait_for_one_receipt_and_it_is_settled_when_the_message_comes() -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear(Send)
        daemon.say(messages(2, b"of another"), own(3, 1, b"a", b"b"))
        end(daemon)

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            one = await group.multicast(b"a")
            two = await group.multicast(b"b")
            assert one.sent == two.sent, "they share a frame"
            found = await asyncio.gather(one.delivered(), two.delivered())
            assert found == [Delivered(place(3), found[0].view)] * 2
            assert found[0].view.place == place(1)

    asyncio.run(played(script, program))


def test_the_view_is_the_one_in_force_when_the_message_came() -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear(Send)
        daemon.say(view(2, OTHER), own(3, 1, b"a"), view(4))
        end(daemon)

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            receipt = await group.multicast(b"a")
            assert (await receipt.delivered()).view.place == place(2)

    asyncio.run(played(script, program))


def test_a_lost_connection_leaves_it_unknown(tmp_path: Path) -> None:
    """Also after the session has come back: the numbers of its messages begin again there."""

    async def main() -> None:
        quick = Reconnect(first_s=0.01, most_s=0.02, give_up_s=LIMIT_S)
        async with totempole.connect(path, reconnect=quick) as session, session.join("g") as group:
            before = await group.multicast(b"before")
            await before.delivered()
            receipt = await group.multicast(b"lost", safe_notice=True)
            session.connection.link.abort()  # type: ignore[union-attr]  # before it is written
            session.connection.lost(session.connection.link, OSError("cut"))  # type: ignore[arg-type]
            with pytest.raises(Unknown, match="not known to be delivered: cut") as caught:
                await receipt.delivered()
            assert caught.value.receipt is receipt
            with pytest.raises(Unknown, match="not known to be safe: cut"):
                await receipt.safe()
            assert await before.delivered()
            after = await group.multicast(b"after")
            found = await after.delivered()
            kinds = [type(await anext(group)) for _ in range(5)]
            assert kinds == [View, Messages, Reconnected, View, Messages]
            assert found.view.members == (session.process,)

    with daemon(tmp_path) as it:
        path = it.path
        totempole.run(main())


def test_what_is_waited_for_when_the_connection_is_lost_is_unknown() -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear(Send)
        daemon.say(own(2, 1, b"a"))
        end(daemon)

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            receipt = await group.multicast(b"a", safe_notice=True)
            assert (await receipt.delivered()).place == place(2)
            with pytest.raises(Unknown, match=r"safe: .*enough"):
                await receipt.safe()
            assert await receipt.delivered()

    asyncio.run(played(script, program))

    def deaf(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear(Send)
        end(daemon)

    async def waits(it: Session) -> None:
        async with it.join("g") as group:
            receipt = await group.multicast(b"a")
            with pytest.raises(Unknown, match=r"delivered: .*enough"):
                await receipt.delivered()

    asyncio.run(played(deaf, waits))


def test_a_notice_that_was_passed_over_and_a_message_that_was_are_unknown() -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear_messages(3)
        daemon.say(own(3, 2, b"b"), own(4, 3, b"c"), became_safe(4, 3))
        end(daemon)

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            receipts = []
            for payload in (b"a", b"b", b"c"):
                receipts.append(await group.multicast(payload, safe_notice=True))
                it.connection.flush()
            with pytest.raises(Unknown, match="did not pass"):
                await receipts[0].delivered()
            await receipts[1].delivered()
            with pytest.raises(Unknown, match="did not pass"):
                await receipts[1].safe()
            await receipts[2].safe()

    asyncio.run(played(script, program))


@pytest.mark.parametrize("how", ["left", "refused", "closed"])
def test_who_is_not_in_the_group_any_more_does_not_wait_for_ever(how: str) -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        if how == "refused":
            join = daemon.hear(Join)
            daemon.hear(Send)
            daemon.say(Refused(join.request, "no"))
        else:
            daemon.let_join(1)
            daemon.hear(Send)
            if how == "left":
                daemon.let_leave()
        daemon.say(Done(99))
        end(daemon)

    async def program(it: Session) -> None:
        group = it.join("g")
        joining = asyncio.create_task(group.__aenter__())
        if how != "refused":
            await joining
        else:
            await asyncio.sleep(0)
        receipt = await it.multicast("g", b"a")
        it.connection.flush()
        waiting = asyncio.create_task(receipt.delivered())
        if how == "left":
            await group.__aexit__(None, None, None)
        elif how == "closed":
            closing = asyncio.create_task(it.close())
        with pytest.raises(Unknown, match="closed before" if how == "closed" else "was left"):
            await waiting
        if how == "refused":
            with pytest.raises(SessionError, match="no"):
                await joining
        elif how == "closed":
            await closing

    asyncio.run(played(script, program))


def test_a_waiter_that_is_cancelled_leaves_the_receipt_to_others() -> None:
    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear_messages(2)
        daemon.say(own(2, 1, b"a"), own(3, 2, b"go"))
        end(daemon)

    async def program(it: Session) -> None:
        async with it.join("g") as group:
            receipt = await group.multicast(b"a")
            waiting = asyncio.create_task(receipt.delivered())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await group.multicast(b"go")
            assert (await receipt.delivered()).place == place(2)
            assert not receipt.sent[0].waiters

    asyncio.run(played(script, program))


def test_blocking_a_lost_connection_leaves_it_unknown() -> None:
    mine, its = socket.socketpair()

    def script(daemon: ScriptedDaemon) -> None:
        daemon.greet()
        daemon.let_join(1)
        daemon.hear(Send)
        daemon.socket.close()

    from threading import Thread

    thread = Thread(target=script, args=(ScriptedDaemon(its),))
    thread.start()
    with blocking.Session.over(mine) as session, session.join("g") as group:
        receipt = group.multicast(b"a")
        with pytest.raises(Unknown, match="not known to be delivered"):
            receipt.delivered(LIMIT_S)
    thread.join()
