"""What the kernel says of loopback, which every host has."""

from __future__ import annotations

import socket

import pytest
from loopback import has_ipv6

from totempole.errors import NetworkAbsentError
from totempole.runtime.interface import (
    DATAGRAM_MAX,
    family_of,
    find_interface,
    path_segment_bytes,
    segment_bytes,
)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", pytest.param("::1", marks=has_ipv6)])
def test_loopback_is_found_by_any_of_its_addresses(address: str) -> None:
    found = find_interface(address)
    assert found[:3] == ("lo", socket.if_nametoindex("lo"), True)
    assert found.works


@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::7"])
def test_an_address_that_nobody_has(address: str) -> None:
    with pytest.raises(NetworkAbsentError, match=f"{address}.*no interface of this host has it"):
        find_interface(address)


def test_families() -> None:
    assert family_of("127.0.0.1") == socket.AF_INET
    assert family_of("::1") == socket.AF_INET6


@pytest.mark.parametrize(
    ("address", "family"),
    [
        ("127.0.0.1", socket.AF_INET),
        pytest.param("::1", socket.AF_INET6, marks=has_ipv6),
    ],
)
def test_a_datagram_is_never_longer_than_udp_allows(address: str, family: socket.AddressFamily) -> None:
    with open("/sys/class/net/lo/mtu", encoding="ascii") as file:
        mtu = int(file.read())
    headers = 28 if family == socket.AF_INET else 48
    expected = min(mtu - headers, DATAGRAM_MAX[family])
    assert segment_bytes(find_interface(address), family) == expected
    assert path_segment_bytes(family, (address, 9)) == expected
