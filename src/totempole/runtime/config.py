"""The settings of a node: one TOML file, or the same classes built in a program; checked on construction.

`NodeConfig.load(path)` reads a file; `config_text.print_config()` writes one with every setting in it. An
error names the file, the setting, the value and the way out. A peer without a port gets the node's own here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from totempole.daemon.config import ClientsConfig
from totempole.errors import ConfigurationError
from totempole.groups import GroupConfig
from totempole.rrp.config import NETWORKS_MAX, RedundancyConfig
from totempole.runtime.expected import EXPECTED, Expectation
from totempole.runtime.log_config import LogSection
from totempole.runtime.network_config import (
    PEERS_MAX,
    NetworkConfig,
    Peer,
    check_distinct,
    check_own_peer,
    name_of_network,
    parse_address,
    parse_peer,
    table_title,
    with_group,
)
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

__all__ = [
    "PEERS_MAX",
    "LogSection",
    "LoggingConfig",
    "MetricsConfig",
    "NetworkConfig",
    "NodeConfig",
    "Peer",
    "SecurityConfig",
    "TraceConfig",
    "parse_address",
    "parse_peer",
]

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z|\Z")


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
class LoggingConfig:
    """The lines on standard error."""

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
    expected: int | tuple[ProcessorId, ...] = field(
        default=(),
        metadata=setting(
            EXPECTED,
            "the members that the ring should have, to be told who is missing; empty: the peers of a mesh; "
            "0: nobody is missed",
        ),
    )
    lag_alarm_ms: int = field(
        default=50,
        metadata=setting(
            whole(1, 60_000), "warn of event loop lag from so many milliseconds on (docs/tuning.md)"
        ),
    )

    network: NetworkConfig = field(
        default_factory=NetworkConfig,
        metadata=section(
            "where the node listens, and how it reaches the others; of several, [[network]] for each"
        ),
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
    log: LogSection = field(
        default_factory=LogSection,
        metadata=section("the durable log, the same on every host but for its directory (docs/log.md)"),
    )
    logging: LoggingConfig = field(default_factory=LoggingConfig, metadata=section("lines on standard error"))
    more_networks: tuple[NetworkConfig, ...] = field(default=(), metadata=more_of("network"))
    """Of a node with several `[[network]]` tables, those after the first."""
    more_rings: tuple[RingConfig, ...] = field(default=(), metadata=more_of("ring"))

    def __post_init__(self) -> None:
        check_settings(self)
        for name, kind in sections_of(NodeConfig).items():
            if not isinstance(getattr(self, name), kind):
                raise refused(name, getattr(self, name), f"give a {kind.__name__}")
        for number, network in enumerate(self.networks):
            check_own_peer(network, self.processor, table_title("network", number, len(self.networks)))
        self._check_expected()
        self.clients.check_with(self.groups)
        self.log.check_with(self.processor, self.groups, self.clients)
        self._check_rings()
        check_distinct(self.networks, self.is_redundant)
        if self.is_redundant:
            more = tuple(with_group(network, place) for place, network in enumerate(self.more_networks, 1))
            object.__setattr__(self, "more_networks", more)

    def _check_expected(self) -> None:
        expected, members_max = self.expected, self.ring.members_max
        if isinstance(expected, tuple) and len(set(expected)) < len(expected):
            raise refused("expected", list(expected), "name each processor once")
        if self.expectation.count > members_max:
            raise refused(
                "expected",
                EXPECTED.show(expected),
                f"{self.expectation.count} members, and a ring takes [ring] members_max = {members_max}",
            )

    @property
    def expectation(self) -> Expectation:
        """Who should be in the ring, this node included: as it is set, or the peers of a mesh."""
        if isinstance(self.expected, int):
            return Expectation(self.expected)
        peers = (peer.processor for network in self.networks for peer in network.known_peers)
        others = set(self.expected or peers) - {self.processor}
        processors = tuple(sorted((self.processor, *others))) if others or self.expected else ()
        return Expectation(len(processors), processors)

    def _check_rings(self) -> None:
        """There is a network for each ring, or one ring that says how it uses several networks."""
        if self.is_redundant:
            if len(self.networks) > NETWORKS_MAX:
                raise ConfigurationError(
                    f"{len(self.networks)} [[network]] tables under one ring: give at most {NETWORKS_MAX}"
                )
            try:
                self.redundancy.copies_on(len(self.networks))
            except ConfigurationError as error:
                raise ConfigurationError(f"[redundancy] {error}") from None
        elif len(self.rings) > 1 and self.redundancy != RedundancyConfig():
            raise ConfigurationError(
                f"[redundancy] style = {value_text(self.redundancy.style)}: there are {len(self.rings)} "
                "[[ring]] tables; it is for one ring on several networks: leave it out, or give one ring"
            )
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
        """All of them; one, unless there are several `[[ring]]` tables."""
        return (self.ring, *self.more_rings)

    @property
    def is_redundant(self) -> bool:
        """Whether the one ring is on several networks."""
        return len(self.rings) == 1 and (len(self.networks) > 1 or self.redundancy.style != "none")

    def networks_beside(self, number: int) -> tuple[NetworkConfig, ...]:
        """The others under the same ring."""
        if not self.is_redundant:
            return ()
        return (*self.networks[:number], *self.networks[number + 1 :])

    def network_name(self, number: int) -> str:
        """As logs and `totem network` show it."""
        return name_of_network(self.networks[number], number)

    def stack(self, rings: Sequence[RingConfig]) -> StackSpec:
        """The description of the node's stack, with the ring on each network as it fits the sockets."""
        networks = tuple(
            NetworkSpec(ring.segment_bytes, self.network_name(number), self.networks[number].capacity)
            for number, ring in enumerate(rings)
        )
        if self.is_redundant:
            tightest = min(rings, key=lambda ring: ring.window_bytes)
            least = min(ring.segment_bytes for ring in rings)
            ring = replace(tightest, segment_bytes=least)
            specs: tuple[RingSpec, ...] = (RingSpec(ring, tuple(range(len(rings))), self.redundancy),)
        else:
            specs = tuple(RingSpec(ring, (network,)) for network, ring in enumerate(rings))
        return StackSpec(self.processor, networks, specs, self.groups, self.log.protocol)

    @property
    def clients_socket(self) -> Path:
        """The Unix socket that programs connect to."""
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
    def log_directory(self) -> Path:
        """Where the durable log is kept."""
        return self.log.directory or self.directory / "log"

    @property
    def trace_directory(self) -> Path:
        """Where the trace goes."""
        return self.trace.directory or self.directory / "trace"

    @property
    def trace_run(self) -> str:
        """The run's name in the trace."""
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
        tables = _tables(raw, name)
        first, *more = [
            _build_section(table_title(name, number, len(tables)), kind, table, base)
            for number, table in enumerate(tables)
        ]
        values[name] = first
        if more:
            values[repeated[name]] = tuple(more)
    return NodeConfig(**values)


def _tables(raw: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    """A section of the file; several, where it is written `[[section]]`."""
    found = raw.get(section, {})
    return found if isinstance(found, list) else [found]


def _build_section(title: str, kind: type, raw: Mapping[str, Any], base: Path) -> Any:
    try:
        return kind(**read_settings(kind, raw, base))
    except ConfigurationError as error:
        raise ConfigurationError(f"{title} {error}") from None


def _check_names(raw: Mapping[str, Any], sections: Mapping[str, type]) -> None:
    """No section is unknown, and no setting stands in a section that is not its own."""
    for name, value in raw.items():
        if name in sections and not _is_section(name, value):
            raise refused(name, value, f"{name} is a section: write [{name}] and its settings below")
        if name in sections:
            tables = _tables(raw, name)
            for number, table in enumerate(tables):
                _check_section_names(name, table_title(name, number, len(tables)), table, sections)
        elif isinstance(value, dict) or _is_tables(value):
            raise ConfigurationError(f"[{name}]: there is no such section{nearest(name, sections)}")
        elif name not in settings_of(NodeConfig):
            raise refused(name, value, _no_such_setting("", name, sections))


def _is_section(name: str, value: Any) -> bool:
    return isinstance(value, dict) or (name in repeated_of(NodeConfig) and _is_tables(value))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _check_section_names(name: str, title: str, raw: Mapping[str, Any], sections: Mapping[str, type]) -> None:
    for key, value in raw.items():
        elsewhere = ELSEWHERE.get((name, key))
        if elsewhere:
            raise ConfigurationError(f"{title} {key} = {value_text(value)}: set it in {elsewhere}")
        if key not in settings_of(sections[name]):
            raise ConfigurationError(
                f"{title} {key} = {value_text(value)}: {_no_such_setting(name, key, sections)}"
            )


def _no_such_setting(place: str, name: str, sections: Mapping[str, type]) -> str:
    known = settings_of(sections[place]) if place else {**settings_of(NodeConfig), **sections}
    owners = [f"[{other}]" for other, kind in sections.items() if name in settings_of(kind)]
    if name in settings_of(NodeConfig):
        return "it belongs at the top of the file, before the first section"
    if owners:
        return f"it belongs in {' or '.join(owners)}"
    return f"there is no such setting{nearest(name, known)}"


CHANGES = (
    "give SETTING=VALUE or SECTION.SETTING=VALUE, like network.address=10.0.0.1; of several tables, one by "
    "its number, like network.2.address=10.0.1.1"
)


def change(raw: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The tables of a file with some settings replaced: `processor=2`, `network.address=10.0.0.2`; of several
    tables by number, from 1: `network.2.address=10.0.1.2`."""
    found = {name: _copied(value) for name, value in raw.items()}
    for word in changes:
        place, separator, text = word.partition("=")
        name, dot, key = place.strip().partition(".")
        number, numbered, rest = key.partition(".")
        if numbered:
            key = rest
        kind = _kind_at(name, key) if separator and bool(dot) == bool(key) else None
        if numbered and not _is_number_of_table(name, number):
            raise ConfigurationError(f"{word!r}: {CHANGES}")
        if kind is None:
            raise ConfigurationError(f"{word!r}: {(separator and _why_no_change(name, key)) or CHANGES}")
        value = parse_word(text.strip(), kind)
        table = found.setdefault(name, {}) if key else found
        if key:
            table = _table_at(word, name, int(number) if numbered else 0, table)
        if isinstance(table, dict):  # else the file has something there that is no section: refused below
            table[key or name] = value
    return found


def _why_no_change(name: str, key: str) -> str:
    """What is wrong with the setting that a change names, as of one in a file; empty if its form is wrong."""
    sections = sections_of(NodeConfig)
    if not name or (name in sections and (not key or key.isdecimal())):
        return ""
    if key and name not in sections:
        return f"there is no section [{name}]{nearest(name, sections)}"
    return _no_such_setting(name if key else "", key or name, sections)


def _copied(value: Any) -> Any:
    if _is_tables(value):
        return [dict(table) for table in value]
    return dict(value) if isinstance(value, dict) else value


def _is_number_of_table(name: str, text: str) -> bool:
    return name in repeated_of(NodeConfig) and text.isascii() and text.isdecimal() and int(text) > 0


def _table_at(word: str, name: str, number: int, found: Any) -> Any:
    """The table of this number, from 1; 0: the only one."""
    tables = found if _is_tables(found) else [found]
    if number > len(tables):
        raise ConfigurationError(
            f"{word!r}: the file has {len(tables)} [[{name}]] {'tables' if len(tables) > 1 else 'table'}"
        )
    if not number and len(tables) > 1:
        raise ConfigurationError(
            f"{word!r}: the file has {len(tables)} [[{name}]] tables: name one by its number, like "
            f"{name}.1{word.strip().removeprefix(name)}"
        )
    return tables[max(number, 1) - 1]


def _kind_at(name: str, key: str) -> Kind | None:
    """The kind of a setting, or none where there is no such setting."""
    owner = sections_of(NodeConfig).get(name) if key else NodeConfig
    item = settings_of(owner).get(key or name) if owner else None
    return kind_of(item) if item is not None else None
