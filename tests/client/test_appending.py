"""What becomes of records when runs are refused, lost, or the connection is: the part of the client without
I/O."""

from __future__ import annotations

from typing import Any

import pytest

from totempole.client.appending import (
    FULL_RUNS_UNDER_WAY_MAX,
    HEAD_BYTES,
    RUN_BYTES,
    RUN_RECORDS_MAX,
    RUNS_UNDER_WAY_MAX,
    Appending,
    InDoubt,
    RecordName,
    position_in,
)
from totempole.errors import SessionError
from totempole.groups.packing import Batch
from totempole.session import (
    NO_RUN,
    Append,
    FindRun,
    HoldLog,
    RunAccepted,
    RunDurable,
    RunLost,
    RunName,
    RunPlaced,
    RunUnknown,
)
from totempole.types import Fence

MOST = 1_000_000
RUN, OTHER = (1, 2, 3), (1, 2, 4)


class Client:
    """A program's side, and what it was told."""

    def __init__(self, opened: bool = True) -> None:
        self.sent: list[Any] = []
        self.told: dict[int, Any] = {}
        self._last = 0
        self.part = Appending(self.sent.append, self._new_request, self._tell)
        if opened:
            self.part.opened(MOST)

    def _new_request(self) -> int:
        self._last += 1
        return self._last

    def _tell(self, ticket: int, error: SessionError | None, value: Any) -> None:
        assert ticket not in self.told, "answered once"
        self.told[ticket] = value if error is None else error

    def append(
        self,
        *payloads: bytes,
        keys: tuple[str, ...] = (),
        until: Any = "green",
        log: str = "a",
        fence: Fence | None = None,
    ) -> int:
        ticket = self.part.append(log, payloads, keys, until, fence)
        self.part.pump()
        return ticket

    @property
    def appends(self) -> list[Append]:
        return [frame for frame in self.sent if isinstance(frame, Append)]

    def accept(self, index: int = -1, run: RunName = RUN, position: int = 0) -> Append:
        append = self.appends[index]
        self.part.take(RunAccepted(append.request, run, position))
        return append

    def place(self, index: int = -1, position: int = 0, *repeats: tuple[int, int]) -> None:
        append = self.appends[index]
        count = len(Batch(append.batch)) - len(repeats)
        self.part.take(RunPlaced(append.request, RUN, position, count, repeats))


def test_records_that_wait_go_out_together_when_a_run_is_done() -> None:
    client = Client()
    tickets = [client.append(b"%d" % number) for number in range(RUNS_UNDER_WAY_MAX + 5)]
    assert len(client.appends) == RUNS_UNDER_WAY_MAX
    client.place(0, 0)
    assert list(Batch(client.appends[-1].batch)) == [b"8", b"9", b"10", b"11", b"12"]
    client.place(-1, 8)
    assert [client.told[ticket] for ticket in tickets[8:]] == [[8], [9], [10], [11], [12]]


def test_what_fills_a_run_does_not_wait_for_others() -> None:
    client = Client()
    half = bytes(RUN_BYTES // 2)
    tickets = [client.append(half) for _ in range(RUNS_UNDER_WAY_MAX)]
    tickets.append(client.append(half))
    assert len(client.appends) == RUNS_UNDER_WAY_MAX, "it waits for company"
    tickets.append(client.append(half))
    assert len(client.appends) == RUNS_UNDER_WAY_MAX + 1
    tickets += [client.append(half) for _ in range(FULL_RUNS_UNDER_WAY_MAX)]
    assert len(client.appends) == FULL_RUNS_UNDER_WAY_MAX
    for index in range(len(tickets)):
        client.place(index, index)
    assert [client.told[ticket] for ticket in tickets] == [[index] for index in range(len(tickets))]


def test_what_waits_is_counted_through_all_that_happens_to_it() -> None:
    client = Client()
    for _ in range(RUNS_UNDER_WAY_MAX):
        client.append(b"under way")
    kept = client.append(b"kept", keys=("k",))
    gone = client.append(b"gone", b"too")
    client.part.give_up(gone, "it takes too long")
    assert waits(client) == [b"kept"]
    client.part.lost("the daemon has gone")
    assert waits(client) == [b"kept"]
    client.part.opened(MOST)
    assert waits(client) == []
    assert [bytes(each) for each in Batch(client.appends[-1].batch)] == [b"kept"]
    client.part.lost("once more")
    assert waits(client) == [b"kept"]
    client.part.opened(MOST)
    client.place(-1, 7)
    assert client.told[kept] == [7]


def waits(client: Client) -> list[bytes]:
    waiting = client.part._waiting["green"]
    assert waiting.bytes == sum(piece.size for piece in waiting.pieces)
    return [
        bytes(each) for piece in waiting.pieces for each in piece.entry.payloads[piece.start : piece.stop]
    ]


def test_records_of_two_logs_are_in_two_runs() -> None:
    client = Client(opened=False)
    client.append(b"1")
    client.append(b"2", log="b")
    client.append(b"3", log="b")
    client.part.opened(MOST)
    assert [(append.log, len(Batch(append.batch))) for append in client.appends] == [("a", 1), ("b", 2)]


def test_a_run_has_bounds() -> None:
    client = Client()
    client.append(*[b""] * (RUN_RECORDS_MAX + 1))
    client.append(*[bytes(RUN_BYTES // 2)] * 3)
    assert [len(Batch(append.batch)) for append in client.appends] == [RUN_RECORDS_MAX, 1, 1, 1, 1]
    client.append(bytes(MOST - HEAD_BYTES - 100))
    assert len(client.appends[-1].batch) < MOST


def test_positions_around_repeats() -> None:
    client = Client()
    ticket = client.append(b"1", b"2", b"3", b"4", keys=("a", "b", "c", "d"))
    client.place(-1, 10, (0, 4), (2, 7))
    assert client.told[ticket] == [4, 10, 7, 11]
    placed = RunPlaced(1, RUN, 10, 2, ((0, 4), (2, 7)))
    assert [position_in(placed, index) for index in range(4)] == [4, 10, 7, 11]


def test_records_without_keys_have_empty_ones_in_a_run_with_keys() -> None:
    client = Client(opened=False)
    client.append(b"1")
    client.append(b"2", keys=("k",))
    client.part.opened(MOST)
    assert [bytes(key) for key in Batch(client.appends[0].keys)] == [b"", b"k"]


def test_red_is_told_from_the_disk_and_frees_the_way() -> None:
    client = Client()
    tickets = [client.append(b"%d" % number, until="red") for number in range(RUNS_UNDER_WAY_MAX + 1)]
    append = client.accept(0, RUN, 5)
    client.part.take(RunDurable(append.request, RUN))
    assert client.told[tickets[0]] == [RecordName(RUN, 0, 5)]
    assert len(client.appends) == RUNS_UNDER_WAY_MAX + 1
    client.place(0, 5)  # later, and nobody waits for it


def test_red_is_told_when_its_run_is_green_first() -> None:
    client = Client()
    ticket = client.append(b"1", until="red")
    client.accept()
    client.place(-1, 5)
    assert client.told[ticket] == [RecordName(RUN, 0, 0)]


def test_a_lost_connection_sends_what_has_a_key_again_in_its_order() -> None:
    client = Client()
    first = client.append(b"1", b"2", keys=("a", "b"))
    second = client.append(b"3", keys=("c",))
    client.accept(0)
    client.part.lost("gone")
    third = client.append(b"4", keys=("d",))
    assert not client.told
    client.sent.clear()
    client.part.opened(MOST)
    (append,) = client.appends
    assert [bytes(each) for each in Batch(append.batch)] == [b"1", b"2", b"3", b"4"]
    client.place(-1, 9, (0, 7), (1, 8))
    assert [client.told[ticket] for ticket in (first, second, third)] == [[7, 8], [9], [10]]


def test_a_lost_connection_leaves_what_has_no_key_in_doubt() -> None:
    client = Client()
    accepted, unheard = client.append(b"1"), client.append(b"2")
    client.accept(0, RUN, 5)
    client.part.lost("gone")
    doubt = client.told[accepted]
    assert isinstance(doubt, InDoubt)
    assert doubt.names == (RecordName(RUN, 0, 5),)
    assert isinstance(client.told[unheard], InDoubt)
    assert client.told[unheard].names == ()
    client.sent.clear()
    client.part.opened(MOST)
    assert not client.sent


def test_what_was_not_sent_survives_a_lost_connection() -> None:
    client = Client(opened=False)
    ticket = client.append(b"1")
    client.part.lost("gone")
    client.part.opened(MOST)
    client.place()
    assert client.told[ticket] == [0]


def test_a_refused_run_is_not_in_the_log() -> None:
    client = Client()
    ticket = client.append(b"1")
    assert client.part.refused(client.appends[0].request, "too many reds")
    assert not isinstance(client.told[ticket], InDoubt)
    assert str(client.told[ticket]) == "too many reds"
    assert not client.part.refused(99, "of another part")


def test_refused_when_sent_again_is_in_doubt() -> None:
    client = Client()
    ticket = client.append(b"1", keys=("k",))
    client.accept()
    client.part.lost("gone")
    client.part.opened(MOST)
    client.part.refused(client.appends[-1].request, "no log open")
    assert isinstance(client.told[ticket], InDoubt)


def test_sent_and_refused_when_sent_again_is_in_doubt_without_a_receipt() -> None:
    client = Client()
    ticket = client.append(b"1", keys=("k",))
    client.part.lost("gone before it was accepted")
    client.part.opened(MOST)
    client.part.refused(client.appends[-1].request, "no log open")
    assert isinstance(client.told[ticket], InDoubt)


def test_a_lost_run_is_in_doubt() -> None:
    client = Client()
    ticket = client.append(b"1")
    append = client.accept()
    client.part.take(RunLost(append.request, RUN, "the log is closed"))
    assert isinstance(client.told[ticket], InDoubt)
    assert not client.part.is_asking


def test_a_closed_log_has_taken_nothing() -> None:
    client = Client()
    ticket = client.append(b"1", keys=("k",))
    client.part.take(RunLost(client.appends[0].request, NO_RUN, "no log open"))
    assert not isinstance(client.told[ticket], InDoubt)
    assert not client.part.wants_move


def test_with_another_daemon_what_a_closed_log_refuses_is_taken_there() -> None:
    client = Client()
    client.part.can_move = True
    refused, in_doubt, repeated = client.append(b"1"), client.append(b"2"), client.append(b"3", keys=("k",))
    find = client.part.find(RecordName(OTHER, 0, 0))
    first, second, third = client.appends
    client.accept(1)
    client.part.take(RunLost(second.request, RUN, "the log has failed"))
    client.part.take(RunLost(third.request, OTHER, "the log has failed"))
    client.part.take(RunLost(first.request, NO_RUN, "no log open"))
    client.part.take(RunLost(find, NO_RUN, "no log open"))
    assert client.part.wants_move
    assert [*client.told] == [in_doubt]
    client.part.lost("moving")
    client.sent.clear()
    client.part.opened(MOST)
    assert not client.part.wants_move
    assert client.sent[0] == FindRun(find, OTHER)
    assert [bytes(each) for each in Batch(client.appends[0].batch)] == [b"1", b"3"]
    client.place(-1, 5)
    assert [client.told[ticket] for ticket in (refused, repeated)] == [[5], [6]]


def test_whoever_gives_up_is_not_told_later() -> None:
    client = Client()
    ticket = client.append(b"1")
    client.accept()
    assert isinstance(client.part.give_up(ticket, "late"), InDoubt)
    client.place()
    assert not client.told


def test_runs_that_a_closed_log_gives_back_go_to_another_one_in_their_order() -> None:
    client = Client()
    client.part.can_move = True
    half = bytes(RUN_BYTES // 2)
    keys = ("a", "b", "c", "d", "e", "f", "g")
    client.append(*[bytes([index]) + half for index in range(6)], keys=keys[:6])
    client.append(b"later", keys=keys[6:])
    for append in client.appends:
        client.part.take(RunLost(append.request, NO_RUN, "closed"))
    client.sent.clear()
    client.part.opened(MOST)
    contents = [bytes(each)[:1] for append in client.appends for each in Batch(append.batch)]
    assert contents == [*(bytes([index]) for index in range(6)), b"l"]


def test_giving_up_what_was_to_be_sent_again() -> None:
    client = Client()
    ticket = client.append(b"1", keys=("k",))
    client.part.lost("gone")
    assert isinstance(client.part.give_up(ticket, "late"), InDoubt)
    client.sent.clear()
    client.part.opened(MOST)
    assert not client.sent


def test_questions_are_asked_again_after_a_reconnection() -> None:
    client = Client()
    find = client.part.find(RecordName(RUN, 1, 0))
    hold = client.part.hold("reader", 5)
    client.part.lost("gone")
    client.sent.clear()
    client.part.opened(MOST)
    assert client.sent == [FindRun(find, RUN), HoldLog(hold, "reader", 5)]
    client.part.take(RunUnknown(find, RUN, True))
    assert not client.told
    client.part.take(RunPlaced(find, RUN, 4, 2, ()))
    client.part.take(RunAccepted(hold, OTHER, 0))
    client.part.take(RunPlaced(hold, OTHER, 6, 0, ()))
    assert client.told[find].position == 4
    assert hold in client.told


def test_a_run_that_is_not_known() -> None:
    client = Client()
    find = client.part.find(RecordName(RUN, 1, 0))
    client.part.take(RunUnknown(find, RUN, False))
    assert client.told == {find: None}


def test_the_end_of_the_session() -> None:
    client = Client()
    sent = client.append(b"1", keys=("k",))
    client.accept()
    client.part.lost("gone")
    unsent = client.append(b"2")
    find = client.part.find(RecordName(RUN, 1, 0))
    client.part.end(SessionError("over"))
    assert isinstance(client.told[sent], InDoubt)
    assert not isinstance(client.told[unsent], InDoubt)
    assert isinstance(client.told[find], SessionError)
    assert not client.part.is_asking


@pytest.mark.parametrize(
    "name", [RecordName((1, 2, 3), 4, 5), RecordName((2**32 - 1, 2**63, 2**63), 0, 2**63)]
)
def test_a_receipt_survives_being_written(name: RecordName) -> None:
    assert RecordName.parse(str(name)) == name
