"""Each assertion of `groups` fails when what it says is broken."""

from __future__ import annotations

from typing import Any

import pytest

from invariants_seen import Breakage, assertions_in, failed_at
from totempole.core.io import Io, Scope
from totempole.core.order import Deliver, InstallConfiguration, SafeUpTo
from totempole.groups import GroupConfig, GroupLayer, Outbox, lanes, outbox, pack
from totempole.groups.body import NOTICE, Entry, Part, Run, RunKind, head, run_head
from totempole.groups.commands import Connect, Disconnect
from totempole.groups.events import BecameSafe
from totempole.groups.lanes import TABLE_LANE, Lanes, Unit
from totempole.groups.membership import Membership, Places
from totempole.groups.partial import Partials, _Partial
from totempole.groups.table import Table
from totempole.types import (
    NO_RING,
    Configuration,
    ConfigurationKind,
    MessageId,
    OrderKey,
    Place,
    ProcessId,
    ProcessorId,
    RingId,
    Service,
)

REGULAR, TRANSITIONAL = ConfigurationKind.REGULAR, ConfigurationKind.TRANSITIONAL
ME, OTHER = ProcessId(1, 1, 1), ProcessId(2, 1, 1)
LANE = (1, False)
FIRST, BETWEEN, SECOND = RingId(4, 1), RingId(6, 1), RingId(8, 1)


# Lanes


def unit(size: int = 100, kind: RunKind = RunKind.MESSAGES, service: Service = Service.AGREED) -> Unit:
    return Unit(kind, LANE, content=bytes(size), service=service, number=1, count=1)


def some_lanes(*units: Unit) -> Lanes:
    waiting = Lanes(1_000, 1_000_000)
    for each in units:
        waiting.add(each)
    return waiting


def half_sent() -> Lanes:
    """A unit of two packets, of which one has left."""
    waiting = some_lanes(unit(1_500))
    assert waiting.take(FIRST) is not None
    return waiting


def a_unit_of_no_messages(patch: pytest.MonkeyPatch) -> None:
    Unit(RunKind.MESSAGES, LANE)


def a_begun_unit_dropped_that_was_not_counted(patch: pytest.MonkeyPatch) -> None:
    waiting = half_sent()
    waiting._begun_bytes = 0
    waiting.drop(LANE)


def bytes_waiting_in_no_lane(patch: pytest.MonkeyPatch) -> None:
    waiting = some_lanes(unit())
    waiting.waiting_bytes += 1
    waiting.take(FIRST)


def a_lane_that_has_two_turns(patch: pytest.MonkeyPatch) -> None:
    waiting = some_lanes(unit())
    waiting._turns.append(LANE)
    waiting.send_again(())


def a_table_sent_again(patch: pytest.MonkeyPatch) -> None:
    some_lanes().send_again([Unit(RunKind.TABLE, TABLE_LANE)])


def a_packet_longer_than_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lanes, "head", lambda epoch: bytes(99))
    some_lanes(unit()).take(FIRST)


def an_empty_lane_that_weighs_something(patch: pytest.MonkeyPatch) -> None:
    waiting = some_lanes(unit())
    waiting._weights[LANE] += 1
    waiting.take(FIRST)


def a_packet_without_room(patch: pytest.MonkeyPatch) -> None:
    waiting = some_lanes(unit())
    waiting.packet_bytes = 40
    waiting.take(FIRST)


def a_unit_ended_that_was_not_counted(patch: pytest.MonkeyPatch) -> None:
    waiting = half_sent()
    waiting._begun_bytes = 0
    waiting.take(FIRST)


def two_services_in_a_packet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lanes._Packing, "takes", lambda self, unit: True)
    some_lanes(unit(service=Service.AGREED), unit(service=Service.SAFE)).take(FIRST)


# Pieces, the table, packing, the outbox


def piece(content: bytes, offset: int, total: int) -> Run:
    return Run(RunKind.MESSAGES, 0, 1, 1, 1, offset, total, ("g",), content)


def a_piece_past_its_end(patch: pytest.MonkeyPatch) -> None:
    Partials().add(ME, piece(b"abc", 0, 2))


def a_piece_lost_on_the_way(patch: pytest.MonkeyPatch) -> None:
    partials = Partials()
    partials._under_way[ME, False] = (_Partial(3, 1, []), 2)
    partials.add(ME, piece(b"c", 2, 3))


def a_group_without_a_name(patch: pytest.MonkeyPatch) -> None:
    Table().put("", ME, Entry())


def a_table_with(*processes: ProcessId) -> Table:
    table = Table()
    for process in processes:
        table.put("g", process, Entry())
    return table


def someone_removed_who_is_no_member(patch: pytest.MonkeyPatch) -> None:
    a_table_with(ME).remove("g", OTHER)


def a_group_that_nobody_is_in(patch: pytest.MonkeyPatch) -> None:
    table = Table()
    table._groups["g"] = {}
    table.keep_processors((1,))


def no_messages_packed(patch: pytest.MonkeyPatch) -> None:
    pack(())


def an_outbox(*payloads: bytes) -> Outbox:
    waiting = Outbox(1_000, 10_000)
    waiting.add(payloads, Service.AGREED)
    return waiting


def a_packet_of_an_empty_outbox(patch: pytest.MonkeyPatch) -> None:
    an_outbox().take()


def a_message_taken_past_the_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "bisect_right", lambda ends, *_, lo: len(ends))
    an_outbox(bytes(900), bytes(900)).take()


def a_packet_that_takes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "bisect_right", lambda *_, lo: lo)
    an_outbox(b"a").take()


def bytes_of_no_message(patch: pytest.MonkeyPatch) -> None:
    waiting = an_outbox(b"a")
    waiting.bytes += 1
    waiting.take()


# Membership


def key(ring_id: RingId = FIRST, seq: int = 9) -> OrderKey:
    return OrderKey(ring_id, seq, NO_RING)


PLACE = Place(key(), 0)


def configuration(kind: ConfigurationKind, id_: RingId, *members: ProcessorId) -> Configuration:
    return Configuration(kind, id_, members, id_, 0, NO_RING)


def a_membership(*joined: ProcessId) -> Membership:
    """Of processors 1 and 2, whose tables are exchanged; these have joined a group."""
    membership = Membership(1, 1, lambda *_: None)
    membership.connect(1)
    membership.install(configuration(REGULAR, FIRST, 1, 2), key(seq=0))
    for processor in (1, 2):
        membership.add_part(Places(key(seq=processor)), processor, 1, Part(frozenset((processor,)), {}))
    for process in joined:
        membership.join(Places(key()), process, "g", True, False)
    return membership


def a_place_skipped_backwards(patch: pytest.MonkeyPatch) -> None:
    Places(key()).skip(-1)


def a_process_connected_twice(patch: pytest.MonkeyPatch) -> None:
    a_membership().connect(1)


def a_process_forgotten_that_is_not_connected(patch: pytest.MonkeyPatch) -> None:
    a_membership().forget(2)


def state_given_while_tables_are_exchanged(patch: pytest.MonkeyPatch) -> None:
    membership = a_membership(ME, OTHER)
    membership._put("g", ME, Entry(False, OTHER, PLACE))
    membership.epoch = None
    membership.state(Places(key()), OTHER, "g", ME, PLACE, b"", True)


def a_change_at_a_place_that_was_passed(patch: pytest.MonkeyPatch) -> None:
    a_membership().install(configuration(REGULAR, SECOND, 1, 2), key(NO_RING))


def tables_exchanged_while_views_are_in_force(patch: pytest.MonkeyPatch) -> None:
    membership = a_membership()
    membership.exchanging = FIRST
    membership.install(configuration(REGULAR, SECOND, 1, 2), key(SECOND))


def a_configuration_installed_twice(patch: pytest.MonkeyPatch) -> None:
    a_membership().install(configuration(REGULAR, FIRST, 1, 2), key(SECOND))


def a_configuration_of_others(patch: pytest.MonkeyPatch) -> None:
    a_membership().install(configuration(REGULAR, SECOND, 2, 3), key(SECOND))


def members_out_of_order(patch: pytest.MonkeyPatch) -> None:
    a_membership().install(configuration(REGULAR, SECOND, 2, 1), key(SECOND))


def someone_who_came_along_and_is_not_there(patch: pytest.MonkeyPatch) -> None:
    membership = a_membership()
    membership._lineage = frozenset((1, 9))
    membership.install(configuration(REGULAR, SECOND, 1, 2), key(SECOND))


def two_transitional_configurations(patch: pytest.MonkeyPatch) -> None:
    membership = a_membership()
    membership.install(configuration(TRANSITIONAL, BETWEEN, 1, 2), OrderKey(FIRST, 9, BETWEEN))
    membership.install(configuration(TRANSITIONAL, SECOND, 1), OrderKey(FIRST, 9, SECOND))


def a_newcomer_in_a_transitional_configuration(patch: pytest.MonkeyPatch) -> None:
    a_membership().install(configuration(TRANSITIONAL, BETWEEN, 1, 2, 3), OrderKey(FIRST, 9, BETWEEN))


def a_join_while_tables_are_exchanged(patch: pytest.MonkeyPatch) -> None:
    membership = a_membership()
    membership.epoch = None
    membership.join(Places(key()), ME, "g", False, False)


def someone_who_came_along_outside_the_view(patch: pytest.MonkeyPatch) -> None:
    a_membership(ME)._tell_members("g", (OTHER,), PLACE, "join")


def state_for_someone_outside_the_group(patch: pytest.MonkeyPatch) -> None:
    a_membership(ME)._find_source("g", OTHER, PLACE)


def a_donor_replaced_that_is_there(patch: pytest.MonkeyPatch) -> None:
    a_membership(ME)._replace_source("g", ME, PLACE)


def a_joiner_of_no_member(patch: pytest.MonkeyPatch) -> None:
    a_membership(ME)._check_source("g", ProcessId(9, 1, 1), Entry(), PLACE)


# The layer


class Below:
    """An order that does nothing, or refuses."""

    queued = 0
    packets_ahead = 1
    packet_bytes = 1_000

    def __init__(self, takes: bool) -> None:
        self._takes = takes

    def submit(self, *_: Any, **__: Any) -> bool:
        self.queued += 1
        return self._takes


def a_layer(takes: bool = True) -> GroupLayer:
    """With process 5 in a group, and a table that waits to be told."""
    scope = Scope(Io(frozenset()), "groups")
    layer = GroupLayer(scope, Below(takes), 1, 1, GroupConfig(), 1_000)
    layer._connect(Connect(5))
    layer.install(InstallConfiguration(configuration(REGULAR, FIRST, 1), key(seq=0)))
    layer._membership._put("g", ProcessId(1, 1, 5), Entry())
    return layer


def a_packet(origin: ProcessorId, seq: int, *flags: int) -> Deliver:
    names = b"\1g"
    body = head(FIRST) + run_head(RunKind.MESSAGES, sum(flags), 1, 1, 1, 0, 1, names, 1) + b"x"
    return Deliver(MessageId(origin, 1, 1), origin, body, Service.AGREED, key(seq=seq), 0, FIRST)


def a_notice(seq: int, ring_id: RingId = FIRST) -> Any:
    return key(ring_id, seq), (5,), BecameSafe(OTHER, 1, 1, ("g",), Place(key(ring_id, seq), 0))


def processes_whose_numbers_descend(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    layer._process_last = 0
    layer._connect(Connect(3))


def a_process_in_a_group_that_never_joined(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    layer._processes[5].groups.add("g")
    layer._disconnect(Disconnect(5))


def an_order_that_had_room_and_refuses(patch: pytest.MonkeyPatch) -> None:
    a_layer(takes=False)._pump()


def a_packet_delivered_twice(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    for _ in range(2):
        layer.deliver(a_packet(2, 1))


def a_notice_behind_a_later_one(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    layer._membership.epoch, layer._membership.exchanging = FIRST, None
    layer._notices.append(a_notice(2))
    layer.deliver(a_packet(2, 1, NOTICE))


def a_notice_of_a_configuration_that_is_over(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    layer._notices.append(a_notice(1))
    patch.setattr(layer, "_tell_all_safe", lambda: None)
    layer.install(InstallConfiguration(configuration(REGULAR, SECOND, 1), key(SECOND)))


def views_in_force_before_the_exchange(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    layer._membership.epoch = FIRST
    patch.setattr(layer._membership, "install", lambda *_: Part(frozenset((1,)), {}))
    layer.install(InstallConfiguration(configuration(REGULAR, SECOND, 1), key(SECOND)))


def a_table_behind_that_of_a_configuration_that_is_over(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    patch.setattr(layer._lanes, "drop", lambda _: None)
    layer.install(InstallConfiguration(configuration(REGULAR, SECOND, 1), key(SECOND)))


def news_that_less_is_safe(patch: pytest.MonkeyPatch) -> None:
    layer = a_layer()
    for seq in (2, 1):
        layer.safe(SafeUpTo(key(seq=seq)))


def news_for_someone_who_is_gone(patch: pytest.MonkeyPatch) -> None:
    a_layer()._tell((5, 6), a_notice(1)[-1])


class _User:
    def told(self, event: object) -> None: ...


def two_layers_above(patch: pytest.MonkeyPatch) -> None:
    layer = GroupLayer(Scope(Io(frozenset()), "groups"), Below(True), 1, 1, GroupConfig(), 1_000)
    layer.attach(_User())
    layer.attach(_User())


def a_layer_above_that_comes_late(patch: pytest.MonkeyPatch) -> None:
    a_layer().attach(_User())


BREAKAGES: tuple[Breakage, ...] = (
    two_layers_above,
    a_layer_above_that_comes_late,
    a_unit_of_no_messages,
    a_begun_unit_dropped_that_was_not_counted,
    bytes_waiting_in_no_lane,
    a_lane_that_has_two_turns,
    a_table_sent_again,
    a_packet_longer_than_counted,
    an_empty_lane_that_weighs_something,
    a_packet_without_room,
    a_unit_ended_that_was_not_counted,
    two_services_in_a_packet,
    a_piece_past_its_end,
    a_piece_lost_on_the_way,
    a_group_without_a_name,
    someone_removed_who_is_no_member,
    a_group_that_nobody_is_in,
    no_messages_packed,
    a_packet_of_an_empty_outbox,
    a_message_taken_past_the_room,
    a_packet_that_takes_nothing,
    bytes_of_no_message,
    a_place_skipped_backwards,
    a_process_connected_twice,
    a_process_forgotten_that_is_not_connected,
    state_given_while_tables_are_exchanged,
    a_change_at_a_place_that_was_passed,
    tables_exchanged_while_views_are_in_force,
    a_configuration_installed_twice,
    a_configuration_of_others,
    members_out_of_order,
    someone_who_came_along_and_is_not_there,
    two_transitional_configurations,
    a_newcomer_in_a_transitional_configuration,
    a_join_while_tables_are_exchanged,
    someone_who_came_along_outside_the_view,
    state_for_someone_outside_the_group,
    a_donor_replaced_that_is_there,
    a_joiner_of_no_member,
    processes_whose_numbers_descend,
    a_process_in_a_group_that_never_joined,
    an_order_that_had_room_and_refuses,
    a_packet_delivered_twice,
    a_notice_behind_a_later_one,
    a_notice_of_a_configuration_that_is_over,
    views_in_force_before_the_exchange,
    a_table_behind_that_of_a_configuration_that_is_over,
    news_that_less_is_safe,
    news_for_someone_who_is_gone,
)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_what_is_broken_is_noticed(breakage: Breakage) -> None:
    assert failed_at(breakage) in assertions_in("groups")


def test_every_assertion_was_seen_to_fail() -> None:
    assert {failed_at(breakage) for breakage in BREAKAGES} == assertions_in("groups")
