"""The settings of one network, and what several of them must not have in common."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from totempole.errors import ConfigurationError
from totempole.settings import (
    TEXT,
    Kind,
    check_settings,
    refused,
    setting,
    settings_of,
    value_text,
    whole,
    words,
)
from totempole.srp.config import RingConfig
from totempole.types import PROCESSOR_MAX, ProcessorId

SEGMENT = settings_of(RingConfig)["segment_bytes"].metadata
"""The least and the greatest that a node takes from the path, or from its own setting."""
PEERS_MAX = 255
"""Static peers of a mesh; more than a ring takes (members_max)."""
MULTICAST_GROUPS = {4: "239.192.54.1", 6: "ff15::5401"}
"""By address family: of the organisation-local and the site-local scope. A ring's second network has the next
one, and so on."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z|\Z")
_HOST_NAME = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?\Z"
)


class Peer(NamedTuple):
    """A processor of a mesh, and where it listens. Port 0 stands for the node's own port."""

    processor: ProcessorId
    """Its number."""
    address: str
    """IPv4 or IPv6."""
    port: int = 0
    """Of its data; 0: the port of the node's own settings."""

    def __str__(self) -> str:
        return f"{self.processor}@{address_text(self.address, self.port)}"


def address_text(address: str, port: int) -> str:
    """`10.0.0.2:5400`, `[fd00::3]:5400`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parse_peer(text: str) -> Peer:
    """`2@10.0.0.2`, `2@10.0.0.2:5400`, `3@fd00::3` or `3@[fd00::3]:5400`."""
    processor, at, place = text.partition("@")
    address, port = _split_port(place)
    known = _is_processor(processor) and at and parse_address(address) and (not port or _is_port(port))
    if not known:
        raise ConfigurationError(
            f"peers: {value_text(text)} is not a peer: give PROCESSOR@ADDRESS or PROCESSOR@ADDRESS:PORT, "
            "like 2@10.0.0.2:5400 or 3@[fd00::3]:5400 (names go into peers_dns)"
        )
    return Peer(int(processor), address, int(port or 0))


def _split_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        address, _, rest = place[1:].partition("]")
        return address, rest.removeprefix(":")
    if place.count(":") == 1:
        address, _, port = place.partition(":")
        return address, port or "none"
    return place, ""


def _is_processor(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text) <= PROCESSOR_MAX


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and PORT.accepts(int(text))


def parse_address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


PORT = whole(1, 65_534)
"""The token's port is the next one."""
PEERS = Kind(
    'a list of peers, like ["1@10.0.0.1", "2@10.0.0.2"]',
    takes=lambda raw: isinstance(raw, list) and all(isinstance(item, (str, Peer)) for item in raw),
    accepts=lambda value: isinstance(value, tuple) and all(isinstance(item, Peer) for item in value),
    read=lambda raw: tuple(item if isinstance(item, Peer) else parse_peer(item) for item in raw),
    show=lambda value: [str(peer) for peer in value],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Where the node listens, and how it reaches the others."""

    name: str = field(
        default="",
        metadata=setting(TEXT, "of several networks, this one's: the same on every host; empty: its number"),
    )
    address: str = field(
        default="",
        metadata=setting(
            TEXT, "this host's own address on the ring's network, IPv4 or IPv6", example="10.0.0.1"
        ),
    )
    port: int = field(default=5400, metadata=setting(PORT, "UDP port of data; tokens use the next one"))
    transport: str = field(
        default="multicast",
        metadata=setting(
            words(("multicast", "mesh")),
            "multicast, or a mesh of unicast where there is none (docs/networks-without-multicast.md)",
        ),
    )
    multicast_group: str = field(
        default="",
        metadata=setting(
            TEXT,
            f"the group of all processors; empty: {MULTICAST_GROUPS[4]}, or {MULTICAST_GROUPS[6]} for IPv6, "
            "and the next ones for further networks under one ring",
        ),
    )
    multicast_hops: int = field(
        default=1, metadata=setting(whole(0, 255), "how far a multicast goes: 1 passes no router")
    )
    peers: Sequence[Peer | str] = field(
        default=(), metadata=setting(PEERS, "mesh: the processors and their addresses, this one too or not")
    )
    peers_dns: str = field(
        default="", metadata=setting(TEXT, "mesh: a name that resolves to the addresses of all processors")
    )
    peers_dns_refresh_s: int = field(
        default=30, metadata=setting(whole(1, 86_400), "how often peers_dns is resolved again")
    )
    segment_bytes: int = field(
        default=0,
        metadata=setting(
            whole(0, SEGMENT["most"]), "a datagram's payload, at most; 0: what the interface's MTU allows"
        ),
    )
    offload: str = field(
        default="auto",
        metadata=setting(
            words(("auto", "off")), "UDP segmentation and receive offload; auto: if the kernel can"
        ),
    )
    receive_buffer_bytes: int = field(
        default=8_388_608,
        metadata=setting(whole(4_096, 2**30), "asked of the kernel for each socket (docs/tuning.md)"),
    )
    send_buffer_bytes: int = field(
        default=4_194_304, metadata=setting(whole(4_096, 2**30), "asked of the kernel for each socket")
    )

    capacity: int = field(
        default=1,
        metadata=setting(
            whole(1, 1_000_000), "of several networks: how much of the messages it gets, beside the others"
        ),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if not _NETWORK_NAME.match(self.name):
            raise refused("name", self.name, "give at most 32 letters, digits, dots, dashes, underlines")
        own = self._own_address()
        self._check_group(own)
        self._check_segment()
        self._check_peers(own)

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.address).version

    @property
    def known_peers(self) -> tuple[Peer, ...]:
        """`peers`, each with its port."""
        return cast("tuple[Peer, ...]", self.peers)  # since it was checked

    @property
    def group(self) -> str:
        """The multicast group: as given, or that of the address's family."""
        return self.multicast_group or MULTICAST_GROUPS[self.family]

    def _own_address(self) -> Address:
        own = parse_address(self.address)
        if own is None:
            raise refused("address", self.address, 'give this host\'s own IP address, like "10.0.0.1"')
        if own.is_unspecified or own.is_multicast:
            raise refused("address", self.address, "give one address of this host, by which others reach it")
        return own

    def _check_group(self, own: Address) -> None:
        group = parse_address(self.group)
        example = MULTICAST_GROUPS[own.version]
        if group is None or not group.is_multicast:
            raise refused("multicast_group", self.group, f"give a multicast address, like {example}")
        if self.transport == "multicast" and group.version != own.version:
            raise refused(
                "multicast_group",
                self.group,
                f"not of the family of address = {value_text(self.address)}; give one like {example}",
            )

    def _check_segment(self) -> None:
        if 0 < self.segment_bytes < SEGMENT["least"]:
            raise refused(
                "segment_bytes",
                self.segment_bytes,
                f"give 0, or a whole number from {SEGMENT['least']} to {SEGMENT['most']}",
            )

    def _check_peers(self, own: Address) -> None:
        if self.transport == "multicast":
            self._refuse_peers()
            return
        if not self.peers and not self.peers_dns:
            raise refused("transport", "mesh", "a mesh needs to know its processors: give peers or peers_dns")
        if self.peers_dns and not _HOST_NAME.match(self.peers_dns):
            raise refused("peers_dns", self.peers_dns, "give a host name, like ring.example.org")
        peers = tuple(peer if peer.port else peer._replace(port=self.port) for peer in self.known_peers)
        check_peers(peers, own)
        object.__setattr__(self, "peers", peers)

    def _refuse_peers(self) -> None:
        for name in ("peers", "peers_dns"):
            value = getattr(self, name)
            if value:
                shown = PEERS.show(value) if name == "peers" else value
                raise refused(
                    name,
                    shown,
                    f'multicast finds its processors itself: set transport = "mesh", or leave {name} out',
                )


def check_peers(peers: Sequence[Peer], own: Address) -> None:
    if len(peers) > PEERS_MAX:
        raise ConfigurationError(f"peers: {len(peers)} of them: give at most {PEERS_MAX}")
    places: dict[tuple[str, int], Peer] = {}
    processors: dict[ProcessorId, Peer] = {}
    for peer in peers:
        if parse_address(peer.address) is None or ipaddress.ip_address(peer.address).version != own.version:
            raise ConfigurationError(
                f"peers: {peer} is not of the family of address = {own}: give IPv{own.version} addresses"
            )
        if peer.processor in processors:
            raise ConfigurationError(
                f"peers: {peer} and {processors[peer.processor]} are one processor: give each its own number"
            )
        processors[peer.processor] = peer
        for port in (peer.port, peer.port + 1):
            other = places.setdefault((peer.address, port), peer)
            if other is not peer:
                raise ConfigurationError(
                    f"peers: {peer} and {other} share a port: each takes its port and the next; "
                    "give ports that are two apart"
                )


# Several networks


def table_title(section: str, number: int, tables: int) -> str:
    """How an error names a table of the file: counted from 0 here, and from 1 for people."""
    return f"[{section}]" if tables == 1 else f"[[{section}]] {number + 1}:"


def name_of_network(network: NetworkConfig, number: int) -> str:
    return network.name or str(number + 1)


def with_group(network: NetworkConfig, number: int) -> NetworkConfig:
    """Of a ring's further networks: with a multicast group of its own, unless it is set."""
    if network.multicast_group or network.transport != "multicast":
        return network
    group = ipaddress.ip_address(MULTICAST_GROUPS[network.family]) + number
    return replace(network, multicast_group=str(group))


def check_own_peer(network: NetworkConfig, processor: ProcessorId, title: str) -> None:
    """A list of peers has this node under its own number and at its own address, if at all."""
    here = (ipaddress.ip_address(network.address), network.port)
    for peer in network.known_peers:
        there = (ipaddress.ip_address(peer.address), peer.port)
        if (peer.processor == processor) != (here == there):
            raise ConfigurationError(
                f"{title} peers: {peer} does not agree with processor = {processor} at "
                f"{Peer(processor, network.address, network.port)}: correct one of them"
            )


def check_distinct(networks: Sequence[NetworkConfig], one_ring: bool) -> None:
    """No two are the same, as far as settings tell. Interfaces and subnets are looked at on opening.

    `one_ring`: they are under one ring.
    """
    for number, network in enumerate(networks):
        earlier = list(enumerate(networks[:number]))
        title = table_title("network", number, len(networks))
        _check_name(network, number, earlier, title)
        for place, other in earlier:
            _check_address(network, other, f"network {place + 1}", title, one_ring)


def _check_name(
    network: NetworkConfig, number: int, earlier: Sequence[tuple[int, NetworkConfig]], title: str
) -> None:
    name = name_of_network(network, number)
    if name.isdecimal() and name != str(number + 1):
        raise ConfigurationError(
            f"{title} name = {value_text(name)}: a number means the network of that place: give a word"
        )
    for place, other in earlier:
        if name_of_network(other, place) == name:
            raise ConfigurationError(
                f"{title} name = {value_text(name)}: network {place + 1} has this name: give each its own"
            )


def _check_address(
    network: NetworkConfig, other: NetworkConfig, who: str, title: str, one_ring: bool
) -> None:
    mine, theirs = ipaddress.ip_address(network.address), ipaddress.ip_address(other.address)
    if mine != theirs:
        return
    if abs(network.port - other.port) <= 1:
        raise ConfigurationError(
            f"{title} address = {value_text(network.address)}, port = {network.port}: {who} has them: each "
            "takes its port and the next; give each its own"
        )
    if one_ring and not mine.is_loopback:
        raise ConfigurationError(
            f"{title} address = {value_text(network.address)}: {who} has it too: both would be on one "
            "interface; give each network its own"
        )
