"""The blocking session, with a real daemon. The tests' own threads stand for other programs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import daemon

from totempole.client.blocking import Group, Session, connect
from totempole.client.endpoint import Reconnect
from totempole.client.events import Gap, Messages, Reconnected, Safe, State, View
from totempole.errors import SessionError
from totempole.groups import GroupConfig
from totempole.types import Service

MIB = 1024 * 1024
LIMIT_S = 60.0
QUICK = Reconnect(first_s=0.01, most_s=0.05, give_up_s=LIMIT_S)


@contextmanager
def member(path: Path, group: str = "g", **how: Any) -> Iterator[tuple[Session, Group]]:
    with connect(path) as session, session.join(group, **how) as joined:
        yield session, joined


def payloads(events: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        event = events.next(timeout=LIMIT_S)
        if isinstance(event, Messages):
            found += event.payloads
    return found


def next_of(events: Any, kind: type) -> Any:
    while True:
        event = events.next(timeout=LIMIT_S)
        if isinstance(event, kind):
            return event


def test_ten_lines_join_a_group_multicast_and_consume(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, connect(it.path) as session:
        events = []
        with session.join("orders") as group:
            assert group.members == (session.process,)
            group.multicast(b"one", service=Service.SAFE)
            group.multicast_many([b"two", b"three"])
            for event in group:
                events.append(event)
                if len(events) == 3:
                    break
        view, one, rest = events
        assert isinstance(view, View)
        assert isinstance(one, Messages)
        assert isinstance(rest, Messages)
        assert (list(one.payloads), one.service) == ([b"one"], Service.SAFE)
        assert list(rest.payloads) == [b"two", b"three"]
        with pytest.raises(SessionError, match="left"):
            group.next()
        assert list(group) == []


def test_two_programs_get_one_order(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, member(it.path) as (_, one), member(it.path) as (other, two):
        for number in range(50):
            one.multicast(b"a%d" % number)
            two.multicast(b"b%d" % number)
        assert payloads(one, 100) == payloads(two, 100)
        two.multicast(b"last", safe_notice=True)  # not before: `payloads` would pass over the notice
        assert next_of(one, Safe).sender == other.process
        assert set(other.groups(timeout=LIMIT_S)) == {"g"}


def test_next_waits_no_longer_than_it_is_told(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, member(it.path) as (_, group):
        assert isinstance(group.next(timeout=LIMIT_S), View)
        for timeout in (0, 0.01):
            with pytest.raises(TimeoutError):
                group.next(timeout=timeout)
        group.multicast(b"x")
        assert payloads(group, 1) == [b"x"]


def test_one_stream_of_all_groups(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, member(it.path) as (session, _), session.join("h"):
        events = session.events()
        for number in range(9):
            session.multicast([("g",), ("h",), ("g", "h")][number % 3], b"%d" % number)
        assert payloads(events, 9) == [b"%d" % number for number in range(9)]
        events.close()
        assert list(events) == []


def test_messages_of_any_size_and_more_than_the_credit(tmp_path: Path) -> None:
    with daemon(tmp_path, credit_bytes=65_536) as it, member(it.path) as (_, group):
        sent = [b"x" * size for size in (0, 10, 70_000, 5 * MIB, 1, 3 * MIB)] + [b"y" * 1000] * 2000
        group.multicast_many(sent, timeout=LIMIT_S)
        assert payloads(group, len(sent)) == sent


def test_a_program_that_sends_and_never_takes_is_told_so(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, member(it.path) as (session, group):
        with pytest.raises(SessionError, match=r"'g' has .* does not take"):
            group.multicast_many([b"x" * 50_000] * 4000)
        assert payloads(group, 1)
        assert session.fileno() >= 0


def test_what_was_accepted_is_sent_before_the_session_ends(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, member(it.path) as (_, group):
        with connect(it.path) as other:
            for number in range(300):
                other.multicast("g", b"%d" % number)
        assert payloads(group, 300) == [b"%d" % number for number in range(300)]


def test_a_state_is_given_by_the_calls_that_a_program_makes_anyway(tmp_path: Path) -> None:
    state = b"0123456789" * 200_000
    with (
        daemon(tmp_path, credit_bytes=65_536) as it,
        member(it.path, state=lambda: iter([state])) as (_, donor),
    ):
        got: list[Any] = []

        def join() -> None:
            with member(it.path, want_state=True) as (_, joiner):
                got.append(next_of(joiner, State))
                joiner.multicast(b"thanks")
                got.extend(payloads(joiner, 1))

        other = threading.Thread(target=join)
        other.start()
        assert payloads(donor, 1) == [b"thanks"]
        other.join(LIMIT_S)
        assert got[0].data == state
        assert got[1:] == [b"thanks"]


def test_a_provider_that_fails_ends_the_membership(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise KeyError("chunk")

    with daemon(tmp_path) as it, member(it.path, state=broken) as (_, donor):
        got: list[Any] = []

        def join() -> None:
            with member(it.path, want_state=True) as (_, joiner):
                got.append(next_of(joiner, State))

        other = threading.Thread(target=join)
        other.start()
        with pytest.raises(SessionError, match="KeyError"):
            payloads(donor, 1)
        with connect(it.path) as session:
            assert session.groups(timeout=LIMIT_S) is not None
        # leaving was the session's own doing, and is written with its next call
        donor._session.groups(timeout=LIMIT_S)
        other.join(LIMIT_S)
        assert got[0].data is None


def test_who_sheds_gets_a_gap(tmp_path: Path) -> None:
    settings = {"client_receive_bytes_max": MIB, "memory_bytes_max": 256 * MIB}
    with (
        daemon(tmp_path, **settings) as it,
        member(it.path, policy="shed") as (_, group),
        connect(it.path) as other,
    ):
        other.multicast_many("g", [b"x" * 50_000] * 100)
        assert next_of(group, Gap).messages > 0


def test_what_a_program_may_not_do_is_refused(tmp_path: Path) -> None:
    with daemon(tmp_path, GroupConfig(message_bytes_max=4_000_000)) as it:
        with member(it.path) as (session, group):
            with pytest.raises(SessionError, match="joined already"):
                session.join("g").__enter__()
            with pytest.raises(SessionError, match="message_bytes_max"):
                group.multicast(b"x" * 5_000_000)
            with pytest.raises(SessionError, match="UTF-8"):
                session.join("\ud800").__enter__()
            with pytest.raises(SessionError, match="'' has 0 bytes"):
                session.join("").__enter__()
            with pytest.raises(TypeError, match="bytes"):
                group.multicast("text")  # type: ignore[arg-type]
            group.multicast(b"fine")
            assert payloads(group, 1) == [b"fine"]
        with pytest.raises(SessionError, match="closed"):
            group.multicast(b"x")
        with pytest.raises(SessionError, match="entered once"):
            session.__enter__()


def test_without_a_daemon_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"nobody\.sock.*totem node"), connect(tmp_path / "nobody.sock"):
        pass


def test_a_session_comes_back_as_a_new_process_and_says_so(tmp_path: Path) -> None:
    first = daemon(tmp_path)
    path = first.__enter__().path
    with connect(path, reconnect=QUICK) as session, session.join("g") as group:
        before = session.process
        group.multicast(b"before")
        event = next_of(group, Messages)
        first.__exit__(None, None, None)
        with pytest.raises(TimeoutError):
            group.next(timeout=0.05)
        with pytest.raises(TimeoutError):
            group.multicast(b"too early", timeout=0.05)
        with daemon(tmp_path):
            group.multicast(b"later", timeout=LIMIT_S)
            back = group.next(timeout=LIMIT_S)
            assert isinstance(back, Reconnected)
            assert (back.before, back.process) == (before, session.process)
            assert back.seen == {"g": event.place}
            assert isinstance(group.next(timeout=LIMIT_S), View)
            assert payloads(group, 1) == [b"later"]
            session.close()


def test_without_reconnecting_the_loss_is_an_error(tmp_path: Path) -> None:
    first = daemon(tmp_path)
    with connect(first.__enter__().path, reconnect=False) as session, session.join("g") as group:
        first.__exit__(None, None, None)
        with pytest.raises(SessionError, match="is over"):
            payloads(group, 1)


def test_who_gives_up_says_so(tmp_path: Path) -> None:
    first = daemon(tmp_path)
    how = Reconnect(first_s=0.01, most_s=0.01, give_up_s=0.05)
    with connect(first.__enter__().path, reconnect=how) as session, session.join("g") as group:
        first.__exit__(None, None, None)
        with pytest.raises(SessionError, match="did not come back"):
            payloads(group, 1)
