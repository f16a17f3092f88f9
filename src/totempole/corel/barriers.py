"""Read barriers: a linearisable read costs a question to the others, and no disk.

A read is not stale if its program has taken every run that was green anywhere when the read began. No replica
can tell that alone. While it was paused, perhaps with the ring's token in hand, the others may have formed a
primary component without it and ordered more; and its own messages still come back to it. So it asks: its
question is a message of the log's group, and every voter answers that is delivered the question in the same
primary component. The barrier passes when a quorum has answered and all that may have been green when the
question left is green here.

Why nothing is missed. Take a run that some replica had as green before the question left:
- It became green in a later primary component. That one was formed by a quorum, which shares a member with
  the quorum of the answers. This member answered after the question had left, and had not gone over yet. So
  the later component formed after the question, and so did its green runs.
- It became green in this one. It had been delivered there before the question had a place, so it comes
  before the question, and here it is yellow at least. The disks of a quorum had it, however that replica had
  heard of them. An answer says how many runs its sender's disk has, and is later than the question. So the
  barrier waits for the runs that a quorum may have, of those who answered with so many and those who did not
  answer, however many disks this replica waits for itself (`acknowledgements`). Where a change of the replica
  set was not green at the question's place, it waits for all that was yellow there: a member that has the
  change as green needs fewer disks for what follows.
- It became green in an earlier one. It was green here when this component was established.

Questions are counted as they are delivered, so that a number names the same question at every member, and one
answer is for all questions so far. A replica has one question under way, for all who had asked when it left;
who asks later waits for the next one. When the primary component ends, all wait for the next component, where
a new question is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from totempole.core.io import Scope
from totempole.corel.events import BarrierPassed
from totempole.corel.tracing import LogTrace
from totempole.errors import SessionError
from totempole.types import ProcessorId

ASKERS_MAX = 65_536
"""Reads that wait for a barrier at one replica."""


class _Asker(NamedTuple):
    process: int
    request: int


Line = Callable[[Mapping[ProcessorId, int]], int]
"""So many runs may have been green when a question left: of those that were delivered before it, and by what
the disks of those have who answered."""


class Barriers:
    def __init__(self, scope: Scope, trace: LogTrace, me: ProcessorId) -> None:
        self._tell = scope.tell
        self._trace = trace
        self._me = me
        self._waiting: list[_Asker] = []
        """For the next question."""
        self._asking: list[_Asker] = []
        """For the question under way."""
        self._requests = 0
        """So many barriers were asked for."""
        self._asking_for = 0
        """So many of them, when the question left."""
        self._is_under_way = False
        self._number = 0
        """Of the question under way, once it has been delivered here."""
        self._line: Line
        """How much may have been green then."""
        self._asked = 0
        """Questions that were delivered in this primary component."""
        self._owed = 0
        """The last one of another replica."""
        self._told = 0
        """The last one that we have answered."""
        self._answered: dict[ProcessorId, tuple[int, int]] = {}
        """By member: questions, and the runs on its disk."""

    @property
    def has_work(self) -> bool:
        """Whether there is something to send, or to wait for, in a primary component."""
        return self._is_under_way or bool(self._waiting) or self._owed > self._told

    # Programs

    def wait(self, process: int, request: int) -> None:
        if len(self._waiting) + len(self._asking) >= ASKERS_MAX:
            raise SessionError(f"{ASKERS_MAX} reads wait for a barrier, as many as can: try again later")
        self._requests += 1
        self._waiting.append(_Asker(process, request))
        self._trace.barrier("asked", self._requests)

    def forget(self, process: int) -> None:
        """It is gone: nobody waits for its answers."""
        waiting, asking = len(self._waiting), len(self._asking)
        self._asking = [each for each in self._asking if each.process != process]
        self._waiting = [each for each in self._waiting if each.process != process]
        if not self._waiting and (waiting or (asking and not self._asking)):
            self._trace.barrier("forgotten", self._requests)

    # The primary component

    def restart(self) -> None:
        """A primary component has ended. Its questions and answers say nothing about the next one."""
        self._waiting = [*self._asking, *self._waiting]
        self._asking = []
        self._is_under_way = False
        self._number = self._asked = self._owed = self._told = 0
        self._answered.clear()

    def ask(self) -> bool:
        """Whether a question must leave now."""
        if self._is_under_way or not self._waiting:
            return False
        self._asking, self._waiting = self._waiting, []
        self._asking_for = self._requests
        self._is_under_way = True
        return True

    def asked(self, sender: ProcessorId, durable: int, line: Line) -> None:
        """A question was delivered. `durable`: so many runs are on this replica's own disk."""
        self._asked += 1
        if sender == self._me:
            self._number, self._line = self._asked, line
            self._answered[sender] = self._asked, durable
        else:
            self._owed = self._asked

    def answer(self) -> int:
        """The questions that another waits for: so many; 0: none."""
        if self._owed <= self._told:
            return 0
        self._told = self._asked
        return self._told

    def answered(self, sender: ProcessorId, count: int, durable: int) -> None:
        assert count <= self._asked, "what is answered was delivered before"
        if sender != self._me:
            self._answered[sender] = count, durable

    def settle(self, green_runs: int, is_quorum: Callable[[set[ProcessorId]], bool]) -> None:
        """Passes, if it can. `is_quorum`: whether these members are one."""
        number = self._number
        if not number:
            return
        there = {who: durable for who, (count, durable) in self._answered.items() if count >= number}
        if not is_quorum(set(there)) or green_runs < self._line(there):
            return
        passed, self._asking = self._asking, []
        self._is_under_way = False
        self._number = 0
        self._trace.barrier("passed", self._asking_for, green_runs)
        for asker in passed:
            self._tell(BarrierPassed(*asker, green_runs))
