"""The settings of a node: one TOML file, or the same classes built in a program; checked on construction.

`NodeConfig.load(path)` reads a file; `config_text.print_config()` writes one with every setting in it. An
error names the file, the setting, the value and the way out. A peer without a port gets the node's own here.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from totempole.daemon.config import ClientsConfig
from totempole.errors import ConfigurationError
from totempole.groups import GroupConfig
from totempole.rrp.config import RedundancyConfig
from totempole.settings import (
    FLAG,
    MAYBE_PATH,
    PATH,
    TEXT,
    Kind,
    check_settings,
    kind_of,
    more_of,
    nearest,
    parse_word,
    read_settings,
    refused,
    repeated_of,
    section,
    sections_of,
    setting,
    settings_of,
    value_text,
    whole,
    words,
)
from totempole.srp.config import RingConfig
from totempole.stack import NetworkSpec, RingSpec, StackSpec
from totempole.trace.schema import LEVELS
from totempole.types import PROCESSOR_MAX, ProcessorId

SEGMENT = settings_of(RingConfig)["segment_bytes"].metadata
"""The least and the greatest that a node takes from the path, or from its own setting."""
PEERS_MAX = 255
"""Static peers of a mesh; more than a ring takes (members_max)."""
MULTICAST_GROUPS = {4: "239.192.54.1", 6: "ff15::5401"}
"""By address family: of the organisation-local and the site-local scope."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z|\Z")
_HOST_NAME = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?\Z"
)


class Peer(NamedTuple):
    """A processor of a mesh, and where it listens. Port 0 stands for the node's own port."""

    processor: ProcessorId
    address: str
    port: int = 0

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.processor}@{address}:{self.port}"


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
    takes=lambda raw: isinstance(raw, list) and all(isinstance(item, str) for item in raw),
    accepts=lambda value: isinstance(value, tuple) and all(isinstance(item, Peer) for item in value),
    read=lambda raw: tuple(map(parse_peer, raw)),
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
            f"the group of all processors; empty: {MULTICAST_GROUPS[4]}, or {MULTICAST_GROUPS[6]} for IPv6",
        ),
    )
    multicast_hops: int = field(
        default=1, metadata=setting(whole(0, 255), "how far a multicast goes: 1 passes no router")
    )
    peers: tuple[Peer, ...] = field(
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
        own = self._own_address()
        self._check_group(own)
        self._check_segment()
        self._check_peers(own)

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.address).version

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
        peers = tuple(peer if peer.port else peer._replace(port=self.port) for peer in self.peers)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Exactly one of the two must be given: nobody runs without a seal by accident."""

    key_file: Path | None = field(
        default=None,
        metadata=setting(
            MAYBE_PATH,
            "the keys that seal packets, from totem keygen; the same file on every host",
            example="/etc/totempole/totem.key",
        ),
    )
    unsealed: bool = field(
        default=False,
        metadata=setting(FLAG, "run without a seal: whoever can send to the ports can forge messages"),
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.unsealed and self.key_file is not None:
            raise refused(
                "unsealed", True, f"key_file = {value_text(self.key_file)} is given too: leave one out"
            )
        if not self.unsealed and self.key_file is None:
            raise ConfigurationError(
                "key_file is missing: make one with totem keygen and name it, or set unsealed = true"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceConfig:
    """What the node writes down of what happens."""

    level: str = field(
        default="off",
        metadata=setting(words(("off", *LEVELS)), "how much is traced; delivery is cheap enough to leave on"),
    )
    directory: Path | None = field(
        default=None,
        metadata=setting(MAYBE_PATH, "where the trace goes; not given: trace in the node's directory"),
    )
    run: str = field(
        default="",
        metadata=setting(TEXT, "the run's name in the trace; empty: cluster- and the cluster's id"),
    )
    inputs: bool = field(default=False, metadata=setting(FLAG, "record every input, for totem replay"))

    def __post_init__(self) -> None:
        check_settings(self)
        if not _FILE_NAME.match(self.run):
            raise refused(
                "run", self.run, "it names a folder: give letters, digits, dots, dashes, underlines"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where Prometheus can read."""

    address: str = field(default="127.0.0.1", metadata=setting(TEXT, "the address that answers Prometheus"))
    port: int = field(default=0, metadata=setting(whole(0, 65_535), "its TCP port; 0: no metrics"))

    def __post_init__(self) -> None:
        check_settings(self)
        if parse_address(self.address) is None:
            raise refused("address", self.address, "give an IP address, like 127.0.0.1 or 0.0.0.0 for all")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    level: str = field(
        default="info",
        metadata=setting(words(("debug", "info", "warning", "error")), "the least that is logged"),
    )
    format: str = field(
        default="text", metadata=setting(words(("text", "json")), "for eyes, or a JSON object in each line")
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All that one node needs to know."""

    processor: ProcessorId = field(
        metadata=setting(
            whole(1, PROCESSOR_MAX), "this processor's number: its own in the cluster, for ever", example=1
        )
    )
    directory: Path = field(
        metadata=setting(
            PATH,
            "this node's own: stable storage, its lock, the status socket",
            example="/var/lib/totempole",
        )
    )
    lag_alarm_ms: int = field(
        default=50,
        metadata=setting(
            whole(1, 60_000), "tell when the node was kept from running for so long (docs/tuning.md)"
        ),
    )

    network: NetworkConfig = field(
        default_factory=NetworkConfig,
        metadata=section("where the node listens, and how it reaches the others"),
    )
    security: SecurityConfig = field(
        default_factory=SecurityConfig, metadata=section("exactly one of the two")
    )
    ring: RingConfig = field(
        default_factory=RingConfig,
        metadata=section("the protocol, the same on every host; times in microseconds (docs/tuning.md)"),
    )
    redundancy: RedundancyConfig = field(
        default_factory=RedundancyConfig,
        metadata=section("one ring on several networks, the same on every host (docs/redundant-networks.md)"),
    )
    groups: GroupConfig = field(
        default_factory=GroupConfig, metadata=section("process groups, the same on every host")
    )
    clients: ClientsConfig = field(
        default_factory=ClientsConfig, metadata=section("the daemon's clients: programs that join groups")
    )
    trace: TraceConfig = field(
        default_factory=TraceConfig, metadata=section("what the node writes down of what happens")
    )
    metrics: MetricsConfig = field(default_factory=MetricsConfig, metadata=section("for Prometheus"))
    log: LogConfig = field(default_factory=LogConfig, metadata=section("lines on standard error"))
    more_networks: tuple[NetworkConfig, ...] = field(default=(), metadata=more_of("network"))
    """Of a node with several `[[network]]` tables, those after the first."""
    more_rings: tuple[RingConfig, ...] = field(default=(), metadata=more_of("ring"))

    def __post_init__(self) -> None:
        check_settings(self)
        for name, kind in sections_of(NodeConfig).items():
            if not isinstance(getattr(self, name), kind):
                raise refused(name, getattr(self, name), f"give a {kind.__name__}")
        for peer in self.network.peers:
            self._check_peer(peer)
        self.clients.check_with(self.groups)
        if self._is_redundant:
            self.redundancy.copies_on(len(self.networks))
        elif len(self.networks) != len(self.rings):
            raise ConfigurationError(
                f"{len(self.networks)} networks and {len(self.rings)} rings: give each ring a network of its "
                "own, as many [[network]] tables as [[ring]] tables"
            )

    @property
    def networks(self) -> tuple[NetworkConfig, ...]:
        """All of them. Each ring is on the network of its place; groups are on the first ring."""
        return (self.network, *self.more_networks)

    @property
    def rings(self) -> tuple[RingConfig, ...]:
        return (self.ring, *self.more_rings)

    @property
    def _is_redundant(self) -> bool:
        """Whether the one ring is on several networks."""
        return len(self.rings) == 1 and (len(self.networks) > 1 or self.redundancy.style != "none")

    def network_name(self, number: int) -> str:
        return self.networks[number].name or str(number + 1)

    def stack(self, rings: Sequence[RingConfig]) -> StackSpec:
        """The description of the node's stack, with the ring on each network as it fits the sockets."""
        networks = tuple(
            NetworkSpec(ring.segment_bytes, self.network_name(number), self.networks[number].capacity)
            for number, ring in enumerate(rings)
        )
        if self._is_redundant:
            tightest = min(rings, key=lambda ring: ring.window_bytes)
            least = min(ring.segment_bytes for ring in rings)
            ring = replace(tightest, segment_bytes=least)
            specs: tuple[RingSpec, ...] = (RingSpec(ring, tuple(range(len(rings))), self.redundancy),)
        else:
            specs = tuple(RingSpec(ring, (network,)) for network, ring in enumerate(rings))
        return StackSpec(self.processor, networks, specs, self.groups)

    @property
    def clients_socket(self) -> Path:
        return self.clients.socket or self.directory / "clients.sock"

    @classmethod
    def load(cls, path: Path | str, changes: Sequence[str] = (), *, places: bool = True) -> NodeConfig:
        """Reads a file. Words like `network.address=10.0.0.1` in `changes` go before what it says.

        With `places`, directories and key file must be there: a node that starts wants it so.
        """
        file = Path(path)
        raw = change(read_toml(file), changes)
        try:
            config = build(raw, file.parent)
            if places:
                config.check_places()
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None
        return config

    @property
    def trace_directory(self) -> Path:
        return self.trace.directory or self.directory / "trace"

    @property
    def trace_run(self) -> str:
        return self.trace.run or f"cluster-{self.ring.cluster_id}"

    def check_places(self) -> None:
        """What must be there before the node starts; it makes its own directory itself."""
        if not self.directory.parent.is_dir():
            raise refused("directory", self.directory, f"make {self.directory.parent} first")
        if self.directory.exists() and not self.directory.is_dir():
            raise refused("directory", self.directory, "it is a file: name a directory")
        key_file = self.security.key_file
        if key_file is not None and not key_file.is_file():
            raise ConfigurationError(
                f"[security] key_file = {value_text(key_file)}: no such file; make it with totem keygen"
            )

    def _check_peer(self, peer: Peer) -> None:
        network = self.network
        here = (ipaddress.ip_address(network.address), network.port)
        there = (ipaddress.ip_address(peer.address), peer.port)
        if (peer.processor == self.processor) != (here == there):
            raise ConfigurationError(
                f"[network] peers: {peer} does not agree with processor = {self.processor} at "
                f"{Peer(self.processor, network.address, network.port)}: correct one of them"
            )


# From a file


ELSEWHERE = {("ring", "segment_bytes"): "[network]"}
"""Settings of a section that a node takes from another: the path decides, not the protocol."""


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file}: no such file: totem node --print-config writes one to start from"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{file}: not a TOML file: {error}") from None


def build(raw: Mapping[str, Any], base: Path) -> NodeConfig:
    """The configuration that a file's tables say. Relative paths start at `base`, where the file is."""
    sections = sections_of(NodeConfig)
    _check_names(raw, sections)
    for name, item in settings_of(NodeConfig).items():
        if name not in raw and item.metadata["example"] is not None:
            raise ConfigurationError(f"{name} is missing: give {kind_of(item).allowed}")
    values = read_settings(NodeConfig, {name: raw[name] for name in raw if name not in sections}, base)
    repeated = repeated_of(NodeConfig)
    for name, kind in sections.items():
        first, *more = [_build_section(name, kind, table, base) for table in _tables(raw, name)]
        values[name] = first
        if more:
            values[repeated[name]] = tuple(more)
    return NodeConfig(**values)


def _tables(raw: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    """A section of the file; several, where it is written `[[section]]`."""
    found = raw.get(section, {})
    return found if isinstance(found, list) else [found]


def _build_section(name: str, kind: type, raw: Mapping[str, Any], base: Path) -> Any:
    try:
        return kind(**read_settings(kind, raw, base))
    except ConfigurationError as error:
        raise ConfigurationError(f"[{name}] {error}") from None


def _check_names(raw: Mapping[str, Any], sections: Mapping[str, type]) -> None:
    """No section is unknown, and no setting stands in a section that is not its own."""
    for name, value in raw.items():
        if name in sections and not _is_section(name, value):
            raise refused(name, value, f"{name} is a section: write [{name}] and its settings below")
        if name in sections:
            for table in _tables(raw, name):
                _check_section_names(name, table, sections)
        elif isinstance(value, dict) or _is_tables(value):
            raise ConfigurationError(f"[{name}]: there is no such section{nearest(name, sections)}")
        elif name not in settings_of(NodeConfig):
            raise refused(name, value, _no_such_setting("", name, sections))


def _is_section(name: str, value: Any) -> bool:
    return isinstance(value, dict) or (name in repeated_of(NodeConfig) and _is_tables(value))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _check_section_names(name: str, raw: Mapping[str, Any], sections: Mapping[str, type]) -> None:
    for key, value in raw.items():
        elsewhere = ELSEWHERE.get((name, key))
        if elsewhere:
            raise ConfigurationError(f"[{name}] {key} = {value_text(value)}: set it in {elsewhere}")
        if key not in settings_of(sections[name]):
            raise ConfigurationError(
                f"[{name}] {key} = {value_text(value)}: {_no_such_setting(name, key, sections)}"
            )


def _no_such_setting(place: str, name: str, sections: Mapping[str, type]) -> str:
    known = settings_of(sections[place]) if place else {**settings_of(NodeConfig), **sections}
    owners = [f"[{other}]" for other, kind in sections.items() if name in settings_of(kind)]
    if name in settings_of(NodeConfig):
        return "it belongs at the top of the file, before the first section"
    if owners:
        return f"it belongs in {' or '.join(owners)}"
    return f"there is no such setting{nearest(name, known)}"


def change(raw: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The tables of a file with some settings replaced: `processor=2`, `network.address=10.0.0.2`."""
    found = {name: dict(value) if isinstance(value, dict) else value for name, value in raw.items()}
    for word in changes:
        place, separator, text = word.partition("=")
        name, dot, key = place.strip().partition(".")
        kind = _kind_at(name, key) if separator and bool(dot) == bool(key) else None
        if kind is None:
            raise ConfigurationError(
                f"{word!r}: give SETTING=VALUE or SECTION.SETTING=VALUE, like network.address=10.0.0.1"
            )
        value = parse_word(text.strip(), kind)
        table = found.setdefault(name, {}) if key else found
        if _is_tables(table):
            raise ConfigurationError(f"{word!r}: the file has several [[{name}]] tables: change it there")
        if isinstance(table, dict):  # else the file has something there that is no section: refused below
            table[key or name] = value
    return found


def _kind_at(name: str, key: str) -> Kind | None:
    """The kind of a setting, or none where there is no such setting."""
    owner = sections_of(NodeConfig).get(name) if key else NodeConfig
    item = settings_of(owner).get(key or name) if owner else None
    return kind_of(item) if item is not None else None
