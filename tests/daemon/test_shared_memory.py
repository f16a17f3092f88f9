"""Memory that a program shares with its daemon: large frames come by it, whole and in their order; whatever
is wrong with it, they come through the socket."""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import socket
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from daemon_loop import Program, daemon
from hypothesis import given
from hypothesis import strategies as st

import totempole
from totempole.client import blocking
from totempole.client.events import Messages
from totempole.daemon.queue import ClientQueue, Memory, Outgoing
from totempole.daemon.sharing import Sharing
from totempole.errors import CodecError
from totempole.groups import Batch, pack
from totempole.groups.events import GroupMessages
from totempole.session import DAEMON_KINDS, Freed, Hello, Kind, Part, Refused, Send, Shared, Welcome
from totempole.session.codec import FrameReader, SharedReader, cut, decode, encode
from totempole.session.shared import SHARED_BYTES_MAX, SHARED_LEAST, SharedWriter
from totempole.types import Service

MIB = 1024 * 1024
SIZE = 256 * 1024
FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
FUTURE_WRITE = 0x10
LARGE = 40_000
"""Bytes of a message that is shared."""


def memfd(size: int = SIZE, seals: int = FIXED_SIZE) -> int:
    descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# The ring of bodies


@given(st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=60))
def test_what_is_put_is_taken_as_it_was_and_nothing_unread_is_written_over(
    steps: list[tuple[int, bool]],
) -> None:
    memory = memoryview(bytearray(1_024))
    writer, reader = SharedWriter(memory), SharedReader(memory.toreadonly())
    lie: deque[tuple[Shared, bytes]] = deque()
    for number, (size, reads) in enumerate(steps):
        body = bytes([number]) * size
        shared = writer.put(Kind.PART, (body[:1], body[1:]))
        if shared is not None:
            assert shared.length == size
            lie.append((shared, body))
        else:
            assert lie, "an empty ring takes whatever fits"
        if reads and lie:
            first, told = lie.popleft()
            assert reader.take(first) == told
            writer.freed(first.total)
    for shared, told in lie:
        assert reader.take(shared) == told


def test_a_body_that_is_larger_than_the_memory_is_not_taken() -> None:
    assert SharedWriter(memoryview(bytearray(128))).put(Kind.PART, (bytes(129),)) is None


def test_memory_that_is_free_is_used_from_its_start() -> None:
    writer = SharedWriter(memoryview(bytearray(1_024)))
    for _ in range(5):
        shared = writer.put(Kind.PART, (bytes(100),))
        assert shared is not None
        assert shared.start == 0
        writer.freed(shared.total)


@pytest.mark.parametrize("total", [0, 129, 2**63])
def test_a_daemon_believes_no_more_freed_than_was_used(total: int) -> None:
    writer = SharedWriter(memoryview(bytearray(1_024)))
    writer.put(Kind.PART, (bytes(64),))
    writer.put(Kind.PART, (bytes(64),))
    writer.freed(64)
    with pytest.raises(CodecError, match="FREED"):
        writer.freed(total)


@pytest.mark.parametrize(
    "shared", [Shared(Kind.PART, 1_000, 25, 1_025), Shared(Kind.PART, 2**32 - 1, 1, 64), Shared(9, 0, 64, 63)]
)
def test_a_program_reads_within_the_memory_only(shared: Shared) -> None:
    with pytest.raises(CodecError, match="SHARED"):
        SharedReader(memoryview(bytes(1_024))).take(shared)


def test_a_program_tells_what_is_free_when_it_is_a_good_part() -> None:
    reader = SharedReader(memoryview(bytes(1_024)))
    told = []
    for number in range(1, 9):
        reader.take(Shared(Kind.PART, 0, 64, 64 * number))
        told.append(reader.news())
    assert told == [None, None, None, 256, None, None, None, 512]


@pytest.mark.parametrize(
    "shared", [Shared(Kind.HELLO, 0, 1, 64), Shared(Kind.LARGE, 0, 64, 64), Shared(200, 0, 1, 64)]
)
def test_a_frame_that_may_not_come_may_not_come_by_the_memory(shared: Shared) -> None:
    reader = FrameReader(DAEMON_KINDS, shared=SharedReader(memoryview(bytes(1_024))))
    reader.feed(encode(shared))
    with pytest.raises(CodecError):
        reader.take()


def test_without_memory_no_frame_comes_by_it() -> None:
    reader = FrameReader(DAEMON_KINDS)
    reader.feed(encode(Shared(Kind.PART, 0, 1, 64)))
    with pytest.raises(CodecError, match="without memory"):
        reader.take()


# The queue


def test_a_queue_counts_nothing_for_what_lies_in_the_memory() -> None:
    memory, sharing = Memory(), Sharing(memfd(), SIZE)
    ours, theirs = ClientQueue(MIB, memory), ClientQueue(MIB, memory)
    ours.exchange = sharing.exchange
    frame = Outgoing(cut(Part(bytes(LARGE)))[0])
    for queue in (ours, theirs):
        assert queue.put(frame)
    assert sum(map(len, ours.gather())) < 100
    assert (ours.bytes, memory.bytes) == (0, frame.weight)
    theirs.written(sum(map(len, theirs.gather())))
    ours.written(sum(map(len, ours.gather())))
    assert not ours
    assert (theirs.bytes, memory.bytes) == (0, 0)
    sharing.close()


def test_a_frame_that_is_begun_is_not_exchanged() -> None:
    sharing = Sharing(memfd(), SIZE)
    queue = ClientQueue(MIB, Memory())
    data = bytes(range(200)) * 200
    assert queue.put(Outgoing(cut(Part(data))[0]))
    sent = b"".join(queue.gather())[:100]
    queue.written(100)
    queue.exchange = sharing.exchange
    sent += b"".join(queue.gather())
    assert sent == encode(Part(data))
    sharing.close()


# What may be offered


def file() -> int:
    with tempfile.TemporaryFile() as opened:
        opened.truncate(SIZE)
        return os.dup(opened.fileno())


def pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


UNFIT = {
    "may shrink": lambda: memfd(seals=fcntl.F_SEAL_GROW),
    "may grow": lambda: memfd(seals=fcntl.F_SEAL_SHRINK),
    "cannot be written": lambda: memfd(seals=FIXED_SIZE | fcntl.F_SEAL_WRITE),
    "cannot be sealed": lambda: memfd(seals=FIXED_SIZE | fcntl.F_SEAL_SEAL),
    "too small": lambda: memfd(size=SHARED_LEAST - 1),
    "too large": lambda: memfd(size=SHARED_BYTES_MAX + 1),
    "a file": file,
    "a pipe": pipe,
}


@pytest.mark.parametrize("made", UNFIT.values(), ids=UNFIT.keys())
def test_memory_that_is_not_fit_is_not_used(made: Any) -> None:
    before = descriptors()
    sharing = Sharing(made(), SIZE)
    assert sharing.exchange(Outgoing(cut(Part(bytes(LARGE)))[0])) is None
    sharing.close()
    assert descriptors() == before


def test_nobody_punches_holes_into_memory_that_a_daemon_writes_to() -> None:
    descriptor = memfd()
    sharing = Sharing(os.dup(descriptor), SIZE)
    with mmap.mmap(descriptor, SIZE) as ours:
        assert sharing.exchange(Outgoing(cut(Part(b"x" * LARGE))[0])) is not None
        assert os.fstat(descriptor).st_blocks * 512 >= SIZE  # all pages are there
        with pytest.raises(OSError, match="not permitted"):
            ours.madvise(mmap.MADV_REMOVE)
        with pytest.raises(OSError, match="not permitted"):
            os.pwrite(descriptor, b"y", 0)
    sharing.close()
    os.close(descriptor)


def test_memory_beyond_what_a_client_may_leave_unread_is_not_used(tmp_path: Path) -> None:
    with (
        daemon(tmp_path, client_receive_bytes_max=4 * SIZE - 4) as it,
        closing(Sharer(it.path, memfd())) as program,
    ):
        program.join("g")
        send(program, bytes(LARGE))
        assert received(program, 1) == [bytes(LARGE)]
        assert program.by_memory == 0


# With a daemon


class Sharer(Program):
    """Offers memory with its greeting, and notes which frames came by it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, greet=False)
        self.by_memory = 0
        self.shared = SharedReader(memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)))
        self._reader = FrameReader(DAEMON_KINDS, MIB, self)  # type: ignore[arg-type]
        socket.send_fds(self.socket, [encode(Hello("sharer"))], [descriptor])
        os.close(descriptor)
        self.welcome = self.expect(Welcome)
        self.credit = self.welcome.credit

    def close(self) -> None:
        self.socket.close()
        del self.shared

    def take(self, shared: Shared) -> bytes:
        self.by_memory += 1
        self.last_total = shared.total
        return self.shared.take(shared)


@pytest.fixture
def sharer(tmp_path: Path) -> Iterator[Sharer]:
    with daemon(tmp_path) as it, closing(Sharer(it.path, memfd())) as program:
        program.join("g")
        yield program


def send(program: Program, *messages: bytes) -> None:
    for message in messages:
        program.write(Send(("g",), pack([message]), Service.AGREED))


def received(program: Program, count: int) -> list[bytes]:
    return [bytes(Batch(program.expect(GroupMessages).batch)[0]) for _ in range(count)]


def test_large_messages_come_by_the_memory_in_one_order_with_small_ones(sharer: Sharer) -> None:
    sent = [bytes([number]) * (LARGE if number % 2 else 10) for number in range(8)]
    for message in sent:
        send(sharer, message)
        assert received(sharer, 1) == [message]
    assert sharer.by_memory == 4


def test_a_memory_that_nobody_frees_is_full_and_the_socket_carries_on(sharer: Sharer) -> None:
    sent = [bytes([number]) * LARGE for number in range(20)]
    send(sharer, *sent)
    assert received(sharer, 20) == sent
    full = sharer.by_memory
    assert 0 < full < 20
    sharer.write(Freed(sharer.last_total))
    send(sharer, *sent[:3])
    assert received(sharer, 3) == sent[:3]
    assert sharer.by_memory == full + 3


def test_a_program_that_frees_what_it_never_got_has_to_go(sharer: Sharer) -> None:
    send(sharer, bytes(LARGE))
    received(sharer, 1)
    sharer.write(Freed(2**40))
    last = sharer.last()
    assert isinstance(last, Refused)
    assert "FREED" in last.text


def test_an_offer_that_is_not_fit_leaves_all_to_the_socket(tmp_path: Path) -> None:
    with daemon(tmp_path) as it, closing(Sharer(it.path, memfd(seals=0))) as program:
        program.join("g")
        send(program, bytes(LARGE))
        assert received(program, 1) == [bytes(LARGE)]
        assert program.by_memory == 0


def test_a_daemon_keeps_nothing_of_programs_that_are_gone(tmp_path: Path) -> None:
    with daemon(tmp_path) as it:
        with it.program():
            pass
        it.wait_for(lambda status: status["clients"] == 0)
        before = descriptors()
        for sends in (False, True):
            with closing(Sharer(it.path, memfd())) as program:
                program.join("g")
                if sends:
                    send(program, bytes(LARGE))
                    assert received(program, 1) == [bytes(LARGE)]
            it.wait_for(lambda status: status["clients"] == 0)
        assert descriptors() == before


# With sessions


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of bodies that sessions took out of their memory."""
    lengths: list[int] = []
    take = SharedReader.take

    def noting(self: SharedReader, shared: Shared) -> bytes:
        lengths.append(shared.length)
        return take(self, shared)

    monkeypatch.setattr(SharedReader, "take", noting)
    return lengths


SENT = [os.urandom(50_000) for _ in range(300)]
"""Several times what is shared."""


def test_a_blocking_session_gets_large_messages_by_its_memory(tmp_path: Path, taken: list[int]) -> None:
    before = descriptors()
    with daemon(tmp_path) as it:
        opened = descriptors()
        with blocking.connect(it.path) as session, session.join("g", policy="block") as group:
            assert descriptors() == opened + 4  # both ends of the socket, and of the memory
            found: list[bytes] = []
            group.multicast_many(SENT)
            while len(found) < len(SENT):
                event = group.next(timeout=60)
                found += event.payloads if isinstance(event, Messages) else ()
    assert found == SENT
    assert sum(taken) > SHARED_BYTES_MAX // 2  # it was told what is free, again and again
    assert descriptors() == before


def test_an_asyncio_session_gets_large_messages_by_its_memory(tmp_path: Path, taken: list[int]) -> None:
    async def program(path: Path) -> list[bytes]:
        found: list[bytes] = []
        async with totempole.connect(path) as session, session.join("g", policy="block") as group:
            sending = asyncio.create_task(group.multicast_many(SENT))
            async for event in group:
                if isinstance(event, Messages):
                    found += event.payloads
                    if len(found) == len(SENT):
                        break
            await sending
        return found

    with daemon(tmp_path) as it:
        assert asyncio.run(program(it.path)) == SENT
    assert sum(taken) > SHARED_BYTES_MAX // 4


def test_frames_of_the_daemon_decode_alike_by_both_ways() -> None:
    memory = memoryview(bytearray(SIZE))
    writer = SharedWriter(memory)
    reader = FrameReader(DAEMON_KINDS, shared=SharedReader(memory))
    ((head, *rest),) = cut(Part(bytes(LARGE)))
    shared = writer.put(head[4], (memoryview(head)[5:], *rest))
    assert shared is not None
    reader.feed(encode(shared) + encode(Part(bytes(LARGE))))
    by_memory, by_socket = [decode(*frame) for frame in reader.take()]
    assert by_memory == by_socket
