"""What a daemon tells its clients of a redundant ring's networks: to those who ask, and to nobody else."""

from __future__ import annotations

from pathlib import Path

from daemon_loop import Daemon, daemon

from totempole.networks.events import NetworkChanged, NetworkState
from totempole.session import AskGroups as Groups
from totempole.session import AskNetworks, GroupTable, NetworkNews, NetworkStatus, NetworkTable, Policy
from totempole.types import OrderKey, RingId

KEY = OrderKey(RingId(8, 1), 70, RingId(8, 1))
TWO = (NetworkStatus("a", "in_service", ""), NetworkStatus("b", "faulty", "3 cannot send"))


def change(it: Daemon, new: NetworkState, why: str = "") -> None:
    changed = NetworkChanged(1, "b", NetworkState.IN_SERVICE, new, why, KEY)
    it.loop.ask(lambda: it.service.network_changed(changed))


def test_a_client_asks_how_the_networks_are(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        asked = program.request(AskNetworks)
        assert program.expect(NetworkTable) == NetworkTable(asked, ())
        it.loop.network_status = TWO
        asked = program.request(AskNetworks)
        assert program.expect(NetworkTable) == NetworkTable(asked, TWO)


def test_changes_are_for_those_who_watch(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as watching, it.program() as other:
        watching.request(AskNetworks, True)
        watching.expect(NetworkTable)
        change(it, NetworkState.SICK, "3 cannot send in part: packets are lost")
        expected = NetworkNews("b", "in_service", "sick", "3 cannot send in part: packets are lost", KEY)
        assert watching.expect(NetworkNews) == expected
        asked = other.request(Groups)
        assert other.next() == GroupTable(asked, {})


def test_watching_twice_tells_once_and_ends_with_the_client(tmp_path: Path) -> None:
    with daemon(tmp_path) as it:
        with it.program() as program:
            for _ in range(2):
                program.request(AskNetworks, True)
                program.expect(NetworkTable)
            change(it, NetworkState.DRAINED)
            assert program.expect(NetworkNews).state == "drained"
            asked = program.request(Groups)
            assert program.next() == GroupTable(asked, {})
        it.wait_for(lambda status: status["clients"] == 0)
        change(it, NetworkState.FAULTY)  # nobody is told, and nothing breaks


def test_news_may_go_over_the_bound_of_a_client_that_sheds(tmp_path: Path) -> None:
    """Its queue is full of messages, the rest of which are left out. A change is not."""
    with daemon(tmp_path, client_receive_bytes_max=65_536) as it, it.program() as slow:
        slow.request(AskNetworks, True)
        slow.expect(NetworkTable)
        slow.join("g", Policy.SHED)
        with it.program() as sender:
            while not it.snapshot()["shed_messages"]:
                sender.send("g", b"x" * 20_000)
        change(it, NetworkState.FAULTY, "split into 1 and 2, 3")
        assert slow.expect(NetworkNews).why == "split into 1 and 2, 3"
