"""A feed of a log, for programs without asyncio. All as in `totempole.client.feed`.

    with session.feed("orders", start=position) as feed:
        for item in feed:
            ...

It reads what lies before, and hears of what comes, in the program's own calls: of the feed, and what comes in
any call of the session.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from totempole.client.blocking_log_reader import LogReader
from totempole.client.feeding import FeedBase, Feeding, Item
from totempole.client.log_records import Reading
from totempole.errors import SessionError
from totempole.session.log_frames import Answer

if TYPE_CHECKING:
    from totempole.client.blocking import Session
    from totempole.client.endpoint import Endpoint, Reconnect


class Feed(FeedBase, Iterator[Item]):
    """Made by `Session.feed`."""

    def __init__(
        self,
        session: Session,
        feeding: Feeding,
        endpoints: Callable[[], Sequence[Endpoint]],
        reconnect: Reconnect | None,
    ) -> None:
        """`endpoints`: the log services that it reads from; `reconnect`: how it comes back to them."""
        self._session = session
        super().__init__(feeding)
        self._endpoints = endpoints
        self._reconnect = reconnect
        self._reader: LogReader | None = None
        self._steps: Iterator[Answer | None] | None = None
        self._reading: Reading | None = None
        self._deadline: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives nothing more."""
        self._stop_reading()
        self._session.end_feed(self._feeding)

    # Taking

    def __next__(self) -> Item:
        item = self.next()
        if item is None:
            raise StopIteration
        return item

    def next(self, timeout: float | None = None) -> Item | None:
        """The next item; None at the end. TimeoutError if there is none within `timeout` seconds;
        LogTrimmedError if what comes next is not kept any more."""
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._work(lambda: self._feeding.has_items)
        return self._feeding.take()

    def take(self) -> list[Item]:
        """What has come, without waiting."""
        if self._feeding.is_live:
            self._session.serve(None, time.monotonic(), lambda: True)
        return self.drain()

    def drain(self) -> list[Item]:
        """What the session has received by now: the socket is not looked at."""
        taken: list[Item] = []
        while (item := self._feeding.take()) is not None:
            taken.append(item)
        return taken

    def reach(self, place: int, timeout: float | None = None) -> list[Item]:
        """Waits until it has come so far: the items up to there, and perhaps more."""
        self._deadline = None if timeout is None else time.monotonic() + timeout
        taken = self.take()
        while self.place < place:
            self._work(lambda: self._feeding.has_items or self.place >= place)
            taken += self.take()
            if self._feeding.is_over and self.place < place:
                raise self._feeding.error or SessionError("the feed is closed")
        return taken

    @property
    def is_over(self) -> bool:
        return self._feeding.is_over

    @property
    def error(self) -> Exception | None:
        """Why it is over; None: the program wanted it."""
        return self._feeding.error

    # Waiting

    def until(self, done: Callable[[], object], deadline: float | None) -> None:
        """For a program that takes items while it looks whether it is done: reads and writes until then, or
        until the feed is over. TimeoutError when that is too late."""
        self._deadline = deadline
        self._work(done)

    def _work(self, done: Callable[[], object]) -> None:
        """Until it is done, or the feed is over."""
        feeding = self._feeding
        while not done():
            if feeding.is_over:
                if feeding.error is not None:
                    raise feeding.error
                return
            if feeding.wants_reading:
                self._read()
                self._check_deadline()
            else:
                self._stop_reading()
                self._session.until(lambda: done() or not feeding.is_live, self._deadline)

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline and not self._feeding.has_items:
            raise TimeoutError("nothing came in time")

    # Reading what lies before

    def _read(self) -> None:
        """One answer of the log service, or what else there is to do meanwhile."""
        feeding = self._feeding
        if self._reader is None:
            self._reader = LogReader(self._endpoints(), log=feeding.log, reconnect=self._reconnect)
        if self._steps is None or self._reading is None:
            self._reader.log_id = feeding.log_id
            self._reading = feeding.new_reading()
            self._steps = self._reader.steps(self._reading, self._wait)
        try:
            answer = next(self._steps)
        except Exception as error:
            self._stop_reading()
            feeding.end(error)
            return
        if answer is not None:
            feeding.read(self._reading, answer, self._reader.log_id)

    def _wait(self, sock: socket.socket | None, until_s: float) -> bool | None:
        """Serves the session until the log service has something."""
        deadline = self._deadline
        end_s = until_s if deadline is None else min(until_s, deadline)
        if self._session.serve(sock, end_s, lambda: not self._feeding.wants_reading):
            return True
        if not self._feeding.wants_reading or time.monotonic() < until_s:
            return None
        return False

    def _stop_reading(self) -> None:
        steps, self._steps, self._reading = self._steps, None, None
        if steps is not None:
            steps.close()  # type: ignore[attr-defined]  # of a generator
