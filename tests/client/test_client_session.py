"""The asyncio session, with a real daemon: a ring of one, its group layer and its clients' service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import daemon

from totempole.client.endpoint import Reconnect
from totempole.client.events import Event, Gap, Messages, Reconnected, Safe, State, View
from totempole.client.session import Group, Session, connect
from totempole.errors import SessionError
from totempole.groups import GroupConfig
from totempole.types import Service

MIB = 1024 * 1024
LIMIT_S = 60.0
QUICK = Reconnect(first_s=0.01, most_s=0.05, give_up_s=LIMIT_S)


def run(main: Coroutine[Any, Any, None]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await main

    asyncio.run(guarded())


async def payloads(events: Any, count: int) -> list[bytes]:
    """So many messages, whatever comes between them."""
    found: list[bytes] = []
    while len(found) < count:
        event = await anext(events)
        if isinstance(event, Messages):
            found += event.payloads
    return found


async def next_of(events: Any, *kinds: type) -> Any:
    while True:
        event = await anext(events)
        if isinstance(event, kinds):
            return event


@asynccontextmanager
async def member(path: Path, group: str = "g", **how: Any) -> AsyncIterator[tuple[Session, Group]]:
    async with connect(path) as session, session.join(group, **how) as joined:
        yield session, joined


def test_ten_lines_join_a_group_multicast_and_consume(tmp_path: Path) -> None:
    async def main() -> None:
        events: list[Event] = []
        async with connect(it.path, name="ten lines") as session, session.join("orders") as group:
            assert group.members == (session.process,)
            await group.multicast(b"one", service=Service.SAFE)
            await group.multicast_many([b"two", b"three"])
            async for event in group:
                events.append(event)
                if len(events) == 3:
                    break
        view, one, rest = events
        assert isinstance(view, View)
        assert (view.kind, view.group, view.members) == ("regular", "orders", (session.process,))
        assert isinstance(one, Messages)
        assert (one.sender, list(one.payloads)) == (session.process, [b"one"])
        assert (one.service, one.number, one.groups) == (Service.SAFE, 1, ("orders",))
        assert isinstance(rest, Messages)
        assert list(rest.payloads) == [b"two", b"three"]
        assert view.place < one.place < rest.place

    with daemon(tmp_path) as it:
        run(main())


def test_everyone_gets_one_order_and_views_of_who_comes_and_goes(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (_, one):
            async with member(it.path) as (_, two):
                for number in range(50):
                    await one.multicast(b"a%d" % number)
                    await two.multicast(b"b%d" % number)
                first, second = await asyncio.gather(payloads(one, 100), payloads(two, 100))
                assert first == second
                assert [payload for payload in first if payload[:1] == b"a"] == [
                    b"a%d" % n for n in range(50)
                ]
            left = await next_of(one, View)
            assert (left.changed, len(left.members)) == ("leave", 1)
            assert one.members == left.members

    with daemon(tmp_path) as it:
        run(main())


def test_messages_of_one_turn_of_the_loop_share_a_batch(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (_, group):
            for number in range(100):
                await group.multicast(b"%d" % number)
            event = await next_of(group, Messages)
            assert len(event.payloads) == 100

    with daemon(tmp_path) as it:
        run(main())


def test_a_session_sends_to_groups_that_it_is_not_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (session, g), session.join("h") as h, connect(it.path) as other:
            await other.multicast(["g", "h"], b"both", safe_notice=True)
            await other.multicast("h", b"one")
            await other.multicast_many("g", [b"1", b"2"])
            assert await payloads(g, 3) == [b"both", b"1", b"2"]
            assert await payloads(h, 2) == [b"both", b"one"]
            assert set(await other.groups()) == {"g", "h"}

    with daemon(tmp_path) as it:
        run(main())


def test_a_notice_tells_when_messages_became_safe(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (session, group):
            await group.multicast(b"x", safe_notice=True)
            event = await next_of(group, Messages)
            notice = await next_of(group, Safe)
            assert (notice.sender, notice.number, notice.count) == (session.process, 1, 1)
            assert notice.place == event.place

    with daemon(tmp_path) as it:
        run(main())


def test_the_session_has_one_stream_of_all_its_groups(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path, "g") as (session, _), session.join("h"), connect(it.path) as other:
            for number in range(30):
                await other.multicast([("g",), ("h",), ("g", "h")][number % 3], b"%d" % number)
            events = session.events()
            places = [(await next_of(events, View)).place for _ in range(2)]
            found = []
            while len(found) < 30:
                event = await anext(events)
                assert isinstance(event, Messages)
                places.append(event.place)
                found += event.payloads
            assert found == [b"%d" % number for number in range(30)]
            assert places == sorted(places)

    with daemon(tmp_path) as it:
        run(main())


def test_large_messages_go_in_parts_and_small_ones_do_not_wait_for_them(tmp_path: Path) -> None:
    async def main() -> None:
        large = bytes(range(256)) * (8 * MIB // 256)
        async with member(it.path) as (_, group), connect(it.path) as other:
            sending = asyncio.create_task(other.multicast_many("g", [b"before", large, b"after"]))
            for number in range(10):
                await group.multicast(b"%d" % number)
            found = await payloads(group, 13)
            await sending
            assert [len(payload) for payload in found if len(payload) > 10] == [len(large)]
            assert large in found
            assert found.index(b"before") < found.index(large) < found.index(b"after")
            await other.multicast("g", large[:MIB])
            assert await payloads(group, 1) == [large[:MIB]]

    with daemon(tmp_path) as it:
        run(main())


def test_a_large_message_whose_sender_is_cancelled_is_sent_whole_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (session, group):
            sending = asyncio.create_task(group.multicast(b"x" * (8 * MIB)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await session.multicast("g", b"y" * MIB)
            found = await payloads(group, 1)
            if len(found[0]) != MIB:
                found = await payloads(group, 1)
            assert len(found[0]) == MIB

    with daemon(tmp_path) as it:
        run(main())


def test_much_more_than_the_credit_waits_and_arrives(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (_, group):

            async def send(name: bytes) -> None:
                for number in range(20):
                    await group.multicast_many([b"%s%d" % (name, number) + b"." * 1000] * 50)

            async with asyncio.TaskGroup() as tasks:
                for name in (b"a", b"b", b"c"):
                    tasks.create_task(send(name))
                found = tasks.create_task(payloads(group, 3000))
            for name in (b"a", b"b", b"c"):
                own = [payload for payload in found.result() if payload.startswith(name)]
                assert len(own) == 1000
                assert own[::50] == [b"%s%d" % (name, number) + b"." * 1000 for number in range(20)]

    with daemon(tmp_path, credit_bytes=65_536) as it:
        run(main())


def test_one_task_may_answer_every_message(tmp_path: Path) -> None:
    """It multicasts while it has events to take: waiting for credit must not keep it from getting any."""

    async def main() -> None:
        async with member(it.path) as (_, group), connect(it.path) as other:
            flood = asyncio.create_task(other.multicast_many("g", [b"q" * 2000] * 5000))
            answers = questions = 0
            async for event in group:
                if isinstance(event, Messages):
                    for payload in event.payloads:
                        if payload[:1] == b"q":
                            questions += 1
                            await group.multicast(b"a" * 2000)
                        else:
                            answers += 1
                    if answers == questions == 5000:
                        break
            await flood

    with daemon(tmp_path, credit_bytes=65_536) as it:
        run(main())


def test_leaving_the_session_sends_what_was_accepted(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (_, group):
            async with connect(it.path) as other:
                for number in range(1000):
                    await other.multicast("g", b"%d" % number)
            assert await payloads(group, 1000) == [b"%d" % number for number in range(1000)]

    with daemon(tmp_path) as it:
        run(main())


def test_a_group_may_be_left_and_joined_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with connect(it.path) as session:
            for number in range(5):
                async with session.join("g") as group:
                    await group.multicast(b"%d" % number)
                    assert isinstance(await anext(group), View)
                    assert await payloads(group, 1) == [b"%d" % number]
                with pytest.raises(StopAsyncIteration):
                    await anext(group)
                assert group.members == ()

    with daemon(tmp_path) as it:
        run(main())


# What is refused


def test_without_a_daemon_the_error_names_the_path_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nobody.sock"
    monkeypatch.setenv("TOTEMPOLE_SOCKET", str(path))

    async def main() -> None:
        with pytest.raises(SessionError, match=r"nobody\.sock.*totem node.*TOTEMPOLE_SOCKET"):
            async with connect():
                pass

    run(main())


def test_a_group_s_name_is_any_text(tmp_path: Path) -> None:
    name, other = "a,b c\nd\0\x1b[2J", ","

    async def main() -> None:
        async with member(it.path, name) as (session, group), session.join(other):
            assert set(await session.groups()) == {name, other}
            await session.multicast([name, other], b"both")
            event = await next_of(group, Messages)
            assert (event.groups, list(event.payloads)) == ((name, other), [b"both"])

    with daemon(tmp_path) as it:
        run(main())


def test_what_a_program_may_not_do_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    async def refused(text: str, attempt: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(SessionError, match=text):
            await attempt()

    async def main() -> None:
        async with member(it.path) as (session, group):
            await refused("joined already", session.join("g").__aenter__)
            await refused("UTF-8", session.join("\ud800").__aenter__)
            await refused("'' has 0 bytes", session.join("").__aenter__)
            await refused("has 101 bytes", session.join("n" * 101).__aenter__)
            await refused("'' has 0 bytes", lambda: session.multicast("", b"x"))
            with pytest.raises(TypeError, match="a group's name is a string, not int"):
                await session.join(5).__aenter__()  # type: ignore[arg-type]
            await refused("entered once", group.__aenter__)
            await refused("message_bytes_max", lambda: group.multicast(b"x" * 5_000_000))
            await refused("0 groups", lambda: session.multicast([], b"x"))
            await refused("UTF-8", lambda: session.multicast("\ud800", b"x"))
            with pytest.raises(SessionError, match="policy"):
                session.join("h", policy="perhaps")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="bytes"):
                await group.multicast("text")  # type: ignore[arg-type]
            await group.multicast(b"fine")
            assert await payloads(group, 1) == [b"fine"]
        await refused("closed", lambda: group.multicast(b"x"))
        await refused("closed", session.groups)
        await refused("closed", session.join("g").__aenter__)
        await refused("entered once", session.__aenter__)

    with daemon(tmp_path, GroupConfig(message_bytes_max=4_000_000)) as it:
        run(main())


# Consumers


def test_a_consumer_that_is_cancelled_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (_, group):
            found: list[bytes] = []
            number = 0
            while len(found) < 20:
                await group.multicast(b"%d" % number)
                number += 1
                try:
                    async with asyncio.timeout(0.001):
                        found += await payloads(group, 1)
                except TimeoutError:
                    continue
            assert found == [b"%d" % number for number in range(len(found))]

    with daemon(tmp_path) as it:
        run(main())


def test_several_tasks_may_share_the_work_of_a_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path) as (_, group):
            found: list[bytes] = []

            async def work() -> None:
                async for event in group:
                    if isinstance(event, Messages):
                        found.extend(event.payloads)
                        await asyncio.sleep(0)

            workers = [asyncio.create_task(work()) for _ in range(3)]
            for number in range(30):
                await group.multicast(b"%d" % number)
                await asyncio.sleep(0)
            while len(found) < 30:
                await asyncio.sleep(0.001)
            for worker in workers:
                worker.cancel()
            assert len(set(found)) == 30

    with daemon(tmp_path) as it:
        run(main())


def test_who_takes_nothing_is_disconnected_and_comes_back(tmp_path: Path) -> None:
    """The session stops reading, so that the daemon's bound and its policy take effect."""

    async def main() -> None:
        async with connect(it.path, reconnect=QUICK) as slow, slow.join("g") as group:
            before = slow.process
            async with connect(it.path) as other:
                await other.multicast_many("g", [b"x" * 50_000] * 400)
                it.wait_for(lambda status: "too slow" in it.reasons())
            back = await next_of(group, Reconnected)
            assert back.before == before
            assert back.seen["g"] is not None
            heard = b""
            while heard != b"back":
                assert "client_receive_bytes_max" in back.reason
                match await next_of(group, Reconnected, View, Messages):
                    case Reconnected() as back:  # too slow again, for what was still under way
                        pass
                    case View(members=members):
                        assert members == (back.process,)
                        await group.multicast(b"back")
                    case Messages(payloads=(*_, heard)):  # the other one's too
                        pass

    with daemon(tmp_path, client_receive_bytes_max=MIB, memory_bytes_max=256 * MIB) as it:
        run(main())


def test_who_multicasts_before_it_takes_its_events_comes_back_first(tmp_path: Path) -> None:
    """It stays away while it has many events to take, unless it waits for the daemon."""

    async def main() -> None:
        async with connect(it.path, reconnect=QUICK) as slow, slow.join("g") as group:
            before = slow.process
            async with connect(it.path) as other:
                await other.multicast_many("g", [b"x" * 50_000] * 400)
                await asyncio.to_thread(it.wait_for, lambda status: "too slow" in it.reasons())
            while slow.process == before:  # the first is written, which tells that the daemon has hung up
                await asyncio.gather(*(group.multicast(b"back") for _ in range(3)))
            assert (await next_of(group, Reconnected)).before == before

    with daemon(tmp_path, client_receive_bytes_max=MIB, memory_bytes_max=256 * MIB) as it:
        run(main())


def test_who_sheds_gets_a_gap(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path, policy="shed") as (_, group), connect(it.path) as other:
            await other.multicast_many("g", [b"x" * 50_000] * 400)
            await other.groups()
            got = lost = 0
            while got + lost < 400:
                event = await anext(group)
                if isinstance(event, Messages):
                    got += len(event.payloads)
                if isinstance(event, Gap):
                    lost += event.messages
            assert lost > 0
            assert got > 0

    with daemon(tmp_path, client_receive_bytes_max=MIB, memory_bytes_max=256 * MIB) as it:
        run(main())


def test_a_group_that_nobody_takes_from_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with (
            member(it.path, "g") as (session, group),
            session.join("h") as quiet,
            connect(it.path) as other,
        ):
            await session.multicast_many("g", [b"x" * 50_000] * 200)
            while not session.connection.link or not session.connection.link.reading_paused:
                await asyncio.sleep(0.001)
            waiting = asyncio.create_task(next_of(quiet, Messages))
            await other.multicast("h", b"x")
            while "group 'h' waits" not in caplog.text:
                await asyncio.sleep(0.001)
            assert "group 'g' has" in caplog.text
            await payloads(group, 200)
            await waiting

    with caplog.at_level(logging.WARNING, "totempole.client"), daemon(tmp_path) as it:
        run(main())


# State for joiners


def test_a_joiner_gets_the_state_as_of_its_place(tmp_path: Path) -> None:
    """A counter: whoever joins has the same sum at the same place."""

    async def count(group: Group, until: int, total: list[int], sums: dict[Any, int]) -> None:
        async for event in group:
            if isinstance(event, State) and event.data is not None:
                total[0] = int(event.data)
            if isinstance(event, Messages):
                for payload in event.payloads:
                    total[0] += int(payload)
                sums[event.place] = total[0]
            if total[0] >= until:
                return

    async def main() -> None:
        total, sums = [0], {}
        until = sum(range(400))
        async with member(it.path, state=lambda: b"%d" % total[0]) as (_, donor):
            consumer = asyncio.create_task(count(donor, until, total, sums))
            others = []
            for number in range(400):
                await donor.multicast(b"%d" % number)
                if number % 100 == 50:
                    session = await connect(it.path).__aenter__()
                    group = await session.join("g", want_state=True).__aenter__()
                    mine: dict[Any, int] = {}
                    others.append((session, mine, asyncio.create_task(count(group, until, [0], mine))))
                await asyncio.sleep(0)
            await consumer
            for session, mine, task in others:
                await task
                assert mine
                assert mine.items() <= sums.items()
                await session.close()

    with daemon(tmp_path) as it:
        run(main())


async def _chunks() -> AsyncIterator[bytes]:
    for number in range(20):
        await asyncio.sleep(0)
        yield bytes([number]) * 100_000


WHOLE = b"".join(bytes([number]) * 100_000 for number in range(20))


async def _whole() -> bytes:
    await asyncio.sleep(0)
    return WHOLE


@pytest.mark.parametrize(
    "provider",
    [
        lambda: WHOLE,
        lambda: bytearray(WHOLE),
        lambda: [WHOLE[at : at + 7777] for at in range(0, len(WHOLE), 7777)],
        _chunks,
        _whole,
    ],
)
def test_a_state_may_be_given_in_any_form_while_the_donor_goes_on(tmp_path: Path, provider: Any) -> None:
    async def main() -> None:
        async with member(it.path, state=provider) as (_, donor):
            consumer = asyncio.create_task(payloads(donor, 100))
            async with member(it.path, want_state=True) as (_, joiner):
                for number in range(100):
                    await donor.multicast(b"%d" % number)
                    await asyncio.sleep(0)
                assert isinstance(await anext(joiner), View)
                state = await anext(joiner)
                assert isinstance(state, State)
                assert state.data == WHOLE
                assert await payloads(joiner, 100) == [b"%d" % number for number in range(100)]
            await consumer

    with daemon(tmp_path, credit_bytes=65_536) as it:
        run(main())


def test_a_donor_that_cannot_give_leaves_and_another_gives(tmp_path: Path) -> None:
    def broken() -> bytes:
        raise KeyError("state")

    async def main() -> None:
        async with (
            member(it.path, state=broken) as (_, one),
            member(it.path, state=lambda: b"two") as (_, two),
        ):
            taking = asyncio.gather(payloads(one, 1), payloads(two, 1), return_exceptions=True)
            async with member(it.path, want_state=True) as (_, joiner):
                state = await next_of(joiner, State)
                assert state.data == b"two"
                await joiner.multicast(b"x")
                failure, found = await taking
                assert isinstance(failure, SessionError)
                assert "KeyError" in str(failure)
                assert found == [b"x"]

    with daemon(tmp_path) as it:
        run(main())


def test_a_joiner_without_donors_begins_afresh(tmp_path: Path) -> None:
    async def main() -> None:
        async with member(it.path, want_state=True) as (_, group):
            assert isinstance(await anext(group), View)
            state = await anext(group)
            assert isinstance(state, State)
            assert (state.donor, state.data) == (None, None)

    with daemon(tmp_path) as it:
        run(main())


# A daemon that goes away


def test_a_session_comes_back_as_a_new_process_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        first = daemon(tmp_path)
        it = await asyncio.to_thread(first.__enter__)
        async with (
            connect(it.path, reconnect=QUICK) as session,
            session.join("g") as g,
            session.join("h") as h,
        ):
            before = session.process
            await g.multicast(b"before")
            event = await next_of(g, Messages)
            await asyncio.to_thread(first.__exit__, None, None, None)
            second = daemon(tmp_path)
            while session.connection.link is not None:
                await asyncio.sleep(0.001)
            sending = asyncio.create_task(g.multicast(b"meanwhile"))
            asking = asyncio.create_task(session.groups())
            await asyncio.sleep(0.05)
            assert not sending.done(), "multicasts wait for the daemon"
            it = await asyncio.to_thread(second.__enter__)
            it.loop.ask(lambda: None)
            back = await next_of(g, Reconnected)
            assert back.before == before
            assert back.process == session.process
            assert back.seen["g"] == event.place
            assert back.unacknowledged == 0
            assert isinstance(await anext(g), View)
            assert await payloads(g, 1) == [b"meanwhile"]
            assert await next_of(h, Reconnected) == back
            assert isinstance(await anext(h), View)
            await sending
            await asking
        await asyncio.to_thread(second.__exit__, None, None, None)

    run(main())


def test_without_reconnecting_iterating_raises(tmp_path: Path) -> None:
    async def main() -> None:
        it = daemon(tmp_path)
        path = (await asyncio.to_thread(it.__enter__)).path
        async with connect(path, reconnect=False) as session, session.join("g") as group:
            whole = session.events()
            await asyncio.to_thread(it.__exit__, None, None, None)
            with pytest.raises(SessionError, match="is over"):
                await next_of(whole, Messages)
            with pytest.raises(SessionError, match="is over"):
                await group.multicast(b"x")

    run(main())


def test_who_gives_up_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        it = daemon(tmp_path)
        path = (await asyncio.to_thread(it.__enter__)).path
        how = Reconnect(first_s=0.01, most_s=0.01, give_up_s=0.05)
        async with connect(path, reconnect=how) as session, session.join("g") as group:
            await asyncio.to_thread(it.__exit__, None, None, None)
            with pytest.raises(SessionError, match="did not come back"):
                await next_of(group, Messages)

    run(main())
