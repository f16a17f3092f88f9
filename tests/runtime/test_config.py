"""A node's settings: files that load, files that are refused and why, and the printed file."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from totempole.daemon.config import ClientsConfig
from totempole.errors import ConfigurationError
from totempole.runtime.config import (
    PEERS_MAX,
    LoggingConfig,
    MetricsConfig,
    NetworkConfig,
    NodeConfig,
    Peer,
    SecurityConfig,
    TraceConfig,
    parse_peer,
)
from totempole.runtime.config_text import print_config
from totempole.srp.config import RingConfig
from totempole.types import RingKind

TOP = 'processor = 1\ndirectory = "state"\n'
NETWORK = '[network]\naddress = "127.0.0.1"\n'
SECURITY = "[security]\nunsealed = true\n"
SMALL = TOP + NETWORK + SECURITY


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "node.toml"


def load(file: Path, text: str, *changes: str) -> NodeConfig:
    file.write_text(text, encoding="utf-8")
    return NodeConfig.load(file, changes)


def problem(file: Path, text: str, *changes: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(file, text, *changes)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    return message.removeprefix(f"{file}: ")


def test_a_small_file_is_the_defaults(file: Path, tmp_path: Path) -> None:
    assert load(file, SMALL) == NodeConfig(
        processor=1,
        directory=tmp_path / "state",
        network=NetworkConfig(address="127.0.0.1"),
        security=SecurityConfig(unsealed=True),
    )


def test_every_section_is_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "totem.key").write_text("")
    text = (
        'processor = 7\ndirectory = "/tmp"\nlag_alarm_ms = 20\n'
        '[network]\naddress = "fd00::7"\nport = 6000\ntransport = "mesh"\noffload = "off"\n'
        'peers = ["7@[fd00::7]:6000", "8@fd00::8"]\npeers_dns = "ring.example.org"\n'
        '[security]\nkey_file = "totem.key"\n'
        '[ring]\nring_kind = "accelerated"\ntoken_loss_us = 200000\ncluster_id = 9\n'
        '[trace]\nlevel = "checked"\ndirectory = "traces"\nrun = "one"\ninputs = true\n'
        '[metrics]\naddress = "::"\nport = 9100\n[logging]\nlevel = "debug"\nformat = "json"\n'
    )
    config = load(file, text)
    assert (config.processor, config.directory, config.lag_alarm_ms) == (7, Path("/tmp"), 20)
    assert config.network.peers == (Peer(7, "fd00::7", 6000), Peer(8, "fd00::8", 6000))
    assert (config.network.family, config.network.group) == (6, "ff15::5401")
    assert config.security.key_file == tmp_path / "totem.key"
    assert (config.ring.ring_kind, config.ring.token_loss_us) == (RingKind.ACCELERATED, 200_000)
    assert config.trace == TraceConfig(level="checked", directory=tmp_path / "traces", run="one", inputs=True)
    assert config.metrics == MetricsConfig(address="::", port=9100)
    assert config.logging == LoggingConfig(level="debug", format="json")
    assert (config.trace_directory, config.trace_run) == (tmp_path / "traces", "one")


def test_what_is_not_given_follows_from_the_rest(file: Path, tmp_path: Path) -> None:
    config = load(file, SMALL + "[ring]\ncluster_id = 4\n")
    assert config.network.group == "239.192.54.1"
    assert config.trace_directory == tmp_path / "state" / "trace"
    assert config.trace_run == "cluster-4"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2@10.0.0.2", Peer(2, "10.0.0.2")),
        ("2@10.0.0.2:5402", Peer(2, "10.0.0.2", 5402)),
        ("3@fd00::3", Peer(3, "fd00::3")),
        ("3@[fd00::3]", Peer(3, "fd00::3")),
        ("3@[fd00::3]:5402", Peer(3, "fd00::3", 5402)),
    ],
)
def test_peers_are_read(text: str, expected: Peer) -> None:
    assert parse_peer(text) == expected


@pytest.mark.parametrize(
    "text", ["", "2", "10.0.0.2", "x@10.0.0.2", "0@10.0.0.2", "2@host", "2@10.0.0.2:", "2@10.0.0.2:65535"]
)
def test_what_is_no_peer_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a peer: give PROCESSOR@ADDRESS"):
        parse_peer(text)


MESH = '[network]\naddress = "10.0.0.1"\ntransport = "mesh"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # values
        (SMALL.replace("1\n", "0\n", 1), "processor = 0: give a whole number from 1 to 4294967295"),
        (SMALL.replace("1\n", "true\n", 1), "processor = true: give a whole number from 1 to 4294967295"),
        (SMALL.replace("1\n", '"1"\n', 1), 'processor = "1": give a whole number from 1 to 4294967295'),
        (SMALL.replace('"state"', "5"), "directory = 5: give a path"),
        (
            TOP + NETWORK + "port = 70000\n" + SECURITY,
            "[network] port = 70000: give a whole number from 1 to 65534",
        ),
        (
            TOP + NETWORK + "port = 5.5\n" + SECURITY,
            "[network] port = 5.5: give a whole number from 1 to 65534",
        ),
        (
            TOP + NETWORK + 'transport = "tcp"\n' + SECURITY,
            '[network] transport = "tcp": give one of multicast, mesh',
        ),
        (
            TOP + NETWORK + "segment_bytes = 100\n" + SECURITY,
            "[network] segment_bytes = 100: give 0, or a whole number from ",
        ),
        (TOP + NETWORK + "peers = [1]\n" + SECURITY, "[network] peers = [1]: give a list of peers, like"),
        (
            SMALL + '[logging]\nlevel = "loud"\n',
            '[logging] level = "loud": give one of debug, info, warning, error',
        ),
        (
            SMALL + "[ring]\nwindow_packets = 0\n",
            "[ring] window_packets = 0: give a whole number of at least 1",
        ),
        (
            SMALL + '[ring]\nring_kind = "fast"\n',
            '[ring] ring_kind = "fast": give one of classic, accelerated',
        ),
        (SMALL + "[ring]\nconsensus_us = 1\n", "[ring] join_us = "),
        (SMALL + '[trace]\nrun = "a/b"\n', '[trace] run = "a/b": it names a folder: give letters'),
        (SMALL + '[metrics]\naddress = "me"\n', '[metrics] address = "me": give an IP address'),
        # names
        (SMALL + "[netwrok]\nport = 1\n", "[netwrok]: there is no such section; did you mean network?"),
        ("prozessor = 1\n" + SMALL, "prozessor = 1: there is no such setting; did you mean processor?"),
        (
            TOP + NETWORK + "prot = 1\n" + SECURITY,
            "[network] prot = 1: there is no such setting; did you mean port?",
        ),
        (TOP + NETWORK + "zzz = 1\n" + SECURITY, "[network] zzz = 1: there is no such setting"),
        ("offload = 1\n" + SMALL, "offload = 1: it belongs in [network]"),
        (SMALL + "lag_alarm_ms = 5\n", "[security] lag_alarm_ms = 5: it belongs at the top of the file"),
        (SMALL + '[logging]\nkey_file = "k"\n', '[logging] key_file = "k": it belongs in [security]'),
        (SMALL + "[ring]\nsegment_bytes = 1400\n", "[ring] segment_bytes = 1400: set it in [network]"),
        ("network = 5\n" + TOP, "network = 5: network is a section: write [network] and its settings below"),
        # what must be given
        ('directory = "state"\n' + NETWORK + SECURITY, "processor is missing: give a whole number"),
        ("processor = 1\n" + NETWORK + SECURITY, "directory is missing: give a path"),
        (TOP + SECURITY, '[network] address = "": give this host\'s own IP address'),
        (
            TOP + NETWORK,
            "[security] key_file is missing: make one with totem keygen and name it, or set unsealed",
        ),
        (TOP + NETWORK + SECURITY + 'key_file = "k"\n', "[security] unsealed = true: key_file = "),
        (TOP + NETWORK + '[security]\nkey_file = "k"\n', "[security] key_file = "),
        # what must agree
        (
            SMALL.replace("127.0.0.1", "0.0.0.0"),
            '[network] address = "0.0.0.0": give one address of this host',
        ),
        (
            TOP + NETWORK + 'multicast_group = "10.0.0.9"\n' + SECURITY,
            '[network] multicast_group = "10.0.0.9": give a multicast address, like 239.192.54.1',
        ),
        (
            TOP + NETWORK + 'multicast_group = "ff15::1"\n' + SECURITY,
            '[network] multicast_group = "ff15::1": not of the family of address = "127.0.0.1"',
        ),
        (
            TOP + NETWORK + 'peers = ["2@10.0.0.2"]\n' + SECURITY,
            '[network] peers = ["2@10.0.0.2:0"]: multicast finds',
        ),
        (TOP + NETWORK + 'peers_dns = "ring"\n' + SECURITY, '[network] peers_dns = "ring": multicast finds'),
        (TOP + MESH + SECURITY, '[network] transport = "mesh": a mesh needs to know its processors'),
        (TOP + MESH + 'peers_dns = "a b"\n' + SECURITY, '[network] peers_dns = "a b": give a host name'),
        (
            TOP + MESH + 'peers = ["2@fd00::2"]\n' + SECURITY,
            "[network] peers: 2@[fd00::2]:5400 is not of the family",
        ),
        (
            TOP + MESH + 'peers = ["2@10.0.0.2", "2@10.0.0.3"]\n' + SECURITY,
            "[network] peers: 2@10.0.0.3:5400 and 2@10.0.0.2:5400 are one processor",
        ),
        (
            TOP + MESH + 'peers = ["2@10.0.0.2", "3@10.0.0.2:5401"]\n' + SECURITY,
            "[network] peers: 3@10.0.0.2:5401 and 2@10.0.0.2:5400 share a port",
        ),
        (
            TOP + MESH + 'peers = ["1@10.0.0.9", "2@10.0.0.2"]\n' + SECURITY,
            "[network] peers: 1@10.0.0.9:5400 does not agree with processor = 1 at 1@10.0.0.1:5400",
        ),
        (
            TOP + MESH + 'peers = ["2@10.0.0.1"]\n' + SECURITY,
            "[network] peers: 2@10.0.0.1:5400 does not agree with processor = 1 at 1@10.0.0.1:5400",
        ),
        (SMALL.replace('"state"', '"no/such/place"'), "directory = "),
        ("processor = \n", "not a TOML file: "),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(file: Path, text: str, expected: str) -> None:
    assert problem(file, text).startswith(expected)


def test_a_directory_needs_its_parent(file: Path, tmp_path: Path) -> None:
    assert problem(file, SMALL.replace('"state"', '"no/such"')).endswith(f"make {tmp_path / 'no'} first")
    (tmp_path / "state").write_text("")
    assert problem(file, SMALL).endswith("it is a file: name a directory")


def test_a_file_that_is_not_there_or_no_text(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no such file: totem node --print-config writes one"):
        NodeConfig.load(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not a TOML file"):
        NodeConfig.load(file)
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        NodeConfig.load(tmp_path)


def test_the_number_of_peers_has_a_maximum() -> None:
    peers = tuple(
        Peer(number, f"10.1.{number // 250}.{number % 250 + 1}") for number in range(1, PEERS_MAX + 2)
    )
    assert NetworkConfig(address="10.0.0.1", transport="mesh", peers=peers[:-1])
    with pytest.raises(ConfigurationError, match=f"{PEERS_MAX + 1} of them: give at most {PEERS_MAX}"):
        NetworkConfig(address="10.0.0.1", transport="mesh", peers=peers)


@pytest.mark.parametrize(
    "build",
    [
        lambda: NetworkConfig(address="10.0.0.1", port="5400"),
        lambda: NetworkConfig(address="10.0.0.1", peers=[2]),
        lambda: SecurityConfig(key_file=5),
        lambda: TraceConfig(level="all"),
        lambda: NodeConfig(processor=1, directory=Path()),
        lambda: NodeConfig(
            processor=1,
            directory=Path(),
            network={"address": "10.0.0.1"},
            security=SecurityConfig(unsealed=True),
        ),
    ],
)
def test_a_program_is_checked_like_a_file(build: Any) -> None:
    with pytest.raises(ConfigurationError, match=r": give |is missing: "):
        build()


def test_settings_can_be_changed_on_the_command_line(file: Path) -> None:
    config = load(
        file,
        SMALL,
        "processor=2",
        "network.address=127.0.0.2",
        "network.port = 5410",
        "logging.level=debug",
        "trace.inputs=true",
        "ring.ring_kind=accelerated",
    )
    assert (config.processor, config.network.address, config.network.port) == (2, "127.0.0.2", 5410)
    assert (config.logging.level, config.trace.inputs) == ("debug", True)
    assert config.ring.ring_kind is RingKind.ACCELERATED
    mesh = load(file, SMALL, "network.transport=mesh", 'network.peers=["2@127.0.0.2"]')
    assert mesh.network.peers == (Peer(2, "127.0.0.2", 5400),)


@pytest.mark.parametrize("word", ["port", "network=1", "network.=1", ".port=1"])
def test_a_change_must_name_a_setting(file: Path, word: str) -> None:
    file.write_text(SMALL)
    with pytest.raises(ConfigurationError, match=r"give SETTING=VALUE or SECTION\.SETTING=VALUE"):
        NodeConfig.load(file, [word])


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("network.adress=10.0.0.1", "there is no such setting; did you mean address?"),
        ("netwrok.port=1", "there is no section [netwrok]; did you mean network?"),
        ("procesor=2", "there is no such setting; did you mean processor?"),
        ("port=1", "it belongs in [network] or [metrics]"),
        ("network.processor=1", "it belongs at the top of the file, before the first section"),
        ("nothing.port=1", "there is no section [nothing]"),
    ],
)
def test_a_change_of_what_there_is_not_is_answered_as_in_a_file(file: Path, word: str, why: str) -> None:
    file.write_text(SMALL)
    with pytest.raises(ConfigurationError) as caught:
        NodeConfig.load(file, [word])
    assert str(caught.value) == f"{word!r}: {why}"


def test_a_changed_value_is_checked_like_any(file: Path) -> None:
    assert problem(file, SMALL, "network.port=many").startswith(
        '[network] port = "many": give a whole number'
    )


# The printed file


def filled_in(text: str, directory: Path) -> str:
    """What a reader does with the printed file."""
    (directory / "totem.key").write_text("")
    return (
        text.replace("/var/lib/totempole", f"{directory}/state")
        .replace("/etc/totempole/totem.key", f"{directory}/totem.key")
        .replace("10.0.0.1", "127.0.0.1", 1)
    )


def test_the_printed_file_is_the_defaults(file: Path, tmp_path: Path) -> None:
    assert load(file, filled_in(print_config(), tmp_path)) == NodeConfig(
        processor=1,
        directory=tmp_path / "state",
        network=NetworkConfig(address="127.0.0.1"),
        security=SecurityConfig(key_file=tmp_path / "totem.key"),
    )


def test_the_printed_file_has_every_setting_and_its_meaning() -> None:
    text = print_config()
    raw = tomllib.loads(text)
    assert set(raw["ring"]) == {item.name for item in fields(RingConfig)} - {"segment_bytes"}
    assert set(raw["network"]) == {item.name for item in fields(NetworkConfig)}
    one_line = " ".join(text.replace("\n#", "").split()).lower()
    for kind in (
        NodeConfig,
        NetworkConfig,
        RingConfig,
        SecurityConfig,
        TraceConfig,
        MetricsConfig,
        LoggingConfig,
    ):
        # What stands in further tables of a section means the same as in the first.
        for item in [item for item in fields(kind) if "more_of" not in item.metadata]:
            meaning = " ".join(item.metadata["meaning"].split()).lower()
            assert item.name == "segment_bytes" or meaning in one_line, item.name
    assert max(map(len, text.splitlines())) <= 100


def test_a_configuration_survives_being_printed(file: Path, tmp_path: Path) -> None:
    awkward = tmp_path / 'a "quoted" \\ name\x7f'
    config = NodeConfig(
        processor=3,
        directory=awkward,
        network=NetworkConfig(
            address="fd00::3", transport="mesh", peers=(Peer(3, "fd00::3"), Peer(4, "fd00::4", 99)), port=7000
        ),
        security=SecurityConfig(unsealed=True),
        ring=RingConfig(ring_kind=RingKind.ACCELERATED, window_packets=60),
        trace=TraceConfig(level="protocol", directory=tmp_path),
        logging=LoggingConfig(format="json"),
    )
    assert load(file, print_config(config)) == config


def test_a_configuration_can_be_varied() -> None:
    network = NetworkConfig(address="10.0.0.1")
    assert replace(network, address="fd00::1").group == "ff15::5401"


def test_a_program_gives_settings_as_a_file_has_them() -> None:
    """Peers as texts or objects, paths as texts, lists where a file has lists."""
    network = NetworkConfig(
        address="10.0.0.1", transport="mesh", peers=["1@10.0.0.1", Peer(2, "10.0.0.2"), "3@10.0.0.3:6400"]
    )
    assert network.known_peers == (
        Peer(1, "10.0.0.1", 5400),
        Peer(2, "10.0.0.2", 5400),
        Peer(3, "10.0.0.3", 6400),
    )
    assert NetworkConfig(address="10.0.0.1", transport="mesh", peers=("2@10.0.0.2",)).known_peers == (
        Peer(2, "10.0.0.2", 5400),
    )
    clients = ClientsConfig(users=["alice"], socket_mode="0600")  # type: ignore[arg-type]
    assert (clients.users, clients.socket_mode) == (("alice",), 0o600)
    config = NodeConfig(
        processor=1,
        directory="/tmp/n",  # type: ignore[arg-type]
        network=network,
        security=SecurityConfig(unsealed=True),
    )
    assert config.directory == Path("/tmp/n")


@pytest.mark.parametrize(
    ("peers", "text"),
    [
        (["one"], 'peers: "one" is not a peer: give PROCESSOR@ADDRESS or PROCESSOR@ADDRESS:PORT, like'),
        ([1], "peers = [1]: give a list of peers, like"),
        ("1@10.0.0.1", 'peers = "1@10.0.0.1": give a list of peers, like'),
    ],
)
def test_peers_that_are_none(peers: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        NetworkConfig(address="10.0.0.1", transport="mesh", peers=peers)
