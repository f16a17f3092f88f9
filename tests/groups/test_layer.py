"""The group layer over an order conducted by hand (layers_by_hand.py): messages, views, safety, changes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from layers_by_hand import Cluster

from totempole.core.order import Leave, Submit
from totempole.errors import SessionError
from totempole.groups import GroupConfig, pack
from totempole.groups.body import RUN_BYTES, Entry, Part, RunKind, head, pack_part, run_head
from totempole.groups.commands import Disconnect, GiveState, JoinGroup, LeaveGroup, Multicast
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, Taken
from totempole.groups.packing import pack_names
from totempole.types import ConfigurationKind, ProcessId, RingId, Service

REGULAR, TRANSITIONAL = ConfigurationKind.REGULAR, ConfigurationKind.TRANSITIONAL


def members(cluster: Cluster, group: str = "g") -> list[ProcessId]:
    """One on each processor, all in the group, nothing told yet."""
    processes = [cluster.member(me, group) for me in sorted(cluster.layers)]
    cluster.run()
    cluster.forget_events()
    return processes


# In one configuration


def test_every_member_gets_every_message_in_one_order_and_others_get_none() -> None:
    cluster = Cluster(3)
    first, second, third = members(cluster)
    stranger = cluster.member(3, "h", 2)
    cluster.multicast(first, "g", b"1", b"2")
    cluster.multicast(second, "g", b"3")
    cluster.multicast(stranger, "g", b"from outside")
    cluster.run()
    got = cluster.told(first, GroupMessages)
    assert sorted(cluster.messages(first)) == [b"1", b"2", b"3", b"from outside"]
    assert cluster.told(second, GroupMessages) == cluster.told(third, GroupMessages) == got
    assert cluster.messages(stranger) == []
    assert sorted(event.place for event in got) == [event.place for event in got]


def test_a_message_to_several_groups_comes_once_to_whoever_is_in_any_of_them() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.join(first, "h")
    cluster.run()
    cluster.multicast(second, ("g", "h"), b"both")
    cluster.run()
    assert cluster.messages(first) == cluster.messages(second) == [b"both"]


def test_whoever_joins_is_told_the_view_first_and_then_what_follows_it() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    joiner = cluster.connect(2, 2)
    cluster.multicast(first, "g", b"before")
    cluster.run()
    cluster.join(joiner, "g")
    cluster.run()
    cluster.multicast(first, "g", b"after")
    cluster.run()
    view, message = cluster.events[joiner]
    assert isinstance(view, GroupView)
    assert (view.members, view.together) == ((first, second, joiner), (first, second))
    assert isinstance(message, GroupMessages)
    assert cluster.messages(joiner) == [b"after"]
    assert cluster.views(first, "g") == [view]


def test_whoever_leaves_is_out_of_the_view_and_hears_no_more() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.ask(1, LeaveGroup(1, "g"))
    cluster.run()
    cluster.multicast(first, "g", b"without me")
    cluster.run()
    assert cluster.events[first] == []
    view = cluster.views(second, "g")[0]
    assert (view.members, view.changed) == ((second,), "leave")
    assert cluster.messages(second) == [b"without me"]


def test_what_a_process_sent_before_it_disconnected_is_delivered_before_it_is_out() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.multicast(first, "g", b"x" * 10_000)
    cluster.ask(1, Disconnect(1))
    cluster.run()
    message, view = cluster.events[second]
    assert isinstance(message, GroupMessages)
    assert isinstance(view, GroupView)
    assert (view.members, view.changed) == ((second,), "disconnect")
    assert cluster.events[first] == []
    assert cluster.layers[1].groups == {"g": (second,)}


def test_a_process_that_never_joined_leaves_without_a_word_on_the_ring() -> None:
    cluster = Cluster(1)
    cluster.connect(1)
    before = len(cluster.originated)
    cluster.ask(1, Disconnect(1))
    cluster.run()
    assert len(cluster.originated) == before


def test_join_leave_and_join_again_in_one_breath() -> None:
    cluster = Cluster(2)
    process = cluster.member(1, "g")
    cluster.ask(1, LeaveGroup(1, "g"))
    cluster.join(process, "g")
    cluster.run()
    assert [view.changed for view in cluster.views(process, "g")] == ["join", "join"]
    assert cluster.layers[2].groups == {"g": (process,)}


def test_taken_tells_the_weight_of_each_unit_once() -> None:
    cluster = Cluster(1)
    process = cluster.member(1, "g")
    cluster.run()
    cluster.taken.clear()
    batch = pack([b"x" * 7_000])
    cluster.ask(1, Multicast(1, ("g",), batch, Service.AGREED))
    cluster.run()
    assert cluster.taken == [(1, Taken(process.number, RUN_BYTES + 2 + len(batch)))]


def test_a_small_message_is_not_kept_waiting_by_a_large_one() -> None:
    cluster = Cluster(1, packet_bytes_max=20_000, packets_ahead=1)
    large, small = cluster.member(1, "g", 1), cluster.member(1, "g", 2)
    cluster.run()
    cluster.multicast(large, "g", b"x" * 2_000_000)
    cluster.multicast(small, "g", b"small")
    before = len(cluster.originated)
    cluster.run()
    assert cluster.messages(small) == [b"small", b"x" * 2_000_000]
    first = next(at for at, packet in enumerate(cluster.originated[before:]) if b"small" in packet.payload)
    assert first <= 1


def test_two_thousand_processes_of_a_processor_and_a_table_of_many_packets() -> None:
    cluster = Cluster(2, packet_bytes_max=20_000)
    for number in range(1, 2_001):
        cluster.connect(1, number)
        cluster.ask(1, JoinGroup(number, f"group {number % 500}"))
    watcher = cluster.member(2, "group 0")
    cluster.run()
    cluster.change([[1], [2]])
    cluster.run()
    before = len(cluster.originated)
    cluster.change([[1, 2]])
    cluster.run()
    assert len(cluster.originated) > before + 3
    assert cluster.layers[1].groups == cluster.layers[2].groups
    assert len(cluster.layers[2].groups) == 500
    assert len(cluster.views(watcher, "group 0")[-1].members) == 5


# Changes of configuration


def test_a_partition_gives_transitional_views_and_then_regular_ones() -> None:
    cluster = Cluster(3)
    first, second, third = members(cluster)
    cluster.change([[1, 2], [3]])
    cluster.run()
    for process in (first, second):
        lost, settled = cluster.views(process, "g")
        assert (lost.kind, lost.members, lost.together) == (TRANSITIONAL, (first, second), (first, second))
        assert (settled.kind, settled.members, settled.together) == (
            REGULAR,
            (first, second),
            (first, second),
        )
    assert [view.members for view in cluster.views(third, "g")] == [(third,), (third,)]


def test_a_merge_gives_one_view_that_tells_who_came_from_where() -> None:
    cluster = Cluster(3)
    first, second, third = members(cluster)
    cluster.change([[1, 2], [3]])
    cluster.run()
    cluster.forget_events()
    cluster.merge()
    (one,), (two,), (three,) = (cluster.views(process, "g") for process in (first, second, third))
    assert one == two
    assert one.members == three.members == (first, second, third)
    assert one.together == (first, second)
    assert three.together == (third,)
    assert one.place == three.place


def test_a_group_that_no_change_touches_hears_of_none() -> None:
    cluster = Cluster(3)
    process = cluster.member(1, "alone")
    cluster.run()
    cluster.forget_events()
    cluster.change([[1, 2], [3]])
    cluster.run()
    cluster.merge()
    assert cluster.events[process] == []


def test_a_view_of_a_join_in_the_transitional_configuration_is_followed_by_a_regular_one() -> None:
    cluster = Cluster(3)
    first, second = cluster.member(1, "g"), cluster.connect(2)
    cluster.run()
    cluster.join(second, "g")
    cluster.originate(2)
    cluster.change([[1, 2], [3]])
    cluster.run()
    for process in (first, second):
        joined, settled = cluster.views(process, "g")[-2:]
        assert (joined.kind, joined.changed) == (TRANSITIONAL, "join")
        assert (settled.kind, settled.members, settled.together) == (
            REGULAR,
            (first, second),
            (first, second),
        )


def test_a_join_of_someone_who_is_gone_does_not_bring_him_into_the_transitional_view() -> None:
    cluster = Cluster(2)
    first, second = cluster.member(1, "g"), cluster.connect(2)
    cluster.run()
    cluster.join(second, "g")
    cluster.originate(2)
    cluster.change([[1], [2]])
    cluster.run()
    assert cluster.layers[1].groups == {"g": (first,)}
    assert cluster.layers[2].groups == {"g": (second,)}
    assert all(second not in view.members for view in cluster.views(first, "g"))


def test_messages_in_the_transitional_configuration_come_after_its_view() -> None:
    cluster = Cluster(3)
    first, second, third = members(cluster)
    cluster.multicast(third, "g", b"last words")
    cluster.originate(3)
    cluster.change([[1, 2], [3]])
    cluster.run()
    kinds = [type(event) for event in cluster.events[first]]
    assert kinds == [GroupView, GroupMessages, GroupView]
    places = [event.place for event in cluster.events[first]]
    assert all(before < after for before, after in pairwise(places))
    assert cluster.messages(second) == cluster.messages(third) == [b"last words"]


def test_what_was_queued_is_sent_again_and_delivered_once_in_order_after_the_view() -> None:
    cluster = Cluster(3, packet_bytes_max=600)
    first, second, _ = members(cluster)
    sent = [bytes([number]) * 200 for number in range(20)]
    for payload in sent:
        cluster.multicast(first, "g", payload)
    cluster.change([[1, 2], [3]])
    cluster.run()
    assert cluster.messages(first) == cluster.messages(second) == sent
    kinds = [type(event) for event in cluster.events[second]]
    assert kinds == [GroupView, GroupView] + [GroupMessages] * 20


def test_messages_of_many_processes_that_straddle_a_change_keep_each_ones_order() -> None:
    cluster = Cluster(2, packet_bytes_max=1_000)
    listener = cluster.member(2, "g")
    senders = [cluster.connect(1, number) for number in range(1, 6)]
    cluster.run()
    for turn in range(10):
        for sender in senders:
            cluster.multicast(sender, "g", b"%d:%d" % (sender.number, turn) + b"." * (60 * turn))
    cluster.originate(1, 2)
    cluster.change([[1, 2]])
    cluster.originate(1, 1)
    cluster.change([[1, 2]])
    cluster.run()
    got = [payload.rstrip(b".") for payload in cluster.messages(listener)]
    for sender in senders:
        own = [payload for payload in got if payload.startswith(b"%d:" % sender.number)]
        assert own == [b"%d:%d" % (sender.number, turn) for turn in range(10)]


@pytest.mark.parametrize("delivered", range(7))
def test_a_message_in_pieces_is_delivered_whole_in_one_configuration(delivered: int) -> None:
    """Whatever part of it was delivered before the change."""
    cluster = Cluster(3, packet_bytes_max=1_000, packets_ahead=2)
    first, second, third = members(cluster)
    large = bytes(range(250)) * 20
    cluster.multicast(first, "g", large)
    for _ in range(delivered):
        cluster.originate(1)
        for me in (1, 2, 3):
            cluster.deliver(me)
    cluster.originate(1)
    cluster.change([[1, 2], [3]])
    cluster.run()
    assert cluster.messages(first) == cluster.messages(second) == [large]
    assert cluster.messages(third) in ([], [large])
    cluster.merge()
    cluster.multicast(third, "g", b"and on")
    cluster.run()
    assert cluster.messages(first) == [large, b"and on"]


def test_pieces_behind_whole_messages_of_the_same_packet_are_sent_again_in_order() -> None:
    cluster = Cluster(2, packet_bytes_max=6_000, packets_ahead=1)
    first, second = members(cluster)
    sent = [b"a" * 100, b"b" * 20_000, b"c"]
    for payload in sent:
        cluster.multicast(first, "g", payload)
    cluster.change([[1, 2]])
    cluster.run()
    assert cluster.messages(second) == cluster.messages(first) == sent


def test_nothing_is_delivered_between_a_configuration_and_the_end_of_its_exchange() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.change([[1, 2]])
    cluster.originate(1, 10)
    cluster.deliver(1)
    cluster.deliver(2)
    assert not cluster.layers[1].views_in_force
    cluster.multicast(first, "g", b"must wait")
    cluster.originate(1, 10)
    cluster.deliver(1)
    assert cluster.messages(first) == []
    cluster.run()
    assert cluster.layers[1].views_in_force
    assert cluster.messages(first) == cluster.messages(second) == [b"must wait"]


def test_the_exchange_begins_anew_as_often_as_changes_cascade() -> None:
    cluster = Cluster(4, packet_bytes_max=600)
    processes = members(cluster)
    for process in processes:
        cluster.multicast(process, "g", str(process).encode() * 200)
    for components in (
        [[1, 2], [3, 4]],
        [[1, 2, 3], [4]],
        [[1], [2], [3, 4]],
        [[1, 2, 3, 4]],
        [[1, 2, 3, 4]],
    ):
        for me in (1, 2, 3, 4):
            cluster.originate(me)
        cluster.deliver(1, 1)
        cluster.change(components)
    cluster.run()
    got = cluster.messages(processes[0])
    assert sorted(got) == sorted(str(process).encode() * 200 for process in processes)
    for process in processes:
        assert cluster.messages(process) == got
        assert cluster.views(process, "g")[-1].members == tuple(processes)


def test_who_was_away_while_tables_were_exchanged_did_not_come_along() -> None:
    cluster = Cluster(3)
    first, second, third = members(cluster)
    cluster.change([[1, 2], [3]])
    cluster.change([[1], [2], [3]])
    cluster.change([[1, 2, 3]])
    cluster.run()
    last = cluster.views(first, "g")[-1]
    assert (last.kind, last.members, last.together) == (REGULAR, (first, second, third), (first,))


def test_who_missed_the_last_messages_of_a_view_is_not_said_to_have_come_along() -> None:
    """Though no table was exchanged before all were together again, and then once more."""
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.multicast(first, "g", b"for one only")
    cluster.originate(1)
    cluster.change([[1], [2]], cut_off=[2])
    cluster.change([[1, 2]])
    cluster.change([[1, 2]])
    cluster.run()
    assert (cluster.messages(first), cluster.messages(second)) == ([b"for one only"], [])
    for process in (first, second):
        last = cluster.views(process, "g")[-1]
        assert (last.members, last.together) == ((first, second), (process,))


def test_an_exchange_that_only_some_completed_leaves_the_others_behind() -> None:
    """The last part reached processor 3 only in its transitional configuration."""
    cluster = Cluster(3)
    first, second, third = members(cluster)
    cluster.change([[1, 2, 3]])
    for me in (1, 2, 3):
        cluster.originate(me)
    cluster.deliver(1)
    cluster.deliver(2)
    assert cluster.layers[1].views_in_force
    cluster.multicast(first, "g", b"early")
    cluster.originate(1)
    cluster.deliver(1)
    cluster.change([[1, 2], [3]])
    cluster.run()
    assert cluster.messages(first) == cluster.messages(second) == [b"early"]
    assert cluster.messages(third) == []
    cluster.merge()
    assert cluster.views(first, "g")[-1].together == (first, second)
    assert cluster.views(third, "g")[-1].together == (third,)


def test_a_processor_that_restarts_comes_back_with_new_processes_only() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.multicast(second, "g", b"never sent")
    cluster.crash(2)
    cluster.start(2, 2)
    again = cluster.member(2, "g")
    cluster.change([[1, 2]])
    cluster.run()
    assert again == ProcessId(2, 2, 1)
    assert cluster.layers[1].groups == cluster.layers[2].groups == {"g": (first, again)}
    assert second not in cluster.views(first, "g")[-1].members
    assert cluster.messages(first) == []


def test_processes_that_come_and_go_while_tables_are_exchanged() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.change([[1, 2]])
    new = cluster.member(1, "g", 2)
    cluster.ask(1, Disconnect(1))
    cluster.ask(2, LeaveGroup(1, "g"))
    cluster.run()
    assert cluster.layers[1].groups == cluster.layers[2].groups == {"g": (new,)}
    assert cluster.events[first] == []
    assert cluster.views(new, "g")[-1].members == (new,)
    assert second.processor == 2


def test_a_table_in_pieces_can_be_told_while_large_messages_are_under_way() -> None:
    """What is under way is bounded; the table must not wait for that, or nobody would ever go on."""
    config = GroupConfig(message_bytes_max=20_000, partial_bytes_max=20_000)
    cluster = Cluster(2, config, packet_bytes_max=600, packets_ahead=1)
    first, second = members(cluster)
    for number in range(2, 60):
        cluster.member(1, "a group with a long name", number)
    cluster.run()
    cluster.multicast(first, "g", b"x" * 18_000)
    cluster.originate(1)
    cluster.deliver(1)
    cluster.deliver(2)
    cluster.change([[1, 2]])
    cluster.run()
    assert cluster.layers[1].views_in_force
    assert cluster.messages(second) == [b"x" * 18_000]


def test_a_processor_that_leaves_takes_nothing_more() -> None:
    cluster = Cluster(1)
    process = cluster.member(1, "g")
    cluster.run()
    cluster.ask(1, Leave())
    with pytest.raises(SessionError, match="leaving the ring"):
        cluster.multicast(process, "g", b"too late")
    with pytest.raises(SessionError, match="leaving the ring"):
        cluster.join(process, "h")
    with pytest.raises(SessionError, match="leaving the ring"):
        cluster.connect(1, 2)
    cluster.ask(1, LeaveGroup(1, "g"))
    cluster.ask(1, Disconnect(1))
    cluster.run()
    assert cluster.messages(process) == []


# Which view a message is delivered in


def test_a_message_that_was_multicast_alone_is_delivered_in_the_next_larger_view() -> None:
    """docs/groups.md: it is not bound to the view that its sender saw."""
    cluster = Cluster(2, together=False)
    first, second = members(cluster)
    cluster.run()
    cluster.multicast(first, "g", b"to whom it may concern")
    cluster.merge()
    for process in (first, second):
        view, message = cluster.events[process][-2:]
        assert isinstance(view, GroupView)
        assert view.members == (first, second)
        assert isinstance(message, GroupMessages)


def test_the_sides_of_a_partition_may_deliver_a_message_in_different_views() -> None:
    """docs/groups.md: one side in the last view that both shared, the other in its transitional view."""
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.forget_events()
    cluster.multicast(first, "g", b"1")
    cluster.originate(1)
    cluster.deliver(1)
    cluster.change([[1], [2]])
    kinds = {process: [type(event) for event in cluster.events[process][:2]] for process in (first, second)}
    assert kinds == {first: [GroupMessages, GroupView], second: [GroupView, GroupMessages]}
    assert cluster.views(second, "g")[0].kind is ConfigurationKind.TRANSITIONAL


# News of safety


def test_a_notice_follows_when_the_messages_have_become_safe() -> None:
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.multicast(first, "g", b"1", b"2", notice=True)
    cluster.multicast(first, "g", b"3")
    cluster.run()
    assert cluster.told(second, BecameSafe) == []
    cluster.safe(2)
    message = cluster.told(second, GroupMessages)[0]
    assert cluster.told(second, BecameSafe) == [BecameSafe(first, 1, 2, ("g",), message.place)]
    assert cluster.told(first, BecameSafe) == []


@pytest.mark.parametrize("service", Service)
def test_messages_that_are_safe_as_they_are_delivered_have_their_notice_at_once(service: Service) -> None:
    """A safe one always is, and so is an agreed one that had to wait behind it. No later news would come."""
    cluster = Cluster(2)
    first, second = members(cluster)
    cluster.multicast(first, "g", b"1", service=service, notice=True)
    cluster.originate(1)
    cluster.safe(2)
    cluster.deliver(2)
    assert [type(event) for event in cluster.events[second]] == [GroupMessages, BecameSafe]


def test_messages_without_news_are_safe_among_those_who_come_along() -> None:
    cluster = Cluster(3)
    first, second, third = members(cluster)
    cluster.multicast(first, "g", b"1", notice=True)
    cluster.originate(1)
    for me in (1, 2):
        cluster.deliver(me)
    cluster.multicast(first, "g", b"2", notice=True)
    cluster.originate(1)
    cluster.change([[1, 2], [3]])
    kinds = [type(event) for event in cluster.events[second]]
    assert kinds == [GroupMessages, GroupView, BecameSafe, GroupMessages, BecameSafe]
    assert len(cluster.told(third, BecameSafe)) == 2


def test_news_of_another_ring_makes_nothing_safe() -> None:
    cluster = Cluster(1)
    (process,) = members(cluster)
    cluster.safe(1, 1_000)
    cluster.change([[1]])
    cluster.run()
    cluster.multicast(process, "g", b"1", notice=True)
    cluster.run()
    assert cluster.told(process, BecameSafe) == []


def test_who_has_gone_hears_no_notice() -> None:
    cluster = Cluster(1)
    first, second = cluster.member(1, "g", 1), cluster.member(1, "g", 2)
    cluster.multicast(first, "g", b"1", notice=True)
    cluster.run()
    cluster.ask(1, Disconnect(2))
    cluster.safe(1)
    assert len(cluster.told(first, BecameSafe)) == 1
    assert cluster.told(second, BecameSafe) == []


# What peers may send


def part(content: bytes = b"", kind: int = RunKind.TABLE, names: bytes = b"", **numbers: int) -> bytes:
    fields = {"offset": 0, "total": len(content), "length": len(content), **numbers}
    return run_head(kind, 0, 1, 1, 1, fields["offset"], fields["total"], names, fields["length"]) + content


MALFORMED = {
    "no epoch": b"\3",
    "half a run": b"\1\0\0",
    "unknown kind": part(kind=77),
    "a table where none is expected": part(pack_part(Part(frozenset((1,)), {1: {"g": Entry()}}))),
    "a join of no group": part(kind=RunKind.JOIN),
    "a join of two groups": part(kind=RunKind.JOIN, names=pack_names(("g", "h"))),
    "a join of a group without a name": part(kind=RunKind.JOIN, names=pack_names(("",))),
    "a leave of no group": part(kind=RunKind.LEAVE),
    "state for nobody": part(kind=RunKind.STATE, names=pack_names(("g",)), content=b"short"),
    "state of no group": part(kind=RunKind.STATE, content=b"x" * 100),
    "a name that is not text": part(kind=RunKind.JOIN, names=b"\2\xff\xff"),
    "a name that is cut short": part(kind=RunKind.JOIN, names=b"\x09abc"),
    "more than there is": part(kind=RunKind.MESSAGES, content=b"x", length=1_000, total=1_000),
    "more than its total": part(kind=RunKind.MESSAGES, content=b"xyz", total=2),
    "a piece without its first": part(kind=RunKind.MESSAGES, content=b"x", offset=5, total=9),
    "an empty piece": part(kind=RunKind.MESSAGES, total=9),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_packet_is_dropped_and_counted_and_changes_nothing(what: str) -> None:
    cluster = Cluster(1)
    (process,) = members(cluster)
    body = MALFORMED[what]
    cluster.inject(1, body if what == "no epoch" else head(cluster.rings[1].id) + body)
    cluster.deliver(1)
    assert sum(cluster.layers[1].dropped.values()) == 1
    assert cluster.layers[1].groups == {"g": (process,)}
    cluster.multicast(process, "g", b"goes on")
    cluster.run()
    assert cluster.messages(process) == [b"goes on"]


def test_a_packet_of_another_epoch_is_passed_over() -> None:
    cluster = Cluster(1)
    (process,) = members(cluster)
    join = part(kind=RunKind.JOIN, names=pack_names(("g",)))
    for epoch in (RingId(0, 0), RingId(cluster.rings[1].id.seq - 4, 1), RingId(2**64 - 1, 1)):
        cluster.inject(1, head(epoch) + join)
    cluster.deliver(1)
    assert cluster.layers[1].groups == {"g": (process,)}
    assert not cluster.layers[1].dropped


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b'{"together":[1],"processes":[]}',
        b'{"together":[1e999],"processes":{}}',
        b'{"together":["x"],"processes":{}}',
        b'{"together":[1],"processes":{"x":{}}}',
        b'{"together":[1],"processes":{"0":{}}}',
        b'{"together":[1],"processes":{"4294967296":{"g":[true,null,null]}}}',
        b'{"together":[1],"processes":{"1":{"g":[]}}}',
        b'{"together":[1],"processes":{"1":{"g":[true,[1],[]]}}}',
        b'{"together":[1],"processes":{"1":{"g":[true,[1,1,1],[[[1],1,[1,1]],1]]}}}',
        b'{"together":[1],"processes":{"1":{"":[true,null,null]}}}',
        b'{"together":[1],"processes":{"1":{"\\ud800":[true,null,null]}}}',
        b"\xff\xfe",
    ],
)
def test_a_malformed_table_is_dropped_and_counted(content: bytes) -> None:
    cluster = Cluster(2)
    members(cluster)
    cluster.change([[1, 2]])
    cluster.inject(1, head(cluster.rings[1].id) + part(content), origin=2)
    cluster.deliver(1)
    assert cluster.layers[1].dropped == {"group table malformed": 1}
    cluster.run()
    assert cluster.layers[1].views_in_force


def test_what_is_sent_past_all_groups_may_not_look_like_a_group_packet() -> None:
    """It would be taken for one that this processor had packed."""
    cluster = Cluster(1)
    (process,) = members(cluster)
    with pytest.raises(SessionError, match="group packet"):
        cluster.ask(1, Submit(b"\3raw", Service.AGREED))
    cluster.ask(1, Submit(b"raw", Service.AGREED))
    cluster.multicast(process, "g", b"goes on")
    cluster.run()
    assert cluster.messages(process) == [b"goes on"]


# What is kept


def test_groups_that_messages_name_and_nobody_is_in_leave_nothing_behind() -> None:
    cluster = Cluster(1)
    process = cluster.connect(1)
    cluster.run()
    for number in range(100):
        cluster.multicast(process, f"nobody {number}", b"x")
    cluster.run()
    assert cluster.layers[1]._membership._local == {}


def test_a_processor_that_goes_in_the_middle_of_a_message_leaves_nothing_behind() -> None:
    cluster = Cluster(2, packet_bytes_max=1_000)
    first, _ = members(cluster)
    cluster.multicast(first, "g", b"x" * 10_000)
    cluster.originate(1)
    cluster.deliver(2)
    assert len(cluster.layers[2]._partials) == 1
    cluster.crash(1)
    cluster.change([[2]])
    assert len(cluster.layers[2]._partials) == 0


def test_a_donor_that_goes_in_the_middle_of_a_piece_leaves_nothing_behind() -> None:
    cluster = Cluster(2, packet_bytes_max=1_000, packets_ahead=1)
    donor = cluster.member(1, "g", donor=True)
    joiner = cluster.connect(2)
    cluster.run()
    cluster.join(joiner, "g", wants_state=True)
    cluster.run()
    asked = cluster.events[donor][-1]
    cluster.ask(1, GiveState(1, "g", joiner, asked.place, b"x" * 10_000, True))  # type: ignore[union-attr]
    cluster.originate(1)
    cluster.deliver(1)
    cluster.deliver(2)
    assert len(cluster.layers[2]._partials) == 1
    cluster.ask(1, Disconnect(1))
    cluster.run()
    assert len(cluster.layers[2]._partials) == 0
