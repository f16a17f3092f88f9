"""What the kernel knows of the interface that an address lives on, and of the path to another address."""

from __future__ import annotations

import ctypes
import fcntl
import socket
from ipaddress import ip_address
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
_IFF_LOOPBACK = 0x8
_IP_MTU, _IPV6_MTU = 14, 24

_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
"""IP and UDP headers of a datagram."""

DATAGRAM_MAX = {socket.AF_INET: 65_507, socket.AF_INET6: 65_487}
"""UDP payload, at most."""


class Interface(NamedTuple):
    name: str
    number: int
    loopback: bool


def family_of(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET


def find_interface(address: str) -> Interface:
    """The interface that has this address."""
    wanted = ip_address(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for index, name in socket.if_nameindex():
            addresses = _ipv6_addresses(name) if wanted.version == 6 else _ipv4_addresses(probe, name)
            if wanted in addresses or (wanted.is_loopback and name == "lo"):
                return Interface(name, index, _flags(probe, name) & _IFF_LOOPBACK != 0)
    raise NetworkAbsentError(
        f"[network] address = {address!r}: no interface of this host has it; "
        "`ip address` lists those that there are"
    )


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


def _ipv4_addresses(probe: socket.socket, name: str) -> list[object]:
    """All of them, second ones and those with a label (eth0:1) too."""
    room = bytearray(_IFREQ_BYTES * ADDRESSES_MAX)
    place = ctypes.addressof(ctypes.c_char.from_buffer(room))
    answer = fcntl.ioctl(probe, _SIOCGIFCONF, pack("@iP", len(room), place))
    used = unpack("@iP", answer)[0]
    entries = [bytes(room[start : start + _IFREQ_BYTES]) for start in range(0, used, _IFREQ_BYTES)]
    labels = [(entry[:16].rstrip(b"\0").decode(), entry[20:24]) for entry in entries]
    return [ip_address(address) for label, address in labels if label.partition(":")[0] == name]


def _ipv6_addresses(name: str) -> list[object]:
    lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    return [ip_address(bytes.fromhex(line[:32])) for line in lines if line.split()[-1] == name]


def _flags(probe: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, pack("16s16x", name.encode()))
    return int.from_bytes(answer[16:18], "little")
