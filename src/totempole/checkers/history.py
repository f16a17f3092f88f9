"""One index of a trace, built once and shared by all checks.

Lives and stays are those of `trace.lives`. Nothing here judges: wrong traces are indexed as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from totempole.checkers.property import Facts
from totempole.errors import TraceError
from totempole.trace.layers.srp import LEAVE_TIMEOUT, LEFT, RECOVERING
from totempole.trace.lives import Life, Lives, Stay
from totempole.trace.schema import Row
from totempole.types import ProcessorId, RingId


class History:
    """The rows of one run, by life, by configuration and by message."""

    def __init__(self, rows: Iterable[Row], facts: Facts | None = None) -> None:
        """`facts`: of the run that the rows are a part of."""
        lives = Lives(self.ring)
        self.lives, self.by_node = lives.lives, lives.by_node
        self.originations: list[Row] = []
        self.deliveries: list[Row] = []
        self.receives: list[Row] = []
        self.suspicions: list[Row] = []
        self.blames: list[Row] = []
        self.safe_notices: list[tuple[Life, Row]] = []
        self.committed: dict[str, dict[ProcessorId, tuple[Life, Row]]] = {}
        """For each ring, who went from Commit to Recover for it: the life, and the row that says so."""
        self.originated: dict[str, Row] = {}
        """The first origination of each message."""
        self.delivered: dict[str, dict[ProcessorId, Row]] = {}
        """Each message's deliverers, with the first delivery of each."""
        self.configurations: dict[str, Row] = {}
        """One change row for each configuration, to look its members up."""
        self.slots: dict[str, dict[int, Row]] = {}
        """For each ring the sequence numbers that carry application messages, with a row that shows it."""
        self.installers: dict[str, dict[ProcessorId, tuple[Life, Stay]]] = {}
        """For each regular configuration, who installed it."""
        self.last_at: dict[ProcessorId, int] = {}
        self._rings: dict[str, RingId] = {}
        self._numbers: dict[str, list[int]] = {}
        self._index(_in_node_order(list(rows)), lives)
        self._finish()
        self.facts = facts or Facts(
            receipts=bool(self.receives), sizes=any(row.bytes for row in self.originations)
        )

    def ring(self, text: str) -> RingId:
        """The ring or configuration that `text` names as seq@representative."""
        known = self._rings.get(text)
        if known is None:
            known = self._rings[text] = _parse_ring(text)
        return known

    def numbers(self, ring: str) -> list[int]:
        """The sequence numbers of a ring that carry application messages, in order.

        Not all integers: slots that carried recovery's encapsulated messages are none of the application's.
        """
        known = self._numbers.get(ring)
        if known is None:
            known = self._numbers[ring] = sorted(self.slots.get(ring, ()))
        return known

    def absent(self, members: Iterable[ProcessorId]) -> list[ProcessorId]:
        """Those of the members whose trace is not here at all."""
        return [node for node in members if node not in self.by_node]

    def was_killed(self, node: ProcessorId) -> bool:
        """Whether rows of one of its lives are missing."""
        return any(life.cut_short for life in self.by_node[node])

    def has_all_rows_of(self, members: Iterable[ProcessorId]) -> bool:
        return all(node in self.by_node and not self.was_killed(node) for node in members)

    def current(self, node: ProcessorId) -> Life | None:
        """The life that the node is in at the end of the trace, unless it is down."""
        lives = self.by_node.get(node)
        return lives[-1] if lives and not lives[-1].ended else None

    def life_of(self, message: str) -> Life | None:
        """The life that gave the message its identity, origin.incarnation.number."""
        origin, _, rest = message.partition(".")
        incarnation = rest.partition(".")[0]
        if not (origin.isdecimal() and incarnation.isdecimal()):
            return None
        lives = self.by_node.get(int(origin), [])
        return next((life for life in lives if life.incarnation == int(incarnation)), None)

    def life_on(self, ring: str, node: ProcessorId) -> Life | None:
        """The node's life that was on the ring: no other life ever is."""
        known = self.committed.get(ring, {}).get(node) or self.installers.get(ring, {}).get(node)
        return known[0] if known is not None else None

    def open_stays(self) -> list[tuple[Life, Stay]]:
        """The configurations in force at the end of the trace."""
        return [(life, life.stays[-1]) for life in self.lives if life.stays and not life.ended]

    def _index(self, rows: list[Row], lives: Lives) -> None:
        for row in rows:
            kind = row.kind
            life = lives.hear(row)
            if life is None:
                continue
            if kind == "deliver":
                self.deliveries.append(row)
            elif kind == "receive":
                self.receives.append(row)
                life.receipts.setdefault(row.ring, {}).setdefault(row.seq, row)
            elif kind == "originate":
                self.originations.append(row)
                life.receipts.setdefault(row.ring, {}).setdefault(row.seq, row)
            elif kind == "submit":
                life.submissions.append(row)
            elif kind == "configuration":
                self._install(life, life.stays[-1])
            else:
                self._index_rarer(life, row)

    def _index_rarer(self, life: Life, row: Row) -> None:
        match row.kind:
            case "state":
                life.states.append(row)
                if transition(row) == RECOVERING:
                    self.committed.setdefault(row.ring, {}).setdefault(row.node, (life, row))
            case "join":
                life.joins.append(row)
            case "persist" | "persisted":
                life.writes.append(row)
            case "suspect":
                self.suspicions.append(row)
            case "blame":
                self.blames.append(row)
            case "safe":
                self.safe_notices.append((life, row))

    def _install(self, life: Life, stay: Stay) -> None:
        self.configurations.setdefault(stay.name, stay.change)
        if stay.regular:
            self.installers.setdefault(stay.name, {}).setdefault(life.node, (life, stay))

    def _finish(self) -> None:
        for life in self.lives:
            if life.last is not None:
                self.last_at[life.node] = max(self.last_at.get(life.node, 0), life.last.at_us)
        self._index_messages()

    def _index_messages(self) -> None:
        originated, delivered, slots = self.originated, self.delivered, self.slots
        for row in self.originations:
            originated.setdefault(row.message, row)
            slots.setdefault(row.ring, {}).setdefault(row.seq, row)
        for row in self.deliveries:
            known = delivered.get(row.message)
            if known is None:
                delivered[row.message] = {row.node: row}
                slots.setdefault(row.ring, {}).setdefault(row.seq, row)
            elif row.node not in known:
                known[row.node] = row


def transition(row: Row) -> tuple[str, str]:
    """The states that a `state` row leads from and to."""
    return row.old_state, row.new_state


def ran_out_of_time(row: Row) -> bool:
    """Whether a `state` row says that the processor left before it was done."""
    return row.new_state == LEFT and row.reason == LEAVE_TIMEOUT


def _in_node_order(rows: list[Row]) -> list[Row]:
    if len({row.run for row in rows}) > 1:
        raise TraceError("the rows are of several runs; check one run at a time")
    last: dict[ProcessorId, int] = {}
    for row in rows:
        if last.get(row.node, -1) > row.step:
            return sorted(rows, key=itemgetter(1, 3))  # by node and step, whatever the storage did to them
        last[row.node] = row.step
    return rows


def _parse_ring(text: str) -> RingId:
    seq, at, representative = text.partition("@")
    try:
        if at:
            return RingId(int(seq), int(representative))
    except ValueError:
        pass
    raise TraceError(f"{text!r} does not name a configuration; one is written seq@representative")
