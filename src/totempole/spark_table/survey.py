"""What the driver knows of the log: where it begins and ends, how large its parts are, and who has them.

All replicas are asked at once, each on a thread of its own, over a connection that is kept. One that is away
is waited for shortly, and the next time not at all. The order ends where the replica ends that has most: what
is green at one of them is green for good.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from totempole.client.blocking_log_reader import Link, LogReader
from totempole.client.endpoint import Endpoint
from totempole.client.log_endpoints import ANSWER_S_MAX, Replicas, check_measures, unexpected
from totempole.corel.run import log_name_of
from totempole.errors import ConfigurationError, LogError, LogTrimmedError, SessionError, TlsError, TotemError
from totempole.log import reader as files
from totempole.log.selection import LogSelection, Meter
from totempole.session.log_frames import (
    Answer,
    AskSegments,
    AskStatus,
    Failed,
    Measure,
    Measured,
    Reached,
    ReplicaStatus,
    Request,
    Segments,
    Welcome,
)
from totempole.spark_table.access import REFUSALS, Access, resolved
from totempole.spark_table.planning import Sizes

GRACE_S = 1.0
"""Once a replica has answered, the others are waited for so long."""
PAUSE_S = 0.2
"""Between two rounds of asking, while none answers."""
RESOLVE_S = 10.0
"""While a replica is away, or a member of the replica set does not answer, names are looked up so often."""
AHEAD_S = 5.0
"""A position that was green once is waited for so long, if all replicas say that they have not got it."""


class View(NamedTuple):
    log: int
    """The log's own name."""
    first: int
    """The earliest position that a replica has kept."""
    position: int
    """Of the next record to become green."""
    sizes: Sizes
    replicas: tuple[str, ...]
    """Those that have all before the position."""
    is_whole: bool
    """All members of the replica set have answered."""


class Survey(Protocol):
    def look(self) -> View:
        """How it is now."""
        ...

    def measure(self, request: Measure) -> Measured:
        """How far a number of records or bytes reaches. Raises LogTrimmedError."""
        ...

    def close(self) -> None: ...


def survey_of(access: Access) -> Survey:
    return DirectorySurvey(Path(access.directory)) if access.directory else ReplicaSurvey(access)


def look_as_far_as(survey: Survey, position: int, patience_s: float) -> View | None:
    """The view, once the log has got to a position that was green before. A replica that had it may be away,
    and the others may be about to order it: so it is waited for. None: the log ends before it."""
    start_s = time.monotonic()
    while True:
        view = survey.look()
        if view.position >= position:
            return view
        limit_s = min(patience_s, AHEAD_S) if view.is_whole else patience_s
        if time.monotonic() - start_s >= limit_s:
            return None
        time.sleep(PAUSE_S)


# Log services


class Told(NamedTuple):
    """What one replica has answered."""

    endpoint: Endpoint
    status: ReplicaStatus
    segments: Segments


class ReplicaSurvey:
    """For one thread at a time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._links: dict[str, ReplicaLink] = {}
        self._log = 0
        """The log that the first replicas had: another one is not looked at."""
        self._members: frozenset[int] = frozenset()
        self._hosts: dict[str, list[Endpoint]] = {}
        """Behind each name, when it was last looked up."""
        self._is_whole = True
        """All members answered when they were last asked."""
        self._resolved_s = float("-inf")
        self._order: tuple[str, ...] = ()
        """Who is asked first by `measure`."""

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links = {}

    def look(self) -> View:
        end_s = time.monotonic() + self._access.patience_s
        while True:
            self._resolve()
            told = self._ask_all(end_s)
            if told:
                return self._view(told)
            errors = [link.error for link in self._links.values()]
            if all(link.is_refused for link in self._links.values()):
                raise next(filter(None, errors))
            if time.monotonic() >= end_s:
                texts = "; ".join(str(error) for error in errors if error) or "they do not answer"
                raise SessionError(
                    f"option replicas = {','.join(self._access.replicas)}: none could be read from for "
                    f"{self._access.patience_s:g} s (option timeout): {texts}"
                )
            time.sleep(PAUSE_S)

    def measure(self, request: Measure) -> Measured:
        trimmed: LogTrimmedError | None = None
        error: TotemError = SessionError("no replica is known yet")
        for name in self._order:
            link = self._links.get(name)
            if link is None:
                continue
            try:
                (answer,) = link.ask(self._log, request).result(self._access.patience_s)
            except TimeoutError:
                error = SessionError(f"the replica at {name} takes too long to answer (option timeout)")
            except LogTrimmedError as found:
                trimmed = found
            except TotemError as found:
                error = found
            else:
                if isinstance(answer, Measured):
                    return answer
                error = unexpected(answer)
        raise trimmed or error

    # Asking

    def _resolve(self) -> None:
        """Hosts behind a name may change: those of a new set of replicas, or one that was moved. A replica
        that was added is missing while all links are well."""
        now_s = time.monotonic()
        is_well = self._is_whole and all(link.error is None for link in self._links.values())
        if self._links and (is_well or now_s - self._resolved_s < RESOLVE_S):
            return
        self._resolved_s = now_s
        for named in self._access.named:
            # Without an answer, those that are known are more likely to be right than none.
            self._hosts[str(named)] = resolved(named) or self._hosts.get(str(named)) or [named]
        endpoints = {str(endpoint): endpoint for hosts in self._hosts.values() for endpoint in hosts}
        for name in [name for name in self._links if name not in endpoints]:
            self._links.pop(name).close()
        for name, endpoint in endpoints.items():
            if name not in self._links:
                self._links[name] = ReplicaLink(endpoint)

    def _ask_all(self, end_s: float) -> list[Told]:
        links = list(self._links.values())
        awaited = [link for link in links if link.is_awaited] or links
        asked = {link: link.look(self._log) for link in links}
        waiting = {asked[link] for link in awaited}
        while waiting:
            done, waiting = wait(waiting, max(0.0, end_s - time.monotonic()), FIRST_COMPLETED)
            if not done:
                break
            if any(future.exception() is None for future in done):
                end_s = min(end_s, time.monotonic() + GRACE_S)
        told = []
        for link, future in asked.items():
            if future.done() and future.exception() is None:
                status, segments = future.result()
                assert isinstance(status, ReplicaStatus), "the link has checked it"
                assert isinstance(segments, Segments), "likewise"
                told.append(Told(link.endpoint, status, segments))
        return told

    def _view(self, told: list[Told]) -> View:
        log = self._log_of(told)
        told = [each for each in told if each.status.log == log]
        newest = max(told, key=lambda each: each.status.runs).status
        current = [each for each in told if each.status.processor in newest.replicas]
        if not current:
            raise ConfigurationError(
                f"option replicas = {','.join(self._access.replicas)}: those that answer (processors "
                f"{_listed(each.status.processor for each in told)}) are not in the log's replica set any "
                f"more, or not yet: it is {_listed(newest.replicas)}. Name some of these"
            )
        members = frozenset(newest.replicas)
        if members != self._members:
            self._members, self._resolved_s = members, float("-inf")
        position = max(each.segments.position for each in current)
        whole = [each for each in current if each.segments.position >= position]
        longest = min(whole, key=lambda each: each.segments.first)
        self._is_whole = members <= {each.status.processor for each in current}
        self._log = log
        self._order = tuple([str(each.endpoint) for each in (*whole, *current)])
        return View(
            log,
            min(each.segments.first for each in current),
            position,
            Sizes(longest.segments.sizes, position),
            tuple([str(each.endpoint) for each in whole]),
            self._is_whole,
        )

    def _log_of(self, told: list[Told]) -> int:
        logs = {each.status.log: each for each in told}
        if self._log in logs:
            return self._log
        if len(logs) > 1:
            first, second, *_ = logs.values()
            raise ConfigurationError(
                f"option replicas: {first.endpoint} has log {first.status.log:x}, and {second.endpoint} has "
                f"log {second.status.log:x}: they belong to different clusters, or one was rescued"
            )
        return next(iter(logs))


def _listed(processors: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(processors)))


Question = tuple[int, tuple[Request, ...], "Future[list[Answer]]"]


class ReplicaLink:
    """One log service, asked on a thread of its own: one that hangs holds up nobody."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.error: Exception | None = None
        """Why it did not answer when it was last asked."""
        self._failures = 0
        """So many in succession."""
        self._questions: SimpleQueue[Question | None] = SimpleQueue()
        self._looking: Future[list[Answer]] | None = None
        self._connection: tuple[ExitStack, Link, Welcome, Replicas] | None = None
        threading.Thread(target=self._run, name=f"replica {endpoint}", daemon=True).start()

    @property
    def is_awaited(self) -> bool:
        """Whether an answer is likely to come soon."""
        return self.error is None and (self._looking is None or self._looking.done())

    @property
    def is_refused(self) -> bool:
        """It would say the same again. One that hangs up at once may have been about to end."""
        if isinstance(self.error, TlsError):
            return self._failures >= REFUSALS
        return isinstance(self.error, LogError)

    def look(self, log: int) -> Future[list[Answer]]:
        """Its status and its segments."""
        if self._looking is None or self._looking.done():
            self._looking = self.ask(log, AskStatus(), AskSegments())
        return self._looking

    def ask(self, log: int, *requests: Request) -> Future[list[Answer]]:
        """An answer to each. `log`: no other is wanted, unless it is 0."""
        future: Future[list[Answer]] = Future()
        self._questions.put((log, requests, future))
        return future

    def close(self) -> None:
        """Does not wait for it."""
        self._questions.put(None)

    # On the thread

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            log, requests, future = question
            try:
                answers = self._answers(log, requests)
            except LogTrimmedError as error:
                future.set_exception(error)
            except Exception as error:  # whatever it is, somebody waits for it
                self._hang_up()
                self.error = error
                self._failures += 1
                future.set_exception(error)
            else:
                self.error = None
                self._failures = 0
                future.set_result(answers)
        self._hang_up()

    def _answers(self, log: int, requests: Sequence[Request]) -> list[Answer]:
        if self._connection is not None:
            try:
                return [self._answer(request) for request in requests]
            except SessionError:
                self._hang_up()  # it may have been idle for long, and closed there
        self._connect(log)
        return [self._answer(request) for request in requests]

    def _connect(self, log: int) -> None:
        reader = LogReader([self.endpoint], name="spark")
        reader.log_id = log
        replicas = reader.replicas()
        with ExitStack() as open_now:
            link, welcome = open_now.enter_context(reader.connected(replicas))
            if not welcome.log:
                raise SessionError(f"the log at {self.endpoint} is not founded yet")
            try:
                check_measures(AskSegments(), welcome)
            except SessionError as error:
                raise LogError(f"{self.endpoint}: {error}") from None
            self._connection = open_now.pop_all(), link, welcome, replicas

    def _answer(self, request: Request) -> Answer:
        assert self._connection is not None, "it is connected"
        _, link, _, replicas = self._connection
        link.send(request)
        while isinstance(answer := link.next(ANSWER_S_MAX), Reached):
            pass  # it takes long
        if isinstance(answer, Failed):
            raise replicas.refused(answer)
        expected = {AskStatus: ReplicaStatus, AskSegments: Segments, Measure: Measured}[type(request)]
        if not isinstance(answer, expected):
            raise unexpected(answer)
        return answer

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection[0].close()
            self._connection = None


# Files


class DirectorySurvey:
    """A log's directory, beside a node that writes or without one."""

    def __init__(self, directory: Path) -> None:
        self._reader = files.LogReader(directory)
        self._end: files.Cursor | None = None

    def close(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None

    def look(self) -> View:
        end = self._read_to_end()
        zones = end.zones
        if not zones.log:
            raise SessionError(f"{self._reader.directory}: the log is not founded yet")
        position = zones.position
        sizes = Sizes(self._reader.sizes(end), position)
        return View(zones.log, self._reader.earliest(position), position, sizes, (), True)

    def _read_to_end(self) -> files.Cursor:
        if self._end is not None:
            try:
                for _ in self._end.runs():
                    pass
            except LogTrimmedError:  # it was not looked at for long
                self.close()
        if self._end is None:
            self._end = self._reader.at_end()
        return self._end

    def measure(self, request: Measure) -> Measured:
        selection = LogSelection(request.logs, request.without)
        meter = Meter(
            request.start, request.stop, selection, rows_max=request.rows_max, bytes_max=request.bytes_max
        )
        if not meter.is_done:
            for ordered in self._reader.runs(request.start, request.stop):
                log = log_name_of(ordered.run)
                stop = ordered.position + ordered.positions
                if not meter.take(log, ordered.position, stop, ordered.run.size):
                    break
        return Measured(meter.position, meter.rows, meter.bytes)
