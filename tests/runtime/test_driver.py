"""Drivers on real sockets: rings form, order holds, and what goes wrong has its defined end."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from loopback import Place, a_place, has_ipv6, wait_until
from members import PATIENT, Lines, Member, mesh_of, node_config, started, wait_for_ring

from totempole.core.effects import Channel, Role, Send, Tell
from totempole.core.order import Deliver
from totempole.errors import (
    ConfigurationError,
    NetworkAbsentError,
    NetworkError,
    NumberInUseError,
    SessionError,
    StorageError,
)
from totempole.groups import pack
from totempole.groups.commands import Connect, Multicast
from totempole.identity import LIVES_MAX, PROBATION_US
from totempole.runtime import driver as driver_module
from totempole.runtime import keyring, lives
from totempole.runtime import sockets as sockets_module
from totempole.runtime.config import NodeConfig, Peer, SecurityConfig, TraceConfig
from totempole.runtime.driver import Driver
from totempole.runtime.network import Network
from totempole.runtime.record import NodeRecord
from totempole.runtime.snapshot import snapshot
from totempole.runtime.sockets import Read, Sockets
from totempole.runtime.storage import Storage
from totempole.segment import Burst, Cutter
from totempole.srp.config import RingConfig
from totempole.srp.engine import GIVE_WAY_MAX
from totempole.srp.formats import ring_codec
from totempole.srp.packets import Join, RegularMessage, name_of
from totempole.srp.ring import Held
from totempole.types import NO_RING, MessageId, OrderKey, RingId, RingKind, Service


@pytest.fixture
def place() -> Iterator[Place]:
    with a_place() as found:
        yield found


def wait_for_messages(number: int, *members: Member) -> None:
    def here() -> bool:
        for member in members:
            assert member.error is None, member.error
        return all(len(member.messages) >= number for member in members)

    wait_until(here, f"no {number} messages")


# Rings


@pytest.mark.parametrize("offload", ["auto", "off"])
@pytest.mark.parametrize("transport", ["multicast", "mesh"])
def test_three_nodes_deliver_everything_in_one_order(
    place: Place, tmp_path: Path, transport: str, offload: str
) -> None:
    settings = mesh_of(place, 1, 2, 3) if transport == "mesh" else {}
    configs = [node_config(place, me, tmp_path, offload=offload, **settings) for me in (1, 2, 3)]
    with started(*configs) as members:
        wait_for_ring(*members)
        for number in range(50):
            for member in members:
                me = member.driver.config.processor
                service = Service.SAFE if number % 10 == 0 else Service.AGREED
                member.send(b"%d-%d" % (me, number), bytes([number]) * 97 * number, service=service)
        wait_for_messages(300, *members)
        assert members[0].messages == members[1].messages == members[2].messages
        assert members[0].keys == members[1].keys == members[2].keys == sorted(members[0].keys)
        for me in (1, 2, 3):
            mine = [message for message in members[0].messages if message.startswith(b"%d-" % me)]
            assert mine == [b"%d-%d" % (me, number) for number in range(50)]
        assert Service.SAFE in members[0].services
        wait_until(lambda: all(member.driver.ring.machine.installed.safe_up_to for member in members))
        document = snapshot(members[0].driver)
        assert document["members"] == [1, 2, 3]
        assert document["state"] == "operational"
        assert document["totals"]["messages_delivered"] == 300
        assert document["offload"]["send"] is (offload == "auto")
        assert document["dropped"] == {}
        assert document["kernel_refused"] == {}


@has_ipv6
def test_a_mesh_of_ipv6(place: Place, tmp_path: Path) -> None:
    peers = (Peer(1, "::1", place.port), Peer(2, "::1", place.port + 2))
    configs = [
        node_config(
            place, me, tmp_path, address="::1", port=peers[me - 1].port, transport="mesh", peers=peers
        )
        for me in (1, 2)
    ]
    with started(*configs) as members:
        wait_for_ring(*members)
        members[0].send(b"six" * 10_000)
        wait_for_messages(1, *members)


@has_ipv6
def test_an_address_written_at_length_is_still_ones_own(place: Place, tmp_path: Path) -> None:
    peers = (Peer(1, "0:0:0:0:0:0:0:1", place.port), Peer(2, "::1", place.port + 2))
    configs = [
        node_config(
            place,
            me,
            tmp_path,
            address=peers[me - 1].address,
            port=peers[me - 1].port,
            transport="mesh",
            peers=peers,
        )
        for me in (1, 2)
    ]
    with started(*configs) as members:
        wait_for_ring(*members)
        assert not members[0].logged("another node uses this processor's number")


def test_a_mesh_learned_from_one_peer(place: Place, tmp_path: Path) -> None:
    """Nobody lists 3: it lists the others, and they learn where it is."""
    configs = [node_config(place, me, tmp_path, **mesh_of(place, 1, 2)) for me in (1, 2, 3)]
    with started(*configs) as members:
        wait_for_ring(*members)


def test_a_mesh_of_which_the_unlisted_was_there_first(place: Place, tmp_path: Path) -> None:
    """Its Joins went to nobody. What it says later must do."""
    configs = [node_config(place, me, tmp_path, **mesh_of(place, 1, 2)) for me in (1, 2, 3)]
    with started(configs[2]) as early:
        wait_for_ring(*early)
        with started(*configs[:2]) as late:
            wait_for_ring(*early, *late)


def test_a_mesh_from_a_dns_name(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [(socket.AF_INET, 2, 17, "", (place.address(me), place.port)) for me in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments: answer)
    settings = {"transport": "mesh", "peers_dns": "ring.example.org"}
    with started(*[node_config(place, me, tmp_path, **settings) for me in (1, 2, 3)]) as members:
        wait_for_ring(*members)


def test_a_dns_name_that_fails_is_told(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    config = node_config(place, 1, tmp_path, transport="mesh", peers_dns="ring.example.org")
    with started(config) as (member,):
        wait_until(lambda: member.logged("ring.example.org"), "nothing is logged of the name that fails")


def test_the_accelerated_ring(place: Place, tmp_path: Path) -> None:
    ring = replace(PATIENT, ring_kind=RingKind.ACCELERATED)
    with started(*[node_config(place, me, tmp_path, ring=ring) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        for number in range(200):
            members[number % 2].send(b"%d" % number * 500)
        wait_for_messages(200, *members)
        assert members[0].messages == members[1].messages


def test_a_sealed_ring_changes_its_keys_under_way(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "ring.key"
    keyring.create(file)
    configs = [node_config(place, me, tmp_path, security=SecurityConfig(key_file=file)) for me in (1, 2)]
    with started(*configs) as members:
        wait_for_ring(*members)
        before = [list(member.kinds) for member in members]
        for turn, step in enumerate((keyring.add, keyring.activate, keyring.retire)):
            keys = step(file)
            for member in members:
                member.driver.rekey(keys)
                wait_until(
                    lambda member=member, keys=keys: member.driver.key_ids == [k.id for k in keys.keys]
                )
            members[turn % 2].send(b"%d" % turn)
            wait_for_messages(turn + 1, *members)
        assert members[0].messages == [b"0", b"1", b"2"]
        assert [member.kinds for member in members] == before, "keys are no reason to gather"


# Sending


def test_pushed_back_until_there_is_room(place: Place, tmp_path: Path) -> None:
    """All at once, far more than the outbox takes: `ready` says when to go on, and nothing is lost."""
    messages = [b"%06d" % number + bytes(30_000) for number in range(400)]
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        one, two = members
        waiting, refusals = list(messages), []

        def feed() -> None:
            while waiting and one.driver.sender.send(waiting[:1]):
                del waiting[0]
            refusals.append(len(waiting))

        one.on_ready = feed
        one.driver.call(feed)
        wait_for_messages(len(messages), one, two)
        assert one.messages == two.messages == messages
        assert len([number for number in refusals if number]) > 0
        assert one.driver.outbox.bytes == 0


def test_what_the_application_sends_on_delivery_is_sent(place: Place, tmp_path: Path) -> None:
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        one, two = members
        wait_for_ring(one, two)

        def answer(packet: Any) -> None:
            if two.messages[-1].startswith(b"ask"):
                assert two.driver.sender.send([b"answer" + two.messages[-1]])

        two.on_delivered = answer
        one.send(b"ask 1")
        wait_for_messages(2, one, two)
        assert one.messages == [b"ask 1", b"answerask 1"]


def test_a_message_that_is_too_long_is_refused(place: Place, tmp_path: Path) -> None:
    with (
        started(node_config(place, 1, tmp_path)) as (member,),
        pytest.raises(ConfigurationError, match="packet_bytes_max"),
    ):
        member.driver.sender.send([bytes(440_000)])


# Leaving


def test_one_that_leaves_is_gone_at_once(place: Place, tmp_path: Path) -> None:
    with started(*[node_config(place, me, tmp_path) for me in (1, 2, 3)]) as members:
        wait_for_ring(*members)
        members[2].send(b"last words")
        members[2].driver.leave()
        assert members[2].end() is None
        assert members[2].logged("left the ring")
        wait_for_ring(*members[:2])
        assert all(member.messages == [b"last words"] for member in members)


def test_what_was_accepted_is_delivered_before_leaving(place: Place, tmp_path: Path) -> None:
    """The outbox holds far more than the ring takes in a few visits of the token."""
    messages = [b"%06d" % number + bytes(30_000) for number in range(100)]
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)

        def send_and_leave() -> None:
            assert members[0].driver.sender.send(messages)
            members[0].driver.leave()

        members[0].driver.call(send_and_leave)
        assert members[0].end() is None
        wait_for_ring(members[1])
        assert members[0].messages == messages
        assert members[1].messages == messages


def test_one_that_leaves_before_all_is_sent_says_how_much_may_be_lost(place: Place, tmp_path: Path) -> None:
    """The ring stands still, for the other member has died: `leave_us` is over before that is noticed."""
    ring = replace(PATIENT, leave_us=100_000)
    with started(*[node_config(place, me, tmp_path, ring=ring) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        members[1].stop()

        def send_and_leave() -> None:
            driver = members[0].driver
            driver.feed(Connect(1))
            driver.feed(Multicast(1, ("g",), pack([b"last words"]), Service.SAFE))
            driver.leave()

        members[0].driver.call(send_and_leave)
        assert members[0].end() is None
        assert members[0].logged("leave_us was over before all was sent")
        assert members[0].logged("may be lost", "messages=1 packets=1")


def test_what_waits_in_the_outbox_when_leave_us_is_over_is_told_too(place: Place, tmp_path: Path) -> None:
    ring = replace(PATIENT, leave_us=50_000)
    with started(*[node_config(place, me, tmp_path, ring=ring) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        members[1].stop()

        def send_and_leave() -> None:
            assert members[0].driver.sender.send([bytes(30_000)] * 2_000)
            members[0].driver.leave()

        members[0].driver.call(send_and_leave)
        assert members[0].end() is None
        (line,) = members[0].logged("may be lost")
        assert int(line.split("messages=")[1].split()[0]) > 1_000


def test_one_that_stops_at_once_says_nothing(place: Place, tmp_path: Path) -> None:
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)
        member.driver.stop_at_once()
        assert member.end() is None
        assert not member.logged("left the ring")


def test_a_stopped_driver_leaves_its_descriptors_alone(place: Place, tmp_path: Path) -> None:
    """Whoever still calls it, a resolver or a late signal, must not write into another's file."""
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)
        waker = member.driver._waker
        member.driver.stop_at_once()
        member.end()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(waker)
    reader, writer = os.pipe2(os.O_NONBLOCK)
    try:
        if writer != waker:
            os.dup2(writer, waker)  # the next file that somebody opens has this number
        member.driver.leave()
        with pytest.raises(BlockingIOError):
            os.read(reader, 100)
    finally:
        for descriptor in {reader, writer, waker}:
            os.close(descriptor)


# Storage


class FailingStorage(Storage):
    """A disk that takes some writes and no more."""

    writes_left = 10_000
    fired = 0

    def write(self, values: Any) -> None:
        if FailingStorage.writes_left == 0:
            FailingStorage.fired += 1
            raise StorageError(f"{self.path}: the disk is full")
        FailingStorage.writes_left -= 1
        super().write(values)


def record_sends(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    sent: list[Any] = []
    send = driver.networks[0].sockets.send

    def recorded(channel: Channel, bursts: tuple[Burst, ...], address: Any) -> None:
        sent.append((channel, address))
        send(channel, bursts, address)

    monkeypatch.setattr(driver.networks[0].sockets, "send", recorded)
    return sent


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_disk_that_fails_stops_the_node_in_silence(
    place: Place, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write is that of the start, the next ones those of the ring with the other."""
    with started(node_config(place, 2, tmp_path)) as (other,):
        wait_for_ring(other)
        monkeypatch.setattr(lives, "Storage", FailingStorage)
        monkeypatch.setattr(FailingStorage, "writes_left", writes)
        monkeypatch.setattr(FailingStorage, "fired", 0)
        member = Member(node_config(place, 1, tmp_path))
        sent = record_sends(member.driver, monkeypatch)
        failed_at: list[int] = []
        fail = member.driver.fail
        monkeypatch.setattr(member.driver, "fail", lambda error: (failed_at.append(len(sent)), fail(error)))
        member.start()
        error = member.end()
        assert isinstance(error, StorageError)
        assert "the disk is full" in str(error)
        assert FailingStorage.fired == 1
        assert member.logged("stopped", "the disk is full"), "the driver says why"
        assert not failed_at or failed_at[0] == len(sent)
        assert bool(sent) == bool(writes)
        wait_for_ring(other)


def test_a_disk_that_stands_still_is_told(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer refuses another write: the driver stops, and its log says why."""
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)

        def refuse(ticket: int, values: Any) -> None:
            raise StorageError("64 writes wait for the disk")

        monkeypatch.setattr(member.driver._lives._writer, "submit", refuse)
        with started(node_config(place, 2, tmp_path)):
            assert isinstance(member.end(), StorageError)
        assert member.logged("stopped", "64 writes wait for the disk")


def test_one_that_fails_in_the_midst_of_effects_sends_nothing_more(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        one, two = members
        wait_for_ring(one, two)
        sent = record_sends(two.driver, monkeypatch)
        at_failure: list[int] = []

        def give_up(packet: Any) -> None:
            at_failure.append(len(sent))
            two.driver.fail(SessionError("the program has had enough"))

        two.on_delivered = give_up
        one.send(b"too much", service=Service.SAFE)
        assert isinstance(two.end(), SessionError)
        assert len(at_failure) == 1
        assert len(sent) == at_failure[0], "it has spoken after it had failed"


def test_effects_behind_the_failure_are_not_executed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(node_config(place, 1, tmp_path)) as (member,):
        driver = member.driver
        sent = record_sends(driver, monkeypatch)
        member.on_delivered = lambda packet: driver.fail(SessionError("the program has had enough"))
        ring, body = RingId(4, 1), pack([b"x"])
        deliver = Deliver(MessageId(1, 1, 1), 1, body, Service.AGREED, OrderKey(ring, 1, NO_RING), 0, ring)
        words = Send((0,), None, Channel.DATA, (Burst(b"more words", 1_400),), Role.SEARCH, a_join(1))
        told = Tell(("groups", 0), deliver)
        done = threading.Event()

        def both() -> None:
            sent.clear()
            driver._execution.run(driver_module.now_us(), [told, words, told])
            done.set()

        driver.call(both)
        assert isinstance(member.end(), SessionError)
        assert done.is_set()
        assert member.messages == [b"x"]
        assert sent == []


# Others on the network


@pytest.mark.parametrize("later_s", [-5, 0, 1_000])
def test_the_newcomer_with_a_number_in_use_gives_way(place: Place, tmp_path: Path, later_s: int) -> None:
    """However much later it was installed: its first incarnation is taken from the wall clock."""
    Storage.open(tmp_path / "double", 1, 1, wall_clock=lambda: time.time() + later_s).close()
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        for member in members:
            member.driver.started_us -= PROBATION_US
        with started(node_config(place, 3, tmp_path, processor=1, named="double")) as (double,):
            error = double.end()
            assert isinstance(error, NetworkError)
            assert f"processor = 1: the node at {place.address(1)} has this number already" in str(error)
            assert double.logged("another node uses this processor's number")
        # Else it has said nothing yet; or, in the same second, perhaps what the true one said to the byte.
        if double.kinds and later_s:
            wait_until(
                lambda: members[0].logged("another node uses this processor's number", place.address(3))
            )

        def is_heard() -> bool:
            members[0].send(b"still here")
            return all(member.messages for member in members)

        # If the double's words were others than its own, the true one begins a new life, alone at first: what
        # it sends then reaches nobody else.
        wait_until(is_heard)
        assert members[0].running


def test_the_first_words_of_a_double_do_not_part_the_ring(place: Place, tmp_path: Path) -> None:
    """A double whose incarnation is higher has spoken once, and is gone: the true one is still heard."""
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        members[0].driver.started_us -= PROBATION_US
        words = cut(a_join(1)._replace(incarnation=2**31))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as double:
            double.bind((place.address(3), place.port))
            for member in members:
                double.sendto(words, member.driver.networks[0].sockets.own)
                double.sendto(b"junk", member.driver.networks[0].sockets.own)
        wait_until(lambda: members[0].logged("uses this processor's number", place.address(3)))
        wait_until(lambda: members[1].driver.ring.dropped, "words and junk have not come")
        # It begins a new life, which the others take for later than the double's, and joins them again.
        driver = members[0].driver
        wait_until(lambda: driver.ring.incarnation > 2**31)
        wait_until(lambda: driver.configuration is not None and len(driver.configuration.members) == 2)
        members[0].send(b"still here")
        wait_for_messages(1, *members)
        wait_for_ring(*members)


def test_of_two_old_nodes_with_one_number_one_gives_way(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has run for long, on its side of a partition. When that heals, they must not fight for ever."""
    monkeypatch.setattr(lives, "PROBATION_US", 0)
    doubles = [node_config(place, me, tmp_path, processor=1) for me in (1, 3)]
    with started(node_config(place, 2, tmp_path), *doubles) as (two, *members):
        wait_until(lambda: any(not member.running for member in members), "both fight on")
        (given_way,) = [member for member in members if not member.running]
        (stays,) = [member for member in members if member.running]
        assert "give each node a number of its own" in str(given_way.error)
        wait_for_ring(stays, two)
        for member in members:
            assert len(member.logged("starting a new life")) <= LIVES_MAX
        stays.send(b"still here")
        wait_for_messages(1, stays, two)


def test_a_directory_from_a_backup_is_named_by_who_remembers_better(place: Place, tmp_path: Path) -> None:
    """It was copied before the node's first life; two lives later it is put back."""
    config = node_config(place, 2, tmp_path)
    Storage.open(config.directory, 2, config.ring.cluster_id).close()
    shutil.copytree(config.directory, tmp_path / "backup")
    with started(node_config(place, 1, tmp_path)) as (one,):
        for _ in range(2):
            with started(config) as (two,):
                wait_for_ring(one, two)
        shutil.rmtree(config.directory)
        shutil.copytree(tmp_path / "backup", config.directory)
        with started(config) as (two,):
            life = two.driver.ring.incarnation
            wait_until(lambda: one.logged("a processor speaks in a life that is over"))
            assert one.logged(
                "a processor speaks in a life that is over",
                f"processor 2 has incarnation {life} and once had {life + 1}",
                "if its directory came from a backup",
                "remove the directory and start it again",
            )
            assert one.driver.ring.dropped["join of a former life"]
            wait_until(lambda: one.members == (1,))


@pytest.mark.parametrize("age_us", [0, 10 * PROBATION_US], ids=["young", "old"])
def test_echoes_do_not_stop_a_sealed_node(place: Place, tmp_path: Path, age_us: int) -> None:
    """A stranger without the key sends a node's own packets back to it, from another address."""
    keyring.create(tmp_path / "totem.key")
    settings = {"security": SecurityConfig(key_file=tmp_path / "totem.key"), **mesh_of(place, 3)}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((place.address(3), place.port))
        stranger.settimeout(10)
        with started(node_config(place, 1, tmp_path, **settings)) as (member,):
            driver = member.driver
            driver.started_us -= age_us
            for _ in range(6):
                stranger.sendto(stranger.recv(65_536), driver.networks[0].sockets.own)
            wait_until(lambda: driver.ring.dropped["echo of our own"] >= 6)
            assert member.running
            assert set(driver.ring.dropped) == {"echo of our own"}
            assert not member.logged("another node uses this processor's number")
            assert not member.logged("starting a new life")
            wait_until(lambda: member.logged("packets dropped", "echo of our own"))


def test_recordings_of_a_lost_life_do_not_keep_a_node_away(place: Place, tmp_path: Path) -> None:
    """It gives way a few times, because its number may be in use; then it starts."""
    config = node_config(place, 1, tmp_path, **mesh_of(place, 3))
    recorded = cut(a_join(1)._replace(incarnation=7))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind((place.address(3), place.port))
        for _ in range(GIVE_WAY_MAX):
            with started(config) as (member,):
                stranger.sendto(recorded, member.driver.networks[0].sockets.own)
                error = member.end()
                assert isinstance(error, NumberInUseError)
                assert error.may_pass
        with started(config) as (member,):
            stranger.sendto(recorded, member.driver.networks[0].sockets.own)
            wait_until(lambda: member.driver.ring.dropped["echo of our own"])
            wait_for_ring(member)


def test_a_member_of_a_mesh_without_an_address_is_named(place: Place, tmp_path: Path) -> None:
    """2 and 3 list 1, and neither the other."""
    configs = [node_config(place, me, tmp_path, **mesh_of(place, 1)) for me in (1, 2, 3)]
    with started(*configs) as (_, two, three):
        wait_until(
            lambda: (
                two.logged("cannot be reached", "processor 3")
                or three.logged("cannot be reached", "processor 2")
            )
        )


def test_settings_that_differ_are_named_and_the_ring_forms(place: Place, tmp_path: Path) -> None:
    other = replace(PATIENT, members_max=PATIENT.members_max - 1)
    configs = [node_config(place, 1, tmp_path), node_config(place, 2, tmp_path, ring=other)]
    with started(*configs) as members:
        wait_for_ring(*members)
        wait_until(lambda: members[0].logged("another node has another setting", "members_max", "node=2"))
        wait_until(lambda: members[1].logged("another node has another setting", "members_max", "node=1"))


def strangers(place: Place, tmp_path: Path) -> dict[str, NodeConfig]:
    file, wrong = tmp_path / "ring.key", tmp_path / "wrong.key"
    keyring.create(file)
    keyring.create(wrong)
    ours = SecurityConfig(key_file=file)
    rings = {
        "other cluster": replace(PATIENT, cluster_id=77),
        "other kind": replace(PATIENT, ring_kind=RingKind.ACCELERATED),
    }
    found = {name: node_config(place, 3, tmp_path, ring=ring, security=ours) for name, ring in rings.items()}
    found["unsealed"] = node_config(place, 3, tmp_path)
    found["wrong key"] = node_config(place, 3, tmp_path, security=SecurityConfig(key_file=wrong))
    return found


@pytest.mark.parametrize("who", ["other cluster", "other kind", "unsealed", "wrong key"])
def test_a_stranger_is_dropped_by_reason_and_the_ring_goes_on(place: Place, tmp_path: Path, who: str) -> None:
    stranger = strangers(place, tmp_path)[who]
    ours = SecurityConfig(key_file=tmp_path / "ring.key")
    with started(*[node_config(place, me, tmp_path, security=ours) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        before = [list(member.kinds) for member in members]
        with started(stranger) as (other,):
            wait_until(lambda: other.members == (3,))
            for member in (*members, other):
                wait_until(lambda member=member: member.driver.ring.dropped)
                assert len(member.driver.ring.dropped) == 1, member.driver.ring.dropped
                wait_until(lambda member=member: member.logged("packets dropped"))
                wait_until(lambda member=member: member.logged("why packets are dropped"))
            members[0].send(b"unharmed")
            wait_for_messages(1, *members)
            assert other.messages == []
            assert other.members == (3,)
        reasons = {reason for member in members for reason in member.driver.ring.dropped}
        assert len(reasons) == 1
        assert [member.kinds for member in members] == before


def test_a_sealed_node_among_unsealed_ones(place: Place, tmp_path: Path) -> None:
    keyring.create(tmp_path / "ring.key")
    sealed = node_config(place, 3, tmp_path, security=SecurityConfig(key_file=tmp_path / "ring.key"))
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        with started(sealed) as (other,):
            wait_until(lambda: all(member.driver.ring.dropped for member in (*members, other)))
        assert all(member.members == (1, 2) for member in members)


def test_the_log_names_who_sent_what_was_dropped(place: Place, tmp_path: Path) -> None:
    """On a busy ring what came last came from somebody else."""
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        driver = members[0].driver

        def take_junk_then_a_members_words() -> None:
            driver.receiver._receive(
                driver.networks[0], Channel.DATA, Read(b"junk", 0, (place.address(9), 9))
            )
            words = a_join(2)._replace(incarnation=members[1].driver.ring.incarnation)
            driver.receiver._receive(
                driver.networks[0],
                Channel.DATA,
                Read(cut(words), 0, members[1].driver.networks[0].sockets.own),
            )
            driver._report_drops(driver_module.now_us())

        driver.call(take_junk_then_a_members_words)
        wait_until(lambda: members[0].logged("packets dropped"))
        assert members[0].logged("packets dropped", place.address(9))


def cut(packet: Any, config: RingConfig = PATIENT) -> bytes:
    data = ring_codec(config.cluster_id, config.ring_kind).encode(packet)
    (burst,) = Cutter(1_400, packet.sender, packet.incarnation).cut(data, name_of(packet))
    return burst.data


def a_join(sender: int, counter: int = 1) -> Join:
    return Join(
        sender=sender,
        incarnation=1,
        counter=counter,
        ring_seq=4,
        future_ring_seq=4,
        proc_set=frozenset({sender}),
        fail_set=frozenset(),
        rotation_count=0,
    )


def test_a_join_from_the_last_port_stops_nobody(place: Place, tmp_path: Path) -> None:
    """Its token would go to port 65536, which there is not."""
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((place.address(9), 65_535))
            counters = count(1)

            def token_sent() -> bool:
                join = a_join(9, next(counters))._replace(proc_set=frozenset({1, 9}))
                stranger.sendto(cut(join), member.driver.networks[0].sockets.own)
                return bool(member.error or member.driver.networks[0].sockets.refused)

            wait_until(token_sent, "no token was sent")
        assert member.error is None


def test_junk_of_every_kind_is_survived(place: Place, tmp_path: Path) -> None:
    with started(*[node_config(place, me, tmp_path) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        one = members[0].driver.networks[0].sockets.own
        message = RegularMessage(
            9, 1, RingId(4, 9), 1, 1, Service.AGREED, 0, 9, NO_RING, (), False, False, b"\xff" * 30
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((place.address(9), place.port))
            for junk in (b"", b"x", b"TS" + bytes(60), os.urandom(1_000), cut(message)[:-3]):
                for port in (one[1], one[1] + 1):
                    stranger.sendto(junk, (one[0], port))
        wait_until(lambda: sum(members[0].driver.ring.dropped.values()) >= 8)
        members[1].send(b"unharmed")
        wait_for_messages(1, *members)


# Sockets and their limits


def test_a_window_larger_than_the_buffer_is_lowered_and_told(place: Place) -> None:
    logger, lines = logging.Logger("fit"), Lines()
    logger.addHandler(lines)
    network = Network(0, replace_network(place, receive_buffer_bytes=300_000))
    try:
        fitted = network.fit(RingConfig(), logger)
    finally:
        network.sockets.close()
    assert fitted.window_bytes == 300_000
    assert fitted.each_time_bytes == 300_000
    assert fitted.segment_bytes == network.sockets.segment_bytes
    (line,) = lines.lines
    assert "receive buffer smaller than the window" in line
    assert "receive_buffer_bytes=300000 window_bytes=5000000" in line


def replace_network(place: Place, **settings: Any) -> Any:
    return node_config(place, 1, Path("/nowhere"), **settings).network


def test_the_remedy_is_the_one_that_helps(place: Place) -> None:
    """The sysctl where the kernel gave less than asked; the setting where less was asked."""
    for asked, got, remedy in (
        (8_388_608, 300_000, "net.core.rmem_max=5000000"),
        (300_000, 300_000, "receive_buffer_bytes"),
    ):
        logger, lines = logging.Logger("fit"), Lines()
        logger.addHandler(lines)
        network = Network(0, replace_network(place, receive_buffer_bytes=asked))
        network.sockets.receive_buffer_bytes = got
        network.fit(RingConfig(), logger)
        network.sockets.close()
        assert f"remedy={remedy}" in lines.lines[0] or remedy in lines.lines[0].partition("remedy=")[2]


def test_a_window_that_fits_is_left_alone(place: Place) -> None:
    network = Network(0, replace_network(place))
    ring = network.fit(RingConfig(), logging.Logger("fit"))
    network.sockets.close()
    assert ring == replace(RingConfig(), segment_bytes=network.sockets.segment_bytes)


def test_a_ring_runs_with_the_smallest_buffers(place: Place, tmp_path: Path) -> None:
    with started(
        *[node_config(place, me, tmp_path, receive_buffer_bytes=100_000) for me in (1, 2)]
    ) as members:
        wait_for_ring(*members)
        for number in range(100):
            members[number % 2].send(bytes([number]) * 20_000)
        wait_for_messages(100, *members)
        assert members[0].messages == members[1].messages
        assert members[0].logged("receive buffer smaller than the window")


def test_offload_that_is_refused_is_told(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[int] = []
    wait_to_send = Sockets._wait_to_send

    def refusing(self: Sockets, sock: Any, data: bytes, ancillary: Any, address: Any) -> None:
        if ancillary:
            fired.append(len(data))
            raise OSError(errno.EIO, "Input/output error")
        wait_to_send(self, sock, data, ancillary, address)

    monkeypatch.setattr(Sockets, "_wait_to_send", refusing)
    with started(*[node_config(place, me, tmp_path, segment_bytes=1_400) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        members[0].send(bytes(50_000))
        wait_for_messages(1, *members)
        wait_until(lambda: members[0].logged("going on without offload", "Input/output error"))
    assert fired


def test_a_narrow_path_is_told_and_obeyed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[int] = []
    wait_to_send = Sockets._wait_to_send

    def narrow(self: Sockets, sock: Any, data: bytes, ancillary: Any, address: Any) -> None:
        if ancillary and len(data) > 9_000 and int.from_bytes(ancillary[0][2], "little") > 1_000:
            fired.append(len(data))
            raise OSError(errno.EMSGSIZE, "Message too long")
        wait_to_send(self, sock, data, ancillary, address)

    monkeypatch.setattr(Sockets, "_wait_to_send", narrow)
    monkeypatch.setattr(sockets_module, "path_segment_bytes", lambda family, address: 1_000)
    settings = mesh_of(place, 1, 2) | {"segment_bytes": 1_400}
    with started(*[node_config(place, me, tmp_path, **settings) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        for _ in range(3):
            members[0].send(bytes(50_000))
        wait_for_messages(3, *members)
        wait_until(lambda: members[0].logged("segments are too long for the path", "bytes=1400 now=1000"))
        assert snapshot(members[0].driver)["segment_bytes"] == 1_000
        assert members[0].driver.networks[0].sockets.offload.send
    assert fired


def test_an_interface_that_vanishes_has_a_defined_end(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its MTU is read now and then: that there is none must not be a crash."""
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)
        fired: list[int] = []

        def gone(*arguments: Any) -> int:
            fired.append(1)
            raise OSError(errno.ENODEV, "No such device")

        monkeypatch.setattr(sockets_module, "segment_bytes", gone)
        error = member.end()
        assert fired
        assert isinstance(error, NetworkAbsentError)
        assert error.may_pass


# Opening


def test_a_driver_that_cannot_open_closes_what_it_has_opened(place: Place, tmp_path: Path) -> None:
    config = node_config(place, 1, tmp_path)
    with started(config), pytest.raises(NetworkError, match="Address already in use"):
        Member(node_config(place, 1, tmp_path, named="other"))
    Storage.open(tmp_path / "other", 1, 1).close()


def test_two_nodes_on_one_directory(place: Place, tmp_path: Path) -> None:
    with started(node_config(place, 1, tmp_path)), pytest.raises(StorageError, match="node1"):
        Member(node_config(place, 2, tmp_path, processor=1, named="node1"))


def test_a_restart_has_a_higher_incarnation_and_rejoins(place: Place, tmp_path: Path) -> None:
    with started(node_config(place, 1, tmp_path)) as (one,):
        incarnations, rings = [], []
        for turn in range(2):
            with started(node_config(place, 2, tmp_path)) as (two,):
                wait_for_ring(one, two)
                two.send(b"%d" % turn)
                wait_for_messages(1, two)
                incarnations.append(two.driver.ring.incarnation)
                assert two.driver.configuration is not None
                rings.append(two.driver.configuration.id.seq)
                two.driver.leave()
                two.end()
            wait_for_ring(one)
        assert incarnations[1] > incarnations[0]
        assert rings[1] > rings[0]
        assert one.messages == [b"0", b"1"]


# What is counted


def test_a_retransmission_of_anothers_message_is_counted(place: Place, tmp_path: Path) -> None:
    """One that never sends itself still answers requests."""
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)
        driver = member.driver
        driver.stop_at_once()
        member.end()
        before = driver.meters.retransmissions
        for seq in (5, 6):
            others = RegularMessage(
                2, 1, RingId(8, 1), seq, 1, Service.AGREED, 0, 2, NO_RING, (), False, False, b"x"
            )
            driver.ring._output.retransmit(Held(others, b"x"), ())
        for send in driver.stack._io.take():
            assert isinstance(send, Send)
            driver._execution._meter(0, send)
        assert driver.meters.retransmissions == before + 2


def test_a_node_that_is_kept_from_running_says_so(place: Place, tmp_path: Path) -> None:
    with started(node_config(place, 1, tmp_path, lag_alarm_ms=50)) as (member,):
        wait_for_ring(member)
        member.driver.call(lambda: time.sleep(0.6))
        wait_until(lambda: member.logged("event loop lag"))
        assert snapshot(member.driver)["lag"]["alarms"] >= 1


@pytest.mark.parametrize("has_to_send", [False, True])
def test_clients_go_before_a_token_that_has_nothing_to_carry(
    place: Place, tmp_path: Path, has_to_send: bool
) -> None:
    member = Member(node_config(place, 1, tmp_path))
    driver = member.driver
    ours, theirs = socket.socketpair()
    try:
        seen: list[int] = []
        driver.watch(ours.fileno(), lambda _: seen.append(driver.meters.packets_received))
        if has_to_send:
            assert driver.ring.submit(b"a message", Service.AGREED)
        theirs.send(b"from a client")
        token = driver.networks[0].sockets.token
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(b"no token, but it comes as one does", token.getsockname())
        wait_until(lambda: len(driver._epoll.poll(0)) == 2)
        driver._turn()
        assert driver.meters.packets_received == 1
        assert seen == ([1] if has_to_send else [0]), "once in a turn"
    finally:
        driver.close()
        ours.close()
        theirs.close()


def test_a_timer_and_a_descriptor_of_the_application(place: Place, tmp_path: Path) -> None:
    with started(node_config(place, 1, tmp_path)) as (member,):
        wait_for_ring(member)
        near, far = socket.socketpair()
        with near, far:
            seen: list[bytes] = []

            def readable(events: int) -> None:
                seen.append(far.recv(100))
                member.driver.unwatch(far.fileno())

            member.driver.call(lambda: member.driver.watch(far.fileno(), readable))
            member.driver.call(lambda: member.driver.at(driver_module.now_us(), lambda: near.send(b"tick")))
            wait_until(lambda: seen == [b"tick"])


def test_a_run_is_traced_and_recorded(place: Place, tmp_path: Path) -> None:
    trace = TraceConfig(level="protocol", inputs=True)
    with started(*[node_config(place, me, tmp_path, trace=trace) for me in (1, 2)]) as members:
        wait_for_ring(*members)
        members[0].send(b"noted")
        wait_for_messages(1, *members)
        for member in members:
            member.driver.leave()
            member.end()
    for me in (1, 2):
        folder = tmp_path / f"node{me}" / "trace"
        assert list(folder.glob("inputs-*.totem"))
        assert list(folder.glob(f"run=cluster-1/node={me}/part-*.parquet"))


def test_a_life_that_left_its_number_to_the_next_left_a_recording_too(place: Place, tmp_path: Path) -> None:
    """It was killed before its first write."""
    trace = TraceConfig(inputs=True, directory=tmp_path / "trace")
    config = node_config(place, 1, tmp_path, trace=trace)
    (tmp_path / "trace").mkdir()
    for _ in range(2):
        NodeRecord(config, config.stack(config.rings), {"incarnation": 6}, ()).close()
    assert {file.name for file in (tmp_path / "trace").glob("*.totem")} == {
        "inputs-1-7.totem",
        "inputs-1-7-2.totem",
    }
