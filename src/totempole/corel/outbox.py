"""What a replica has to send: red runs that not all members of the view have, and then its own new runs.

Step 7 of recovery (COReL §5.5.2) in the order of figure 3.7: a run is sent again by the lowest member that
has it, and not before those that come before it in the sender's queue. A replica's own new runs come after
all of these, for they may depend on them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from totempole.corel.run import NO_STAMP, Run, RunId, RunKind
from totempole.types import ProcessorId


class _Again(NamedTuple):
    run: Run
    sender: ProcessorId


class Outbox:
    def __init__(self, me: ProcessorId, window_bytes: int) -> None:
        self.bytes = 0
        """Of our own runs that were not delivered yet."""
        self._me = me
        self._window_bytes = window_bytes
        self._life = 0
        self._number = 0
        self._own: deque[Run] = deque()
        self._sent = 0
        """So many of the first have been sent since the handler ended."""
        self._under_way: dict[RunId, int] = {}
        """Bytes of our own runs that were sent and are not ordered, or (in a minority) not delivered."""
        self._under_way_bytes = 0
        self._again: OrderedDict[RunId, _Again] = OrderedDict()
        """Runs that not all have, until they are delivered."""
        self._unsent: deque[RunId] = deque()
        """Those of them that nobody was seen to send, in the order of the queue."""

    def open(self, life: int) -> None:
        """A new life: what was not delivered is lost, and was promised to nobody."""
        self._life = life
        self._number = 0
        self._own.clear()
        self.bytes = 0
        self.restart(())

    def add(self, kind: RunKind, count: int, body: bytes, time_us: int) -> Run:
        self._number += 1
        run = Run(RunId(self._me, self._life, self._number), NO_STAMP, time_us, kind, count, body)
        self._own.append(run)
        self.bytes += run.size
        return run

    def holds(self, run: RunId) -> bool:
        own = self._own
        return self.is_own(run) and bool(own) and own[0].id.number <= run.number <= own[-1].id.number

    def is_own(self, run: RunId) -> bool:
        return run.origin == self._me and run.life == self._life

    def restart(self, again: Iterable[tuple[Run, ProcessorId]]) -> None:
        """The handler has ended. `again`: runs that not all members have, in the order of the queue, and who
        sends each. Of our own, all that was passed over is to be sent again."""
        self._again = OrderedDict((run.id, _Again(run, sender)) for run, sender in again)
        self._unsent = deque(self._again)
        self._sent = 0
        self._under_way.clear()
        self._under_way_bytes = 0

    def pump(self) -> Iterator[tuple[Run, bool]]:
        """What may be sent now, and whether it is sent again."""
        while self._unsent:
            each = self._again.get(self._unsent[0])
            if each is not None and each.sender != self._me:
                return  # it comes first
            self._unsent.popleft()
            if each is not None:
                yield each.run, True
        if self._again:
            return
        while self._sent < len(self._own) and self._under_way_bytes < self._window_bytes:
            run = self._own[self._sent]
            self._sent += 1
            self._under_way[run.id] = run.size
            self._under_way_bytes += run.size
            yield run, False

    def delivered_again(self, run: RunId) -> None:
        self._again.pop(run, None)

    def delivered(self, run: RunId, is_ordering: bool) -> None:
        """One of our own has been delivered, and taken."""
        mine = self._own.popleft()
        assert mine.id == run, "our runs come back in the order in which they left"
        self._sent -= 1
        self.bytes -= mine.size
        if not is_ordering:
            self.ordered(run)

    def ordered(self, run: RunId) -> None:
        self._under_way_bytes -= self._under_way.pop(run, 0)
