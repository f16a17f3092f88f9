"""What one program does for one object, with a carrier that is scripted or draws lots: doubts at every place,
refusals, copies, restarts, reads."""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest

from sweeps import daily, first_of
from totempole.client.appending import LogClosedError, RecordName
from totempole.errors import SessionError
from totempole.objects import host as host_module
from totempole.objects.commands import ObjectType, Refused, command, migration
from totempole.objects.host import (
    BARRIERS_UNDER_WAY_MAX,
    HELD_NUMBERS_MAX,
    RECORD_CALLS_MAX,
    RECORDS_UNDER_WAY_MAX,
    WAITING_BYTES_MAX,
    ObjectHost,
)
from totempole.objects.machine import ObjectMachine
from totempole.objects.pending import PendingCall, Waiting
from totempole.objects.records import Calls, Kind, Knows, Limits, Opened, Upgrade, decode

REFUSED = SessionError("no, and nothing was appended")
CLOSED = LogClosedError("no log open")


class Tally:
    """Counts each token: a second application of one call would show."""

    object_limits = Limits(clients_max=3, digest_every=1_000_000)

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @command
    def add(self, token: str) -> int:
        self.counts[token] = self.counts.get(token, 0) + 1
        return len(self.counts)

    @command
    def refuse(self) -> None:
        raise Refused("not today")


class Order:
    """The one log of the object: what every host is fed."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def place(self, payload: bytes) -> int:
        self.records.append(payload)
        return len(self.records) - 1


class Scripted:
    """A carrier that does nothing by itself."""

    def __init__(self, order: Order | None = None, cls: type[Any] = Tally) -> None:
        self.order = order or Order()
        self.type: ObjectType[Any] = ObjectType.of(cls)
        self.host: ObjectHost[Any] = ObjectHost(ObjectMachine(self.type), self)
        self.appended: dict[int, tuple[bytes, bool]] = {}
        """Not answered yet."""
        self.barriers: list[int] = []
        self.retries = 0
        self.clients = 0
        self.fed = 0

    # For the host

    def append(self, record: int, payload: bytes, *, red: bool) -> None:
        assert record not in self.appended
        self.appended[record] = (payload, red)

    def ask_barrier(self, barrier: int) -> None:
        self.barriers.append(barrier)

    def retry_later(self) -> None:
        self.retries += 1

    def new_client(self) -> str:
        self.clients += 1
        return f"{id(self):x}-{self.clients}"

    # For tests

    def call(self, method: str, *args: Any, red: bool = False) -> PendingCall:
        content = self.host.machine.object_type.encode_call(method, args).arguments
        call = self.host.call(method, content, red=red)
        self.host.pump()
        return call

    def take(self, record: int | None = None) -> int:
        """The oldest record under way, or this one: it is placed in the order, and nobody has said so."""
        record = next(iter(self.appended)) if record is None else record
        payload, _ = self.appended.pop(record)
        self.order.place(payload)
        return record

    def feed(self) -> list[Waiting]:
        """All that is in the order. Who is settled by it."""
        records = self.order.records
        fresh = records[self.fed :]
        self.host.fed(fresh, range(self.fed, len(records)), 1_000 * len(records))
        self.fed = len(records)
        self.host.reached(self.fed)
        self.host.pump()
        settled, self.host.settled = self.host.settled, []
        return settled

    def place_all(self) -> list[Waiting]:
        while self.appended:
            self.host.placed(self.take())
            self.host.pump()
        return self.feed()

    def open(self) -> None:
        """Past the record that names the class."""
        self.host.announce(Knows("h", self.type.version))
        self.host.pump()
        self.place_all()

    def records(self) -> list[Any]:
        return [decode(payload) for payload, _ in self.appended.values()]


def opened(order: Order | None = None, cls: type[Any] = Tally) -> Scripted:
    it = Scripted(order, cls)
    it.feed()
    it.open()
    return it


def counts(it: Scripted) -> dict[str, int]:
    found: dict[str, int] = it.host.machine.state.counts
    return found


def kind_of(call: PendingCall) -> Kind:
    assert call.outcome is not None
    return call.outcome.kind


# Calls


def test_the_record_that_names_the_class_goes_first_in_each_lane() -> None:
    it = Scripted()
    first, second = it.call("add", "a"), it.call("add", "b", red=True)
    kinds = [type(record) for record in it.records()]
    assert kinds == [Opened, Calls, Opened, Calls]
    it.place_all()
    assert counts(it) == {"a": 1, "b": 1}
    assert first.is_done
    assert second.is_done


def test_a_call_is_done_when_it_is_applied_here_and_not_when_it_is_placed() -> None:
    it = opened()
    call = it.call("add", "a")
    record = it.take()
    it.host.placed(record)
    assert not call.is_done
    assert it.feed() == [call]
    assert kind_of(call) is Kind.DONE


def test_it_is_done_when_it_is_fed_though_nobody_has_answered() -> None:
    it = opened()
    call = it.call("add", "a")
    it.take()
    assert it.feed() == [call]
    assert it.host.waiting_bytes == 0


def test_calls_that_wait_share_a_record() -> None:
    it = opened()
    calls = [it.call("add", str(number)) for number in range(RECORDS_UNDER_WAY_MAX + 100)]
    assert [len(record.calls) for record in it.records()] == [1] * RECORDS_UNDER_WAY_MAX
    it.take()
    it.feed()
    assert len(it.records()[-1].calls) == 100
    it.place_all()
    assert all(call.is_done for call in calls)
    assert [call.outcome.number for call in calls if call.outcome] == list(range(1, len(calls) + 1))


def test_a_record_has_a_bounded_number_of_calls_and_of_bytes() -> None:
    it = opened()
    content = it.type.encode_call("add", ("x" * 1_000,)).arguments
    for _ in range(RECORD_CALLS_MAX):
        it.host.call("add", content)
    it.host.call("add", it.type.encode_call("add", ("y" * 1_000_000,)).arguments)
    it.host.pump()
    sizes = [len(payload) for payload, _ in it.appended.values()]
    assert max(sizes) < host_module.RECORD_BYTES + 10_000
    it.place_all()
    assert sum(counts(it).values()) == RECORD_CALLS_MAX + 1


def test_applied_calls_are_freed_without_the_garbage_collector() -> None:
    def held() -> int:
        return sum(type(each) is PendingCall for each in gc.get_objects())

    it = opened()
    gc.collect()
    gc.disable()
    try:
        before = held()
        for number in range(100):
            it.call("add", str(number))
        assert held() == before + 100
        while it.appended:
            it.place_all()
        assert counts(it) == {str(number): 1 for number in range(100)}
        assert held() == before
    finally:
        gc.enable()


def test_a_refusal_by_the_command_is_an_outcome() -> None:
    it = opened()
    call = it.call("refuse")
    it.place_all()
    assert kind_of(call) is Kind.REFUSED
    assert call.outcome is not None
    assert call.outcome.text == "not today"


def test_what_is_acknowledged_is_what_nobody_waits_for() -> None:
    it = opened()
    first, second = it.call("add", "a"), it.call("add", "b")
    one, two = sorted(it.appended)
    it.take(two)
    it.feed()
    assert second.is_done
    third = it.call("add", "c")
    assert it.records()[-1].acknowledged == 0, "the first is under way"
    it.take(one)
    it.feed()
    assert first.is_done
    it.call("add", "d")
    assert it.records()[-1].acknowledged == 2, "the third is under way"
    it.place_all()
    assert third.is_done


# Doubt


@pytest.mark.parametrize("is_in_the_log", [False, True])
def test_what_is_in_doubt_goes_again_as_it_was(is_in_the_log: bool) -> None:
    it = opened()
    call = it.call("add", "a")
    (record,), (payload, _) = list(it.appended), next(iter(it.appended.values()))
    if is_in_the_log:
        it.take()
    else:
        it.appended.clear()
    it.host.doubtful(record)
    it.host.pump()
    assert it.appended[record][0] == payload
    it.place_all()
    assert kind_of(call) is Kind.DONE
    assert counts(it) == {"a": 1}


def test_what_was_in_doubt_goes_in_its_order() -> None:
    it = opened()
    for name in "abcd":
        it.call("add", name)
    records = sorted(it.appended)
    it.appended.clear()
    for record in reversed(records):
        it.host.doubtful(record)
    it.call("add", "e")
    it.host.pump()
    it.place_all()
    assert list(counts(it)) == list("abcde")


def test_a_doubt_about_what_is_applied_is_none() -> None:
    it = opened()
    it.call("add", "a")
    record = it.take()
    it.feed()
    it.host.doubtful(record)
    it.host.refused(record, REFUSED)
    it.host.placed(record)
    it.host.pump()
    assert it.appended == {}


def test_a_refused_record_fails_its_calls_and_only_these() -> None:
    it = opened()
    first = it.call("add", "a")
    (record,) = it.appended
    second = it.call("add", "b")
    del it.appended[record]
    it.host.refused(record, REFUSED)
    assert first.is_done
    assert first.error is REFUSED
    it.place_all()
    assert kind_of(second) is Kind.DONE
    assert counts(it) == {"b": 1}
    assert it.host.waiting_bytes == 0


def test_a_refusal_that_may_pass_is_tried_again_after_a_pause() -> None:
    it = opened()
    call = it.call("add", "a")
    (record,) = it.appended
    it.appended.clear()
    it.host.refused(record, CLOSED)
    it.host.pump()
    assert (it.appended, it.retries) == ({}, 1)
    it.host.retry()
    it.host.pump()
    it.place_all()
    assert kind_of(call) is Kind.DONE


def test_a_refusal_after_a_doubt_settles_nothing() -> None:
    it = opened()
    call = it.call("add", "a")
    record = it.take()  # it is in the log
    it.host.doubtful(record)
    it.host.pump()
    it.appended.clear()
    it.host.refused(record, REFUSED)
    assert not call.is_done
    it.feed()
    assert kind_of(call) is Kind.DONE
    it.host.retry()
    it.host.pump()
    assert it.appended == {}, "it is done: there is nothing to send again"


def test_the_first_record_of_all_is_refused_or_in_doubt() -> None:
    def refuse(it: Scripted, record: int) -> None:
        it.host.refused(record, CLOSED)

    def doubt(it: Scripted, record: int) -> None:
        it.host.doubtful(record)

    for answer in (refuse, doubt):
        it = Scripted()
        call = it.call("add", "a")
        opening, calls = sorted(it.appended)
        it.appended.clear()
        answer(it, opening)
        answer(it, calls)
        it.host.retry()
        it.host.pump()
        assert [type(record) for record in it.records()] == [Opened, Calls]
        it.place_all()
        assert kind_of(call) is Kind.DONE


@pytest.mark.parametrize("red", [False, True])
@pytest.mark.parametrize("is_answered_first", [False, True])
def test_calls_that_came_before_the_class_was_named_go_again(red: bool, is_answered_first: bool) -> None:
    it = Scripted()
    call = it.call("add", "a", red=red)
    opening, record = it.appended
    naming = it.appended.pop(opening)
    it.host.refused(opening, CLOSED)
    it.take(record)

    def answer() -> None:
        if red:
            it.host.durable(record, RecordName((1, 2, 3), 0, 0))
        else:
            it.host.placed(record)

    if is_answered_first:
        answer()
    it.feed()
    it.order.place(naming[0])
    it.feed()
    if not is_answered_first:
        answer()
    assert not call.is_done
    it.host.retry()
    it.host.pump()
    it.place_all()
    assert kind_of(call) is Kind.DONE
    assert counts(it) == {"a": 1}


# Deadlines


def test_a_call_that_was_not_sent_can_be_given_up_for_good() -> None:
    it = opened()
    for _ in range(RECORDS_UNDER_WAY_MAX):
        it.call("add", "sent")
    waiting = it.call("add", "not sent")
    assert it.host.give_up(waiting)
    it.place_all()
    assert counts(it) == {"sent": RECORDS_UNDER_WAY_MAX}
    assert it.host.waiting_bytes == 0


def test_a_call_that_was_sent_goes_on_and_its_outcome_is_kept() -> None:
    it = opened()
    call = it.call("add", "a")
    assert not it.host.give_up(call, wanted=True)
    it.place_all()
    assert kind_of(call) is Kind.DONE
    other = it.call("add", "b")
    assert it.records()[-1].acknowledged == 0
    assert it.host.machine.outcome_of(call.client.id, call.number) is not None  # type: ignore[union-attr]
    it.host.release(call)
    it.place_all()
    it.call("add", "c")
    assert it.records()[-1].acknowledged == other.number


def test_receipts_that_nobody_asks_are_kept_for_so_many_later_calls() -> None:
    it = opened()
    submitted = it.call("add", "a", red=True)
    it.place_all()
    client = submitted.client
    assert client is not None
    for _ in range(3):
        for number in range(HELD_NUMBERS_MAX // 2):
            it.host.call("add", it.type.encode_call("add", (str(number),)).arguments, red=True)
        it.host.pump()
        it.place_all()
    it.call("add", "z", red=True)
    assert 1 <= it.records()[-1].acknowledged < client.number


def test_a_receipt_that_nobody_asks_does_not_hold_up_the_other_lane() -> None:
    it = opened()
    it.call("add", "red", red=True)
    late = it.call("add", "late")
    it.host.give_up(late, wanted=True)
    it.place_all()
    for _ in range(3):
        for number in range(HELD_NUMBERS_MAX // 2):
            it.host.call("add", it.type.encode_call("add", (str(number),)).arguments)
        it.host.pump()
        it.place_all()
    it.call("add", "last")
    assert it.records()[-1].acknowledged == it.host._green.client.number - 1  # type: ignore[union-attr]
    assert late.client is not None
    assert it.host.find(late.client.id, late.number) is None


def test_calls_that_wait_are_bounded() -> None:
    it = opened()
    large = it.type.encode_call("add", ("x" * (WAITING_BYTES_MAX // 2),)).arguments
    it.host.call("add", large)
    it.host.call("add", large)
    with pytest.raises(SessionError, match="nothing was called"):
        it.host.call("add", large)


def test_at_the_end_who_waits_is_told() -> None:
    it = opened()
    sent = [it.call("add", "a") for _ in range(RECORDS_UNDER_WAY_MAX)]
    waiting, read = it.call("add", "b"), it.host.read()
    position, watched = it.host.when_applied(99), it.host.watch("c" * 32, 1)
    it.host.end(REFUSED)
    for each in (*sent, waiting, read, position, watched):
        assert each.is_done
        assert each.error is REFUSED
    assert all(call.number for call in sent), "of these nobody knows"
    assert not waiting.number, "this one never was"
    with pytest.raises(SessionError):
        it.host.call("add", b"")
    with pytest.raises(SessionError):
        it.host.read()


# Submitting


def test_a_red_call_is_told_when_it_is_on_disk_and_when_it_is_applied() -> None:
    it = opened()
    call = it.call("add", "a", red=True)
    (record,) = it.appended
    name = RecordName((1, 2, 3), 0, 0)
    it.host.durable(record, name)
    assert it.host.settled == [call]
    assert call.is_durable
    assert not call.is_done
    it.host.settled.clear()
    it.take()
    assert it.feed() == [call]
    assert call.record is not None
    assert call.record.name == name


def test_what_waits_on_the_disk_of_another_node_is_given_to_the_new_one() -> None:
    it = opened()
    call = it.call("add", "a", red=True)
    (record,) = it.appended
    before = it.appended.pop(record)
    it.host.durable(record, RecordName((1, 2, 3), 0, 0))
    it.host.moved()
    it.host.pump()
    assert it.appended[record] == before
    it.place_all()
    it.order.place(before[0])  # the first node is back
    it.feed()
    assert counts(it) == {"a": 1}
    assert kind_of(call) is Kind.DONE


def test_red_calls_do_not_wait_behind_green_ones() -> None:
    it = opened()
    for _ in range(RECORDS_UNDER_WAY_MAX + 1):
        it.call("add", "green")
    it.call("add", "red", red=True)
    assert [red for _, red in it.appended.values()].count(True) == 1


# Identity


def test_a_forgotten_identity_is_made_anew_before_it_is_used() -> None:
    order = Order()
    it = opened(order)
    it.call("add", "a")
    it.place_all()
    _crowd_out(order)
    it.feed()
    call = it.call("add", "b")
    it.place_all()
    assert kind_of(call) is Kind.DONE
    assert it.clients == 2


def test_a_call_that_is_too_old_is_called_anew_and_applied_once() -> None:
    order = Order()
    it = opened(order)
    it.call("add", "a")
    it.place_all()
    calls = [it.call("add", name) for name in "bcdefg"]
    _crowd_out(order)
    for _ in range(3):
        it.take()
        it.feed()
    assert [len(record.calls) for record in it.records()] == [1], "the rest waits for that one"
    for _ in range(3):
        it.place_all()
    assert [kind_of(call) for call in calls] == [Kind.DONE] * 6
    assert list(counts(it))[-6:] == list("bcdefg"), "in the order in which they were called"
    assert set(counts(it).values()) == {1}
    assert it.clients == 2


def test_a_call_that_was_given_up_is_not_called_anew() -> None:
    order = Order()
    it = opened(order)
    it.call("add", "a")
    it.place_all()
    call = it.call("add", "b")
    it.host.give_up(call, wanted=True)
    _crowd_out(order)
    it.take()
    it.feed()
    assert kind_of(call) is Kind.TOO_OLD
    assert "b" not in counts(it)


def _crowd_out(order: Order) -> None:
    """More clients than the table keeps."""
    for number in range(5):
        other = opened(order)
        other.call("add", f"other {number}")
        other.place_all()


def test_after_a_snapshot_the_table_tells_what_was_applied() -> None:
    it = opened()
    calls = [it.call("add", name) for name in "ab"]
    it.take()
    other = Scripted(it.order)
    other.feed()
    it.host.restored(ObjectMachine.restore(it.type, other.host.machine.snapshot()))
    it.fed = len(it.order.records)
    assert [call.is_done for call in calls] == [True, False]
    it.place_all()
    assert kind_of(calls[1]) is Kind.DONE
    assert counts(it) == {"a": 1, "b": 1}


def test_too_old_after_a_snapshot_is_not_called_anew() -> None:
    """Somebody may have seen it applied among the records that were passed over."""
    order = Order()
    it = opened(order)
    it.call("add", "a")
    it.place_all()
    call = it.call("add", "b")
    _crowd_out(order)
    other = Scripted(order)
    other.feed()
    it.host.restored(ObjectMachine.restore(it.type, other.host.machine.snapshot()))
    it.fed = len(order.records)
    it.take()
    it.feed()
    assert kind_of(call) is Kind.TOO_OLD


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_call_in_records_that_a_snapshot_has_and_nobody_remembers_does_not_wait_forever(
    is_answered: bool,
) -> None:
    order = Order()
    it = opened(order)
    call = it.call("add", "a")
    record = it.take()
    if is_answered:
        it.host.placed(record)
    _crowd_out(order)
    other = Scripted(order)
    other.feed()
    it.host.restored(ObjectMachine.restore(it.type, other.host.machine.snapshot()))
    it.fed = len(order.records)
    if not is_answered:
        it.host.placed(record)
    it.host.pump()
    it.place_all()
    assert kind_of(call) is Kind.TOO_OLD, "it was applied, and its outcome is not known"
    assert counts(it)["a"] == 1


# Versions


class Old:
    object_name = "Growing"

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @command
    def add(self, token: str) -> int:
        self.counts[token] = self.counts.get(token, 0) + 1
        return len(self.counts)


class New(Old):
    object_version = 2

    @command
    def add(self, token: str, times: int = 10) -> int:
        self.counts[token] = self.counts.get(token, 0) + times
        return len(self.counts)

    @migration(1)
    @staticmethod
    def _from_1(old: Old) -> New:
        new = New()
        new.counts = old.counts
        return new


def test_a_call_that_meets_an_upgrade_is_encoded_again() -> None:
    order = Order()
    opened(order, Old)
    it = Scripted(order, New)
    it.feed()
    assert it.host.machine.version == 1
    call = it.call("add", "a")
    (record,) = it.appended
    ours = it.appended.pop(record)
    it.host.announce(Upgrade(2, is_forced=True))
    it.host.pump()
    it.take()
    it.appended[record] = ours
    it.take()
    it.feed()
    it.place_all()
    assert kind_of(call) is Kind.DONE
    assert counts(it) == {"a": 10}


def test_calls_of_two_versions_share_no_record() -> None:
    order = Order()
    opened(order, Old)
    it = Scripted(order, New)
    it.feed()
    for number in range(RECORDS_UNDER_WAY_MAX + 1):
        it.call("add", str(number))
    upgrade = Scripted(order, New)
    upgrade.feed()
    upgrade.host.announce(Upgrade(2, is_forced=True))
    upgrade.host.pump()
    upgrade.place_all()
    it.feed()
    it.call("add", "new")
    for _ in range(4):
        it.place_all()
    assert counts(it) == {**{str(number): 10 for number in range(RECORDS_UNDER_WAY_MAX + 1)}, "new": 10}
    assert list(counts(it))[-2:] == [str(RECORDS_UNDER_WAY_MAX), "new"], "in the order of the calls"


# Reads


def test_a_read_waits_for_a_barrier_that_was_asked_for_after_it_and_for_its_place() -> None:
    it = opened()
    read = it.host.read()
    assert it.barriers == []
    it.host.pump()
    (barrier,) = it.barriers
    it.host.barrier_passed(barrier, it.fed + 1)
    assert not read.is_done, "what is before the place is not applied here"
    it.order.place(b"of no object")
    assert it.feed() == [read]


def test_reads_share_barriers_and_none_joins_one_that_is_under_way() -> None:
    it = opened()
    waves = []
    for _ in range(BARRIERS_UNDER_WAY_MAX + 2):
        waves.append([it.host.read() for _ in range(10)])
        it.host.pump()
    assert len(it.barriers) == BARRIERS_UNDER_WAY_MAX
    it.host.barrier_passed(it.barriers[0], 0)
    assert [all(read.is_done for read in wave) for wave in waves] == [True, False, False, False]
    it.host.pump()
    it.host.barrier_passed(it.barriers[-1], 0)
    assert [all(read.is_done for read in wave) for wave in waves] == [True, False, True, True]


def test_a_barrier_that_was_lost_is_asked_for_again_and_one_that_cannot_be_had_is_told() -> None:
    it = opened()
    read = it.host.read()
    it.host.pump()
    it.host.barrier_failed(it.barriers[0])
    it.host.pump()
    assert len(it.barriers) == 2
    it.host.barrier_failed(it.barriers[1], CLOSED)
    assert not read.is_done
    it.host.retry()
    it.host.pump()
    it.host.barrier_failed(it.barriers[2], REFUSED)
    assert read.error is REFUSED


def test_reads_that_nobody_waits_for_are_forgotten() -> None:
    it = opened()
    reads = []
    for _ in range(BARRIERS_UNDER_WAY_MAX + 3):
        reads.append(it.host.read())
        it.host.pump()
    position = it.host.when_applied(99)
    for read in reads:
        it.host.give_up_read(read)
    it.host.waits.give_up(position)
    assert not it.host._reads
    assert not list(it.host.waits)
    it.host.barrier_failed(it.barriers[0])
    assert not it.host._reads
    it.host.barrier_passed(it.barriers[1], 99)
    assert not it.host._passed


def test_who_waits_for_a_position_or_another_client_is_told() -> None:
    order = Order()
    it, other = opened(order), opened(order)
    it.feed()
    now = it.host.when_applied(it.fed)
    assert now.is_done
    it.host.settled.clear()
    call = other.call("add", "a")
    assert call.client is not None
    watched, later = it.host.watch(call.client.id, call.number), it.host.when_applied(it.fed + 1)
    other.place_all()
    assert set(it.feed()) == {watched, later}
    assert watched.outcome == call.outcome


# Lots


class Program:
    """A host that calls, submits, reads and crashes, and what it knows."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        self.it = Scripted(self.world.order)
        self.calls: dict[PendingCall, str] = {}
        self.reads: dict[Waiting, int] = {}
        self.feed(len(self.world.order.records))
        self.it.host.pump()

    def feed(self, up_to: int) -> None:
        it = self.it
        records = it.order.records[it.fed : up_to]
        it.host.fed(records, range(it.fed, it.fed + len(records)), 0)
        it.fed += len(records)
        it.host.reached(it.fed)
        it.host.pump()
        settled, it.host.settled = it.host.settled, []
        for waiting in settled:
            if isinstance(waiting, PendingCall):
                self.settled(waiting)
            elif waiting in self.reads:
                before = self.reads.pop(waiting)
                assert sum(counts(it).values()) >= before, "a read has missed a call that had returned"

    def settled(self, call: PendingCall) -> None:
        if call.is_done and call.outcome is None:
            assert call.error is REFUSED
            assert not call.number
            self.world.refused.add(self.calls[call])
        elif call.outcome is not None and call.is_missed and call.outcome.kind is Kind.TOO_OLD:
            self.world.forgotten.add(self.calls[call])
        elif call.outcome is not None:
            assert call.outcome.kind is Kind.DONE, call.outcome
            token = self.calls[call]
            if token not in self.world.done:
                self.world.done.add(token)

    def step(self, lots: random.Random) -> None:
        it, world = self.it, self.world
        act = lots.randrange(10)
        if act < 3:
            token = f"{self.number}.{self.lives}.{world.count}"
            world.count += 1
            call = it.call("add", token, red=lots.random() < 0.3)
            self.calls[call] = token
        elif act < 6 and it.appended:
            self.answer(
                lots, lots.choice(list(it.appended)) if lots.random() < 0.3 else next(iter(it.appended))
            )
        elif act == 6:
            self.feed(lots.randint(it.fed, len(world.order.records)))
        elif act == 7:
            self.reads[it.host.read()] = len(world.done)
            it.host.pump()
        elif act == 8 and it.barriers:
            self.pass_barrier(lots)
        elif lots.random() < 0.3:
            it.host.retry()
            it.host.moved()
            it.host.pump()
        elif lots.random() < 0.02:
            self.begin()
        elif lots.random() < 0.05:
            self.restore(lots.choice(world.programs))

    def restore(self, other: Program) -> None:
        """It was too slow: the log is trimmed, and it goes on from a snapshot."""
        machine = other.it.host.machine
        if machine.version and other.it.fed > self.it.fed:
            self.it.host.restored(ObjectMachine.restore(self.it.type, machine.snapshot()), other.it.fed)
            self.it.fed = other.it.fed
            self.feed(self.it.fed)

    def pass_barrier(self, lots: random.Random) -> None:
        barrier = self.it.barriers.pop(0)
        if lots.random() < 0.3:
            self.it.host.barrier_failed(barrier)
        else:
            self.it.host.barrier_passed(barrier, len(self.world.order.records))
        self.it.host.pump()

    def answer(self, lots: random.Random, record: int) -> None:
        it, order = self.it, self.world.order
        payload, red = it.appended.pop(record)
        fate = lots.random()
        if fate < 0.5:
            order.place(payload)
            if red:
                it.host.durable(record, RecordName((1, 2, 3), 0, 0))
            else:
                it.host.placed(record)
        elif fate < 0.6 and red:
            self.world.held.append(payload)
            it.host.durable(record, RecordName((1, 2, 3), 0, 0))
        elif fate < 0.8:
            chance = lots.random()
            if chance < 0.4:
                order.place(payload)
            elif chance < 0.7:
                self.world.held.append(payload)
            it.host.doubtful(record)
        elif fate < 0.9:
            it.host.refused(record, CLOSED)
        else:
            it.host.refused(record, REFUSED)
        it.host.pump()


class World:
    def __init__(self) -> None:
        self.order = Order()
        self.done: set[str] = set()
        self.refused: set[str] = set()
        self.forgotten: set[str] = set()
        """Nobody knows whether they were applied: the table has forgotten it."""
        self.programs: list[Program] = []
        self.held: list[bytes] = []
        """Records that are in the order later, or never."""
        self.count = 0


@pytest.mark.parametrize("seed", [*first_of(range(20), 5), *daily(range(20, 300), 0)])
def test_no_call_is_applied_twice_and_none_is_lost_whatever_happens(seed: int) -> None:
    lots = random.Random(seed)
    world = World()
    programs = world.programs = [Program(world, number) for number in range(6)]
    for _ in range(3_000):
        lots.choice(programs).step(lots)
        if world.held and lots.random() < 0.05:
            world.order.place(world.held.pop(lots.randrange(len(world.held))))
    for payload in world.held:
        world.order.place(payload)
    for _ in range(60):  # and then all is well
        for program in programs:
            it = program.it
            it.host.retry()
            while it.appended:
                record = next(iter(it.appended))
                world.order.place(it.appended.pop(record)[0])
                it.host.placed(record)
                it.host.pump()
            program.feed(len(world.order.records))
            while it.barriers:
                it.host.barrier_passed(it.barriers.pop(), len(world.order.records))
            it.host.pump()
    last = Scripted(world.order)
    last.feed()
    found = counts(last)
    assert set(found.values()) == {1}
    assert world.done <= set(found)
    assert not world.refused & set(found), "what was refused for good is not there"
    for program in programs:
        assert program.reads == {}
        for call, token in program.calls.items():
            assert call.is_done, token
            assert token in world.forgotten or (call.outcome is not None) == (token in found)
        assert program.it.host.waiting_bytes == 0
    assert len(world.done) > 300
