"""Random histories of calls, played on two machines and on a model that remembers everything.

The model is the specification of "exactly once": it has every outcome of every call, and says of each call
that comes whether it must be applied now, must be answered with its first outcome, or must be refused as too
old.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from objects_kit import TRUE, Kit, journal

from totempole.objects.clients import CLIENT_WEIGHT, OUTCOME_WEIGHT

METHODS = ("add", "draw", "stamp", "refuse", "fail")

Step = tuple[str, int, int]
"""What, and two numbers that say which."""

KINDS = ("send", "send", "send", "retry", "retry", "regroup", "acknowledge", "leave", "snapshot", "garbage")


def steps_of(seed: int, count: int = 60) -> Iterator[Step]:
    random = Random(seed)
    for _ in range(count):
        yield random.choice(KINDS), random.randrange(100), random.randrange(100)


class Sender:
    """A program that calls."""

    def __init__(self, name: str, born: int) -> None:
        self.name = name
        self.born = born
        self.number = 0
        self.acknowledged = 0
        self.sent: list[tuple[int, str, int]] = []
        """Number, method, argument."""


class Model:
    """Unbounded memory, and the table's rules in a few lines."""

    def __init__(self, clients_max: int) -> None:
        self.clients_max = clients_max
        self.known: dict[str, tuple[int, int]] = {}
        """Floor and last position. The one that was silent longest comes first."""
        self.watermark = 0
        self.first: dict[tuple[str, int], Any] = {}

    def admits(self, name: str, born: int, acknowledged: int, position: int) -> bool:
        if name not in self.known and born < self.watermark:
            return False
        floor, _ = self.known.pop(name, (0, 0))
        self.known[name] = (max(floor, acknowledged), position)
        return True

    def evict(self) -> None:
        while len(self.known) > self.clients_max:
            oldest = next(iter(self.known))
            _, position = self.known.pop(oldest)
            self.watermark = max(self.watermark, position + 1)


class Play:
    def __init__(self, kit: Kit = TRUE, clients_max: int = 3) -> None:
        self.kit = kit
        self.cls = journal(kit, clients_max=clients_max)
        self.machine = kit.opened(self.cls)
        self.other = kit.opened(self.cls)
        """It is made anew of snapshots, now and then."""
        self.model = Model(clients_max)
        self.position = 1
        self.time_us = 1
        self.made = 0
        self.senders = [Sender(f"c{each}", 1) for each in range(5)]
        self.log: list[Any] = []
        self.entries: list[tuple[str, int, int]] = []
        self.total = 0

    def run(self, steps: Iterator[Step]) -> None:
        for what, one, two in steps:
            getattr(self, what)(one, two)
        self.compare()

    # Steps

    def send(self, one: int, two: int) -> None:
        sender = self.senders[one % len(self.senders)]
        fresh = []
        for _ in range(two % 3 + 1):
            sender.number += 1
            self.made += 1
            fresh.append((sender.number, METHODS[(one + two + self.made) % len(METHODS)], self.made))
        sender.sent += fresh
        self._append(sender, fresh)

    def retry(self, one: int, two: int) -> None:
        if self.log:
            self._feed(self.log[-1 - (one * two) % len(self.log)])

    def regroup(self, one: int, two: int) -> None:
        """Some calls that were sent before, in any records, with a new one behind them."""
        sender = self.senders[one % len(self.senders)]
        if sender.sent:
            start = two % len(sender.sent)
            self._append(sender, sender.sent[start : start + 3])

    def acknowledge(self, one: int, two: int) -> None:
        sender = self.senders[one % len(self.senders)]
        sender.acknowledged = max(sender.acknowledged, sender.number - two % 4)

    def leave(self, one: int, two: int) -> None:
        """Another program comes in its place. It was born some time ago."""
        self.made += 1
        born = max(0, self.position - two % 4)
        self.senders[one % len(self.senders)] = Sender(f"n{self.made}", born)

    def snapshot(self, one: int, two: int) -> None:
        self.other = self.kit.again((self.machine, self.other)[one % 2], self.cls)
        assert self.other.applied == self.position, "the snapshot is of another position"
        self.compare()

    def garbage(self, one: int, two: int) -> None:
        payload = (b"", b"\xc1o\x01nonsense", b"a text", bytes([one, two]))[two % 4]
        for machine in (self.machine, self.other):
            assert machine.apply(payload, self.position, self.time_us) == []
        self.position += 1

    # What happens

    def _append(self, sender: Sender, calls: list[tuple[int, str, int]]) -> None:
        record = (sender.name, sender.born, sender.acknowledged, calls)
        self.log.append(record)
        self._feed(record)

    def _feed(self, record: Any) -> None:
        name, born, acknowledged, calls = record
        of, records = self.machine.object_type, self.kit.records
        made = [of.encode_call(method, (what,), number=number) for number, method, what in calls]
        payload = records.encode(records.Calls(name, born, acknowledged, 1, tuple(made)))
        # The clock of an origin may run backwards, that of the order never does.
        time_us = self.time_us + (self.position * 7_919) % 13 - 6
        self.time_us = max(self.time_us, time_us)
        outcomes = self.machine.apply(payload, self.position, time_us)
        self._judge(record, outcomes)
        assert [shown(each) for each in self.other.apply(payload, self.position, time_us)] == [
            shown(each) for each in outcomes
        ]
        self.position += 1

    def _judge(self, record: Any, outcomes: list[Any]) -> None:
        assert [shown(each) for each in outcomes] == self._expected(record)
        for each in outcomes:
            if each.kind != self.kit.Kind.TOO_OLD:
                assert self.machine.outcome_of(each.client, each.number) == each or self._is_gone(each)
        assert (self.machine.state.entries, self.machine.state.total) == (self.entries, self.total)
        assert len(self.machine.table) <= self.model.clients_max
        assert self.machine.table.watermark == self.model.watermark

    def _is_gone(self, outcome: Any) -> bool:
        return self.model.known.get(outcome.client, (1 << 62, 0))[0] >= outcome.number

    def _expected(self, record: Any) -> list[Any]:
        name, born, acknowledged, calls = record
        expected = []
        is_admitted = self.model.admits(name, born, acknowledged, self.position)
        for index, (number, method, what) in enumerate(calls):
            if not is_admitted or number <= self.model.known[name][0]:
                expected.append((name, number, self.position, 3, None))
                continue
            if (name, number) not in self.model.first:
                self.model.first[name, number] = (
                    name,
                    number,
                    self.position,
                    *self._done(name, index, method, what),
                )
            expected.append(self.model.first[name, number])
        self.model.evict()
        return expected

    def _done(self, name: str, index: int, method: str, what: int) -> tuple[int, Any]:
        token = self.position * 65_536 + index
        if method in ("add", "draw", "stamp"):
            self.entries.append((name, what, token))
        if method == "add":
            self.total += what
            return 0, self.kit.Codec(int).encode(self.total)
        if method == "draw":
            return 0, self.kit.Codec(int).encode(Random(token).randrange(1 << 30))
        if method == "stamp":
            return 0, self.kit.Codec(float).encode(self.time_us / 1_000_000)
        if method == "refuse":
            return 1, f"no {what}".encode()
        self.total += 1
        return 2, f"KeyError: {what}".encode()

    def compare(self) -> None:
        assert self.machine.digest() == self.other.digest()
        assert self.machine.snapshot().encode() == b"".join(self.other.pieces())
        assert self.machine.checkpoint == self.other.checkpoint
        for machine in (self.machine, self.other):
            clients = machine.table.clients.values()
            assert machine.table.bytes == sum([each.bytes for each in clients])
            assert all(each.bytes == weight(each) for each in clients)


def weight(client: Any) -> int:
    return CLIENT_WEIGHT + sum([OUTCOME_WEIGHT + len(each.value) for each in client.outcomes.values()])


class TightPlay(Play):
    """Outcomes are forgotten all the time. The model does not know which: two machines must agree on it, and
    nothing is applied twice."""

    CLIENT_BYTES = 1_000
    TABLE_BYTES = 2_500

    def __init__(self, kit: Kit = TRUE) -> None:
        super().__init__(kit)
        self.cls = journal(
            kit, clients_max=10, client_bytes_max=self.CLIENT_BYTES, table_bytes_max=self.TABLE_BYTES
        )
        self.machine, self.other = kit.opened(self.cls), kit.opened(self.cls)

    def _judge(self, record: Any, outcomes: list[Any]) -> None:
        table = self.machine.table
        assert table.bytes <= self.TABLE_BYTES or len(table) == 1
        assert all(each.bytes <= self.CLIENT_BYTES for each in table.clients.values())
        done = [what for _, what, _ in self.machine.state.entries]
        assert len(done) == len(set(done)), "a call was applied twice"
        for each in outcomes:
            if each.kind != 3 and each.position < self.position:
                assert self.model.first[each.client, each.number] == shown(each)
            elif each.kind != 3:
                self.model.first[each.client, each.number] = shown(each)


def shown(outcome: Any) -> tuple[Any, ...]:
    value = None if outcome.kind == 3 else outcome.value
    return (outcome.client, outcome.number, outcome.position, int(outcome.kind), value)
