"""`totem log diff`: the first position where two replicas part: in their logs, or in an object's outcomes or
states.

Records are compared one by one. Two machines, each begun with a snapshot of its own replica, apply them, and
what they answer is compared. Their states are compared where they begin, where a replica has a snapshot, and
at the end; if they differ, the first record after which they do is searched for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from rich.text import Text

from totempole.cli import options
from totempole.cli.event_text import on_one_line, shown
from totempole.cli.log_source import Span
from totempole.cli.log_state import command_rows
from totempole.cli.object_log import (
    CLASS_HELP,
    ObjectLog,
    check_object_name,
    load_class,
    named_source,
    state_of,
)
from totempole.cli.output import Screen
from totempole.client.log_records import Record
from totempole.errors import LogDamagedError, TotemError
from totempole.log.snapshots import StoredHead
from totempole.objects.machine import ObjectMachine
from totempole.objects.records import Outcome
from totempole.objects.snapshot_transfer import SnapshotError

SHOWN_MAX = 200

EXAMPLES = """\
examples:
  totem log diff /backup/1/log /backup/2/log bank --class bank:Bank      two copies
  totem log diff /run/a/clients.sock /run/b/clients.sock bank --class bank:Bank
  totem log diff 10.0.0.1:5411 10.0.0.2:5411 bank --class bank:Bank --tls-certificate …
  totem log diff /backup/1/log /backup/2/log bank                        the logs only

A and B are directories of logs or of nodes, sockets of daemons on this host, or log services elsewhere
([log] listen). Positions that both have are compared: records, outcomes and states. For outcomes and states
the class is imported: its code runs here, once for each side, from that side's oldest snapshot on.

Exits 0 when nothing differs, 1 when something does, 2 when that cannot be told.
"""


class Difference(NamedTuple):
    part: str
    """log, record, outcome, state or snapshot."""
    position: int
    """Of the first record after which they differ, as far as can be told."""
    text: str
    a: Any
    b: Any


class Compared(NamedTuple):
    first: int
    stop: int
    records: int
    states: int
    """How often they were compared."""


def add_diff(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("a", metavar="A", help="a replica")
    parser.add_argument("b", metavar="B", help="another")
    parser.add_argument("object", type=check_object_name, metavar="OBJECT", help="its name")
    parser.add_argument("--class", dest="cls", metavar="MODULE:CLASS", help=CLASS_HELP)
    options.add_json(parser, "the same as data")
    tls = parser.add_argument_group("log services on other hosts")
    tls.add_argument("--tls-certificate", metavar="FILE", help="who you are (PEM)")
    tls.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    tls.add_argument("--tls-authorities", metavar="FILE", help="whose word about the services counts (PEM)")
    tls.add_argument("--tls-name", metavar="NAME", help="what their certificates call them, if not ADDRESS")
    parser.set_defaults(run=run_diff)


def run_diff(arguments: argparse.Namespace) -> int:
    cls = load_class(arguments.cls) if arguments.cls else None
    screen = Screen(arguments.json)
    a, b = (
        ObjectLog(arguments.object, named_source(text, arguments), text)
        for text in (arguments.a, arguments.b)
    )
    difference, compared = compare(a, b, cls)
    screen.save_json(_document(a, b, difference, compared, cls))
    what = "records, outcomes and states" if cls is not None else "records"
    screen.long(
        f"object {on_one_line(a.name)}: {Span(compared.first, compared.stop)} of {a.where} and {b.where}: "
        f"{compared.records:,} records, {compared.states:,} states compared"
    )
    if difference is None:
        screen.print(Text(f"The {what} are the same.", "bold green"))
        if cls is None:
            screen.long(
                "Outcomes and states were not compared: name the object's class, --class MODULE:CLASS"
            )
        return 0
    screen.print(Text(f"They part at position {difference.position:,}: {difference.text}", "bold red"))
    screen.long(f"  {a.where}: {_short(difference.a)}")
    screen.long(f"  {b.where}: {_short(difference.b)}")
    return 1


def compare(a: ObjectLog, b: ObjectLog, cls: type[Any] | None) -> tuple[Difference | None, Compared]:
    stop = min(a.span.stop, b.span.stop)
    if a.standing.log != b.standing.log:
        text = "they are different logs: of two clusters, or one was rescued"
        names = (f"log {each.standing.log:016x}" for each in (a, b))
        return Difference("log", 0, text, *names), Compared(0, 0, 0, 0)
    if cls is None:
        return _compare_records(a, b, stop)
    return _Replay(a, b, cls, stop).compare()


# Records


def _compare_records(a: ObjectLog, b: ObjectLog, stop: int) -> tuple[Difference | None, Compared]:
    first = max(a.span.first, b.span.first)
    count = 0
    for of_a, of_b in _pairs(a, b, first, stop):
        difference = _record_difference(of_a, of_b)
        if difference is not None:
            return difference, Compared(first, stop, count, 0)
        count += 1
    return None, Compared(first, stop, count, 0)


def _pairs(
    a: ObjectLog, b: ObjectLog, first: int, stop: int
) -> Iterator[tuple[Record | None, Record | None]]:
    yield from zip_longest(a.records(first, stop), b.records(first, stop))


def _record_difference(a: Record | None, b: Record | None) -> Difference | None:
    if a is not None and b is not None and a.position == b.position:
        if (a.payload, a.time_us, a.run) == (b.payload, b.time_us, b.run):
            return None
        return Difference("record", a.position, "the records differ", _record(a), _record(b))
    if b is None or (a is not None and a.position < b.position):
        assert a is not None, "one of them is there"
        return Difference("record", a.position, "only one of them has this record", _record(a), None)
    return Difference("record", b.position, "only one of them has this record", None, _record(b))


def _record(record: Record) -> dict[str, Any]:
    rows = command_rows(record)
    return {
        "position": record.position,
        "time_us": record.time_us,
        "run": str(record.run),
        "content": [row["text"] for row in rows],
        "payload": shown(record.payload[:SHOWN_MAX]),
    }


# Outcomes and states


class _Side:
    """A replica, from one of its snapshots on."""

    def __init__(self, log: ObjectLog, cls: type[Any], stop: int) -> None:
        self.log = log
        self._cls = cls
        self.heads = [head for head in reversed(log.heads()) if head.position <= stop]
        self.base, self.start = self._find_base()
        self.machine = self._begin()
        self.snapshots = {head.position: head for head in self.heads if head != self.base}

    def _find_base(self) -> tuple[StoredHead | None, int]:
        """The oldest from which the log can be read on; the beginning of the log, if that is whole."""
        problem: TotemError | None = None
        for head in (None, *self.heads):
            try:
                if head is None and self.log.span.first > 0 and self.heads:
                    continue
                start = self.log.start(head)
                if head is not None:
                    self.log.snapshot(head)
                return head, start
            except (SnapshotError, LogDamagedError) as error:
                problem = problem or error
        raise problem or TotemError(f"{self.log.where}: no snapshot can be read")

    def _begin(self) -> ObjectMachine[Any]:
        return self.log.machine(self._cls, self.base)

    def restart(self) -> None:
        self.machine = self._begin()

    def apply(self, record: Record) -> list[Outcome]:
        return self.machine.apply(record.payload, record.position, record.time_us)

    def catch_up(self, stop: int) -> None:
        for record in self.log.records(self.start, stop):
            self.apply(record)

    def restored(self, head: StoredHead) -> ObjectMachine[Any]:
        return self.log.machine(self._cls, head)


class _Replay:
    def __init__(self, a: ObjectLog, b: ObjectLog, cls: type[Any], stop: int) -> None:
        self._a, self._b = _Side(a, cls, stop), _Side(b, cls, stop)
        self._sides = (self._a, self._b)
        self._first = max(side.start for side in self._sides)
        self._stop = stop
        self._states = 0
        self._records = 0
        if self._first > stop:
            raise TotemError(
                f"no position can be compared: {a.where} has {Span(self._a.start, a.span.stop)}, "
                f"{b.where} has {Span(self._b.start, b.span.stop)}"
            )

    def compare(self) -> tuple[Difference | None, Compared]:
        difference = self._compare()
        return difference, Compared(self._first, self._stop, self._records, self._states)

    def _compare(self) -> Difference | None:
        for side in self._sides:
            side.catch_up(self._first)
        difference = self._state_difference(self._first)
        if difference is not None:
            return difference._replace(
                text=f"{difference.text}; it is the first position where both can be compared"
            )
        agreed = self._first
        for of_a, of_b in _pairs(self._a.log, self._b.log, self._first, self._stop):
            at = min(each.position for each in (of_a, of_b) if each is not None)
            for point in self._points(agreed, at):
                difference = self._check_point(agreed, point)
                if difference is not None:
                    return difference
                agreed = point
            difference = _record_difference(of_a, of_b) or self._apply(of_a, of_b)
            if difference is not None:
                return difference
            self._records += 1
        for point in (*self._points(agreed, self._stop), self._stop):
            difference = self._check_point(agreed, point)
            if difference is not None:
                return difference
            agreed = point
        return None

    def _points(self, after: int, to: int) -> list[int]:
        """Where one of the replicas has a snapshot: records before it are in it."""
        found = {each for side in self._sides for each in side.snapshots if after < each <= to}
        return sorted(found)

    def _check_point(self, agreed: int, point: int) -> Difference | None:
        """All records before it are applied."""
        for side in self._sides:
            head = side.snapshots.get(point)
            if head is None:
                continue
            try:
                other = side.restored(head)
            except (SnapshotError, LogDamagedError) as error:
                return Difference("snapshot", point, f"a snapshot cannot be read: {error}", None, None)
            self._states += 1
            if other.digest() != side.machine.digest():
                text = (
                    f"the snapshot of {side.log.where} is not what its log gives: its host went another way "
                    f"between positions {agreed} and {point}: {_state_text(side.machine, other)}"
                )
                return Difference("snapshot", point, text, state_of(side.machine), state_of(other))
        difference = self._state_difference(point)
        return None if difference is None else self._search(agreed, point, difference)

    def _apply(self, of_a: Record | None, of_b: Record | None) -> Difference | None:
        assert of_a is not None, "the records are the same"
        assert of_b is not None, "likewise"
        answers = [self._a.apply(of_a), self._b.apply(of_b)]
        if answers[0] == answers[1]:
            return None
        first = next(
            (pair for pair in zip_longest(*answers) if pair[0] != pair[1]),
            (None, None),
        )
        text = f"a call has another outcome: {_record(of_a)['content'][0]}"
        return Difference("outcome", of_a.position, text, _outcome(first[0]), _outcome(first[1]))

    def _state_difference(self, point: int) -> Difference | None:
        a, b = (side.machine for side in self._sides)
        self._states += 1
        if a.digest() == b.digest():
            return None
        return Difference("state", max(0, point - 1), _state_text(a, b), state_of(a), state_of(b))

    def _search(self, agreed: int, point: int, found: Difference) -> Difference:
        """The first record between them after which the states differ: by halves, always from the bases."""
        positions = [record.position for record in self._a.log.records(agreed, point)]
        low, high = 0, len(positions) - 1
        best = found
        while low < high:
            middle = (low + high) // 2
            for side in self._sides:
                side.restart()
                side.catch_up(positions[middle] + 1)
            difference = self._state_difference(positions[middle] + 1)
            if difference is None:
                low = middle + 1
            else:
                high, best = middle, difference
        return best


def _state_text(a: ObjectMachine[Any], b: ObjectMachine[Any]) -> str:
    where = _where(state_of(a), state_of(b), "state")
    if where is not None:
        return where
    if (a.version, a.commands) != (b.version, b.commands):
        return f"version and commands: {a.version}, {a.commands} and {b.version}, {b.commands}"
    return "the states look the same, and what is kept of callers or hosts differs"


def _where(a: Any, b: Any, place: str) -> str | None:
    """The first place in two plain values where they differ."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            if key not in a or key not in b:
                return f"{place}.{on_one_line(key)}: only one of them has it"
            found = _where(a[key], b[key], f"{place}.{on_one_line(key)}")
            if found is not None:
                return found
        return None if list(a) == list(b) else f"{place}: its keys have another order"
    if isinstance(a, list) and isinstance(b, list):
        for index, (one, other) in enumerate(zip(a, b, strict=False)):
            found = _where(one, other, f"{place}[{index}]")
            if found is not None:
                return found
        return None if len(a) == len(b) else f"{place}: {len(a)} and {len(b)} items"
    if type(a) is type(b) and (a == b or (a != a and b != b)):
        return None
    return f"{place}: {_short(a)} and {_short(b)}"


def _outcome(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {
        "client": outcome.client,
        "number": outcome.number,
        "position": outcome.position,
        "kind": outcome.kind.name.lower(),
        "value": shown(outcome.value[:SHOWN_MAX]),
    }


def _short(value: Any) -> str:
    text = "nothing" if value is None else value if isinstance(value, str) else repr(value)
    text = on_one_line(text)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"


def _document(
    a: ObjectLog, b: ObjectLog, difference: Difference | None, compared: Compared, cls: type[Any] | None
) -> dict[str, Any]:
    return {
        "object": a.name,
        "a": a.where,
        "b": b.where,
        "same": difference is None,
        "compared": compared._asdict() | {"outcomes_and_states": cls is not None},
        "difference": None if difference is None else difference._asdict(),
    }
