"""Exactly once: what is remembered of each client, so that no call is applied twice.

A client numbers its calls. Of each number that it has not acknowledged the table has the outcome: a call that
comes again is answered with it. Numbers up to the client's floor are settled: they are never applied, again
or at all.

The table is bounded, and what it forgets is the same at every host, because it depends on nothing but the
order. Three things are forgotten:

- The client acknowledges a number: its floor rises.
- It has more unacknowledged outcomes than `client_bytes_max`: the oldest go, and its floor rises above them.
- There are too many clients, or too many bytes in all: the client that was silent longest goes as a whole.
  The watermark rises above the position of its last record. From then on a client that is not in the table
  and was *born* below the watermark is refused: it may be the one that was forgotten. A client is born before
  its first record, so the forgotten one is always refused.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from totempole.objects.records import Limits, Outcome

OUTCOME_WEIGHT = 128
"""Bytes that an outcome costs beside its value."""

CLIENT_WEIGHT = 512


class Client:
    """One client's row."""

    __slots__ = ("bytes", "floor", "outcomes", "position")

    def __init__(self, floor: int, position: int) -> None:
        self.floor = floor
        """Numbers up to this one are settled."""
        self.position = position
        """Of its last record."""
        self.outcomes: dict[int, Outcome] = {}
        """Of numbers above the floor, in the order in which they were applied."""
        self.bytes = CLIENT_WEIGHT

    def settle(self, floor: int) -> None:
        """Forgets the outcomes up to this number."""
        outcomes = self.outcomes
        span = floor - self.floor
        if span <= 0:
            return
        # A stranger's floor may be any number: the shorter way.
        if span <= len(outcomes):
            gone = range(self.floor + 1, floor + 1)
        else:
            gone = [number for number in outcomes if number <= floor]  # type: ignore[assignment]
        for number in gone:
            outcome = outcomes.pop(number, None)
            if outcome is not None:
                self.bytes -= OUTCOME_WEIGHT + len(outcome.value)
        self.floor = floor

    def shrink(self, bytes_max: int) -> None:
        """Forgets the oldest outcomes until the rest fits."""
        while self.bytes > bytes_max and self.outcomes:
            self.settle(next(iter(self.outcomes)))


class ClientRow(msgspec.Struct, frozen=True, array_like=True):
    """As a snapshot has it."""

    client: str
    floor: int
    position: int
    outcomes: tuple[Outcome, ...]


class TableRows(msgspec.Struct, frozen=True, array_like=True):
    watermark: int
    clients: tuple[ClientRow, ...]
    """The one that was silent longest comes first."""


class ClientTable:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.watermark = 0
        """A client that is not here and was born below this position is refused."""
        self.bytes = 0
        self.clients: OrderedDict[str, Client] = OrderedDict()
        """The one that was silent longest comes first."""

    def __len__(self) -> int:
        return len(self.clients)

    def enter(self, name: str, born: int, acknowledged: int, position: int) -> Client | None:
        """The row that a record of this client at this position works on; None if it is too old. `leave` it
        with what has changed."""
        client = self.clients.get(name)
        if client is None:
            # A true client is never born behind its record. One that says so could outlive every watermark.
            if born < self.watermark or born > position:
                return None
            self.clients[name] = client = Client(acknowledged, position)
            self.bytes += client.bytes
            return client
        self.clients.move_to_end(name)
        client.position = position
        if acknowledged > client.floor:
            before = client.bytes
            client.settle(acknowledged)
            self.bytes += client.bytes - before
        return client

    def leave(self, client: Client, bytes_before: int) -> None:
        """The record is applied. `bytes_before`: of the client, after `enter`."""
        self.bytes += client.bytes - bytes_before
        limits = self.limits
        while len(self.clients) > 1 and (
            len(self.clients) > limits.clients_max or self.bytes > limits.table_bytes_max
        ):
            _, gone = self.clients.popitem(last=False)
            self.bytes -= gone.bytes
            self.watermark = max(self.watermark, gone.position + 1)

    def outcome_of(self, name: str, number: int) -> Outcome | None:
        client = self.clients.get(name)
        return None if client is None else client.outcomes.get(number)

    def is_settled(self, name: str, number: int, born: int) -> bool:
        """Whether this call will never be applied any more, and its outcome is not known."""
        client = self.clients.get(name)
        if client is None:
            return born < self.watermark
        return number <= client.floor

    def rows(self) -> TableRows:
        return TableRows(
            self.watermark,
            tuple(
                [
                    ClientRow(name, client.floor, client.position, tuple(client.outcomes.values()))
                    for name, client in self.clients.items()
                ]
            ),
        )

    @classmethod
    def of_rows(cls, rows: TableRows, limits: Limits) -> ClientTable:
        table = cls(limits)
        table.watermark = rows.watermark
        for row in rows.clients:
            client = Client(row.floor, row.position)
            client.outcomes = {outcome.number: outcome for outcome in row.outcomes}
            client.bytes += sum([OUTCOME_WEIGHT + len(outcome.value) for outcome in row.outcomes])
            table.clients[row.client] = client
            table.bytes += client.bytes
        return table
