"""Clients of a daemon that keep to the rules: they join, send, receive, and are told clearly when they
cannot."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from daemon_loop import Program, daemon

from totempole.daemon.identity import EMBEDDED
from totempole.daemon.service import PROMPT_MAX
from totempole.groups import Batch, GroupConfig, pack
from totempole.groups.events import (
    BecameSafe,
    GroupMessages,
    GroupView,
    StateAsked,
    StateBegins,
    StateChunk,
    ToProcesses,
)
from totempole.session import (
    FOR_GOOD,
    AskGroups,
    Bye,
    Credit,
    Done,
    Ended,
    Gap,
    GroupTable,
    Hello,
    Join,
    Large,
    Leave,
    Policy,
    Refused,
    Send,
    State,
    cost_of,
)
from totempole.session.codec import cut, encode
from totempole.types import ConfigurationKind, ProcessId, Service

MIB = 1024 * 1024


def test_a_client_is_welcome_and_told_the_limits(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        welcome = program.welcome
        assert welcome is not None
        assert welcome.process == ProcessId(1, 1, 1)
        assert welcome.cluster_id == 4
        assert welcome.credit == 4 * MIB
        assert welcome.limits.send_bytes_max == 524_288
        assert welcome.limits.message_bytes_max == 64 * MIB


def test_messages_reach_all_members_in_one_order_as_they_were_packed(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as one, it.program() as two:
        one.join("g")
        view = two.join("g")
        assert view.kind is ConfigurationKind.REGULAR
        assert [process.number for process in view.members] == [1, 2]
        one.send("g", b"a", b"bb", service=Service.SAFE)
        two.send("g", b"c")
        assert sorted(one.payloads(3)) == [b"a", b"bb", b"c"]
        first = two.expect(GroupMessages)
        if first.sender.number != 1:
            first = two.expect(GroupMessages)
        assert (first.count, first.groups, first.service) == (2, ("g",), Service.SAFE)
        assert first.batch == pack([b"a", b"bb"])


def test_the_first_news_of_a_round_is_written_at_once_and_the_rest_together(tmp_path: Path) -> None:
    """At once: before the effects behind it, which send packets and wake other hosts."""
    with daemon(tmp_path) as it, ExitStack() as opened:
        crowd = [opened.enter_context(it.program()) for _ in range(PROMPT_MAX + 1)]
        crowd[0].join("g")
        crowd[0].send("g", b"a")
        news = crowd[0].expect(GroupMessages)

        def tell(*processes: int) -> list[int]:
            it.service.grouped(ToProcesses(processes, news))
            return [waiting(crowd[number - 1].socket) for number in processes]

        def tell_often() -> list[list[int]]:
            it.service._round()
            return [tell(1), tell(1), tell(2), tell(*range(1, len(crowd) + 1))]

        (first,), again, (other,), all_ = it.loop.ask(tell_often)
        assert 0 < first == other
        assert again == [first]
        assert all_ == [first, first, *[0] * (PROMPT_MAX - 1)], "so many wait for the end of the round"
        assert crowd[0].payloads(3) == [b"a"] * 3
        assert crowd[-1].payloads(1) == [b"a"]


def waiting(sock: socket.socket) -> int:
    """Bytes that could be read now."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_sender_need_not_be_a_member_and_may_name_several_groups(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as member, it.program() as sender:
        member.join("g")
        member.join("h")
        sender.write(Send(("g", "h"), pack([b"x"]), notice=True))
        messages = member.expect(GroupMessages)
        assert messages.groups == ("g", "h")
        assert member.expect(BecameSafe).place == messages.place


def test_leaving_and_going_change_the_view(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as stays:
        stays.join("g")
        with it.program() as leaves, it.program() as goes:
            leaves.join("g")
            goes.join("g")
            assert len(stays.expect(GroupView).members) == 2
            assert len(stays.expect(GroupView).members) == 3
            request = leaves.request(Leave, "g")
            assert leaves.expect(Done).request == request
            assert stays.expect(GroupView).changed == "leave"
        assert stays.expect(GroupView).changed == "disconnect"


def test_what_was_sent_before_hanging_up_is_delivered(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as member:
        member.join("g")
        with it.program() as hasty:
            for number in range(300):
                hasty.send("g", b"%d" % number)
        assert member.payloads(300) == [b"%d" % number for number in range(300)]


def test_bye_is_answered(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        program.write(Bye())
        assert program.last() == Ended("")
        assert it.wait_for(lambda status: not status["clients"])["disconnected"] == {"bye": 1}


def test_misuse_is_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    groups = GroupConfig(groups_per_process_max=2, group_name_bytes_max=10)
    with daemon(tmp_path, groups) as it, it.program() as program:
        program.join("g")
        for frame, text in [
            (Join(50, "g"), "joined already"),
            (Leave(51, "h"), "not joined"),
            (Join(52, "x" * 11), "has 11 bytes: give 1 to 10"),
        ]:
            program.write(frame)
            refused = program.expect(Refused)
            assert refused.request == frame.request
            assert text in refused.text
        program.join("h")
        program.write(Join(54, "i"))
        assert "groups_per_process_max" in program.expect(Refused).text
        program.write(Large(55, 4, 2**40))  # type: ignore[arg-type]
        assert "message_bytes_max" in program.expect(Refused).text
        program.send("g", b"still here")
        assert program.payloads(1) == [b"still here"]


@pytest.mark.parametrize(
    ("frame", "text", "code"),
    [
        (Send(("g",), b"not a batch"), "not packed as they should be", 0),
        (Send(tuple("abcdefghijklmnopqrstuvwxyz"), pack([b"x"])), "groups_per_message_max", 0),
        (Send(("g",), pack([bytes(524_288)])), "larger messages go as LARGE", FOR_GOOD),
        (Hello("again"), "Hello is out of place", FOR_GOOD),
    ],
)
def test_misuse_that_no_request_names_ends_the_session_with_the_reason(
    tmp_path: Path, frame: Send, text: str, code: int
) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        program.write(frame)
        last = program.last()
        assert isinstance(last, Refused)
        assert last.request == code
        assert text in last.text


def test_another_version_is_refused(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program(greet=False) as program:
        program.write(Hello("old", 99))
        assert "version 5" in program.last().text


def test_who_comes_over_the_limit_is_told_so(tmp_path: Path) -> None:
    with daemon(tmp_path, clients_max=1) as it, it.program() as first:
        with it.program(greet=False) as second:
            last = second.last()
        assert last.request == 0
        assert "clients_max" in last.text
        first.join("g")
        assert it.snapshot()["refused"] == {"clients_max": 1}
    one_process = GroupConfig(processes_max=1)
    with daemon(tmp_path, one_process) as it, it.program(), it.program(greet=False) as second:
        second.write(Hello())
        assert "processes_max" in second.last().text


def test_groups_are_listed(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as one, it.program() as two:
        one.join("g")
        two.join("g")
        one.join("h")
        one.write(AskGroups(1), AskGroups(2))
        answers = [one.next(), one.next()]
        while not any(isinstance(answer, GroupTable) for answer in answers):
            answers.append(one.next())
        (table,) = [answer for answer in answers if isinstance(answer, GroupTable)]
        assert table == GroupTable(
            1, {"g": (ProcessId(1, 1, 1), ProcessId(1, 1, 2)), "h": (ProcessId(1, 1, 1),)}
        )
        (refused,) = [answer for answer in answers if isinstance(answer, Refused)]
        assert refused.request == 2
        one.write(AskGroups(3))
        assert one.expect(GroupTable).request == 3


def test_credit_comes_back_and_its_counting_agrees(tmp_path: Path) -> None:
    """Many times the credit goes through, in sizes of all kinds, with joins and leaves between."""
    with daemon(tmp_path, credit_bytes=65_536) as it, it.program() as sender, it.program() as member:
        member.join("g")
        sent = []
        for number in range(200):
            payload = bytes([number]) * (number * 37 % 20_000)
            sender.send("g", payload)
            sent.append(payload)
            if number % 10 == 0:
                sender.request(Join, "own")
                sender.request(Leave, "own")
        assert member.payloads(200) == sent
        while sender.credit - sender.spent < 65_536:
            sender.expect(Credit)
        assert sender.credit - sender.spent == 65_536


LARGE = bytes(range(256)) * 4 * 1024 * 3  # 3 MiB


def send_large(program: Program, group: str, payload: bytes, request: int = 99) -> None:
    pieces = cut(Send((group,), pack([payload])), request, largest=131_072)
    program.socket.sendall(b"".join(pieces[0]))
    while program.expect(Done).request != request:
        pass
    for piece in pieces[1:]:
        program.socket.sendall(b"".join(piece))


def test_large_messages_go_in_parts_and_come_in_parts(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as sender, it.program() as member:
        member.join("g")
        for _ in range(3):
            send_large(sender, "g", LARGE)
        sender.send("g", b"small")
        assert member.payloads(4) == [LARGE, LARGE, LARGE, b"small"]
        assert it.wait_for(lambda status: status["large_bytes"] == 0)


def test_large_messages_wait_for_the_pool_in_turn(tmp_path: Path) -> None:
    groups = GroupConfig(message_bytes_max=4 * MIB)
    settings = {"memory_bytes_max": 9 * MIB, "client_receive_bytes_max": 4 * MIB}
    with daemon(tmp_path, groups, **settings) as it, it.program() as member:
        member.join("g")
        senders = [it.program() for _ in range(3)]
        asked = [cut(Send(("g",), pack([LARGE])), 7, largest=0) for _ in senders]
        for waiting, (sender, pieces) in enumerate(zip(senders, asked, strict=True)):
            sender.socket.sendall(b"".join(pieces[0]))
            status = it.wait_for(
                lambda status, waiting=waiting: status["large_bytes"] and status["large_waiting"] == waiting
            )
            assert status["large_bytes"] <= 4.5 * MIB
        senders[0].expect(Done)
        for sender, pieces in zip(senders, asked, strict=True):
            if sender is not senders[0]:
                sender.expect(Done)
            sender.socket.sendall(b"".join(part for piece in pieces[1:] for part in piece))
            assert member.payloads(1) == [LARGE]
        it.wait_for(lambda status: status["large_bytes"] == 0)
        for sender in senders:
            sender.socket.close()


def test_memory_of_a_large_message_is_held_until_the_ring_has_it_though_the_sender_is_gone(
    tmp_path: Path,
) -> None:
    with daemon(tmp_path) as it, it.program() as member:
        member.join("g")
        with it.program() as sender:
            send_large(sender, "g", LARGE)
        assert member.payloads(1) == [LARGE]
        it.wait_for(lambda status: status["large_bytes"] == 0)


def test_a_joiner_gets_the_state_from_a_donor(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as donor, it.program() as joiner:
        donor.join("g", donor=True)
        joiner.write(Join(1, "g", wants_state=True))
        asked = donor.expect(StateAsked)
        begins = joiner.expect(StateBegins)
        assert (begins.donor, begins.place) == (ProcessId(1, 1, 1), asked.place)
        donor.write(State("g", asked.joiner, asked.place, False, b"first"))
        donor.write(State("g", asked.joiner, asked.place, True, b"second"))
        chunks = [joiner.expect(StateChunk), joiner.expect(StateChunk)]
        assert [(bytes(chunk.content), chunk.last) for chunk in chunks] == [
            (b"first", False),
            (b"second", True),
        ]


def test_credit_comes_back_for_state_that_nobody_waits_for(tmp_path: Path) -> None:
    with daemon(tmp_path, credit_bytes=65_536) as it, it.program() as donor, it.program() as joiner:
        donor.join("g", donor=True)
        joiner.write(Join(1, "g", wants_state=True))
        asked = donor.expect(StateAsked)
        joiner.socket.close()
        while len(donor.expect(GroupView).members) > 1:
            pass
        for _ in range(10):
            state = State("g", asked.joiner, asked.place, False, bytes(30_000))
            cost = cost_of(len(encode(state)) - 5)
            while donor.spent + cost > donor.credit:
                donor.expect(Credit)
            donor.spent += cost
            donor.write(state)


def test_a_program_that_closes_only_its_own_half_gets_its_answers(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program(greet=False) as program:
        program.write(Hello(), AskGroups(1), Leave(2, "g"))
        program.socket.shutdown(socket.SHUT_WR)
        assert program.expect(Refused).request == 2


@pytest.fixture
def descriptor_limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_of_descriptors_is_raised_without_a_word(
    tmp_path: Path, descriptor_limits: tuple[int, int]
) -> None:
    hard = descriptor_limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    with daemon(tmp_path, clients_max=1_000) as it:
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(2_064, hard), hard)
        assert it.logged == []


def test_a_client_for_whom_there_is_no_descriptor_is_told_of(
    tmp_path: Path, descriptor_limits: tuple[int, int]
) -> None:
    with daemon(tmp_path) as it, socket.socket(socket.AF_UNIX) as client:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, descriptor_limits[1]))
        client.connect(str(it.path))
        it.wait_for(lambda status: status["refused"])
        resource.setrlimit(resource.RLIMIT_NOFILE, descriptor_limits)
        name, fields = it.logged[0]
        assert (name, fields["reason"]) == ("client refused", "not accepted")
        assert "Too many open files" in fields["text"]
        assert "LimitNOFILE=" in fields["text"]
        with Program(None, "late", sock=client) as program:
            program.join("g")


def test_an_embedded_program_comes_in_by_a_socket_pair(tmp_path: Path) -> None:
    with daemon(tmp_path) as it:
        ours, theirs = socket.socketpair()
        it.loop.ask(lambda: it.service.adopt(theirs, EMBEDDED))
        with Program(None, "embedded", sock=ours) as program:
            program.join("g")
            program.send("g", b"x")
            assert program.payloads(1) == [b"x"]


def test_at_the_end_every_client_gets_what_it_has_not_read_and_the_reason(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        program.join("g")
        program.send("g", bytes(100_000))
        program.send("g", bytes(100_000))
        it.wait_for(lambda status: status["clients"] == 1)
        program.payloads(1)
        it.loop.ask(lambda: it.service.finish("the node leaves the ring"))
        assert not it.path.exists()
        frames = []
        while (frame := program.next()) is not None:
            frames.append(frame)
        assert frames[-1] == Ended("the node leaves the ring")
        it.wait_for(lambda status: not status["clients"])
        ours, theirs = socket.socketpair()
        it.loop.ask(lambda: it.service.adopt(theirs, EMBEDDED))
        with Program(None, greet=False, sock=ours) as late:
            assert late.last() == Refused(0, "the node leaves the ring")


def test_a_new_life_of_the_processor_ends_all_sessions(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, it.program() as program:
        program.join("g")
        it.loop.ask(lambda: it.service.reset("the processor begins a new life"))
        assert program.last() == Ended("the processor begins a new life")


# Policies


SMALL = {"client_receive_bytes_max": 262_144, "memory_bytes_max": 256 * MIB}


def test_shed_leaves_messages_out_and_says_how_many(tmp_path: Path) -> None:
    with daemon(tmp_path, **SMALL) as it, it.program() as lazy, it.program() as sender, it.program() as quick:
        lazy.join("g", Policy.SHED)
        quick.join("g")
        for number in range(100):
            sender.send("g", number.to_bytes(4) + bytes(20_000))
            quick.payloads(1)
        it.wait_for(lambda status: status["shed_messages"] > 0)
        # A view is told though messages are left out, and the gap before it.
        sender.join("g")
        got, missed, gaps, seen = 0, 0, [], []
        while got + missed < 100:
            frame = lazy.next()
            if isinstance(frame, GroupMessages):
                seen.append(int.from_bytes(Batch(frame.batch)[0][:4]))
                got += 1
            elif isinstance(frame, Gap):
                gaps.append(frame)
                missed += frame.messages
        assert seen == list(range(got))
        assert gaps[0].group == "g"
        assert sum(gap.bytes for gap in gaps) == missed * len(pack([bytes(20_004)]))
        assert len(lazy.expect(GroupView).members) == 3
        sender.send("g", b"again")
        assert lazy.payloads(1) == [b"again"]


def test_block_holds_back_the_clients_own_sends_until_it_reads(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, credit_bytes=65_536, **SMALL) as it,
        it.program() as blocked,
        it.program() as sender,
    ):
        blocked.join("g", Policy.BLOCK)

        def unread() -> int:
            return sum(each["bytes"] for each in it.snapshot()["most_unread"] if each["process"] == 1)

        sent = 0
        while unread() <= SMALL["client_receive_bytes_max"] // 2:
            sender.send("g", bytes(10_000))
            sent += 1
        blocked.send("elsewhere", bytes(10_000))
        it.wait_for(lambda _: it.loop.layer.waiting_bytes == 0)
        it.skip(5)
        account = it.loop.ask(lambda: it.service._processes[1].account)
        assert account.spent == 0, "not even taken from its socket"
        blocked.payloads(sent)
        it.wait_for(lambda _: account.spent > 0)
        assert it.snapshot()["disconnected"] == {}


def test_disconnect_is_the_rule_and_says_why(tmp_path: Path) -> None:
    with daemon(tmp_path, **SMALL) as it, it.program() as lazy, it.program() as sender, it.program() as quick:
        lazy.join("g")
        quick.join("g")
        for _ in range(100):
            sender.send("g", bytes(20_000))
            quick.payloads(1)
        it.wait_for(lambda status: status["disconnected"] == {"too slow": 1})
        last = lazy.last()
        assert "client_receive_bytes_max" in last.text
        name, fields = it.logged[-1]
        assert name == "client disconnected"
        assert fields["reason"] == "too slow"
        assert (fields["uid"], fields["pid"]) == (os.getuid(), os.getpid())


def test_when_memory_is_short_whoever_left_most_unread_goes(tmp_path: Path) -> None:
    settings = {"client_receive_bytes_max": MIB, "memory_bytes_max": 2 * MIB}
    groups = GroupConfig(message_bytes_max=900_000, partial_bytes_max=MIB)
    with daemon(tmp_path, groups, **settings) as it, it.program() as sender, it.program() as quick:
        lazy = [it.program() for _ in range(3)]
        for number, program in enumerate(lazy):
            program.join(f"g{number}")
        for _ in range(60):
            for number in range(3):
                sender.send(f"g{number}", bytes(20_000))
            assert it.snapshot()["queued_bytes"] <= 2 * MIB
        assert it.snapshot()["disconnected"].get("memory", 0) >= 1
        quick.join("g")
        quick.send("g", b"fine")
        assert quick.payloads(1) == [b"fine"]
        for program in lazy:
            program.socket.close()


def test_when_memory_is_short_whoever_has_said_bye_and_reads_nothing_goes_first(tmp_path: Path) -> None:
    """What waits for a program that takes its leave is still written to it, if it reads."""
    settings = {"client_receive_bytes_max": MIB, "memory_bytes_max": 2 * MIB}
    groups = GroupConfig(message_bytes_max=900_000, partial_bytes_max=MIB)
    payloads = [bytes([number]) * 20_000 for number in range(45)]
    with daemon(tmp_path, groups, **settings) as it, it.program() as sender, it.program() as quick:
        quick.join("g")
        lazy = [it.program() for _ in range(2)]
        for number, program in enumerate(lazy):
            program.join(f"g{number}")
            before = it.snapshot()["queued_bytes"]
            while it.snapshot()["queued_bytes"] < before + 900_000:
                sender.send(f"g{number}", bytes(20_000))
        for program in lazy:
            program.write(Bye())
        it.wait_for(lambda status: status["disconnected"] == {"bye": 2})
        for payload in payloads:
            sender.send("g", payload)
        assert quick.payloads(45) == payloads
        assert it.snapshot()["disconnected"] == {"bye": 2}
        for program in lazy:
            program.socket.close()
