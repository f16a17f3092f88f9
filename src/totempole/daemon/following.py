"""Programs that follow logs: green runs go to them from the replica's memory, as it orders them.

A run is encoded once, however many follow its log; the log's own runs go once to each program that follows
any. What a program has not read of it is bounded by its queue: one that falls behind is told so, and reads
the log service until it has caught up. Nobody else notices.

The replica tells of green runs only while somebody follows (`TellGreen`). While it has no log open, those who
follow wait, and are answered when it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from totempole.core.inputs import Command
from totempole.corel.commands import TellGreen
from totempole.corel.events import GreenEnded, GreenLine, GreenNews, GreenRuns
from totempole.corel.run import log_name_of
from totempole.corel.zones import Ordered
from totempole.daemon.connection import FOLLOWS_MAX, Connection
from totempole.daemon.queue import Outgoing
from totempole.session import FollowEnd, FollowEnded, Following, LogRuns
from totempole.session.codec import cut
from totempole.session.log_frames import OrderedRun

BEAT_US = 1_000_000
"""Programs hear so often how far the order is, if no run of theirs tells them."""

_encode = msgspec.msgpack.Encoder().encode


class Followers:
    def __init__(self, feed: Callable[[Command], None]) -> None:
        """`feed` gives a command to the replica, whose effects are carried out before it returns."""
        self._feed = feed
        self._line: GreenLine | None = None
        """How far the order is. None: no log is open, or nobody follows."""
        self._is_told = False
        self._logs: dict[str, dict[Connection, None]] = {}
        self._follows: dict[Connection, dict[str, int]] = {}
        """By log, the request."""
        self._beat_us = 0
        self._beat_place = 0
        self.ended_slow = 0
        """Programs that were told that they are too slow."""

    @property
    def count(self) -> int:
        """Programs that follow a log."""
        return len(self._follows)

    # Programs

    def follow(self, connection: Connection, request: int, log: str) -> bool:
        """False: it follows too many."""
        follows = self._follows.get(connection, {})
        if len(follows) >= FOLLOWS_MAX and log not in follows:
            return False
        if not self._is_told:
            self._is_told = True
            self._feed(TellGreen(True))
        self._follows[connection] = follows
        follows[log] = request
        self._logs.setdefault(log, {})[connection] = None
        if self._line is None:
            connection.answer(FollowEnded(FollowEnd.CLOSED))
        else:
            connection.answer(Following(request, *self._line))
        return True

    def unfollow(self, connection: Connection, log: str) -> None:
        follows = self._follows.get(connection, {})
        if follows.pop(log, None) is not None:
            self._drop(connection, (log,))
            if not follows:
                del self._follows[connection]

    def remove(self, connection: Connection) -> None:
        """It is gone, or follows nothing any more."""
        self._drop(connection, self._follows.pop(connection, {}))

    def _drop(self, connection: Connection, logs: Iterable[str]) -> None:
        for log in logs:
            followers = self._logs[log]
            del followers[connection]
            if not followers:
                del self._logs[log]

    def reset(self) -> None:
        """The replica is another one, and knows of nobody."""
        self._line, self._is_told = None, False
        self._logs.clear()
        self._follows.clear()

    # The replica

    def told(self, event: GreenNews) -> None:
        match event:
            case GreenRuns(runs):
                self._push_all(runs)
            case GreenLine():
                if self._line is not None:
                    self._tell_all(FollowEnded(FollowEnd.JUMPED))
                self._begin(event)
            case GreenEnded():
                self._line = None
                self._tell_all(FollowEnded(FollowEnd.CLOSED))

    def _begin(self, line: GreenLine) -> None:
        """All who follow hear from where on."""
        self._line, self._beat_place = line, line.place
        for connection, follows in list(self._follows.items()):
            for request in follows.values():
                connection.answer(Following(request, *line))

    def _tell_all(self, frame: FollowEnded) -> None:
        frames = _frames(frame)
        for connection in list(self._follows):
            connection.put(frames)

    def _push_all(self, runs: Sequence[Ordered]) -> None:
        """In their order: a run of the log's own goes to all, so what was gathered before it goes first."""
        line = self._line
        assert line is not None, "the line is told before its runs"
        last = runs[-1]
        self._line = GreenLine(line.log, last.place + 1, last.position + last.positions)
        gathered: dict[str, list[Ordered]] = {}
        for ordered in runs:
            log = log_name_of(ordered.run)
            if not log:
                self._push(gathered)
                self._push({"": [ordered]})
                gathered = {}
            elif log in self._logs and ordered.fenced is None:
                gathered.setdefault(log, []).append(ordered)
        self._push(gathered)

    def _push(self, gathered: dict[str, list[Ordered]]) -> None:
        for log, runs in gathered.items():
            # Nobody may be left: a program that is too slow for one of its logs follows none any more.
            followers = self._logs.get(log) if log else self._follows
            if followers:
                self._send(followers, _runs_frame(log, runs))

    def _send(self, followers: Iterable[Connection], frame: LogRuns) -> None:
        frames = _frames(frame)
        slow = [connection for connection in followers if not connection.push(frames)]
        for connection in slow:
            self.ended_slow += 1
            self.remove(connection)
            connection.answer(FollowEnded(FollowEnd.TOO_SLOW))

    # Now and then

    def keep_house(self, now_us: int) -> None:
        """Tells how far the order is to those whose logs have not grown, and the replica that nobody
        follows."""
        if self._is_told and not self._follows:
            self._is_told, self._line = False, None
            self._feed(TellGreen(False))
        line = self._line
        if line is not None and now_us >= self._beat_us and line.place != self._beat_place:
            self._beat_us, self._beat_place = now_us + BEAT_US, line.place
            self._send(self._follows, LogRuns("", NO_RUNS, line.place, line.position))


def _frames(frame: LogRuns | FollowEnded) -> list[Outgoing]:
    return [Outgoing(buffers) for buffers in cut(frame)]


def _runs_frame(log: str, runs: Sequence[Ordered]) -> LogRuns:
    last = runs[-1]
    encoded = _encode([OrderedRun.of(ordered) for ordered in runs])
    return LogRuns(log, encoded, last.place + 1, last.position + last.positions)


NO_RUNS = _encode([])
