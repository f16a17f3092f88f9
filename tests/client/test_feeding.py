"""Feeds without I/O: a log service and a daemon that are lists of runs."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from sweeps import first_of
from totempole.client import feeding
from totempole.client.feeding import BARRIERS_MAX, Feeding, Feeds, FeedStart
from totempole.client.log_records import LogBatch, Notice, Reading
from totempole.corel.run import NO_STAMP, Hold, Run, RunId, RunKind, pack_body, pack_records
from totempole.errors import CodecError, LogError, SessionError
from totempole.session import (
    AskBarrier,
    BarrierPassed,
    FollowEnd,
    FollowEnded,
    Following,
    FollowLog,
    LogRuns,
    Unfollow,
)
from totempole.session.log_frames import OrderedRun, Reached, Read, Runs

LOG_ID = 77


class Order:
    """Green runs: of the logs a and b, and the log's own."""

    def __init__(self) -> None:
        self.runs: list[OrderedRun] = []
        self.position = 0

    @property
    def place(self) -> int:
        return len(self.runs)

    def add(self, log: str, count: int = 1, size: int = 3) -> OrderedRun:
        number = self.place + 1
        if log:
            body = pack_records(log, [b"%d-%d" % (number, index) + bytes(size) for index in range(count)])
            run = Run(RunId(1, 1, number), NO_STAMP, 0, RunKind.RECORDS, count, body)
        else:
            count = 0
            run = Run(RunId(1, 1, number), NO_STAMP, 0, RunKind.HOLD, 0, pack_body(Hold("reader", number)))
        ordered = OrderedRun(self.place, self.position, 0, (), run)
        self.runs.append(ordered)
        self.position += count
        return ordered

    def names_of(self, log: str, start: int = 0) -> list[Any]:
        """What a feed from this position on has to give."""
        return [
            ordered.place
            if ordered.run.kind is RunKind.HOLD
            else range(max(ordered.position, start), ordered.stop)
            for ordered in self.runs
            if (log_of(ordered) == log and ordered.stop > start)
            or (not log_of(ordered) and ordered.position >= start)
        ]


def log_of(ordered: OrderedRun) -> str:
    if ordered.run.kind is not RunKind.RECORDS:
        return ""
    log: str = msgspec.msgpack.decode(ordered.run.body)[0]
    return log


def names(items: list[LogBatch | Notice]) -> list[Any]:
    return [item.positions if isinstance(item, LogBatch) else item.place for item in items]


class World:
    """A session's feeds, with a daemon and a log service beside."""

    def __init__(self) -> None:
        self.order = Order()
        self.sent: list[Any] = []
        self.told: list[tuple[int, SessionError | None, Any]] = []
        self._request = 100
        self.feeds = Feeds(self.sent.append, self._new_request, lambda *answer: self.told.append(answer))
        self.feeds.opened(True)
        self.given: list[Any] = []
        self.readings: dict[Feeding, tuple[Reading, Read, int]] = {}

    def _new_request(self) -> int:
        self._request += 1
        return self._request

    def feed(self, log: str = "a", start: FeedStart = "earliest", place: int = 0) -> Feeding:
        return self.feeds.open(log, start, place)

    # The log service

    def read(self, feed: Feeding, upto: int | None = None) -> None:
        """It sends what is before this place, and that it has come so far."""
        if feed not in self.readings:
            reading = feed.new_reading()
            request = reading.request(self.order.position)
            self.readings[feed] = reading, request, request.place
        reading, request, place = self.readings[feed]
        upto = self.order.place if upto is None else upto
        start = max(request.start, 0)
        found = tuple(
            ordered
            for ordered in self.order.runs[place:upto]
            if (log_of(ordered) == feed.log and ordered.stop > max(start, ordered.position))
            or (not log_of(ordered) and ordered.position >= start)
        )
        if found:
            feed.read(reading, Runs(found), LOG_ID)
        upto = max(upto, place)
        position = self.order.runs[upto - 1].stop if upto else 0
        feed.read(reading, Reached(max(position, start), upto, self.order.position), LOG_ID)
        self.readings[feed] = reading, request, upto
        if not feed.wants_reading:
            del self.readings[feed]

    # The daemon

    def follow(self) -> None:
        """Answers the last FollowLog."""
        asked = [frame for frame in self.sent if isinstance(frame, FollowLog)][-1]
        self.feeds.take(Following(asked.request, LOG_ID, self.order.place, self.order.position))

    def push(self, *runs: OrderedRun) -> None:
        for ordered in runs:
            encoded = msgspec.msgpack.encode([ordered])
            self.feeds.take(LogRuns(log_of(ordered), encoded, ordered.place + 1, ordered.stop))

    def live(self, log: str = "a", start: FeedStart = "earliest", place: int = 0) -> Feeding:
        feed = self.feed(log, start, place)
        self.read(feed)
        self.follow()
        assert feed.is_live
        return feed


@pytest.fixture
def world() -> World:
    it = World()
    for log in ("", "a", "b", "a"):
        it.order.add(log, 2)
    return it


def taken(feed: Feeding) -> list[Any]:
    found = []
    while (item := feed.take()) is not None:
        found.append(item)
    return names(found)


def test_what_lies_before_is_read_and_what_comes_is_pushed(world: World) -> None:
    feed = world.feed()
    assert feed.wants_reading
    world.read(feed)
    assert world.sent == [FollowLog(101, "a")]
    world.follow()
    assert feed.is_live
    assert not feed.wants_reading
    assert taken(feed) == [0, range(2), range(4, 6)]
    assert (feed.place, feed.position) == (4, 6)
    world.push(world.order.add("a"), world.order.add(""))
    assert taken(feed) == [range(6, 7), 5]
    assert (feed.place, feed.position) == (6, 7)


def test_it_does_not_follow_before_it_is_near_the_end(world: World) -> None:
    feed = world.feed()
    world.read(feed, 3)
    assert world.sent == []


def test_runs_that_are_pushed_while_it_still_reads_wait_for_their_turn(world: World) -> None:
    feed = world.feed()
    world.read(feed)
    world.order.add("a")  # green before the daemon answers, and read later
    world.follow()
    assert not feed.is_live
    world.push(world.order.add("a"), world.order.add("a"))
    assert taken(feed) == [0, range(2), range(4, 6)]
    world.read(feed, 5)
    assert feed.is_live
    assert taken(feed) == [range(6, 7), range(7, 8), range(8, 9)]


def test_place_and_position_are_those_of_what_was_given(world: World) -> None:
    feed = world.live()
    assert (feed.place, feed.position) == (0, 0)
    feed.take()
    assert (feed.place, feed.position) == (1, 0)
    feed.take()
    assert (feed.place, feed.position) == (3, 4), "the run of another log is passed"
    feed.take()
    assert (feed.place, feed.position) == (4, 6)


def test_runs_of_other_logs_move_the_place(world: World) -> None:
    feed = world.live()
    taken(feed)
    world.order.add("b", 5)
    world.feeds.take(LogRuns("", msgspec.msgpack.encode([]), 5, 11))
    assert (feed.place, feed.position) == (5, 11)


@pytest.mark.parametrize(
    ("start", "expected"), [(0, [0, range(2), range(4, 6)]), (1, [range(1, 2), range(4, 6)])]
)
def test_it_begins_at_a_position(world: World, start: int, expected: list[Any]) -> None:
    assert taken(world.live(start=start)) == expected


def test_it_begins_behind_the_end(world: World) -> None:
    feed = world.live(start=7)
    assert taken(feed) == []
    world.push(world.order.add("a", 3), world.order.add(""))
    assert taken(feed) == [range(7, 9), 5]


def test_it_begins_at_a_place(world: World) -> None:
    feed = world.live(place=2)
    assert taken(feed) == [range(4, 6)]


@pytest.mark.parametrize("how", ["lost", FollowEnd.TOO_SLOW, FollowEnd.CLOSED, FollowEnd.JUMPED])
def test_it_goes_on_where_it_was(world: World, how: Any) -> None:
    feed = world.live()
    world.push(world.order.add("a"))
    if how == "lost":
        world.feeds.lost()
        world.feeds.opened(True)
    else:
        world.feeds.take(FollowEnded(how))
    assert feed.wants_reading
    first = len(world.sent)
    world.order.add("a")
    world.read(feed)
    if how in (FollowEnd.CLOSED, FollowEnd.JUMPED):
        assert world.sent[first:] == [], "the daemon answers by itself"
    else:
        assert len(world.sent[first:]) == 1
    world.follow()
    assert feed.is_live
    world.push(world.order.add("a"))
    assert taken(feed) == world.order.names_of("a")


def test_a_feed_that_waits_for_its_daemon_follows_as_soon_as_it_is_back(world: World) -> None:
    feed = world.live()
    world.feeds.lost()
    first = len(world.sent)
    world.read(feed)
    assert world.sent[first:] == []
    world.feeds.opened(True)
    assert len(world.sent) == first + 1
    world.follow()
    assert feed.is_live


def test_a_daemon_that_is_behind_repeats_nothing(world: World) -> None:
    feed = world.live()
    later = world.order.add("a")
    world.push(later)
    world.feeds.lost()
    world.feeds.opened(True)
    world.read(feed)
    world.feeds.take(Following(world.sent[-1].request, LOG_ID, 3, 4))
    assert feed.is_live
    world.push(world.order.runs[3], later, world.order.add("a"))
    assert taken(feed) == world.order.names_of("a")


def test_another_log_is_not_followed(world: World) -> None:
    feed = world.feed()
    world.read(feed)
    world.feeds.take(Following(world.sent[-1].request, LOG_ID + 1, 4, 6))
    assert feed.is_over
    assert isinstance(feed.error, LogError)
    assert taken(feed) == [0, range(2), range(4, 6)], "what was read is given"


def test_two_feeds_of_one_log(world: World) -> None:
    first, second = world.live(), world.feed()
    world.push(world.order.add("a"))
    world.read(second)
    world.follow()
    world.push(world.order.add("a"))
    assert taken(first) == taken(second) == world.order.names_of("a")
    world.feeds.close(first)
    assert not any(isinstance(frame, Unfollow) for frame in world.sent)
    world.push(world.order.add("a"))
    assert taken(second) == [range(8, 9)]
    assert taken(first) == []
    world.feeds.close(second)
    assert world.sent[-1] == Unfollow("a")


def test_a_feed_that_nobody_takes_from_is_bounded_and_goes_on_later(world: World) -> None:
    feed = world.live()
    for _ in range(200):
        world.push(world.order.add("a", 1, 512 * 1024))
    assert not feed.is_live
    assert not feed.has_room
    assert feed._bytes < 2 * feeding.BYTES_MAX
    assert [frame for frame in world.sent if isinstance(frame, Unfollow)] == [Unfollow("a")]
    found = taken(feed)
    assert 20 < len(found) < 100
    while len(found) < 203:
        while feed.wants_reading and feed.has_room:
            before = feed._place
            world.read(feed, min(before + 5, world.order.place))
            if feed.log in world.feeds._asked:
                world.follow()
        found += taken(feed)
    assert feed.is_live
    assert found == world.order.names_of("a")


def test_what_is_held_while_it_reads_is_bounded(world: World) -> None:
    feed = world.feed()
    world.read(feed)
    world.order.add("a")
    world.follow()
    for _ in range(200):
        world.push(world.order.add("a", 1, 512 * 1024))
    assert not feed.is_following
    assert feed._held_bytes == 0
    assert world.sent[-1] == Unfollow("a")


def test_one_run_always_fits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = world.live()
    taken(feed)
    monkeypatch.setattr(feeding, "BYTES_MAX", 1_000)
    world.push(world.order.add("a", 1, 100_000))
    assert taken(feed) == [range(6, 7)]


def test_a_closed_feed_gives_what_it_has_and_ends(world: World) -> None:
    feed = world.live()
    world.feeds.close(feed)
    world.feeds.close(feed)
    world.push(world.order.add("a"))
    assert taken(feed) == [0, range(2), range(4, 6)]
    assert feed.is_over
    assert feed.error is None
    assert world.sent[-1] == Unfollow("a")


def test_the_end_of_the_session_ends_feeds_and_barriers(world: World) -> None:
    feed = world.live()
    ticket = world.feeds.barrier()
    error = SessionError("over")
    world.feeds.end(error)
    assert feed.error is error
    assert world.told == [(ticket, error, None)]


def test_a_daemon_without_a_log_is_told_of(world: World) -> None:
    feed = world.feed()
    ticket = world.feeds.barrier()
    world.feeds.lost()
    world.feeds.opened(False)
    assert "keeps no log" in str(feed.error)
    ((told, error, _),) = world.told
    assert (told, "keeps no log" in str(error)) == (ticket, True)


def test_a_refused_follow_ends_the_feed(world: World) -> None:
    feed = world.feed()
    world.read(feed)
    assert world.feeds.refused(world.sent[-1].request, "too many")
    assert "too many" in str(feed.error)
    assert not world.feeds.refused(4711, "none of mine")


def test_a_closed_log_is_left_for_another_daemon(world: World) -> None:
    world.feeds.can_move = True
    world.live()
    world.feeds.take(FollowEnded(FollowEnd.TOO_SLOW))
    assert not world.feeds.wants_move
    world.feeds.take(FollowEnded(FollowEnd.CLOSED))
    assert world.feeds.wants_move
    world.feeds.lost()
    world.feeds.opened(True)
    assert not world.feeds.wants_move


@pytest.mark.parametrize(
    ("log", "start", "place"),
    [
        ("", 0, 0),
        ("x" * 101, 0, 0),
        ("a", -1, 0),
        ("a", "latest", 0),
        ("a", 0, -1),
        ("a", 2**63, 0),
        ("a", 0, 2**63),
    ],
)
def test_what_cannot_be_asked_for(world: World, log: str, start: Any, place: int) -> None:
    with pytest.raises((SessionError, LogError)):
        world.feed(log, start, place)


# What a stranger sends


def run_of(body: bytes, place: int = 9) -> bytes:
    return msgspec.msgpack.encode([[place, 9, 0, [], [[1, 1, 1], [0] * 4, 0, 0, 1, body]]])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"\x91\xc0",
        run_of(b"\xff"),
        run_of(msgspec.msgpack.encode(["a", b"no batch"])),
        run_of(msgspec.msgpack.encode([7, b""])),
    ],
)
def test_runs_that_cannot_be_read_are_an_error(world: World, content: bytes) -> None:
    world.live()
    with pytest.raises(CodecError):
        world.feeds.take(LogRuns("a", content, 10, 10))


def test_frames_that_nobody_asked_for_change_nothing(world: World) -> None:
    feed = world.feed()
    world.feeds.take(Following(4711, LOG_ID, 2, 3))
    world.push(world.order.runs[1])
    world.feeds.take(BarrierPassed(4711, 50))
    world.feeds.take(FollowEnded(FollowEnd.JUMPED))
    world.push(world.order.add("unheard of"))
    assert not feed.is_following
    assert (feed.place, feed.has_items, world.told) == (0, False, [])


# Barriers


def test_one_barrier_serves_all_who_wanted_it_before_it_was_sent(world: World) -> None:
    first, second = world.feeds.barrier(), world.feeds.barrier()
    world.feeds.pump()
    (asked,) = world.sent
    assert isinstance(asked, AskBarrier)
    third = world.feeds.barrier()
    world.feeds.pump()
    world.feeds.take(BarrierPassed(asked.request, 4))
    assert world.told == [(first, None, 4), (second, None, 4)]
    world.feeds.take(BarrierPassed(world.sent[1].request, 5))
    assert world.told[-1] == (third, None, 5)
    assert not world.feeds.is_asking


def test_a_barrier_is_asked_for_again_after_a_reconnection(world: World) -> None:
    ticket = world.feeds.barrier()
    world.feeds.pump()
    world.feeds.lost()
    world.feeds.opened(True)
    assert [type(frame) for frame in world.sent] == [AskBarrier, AskBarrier]
    world.feeds.take(BarrierPassed(world.sent[0].request, 1))
    assert world.told == [], "that was the answer of another connection"
    world.feeds.take(BarrierPassed(world.sent[1].request, 4))
    assert world.told == [(ticket, None, 4)]


def test_barriers_that_do_not_pass_are_bounded(world: World) -> None:
    for _ in range(3 * BARRIERS_MAX):
        ticket = world.feeds.barrier()
        world.feeds.pump()
        world.feeds.give_up(ticket)
    last = world.feeds.barrier()
    world.feeds.pump()
    assert len(world.sent) == BARRIERS_MAX
    for asked in tuple(world.sent):
        world.feeds.take(BarrierPassed(asked.request, 4))
    world.feeds.take(BarrierPassed(world.sent[-1].request, 5))
    assert world.told == [(last, None, 5)]


def test_a_barrier_that_passes_moves_live_feeds(world: World) -> None:
    feed, reading = world.live(), world.feed("b")
    taken(feed)
    world.feeds.take(BarrierPassed(4711, 9))
    assert feed.place == 9
    assert reading.place == 0


def test_a_refused_barrier_is_told(world: World) -> None:
    ticket = world.feeds.barrier()
    world.feeds.pump()
    assert world.feeds.refused(world.sent[-1].request, "too many wait")
    ((told, error, _),) = world.told
    assert (told, str(error)) == (ticket, "too many wait")


# All of it at random


@pytest.mark.parametrize("seed", first_of(range(60), 15))
def test_no_gap_and_no_repetition_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that follows its own rules, a log service at any pace, and losses at any time."""
    monkeypatch.setattr(feeding, "BYTES_MAX", 6_000)
    draw = random.Random(seed)
    world = World()
    for _ in range(draw.randint(0, 5)):
        world.order.add(draw.choice(["a", "b", ""]), 2)
    starts = [draw.choice([0, 3, 9]), 0, 0]
    feeds = [world.feed("a", starts[0]), world.feed("a"), world.feed("b")]
    given: dict[Feeding, list[Any]] = {feed: [] for feed in feeds}
    pushed_to = 0
    followed: set[str] = set()
    seen = 0

    def serve_daemon() -> None:
        """Takes what the session has sent, in its order."""
        nonlocal seen
        while seen < len(world.sent):
            frame = world.sent[seen]
            seen += 1
            if isinstance(frame, FollowLog):
                push_all()
                followed.add(frame.log)
                world.feeds.take(Following(frame.request, LOG_ID, world.order.place, world.order.position))
            elif isinstance(frame, Unfollow):
                followed.discard(frame.log)

    def push_all() -> None:
        nonlocal pushed_to
        fresh, pushed_to = world.order.runs[pushed_to:], world.order.place
        world.push(*(run for run in fresh if (log_of(run) or next(iter(followed), None)) in followed))

    def take(feed: Feeding, most: int) -> None:
        for _ in range(most):
            item = feed.take()
            if item is None:
                return
            given[feed] += names([item])

    for _ in range(500):
        feed = draw.choice(feeds)
        match draw.choice(["order", "push", "push", "read", "read", "take", "serve", "lost", "slow", "jump"]):
            case "order":
                push_all()  # the daemon pushes as it orders: in the same order at the latest now
                world.order.add(draw.choice(["a", "b", ""]), draw.randint(1, 3), draw.choice([1, 1, 800]))
            case "push":
                push_all()
            case "read" if feed.wants_reading and feed.has_room:
                at = world.readings[feed][2] if feed in world.readings else feed._place
                world.read(feed, min(world.order.place, at + draw.randint(0, 6)))
            case "take":
                take(feed, draw.randint(0, 9))
            case "serve":
                serve_daemon()
            case "lost" if draw.random() < 0.1:
                world.feeds.lost()
                world.readings.clear()
                followed.clear()
                seen = len(world.sent)
                world.feeds.opened(True)
            case "slow" if draw.random() < 0.1:
                serve_daemon()
                followed.clear()
                world.feeds.take(FollowEnded(FollowEnd.TOO_SLOW))
            case "jump" if draw.random() < 0.1:
                serve_daemon()
                world.feeds.take(FollowEnded(FollowEnd.JUMPED))
                push_all()
                latest = {log: request for request, log in world.feeds._requests.items()}
                for log in followed:
                    world.feeds.take(Following(latest[log], LOG_ID, world.order.place, world.order.position))
            case _:
                pass
        for each, start in zip(feeds, starts, strict=True):
            expected = world.order.names_of(each.log, start)
            assert given[each] == expected[: len(given[each])]
    for _ in range(100):
        serve_daemon()
        push_all()
        for feed in feeds:
            take(feed, 1_000)
            if feed.wants_reading:
                world.readings.pop(feed, None)
                world.read(feed)
    for each, start in zip(feeds, starts, strict=True):
        assert each.is_live
        assert given[each] == world.order.names_of(each.log, start)
