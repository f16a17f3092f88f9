"""Reads the durable order, for programs without asyncio. All as in `totempole.client.log_reader`.

log = LogReader(log_endpoints(), log="orders")
for record in log.read(start=position, follow=True):
    ...
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from totempole.client.endpoint import Endpoint, Path, Reconnect, Tls, reconnect_of
from totempole.client.log_endpoints import (
    ANSWER_S_MAX,
    Replicas,
    check_measures,
    cut_off,
    is_refusal,
    located,
    log_endpoints,
    unexpected,
    unreachable,
)
from totempole.client.log_records import LogBatch, Notice, Reading, Record, Start
from totempole.corel.run import RunId
from totempole.errors import CodecError, SessionError
from totempole.log.blocks import BLOCK_BYTES, Blocks
from totempole.session.log_frames import (
    COLUMNS,
    FRAME_BYTES_MAX,
    SILENCE_S,
    Answer,
    AskSegments,
    AskStatus,
    Failed,
    FrameBuffer,
    Locate,
    Measure,
    Measured,
    OrderedRun,
    Reached,
    ReplicaStatus,
    Request,
    Segments,
    Welcome,
    decode_answer,
    decode_viewed_answer,
    encode,
)

Wait = Callable[[socket.socket | None, float], bool | None]
"""Waits until the socket can be read: True; or until that time of the steady clock: False. None: there is
something else to do. It is asked again."""


def log_reader(
    log: str = "",
    *,
    path: Path | Sequence[Path] | None = None,
    replicas: str | Sequence[str] | None = None,
    tls: ssl.SSLContext | Tls | None = None,
    name: str = "",
    reconnect: bool | Reconnect = True,
) -> LogReader:
    """For programs that only read: `log` is the name of one log; empty: all of them, as one order.

    The log service is that beside the daemon at `path`, or those of several, as `connect` has it; or, on
    other hosts, those of `replicas` ("address:port,…", as their setting log.listen has it), with `tls`. They
    are asked in turn. `reconnect` says how long a reading waits for a service to come back.
    """
    endpoints = log_endpoints(path, replicas, tls)
    return LogReader(endpoints, log=log, name=name, reconnect=reconnect_of(reconnect))


class LogReader:
    """For one thread at a time."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        log: str = "",
        name: str = "",
        reconnect: Reconnect | None = None,
        logger: logging.Logger | None = None,
        blocks: Blocks | None = None,
    ) -> None:
        """`log`: the name of one log; empty: all of them, as one order. `blocks`: it receives into these, and
        bodies of runs are views of them, for those who do not keep runs."""
        self.log = log
        self._endpoints = tuple(endpoints)
        self._name = name
        self._reconnect = reconnect
        self._logger = logger or logging.getLogger("totempole.client")
        self._blocks = blocks
        self.log_id = 0
        """The log's own name, once a service has told it: another one is not read."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self._endpoints

    @property
    def name(self) -> str:
        """What the program calls itself."""
        return self._name

    @property
    def reconnect(self) -> Reconnect | None:
        return self._reconnect

    def replicas(self, *only: Endpoint) -> Replicas:
        """The services, to be asked in turn; or only these."""
        return Replicas(only or self._endpoints, self._reconnect, self._name, self.log_id)

    def read(
        self, start: Start = "earliest", stop: int | None = None, *, follow: bool = False, known: int = 0
    ) -> Iterator[Record]:
        """Records from position `start` on, before `stop`. Without `follow` it ends with what was green
        when it began. LogTrimmedError names the earliest position that is kept."""
        for batch in self.batches(start, stop, follow=follow, known=known):
            yield from batch

    def batches(
        self,
        start: Start = "earliest",
        stop: int | None = None,
        *,
        follow: bool = False,
        bytes_max: int = 0,
        columns: Sequence[str] = COLUMNS,
        known: int = 0,
    ) -> Iterator[LogBatch]:
        """The same, run by run. `bytes_max` ends it after so many bytes. Payloads and keys are not sent if
        `columns` does not name them. `known`: positions before it are known to be green, though the replica
        may not have written so yet."""
        reading = Reading(
            self.log, start, stop, follow=follow, bytes_max=bytes_max, columns=columns, known=known
        )
        for item in self.follow(reading):
            assert isinstance(item, LogBatch), "no notices were asked for"
            yield item

    def follow(self, reading: Reading) -> Iterator[LogBatch | Notice]:
        """What a reading asks for, until it is done."""
        for answer in self.answers(reading):
            yield from reading.take(answer)

    def answers(self, reading: Reading) -> Iterator[Answer]:
        """As they come: each is to be given to the reading before the next is taken."""
        for answer in self.steps(reading, _wait):
            assert answer is not None, "it waits for as long as it takes"
            yield answer

    def steps(self, reading: Reading, wait: Wait) -> Iterator[Answer | None]:
        """The same for a program that has something else to do meanwhile: None when `wait` says so."""
        replicas = self.replicas()
        while not reading.is_done:
            try:
                with self.connected(replicas) as (link, welcome):
                    yield from self._read_from(link, welcome, replicas, reading, wait)
            except SessionError as error:
                until_s = time.monotonic() + self._failed(replicas, error)
                while wait(None, until_s) is None:
                    yield None

    def locate(self, run: RunId) -> OrderedRun | None:
        """Where a run is in the order. None: it is not green at the replica that was asked. LogError: it may
        have been trimmed."""
        return located(self._ask(Locate(run)))

    def status(self) -> ReplicaStatus:
        """Of the first replica that answers."""
        answer = self._ask(AskStatus())
        if isinstance(answer, ReplicaStatus):
            return answer
        raise unexpected(answer)

    def segments(self) -> Segments:
        """The sizes of the first replica's segments that answers: to read in parts of about one size."""
        answer = self._ask(AskSegments())
        if isinstance(answer, Segments):
            return answer
        raise unexpected(answer)

    def measure(self, request: Measure) -> Measured:
        """How far a program may read within bounds. LogTrimmedError as for reading."""
        answer = self._ask(request)
        if isinstance(answer, Measured):
            return answer
        raise unexpected(answer)

    # Within

    def _ask(self, request: Request) -> Answer:
        replicas = self.replicas()
        while True:
            try:
                with self.connected(replicas) as (link, welcome):
                    check_measures(request, welcome)
                    link.send(request)
                    while isinstance(answer := link.next(ANSWER_S_MAX), Reached):
                        pass  # it takes long
                    if not isinstance(answer, Failed):
                        return answer
                    raise replicas.refused(answer)
            except SessionError as error:
                self.pause(replicas, error)

    def _read_from(
        self, link: Link, welcome: Welcome, replicas: Replicas, reading: Reading, wait: Wait
    ) -> Iterator[Answer | None]:
        request = reading.request(welcome.position)
        if reading.is_done:
            return
        link.send(request)
        while not reading.is_done:
            if not link.has_frames and link.wait(SILENCE_S, wait) is None:
                yield None
                continue
            answer = link.next(SILENCE_S)
            if isinstance(answer, Failed):
                raise replicas.refused(answer)
            yield answer
            replicas.answered(answer)
            if reading.is_stalled and len(replicas.endpoints) > 1:
                raise SessionError(f"the replica at {replicas.endpoint} has not got so far yet")

    @contextmanager
    def connected(self, replicas: Replicas) -> Iterator[tuple[Link, Welcome]]:
        """Speaks with the service whose turn it is. SessionError: another, or the same later, may do."""
        link = Link(replicas.endpoint, self._blocks)
        try:
            link.send(replicas.hello())
            answer = link.next(ANSWER_S_MAX)
            if isinstance(answer, Failed):
                raise replicas.refused(answer)
            if not isinstance(answer, Welcome):
                raise unexpected(answer)
            replicas.welcomed(answer, time.monotonic())
            self.log_id = replicas.log
            yield link, answer
        finally:
            link.close()

    def pause(self, replicas: Replicas, error: SessionError) -> None:
        """Waits until the next service may be asked. Raises if there is no use."""
        time.sleep(self._failed(replicas, error))

    def _failed(self, replicas: Replicas, error: SessionError) -> float:
        """How long to wait before the next is asked."""
        where = replicas.endpoint
        pause_s = replicas.failed(error, time.monotonic())
        self._logger.info("reading from %s has stopped: %s; next %s", where, error, replicas.endpoint)
        return pause_s


def _wait(sock: socket.socket | None, until_s: float) -> bool | None:
    """A `Wait` with nothing else to do: a socket is waited for where it is read."""
    if sock is None:
        time.sleep(max(0.0, until_s - time.monotonic()))
    return sock is not None


class Link:
    """One connection."""

    def __init__(self, where: Endpoint, blocks: Blocks | None = None) -> None:
        self._buffer: FrameBuffer[Answer]
        if blocks is None:
            self._buffer = FrameBuffer(decode_answer, FRAME_BYTES_MAX)
        else:
            self._buffer = FrameBuffer(decode_viewed_answer, FRAME_BYTES_MAX, BLOCK_BYTES, blocks)
        self._frames: deque[Answer] = deque()
        self._heard_s = time.monotonic()
        self._has_heard = False
        self._where = where
        try:
            self._socket = _connect(where)
        except OSError as error:
            raise unreachable(where, error) from None

    def send(self, request: Request) -> None:
        try:
            self._socket.sendall(encode(request))
        except TimeoutError:  # part of it may be sent: nothing can follow
            raise SessionError("the log service does not read what it is sent") from None
        except OSError:
            pass  # why it has hung up may be there to be read

    def has_news(self) -> bool:
        """Whether `next` would not wait; or only for the rest of a frame."""
        if self._frames or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            return True
        poll = select.poll()  # `select` takes no descriptor from 1024 on
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def has_frames(self) -> bool:
        return bool(self._frames)

    def wait(self, timeout_s: float, wait: Wait) -> bool | None:
        """As a `Wait`, until it can be read. SessionError when it has been silent for so long."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        ready = wait(self._socket, self._heard_s + timeout_s)
        if ready is False:
            raise _silent(timeout_s)
        return ready

    def next(self, timeout_s: float) -> Answer:
        """The next frame. SessionError when the connection is lost, or silent for so long."""
        self._socket.settimeout(timeout_s)
        while not self._frames:
            try:
                count = self._socket.recv_into(self._buffer.room())
            except TimeoutError:
                raise _silent(timeout_s) from None
            except OSError as error:
                if is_refusal(error):
                    raise unreachable(self._where, error) from None
                raise self._lost(error) from None
            if not count:
                raise self._lost("it has closed the connection")
            self._heard_s = time.monotonic()
            self._has_heard = True
            try:
                self._frames += self._buffer.filled(count)
            except CodecError as error:
                raise SessionError(f"the log service: {error}") from None
        return self._frames.popleft()

    def close(self) -> None:
        self._socket.close()

    def _lost(self, why: object) -> SessionError:
        if self._has_heard or self._where.context is None:
            return SessionError(f"the connection to the log service is lost: {why}")
        return cut_off(self._where)


def _silent(timeout_s: float) -> SessionError:
    return SessionError(f"the log service has said nothing for {timeout_s:g} s")


def _connect(where: Endpoint) -> socket.socket:
    if where.path:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(ANSWER_S_MAX)
            sock.connect(where.path)
        except BaseException:
            sock.close()
            raise
        return sock
    plain = socket.create_connection((where.host, where.port), ANSWER_S_MAX)
    assert where.context is not None, "other hosts are reached by TLS"
    try:
        return where.context.wrap_socket(plain, server_hostname=where.server_name)
    except BaseException:
        plain.close()
        raise
