"""Records with a fence on their way: a run of their own, sent again after a loss, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest
from test_appending import MOST, RUN, Client

from totempole.client.appending import (
    FULL_RUNS_UNDER_WAY_MAX,
    HEAD_BYTES,
    RUN_BYTES,
    RUN_RECORDS_MAX,
    RUNS_UNDER_WAY_MAX,
    FencedError,
    InDoubt,
    RecordName,
    records_bytes,
)
from totempole.errors import SessionError
from totempole.groups.packing import Batch
from totempole.session import NO_RUN, RunFenced, RunLost
from totempole.types import Fence


def step(number: int) -> Fence:
    return Fence("q", number, number - 1, number - 1)


def sent(client: Client) -> list[tuple[list[bytes], Fence | None]]:
    return [([bytes(each) for each in Batch(append.batch)], append.fence) for append in client.appends]


def fence_off(client: Client, index: int, mark: int, position: int) -> None:
    client.part.take(RunFenced(client.appends[index].request, RUN, mark, position))


def test_records_with_a_fence_have_a_run_of_their_own_in_their_turn() -> None:
    client = Client(opened=False)
    client.append(b"1")
    client.append(b"2", b"3", fence=step(1))
    client.append(b"4", fence=step(2))
    client.append(b"5")
    client.append(b"6")
    client.part.opened(MOST)
    assert sent(client) == [
        ([b"1"], None),
        ([b"2", b"3"], step(1)),
        ([b"4"], step(2)),
        ([b"5", b"6"], None),
    ]


def test_several_may_be_under_way_and_what_waits_is_counted() -> None:
    client = Client()
    tickets = [client.append(b"%d" % number, fence=step(number)) for number in range(1, 12)]
    assert len(client.appends) == RUNS_UNDER_WAY_MAX
    for index in range(len(tickets)):
        client.place(index, index)
    assert [client.told[ticket] for ticket in tickets] == [[index] for index in range(len(tickets))]
    assert client.part._waiting["green"].bytes == 0
    full = bytes(RUN_BYTES // 2)
    for number in range(12, 12 + 2 * FULL_RUNS_UNDER_WAY_MAX):
        client.append(full, fence=step(number))
    assert len(client.appends) - len(tickets) == FULL_RUNS_UNDER_WAY_MAX


def test_what_is_kept_out_is_told_which_mark_did_it() -> None:
    client = Client()
    ticket, other = client.append(b"1", b"2", fence=step(1)), client.append(b"3", fence=step(4))
    fence_off(client, 0, 3, 70)
    client.place(1, 72)
    error = client.told[ticket]
    assert isinstance(error, FencedError)
    assert (error.mark, error.position, error.resent) == (3, 70, False)
    assert str(error) == "nothing was appended: fence 'q' lets in 0 to 0: the mark is 3"
    assert client.told[other] == [72]
    assert not client.part.is_asking


def test_what_is_kept_out_makes_room_for_what_waits() -> None:
    client = Client()
    for number in range(RUNS_UNDER_WAY_MAX + 1):
        client.append(b"%d" % number, fence=step(number + 1))
    fence_off(client, 0, 9, 1)
    assert sent(client)[-1] == ([b"8"], step(9))


def test_they_are_sent_again_in_their_order_and_told_that_the_first_sending_may_have_won() -> None:
    client = Client()
    tickets = [client.append(b"%d" % number, fence=step(number)) for number in (1, 2, 3)]
    client.accept(0)
    client.part.lost("the daemon has gone")
    assert not client.told
    client.sent.clear()
    client.part.opened(MOST)
    assert sent(client) == [([b"1"], step(1)), ([b"2"], step(2)), ([b"3"], step(3))]
    fence_off(client, 0, 2, 11)
    fence_off(client, 1, 2, 11)
    client.place(2, 12)
    for ticket in tickets[:2]:
        error = client.told[ticket]
        assert isinstance(error, FencedError)
        assert (error.mark, error.position, error.resent) == (2, 11, True)
        assert "nothing was appended" not in str(error)
    assert client.told[tickets[2]] == [12]


def test_a_log_that_is_closed_is_left_for_another_one() -> None:
    client = Client()
    client.part.can_move = True
    taken, untaken = client.append(b"1", fence=step(1)), client.append(b"2", fence=step(2))
    client.accept(0)
    client.part.take(RunLost(client.appends[0].request, RUN, "closed"))
    client.part.take(RunLost(client.appends[1].request, NO_RUN, "closed"))
    client.sent.clear()
    client.part.opened(MOST)
    assert [append.fence for append in client.appends] == [step(1), step(2)], "in their order"
    for index in range(2):
        fence_off(client, index, 5, 0)
    assert {ticket: client.told[ticket].resent for ticket in (taken, untaken)} == {
        taken: True,
        untaken: False,
    }


def test_a_time_that_is_up_leaves_it_in_doubt() -> None:
    client = Client()
    ticket = client.append(b"1", fence=step(1))
    client.accept()
    error = client.part.give_up(ticket, "late")
    assert isinstance(error, InDoubt)
    assert error.names == (RecordName(RUN, 0, 0),)
    fence_off(client, 0, 1, 0)
    assert not client.told


def test_a_receipt_of_a_run_that_was_kept_out() -> None:
    client = Client()
    find = client.part.find(RecordName(RUN, 1, 0))
    client.part.take(RunFenced(find, RUN, 7, 3))
    error = client.told[find]
    assert isinstance(error, FencedError)
    assert (error.mark, error.position, error.resent) == (7, 3, False)
    assert "passed over" in str(error)


@pytest.mark.parametrize(
    ("payloads", "given", "text"),
    [
        ([], {}, "0 records with one fence"),
        ([b""] * (RUN_RECORDS_MAX + 1), {}, "4097 records with one fence: give 1 to 4096"),
        ([bytes(RUN_BYTES // 2)] * 2, {}, f"give at most {RUN_BYTES}"),
        ([b"x"], {"until": "red"}, "only the order says"),
        ([b"x"], {"fence": Fence("", 1, 0, 0)}, "1 to 255 bytes"),
        ([b"x"], {"fence": Fence("q", 1, 0, 1)}, "low 0, high 1, number 1"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(
    payloads: list[bytes], given: dict[str, Any], text: str
) -> None:
    client = Client()
    with pytest.raises(SessionError, match=text):
        client.append(*payloads, **{"fence": step(1), **given})
    assert not client.sent
    assert not client.part.is_asking


def test_what_just_fits_is_sent_in_one_run() -> None:
    client = Client()
    client.append(*[b""] * RUN_RECORDS_MAX, fence=step(1))
    payloads = [b"x"] * 10 + [bytes(RUN_BYTES - 10 * records_bytes([b"x"]) - records_bytes([b""]))]
    assert records_bytes(payloads) == RUN_BYTES
    client.append(*payloads, fence=step(2))
    assert [len(Batch(append.batch)) for append in client.appends] == [RUN_RECORDS_MAX, 11]
    assert records_bytes([b"x"], ["key"]) == records_bytes([b"x"]) + 3


def test_a_daemon_that_takes_less() -> None:
    most = 10_000
    client = Client(opened=False)
    early = client.append(bytes(6_000), bytes(6_000), fence=step(1))
    client.part.opened(most)
    assert f"give at most {most - HEAD_BYTES}" in str(client.told[early])
    with pytest.raises(SessionError, match="in one run"):
        client.append(bytes(6_000), bytes(6_000), fence=step(1))
    client.append(bytes(6_000), bytes(6_000))
    assert [append.fence for append in client.appends] == [None, None]
