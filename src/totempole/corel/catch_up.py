"""Catching up: how a replica that is far behind gets the green runs that it lacks, and who gives them to it.

A member that lacks more than the representative has at hand looks on (`recovery`). It asks the representative
for green runs, one piece at a time, while its own disk keeps up. The donor answers from memory, or from its
disk, which it recalls; if the donor has trimmed what is asked for, it gives its log's mark, and the member's
green prefix begins there. Once the member is near enough it says so, and the handler begins anew for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from totempole.core.inputs import Recalled
from totempole.core.io import Scope
from totempole.corel.frames import Agreed, Begun, Colour, Frame, Mark, Placed, decode
from totempole.corel.journal import Journal
from totempole.corel.messages import GROUP, NO_ROUND, CaughtUp, Fetch, Fetched, Message, Round, inbox
from totempole.corel.recovery import Plan
from totempole.corel.run import Run, unpack_run
from totempole.corel.tracing import LogTrace
from totempole.corel.zones import without_pending
from totempole.types import ProcessorId

FETCH_BYTES = 1024 * 1024
"""What is fetched at once."""


class Send(Protocol):
    def __call__(self, message: Message, group: str = GROUP) -> None: ...


class CatchUp:
    """Both ends. The replica says when views and rounds begin, and when it looks on."""

    def __init__(
        self,
        scope: Scope,
        journal: Journal,
        trace: LogTrace,
        step: Callable[[Frame], None],
        send: Send,
        begun_anew: Callable[[], None],
    ) -> None:
        """`step` changes the replica's state. `begun_anew`: its green prefix begins at another's mark."""
        self._scope = scope
        self._journal = journal
        self._trace = trace
        self._step = step
        self._send = send
        self._begun_anew = begun_anew
        self._round = NO_ROUND
        self._plan: Plan | None = None
        """While it looks on."""
        self._asked_from = -1
        self._fetched: Fetched | None = None
        """Has come, and is not taken yet."""
        self._said_caught_up = False
        self._recalls: dict[int, tuple[ProcessorId, Fetch]] = {}

    def end_view(self) -> None:
        """What has come, and what is being read for others, was asked for in the view that is over."""
        self._fetched = None
        self._recalls.clear()

    def begin_round(self, round: Round) -> None:
        self._round = round
        self._plan = None
        self._said_caught_up = False

    # The member that is behind

    def look_on(self, plan: Plan) -> None:
        self._plan = plan
        self._asked_from = -1
        self.fetch_more()

    def came(self, message: Fetched) -> None:
        self._fetched = message

    def fetch_more(self) -> None:
        """Takes what has come, and asks for what comes next, one piece at a time, while the disk keeps up."""
        plan, journal = self._plan, self._journal
        assert plan is not None, "who looks on has a plan"
        fetched, self._fetched = self._fetched, None
        if fetched is not None and fetched.start == journal.zones.green_runs and fetched.log == plan.log:
            self._take(plan, fetched)
        if self._said_caught_up:
            return
        start = journal.zones.green_runs
        if start == self._asked_from or journal.waiting_bytes > FETCH_BYTES:
            return
        self._asked_from = start
        self._send(Fetch(plan.log, self._round, plan.representative, start, FETCH_BYTES))

    def _take(self, plan: Plan, message: Fetched) -> None:
        zones = self._journal.zones
        if not zones.log:
            self._step(Agreed(zones.green_runs, (), zones.green_runs, zones.committed, plan.log))
        if message.mark is not None:
            self._step(Begun(message.mark))
            self._begun_anew()
        for run in message.runs:
            self._step(Placed(run, Colour.GREEN))
        self._trace.fetched(len(message.runs), message.start)
        if zones.green_runs >= message.near:
            self.say_caught_up(plan)

    def say_caught_up(self, plan: Plan) -> None:
        """Once in a round. So does a replica whose disk has a new name."""
        if not self._said_caught_up:
            self._said_caught_up = True
            message = CaughtUp(plan.log, self._round)
            self._journal.gate(lambda: self._send(message))

    # The donor

    def answer(self, asker: ProcessorId, fetch: Fetch) -> None:
        zones = self._journal.zones
        if fetch.start < zones.recent_from:
            # The green line on disk may be older than what is no longer at hand.
            self._journal.gate(lambda: self._recall(asker, fetch))
            return
        runs: list[Run] = []
        size = 0
        for run in zones.recent_runs(min(fetch.start, zones.green_runs)):
            runs.append(run)
            size += run.size
            if size >= fetch.bytes_max:
                break
        self._give(asker, fetch, tuple(runs), None)

    def _recall(self, asker: ProcessorId, fetch: Fetch) -> None:
        self._trace.recalled(asker, fetch)
        self._recalls[self._scope.recall(fetch.start, fetch.bytes_max)] = (asker, fetch)

    def recalled(self, answer: Recalled) -> None:
        asked = self._recalls.pop(answer.ticket, None)
        if asked is None:
            return  # the view is over, or the replica has left it
        mark = None if answer.mark is None else decode(answer.mark)
        assert mark is None or isinstance(mark, Mark), "a segment begins with a mark"
        self._give(*asked, tuple(map(unpack_run, answer.runs)), mark and without_pending(mark))

    def _give(self, asker: ProcessorId, fetch: Fetch, runs: tuple[Run, ...], mark: Mark | None) -> None:
        zones = self._journal.zones
        near = (zones.recent_from + zones.green_runs) // 2
        self._send(Fetched(fetch.log, fetch.round, fetch.start, runs, near, mark), inbox(asker))
