"""Receipts of calls as text, and what strangers write instead."""

from __future__ import annotations

import pytest

from totempole.client.appending import RecordName
from totempole.errors import SessionError
from totempole.objects.pending import Client, PendingCall
from totempole.objects.receipts import CallName, ReceiptBase

CLIENT = "0123456789abcdef" * 2
RECORD = RecordName((1, 2, 3), 4, 5)


@pytest.mark.parametrize("record", [None, RECORD])
@pytest.mark.parametrize("name", ["bank", "a/b", "ümläut 7", "//"])
def test_a_receipt_is_read_as_it_was_written(name: str, record: RecordName | None) -> None:
    receipt = CallName(name, "transfer", CLIENT, 2**62, record)
    assert CallName.parse(str(receipt)) == receipt


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bank",
        f"bank/put/{CLIENT}/1",
        f"/put/{CLIENT}/1/",
        f"bank/2put/{CLIENT}/1/",
        f"bank/put/{CLIENT[1:]}/1/",
        f"bank/put/{CLIENT.upper()}/1/",
        f"bank/put/{CLIENT}/0/",
        f"bank/put/{CLIENT}/-1/",
        f"bank/put/{CLIENT}/٣/",
        f"bank/put/{CLIENT}/{10**30}/",
        f"bank/put/{CLIENT}/1/1.2.3",
        f"bank/put/{CLIENT}/1/1.2.3.4",
        f"bank/put/{CLIENT}/1/1.2.3.4@x",
    ],
)
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(SessionError, match="no receipt"):
        CallName.parse(text)


def test_receipts_of_the_same_call_are_the_same() -> None:
    one = ReceiptBase(CallName("bank", "put", CLIENT, 1), None)
    same = ReceiptBase(CallName("bank", "put", CLIENT, 1, RECORD), None)
    other = ReceiptBase(CallName("bank", "put", CLIENT, 2), None)
    assert one == same
    assert len({one, same, other}) == 2
    assert one != str(one)
    assert one.position is None


def test_the_receipt_of_a_call_that_was_called_anew_has_its_new_name() -> None:
    pending = PendingCall("put", b"", 1, None)
    receipt = ReceiptBase(CallName("bank", "put", CLIENT, 7, RECORD), pending)
    assert receipt.name.number == 7, "until it is sent again"
    pending.client, pending.number = Client("f" * 32, 0), 1
    assert str(receipt) == f"bank/put/{'f' * 32}/1/"
