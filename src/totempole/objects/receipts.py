"""Receipts of calls: which call of which client, and how to find it again.

A receipt names a call forever. `str(receipt)` can be kept, and `replica.receipt(text)` makes it one again in
another program. The outcome of the call is in the object's exactly-once table, at every host, until the
client has acknowledged it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from totempole.client.appending import RecordName
from totempole.errors import SessionError
from totempole.objects.pending import PendingCall
from totempole.objects.records import Outcome

NUMBER_MAX = 2**63

_CLIENT = re.compile(r"[0-9a-f]{32}")


class CallName(NamedTuple):
    """A call forever: what a receipt says."""

    object: str
    method: str
    client: str
    number: int
    record: RecordName | None = None
    """Where it was first accepted. None: no daemon had accepted it when the receipt was made."""

    def __str__(self) -> str:
        record = "" if self.record is None else str(self.record)
        return f"{self.object}/{self.method}/{self.client}/{self.number}/{record}"

    @classmethod
    def parse(cls, text: str) -> CallName:
        try:
            name, method, client, number, record = text.rsplit("/", 4)
            if not (name and method.isidentifier() and _CLIENT.fullmatch(client)):
                raise ValueError
            if not (number.isascii() and number.isdecimal() and 0 < int(number[:20]) < NUMBER_MAX):
                raise ValueError
            return cls(name, method, client, int(number), RecordName.parse(record) if record else None)
        except (ValueError, AttributeError, SessionError):
            raise SessionError(
                f"{str(text)[:80]!r} is no receipt of a call: give one as str(receipt) has written it"
            ) from None


class ReceiptBase:
    """A receipt, without the way to wait for its call."""

    __slots__ = ("_name", "outcome", "pending")

    def __init__(self, name: CallName, pending: PendingCall | None) -> None:
        self._name = name
        self.pending = pending
        """The call, if it is one of this replica that is not forgotten."""
        self.outcome: Outcome | None = pending.outcome if pending is not None else None

    @property
    def name(self) -> CallName:
        """A call that the object has refused as too old was called anew, under another name."""
        pending = self.pending
        if pending is not None and pending.client is not None and pending.number != self._name.number:
            record = pending.record.name if pending.record is not None else None
            self._name = self._name._replace(client=pending.client.id, number=pending.number, record=record)
        return self._name

    @property
    def position(self) -> int | None:
        """Of the record in which the call was applied; None: not here yet."""
        if self.outcome is None and self.pending is not None:
            self.outcome = self.pending.outcome
        return None if self.outcome is None else self.outcome.position

    def __str__(self) -> str:
        return str(self.name)

    def __repr__(self) -> str:
        return f"CallReceipt({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReceiptBase) and other.name[:4] == self.name[:4]

    def __hash__(self) -> int:
        return hash(self.name[:4])
