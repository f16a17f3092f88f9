"""What a program appends to the durable log, on its way to the daemon and until it has its place.

Records that wait share a run: what is appended while others are under way goes out together when one of these
is done, so that the cost of a sync is shared by all who wait for it. Records that wait for the order and
records that only wait for this host's disk travel in separate runs: in a minority the first kind waits for a
majority, and the second must not wait behind it.

Records with a fence travel in a run of their own, which takes positions as a whole or not at all.

When the connection is lost, what has a key or a fence is sent again, with the same: it takes positions once,
however often it is sent. What has neither may be in the log or not: its program is told `Unknown`, with the
receipt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from totempole.client.sending import as_bytes
from totempole.errors import SessionError
from totempole.groups.packing import LENGTH_BYTES, OVERHEAD_MAX, Batch, pack
from totempole.session import (
    KEY_BYTES_MAX,
    NAME_BYTES_MAX,
    NO_RUN,
    Append,
    ClientFrame,
    FindRun,
    HoldLog,
    RunAccepted,
    RunDurable,
    RunFenced,
    RunLost,
    RunName,
    RunPlaced,
    RunUnknown,
)
from totempole.types import FENCE_NAME_BYTES_MAX, Fence, Payload

RUNS_UNDER_WAY_MAX = 8
"""Runs of each kind that are sent and not answered. What comes meanwhile is gathered into the next."""
FULL_RUNS_UNDER_WAY_MAX = 12
"""The same where what waits fills a run: it gains nothing by waiting, and the disks have something to write
while others are on their way."""
RUN_BYTES = 420 * 1024
"""A run that has so much takes no more. Each run has a cost of its own, whatever its size: larger ones spare
the replicas CPU, as long as the ring takes them in one packet (`packet_bytes_max`). Several records with a
fence have at most so much, as `records_bytes` counts it."""
RUN_RECORDS_MAX = 4_096
"""Likewise of records."""
LOG_NAME_BYTES_MAX = 100
OBJECTS_PREFIX = "objects/"
"""Of logs that have the commands of replicated objects."""
HEAD_BYTES = 96 + NAME_BYTES_MAX + FENCE_NAME_BYTES_MAX + 2 * OVERHEAD_MAX
"""More than what an APPEND has beside keys and payloads."""

Until = Literal["green", "red"]

NO_LOG = "this node keeps no log: connect to a node whose settings have [log] enabled = true"


class RecordName(NamedTuple):
    """A record forever: what a receipt says. `hint`: it is at this position or later."""

    run: RunName
    index: int  # type: ignore[assignment]
    hint: int

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.run))}.{self.index}@{self.hint}"

    @classmethod
    def parse(cls, text: str) -> RecordName:
        name, at, hint = text.partition("@")
        try:
            if not at:
                raise ValueError
            origin, life, number, index = map(_natural, name.split("."))
            return cls((origin, life, number), index, _natural(hint))
        except ValueError:
            raise SessionError(
                f"{text[:60]!r} is no receipt: give one as str(receipt) has written it"
            ) from None


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 20:
        raise ValueError
    return int(text)


class RecordReceipt:
    """A receipt, without the way to ask for the position."""

    __slots__ = ("name",)

    def __init__(self, name: RecordName) -> None:
        self.name = name

    def __str__(self) -> str:
        return str(self.name)

    def __repr__(self) -> str:
        return f"Receipt({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordReceipt) and other.name[:2] == self.name[:2]

    def __hash__(self) -> int:
        return hash(self.name[:2])


UNFOUND = (
    "the daemon does not know the record: it may wait at another replica, or it was lost with the only disk "
    "that had it"
)


class LogClosedError(SessionError):
    """The node has no log open at present: nothing was appended."""

    may_pass = True


class FencedError(SessionError):
    """The fence has kept the records out: this sending of them takes no position, now and later."""

    def __init__(self, why: str, mark: int, position: int, resent: bool = False) -> None:
        super().__init__(why)
        self.mark = mark
        """That was in force."""
        self.position = position
        """Of the first record of the run that had set it; -1 if none had."""
        self.resent = resent
        """The connection was lost before the answer, and the session has sent the records again. The first
        sending may be what has moved the mark: the records from `position` on tell."""


class InDoubt(SessionError):
    """Whether the records are in the log, or will be, is not known. `names`: what is known of them."""

    def __init__(self, why: str, names: tuple[RecordName, ...]) -> None:
        super().__init__(f"it is not known whether this is in the log: {why}")
        self.names = names


class _Entry:
    """Records that were appended together, by one call."""

    __slots__ = (
        "answers",
        "fence",
        "is_doubtful",
        "keys",
        "left",
        "log",
        "payloads",
        "sent",
        "sizes",
        "ticket",
        "until",
    )

    def __init__(
        self,
        ticket: int,
        log: str,
        payloads: Sequence[bytes],
        keys: Sequence[str],
        until: Until,
        fence: Fence | None,
    ) -> None:
        self.ticket = ticket
        self.log = log
        self.payloads = payloads
        self.keys = keys
        self.until = until
        self.fence = fence
        self.left = len(payloads)
        """So many have no answer yet."""
        self.answers: list[Any] = []
        """By index, once there is one."""
        self.sent: list[tuple[_Run, _Piece, int]] = []
        """What was sent of it: in which run, and from which place there on."""
        self.is_doubtful = False
        """What was sent of it before may be in the log, though nobody said so."""
        self.sizes = _sizes(payloads, keys)

    @property
    def names(self) -> tuple[RecordName, ...]:
        """Of records whose run is known, in their order. What was sent again has several."""
        known = [
            (index, RecordName(run.name, first + index - start, run.hint))
            for run, (_, start, stop), first in self.sent
            if run.name is not None
            for index in range(start, stop)
        ]
        return tuple([name for _, name in sorted(known, key=itemgetter(0))])

    def answer(self, start: int, stop: int, found: Iterable[Any]) -> bool:
        """Whether all its records have one now."""
        if not self.answers:
            self.answers = [None] * len(self.payloads)
        self.answers[start:stop] = found
        self.left -= stop - start
        return not self.left


class _Piece(NamedTuple):
    entry: _Entry
    start: int
    stop: int

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be sent again safely."""
        entry = self.entry
        return entry.fence is not None or (bool(entry.keys) and all(entry.keys[self.start : self.stop]))

    @property
    def turn(self) -> tuple[int, int]:
        """Sorts pieces as they were appended."""
        return self.entry.ticket, self.start

    @property
    def size(self) -> int:
        return sum(self.entry.sizes[self.start : self.stop])


class _Waiting:
    """Records of one kind that are not sent yet, in their order."""

    __slots__ = ("bytes", "pieces")

    def __init__(self) -> None:
        self.pieces: deque[_Piece] = deque()
        self.bytes = 0

    def add(self, piece: _Piece) -> None:
        self.pieces.append(piece)
        self.bytes += piece.size

    def put_back(self, piece: _Piece) -> None:
        """Before all that was appended later: runs come back one by one, in any order."""
        at = 0
        while at < len(self.pieces) and self.pieces[at].turn < piece.turn:
            at += 1
        self.pieces.insert(at, piece)
        self.bytes += piece.size

    def drop(self, entry: _Entry) -> None:
        if any(piece.entry is entry for piece in self.pieces):
            self.pieces = deque(piece for piece in self.pieces if piece.entry is not entry)
            self.bytes = sum(piece.size for piece in self.pieces)

    def take(self, bytes_max: int) -> list[_Piece]:
        """As many records of one log as a run should have, at least one; or all that have one fence."""
        waiting, found = self.pieces, []
        if waiting[0].entry.fence is not None:
            self.bytes -= waiting[0].size
            return [waiting.popleft()]
        log, size, count = waiting[0].entry.log, 0, 0
        while waiting and waiting[0].entry.log == log and waiting[0].entry.fence is None:
            entry, start, stop = waiting[0]
            sizes, end = entry.sizes, start
            while end < stop and count < RUN_RECORDS_MAX and (not count or size + sizes[end] <= bytes_max):
                size += sizes[end]
                count += 1
                end += 1
            if end == start:
                break
            if end < stop:
                found.append(_Piece(entry, start, end))
                waiting[0] = _Piece(entry, end, stop)
                break
            found.append(waiting.popleft())
        self.bytes -= size
        return found


class _Run:
    """Records that share a run, on their way."""

    __slots__ = ("hint", "name", "pieces", "until")

    def __init__(self, until: Until, pieces: list[_Piece]) -> None:
        self.until = until
        self.pieces = pieces
        self.name: RunName | None = None
        """Once the daemon has accepted it."""
        self.hint = 0
        first = 0
        for piece in pieces:
            piece.entry.sent.append((self, piece, first))
            first += piece.stop - piece.start


class Appending:
    """Sans-I/O. `tell` is given the answer to each ticket, once."""

    def __init__(
        self,
        send: Callable[[ClientFrame], None],
        new_request: Callable[[], int],
        tell: Callable[[int, SessionError | None, Any], None],
    ) -> None:
        self.append_bytes_max: int | None = None
        """None: there is no connection."""
        self.can_move = False
        """Whether there is another daemon to go to."""
        self.wants_move = False
        """Whether it should be gone to: the log of this one is closed."""
        self._send = send
        self._new_request = new_request
        self._tell = tell
        self._entries: dict[int, _Entry] = {}
        self._waiting: dict[Until, _Waiting] = {"green": _Waiting(), "red": _Waiting()}
        self._runs: dict[int, _Run] = {}
        self._asked: dict[int, FindRun | HoldLog] = {}
        """Questions without an answer. They are asked again after a reconnection."""

    @property
    def is_asking(self) -> bool:
        return bool(self._entries or self._asked)

    # The connection

    def opened(self, append_bytes_max: int) -> None:
        self.append_bytes_max = append_bytes_max
        self.wants_move = False
        for entry in list(self._entries.values()):
            unfit = _unfit(entry, append_bytes_max)
            if unfit:
                self._refuse(entry, unfit)
        for question in self._asked.values():
            self._send(question)
        self.pump()

    def lost(self, reason: str) -> None:
        self.append_bytes_max = None
        runs, self._runs = self._runs, {}
        for run in reversed(runs.values()):
            self._in_doubt(run, reason)

    def end(self, error: SessionError) -> None:
        """The session is over."""
        self.append_bytes_max = None
        self._runs.clear()
        for entry in list(self._entries.values()):
            self._fail(entry, self._doubt(entry, str(error)) if entry.sent else error)
        for request in list(self._asked):
            self._answer(request, error, None)

    def _in_doubt(self, run: _Run, reason: str) -> None:
        """What has keys or a fence goes to the front again, in its order."""
        for piece in reversed(run.pieces):
            entry = piece.entry
            if entry.ticket not in self._entries:
                continue
            if piece.is_repeatable:
                entry.is_doubtful = True
                self._waiting[run.until].put_back(piece)
            else:
                self._fail(entry, self._doubt(entry, reason))

    @staticmethod
    def _doubt(entry: _Entry, reason: str) -> InDoubt:
        return InDoubt(reason, entry.names)

    # What the program asks for

    def append(
        self,
        log: str,
        payloads: Sequence[bytes],
        keys: Sequence[str],
        until: Until,
        fence: Fence | None = None,
    ) -> int:
        """A ticket, whose answer is a list: a position for each record, or (red) its name."""
        if until not in ("green", "red"):
            raise SessionError(f"until = {until!r}: give green or red")
        if keys:
            _check_keys(keys, len(payloads))
        if fence is not None:
            _check_fence(fence, len(payloads), until)
        entry = _Entry(self._new_request(), log, payloads, keys, until, fence)
        if fence is not None and len(payloads) > 1 and sum(entry.sizes) > RUN_BYTES:
            raise SessionError(_too_long(sum(entry.sizes), RUN_BYTES))
        if self.append_bytes_max is not None:
            unfit = _unfit(entry, self.append_bytes_max)
            if unfit:
                raise SessionError(unfit)
        self._entries[entry.ticket] = entry
        self._waiting[until].add(_Piece(entry, 0, len(payloads)))
        return entry.ticket

    def give_up(self, ticket: int, reason: str) -> SessionError:
        """The program waits no longer. What has not been sent is not sent any more."""
        if self._asked.pop(ticket, None) is not None:
            return InDoubt(reason, ())
        entry = self._entries.pop(ticket, None)
        if entry is None:
            return SessionError(reason)  # its answer has just come
        self._waiting[entry.until].drop(entry)
        if entry.sent:
            return self._doubt(entry, reason)
        return SessionError(f"nothing was appended: {reason}, before it could be sent")

    def names_of(self, ticket: int) -> tuple[RecordName, ...]:
        """What is known of records that are under way."""
        entry = self._entries.get(ticket)
        return entry.names if entry is not None else ()

    def find(self, name: RecordName) -> int:
        request = self._new_request()
        return self._ask(FindRun(request, name.run))

    def hold(self, reader: str, position: int) -> int:
        check_log_name(reader)
        return self._ask(HoldLog(self._new_request(), reader, position))

    def _ask(self, question: FindRun | HoldLog) -> int:
        if self.append_bytes_max == 0:
            raise SessionError(NO_LOG)
        self._asked[question.request] = question
        if self.append_bytes_max is not None:
            self._send(question)
        return question.request

    # Sending

    def pump(self) -> None:
        """Sends what may be sent."""
        for until, waiting in self._waiting.items():
            while waiting.pieces and self.append_bytes_max is not None and self._has_room(until):
                self._send_run(until, self.append_bytes_max)

    def _has_room(self, until: Until) -> bool:
        is_full = self._waiting[until].bytes >= RUN_BYTES
        most = FULL_RUNS_UNDER_WAY_MAX if is_full else RUNS_UNDER_WAY_MAX
        return sum(run.until == until for run in self._runs.values()) < most

    def _send_run(self, until: Until, append_bytes_max: int) -> None:
        pieces = self._waiting[until].take(min(RUN_BYTES, append_bytes_max - HEAD_BYTES))
        keys: list[str] = []
        for entry, start, stop in pieces:
            keys += entry.keys[start:stop] if entry.keys else [""] * (stop - start)
        packed = pack([key.encode() for key in keys]) if any(keys) else b""
        request = self._new_request()
        self._runs[request] = _Run(until, pieces)
        first = pieces[0].entry
        self._send(Append(request, first.log, _body(pieces), packed, until == "red", first.fence))

    # What the daemon says

    def take(self, frame: RunAccepted | RunDurable | RunPlaced | RunFenced | RunLost | RunUnknown) -> None:
        match frame:
            case RunAccepted(request, name, position):
                run = self._runs.get(request)
                if run is not None:
                    run.name, run.hint = name, position
            case RunDurable(request):
                self._durable(request)
            case RunPlaced(request):
                self._placed(frame)
            case RunFenced():
                self._fenced(frame)
            case RunLost():
                self._lost_run(frame)
            case RunUnknown(request, _, is_held):
                if not is_held:
                    self._answer(request, None, None)

    def refused(self, request: int, text: str) -> bool:
        """Whether it was a request of this part."""
        run = self._runs.pop(request, None)
        if run is not None:
            for entry in dict.fromkeys(piece.entry for piece in run.pieces):
                self._refuse(entry, text)
            self.pump()
            return True
        if request in self._asked:
            self._answer(request, SessionError(text), None)
            return True
        return False

    def _refuse(self, entry: _Entry, text: str, error: type[SessionError] = SessionError) -> None:
        """This sending has put nothing into the log. One before it may have."""
        doubtful = entry.is_doubtful or any(run.name is not None for run, _, _ in entry.sent)
        self._fail(entry, self._doubt(entry, text) if doubtful else error(text))

    def _durable(self, request: int) -> None:
        run = self._runs.get(request)
        if run is not None and run.until == "red":
            del self._runs[request]
            self._name_all(run)
            self.pump()

    def _placed(self, placed: RunPlaced) -> None:
        run = self._runs.pop(placed.request, None)
        if run is None:
            self._answer(placed.request, None, placed)
            return
        if run.until == "red":  # it was ordered before this disk had it
            if run.name is None:
                run.name, run.hint = placed.run, placed.position
            self._name_all(run)
        else:
            self._place_all(run, placed)
        self.pump()

    def _place_all(self, run: _Run, placed: RunPlaced) -> None:
        positions = _positions(placed, sum(piece.stop - piece.start for piece in run.pieces))
        first = 0
        for entry, start, stop in run.pieces:
            count = stop - start
            if entry.answer(start, stop, positions[first : first + count]):
                self._done(entry)
            first += count

    def _fenced(self, fenced: RunFenced) -> None:
        run = self._runs.pop(fenced.request, None)
        if run is None:
            why = f"the record was passed over: the mark of its fence was {fenced.mark}"
            self._answer(fenced.request, FencedError(why, fenced.mark, fenced.position), None)
            return
        entry = run.pieces[0].entry
        why = f"{_fence_text(entry.fence)}: the mark is {fenced.mark}"
        if entry.is_doubtful:
            why += "; the records were sent before, and the answer to that was lost"
        else:
            why = f"nothing was appended: {why}"
        self._fail(entry, FencedError(why, fenced.mark, fenced.position, entry.is_doubtful))
        self.pump()

    def _name_all(self, run: _Run) -> None:
        assert run.name is not None, "a run is accepted first"
        first = 0
        for entry, start, stop in run.pieces:
            names = [RecordName(run.name, first + index, run.hint) for index in range(stop - start)]
            first += stop - start
            if entry.answer(start, stop, names):
                self._done(entry)

    def _lost_run(self, lost: RunLost) -> None:
        """The node has no log at present. Another may have, so what can be asked of it waits for that."""
        run = self._runs.pop(lost.request, None)
        if self.can_move:
            self.wants_move = True
            self.append_bytes_max = None
        if run is None:
            if not self.can_move:
                self._answer(lost.request, SessionError(lost.why), None)
        elif lost.run != NO_RUN and self.can_move:
            self._in_doubt(run, lost.why)
        elif lost.run != NO_RUN:
            for piece in run.pieces:
                self._fail(piece.entry, self._doubt(piece.entry, lost.why))
        elif self.can_move:
            for piece in reversed(run.pieces):
                if piece.entry.ticket in self._entries:
                    self._waiting[run.until].put_back(piece)
        else:
            for piece in run.pieces:
                self._refuse(piece.entry, lost.why, LogClosedError)
        self.pump()

    def _done(self, entry: _Entry) -> None:
        if self._entries.pop(entry.ticket, None) is not None:
            self._tell(entry.ticket, None, entry.answers)

    def _fail(self, entry: _Entry, error: SessionError) -> None:
        if self._entries.pop(entry.ticket, None) is not None:
            self._waiting[entry.until].drop(entry)
            self._tell(entry.ticket, error, None)

    def _answer(self, request: int, error: SessionError | None, value: Any) -> None:
        if self._asked.pop(request, None) is not None:
            self._tell(request, error, value)


def records_taken(payloads: Sequence[bytes], fence: Fence | None) -> Sequence[bytes]:
    """The same, unchangeable. A `Batch` is, and with a fence it is sent as it is."""
    return payloads if fence is not None and isinstance(payloads, Batch) else as_bytes(payloads)


def _body(pieces: Sequence[_Piece]) -> Payload:
    """Of a run. Records that come packed, and with a fence, are all that their run has."""
    first = pieces[0].entry
    if first.fence is not None and isinstance(first.payloads, Batch):
        return first.payloads.body
    return pack([payload for entry, start, stop in pieces for payload in entry.payloads[start:stop]])


def _unfit(entry: _Entry, append_bytes_max: int) -> str:
    """Why a daemon that takes so many bytes cannot take it; empty if it can."""
    if not append_bytes_max:
        return NO_LOG
    if entry.fence is not None and sum(entry.sizes) + HEAD_BYTES > append_bytes_max:
        return _too_long(sum(entry.sizes), append_bytes_max - HEAD_BYTES)
    largest = max(entry.sizes)
    if largest + HEAD_BYTES <= append_bytes_max:
        return ""
    return (
        f"a record of {largest} bytes: this node takes at most {append_bytes_max - HEAD_BYTES}; cut it, or "
        "keep the content elsewhere and append its name"
    )


def records_bytes(payloads: Sequence[bytes], keys: Sequence[str] = ()) -> int:
    """What records count for in a run, where its bytes are bounded (`RUN_BYTES`)."""
    return sum(_sizes(payloads, keys))


def _sizes(payloads: Sequence[bytes], keys: Sequence[str]) -> list[int]:
    lengths = payloads.lengths if isinstance(payloads, Batch) else map(len, payloads)
    sizes = [length + 2 * LENGTH_BYTES for length in lengths]
    return [size + len(key.encode()) for size, key in zip(sizes, keys, strict=True)] if keys else sizes


def _too_long(size: int, most: int) -> str:
    return f"{size} bytes of records with one fence: give at most {most}, for they travel in one run"


def _fence_text(fence: Fence | None) -> str:
    assert fence is not None, "only runs with a fence are passed over"
    return f"fence {fence.name!r} lets in {fence.low} to {fence.high}"


def _check_fence(fence: Fence, count: int, until: Until) -> None:
    if not isinstance(fence, Fence):
        raise TypeError(f"fence: give a totempole.Fence, not {type(fence).__name__}")
    if fence.problem:
        raise SessionError(fence.problem)
    if until != "green":
        raise SessionError(
            f"until = {until!r} with a fence: only the order says whether the records are let in; give green"
        )
    if not 1 <= count <= RUN_RECORDS_MAX:
        raise SessionError(
            f"{count} records with one fence: give 1 to {RUN_RECORDS_MAX}, for they travel in one run"
        )


def _check_keys(keys: Sequence[str], count: int) -> None:
    if len(keys) != count:
        raise SessionError(f"{len(keys)} keys for {count} records: give one for each")
    for key in keys:
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            raise SessionError(f"key {key[:40]!r}: it cannot be written as UTF-8") from None
        if size > KEY_BYTES_MAX:
            raise SessionError(f"key {key[:40]!r} is too long: give at most {KEY_BYTES_MAX} bytes")


def check_appended_to(name: str) -> None:
    """A program may append to this log."""
    if name.startswith(OBJECTS_PREFIX):
        of = name.removeprefix(OBJECTS_PREFIX)
        raise SessionError(
            f"nothing was appended: log {name!r} has the commands of the replicated object {of!r}; call them "
            "with session.replica, or give the log another name"
        )


def check_log_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a log's name is a string, not {type(name).__name__}")
    if not 1 <= len(name.encode(errors="surrogatepass")) <= LOG_NAME_BYTES_MAX:
        raise SessionError(f"log name {name[:40]!r}: give 1 to {LOG_NAME_BYTES_MAX} bytes")
    if not name.isprintable():
        raise SessionError(f"log name {name[:40]!r}: give letters that can be printed")


def _positions(placed: RunPlaced, count: int) -> Sequence[int]:
    """Of all records of a run."""
    if not placed.repeats:
        return range(placed.position, placed.position + count)
    repeats = dict(placed.repeats)
    taken = iter(range(placed.position, placed.position + count))
    return [repeats[index] if index in repeats else next(taken) for index in range(count)]


def position_in(placed: RunPlaced, index: int) -> int:
    """Of the record of this index in a run."""
    before = 0
    for repeated, position in placed.repeats:
        if repeated == index:
            return position
        before += repeated < index
    return placed.position + index - before
