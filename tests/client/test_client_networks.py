"""What a program hears of a redundant ring's networks: when it asks, and as events where it wants them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import Daemon, daemon
from scripted_daemon import ME, OTHER, Hearing, begins, chunk, encoded, hear, messages, view, welcome

from totempole.client import blocking
from totempole.client.endpoint import Reconnect
from totempole.client.events import Messages, NetworkChanged, Reconnected, State, View
from totempole.client.protocol import Joining, Protocol
from totempole.client.session import connect
from totempole.networks.events import NetworkChanged as Changed
from totempole.networks.events import NetworkState
from totempole.session import AskNetworks, Hello, NetworkNews, NetworkStatus, NetworkTable, Policy
from totempole.types import OrderKey, Place, RingId

KEY = OrderKey(RingId(4, 1), 50, RingId(4, 1))
TWO = (NetworkStatus("a", "in_service", ""), NetworkStatus("b", "sick", "3 cannot send"))
NEWS = NetworkNews("a", "in_service", "faulty", "1 does not hear 2", KEY)
EVENT = NetworkChanged("a", "faulty", "in_service", "1 does not hear 2", Place(KEY, 0))
STANDING = [
    NetworkChanged("a", "in_service", None, "", None),
    NetworkChanged("b", "sick", None, "3 cannot send", None),
]
QUICK = Reconnect(first_s=0.01, most_s=0.05, give_up_s=60)


def opened() -> Protocol:
    protocol = Protocol()
    protocol.connect()
    hear(protocol, encoded(welcome()))
    protocol.sending.out.clear()
    return protocol


def said(protocol: Protocol) -> list[Any]:
    out, protocol.sending.out = protocol.sending.out, []
    return Hearing().feed(b"".join(out))


def taken(protocol: Protocol) -> list[Any]:
    assert protocol.inbox.whole is not None
    return [item.event for item in iter(lambda: protocol.inbox.take(protocol.inbox.whole), None)]  # type: ignore[arg-type]


def test_the_table_is_an_answer() -> None:
    protocol = opened()
    request = protocol.ask_networks()
    assert said(protocol) == [AskNetworks(request)]
    hear(protocol, encoded(NetworkTable(request, TWO)))
    assert [answer.value for answer in protocol.answers] == [TWO]


def test_who_wants_changes_hears_first_how_things_stand() -> None:
    protocol = opened()
    protocol.open_events(networks=True)
    protocol.open_events(networks=True)
    (asked,) = said(protocol)
    assert asked.watch
    hear(protocol, encoded(NetworkTable(asked.request, TWO), NEWS))
    assert taken(protocol) == [*STANDING, EVENT]
    assert not protocol.answers
    assert not protocol.asking


def test_who_does_not_want_changes_hears_none() -> None:
    protocol = opened()
    protocol.open_events(networks=False)
    hear(protocol, encoded(NEWS))
    assert said(protocol) == taken(protocol) == []


def test_after_closing_the_stream_changes_are_wanted_anew() -> None:
    protocol = opened()
    protocol.open_events(networks=True)
    said(protocol)
    protocol.inbox.close_whole()
    protocol.open_events(networks=False)
    hear(protocol, encoded(NEWS))
    assert taken(protocol) == []
    protocol.open_events(networks=True)
    assert len(said(protocol)) == 1


def test_a_session_that_comes_back_asks_again() -> None:
    protocol = opened()
    protocol.open_events(networks=True)
    protocol.lost("gone")
    said(protocol)
    protocol.connect()
    hear(protocol, encoded(welcome()))
    hello, asked = said(protocol)
    assert (type(hello), asked.watch) == (Hello, True)
    hear(protocol, encoded(NetworkTable(asked.request, TWO)))
    assert [type(event) for event in taken(protocol)] == [Reconnected, NetworkChanged, NetworkChanged]
    assert not protocol.answers


def test_asking_while_the_connection_is_lost_fails_and_watching_waits() -> None:
    protocol = opened()
    request = protocol.ask_networks()
    protocol.lost("gone")
    protocol.open_events(networks=True)
    assert [(answer.request, str(answer.error)) for answer in protocol.answers] == [(request, "gone")]
    assert said(protocol) == []
    protocol.connect()
    hear(protocol, encoded(welcome()))
    assert [type(frame) for frame in said(protocol)] == [Hello, AskNetworks]


def test_a_change_keeps_its_place_behind_a_state_that_is_on_its_way() -> None:
    protocol = opened()
    protocol.open_events(networks=True)
    protocol.join(Joining("g", Policy.BLOCK, None, True))
    hear(protocol, encoded(view(10, OTHER, first=True), begins(20), messages(30, b"x"), NEWS))
    assert [type(event) for event in taken(protocol)] == [View]
    hear(protocol, encoded(messages(60, b"y"), chunk(b"state", last=True)))
    kinds = [type(event) for event in taken(protocol)]
    assert kinds == [State, Messages, NetworkChanged, Messages]
    assert ME in protocol.inbox.memberships["g"].members


def change(it: Daemon) -> None:
    changed = Changed(0, "a", NetworkState.IN_SERVICE, NetworkState.FAULTY, "1 does not hear 2", KEY)
    it.loop.ask(lambda: it.service.network_changed(changed))


def test_asyncio_programs(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), connect(it.path) as session:
            assert await session.networks() == ()
            it.loop.network_status = TWO
            assert await session.networks() == TWO
            events = session.events(networks=True)
            assert [await anext(events), await anext(events)] == STANDING
            change(it)
            assert await anext(events) == EVENT

    with daemon(tmp_path) as it:
        asyncio.run(main())


def test_programs_without_asyncio(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, blocking.connect(it.path) as session:
        it.loop.network_status = TWO
        assert session.networks(timeout=60) == TWO
        events = session.events(networks=True)
        assert [events.next(60), events.next(60)] == STANDING
        change(it)
        assert events.next(60) == EVENT
        with pytest.raises(TimeoutError):
            events.next(0)
