"""Nodes whose ring is on several networks, on real sockets: networks die, come late and come back."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import Place, a_place, has_ipv6, wait_until
from members import PATIENT, Member, started, wait_for_ring

from sweeps import first_of, first_row_of
from totempole.core.effects import Channel
from totempole.errors import NetworkAbsentError, NetworkError
from totempole.rrp.config import RedundancyConfig
from totempole.rrp.hello import Ways
from totempole.runtime import interface as interface_module
from totempole.runtime import reading
from totempole.runtime import sockets as sockets_module
from totempole.runtime.config import NetworkConfig, NodeConfig, Peer, SecurityConfig, TraceConfig
from totempole.runtime.hints import NETWORK_ABSENT
from totempole.runtime.interface import Condition, Interface, find_interface
from totempole.runtime.network import SEGMENT_BYTES_USUAL, Network
from totempole.runtime.replaying import replay
from totempole.runtime.reports import DIGESTS, WAYS
from totempole.runtime.snapshot import snapshot
from totempole.runtime.sockets import BRIEF_WAIT_US, Read, Sockets
from totempole.segment import Burst, Cutter, PacketName
from totempole.segment.header import NameKind, data_name
from totempole.types import RingId


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


def address(place: Place, number: int, network: int) -> str:
    return place.address(number + 50 * network)


def network_config(place: Place, number: int, network: int, members: int, **settings: Any) -> NetworkConfig:
    peers = tuple(Peer(each, address(place, each, network), place.port) for each in range(1, members + 1))
    mesh: dict[str, Any] = {"transport": "mesh", "peers": peers}
    return NetworkConfig(
        **{"name": "abcdefg"[network], "address": address(place, number, network), "port": place.port}
        | ({} if settings.get("transport") == "multicast" else mesh)
        | settings
    )


def config_of(
    place: Place,
    number: int,
    directory: Path,
    *,
    members: int = 2,
    networks: int = 2,
    style: str = "passive",
    copies: int = 0,
    network: Any = None,
    **settings: Any,
) -> NodeConfig:
    """`network`: further settings of each."""
    first, *more = [
        network_config(place, number, each, members, **(network or {})) for each in range(networks)
    ]
    redundancy = RedundancyConfig(style=style, copies=copies, hello_us=100_000, probation_us=200_000)
    return NodeConfig(
        **{
            "processor": number,
            "directory": directory / f"node{number}",
            "network": first,
            "more_networks": tuple(more),
            "security": SecurityConfig(unsealed=True),
            "ring": PATIENT,
            "redundancy": redundancy,
            "lag_alarm_ms": 60_000,
        }
        | settings
    )


class Cables:
    """Pulls the interface of an address, as far as a node looks; its sockets then hear and send nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pulled: set[str] = set()
        self.down: set[str] = set()
        for module in (sockets_module, interface_module):
            monkeypatch.setattr(module, "find_interface", self._find)

    def _find(self, address: str) -> Interface:
        if address in self.pulled:
            raise NetworkAbsentError(f"no interface has {address}")
        return find_interface(address)._replace(works=address not in self.down)


@pytest.fixture
def cables(monkeypatch: pytest.MonkeyPatch) -> Cables:
    return Cables(monkeypatch)


def wait_for_messages(number: int, *members: Member) -> None:
    def here() -> bool:
        for member in members:
            assert member.error is None, member.error
        return all(len(member.messages) >= number for member in members)

    wait_until(here, f"no {number} messages")


def exchange(members: list[Member], name: str, number: int = 60) -> None:
    """Every member sends; all deliver the same, all of it, in one order."""
    before = [len(member.messages) for member in members]
    sent = []
    for turn in range(number):
        for member in members:
            message = b"%s-%d-%d" % (name.encode(), member.driver.config.processor, turn)
            member.send(message.ljust(2_000 * (turn % 5) + len(message), b"."))
            sent.append(message)
    for member, start in zip(members, before, strict=True):
        wait_for_messages(start + len(sent), member)
    first = members[0].messages
    assert all(member.messages == first for member in members)
    assert {message.rstrip(b".") for message in first} >= set(sent)
    assert len(first) == len(set(first))


def states(member: Member) -> list[str]:
    """Of each network, as all members have agreed."""
    return [state.name for state in member.driver.stack.networks[0].service.states]


def network_of(member: Member, number: int) -> Network:
    return member.driver.networks[number]


# Order


@pytest.mark.parametrize(
    ("style", "networks", "copies"),
    first_row_of([("passive", 2, 0), ("active", 2, 0), ("active-passive", 3, 2)]),
)
def test_each_style_delivers_everything_in_one_order(
    place: Place, tmp_path: Path, style: str, networks: int, copies: int
) -> None:
    settings = {"members": 3, "style": style, "networks": networks, "copies": copies}
    with started(*[config_of(place, me, tmp_path, **settings) for me in (1, 2, 3)]) as members:
        wait_for_ring(*members)
        exchange(members, style)
        for member in members:
            assert all(network.sockets.is_open and network.is_there for network in member.driver.networks)
            assert not any(network.sockets.refused for network in member.driver.networks)


def test_multicast_with_a_group_for_each_network(place: Place, tmp_path: Path) -> None:
    configs = [config_of(place, me, tmp_path, network={"transport": "multicast"}) for me in (1, 2)]
    assert [network.group for network in configs[0].networks] == ["239.192.54.1", "239.192.54.2"]
    with started(*configs) as members:
        wait_for_ring(*members)
        exchange(members, "multicast")
        assert not members[0].logged("another node uses this processor's number")


@has_ipv6
def test_networks_of_two_families_and_transports(place: Place, tmp_path: Path) -> None:
    def config(me: int) -> NodeConfig:
        first = network_config(place, me, 0, 2, transport="multicast")
        peers = tuple(Peer(each, "::1", place.port + 2 * each) for each in (1, 2))
        second = NetworkConfig(address="::1", port=place.port + 2 * me, transport="mesh", peers=peers)
        return replace(config_of(place, me, tmp_path), network=first, more_networks=(second,))

    with started(config(1), config(2)) as members:
        wait_for_ring(*members)
        exchange(members, "families")


# Networks that go and come


def test_order_holds_when_a_networks_sockets_die(place: Place, tmp_path: Path, cables: Cables) -> None:
    with started(*[config_of(place, me, tmp_path, members=3) for me in (1, 2, 3)]) as members:
        wait_for_ring(*members)
        exchange(members, "before")
        kinds = [list(member.kinds) for member in members]
        victim, lost = members[1], network_of(members[1], 1)
        exchanging = threading.Thread(target=exchange, args=(members, "during", 300))
        exchanging.start()
        cables.pulled.add(lost.config.address)
        wait_until(lambda: not lost.sockets.is_open)
        exchanging.join()
        wait_until(lambda: all(states(member)[1] == "FAULTY" for member in members), "nobody has noticed")
        exchange(members, "without")
        assert lost.sockets.refused[NETWORK_ABSENT] > 0
        assert len(victim.logged("network is absent", "network=b")) == 1
        cables.pulled.clear()
        wait_until(lambda: lost.sockets.is_open)
        wait_until(lambda: all(states(member) == ["IN_SERVICE"] * 2 for member in members), "not taken back")
        exchange(members, "after")
        assert len(victim.logged("network is back", "network=b")) == 1
        assert [member.kinds for member in members] == kinds, "a network is no reason to gather"


@pytest.mark.parametrize("absent", first_of([0, 1]))
def test_a_network_that_comes_later(place: Place, tmp_path: Path, cables: Cables, absent: int) -> None:
    cables.pulled.add(address(place, 1, absent))
    trace = TraceConfig(inputs=True)
    with started(*[config_of(place, me, tmp_path, trace=trace) for me in (1, 2)]) as members:
        late = network_of(members[0], absent)
        assert not late.sockets.is_open
        assert late.segment_bytes == SEGMENT_BYTES_USUAL[4]
        wait_for_ring(*members)
        assert (
            len(members[0].logged("network is absent", f"network={'ab'[absent]}", late.config.address)) == 1
        )
        assert snapshot(members[0].driver)["state"] == "operational"
        exchange(members, "without")
        cables.pulled.clear()
        wait_until(lambda: late.sockets.is_open)
        wait_until(lambda: all(states(member) == ["IN_SERVICE"] * 2 for member in members))
        # Its datagrams are those of the interface, not the usual ones.
        link = members[0].driver.stack.replicators[0]._link[absent]
        assert late.segment_bytes == late.sockets.segment_bytes > SEGMENT_BYTES_USUAL[4]
        wait_until(lambda: link.cut_bytes == late.segment_bytes)
        exchange(members, "with")
        assert network_of(members[1], absent).sockets.data.fileno() >= 0
        for member in members:
            member.driver.leave()
            member.end()
    (recording,) = (tmp_path / "node1" / "trace").glob("inputs-*.totem")
    report = replay(recording)
    assert report.identical, report.difference


def test_a_node_without_any_network_does_not_start(place: Place, tmp_path: Path, cables: Cables) -> None:
    cables.pulled |= {address(place, 1, 0), address(place, 1, 1)}
    with pytest.raises(NetworkAbsentError, match=address(place, 1, 0)) as caught:
        Member(config_of(place, 1, tmp_path))
    assert caught.value.may_pass


def test_a_port_that_another_program_has_is_a_mistake_at_the_start(place: Place, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((address(place, 1, 1), place.port))
        with pytest.raises(NetworkError, match="Address already in use"):
            Member(config_of(place, 1, tmp_path))


def test_a_port_that_is_taken_meanwhile_is_waited_for(place: Place, tmp_path: Path, cables: Cables) -> None:
    with started(config_of(place, 1, tmp_path)) as (member,):
        network = network_of(member, 1)
        cables.pulled.add(network.config.address)
        wait_until(lambda: not network.sockets.is_open)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((network.config.address, place.port))
            cables.pulled.clear()
            wait_until(lambda: "already in use" in network.absence)
        wait_until(lambda: network.is_there)
        assert len(member.logged("network is absent")) == 1


def test_an_interface_that_is_down_keeps_its_sockets(place: Place, tmp_path: Path, cables: Cables) -> None:
    with started(*[config_of(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        network = network_of(members[0], 0)
        sockets = network.sockets.all
        cables.down.add(network.config.address)
        wait_until(lambda: not network.is_there)
        wait_until(lambda: all(states(member)[0] == "FAULTY" for member in members))
        assert "interface" in members[1].driver.stack.networks[0].service.why[0]
        assert members[0].logged("network is absent", "down, or has no carrier")
        cables.down.clear()
        wait_until(lambda: all(states(member)[0] == "IN_SERVICE" for member in members))
        assert network.sockets.all == sockets
        assert all(sock.fileno() >= 0 for sock in sockets)
        exchange(members, "after")


def test_an_interface_made_anew_gets_new_sockets(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is another one: the old sockets are not members of its multicast group any more."""
    with started(*[config_of(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        network = network_of(members[0], 1)
        before = network.sockets.all
        anew = lambda where: find_interface(where)._replace(number=77)  # noqa: E731
        for module in (sockets_module, interface_module):
            monkeypatch.setattr(module, "find_interface", anew)
        wait_until(lambda: network.sockets.interface.number == 77)
        assert all(sock.fileno() == -1 for sock in before)
        wait_until(lambda: network.sockets.is_open)
        exchange(members, "anew")
        wait_until(lambda: all(states(member) == ["IN_SERVICE"] * 2 for member in members))


# Sending


class Refusing:
    """A socket that answers every send with an error, or with nothing for a while, as a full buffer does."""

    def __init__(self, sock: socket.socket, error: int) -> None:
        self.error = error
        self.flags: list[int] = []
        self._sock = sock

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int, address: Any) -> int:
        if self.error:
            self.flags.append(flags)
            raise OSError(self.error, "injected")
        return self._sock.sendmsg(buffers, ancillary, flags, address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.mark.parametrize(
    "error", [errno.ENETUNREACH, errno.ENODEV, errno.ENETDOWN, errno.EINVAL, errno.EPERM, errno.EAGAIN]
)
def test_errors_of_one_network_are_counted_there_and_stop_nobody(
    place: Place, tmp_path: Path, error: int
) -> None:
    with started(*[config_of(place, me, tmp_path, style="passive") for me in (1, 2)]) as members:
        wait_for_ring(*members)
        good, bad = (network_of(members[0], number).sockets for number in (0, 1))
        for name in ("data", "token"):
            setattr(bad, name, Refusing(getattr(bad, name), error))
        exchange(members, "refused")
        assert bad.refused[errno.errorcode[error]] > 0
        assert not good.refused
        assert [len(member.members) for member in members] == [2, 2]


def test_a_full_buffer_is_waited_for_once_and_briefly(place: Place) -> None:
    sockets = Sockets(network_config(place, 1, 0, 2), [network_config(place, 1, 1, 2)])
    other = Sockets(network_config(place, 2, 0, 2), [network_config(place, 2, 1, 2)])
    try:
        wait = sockets.data.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
        assert 0 < int.from_bytes(wait[8:], "little") <= 9_999
        assert BRIEF_WAIT_US < 10_000
        injector = Refusing(sockets.data, errno.EAGAIN)
        sockets.data = injector  # type: ignore[assignment]
        send = lambda: sockets.send(Channel.DATA, (Burst(b"x" * 10, 1_000),), other.own)  # noqa: E731
        for _ in range(5):
            send()
        assert injector.flags == [0, *[socket.MSG_DONTWAIT] * 4]
        assert sockets.refused == {"EAGAIN": 5}
        assert sockets.waits == 1
        injector.error = 0
        send()  # there is room: the next full buffer is waited for again
        injector.error = errno.EAGAIN
        send()
        assert injector.flags[-1] == 0
        wait_until(lambda: Sockets.read(other.data))
    finally:
        sockets.close()
        other.close()


@pytest.mark.parametrize("how", [Condition.GONE, Condition.UP])
def test_an_address_that_is_gone_is_no_fault_of_the_device(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: Condition
) -> None:
    """The kernel refuses a burst with the same error as a device that does not cut bursts."""
    sockets = Sockets(network_config(place, 1, 0, 2), [network_config(place, 1, 1, 2)])
    monkeypatch.setattr(sockets_module, "condition", lambda interface, address: how)
    injector = Refusing(sockets.data, errno.EINVAL)
    sockets.data = injector  # type: ignore[assignment]
    sockets.send(Channel.DATA, (Burst(bytes(3_000), 1_000),), (address(place, 2, 0), place.port))
    sockets.close()
    assert sockets.offload.send is (how is Condition.GONE)
    assert len(injector.flags) == (1 if how is Condition.GONE else 4)
    assert sockets.refused["EINVAL"] == (1 if how is Condition.GONE else 3)


def test_sockets_can_be_opened_again_and_counters_go_on(place: Place) -> None:
    others = [network_config(place, 1, 1, 2)]
    sockets = Sockets(network_config(place, 1, 0, 2, receive_buffer_bytes=4_096), others, open_now=False)
    assert not sockets.is_open
    assert sockets.receive_buffer_bytes == 4_096
    assert sockets.overflowed() == 0
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    counts = []
    try:
        for _ in range(2):
            sockets.open()
            for _ in range(50):
                sender.sendto(bytes(1_000), sockets.own)
            counts.append(sockets.overflowed())
            sockets.close()
            assert sockets.overflowed() == counts[-1]
            sockets.close()
    finally:
        sender.close()
        sockets.close()
    assert 0 < counts[0] < counts[1]


# Receiving


def test_a_flooded_network_does_not_keep_another_waiting(place: Place, tmp_path: Path) -> None:
    """Data before the token on each network; and the quiet one has both taken before the flood is over."""
    member = Member(config_of(place, 1, tmp_path))
    driver = member.driver
    order: list[tuple[int, str]] = []

    def received(network: Network, channel: Channel, read: Read) -> None:
        order.extend(
            [(network.number, channel.name)] * (len(read.data) // (read.segment_bytes or len(read.data)))
        )

    driver.receiver._receive = received  # type: ignore[method-assign]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((address(place, 9, 0), place.port))
            flooded, quiet = driver.networks
            for number in range(600):
                sender.sendto(b"%03d" % number, flooded.own)
            for network in (flooded, quiet):
                sender.sendto(b"token", (network.own[0], network.own[1] + 1))
            sender.sendto(b"data", quiet.own)
        wait_until(lambda: len(driver._epoll.poll(0)) == 4)
        driver.receiver.read_several(dict(driver._epoll.poll(0)))
        assert order.index((1, "DATA")) < order.index((1, "TOKEN"))
        assert order.index((1, "TOKEN")) <= reading.SLICE + 2
        assert order.index((0, "TOKEN")) == len(order) - 1 == reading.READS_MAX + 2
        assert order.count((0, "DATA")) == reading.READS_MAX
        driver.receiver.read_several(dict(driver._epoll.poll(0)))
        driver.receiver.read_several(dict(driver._epoll.poll(0)))
        assert order.count((0, "DATA")) == 600
    finally:
        member.stop()


def test_our_own_words_from_another_own_address_are_no_impostors(place: Place, tmp_path: Path) -> None:
    """Networks that are wired together bring a node's multicasts back, from the address of the other."""
    with started(*[config_of(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        driver = members[0].driver
        one, two = driver.networks
        fed: list[Any] = []
        feed: Callable[[Any], None] = driver.receiver._feed
        done = threading.Event()

        def words_come_back() -> None:
            driver.receiver._feed = fed.append  # type: ignore[method-assign, assignment]
            driver.receiver._receive(one, Channel.DATA, Read(b"our own words", 0, two.own))
            driver.receiver._receive(two, Channel.DATA, Read(b"our own words", 0, one.own))
            driver.receiver._feed = feed  # type: ignore[method-assign]
            done.set()

        driver.call(words_come_back)
        assert done.wait(10)
        assert fed == []


def test_of_what_strays_from_another_network_hellos_are_heard_and_messages_are_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that are wired together are noticed, and the load of one does not become that of the other."""
    interface = find_interface("127.0.0.1")._replace(loopback=False)
    monkeypatch.setattr(sockets_module, "find_interface", lambda _: interface)
    groups = ["239.192.54.1", "239.192.54.2"]
    configs = [
        network_config(place, 1, number, 2, transport="multicast", multicast_group=group)
        for number, group in enumerate(groups)
    ]
    sockets = Sockets(configs[0], configs[1:])
    try:
        (stray,) = sockets.strays
        assert stray.getsockname() == (groups[1], place.port)
        names = [data_name(RingId(4, 1), 7), PacketName(NameKind.OTHER, 1, 1, 5)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            choice = bytes(8) + interface.number.to_bytes(4, "little")
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, choice)
            for name in names * 3:
                (burst,) = Cutter(1_400, 1, 1).cut(name.kind.to_bytes(10), name)
                sender.sendto(burst.data, (groups[1], place.port))
        heard: list[bytes] = []

        def all_heard() -> bool:
            while (read := Sockets.read(stray)) is not None:
                heard.append(read.data[-10:])
            return len(heard) >= 3

        wait_until(all_heard)
        assert heard == [int(NameKind.OTHER).to_bytes(10)] * 3
        assert sockets.overflowed() == 0
        assert Sockets.read(sockets.multicast) is None  # type: ignore[arg-type]
    finally:
        sockets.close()
    assert sockets.strays == []


def test_strays_are_only_of_multicast_of_the_same_family(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sockets_module, "find_interface", lambda where: find_interface(where)._replace(loopback=False)
    )
    own = network_config(place, 1, 0, 2, transport="multicast")
    same = network_config(place, 1, 1, 2, transport="multicast")
    mesh = network_config(place, 1, 2, 2)
    six = NetworkConfig(address="::1", port=place.port)
    for others, strays in (([same], 0), ([mesh, six], 0), ([replace(same, port=place.port + 2)], 1)):
        sockets = Sockets(own, others)
        assert len(sockets.strays) == strays
        sockets.close()
    monkeypatch.undo()
    sockets = Sockets(own, [replace(same, port=place.port + 2)])
    assert sockets.strays == [], "on loopback all networks are one"
    sockets.close()


# Settings that differ


@pytest.mark.parametrize(
    ("other", "setting", "here"),
    [
        ({"style": "active"}, "[redundancy] style, copies", "here=1 there=2"),
        (
            {"redundancy": RedundancyConfig(style="passive", tokens="one")},
            "[redundancy] tokens",
            "here=1 there=0",
        ),
        ({"networks": 3}, "the number of [[network]] tables", "here=2 there=3"),
        ({"network": {"capacity": 7}}, "[[network]] capacity", "node=2"),
        ({"names": ("b", "a")}, "[[network]] name, and their order", "node=2"),
    ],
)
def test_nodes_that_use_networks_in_different_ways_are_told(
    place: Place, tmp_path: Path, other: dict[str, Any], setting: str, here: str
) -> None:
    names = other.pop("names", None)
    config = config_of(place, 2, tmp_path, **other)
    if names:
        first, *more = [replace(each, name=name) for each, name in zip(config.networks, names, strict=True)]
        config = replace(config, network=first, more_networks=tuple(more))
    with started(config_of(place, 1, tmp_path), config) as members:
        wait_until(
            lambda: members[0].logged(
                "another node uses the networks in another way", setting, here, "node=2"
            )
        )
        wait_until(lambda: members[1].logged("uses the networks in another way", setting, "node=1"))
        wait_for_ring(*members)
        exchange(members, "all the same")


def test_a_node_on_one_network_says_that_others_are_on_several(place: Place, tmp_path: Path) -> None:
    """It cannot take their hellos, and no ring comes about."""
    alone = replace(config_of(place, 2, tmp_path), more_networks=(), redundancy=RedundancyConfig())
    with started(config_of(place, 1, tmp_path), alone) as (_, member):
        wait_until(lambda: member.logged("why packets are dropped", "on several networks", "[redundancy]"))


def test_every_way_has_its_setting() -> None:
    assert set(WAYS) == set(Ways._fields)
    assert set(Ways._fields) > DIGESTS
