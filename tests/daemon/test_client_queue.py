"""The queue to one client, alone: what it holds, writes, leaves out and refuses, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from totempole.daemon.queue import FRAME_OVERHEAD, GATHERED_MAX, ClientQueue, Memory, Outgoing
from totempole.groups.events import BecameSafe, GroupEvent, GroupMessages, GroupView
from totempole.session import HEAD, Done, Gap, Policy
from totempole.session.codec import cut, decode
from totempole.types import ConfigurationKind, OrderKey, Place, ProcessId, RingId, Service

PLACE = Place(OrderKey(RingId(8, 1), 70, RingId(0, 0)), 0)
P = ProcessId(1, 1, 1)


def messages(size: int = 1_000, *groups: str, count: int = 1) -> GroupMessages:
    return GroupMessages(P, 1, count, groups or ("g",), bytes(size), Service.AGREED, PLACE)


def view(group: str = "g") -> GroupView:
    return GroupView(group, ConfigurationKind.REGULAR, (P,), (P,), PLACE, "join")


def frames_of(event: Any) -> list[Outgoing]:
    return [Outgoing(buffers) for buffers in cut(event)]


def tell(queue: ClientQueue, event: GroupEvent) -> bool:
    return queue.tell(event, frames_of(event))


def drain(queue: ClientQueue) -> list[Any]:
    """Reads everything, as the client would."""
    data = b""
    while queue:
        buffers = queue.gather()
        data += b"".join(buffers)
        queue.written(sum(map(len, buffers)))
    frames, at = [], 0
    while at < len(data):
        length, kind = HEAD.unpack_from(data, at)
        at += HEAD.size + length
        frames.append(decode(kind, data[at - length : at]))
    return frames


def filled(policy: Policy = Policy.DISCONNECT, group: str = "g", bytes_max: int = 10_000) -> ClientQueue:
    """A queue just at its bound."""
    queue = ClientQueue(bytes_max, Memory())
    queue.set_policy(group, policy)
    while queue.bytes < bytes_max:
        assert tell(queue, messages(1_000, group))
    return queue


def test_what_is_for_many_is_kept_and_counted_once() -> None:
    memory = Memory()
    queues = [ClientQueue(10_000, memory) for _ in range(3)]
    frames = frames_of(messages())
    for queue in queues:
        assert queue.tell(messages(), frames)
    assert memory.bytes == frames[0].weight == frames[0].length + FRAME_OVERHEAD
    assert {queue.bytes for queue in queues} == {memory.bytes}
    drain(queues[0])
    queues[1].discard()
    assert memory.bytes == frames[0].weight
    drain(queues[2])
    assert memory.bytes == 0


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=40), st.data())
def test_bytes_come_out_as_they_went_in_however_much_the_socket_takes(sizes: list[int], data: Any) -> None:
    memory = Memory()
    queue = ClientQueue(2**30, memory)
    expected = b""
    for number, size in enumerate(sizes):
        buffers = (b"head%d" % number, bytes(size)) if number % 2 else (bytes([number]) * (size + 1),)
        queue.put(Outgoing(buffers))
        expected += b"".join(buffers)
    written = b""
    while queue:
        gathered = queue.gather()
        assert len(gathered) <= GATHERED_MAX
        joined = b"".join(gathered)
        taken = data.draw(st.integers(1, len(joined)))
        written += joined[:taken]
        queue.written(taken)
    assert written == expected
    assert memory.bytes == queue.bytes == 0


def test_at_the_bound_the_client_has_to_go() -> None:
    queue = filled()
    size = queue.bytes
    assert not tell(queue, messages())
    assert not tell(queue, view())
    assert not queue.put(Outgoing((b"answer",)))
    assert queue.bytes == size


def test_one_message_of_any_size_goes_into_a_queue_below_its_bound() -> None:
    queue = ClientQueue(10_000, Memory())
    queue.set_policy("g", Policy.DISCONNECT)
    assert tell(queue, messages(50_000))
    assert tell(queue, messages(9_000))  # while the large one is in it, as much as without it
    assert tell(queue, messages(1_000))
    assert not tell(queue, messages(1))


def test_a_large_message_that_is_read_gives_no_more_room() -> None:
    queue = ClientQueue(10_000, Memory())
    queue.set_policy("g", Policy.DISCONNECT)
    assert tell(queue, messages(50_000))
    for _ in range(9):
        assert tell(queue, messages(1_000))
    first, second = frames_of(messages(50_000)) + frames_of(messages(1_000))
    queue.written(first.length + second.length)
    assert tell(queue, messages(100))
    assert not tell(queue, messages(100))


def test_shed_leaves_out_messages_until_half_is_read_and_then_tells() -> None:
    queue = filled(Policy.SHED)
    kept = len(queue._frames)
    for _ in range(5):
        assert tell(queue, messages(100, count=3))
    assert tell(queue, BecameSafe(P, 1, 1, ("g",), PLACE))
    assert queue.shed == 15
    first = queue._frames[0].length
    queue.written(first)
    assert queue.bytes < queue.bytes_max
    assert tell(queue, messages(100, count=3))  # a gap does not end with the first message read
    read = drain(queue)
    assert [type(frame) for frame in read] == [GroupMessages] * (kept - 1) + [Gap]
    assert read[-1] == Gap("g", 18, 600)
    assert tell(queue, messages(7))
    assert drain(queue) == [messages(7)]


def test_a_view_is_told_behind_the_gap_before_it() -> None:
    queue = filled(Policy.SHED)
    tell(queue, messages(10))
    assert tell(queue, view())
    tell(queue, messages(20))
    read = drain(queue)
    assert read[-3:] == [Gap("g", 1, 10), view(), Gap("g", 1, 20)]


def test_views_alone_end_it_too() -> None:
    queue = filled(Policy.SHED)
    views = 0
    while tell(queue, view()):
        views += 1
        assert views < 1_000
    assert queue.bytes <= queue.bytes_max * 5 // 4 + 1_000


def test_gaps_are_told_for_each_group() -> None:
    queue = filled(Policy.SHED)
    queue.set_policy("h", Policy.SHED)
    tell(queue, messages(10, "g", "h", "not joined"))
    tell(queue, messages(5, "h"))
    assert drain(queue)[-2:] == [Gap("g", 1, 10), Gap("h", 2, 15)]


def test_a_message_is_left_out_only_if_all_its_groups_allow_it() -> None:
    queue = filled(Policy.SHED)
    queue.set_policy("h", Policy.DISCONNECT)
    assert not tell(queue, messages(10, "g", "h"))
    assert not tell(queue, messages(10, "h"))


def test_what_still_comes_of_a_group_that_was_left_is_dropped_at_the_bound() -> None:
    queue = filled()
    queue.set_policy("g", None)
    size = queue.bytes
    assert tell(queue, messages())
    assert queue.bytes == size


def test_block_begins_over_half() -> None:
    queue = ClientQueue(10_000, Memory())
    assert queue.set_policy("g", Policy.BLOCK) is None
    tell(queue, messages(4_000))
    assert not queue.blocks
    tell(queue, messages(2_000))
    assert queue.blocks
    assert queue.set_policy("g", Policy.SHED) is Policy.BLOCK
    assert not queue.blocks
    queue.set_policy("g", Policy.BLOCK)
    assert queue.blocks
    drain(queue)
    assert not queue.blocks


@pytest.mark.parametrize("written", [0, 3])
def test_the_last_word_comes_after_what_has_begun(written: int) -> None:
    memory = Memory()
    queue = ClientQueue(10_000, memory)
    tell(queue, messages(1))
    tell(queue, messages(2))
    queue.written(written)
    queue.close(frames_of(Done(9))[0], after_all=False)
    data = b"".join(queue.gather())
    assert data.endswith(b"\x00\x00\x00\x04\x12\x00\x00\x00\x09")
    assert len(data) == 9 + (frames_of(messages(1))[0].length - 3 if written else 0)
    queue.discard()
    assert memory.bytes == 0


def test_the_last_word_comes_after_all_that_waits_when_asked_so() -> None:
    queue = ClientQueue(10_000, Memory())
    tell(queue, messages(1))
    queue.close(frames_of(Done(9))[0], after_all=True)
    assert drain(queue) == [messages(1), Done(9)]
