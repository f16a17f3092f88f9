"""Every limit of the group layer: its text says what to do, and who goes beyond it has changed nothing."""

from __future__ import annotations

from typing import Any

import pytest
from layers_by_hand import Cluster

from totempole.core.inputs import Command
from totempole.errors import ConfigurationError, SessionError
from totempole.groups import GroupConfig, pack
from totempole.groups.body import PROCESS_NUMBER_MAX
from totempole.groups.commands import Connect, Disconnect, GiveState, JoinGroup, LeaveGroup, Multicast
from totempole.groups.events import StateChunk
from totempole.groups.layer import PACKET_BYTES_MIN
from totempole.groups.packing import packed_bytes
from totempole.types import Service


def refused(cluster: Cluster, text: str, command: Command) -> None:
    layer = cluster.layers[1]
    before = (layer.groups, layer.waiting_bytes, layer.order.queued)
    with pytest.raises(SessionError) as error:
        cluster.ask(1, command)
    assert str(error.value) == text
    assert (layer.groups, layer.waiting_bytes, layer.order.queued) == before
    cluster.multicast(cluster.connect(1, layer._process_last + 1), "g", b"goes on")
    cluster.run()


def test_processes() -> None:
    cluster = Cluster(1, GroupConfig(processes_max=3))
    for number in (1, 2, 3):
        cluster.connect(1, number)
    with pytest.raises(SessionError, match="this processor has 3 processes, as many as processes_max allows"):
        cluster.ask(1, Connect(4))
    cluster.ask(1, Disconnect(2))
    cluster.connect(1, 4)


def test_what_a_member_says_of_itself() -> None:
    cluster = Cluster(1)
    cluster.connect(1, 1)
    refused(cluster, "info of 513 bytes: give at most 512", JoinGroup(1, "g", info=bytes(513)))


@pytest.mark.parametrize("number", [-1, 0, 7, PROCESS_NUMBER_MAX + 1])
def test_a_process_has_a_number_above_those_before_it(number: int) -> None:
    cluster = Cluster(1)
    cluster.connect(1, 7)
    refused(cluster, f"process {number}: give a number from 8 to {PROCESS_NUMBER_MAX}", Connect(number))


@pytest.mark.parametrize(
    "command",
    [
        Disconnect(1),
        JoinGroup(1, "g"),
        LeaveGroup(1, "g"),
        Multicast(1, ("g",), pack([b"x"]), Service.AGREED),
        GiveState(1, "g", None, None, b"", True),  # type: ignore[arg-type]
    ],
)
def test_a_process_that_is_not_connected_can_do_nothing(command: Command) -> None:
    cluster = Cluster(1)
    cluster.connect(1, 1)
    cluster.ask(1, Disconnect(1))
    refused(cluster, "process 1 is not connected", command)


def test_groups_of_a_process() -> None:
    cluster = Cluster(1, GroupConfig(groups_per_process_max=2))
    process = cluster.member(1, "g")
    cluster.join(process, "h")
    cluster.run()
    text = "2 groups are joined, as many as groups_per_process_max allows"
    refused(cluster, text, JoinGroup(1, "k"))
    cluster.ask(1, LeaveGroup(1, "g"))
    cluster.join(process, "k")
    cluster.run()
    assert cluster.layers[1].groups == {"h": (process,), "k": (process,)}


def test_joining_twice_and_leaving_what_is_not_joined() -> None:
    cluster = Cluster(1)
    process = cluster.member(1, "g")
    refused(cluster, "group 'g' is joined already", JoinGroup(1, "g"))
    refused(cluster, "group 'h' is not joined", LeaveGroup(1, "h"))
    assert cluster.layers[1].groups == {"g": (process,)}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "group name '' has 0 bytes: give 1 to 10 (group_name_bytes_max)"),
        ("x" * 11, "group name 'xxxxxxxxxxx' has 11 bytes: give 1 to 10 (group_name_bytes_max)"),
        ("ä" * 6, "group name 'ääääää' has 12 bytes: give 1 to 10 (group_name_bytes_max)"),
        ("\ud800", "group name '\\ud800': it cannot be written as UTF-8"),
    ],
)
def test_names(name: str, text: str) -> None:
    cluster = Cluster(1, GroupConfig(group_name_bytes_max=10))
    cluster.connect(1, 1)
    refused(cluster, text, JoinGroup(1, name))
    refused(cluster, text, Multicast(1, ("g", name), pack([b"x"]), Service.AGREED))


@pytest.mark.parametrize("name", ["x" * 10, "ä" * 5, "two words", "a,b", ",", "a\nb", "\0", " "])
def test_names_at_their_limit(name: str) -> None:
    cluster = Cluster(1, GroupConfig(group_name_bytes_max=10))
    process = cluster.member(1, name)
    cluster.multicast(process, name, b"x")
    cluster.run()
    assert cluster.messages(process, name) == [b"x"]


@pytest.mark.parametrize("count", [0, 4])
def test_groups_of_a_message(count: int) -> None:
    cluster = Cluster(1, GroupConfig(groups_per_message_max=3))
    cluster.connect(1, 1)
    text = f"a message to {count} groups: give 1 to 3 (groups_per_message_max)"
    refused(cluster, text, Multicast(1, tuple("abcd"[:count]), pack([b"x"]), Service.AGREED))


def test_long_names_of_many_groups_must_leave_room_in_a_packet() -> None:
    cluster = Cluster(1, packet_bytes_max=PACKET_BYTES_MIN)
    process = cluster.connect(1, 1)
    names = tuple(f"{number:0100}" for number in range(16))
    for name in names:
        cluster.join(process, name)
    text = "the groups' names together are too long for a packet: name fewer"
    refused(cluster, text, Multicast(1, names, pack([b"x"]), Service.AGREED))
    refused(cluster, text, Multicast(1, names[:3], pack([b"x"]), Service.AGREED))
    cluster.multicast(process, names[:2], b"x" * 5_000)
    cluster.run()
    assert cluster.messages(process) == [b"x" * 5_000]


def test_the_longest_name_fits_into_the_smallest_packet() -> None:
    cluster = Cluster(2, GroupConfig(group_name_bytes_max=255), packet_bytes_max=PACKET_BYTES_MIN)
    name = "x" * 255
    donor = cluster.member(1, name, donor=True)
    joiner = cluster.connect(2)
    cluster.run()
    cluster.join(joiner, name, wants_state=True)
    cluster.run()
    place = cluster.events[joiner][-1].place
    cluster.ask(1, GiveState(1, name, joiner, place, b"s" * 2_000, True))
    cluster.multicast(donor, name, b"m" * 2_000)
    cluster.run()
    assert cluster.messages(joiner) == [b"m" * 2_000]
    assert [bytes(chunk.content) for chunk in cluster.told(joiner, StateChunk)] == [b"s" * 2_000]


def test_a_packet_must_have_room_for_names() -> None:
    with pytest.raises(ConfigurationError, match="packet_bytes_max = 511: groups need at least 512"):
        Cluster(1, packet_bytes_max=PACKET_BYTES_MIN - 1)


def test_the_size_of_a_message() -> None:
    cluster = Cluster(1, GroupConfig(message_bytes_max=1_000, partial_bytes_max=2_000))
    process = cluster.member(1, "g")
    cluster.multicast(process, "g", b"x" * 1_000)
    size = packed_bytes(0, 1_005)
    text = f"a message of {size} bytes: it has at most 1000 (message_bytes_max)"
    refused(cluster, text, Multicast(1, ("g",), pack([b"x" * 1_005]), Service.AGREED))
    assert cluster.messages(process)[0] == b"x" * 1_000


@pytest.mark.parametrize(
    "batch", [b"", b"junk", b"\3" + b"x" * 20, pack([b"abc"])[:-1], pack([b"a", b"bc"]) + b"d"]
)
def test_what_is_not_packed_as_it_should_be(batch: bytes) -> None:
    cluster = Cluster(1)
    cluster.connect(1, 1)
    with pytest.raises(SessionError, match="messages that are not packed as they should be: batch"):
        cluster.ask(1, Multicast(1, ("g",), batch, Service.AGREED))
    assert cluster.layers[1].waiting_bytes == 0


def test_a_lane_says_when_it_is_full_and_when_there_is_room_again() -> None:
    cluster = Cluster(1, GroupConfig(lane_bytes_max=10_000), packets_ahead=1)
    process = cluster.connect(1, 1)
    while cluster.layers[1].accepts(1):
        cluster.multicast(process, "g", b"x" * 1_500)
    assert 10_000 <= cluster.layers[1].waiting_bytes < 12_000
    assert cluster.layers[1].accepts(2)
    cluster.run()
    assert cluster.layers[1].accepts(1)


@pytest.mark.parametrize(
    ("setting", "value", "most"),
    [
        ("message_bytes_max", 0, 1 << 30),
        ("message_bytes_max", (1 << 30) + 1, 1 << 30),
        ("group_name_bytes_max", 256, 255),
        ("groups_per_message_max", 65, 64),
        ("groups_per_process_max", 0, 100_000),
        ("processes_max", 100_001, 100_000),
        ("processes_max", True, 100_000),
        ("lane_bytes_max", "1", 2**62),
    ],
)
def test_settings_are_checked(setting: str, value: Any, most: int) -> None:
    with pytest.raises(ConfigurationError) as error:
        GroupConfig(**{setting: value})
    assert str(error.value) == f"{setting} = {value!r}: give a whole number from 1 to {most}"


def test_whatever_may_be_sent_may_be_under_way() -> None:
    with pytest.raises(ConfigurationError, match="partial_bytes_max = 9 is below message_bytes_max = 10"):
        GroupConfig(message_bytes_max=10, partial_bytes_max=9)


def test_a_large_message_of_the_largest_size() -> None:
    """64 MiB by default, cut and put together again."""
    cluster = Cluster(1, packet_bytes_max=60_000, packets_ahead=30)
    process = cluster.member(1, "g")
    payload = b"x" * GroupConfig().message_bytes_max
    cluster.multicast(process, "g", payload)
    cluster.run()
    assert cluster.messages(process) == [payload]
