"""Feeds, without I/O: runs of a log from a place on, each once and in order, from two sources.

What lies before is read from a log service (`Reading`), what comes from the daemon's memory (`FollowLog`). A
feed reads until it is near the end of the log, then follows; reads up to the place that the daemon pushes
from; and is live. Whatever ends that, a lost connection, a daemon without a log, a program that was too slow,
leads back to reading, at the place that was reached.

Runs that the program has not taken are bounded: beyond that a feed reads no further, and a live one stops
following. So a program that does not take from a feed holds up nothing else in its session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from totempole.client.appending import NO_LOG, LogClosedError, check_log_name
from totempole.client.log_records import POSITION_MAX, LogBatch, Notice, Reading, batch_of, notice_of
from totempole.corel.run import RunKind
from totempole.errors import CodecError, LogError, SessionError
from totempole.session import (
    AskBarrier,
    BarrierPassed,
    ClientFrame,
    FollowEnd,
    FollowEnded,
    Following,
    FollowLog,
    LogRuns,
    Unfollow,
)
from totempole.session.log_frames import Answer, OrderedRun

BYTES_MAX = 16 * 1024 * 1024
"""Runs that the program has not taken. One always fits, however large."""
BARRIERS_MAX = 8
"""Under way. Who wants one meanwhile shares the next."""
ITEM_BYTES = 512
"""What an item takes beside its run."""

Item = LogBatch | Notice
FeedStart = int | Literal["earliest"]

_runs = msgspec.msgpack.Decoder(tuple[OrderedRun, ...])


class _Taken(NamedTuple):
    """An item that the program has not taken. All runs before its place were given."""

    item: Item
    place: int
    position: int
    weight: int


class Feeding:
    """One feed."""

    def __init__(self, feeds: Feeds, log: str, start: FeedStart, place: int) -> None:
        self.log = log
        self.log_id = 0
        """The log's own name, once somebody has told it."""
        self.is_live = False
        self.is_over = False
        self.error: Exception | None = None
        """Why it is over; None: the program wanted it."""
        self.on_news: Callable[[], None] = _nothing
        """Called when there is something to take, or to do."""
        self._feeds = feeds
        self._first = start if isinstance(start, int) else 0
        self._place = place
        self._position = start if isinstance(start, int) else None
        """All runs and records before were taken in."""
        self._items: deque[_Taken] = deque()
        self._bytes = 0
        self._is_near = False
        """It has read all that was green when it began to read."""
        self._live_from: int | None = None
        """The daemon pushes runs from this place on."""
        self._held: list[LogRuns] = []
        """Pushed while what is before was not read yet."""
        self._held_bytes = 0

    # The program

    @property
    def place(self) -> int:
        """All runs before it were given, or belong to other logs."""
        return self._items[0].place if self._items else self._place

    @property
    def position(self) -> int:
        """All records before it were given, or belong to other logs. 0: it is not known yet where the log
        begins."""
        return self._items[0].position if self._items else self._position or 0

    @property
    def has_items(self) -> bool:
        return bool(self._items)

    def take(self) -> Item | None:
        """The next item, if there is one."""
        if not self._items:
            return None
        taken = self._items.popleft()
        self._bytes -= taken.weight
        return taken.item

    def end(self, error: Exception | None) -> None:
        """What was taken in is still given."""
        if not self.is_over:
            self.is_over, self.error = True, error
            self._stop_following()
            self.on_news()

    # The log service

    @property
    def has_room(self) -> bool:
        return self._bytes < BYTES_MAX

    @property
    def wants_reading(self) -> bool:
        return not self.is_live and not self.is_over

    def new_reading(self) -> Reading:
        """Of all from here on."""
        start: FeedStart = "earliest" if self._position is None else self._position
        return Reading(self.log, start, follow=True, notices=True, place=self._place)

    def read(self, reading: Reading, answer: Answer, log_id: int) -> None:
        """A log service has answered."""
        self.log_id = log_id or self.log_id
        for ordered in reading.advance(answer):
            self._add(ordered)
        self._reach(reading.place, reading.position or 0)
        if self.wants_reading:
            self._go_live()
        self._is_near = (self._position or 0) >= reading.green
        self.follow_if_near()
        self.on_news()

    def follow_if_near(self) -> None:
        """The end of the log, as the log service has it."""
        if self._is_near and self.has_room and self.wants_reading and not self.is_following:
            self._feeds.follow(self)

    # The daemon

    @property
    def is_following(self) -> bool:
        return self._live_from is not None

    def following(self, frame: Following) -> None:
        if self.is_over or self.is_following:
            return
        if self.log_id and frame.log_id and self.log_id != frame.log_id:
            text = (
                f"the daemon has log {frame.log_id:x}, and what was read is of log {self.log_id:x}: it "
                "belongs to another cluster, or was rescued since"
            )
            self.end(LogError(text))
            return
        self.log_id = self.log_id or frame.log_id
        self._live_from = frame.place
        self._go_live()

    def pushed(self, frame: LogRuns, runs: tuple[OrderedRun, ...]) -> None:
        if not self.is_following or self.is_over:
            return
        if not self.is_live:
            self._hold(frame)
            return
        for ordered in runs:
            self._add(ordered)
        self._reach(frame.place, frame.position)
        if not self.has_room:
            self.stop_following()
            self._feeds.unfollow(self.log)
        self.on_news()

    def passed(self, place: int) -> None:
        """All runs before this place were pushed."""
        if self.is_live:
            self._reach(place, 0)
            self.on_news()

    def stop_following(self) -> None:
        """What was taken in stays; the rest is read."""
        if self.is_following:
            self._stop_following()
            self.on_news()

    def _stop_following(self) -> None:
        self.is_live = self._is_near = False
        self._live_from = None
        self._held.clear()
        self._held_bytes = 0

    def _hold(self, frame: LogRuns) -> None:
        self._held.append(frame)
        self._held_bytes += len(frame.runs) + ITEM_BYTES
        if self._held_bytes > BYTES_MAX:
            self.stop_following()
            self._feeds.unfollow(self.log)

    def _go_live(self) -> None:
        if self._live_from is None or self._place < self._live_from:
            return
        self.is_live = True
        held, self._held = self._held, []
        self._held_bytes = 0
        for frame in held:
            self.pushed(frame, decode_runs(frame))
        self.on_news()

    # Runs

    def _add(self, ordered: OrderedRun) -> None:
        if ordered.place < self._place:
            return
        self._reach(ordered.place, ordered.position)
        item = _item_of(ordered, self._first)
        if item is not None:
            weight = len(ordered.run.body) + ITEM_BYTES
            self._bytes += weight
            self._items.append(_Taken(item, ordered.place, max(ordered.position, self._first), weight))
        self._reach(ordered.place + 1, ordered.stop)

    def _reach(self, place: int, position: int) -> None:
        self._place = max(self._place, place)
        if place:
            self._position = max(self._position or 0, position)


def _item_of(ordered: OrderedRun, first: int) -> Item | None:
    """What the program gets of it. Raises CodecError."""
    try:
        if ordered.run.kind is RunKind.RECORDS:
            return batch_of(ordered, first)
        return notice_of(ordered) if ordered.position >= first else None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CodecError("frame malformed", f"a run that cannot be read: {error}") from None


def decode_runs(frame: LogRuns) -> tuple[OrderedRun, ...]:
    """Raises CodecError."""
    try:
        return _runs.decode(frame.runs)
    except msgspec.MsgspecError as error:
        raise CodecError("frame malformed", f"RUNS malformed: {error}") from None


def _nothing() -> None:
    pass


class Feeds:
    """All feeds of a session, and its read barriers. `tell` is given the answer to each ticket, once."""

    def __init__(
        self,
        send: Callable[[ClientFrame], None],
        new_request: Callable[[], int],
        tell: Callable[[int, SessionError | None, Any], None],
    ) -> None:
        self.can_move = False
        """Whether there is another daemon to go to."""
        self.wants_move = False
        """Whether it should be gone to: the log of this one is closed."""
        self._send = send
        self._new_request = new_request
        self._tell = tell
        self._is_open = False
        self._feeds: dict[str, list[Feeding]] = {}
        self._requests: dict[int, str] = {}
        """Which log was asked for, and perhaps is followed."""
        self._asked: set[str] = set()
        """Logs for which the daemon owes an answer."""
        self._waiting: list[int] = []
        """Barriers that are not asked for yet."""
        self._barriers: dict[int, list[int]] = {}
        """By request, who waits: one serves all who wanted one before it was sent."""

    @property
    def is_asking(self) -> bool:
        return bool(self._waiting or self._barriers)

    def _all(self) -> list[Feeding]:
        return [feed for feeds in self._feeds.values() for feed in feeds]

    # The connection

    def opened(self, has_log: bool) -> None:
        self._is_open = True
        self.wants_move = False
        if not has_log:
            self._fail(SessionError(NO_LOG))
        for feed in self._all():
            feed.follow_if_near()
        self.pump()

    def lost(self) -> None:
        """Barriers are asked for again: a later one serves as well."""
        self._is_open = False
        self._requests.clear()
        self._asked.clear()
        for tickets in self._barriers.values():
            self._waiting += tickets
        self._barriers.clear()
        for feed in self._all():
            feed.stop_following()

    def end(self, error: SessionError | None) -> None:
        """The session is over."""
        self._is_open = False
        self._fail(error)

    def _fail(self, error: SessionError | None) -> None:
        for feed in self._all():
            feed.end(error)
        self._feeds.clear()
        tickets = [*self._waiting, *(ticket for each in self._barriers.values() for ticket in each)]
        self._waiting, self._barriers = [], {}
        for ticket in tickets:
            self._tell(ticket, error or SessionError("the session is closed"), None)

    def pump(self) -> None:
        """Asks for what waits."""
        is_free = len(self._barriers) < BARRIERS_MAX and not self.wants_move
        if self._waiting and self._is_open and is_free:
            request = self._new_request()
            self._barriers[request], self._waiting = self._waiting, []
            self._send(AskBarrier(request))

    # What the program asks for

    def open(self, log: str, start: FeedStart, place: int) -> Feeding:
        check_log_name(log)
        if start != "earliest" and not (isinstance(start, int) and 0 <= start < POSITION_MAX):
            raise LogError(f'start = {start!r}: give a position from 0, or "earliest"')
        if not 0 <= place < POSITION_MAX:
            raise LogError(f"place = {place}: give a place from 0")
        feed = Feeding(self, log, start, place)
        self._feeds.setdefault(log, []).append(feed)
        return feed

    def close(self, feed: Feeding) -> None:
        feeds = self._feeds.get(feed.log, [])
        if feed in feeds:
            feeds.remove(feed)
            if not feeds:
                del self._feeds[feed.log]
            feed.end(None)
            self.unfollow(feed.log)

    def follow(self, feed: Feeding) -> None:
        """It is near the end of what can be read."""
        if self._is_open and feed.log not in self._asked:
            request = self._new_request()
            self._requests[request] = feed.log
            self._asked.add(feed.log)
            self._send(FollowLog(request, feed.log))

    def unfollow(self, log: str) -> None:
        """One of its feeds follows no more."""
        if any(feed.is_following for feed in self._feeds.get(log, ())):
            return
        known = [request for request, each in self._requests.items() if each == log]
        for request in known:
            del self._requests[request]
        self._asked.discard(log)
        if known and self._is_open:
            self._send(Unfollow(log))

    def barrier(self) -> int:
        """A ticket, whose answer is a place."""
        ticket = self._new_request()
        self._waiting.append(ticket)
        return ticket

    def give_up(self, ticket: int) -> None:
        """The program waits no longer."""
        for tickets in (self._waiting, *self._barriers.values()):
            if ticket in tickets:
                tickets.remove(ticket)

    # What the daemon says

    def take(self, frame: Following | LogRuns | FollowEnded | BarrierPassed) -> None:
        match frame:
            case LogRuns(log):
                feeds = self._feeds.get(log, ()) if log else self._all()
                runs = decode_runs(frame)
                for feed in tuple(feeds):
                    feed.pushed(frame, runs)
            case BarrierPassed(request, place):
                for feed in self._all():
                    feed.passed(place)
                for ticket in self._barriers.pop(request, ()):
                    self._tell(ticket, None, place)
                self.pump()
            case Following(request):
                log = self._requests.get(request, "")
                self._asked.discard(log)
                for feed in tuple(self._feeds.get(log, ())):
                    feed.following(frame)
            case FollowEnded(why):
                self._ended(why)

    def _ended(self, why: FollowEnd) -> None:
        if why is FollowEnd.TOO_SLOW:
            self._requests = {request: log for request, log in self._requests.items() if log in self._asked}
        else:  # the daemon knows who follows, and answers again
            self._asked.update(self._requests.values())
        self.wants_move = self.wants_move or (why is FollowEnd.CLOSED and self.can_move)
        for feed in self._all():
            feed.stop_following()

    def refused(self, request: int, text: str, *, is_closed: bool = False) -> bool:
        """Whether it was a request of this part. `is_closed`: the node has no log at present."""
        tickets = self._barriers.pop(request, None)
        if tickets is not None:
            if is_closed and self.can_move:
                self.wants_move = True
                self._waiting += tickets
            else:
                for ticket in tickets:
                    self._tell(ticket, LogClosedError(text) if is_closed else SessionError(text), None)
            return True
        log = self._requests.pop(request, None)
        if log is None:
            return False
        self._asked.discard(log)
        for feed in tuple(self._feeds.get(log, ())):
            if not feed.is_following:
                feed.end(SessionError(text))
        return True


class FeedBase:
    """What the feed for asyncio programs and the one for others have in common."""

    def __init__(self, feeding: Feeding) -> None:
        self._feeding = feeding

    @property
    def log(self) -> str:
        """The log's name."""
        return self._feeding.log

    @property
    def place(self) -> int:
        """All runs before it were given, or belong to other logs."""
        return self._feeding.place

    @property
    def position(self) -> int:
        """All records before it were given, or belong to other logs."""
        return self._feeding.position

    @property
    def is_live(self) -> bool:
        """Whether runs come from the daemon's memory at present."""
        return self._feeding.is_live
