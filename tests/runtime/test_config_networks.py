"""Settings of several networks under one ring: files that load, and files that are refused and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from totempole.errors import ConfigurationError
from totempole.rrp.config import NETWORKS_MAX, RedundancyConfig
from totempole.runtime.config import NodeConfig, Peer
from totempole.runtime.config_text import print_config
from totempole.srp.config import RingConfig

TOP = 'processor = 1\ndirectory = "state"\n[security]\nunsealed = true\n'
PASSIVE = '[redundancy]\nstyle = "passive"\n'
A = '[[network]]\nname = "a"\naddress = "10.0.0.1"\n'
B = '[[network]]\nname = "b"\naddress = "10.0.1.1"\n'
C = '[[network]]\naddress = "fd00::1"\n'
MESH = 'transport = "mesh"\n'
RINGS = "[[ring]]\ncluster_id = 1\n[[ring]]\ncluster_id = 2\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "node.toml"


def load(file: Path, text: str, *changes: str) -> NodeConfig:
    file.write_text(text, encoding="utf-8")
    return NodeConfig.load(file, changes)


def problem(file: Path, text: str, *changes: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(file, text, *changes)
    return str(caught.value).removeprefix(f"{file}: ")


def test_three_networks_under_one_ring(file: Path) -> None:
    config = load(file, TOP + '[redundancy]\nstyle = "active-passive"\ncopies = 2\n' + A + B + C)
    assert config.is_redundant
    assert [config.network_name(number) for number in range(3)] == ["a", "b", "3"]
    assert config.redundancy == RedundancyConfig(style="active-passive", copies=2)
    assert [network.group for network in config.networks] == ["239.192.54.1", "239.192.54.2", "ff15::5403"]
    spec = config.stack([RingConfig(segment_bytes=size) for size in (1_472, 8_972, 1_452)])
    assert [network.segment_bytes for network in spec.networks] == [1_472, 8_972, 1_452]
    assert spec.rings[0].networks == (0, 1, 2)


def test_a_group_that_is_set_stays(file: Path) -> None:
    config = load(file, TOP + PASSIVE + A + B + 'multicast_group = "239.1.2.3"\n')
    assert [network.group for network in config.networks] == ["239.192.54.1", "239.1.2.3"]


def test_networks_of_several_rings_have_the_usual_group(file: Path) -> None:
    """A node with one ring on the second of them does not know that it is anybody's second."""
    config = load(file, TOP + A + B + RINGS)
    assert not config.is_redundant
    assert [network.group for network in config.networks] == ["239.192.54.1"] * 2


def test_a_name_for_one_network_is_no_redundancy(file: Path) -> None:
    assert not load(file, TOP + A).is_redundant
    assert not load(file, TOP + A.replace("[[network]]", "[network]")).is_redundant


MESHES = A + MESH + 'peers = ["1@10.0.0.1", "2@10.0.0.2"]\n' + B + MESH


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PASSIVE + A,
            '[redundancy] style = "passive": there is 1 network; give a [[network]] table for each',
        ),
        (
            A + B,
            '[redundancy] style = "none": there are 2 networks; give one of active, passive, active-passive',
        ),
        (
            '[redundancy]\nstyle = "active-passive"\n' + A + B,
            '[redundancy] copies = 0: with style = "active-passive" give how many',
        ),
        (
            '[redundancy]\nstyle = "active-passive"\ncopies = 2\n' + A + B,
            '[redundancy] copies = 2: with style = "active-passive" and 2 networks give a number above 1 and',
        ),
        (
            '[redundancy]\nstyle = "active-passive"\ncopies = 1\n' + A + B + C,
            '[redundancy] copies = 1: with style = "active-passive" and 3 networks give a number',
        ),
        (
            '[redundancy]\nstyle = "active-passive"\ncopies = 7\n' + A + B + C,
            "[redundancy] copies = 7: give a whole number from 0 to 6",
        ),
        (
            '[redundancy]\nstyle = "active"\ncopies = 2\n' + A + B,
            '[redundancy] copies = 2: only style = "active-passive" takes it',
        ),
        (
            '[redundancy]\nstyle = "both"\n' + A + B,
            '[redundancy] style = "both": give one of none, active, passive, active-passive',
        ),
        (
            PASSIVE
            + "".join(f'[[network]]\naddress = "10.0.{place}.1"\n' for place in range(NETWORKS_MAX + 1)),
            "8 [[network]] tables under one ring: give at most 7",
        ),
        (
            PASSIVE + A + B + RINGS,
            '[redundancy] style = "passive": there are 2 [[ring]] tables; it is for one ring',
        ),
        (A + B + C + RINGS, "3 networks and 2 rings: give each ring a network of its own"),
        # the same twice
        (
            PASSIVE + A + B.replace('"b"', '"a"'),
            '[[network]] 2: name = "a": network 1 has this name: give each',
        ),
        (
            PASSIVE + C + A.replace('"a"', '"1"'),
            '[[network]] 2: name = "1": a number means the network of that place: give a word',
        ),
        (
            PASSIVE + A + B.replace('"b"', '"b c"'),
            '[[network]] 2: name = "b c": give at most 32 letters, digits',
        ),
        (
            PASSIVE + A + B.replace('"b"', f'"{"b" * 33}"'),
            f'[[network]] 2: name = "{"b" * 33}": give at most 32',
        ),
        (
            PASSIVE + A + B.replace("10.0.1.1", "10.0.0.1"),
            '[[network]] 2: address = "10.0.0.1", port = 5400: network 1 has them: each takes its port',
        ),
        (
            PASSIVE + A + B.replace("10.0.1.1", "10.0.0.1") + "port = 5401\n",
            '[[network]] 2: address = "10.0.0.1", port = 5401: network 1 has them',
        ),
        (
            PASSIVE + A + B.replace("10.0.1.1", "10.0.0.1") + "port = 6000\n",
            '[[network]] 2: address = "10.0.0.1": network 1 has it too: both would be on one interface',
        ),
        (
            PASSIVE + C + C.replace("fd00::1", "fd00:0:0::0:1"),
            '[[network]] 2: address = "fd00:0:0::0:1", port = 5400: network 1 has them',
        ),
        # which of them it is
        (PASSIVE + A + B + "port = 0\n", "[[network]] 2: port = 0: give a whole number from 1 to 65534"),
        (
            PASSIVE + A + B + "prot = 0\n",
            "[[network]] 2: prot = 0: there is no such setting; did you mean port?",
        ),
        (
            PASSIVE + A + '[[network]]\nname = "b"\n',
            '[[network]] 2: address = "": give this host\'s own IP address',
        ),
        (
            PASSIVE + MESHES + 'peers = ["1@10.0.1.9", "2@10.0.1.2"]\n',
            "[[network]] 2: peers: 1@10.0.1.9:5400 does not agree with processor = 1 at 1@10.0.1.1:5400",
        ),
        (
            PASSIVE + MESHES + 'peers = ["2@10.0.1.1"]\n',
            "[[network]] 2: peers: 2@10.0.1.1:5400 does not agree with processor = 1 at 1@10.0.1.1:5400",
        ),
        (PASSIVE + MESHES, '[[network]] 2: transport = "mesh": a mesh needs to know its processors'),
        (
            PASSIVE + A + B + 'peers = ["2@10.0.1.2"]\n',
            '[[network]] 2: peers = ["2@10.0.1.2:0"]: multicast finds',
        ),
        (
            PASSIVE + A + B + "capacity = 0\n",
            "[[network]] 2: capacity = 0: give a whole number from 1 to 1000000",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(file: Path, text: str, expected: str) -> None:
    assert problem(file, TOP + text).startswith(expected)


def test_networks_may_differ_in_family_transport_and_size(file: Path) -> None:
    second = B + MESH + 'peers = ["2@10.0.1.2"]\nsegment_bytes = 8000\ncapacity = 10\noffload = "off"\n'
    config = load(file, TOP + PASSIVE + A + second + C + "port = 7000\n")
    assert config.more_networks[0].peers == (Peer(2, "10.0.1.2", 5400),)
    assert [network.capacity for network in config.networks] == [1, 10, 1]


def test_one_loopback_address_may_be_used_with_several_ports(file: Path) -> None:
    """IPv6 has only one."""
    one = '[[network]]\naddress = "::1"\n'
    assert load(file, TOP + PASSIVE + one + one + "port = 5402\n").is_redundant


# The command line


def test_tables_are_changed_by_number(file: Path) -> None:
    changes = (
        "network.1.address=10.5.0.1",
        "network.2.port=6000",
        "network.2.name=c",
        "redundancy.style=active",
    )
    config = load(file, TOP + PASSIVE + A + B, *changes)
    assert [network.address for network in config.networks] == ["10.5.0.1", "10.0.1.1"]
    assert [network.port for network in config.networks] == [5400, 6000]
    assert config.network_name(1) == "c"
    assert config.redundancy.style == "active"
    rings = load(file, TOP + A + B + RINGS, "ring.2.cluster_id=9")
    assert [ring.cluster_id for ring in rings.rings] == [1, 9]


def test_the_only_table_has_a_number_too(file: Path) -> None:
    for table in (A, A.replace("[[network]]", "[network]")):
        assert load(file, TOP + table, "network.1.port=6000").network.port == 6000
        assert load(file, TOP + table, "network.port=6000").network.port == 6000


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("network.3.port=1", "'network.3.port=1': the file has 2 [[network]] tables"),
        (
            "network.port=1",
            "'network.port=1': the file has 2 [[network]] tables: name one by its number, like network.1",
        ),
        ("network.0.port=1", "'network.0.port=1': give SETTING=VALUE"),
        ("network.b.port=1", "'network.b.port=1': give SETTING=VALUE"),
        ("network.1.prot=1", "'network.1.prot=1': there is no such setting; did you mean port?"),
        ("network.1=1", "'network.1=1': give SETTING=VALUE"),
        ("network.1.=1", "'network.1.=1': give SETTING=VALUE"),
        ("log.1.level=debug", "'log.1.level=debug': give SETTING=VALUE"),
        ("ring.2.cluster_id=7", "'ring.2.cluster_id=7': the file has 1 [[ring]] table"),
        ("network.2.port=0", "[[network]] 2: port = 0: give a whole number"),
    ],
)
def test_a_change_names_a_table_that_is_there(file: Path, word: str, expected: str) -> None:
    assert problem(file, TOP + PASSIVE + A + B, word).startswith(expected)


# The printed file


def test_several_networks_survive_being_printed(file: Path) -> None:
    config = load(file, TOP + '[redundancy]\nstyle = "active-passive"\ncopies = 2\n' + A + B + C)
    text = print_config(config)
    assert text.count("[[network]]\n") == 3
    assert 'style = "active-passive"\n' in text
    assert "copies = 2\n" in text
    assert load(file, text) == config
    assert load(file, print_config(replace(config, logging=config.logging))) == config


def test_what_is_printed_says_what_the_settings_of_networks_mean() -> None:
    text = print_config()
    assert "[redundancy]\n" in text
    for words in (
        "# With several networks: each message on all (active)",
        "name = ",
        "capacity = 1",
        "copies = 0",
    ):
        assert words in text
    assert "[[network]] for each" in text
