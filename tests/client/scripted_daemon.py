"""A daemon's side of a conversation that tests write themselves, frame by frame, and its vocabulary."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from totempole.client.protocol import Protocol
from totempole.groups import pack
from totempole.groups.events import BecameSafe, GroupMessages, GroupView, StateAsked, StateBegins, StateChunk
from totempole.session import (
    CLIENT_KINDS,
    Done,
    Hello,
    Join,
    Kind,
    Large,
    Leave,
    Limits,
    Part,
    Send,
    Welcome,
    cost_of,
)
from totempole.session.codec import Assembly, FrameReader, cut, decode
from totempole.types import ConfigurationKind, OrderKey, Place, ProcessId, RingId, Service

ME = ProcessId(1, 1, 7)
OTHER = ProcessId(2, 1, 3)
THIRD = ProcessId(3, 1, 9)
RING = RingId(4, 1)

LIMITS = Limits(
    send_bytes_max=100_000,
    message_bytes_max=8_000_000,
    group_name_bytes_max=100,
    groups_per_message_max=16,
    groups_per_process_max=1_000,
    batch_bytes=60_000,
    append_bytes_max=100_000,
)
CREDIT = 262_144
LIMIT_S = 60.0
VISIT_S = 10.0


def hear(protocol: Protocol, data: bytes) -> None:
    """What a daemon says, read as a session reads it."""
    while data:
        with protocol.room() as room:
            count = min(len(room), len(data))
            room[:count] = data[:count]
        protocol.received(count)
        data = data[count:]


def place(seq: int, index: int = 0) -> Place:
    return Place(OrderKey(RING, seq, RingId(0, 0)), index)


def messages(
    seq: int, *payloads: bytes, groups: Sequence[str] = ("g",), sender: ProcessId = OTHER
) -> GroupMessages:
    batch = pack(payloads)
    return GroupMessages(sender, seq, len(payloads), tuple(groups), batch, Service.AGREED, place(seq))


def view(
    seq: int,
    *others: ProcessId,
    group: str = "g",
    me: ProcessId = ME,
    first: bool = False,
    kind: str = "regular",
) -> GroupView:
    """The first view of a membership does not have the program come along."""
    together = others if first else (me, *others)
    return GroupView(
        group,
        ConfigurationKind(kind),
        (me, *others),
        together,
        place(seq),
        "join" if first else "configuration",
    )


def merged(seq: int, *strangers: ProcessId, group: str = "g") -> GroupView:
    """Sides come together: those of the other one have not come along."""
    members = tuple(sorted((ME, *strangers)))
    return GroupView(group, ConfigurationKind.REGULAR, members, (ME,), place(seq), "configuration")


def safe(seq: int, count: int = 1, groups: Sequence[str] = ("g",)) -> BecameSafe:
    return BecameSafe(OTHER, seq, count, tuple(groups), place(seq))


def asked(seq: int, group: str = "g", joiner: ProcessId = OTHER) -> StateAsked:
    return StateAsked(group, joiner, place(seq))


def begins(seq: int, donor: ProcessId | None = OTHER, group: str = "g") -> StateBegins:
    return StateBegins(group, donor, place(seq))


def chunk(content: bytes, last: bool = False, donor: ProcessId = OTHER, group: str = "g") -> StateChunk:
    return StateChunk(group, donor, content, last, place(999))


def welcome(process: ProcessId = ME, credit: int = CREDIT, limits: Limits = LIMITS) -> Welcome:
    return Welcome(process, 1, credit, limits)


def encoded(*frames: Any) -> bytes:
    return b"".join(b"".join(buffers) for frame in frames for buffers in cut(frame))


class Hearing:
    """Reads what a program sends. Large messages are put together and also come out as Send."""

    def __init__(self) -> None:
        self._reader = FrameReader(CLIENT_KINDS)
        self._assembly: Assembly | None = None
        self.spent = 0

    def feed(self, data: bytes) -> list[Any]:
        self._reader.feed(data)
        heard = []
        while found := self._reader.take():
            for kind, body in found:
                frame = decode(kind, body)
                if kind in (Kind.SEND, Kind.STATE):
                    self.spent += cost_of(len(body))
                if isinstance(frame, Large):
                    self._assembly = Assembly(frame.kind, frame.total)
                if isinstance(frame, Part):
                    assert self._assembly is not None
                    if not self._assembly.add(frame.content):
                        continue
                    frame = decode(self._assembly.kind, self._assembly.body)
                heard.append(frame)
        return heard


class ScriptedDaemon:
    """The other end of a program's socket, used from a test's own thread or loop. It never waits for ever."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(10)
        self.socket = sock
        self.hearing = Hearing()
        self.heard: list[Any] = []

    def say(self, *frames: Any) -> None:
        self.socket.sendall(encoded(*frames))

    def hear(self, kind: type) -> Any:
        """The next frame of that type; what comes before it is passed over."""
        while True:
            while self.heard:
                frame = self.heard.pop(0)
                if isinstance(frame, kind):
                    return frame
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError(kind.__name__)
            self.heard += self.hearing.feed(data)

    def greet(self, process: ProcessId = ME, credit: int = CREDIT) -> Hello:
        hello: Hello = self.hear(Hello)
        self.say(welcome(process, credit))
        return hello

    def let_join(self, seq: int, *others: ProcessId, me: ProcessId = ME) -> Join:
        join: Join = self.hear(Join)
        self.say(Done(join.request), view(seq, *others, group=join.group, me=me, first=True))
        return join

    def let_leave(self) -> Leave:
        leave: Leave = self.hear(Leave)
        self.say(Done(leave.request))
        return leave

    def hear_messages(self, count: int) -> list[bytes]:
        """Payloads of as many SENDs as it takes."""
        from totempole.groups import Batch

        payloads: list[bytes] = []
        while len(payloads) < count:
            send: Send = self.hear(Send)
            payloads += Batch(send.batch)
        return payloads


Script = Callable[[ScriptedDaemon], None]


class Door:
    """Listens on a path; each visit is played by the next script."""

    def __init__(self, path: Path, *scripts: Script) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(VISIT_S)
        self._scripts = scripts
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._play)

    def __enter__(self) -> Door:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(LIMIT_S)
        self._listener.close()
        if self._failure is not None:
            raise self._failure

    def _play(self) -> None:
        try:
            for script in self._scripts:
                sock, _ = self._listener.accept()
                with sock:
                    script(ScriptedDaemon(sock))
        except BaseException as failure:
            self._failure = failure
