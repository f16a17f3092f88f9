"""What the kernel knows of the interface that an address lives on, and of the path to another address."""

from __future__ import annotations

import ctypes
import fcntl
import socket
from contextlib import suppress
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from struct import pack, unpack
from typing import NamedTuple

from totempole.errors import NetworkAbsentError

_SIOCGIFCONF = 0x8912
_IFREQ_BYTES = 40
ADDRESSES_MAX = 1024
"""IPv4 addresses of this host that are looked at."""
_SIOCGIFMTU = 0x8921
_SIOCGIFFLAGS = 0x8913
_SIOCGIFNETMASK = 0x891B
_IFF_LOOPBACK = 0x8
_WORKS = 0x1 | 0x40
"""IFF_UP and IFF_RUNNING."""
_IP_MTU, _IPV6_MTU = 14, 24

_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
"""IP and UDP headers of a datagram."""

DATAGRAM_MAX = {socket.AF_INET: 65_507, socket.AF_INET6: 65_487}
"""UDP payload, at most."""


Subnet = IPv4Network | IPv6Network
Place = tuple[str, Subnet | None]
"""The name of an interface, and the subnet of one of its addresses."""


class Interface(NamedTuple):
    name: str
    number: int
    loopback: bool
    subnet: Subnet | None = None
    """Where its address is on it."""
    works: bool = True
    """Whether it is switched on and has a carrier."""


NOWHERE = Interface("", 0, False)
"""In place of an interface that is not there."""


class Condition(Enum):
    UP = "up"
    DOWN = "down"
    """Switched off, or without a carrier. Sockets and memberships survive it."""
    GONE = "gone"
    """The interface or its address is no more, or the interface was made anew: sockets are of no use."""


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET


def find_interface(address: str) -> Interface:
    """The interface that has this address."""
    wanted = ip_address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):  # gone while we look
        found = _ipv6_place(wanted) if wanted.version == 6 else _ipv4_place(probe, wanted)
        if found is None and wanted.is_loopback:
            found = "lo", None
        if found is not None:
            name, subnet = found
            number, flags = socket.if_nametoindex(name), _flags(probe, name)
            return Interface(name, number, bool(flags & _IFF_LOOPBACK), subnet, flags & _WORKS == _WORKS)
    raise NetworkAbsentError(
        f"[network] address = {address!r}: no interface of this host has it; "
        "`ip address` lists those that there are"
    )


def condition(interface: Interface, address: str) -> Condition:
    """How the interface is now that had this address."""
    try:
        found = find_interface(address)
    except NetworkAbsentError:
        return Condition.GONE
    if (found.name, found.number) != (interface.name, interface.number):
        return Condition.GONE
    return Condition.UP if found.works else Condition.DOWN


def segment_bytes(interface: Interface, family: socket.AddressFamily) -> int:
    """The largest datagram that the interface sends in one piece."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFMTU, pack("16s16x", interface.name.encode()))
    mtu = int.from_bytes(answer[16:20], "little")
    return min(mtu - _HEADERS[family], DATAGRAM_MAX[family])


def path_segment_bytes(family: socket.AddressFamily, address: tuple[str, int]) -> int:
    """The largest datagram that the path to an address takes, as far as the kernel has learned."""
    level, option = (
        (socket.IPPROTO_IPV6, _IPV6_MTU) if family == socket.AF_INET6 else (socket.IPPROTO_IP, _IP_MTU)
    )
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return min(probe.getsockopt(level, option) - _HEADERS[family], DATAGRAM_MAX[family])


def _ipv4_place(probe: socket.socket, wanted: object) -> Place | None:
    """Second addresses of an interface, and those with a label (eth0:1), are found too."""
    room = bytearray(_IFREQ_BYTES * ADDRESSES_MAX)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    answer = fcntl.ioctl(probe, _SIOCGIFCONF, pack("@iP", len(room), place))
    used = unpack("@iP", answer)[0]
    for start in range(0, used, _IFREQ_BYTES):
        entry = bytes(room[start : start + _IFREQ_BYTES])
        address = ip_address(entry[20:24])
        if address == wanted:
            label = entry[:16].rstrip(b"\0").decode()
            # The kernel takes label and address together as a question.
            mask = fcntl.ioctl(probe, _SIOCGIFNETMASK, entry)[20:24]
            return label.partition(":")[0], ip_network(
                (address, int.from_bytes(mask).bit_count()), strict=False
            )
    return None


def _ipv6_place(wanted: object) -> Place | None:
    lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    for line in lines:
        words = line.split()
        address = ip_address(bytes.fromhex(words[0]))
        if address == wanted:
            return words[-1], ip_network((address, int(words[2], 16)), strict=False)
    return None


def _flags(probe: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, pack("16s16x", name.encode()))
    return int.from_bytes(answer[16:18], "little")
