"""A node's sockets on loopback: the same datagrams with and without offload, and nothing lost in silence."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from loopback import LIMIT_S, Place, a_place, has_ipv6, wait_until

from totempole.core.effects import Channel
from totempole.errors import NetworkAbsentError, NetworkError
from totempole.runtime import sockets as sockets_module
from totempole.runtime.config import NetworkConfig, Peer
from totempole.runtime.interface import DATAGRAM_MAX
from totempole.runtime.offload import SEGMENTS_MAX
from totempole.runtime.sockets import Address, Sockets
from totempole.segment import Burst

Open = Callable[..., Sockets]
FAMILIES = ["ipv4", pytest.param("ipv6", marks=has_ipv6)]


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


@pytest.fixture
def opened(place: Place) -> Iterator[Open]:
    """Sockets number 1, 2, ... of the place; IPv6 has one address on loopback, and ports instead."""
    with ExitStack() as stack:

        def make(number: int = 1, family: str = "ipv4", transport: str = "mesh", **settings: Any) -> Sockets:
            address, port = place.address(number), place.port
            other = Peer(99, place.address(99), port)
            if family == "ipv6":
                address, port = "::1", place.port + 2 * number - 2
                other = Peer(99, "::1", place.port + 6)
            if transport == "mesh":
                settings["peers"] = (other,)
            found = Sockets(NetworkConfig(address=address, port=port, transport=transport, **settings))
            stack.callback(found.close)
            return found

        yield make


def datagrams_of(sock: socket.socket, number: int) -> list[bytes]:
    """So many datagrams, however the kernel puts them together."""
    found: list[bytes] = []

    def read() -> bool:
        while (arrived := Sockets.read(sock)) is not None:
            found.extend(Burst(arrived.data, arrived.segment_bytes or len(arrived.data) or 1).datagrams)
        return len(found) >= number

    wait_until(read, f"{number} datagrams")
    return found


def burst(datagrams: int, size: int = 1_000, last: int = 300) -> Burst:
    pieces = [bytes([place % 251]) * size for place in range(datagrams - 1)]
    return Burst(b"".join(pieces) + b"z" * last, size)


# Arriving


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("offload", ["auto", "off"])
@pytest.mark.parametrize("number", [1, 2, 44, 64, 65, 200])
def test_a_mesh_burst_arrives_as_its_datagrams(opened: Open, family: str, offload: str, number: int) -> None:
    one, two = opened(1, family, offload=offload), opened(2, family, offload=offload)
    sent = burst(number)
    one.send(Channel.DATA, (sent,), two.own)
    assert datagrams_of(two.data, number) == list(sent.datagrams)
    assert not one.refused
    assert one.offload.send is (offload == "auto")
    assert one.offload.reason == ("" if offload == "auto" else "switched off")


@pytest.mark.parametrize("offload", ["auto", "off"])
def test_a_multicast_burst_arrives_as_its_datagrams(opened: Open, offload: str) -> None:
    one, two = (opened(number, "ipv4", "multicast", offload=offload) for number in (1, 2))
    sent = burst(100)
    one.send(Channel.DATA, (sent,), one.group)
    for hearer in (one, two):  # loopback gives a node its own multicasts too
        assert hearer.multicast is not None
        assert datagrams_of(hearer.multicast, 100) == list(sent.datagrams)
    assert not one.refused


@pytest.mark.parametrize(("sender", "hearer"), [("auto", "off"), ("off", "auto")])
def test_offload_on_one_side_only(opened: Open, sender: str, hearer: str) -> None:
    one, two = opened(1, offload=sender), opened(2, offload=hearer)
    sent = burst(50)
    one.send(Channel.DATA, (sent,), two.own)
    assert datagrams_of(two.data, 50) == list(sent.datagrams)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_burst_of_more_than_one_call(opened: Open, family: str) -> None:
    """64 KiB, and 64 datagrams, are what the kernel takes at once."""
    one, two = opened(1, family), opened(2, family)
    for size in (1_472, 9_000, 33_000, 60):
        sent = burst(200_000 // size + 2 if size > 60 else 3 * SEGMENTS_MAX, size, 7)
        assert len(sent.data) > DATAGRAM_MAX[one.family] or size == 60
        one.send(Channel.DATA, (sent,), two.own)
        assert datagrams_of(two.data, len(sent.datagrams)) == list(sent.datagrams)
    assert one.offload.send


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_datagram(opened: Open, family: str) -> None:
    one, two = opened(1, family), opened(2, family)
    assert one.segment_bytes == DATAGRAM_MAX[one.family]
    sent = burst(2, one.segment_bytes, 7)
    one.send(Channel.DATA, (sent,), two.own)
    assert datagrams_of(two.data, 2) == list(sent.datagrams)
    assert one.offload.send
    assert not one.refused


def test_several_bursts_keep_their_order(opened: Open) -> None:
    one, two = opened(1), opened(2)
    bursts = (burst(3), Burst(b"alone", 1_000), burst(70, 500), Burst(b"", 1_000))
    one.send(Channel.DATA, bursts, two.own)
    expected = [datagram for sent in bursts for datagram in sent.datagrams]
    assert datagrams_of(two.data, len(expected)) == expected


def test_tokens_have_sockets_of_their_own(opened: Open) -> None:
    one, two = opened(1), opened(2)
    one.send(Channel.TOKEN, (Burst(b"token", 1_000),), (two.own[0], two.own[1] + 1))
    wait_until(lambda: (found := Sockets.read(two.token)) and found.data == b"token")
    assert Sockets.read(two.data) is None


def test_what_is_sent_names_where_to_answer(opened: Open) -> None:
    one, two = opened(1, "ipv4", "multicast"), opened(2, "ipv4", "multicast")
    assert two.multicast is not None
    found = []
    for address, sock in ((one.group, two.multicast), (two.own, two.data)):
        one.send(Channel.DATA, (Burst(b"hello", 1_000),), address)
        wait_until(lambda sock=sock: found.append(Sockets.read(sock)) or found[-1])
    assert {read.source for read in found if read} == {one.own}


def test_nothing_there_is_none(opened: Open) -> None:
    assert Sockets.read(opened().data) is None


def test_a_program_with_a_default_timeout_changes_nothing(opened: Open) -> None:
    """An embedded node shares its process with a program that may have set one."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.05)
    try:
        one = opened()
        assert one.data.gettimeout() is None
        assert Sockets.read(one.data) is None
    finally:
        socket.setdefaulttimeout(before)


# Refusals


class Stubborn:
    """A socket that answers the first sends with the given errors: the fault injector of these tests."""

    def __init__(self, sock: socket.socket, *errors: int, offload_only: bool = False) -> None:
        self.errors = list(errors)
        self.raised: list[int] = []
        self._sock = sock
        self._offload_only = offload_only

    def sendmsg(self, buffers: Any, ancillary: Any, flags: int, address: Address) -> int:
        if self.errors and (ancillary or not self._offload_only):
            self.raised.append(self.errors.pop(0))
            raise OSError(self.raised[-1], "injected")
        return self._sock.sendmsg(buffers, ancillary, flags, address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def stubborn(sockets: Sockets, *errors: int, offload_only: bool = False) -> Stubborn:
    injector = Stubborn(sockets.data, *errors, offload_only=offload_only)
    sockets.data = injector  # type: ignore[assignment]
    return injector


@pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_refused_burst_goes_on_without_offload_and_says_so(opened: Open, error: int) -> None:
    one, two = opened(1), opened(2)
    injector = stubborn(one, error, offload_only=True)
    sent = burst(100)
    one.send(Channel.DATA, (sent,), two.own)
    assert datagrams_of(two.data, 100) == list(sent.datagrams)
    assert injector.raised == [error]
    assert not one.offload.send
    assert one.offload.reason == f"UDP_SEGMENT to {two.own[0]}: injected"
    one.send(Channel.DATA, (sent,), two.own)
    assert datagrams_of(two.data, 100) == list(sent.datagrams)


def test_a_kernel_without_offload_is_found_out_at_once(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets_module.offloading, "UDP_SEGMENT", 10_003)
    monkeypatch.setattr(sockets_module.offloading, "UDP_GRO", 10_004)
    one = opened()
    assert not one.offload.send
    assert not one.offload.receive
    assert "Protocol not available" in one.offload.reason


def test_a_path_that_takes_less_is_told(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = opened(1), opened(2)
    told: list[int] = []
    one.on_path_refusal = told.append
    monkeypatch.setattr(sockets_module, "path_segment_bytes", lambda family, address: 900)
    injector = stubborn(one, errno.EMSGSIZE, offload_only=True)
    sent = burst(5)
    one.send(Channel.DATA, (sent,), two.own)
    assert injector.raised == [errno.EMSGSIZE]
    assert told == [900]
    assert one.offload.send, "the path is narrow, the device does cut"
    assert datagrams_of(two.data, 5) == list(sent.datagrams)


def test_a_path_that_cannot_be_asked_is_no_disaster(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route is gone between the refusal and the question."""
    one, two = opened(1), opened(2)

    def no_route(family: object, address: object) -> int:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(sockets_module, "path_segment_bytes", no_route)
    injector = stubborn(one, errno.EMSGSIZE, offload_only=True)
    one.send(Channel.DATA, (burst(5),), two.own)
    assert injector.raised == [errno.EMSGSIZE]


def test_a_port_that_is_none_is_refused(opened: Open) -> None:
    """A peer at port 65535 has no token port: what it says must not stop a node."""
    one = opened()
    one.send(Channel.TOKEN, (Burst(b"token", 1_000),), (one.own[0], 65_536))
    assert sum(one.refused.values()) == 1


@pytest.mark.parametrize("error", [errno.ECONNREFUSED, errno.EPERM, errno.ENETUNREACH, errno.ENOBUFS])
@pytest.mark.parametrize("number", [1, 5])
def test_what_the_kernel_refuses_is_counted_by_name(opened: Open, error: int, number: int) -> None:
    one, two = opened(1), opened(2)
    injector = stubborn(one, error)
    one.send(Channel.DATA, (burst(number),), two.own)
    assert injector.raised == [error]
    assert one.refused == {errno.errorcode[error]: 1}
    one.send(Channel.DATA, (burst(number),), two.own)
    assert datagrams_of(two.data, number) == list(burst(number).datagrams)
    assert sum(one.refused.values()) == 1
    assert one.offload.send


@pytest.mark.parametrize("offload", ["auto", "off"])
def test_a_full_send_buffer_waits_in_order(opened: Open, offload: str) -> None:
    one, two = opened(1, offload=offload), opened(2)
    injector = stubborn(one, errno.EAGAIN, errno.EAGAIN)
    one.send(Channel.DATA, (burst(80), Burst(b"after", 1_000)), two.own)
    assert datagrams_of(two.data, 81) == [*burst(80).datagrams, b"after"]
    assert injector.raised == [errno.EAGAIN] * 2
    assert one.waits == 2
    assert not one.refused


def test_datagrams_that_find_the_buffer_full_are_counted(opened: Open) -> None:
    one, two = opened(1), opened(2, receive_buffer_bytes=4_096)
    assert two.overflowed() == 0
    for _ in range(50):
        one.send(Channel.DATA, (burst(20),), two.own)
    wait_until(lambda: two.overflowed() > 0)


# Opening


@pytest.mark.parametrize("above", [0, 1])
def test_a_port_in_use_is_named(opened: Open, place: Place, above: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((place.address(1), place.port + above))
        with pytest.raises(NetworkError, match=f"port {place.port + above}: Address already in use"):
            opened(1)
        taken.close()
    opened(1)  # what had been opened was closed again


def test_two_nodes_at_one_address(opened: Open, place: Place) -> None:
    opened(1, "ipv4", "multicast")
    with pytest.raises(NetworkError, match=f"ss -lunp sport = :{place.port}"):
        opened(1, "ipv4", "multicast")


def test_an_address_of_no_interface(place: Place) -> None:
    with pytest.raises(NetworkAbsentError, match=r"address = '203\.0\.113\.7': no interface .* `ip address`"):
        Sockets(NetworkConfig(address="203.0.113.7", port=place.port))


def test_a_group_that_cannot_be_joined_is_named(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        fired = 0

        def setsockopt(self, *arguments: Any) -> None:  # type: ignore[override]
            if arguments[:2] == (socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP):
                Refusing.fired += 1
                raise OSError(errno.ENODEV, "No such device")
            super().setsockopt(*arguments)

    monkeypatch.setattr(sockets_module.socket, "socket", Refusing)
    with pytest.raises(NetworkError, match=r"239\.192\.54\.1"):
        opened(1, "ipv4", "multicast")
    assert Refusing.fired == 1


def test_buffers_are_what_was_asked_for_where_the_kernel_agrees(opened: Open) -> None:
    assert opened(1, receive_buffer_bytes=100_000).receive_buffer_bytes == 100_000


def test_buffers_without_privileges_are_what_the_sysctl_allows(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unprivileged(socket.socket):
        def setsockopt(self, *arguments: Any) -> None:  # type: ignore[override]
            if arguments[:2] in ((socket.SOL_SOCKET, 32), (socket.SOL_SOCKET, 33)):
                raise PermissionError(errno.EPERM, "Operation not permitted")
            super().setsockopt(*arguments)

    monkeypatch.setattr(sockets_module.socket, "socket", Unprivileged)
    with open("/proc/sys/net/core/rmem_max", encoding="ascii") as file:
        limit = int(file.read())
    assert opened(1, receive_buffer_bytes=2**30).receive_buffer_bytes == min(limit, 2**30)


# In a network of its own


def in_a_network_of_its_own(program: str) -> str:
    """Runs a program where it may change interfaces as it likes."""
    command = ["unshare", "--net", sys.executable, "-c", BEGINNING + program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if "unshare failed" in done.stderr:
        pytest.skip("this user may not make a network")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


BEGINNING = """
import json, subprocess
from totempole.core.effects import Channel
from totempole.runtime.config import NetworkConfig, Peer
from totempole.runtime.interface import find_interface
from totempole.runtime.sockets import Sockets
from totempole.segment import Burst

def ip(words):
    subprocess.run(["ip", *words.split()], check=True)

ip("link set lo up")
ip("link add narrow0 type veth peer name narrow1")
ip("link set narrow1 up")
ip("addr add 10.9.0.1/24 dev narrow0")
ip("link set narrow0 up mtu 1500")
"""

PATH = """
ip("route add 10.9.9.0/24 via 10.9.0.9 mtu 1200")
sockets = Sockets(NetworkConfig(address="10.9.0.1", transport="mesh", peers=(Peer(2, "10.9.9.2"),)))
told = []
sockets.on_path_refusal = told.append
before = sockets.segment_bytes
sockets.send(Channel.DATA, (Burst(bytes(8000), before),), ("10.9.9.2", 5400))
ip("link set narrow0 mtu 1300")
print(json.dumps([before, told, sockets.segment_bytes, sockets.offload.send]))
"""

LISTENER = """
import subprocess, sys
from totempole.runtime.config import NetworkConfig
from totempole.runtime.sockets import Sockets

input()
subprocess.run("ip addr add fd09::2/64 dev narrow1 nodad; ip link set narrow1 up", shell=True, check=True)
sockets = Sockets(NetworkConfig(address="fd09::2"))
print("listening", flush=True)
sockets.multicast.settimeout(50)
found = [sockets.multicast.recvfrom(65_535) for _ in range(2)]
print([(len(data), source[:2]) for data, source in found], flush=True)
"""

MULTICAST_6 = f"""
import os, sys, time
other = subprocess.Popen(
    ["unshare", "--net", sys.executable, "-c", {LISTENER!r}],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
)
while os.readlink(f"/proc/{{other.pid}}/ns/net") == os.readlink("/proc/self/ns/net"):
    time.sleep(0.001)  # until it has a network of its own
ip(f"link set narrow1 netns {{other.pid}}")
ip("addr add fd09::1/64 dev narrow0 nodad")
other.stdin.write("go\\n")
other.stdin.flush()
assert other.stdout.readline() == "listening\\n"
while "state UP" not in subprocess.check_output(["ip", "link", "show", "narrow0"], text=True):
    time.sleep(0.01)  # the kernel drops what is sent before it has noticed its peer
sockets = Sockets(NetworkConfig(address="fd09::1"))
sockets.send(Channel.DATA, (Burst(b"one", 1000), Burst(b"two" * 1000, 1000)), sockets.group)
print(other.stdout.readline(), end="")
assert Sockets.read(sockets.multicast) is None, "a node does not hear itself where it is alone on its host"
other.wait(50)
"""

SECOND_ADDRESS = """
ip("addr add 10.9.0.2/24 dev narrow0")
print(find_interface("10.9.0.2").name)
"""


def test_the_path_corrects_the_segment_size() -> None:
    assert in_a_network_of_its_own(PATH) == "[1472, [1172], 1272, true]"


@has_ipv6
def test_multicast_of_ipv6() -> None:
    assert in_a_network_of_its_own(MULTICAST_6) == "[(3, ('fd09::1', 5400)), (3000, ('fd09::1', 5400))]"


def test_an_interfaces_second_address_is_found() -> None:
    assert in_a_network_of_its_own(SECOND_ADDRESS) == "narrow0"
