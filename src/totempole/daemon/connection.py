"""One client: its socket, what it has sent so far of its next frames, and what it may do.

    GREETING  only HELLO; too late, and it is closed
    OPEN      everything else
    CLOSING   the last frame is being written; nothing is read any more
    CLOSED

A connection never waits: it reads what is there, a bounded piece at a time when its turn comes
(`service`), and writes what the socket takes. Whatever goes wrong ends in `end`: the cause is told to the
client as its last frame, logged by the service, and the process leaves its groups.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Protocol

from totempole.core.inputs import Command
from totempole.corel.commands import AppendRecords, FindRun, ReadBarrier, SetHold
from totempole.corel.events import Accepted, BarrierPassed, Durable, Fenced, LogAnswer, Lost, Placed, Unknown
from totempole.corel.run import RunId
from totempole.daemon.account import Account, request_weight, send_weight, state_weight
from totempole.daemon.config import LARGE_HEAD_BYTES
from totempole.daemon.identity import Identity
from totempole.daemon.queue import ClientQueue, Outgoing
from totempole.daemon.sharing import Sharing
from totempole.errors import CodecError, SessionError
from totempole.groups.commands import GiveState, JoinGroup, LeaveGroup, Multicast
from totempole.groups.events import GroupEvent
from totempole.groups.packing import Batch
from totempole.session import (
    CLIENT_KINDS,
    FOR_GOOD,
    KEY_BYTES_MAX,
    NO_RUN,
    VERSION,
    Append,
    AskBarrier,
    AskGroups,
    AskNetworks,
    Bye,
    Credit,
    DaemonFrame,
    Done,
    Ended,
    FollowEnd,
    FollowEnded,
    FollowLog,
    Freed,
    Hello,
    HoldLog,
    Join,
    Kind,
    Large,
    Leave,
    Limits,
    Refused,
    RunAccepted,
    RunDurable,
    RunFenced,
    RunLost,
    RunPlaced,
    RunUnknown,
    Send,
    State,
    Unfollow,
    Welcome,
    cost_of,
)
from totempole.session import BarrierPassed as PassedFrame
from totempole.session import FindRun as FindFrame
from totempole.session.codec import Assembly, FrameReader, cut, decode
from totempole.types import Payload, ProcessId

READ_BYTES = 262_144
SEND_BUFFER_BYTES = 2_097_152
"""Asked of the kernel: fewer and longer writes to a client that reads."""
SHARED_PART = 4
"""Memory that a client shares with the daemon is at most such a part of what it may leave unread."""
FRAMES_PER_TURN = 32
TURN_US = 1_000
"""A turn: one read, and so many frames, or those that are begun within so long."""
WRITES_PER_TURN = 4

GREETING_US = 5_000_000
CLOSING_US = 2_000_000
"""So long a client may take for its greeting, and for reading its last frame."""

FOLLOWS_MAX = 4_096
"""Logs that one client follows."""
BARRIERS_MAX = 64
"""Barriers that one client waits for."""
REQUESTS_MAX = 1_024
"""Requests to the log that one client waits for. It is not listened to while there are more."""

GRANT_US = 30_000_000
GRANT_BYTES_PER_US = 1
"""How long a grant lasts, and what is added for its size: a mebibyte a second is expected."""


NO_LOG = "this node keeps no log: connect to a node whose settings have [log] enabled = true"


class Phase(Enum):
    GREETING = "greeting"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class ProtocolViolation(Exception):
    """The client has done what it must not. The reason is a short fixed word, for counters. `for_good`: it
    would do the same in its next session."""

    def __init__(self, reason: str, text: str, *, for_good: bool = True) -> None:
        super().__init__(text)
        self.reason = reason
        self.for_good = for_good


class ByteStream(Protocol):
    """What the daemon uses of a non-blocking socket. The simulator has one without a kernel."""

    def fileno(self) -> int: ...

    def setblocking(self, flag: bool, /) -> None: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def sendmsg(self, buffers: Sequence[Payload], ancillary: tuple[()] = ..., flags: int = ..., /) -> int: ...

    def close(self) -> None: ...


class Server(Protocol):
    """What a connection needs of the service."""

    @property
    def limits(self) -> Limits: ...

    @property
    def crowded(self) -> bool:
        """Whether too much waits for the ring to listen to anybody."""

    def now_us(self) -> int: ...

    def feed(self, command: Command) -> None: ...

    def welcome(self, connection: Connection) -> tuple[ProcessId, int]:
        """A new process and the cluster's id; SessionError when there cannot be one."""

    def ask_large(self, connection: Connection, total: int) -> None: ...

    def give_back(self, size: int) -> None:
        """To the pool of large messages."""

    def ask_groups(self, connection: Connection, request: int) -> bool: ...

    def ask_networks(self, connection: Connection, request: int, watch: bool) -> None: ...

    @property
    def log_position(self) -> int:
        """Of the next record."""

    @property
    def log_accepts(self) -> bool:
        """Whether the log takes more records at present."""

    @property
    def log_is_closed(self) -> bool:
        """Whether this node can do without its log only: another replica may take what this one refuses."""

    @property
    def log_is_open(self) -> bool: ...

    def wall_us(self) -> int: ...

    def follow(self, connection: Connection, request: int, log: str) -> bool:
        """Whether it may follow one more log."""

    def unfollow(self, connection: Connection, log: str) -> None: ...

    def tell_accepted_soon(self, connection: Connection) -> None:
        """Calls its `tell_accepted`."""

    def has_frames(self, connection: Connection) -> None:
        """Something waits to be written."""

    def ended(self, connection: Connection, reason: str, text: str) -> None:
        """The client is not in any more; its last frame may still be on its way."""

    def closed(self, connection: Connection) -> None:
        """The socket is closed now."""


class Connection:
    def __init__(
        self, server: Server, sock: ByteStream, identity: Identity, queue: ClientQueue, account: Account
    ) -> None:
        sock.setblocking(False)
        with suppress(OSError):
            # What the kernel holds for a client is part of what the client may leave unread.
            size = min(SEND_BUFFER_BYTES, queue.bytes_max // 8)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
        self.socket = sock
        self.descriptor = sock.fileno()
        self.identity = identity
        self.queue = queue
        self.account = account
        self.phase = Phase.GREETING
        self.name = ""
        self.process = 0
        """Its number, once it is welcome."""
        self.deadline_us: int | None = server.now_us() + GREETING_US
        """When it is closed unless something happens before."""
        self._server = server
        self._reader = FrameReader(CLIENT_KINDS)
        self._sharing: Sharing | None = None
        """Memory that the program has offered for what it is told."""
        self._more = False
        self._speechless = False
        """It has hung up, or does not read any more: nothing can be written. What it sent is still read."""
        self._asked: Large | None = None
        """The large message that it waits to be granted,"""
        self._appends: dict[int, bool] = {}
        """Requests to the log that are not answered, and whether they ask for the disk."""
        self._accepted: dict[int, RunAccepted] = {}
        """What the client is told a moment later, unless it hears of the end before."""
        self._barriers: set[int] = set()
        """Those that have not passed."""
        self._assembly: Assembly | None = None
        """and the one that it was granted and is sending."""

    # Reading

    @property
    def listens(self) -> bool:
        """Whether more may be read from it: not while it, or all together, have too much waiting for the
        ring, nor while it leaves unread so much that its own sends are to wait."""
        held_up = self.account.overloaded or self.queue.blocks or self._server.crowded
        held_up = held_up or (bool(self._appends) and not self._server.log_accepts)
        held_up = held_up or len(self._appends) >= REQUESTS_MAX
        return self.phase is Phase.GREETING or (self.phase is Phase.OPEN and not held_up)

    @property
    def events(self) -> int:
        """What to wait for on its socket."""
        reading = select.EPOLLIN if self.listens else 0
        return reading | (select.EPOLLOUT if self.queue else 0)

    @property
    def wants_turn(self) -> bool:
        """Whether it has something to take, whatever its socket says."""
        return self._more and self.listens

    def take_turn(self) -> None:
        """Reads a piece and takes some frames."""
        try:
            if self._more:
                self._take_frames()
            elif self.listens:
                self._read()
        except CodecError as error:
            self.end(error.reason, f"what this client sent is not understood: {error}", for_good=True)
        except ProtocolViolation as violation:
            self.end(violation.reason, str(violation), for_good=violation.for_good)

    def _read(self) -> None:
        try:
            data = self._receive()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._reader.feed(data)
            self._take_frames()
        else:
            self.hang_up()

    def _receive(self) -> bytes:
        sock = self.socket
        if self.phase is not Phase.GREETING or not isinstance(sock, socket.socket):
            return sock.recv(READ_BYTES)
        data, offered, _, _ = socket.recv_fds(sock, READ_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        for descriptor in offered:
            # What lies there is, like what the kernel holds, part of what the client may leave unread.
            self._share(Sharing(descriptor, self.queue.bytes_max // SHARED_PART))
        return data

    def _share(self, sharing: Sharing | None) -> None:
        if self._sharing is not None:
            self._sharing.close()
        self._sharing = sharing
        self.queue.exchange = sharing.exchange if sharing is not None else None

    def _take_frames(self) -> None:
        """As many as a turn has time for: a few bytes may ask for much (65,536 empty records)."""
        until_us = self._server.now_us() + TURN_US
        frames: list[tuple[int, Payload]] = []
        for _ in range(FRAMES_PER_TURN):
            frames = self._reader.take(1)
            if not frames:
                break
            self._take(*frames[0])
            if self._server.now_us() >= until_us:
                break
        self._more = bool(frames) and len(self._reader) > 0

    def _take(self, kind: int, body: Payload) -> None:
        match self.phase:
            case Phase.OPEN if kind == Kind.SEND:
                self._send(body)
            case Phase.OPEN if kind == Kind.APPEND:
                self._append(decode(kind, body), len(body))
            case Phase.OPEN if kind == Kind.PART:
                self._part(body)
            case Phase.OPEN if kind == Kind.STATE:
                self._state(body)
            case Phase.OPEN:
                self._take_rarer(decode(kind, body))
            case Phase.GREETING if kind == Kind.HELLO:
                self._greet(decode(kind, body))
            case Phase.GREETING:
                raise ProtocolViolation("no greeting", "the first frame has to be HELLO")
            case _:
                pass  # it is being closed: what it still says does not count

    def _take_rarer(self, frame: Any) -> None:
        match frame:
            case Join():
                self._join(frame)
            case Leave():
                self._leave(frame)
            case Large():
                self._large(frame)
            case AskGroups(request=request):
                if not self._server.ask_groups(self, request):
                    self.answer(Refused(request, "GROUPS is being answered already: ask one at a time"))
            case AskNetworks(request=request, watch=watch):
                self._server.ask_networks(self, request, watch)
            case FindFrame():
                self._ask_log(frame.request, FindRun(self.process, frame.request, RunId(*frame.run)))
            case HoldLog():
                hold = SetHold(self.process, frame.request, frame.reader, frame.position)
                self._ask_log(frame.request, hold)
            case FollowLog():
                self._follow(frame)
            case Freed(total=total):
                if self._sharing is not None:
                    self._sharing.freed(total)
            case Unfollow(log=log):
                self._server.unfollow(self, log)
            case AskBarrier(request=request):
                self._ask_barrier(request)
            case Bye():
                self.end("bye", "", politely=True)
            case _:
                raise ProtocolViolation("out of place", f"{type(frame).__name__} is out of place")

    # What a client may ask for

    def _greet(self, hello: Hello) -> None:
        self.name = hello.name
        if hello.version != VERSION:
            text = (
                f"this daemon speaks version {VERSION}, the client version {hello.version}: install the same"
            )
            raise ProtocolViolation("version", text)
        try:
            process, cluster_id = self._server.welcome(self)
        except SessionError as error:
            raise ProtocolViolation("refused", str(error), for_good=False) from None
        self.process = process.number
        self.phase = Phase.OPEN
        self.deadline_us = None
        self.answer(Welcome(process, cluster_id, self.account.told, self._server.limits))

    def _join(self, join: Join) -> None:
        # The policy counts from the first view on, which may come before the answer.
        before = self.queue.set_policy(join.group, join.policy)
        try:
            command = JoinGroup(self.process, join.group, join.donor, join.wants_state, join.info)
            self._feed(request_weight(join.group) + len(join.info), command)
        except SessionError as error:
            self.queue.set_policy(join.group, before)
            self.answer(Refused(join.request, str(error)))
        else:
            self.answer(Done(join.request))

    def _leave(self, leave: Leave) -> None:
        try:
            self._feed(request_weight(leave.group), LeaveGroup(self.process, leave.group))
        except SessionError as error:
            self.answer(Refused(leave.request, str(error)))
        else:
            self.queue.set_policy(leave.group, None)
            self.answer(Done(leave.request))

    def _send(self, body: Payload) -> None:
        send: Send = decode(Kind.SEND, body)
        self._spend(len(body))
        self._feed_or_refuse(send_weight(send.groups, len(send.batch)), self._multicast(send))

    def _state(self, body: Payload) -> None:
        state: State = decode(Kind.STATE, body)
        self._spend(len(body))
        weight = state_weight(state.group, len(state.content))
        self._feed_or_refuse(
            weight,
            GiveState(self.process, state.group, state.joiner, state.place, state.content, state.last),
        )

    def _spend(self, size: int) -> None:
        most = self._server.limits.send_bytes_max
        if size > most:
            raise ProtocolViolation(
                "too large", f"{size} bytes in one frame: at most {most}; larger messages go as LARGE"
            )
        if not self.account.spend(cost_of(size)):
            raise ProtocolViolation("overrun", "more was sent than the credit allows")

    def _multicast(self, send: Send) -> Multicast:
        return Multicast(self.process, send.groups, send.batch, send.service, send.notice)

    def _feed_or_refuse(self, weight: int, command: Command) -> None:
        try:
            self._feed(weight, command)
        except SessionError as error:
            raise ProtocolViolation("refused", str(error), for_good=False) from None

    def _feed(self, weight: int, command: Command) -> None:
        self.account.add(weight)  # before it is fed: the ring may take it at once
        try:
            self._server.feed(command)
        except SessionError:
            self.account.taken(weight)
            raise

    # The log

    def _append(self, append: Append, size: int) -> None:
        most = self._server.limits.append_bytes_max
        if most and size > most:
            self.answer(Refused(append.request, f"records of {size} bytes in one frame: at most {most}"))
            return
        try:
            keys = tuple([str(key, "utf-8") for key in Batch(append.keys)]) if append.keys else ()
        except (CodecError, UnicodeDecodeError):
            raise ProtocolViolation("frame malformed", "keys that cannot be read") from None
        if any(len(key.encode()) > KEY_BYTES_MAX for key in keys):
            self.answer(Refused(append.request, f"a key has at most {KEY_BYTES_MAX} bytes"))
            return
        command = AppendRecords(
            self.process,
            append.request,
            append.log,
            bytes(append.batch),
            keys,
            self._server.wall_us(),
            append.fence,
        )
        self._ask_log(append.request, command, append.wants_durable)

    def _ask_log(self, request: int, command: Command, wants_durable: bool = False) -> None:
        """What becomes of it comes to `log_answered`, some of it before this returns."""
        if not self._server.limits.append_bytes_max:
            self.answer(Refused(request, NO_LOG))
            return
        self._check_is_new(request)
        self._appends[request] = wants_durable
        try:
            self._server.feed(command)
        except SessionError as error:
            self._appends.pop(request, None)
            self._barriers.discard(request)
            is_closed = self._server.log_is_closed
            self.answer((RunLost(request, NO_RUN, str(error))) if is_closed else Refused(request, str(error)))

    def _check_is_new(self, request: int) -> None:
        """Two under one number would count as one, and the answer to either as that to both."""
        if request in self._appends:
            raise ProtocolViolation("request in use", f"request {request} waits for its answer already")

    def _follow(self, frame: FollowLog) -> None:
        if not self._server.limits.append_bytes_max:
            self.answer(Refused(frame.request, NO_LOG))
        elif not self._server.follow(self, frame.request, frame.log):
            text = f"this program follows {FOLLOWS_MAX} logs, as many as one may: read the log service"
            self.answer(Refused(frame.request, text))

    def _ask_barrier(self, request: int) -> None:
        if not self._server.limits.append_bytes_max:
            self.answer(Refused(request, NO_LOG))
            return
        self._check_is_new(request)
        if len(self._barriers) >= BARRIERS_MAX:
            text = f"{BARRIERS_MAX} barriers are waited for already: one serves all who wait for it"
            self.answer(Refused(request, text))
            return
        if not self._server.log_is_open:
            self.answer(FollowEnded(FollowEnd.CLOSED))  # it waits here; the client may go elsewhere
        self._barriers.add(request)
        self._ask_log(request, ReadBarrier(self.process, request))

    def tell_accepted(self) -> None:
        accepted, self._accepted = self._accepted, {}
        for frame in accepted.values():
            self.answer(frame)

    def log_answered(self, told: LogAnswer) -> None:
        match told:
            case Accepted(_, request, run):
                self._accepted[request] = RunAccepted(request, run, self._server.log_position)
                self._server.tell_accepted_soon(self)
            case Durable(_, request, run):
                if self._appends.get(request):
                    self.tell_accepted()
                    self.answer(RunDurable(request, run))
            case Placed(_, request, run, position, count, repeats):
                self._ordered(RunPlaced(request, run, position, count, repeats))
            case Fenced(_, request, run, mark, position):
                self._ordered(RunFenced(request, run, mark, position))
            case Lost(_, request, run, why):
                self._appends.pop(request, None)
                self._barriers.discard(request)
                self.tell_accepted()
                self.answer(RunLost(request, run, why))
            case Unknown(_, request, run, is_held):
                if not is_held:
                    self._appends.pop(request, None)
                self.answer(RunUnknown(request, run, is_held))
            case BarrierPassed(_, request, place):
                self._appends.pop(request, None)
                self._barriers.discard(request)
                self.answer(PassedFrame(request, place))

    def _ordered(self, frame: RunPlaced | RunFenced) -> None:
        """The run is green: what the client was to be told of it before is told now, if it asked for it."""
        if self._appends.pop(frame.request, False):
            self.tell_accepted()
        self._accepted.pop(frame.request, None)
        self.answer(frame)

    # Large messages

    @property
    def lent(self) -> int:
        """What the pool has lent it for the message that it is sending."""
        return self._assembly.total if self._assembly is not None else 0

    def _large(self, large: Large) -> None:
        if large.kind != Kind.SEND or self._asked is not None or self._assembly is not None:
            raise ProtocolViolation("out of place", "LARGE is for one message at a time")
        most = self._server.limits.message_bytes_max
        if not 0 < large.total <= most + LARGE_HEAD_BYTES:
            text = f"a message of {large.total} bytes: it has at most {most} (message_bytes_max)"
            self.answer(Refused(large.request, text))
            return
        self._asked = large
        self._server.ask_large(self, large.total)

    def grant(self) -> None:
        """The pool has lent what was asked for."""
        asked, self._asked = self._asked, None
        assert asked is not None
        self._assembly = Assembly(asked.kind, asked.total)
        self.deadline_us = self._server.now_us() + GRANT_US + asked.total // GRANT_BYTES_PER_US
        self.answer(Done(asked.request))

    def _part(self, content: Payload) -> None:
        assembly = self._assembly
        if assembly is None:
            raise ProtocolViolation("out of place", "PART without a LARGE that was granted")
        if not assembly.add(content):
            return
        send: Send = decode(Kind.SEND, assembly.body)
        self._assembly = self.deadline_us = None
        self.account.add_large(send_weight(send.groups, len(send.batch)), assembly.total)
        try:
            self._server.feed(self._multicast(send))
        except SessionError as error:
            self._server.give_back(self.account.drop_large())
            raise ProtocolViolation("refused", str(error), for_good=False) from None

    # Writing

    def answer(self, frame: DaemonFrame) -> None:
        self.put([Outgoing(buffers) for buffers in cut(frame)])

    def put(self, frames: Sequence[Outgoing], above: bool = False) -> None:
        """`above`: may go over the queue's bound, as views may."""
        if self._speechless or self.phase not in (Phase.GREETING, Phase.OPEN):
            return
        if all(self.queue.put(frame, above) for frame in frames):
            self._server.has_frames(self)
        else:
            self._overflow()

    def push(self, frames: Sequence[Outgoing]) -> bool:
        """Runs of a log that it follows. False, and not taken, when it has too much unread."""
        if self._speechless or self.phase is not Phase.OPEN:
            return True
        if not self.queue.push(frames):
            return False
        self._server.has_frames(self)
        return True

    def tell(self, event: GroupEvent, frames: Sequence[Outgoing]) -> None:
        if self._speechless or self.phase is not Phase.OPEN:
            return
        if self.queue.tell(event, frames):
            self._server.has_frames(self)
        else:
            self._overflow()

    def _overflow(self) -> None:
        waiting = self.queue.bytes
        self.end(
            "too slow", f"the client left {waiting} bytes unread, more than client_receive_bytes_max allows"
        )

    def tell_credit(self, in_passing: bool = False) -> None:
        """As far as there is more, and its policy lets it send."""
        if self.phase is Phase.OPEN and not self.queue.blocks:
            credit = self.account.news(in_passing)
            if credit is not None:
                self.answer(Credit(credit))

    def write(self) -> None:
        """As much as the socket takes now."""
        try:
            for _ in range(WRITES_PER_TURN):
                if not self.queue or not self._write_some():
                    break
        except OSError:
            self._speechless = True
            self.queue.discard()
        if self.phase is Phase.CLOSING and not self.queue:
            self._close()

    def _write_some(self) -> bool:
        """Whether the socket took all that it was given."""
        buffers = self.queue.gather()
        try:
            count = self.socket.sendmsg(buffers, (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        self.queue.written(count)
        return count == sum(map(len, buffers))

    # The end

    def end(self, reason: str, text: str, *, politely: bool = False, for_good: bool = False) -> None:
        """Tells the client why, once; what waits is still written before that only `politely`. `for_good`:
        it need not come back as it is."""
        if self.phase not in (Phase.GREETING, Phase.OPEN):
            return
        self.phase = Phase.CLOSING
        self.deadline_us = self._server.now_us() + CLOSING_US
        farewell = Ended(text) if politely else Refused(FOR_GOOD if for_good else 0, text)
        last = Outgoing(cut(farewell)[0])
        self.queue.close(last, politely)
        if self._speechless:
            self.queue.discard()
        self._server.ended(self, reason, text)
        self._server.has_frames(self)

    def hang_up(self) -> None:
        """The client has gone, or is not waited for any more."""
        if self.phase in (Phase.GREETING, Phase.OPEN):
            self.phase = Phase.CLOSING
            amid = len(self._reader) > 0 or self._assembly is not None
            self._server.ended(self, "hung up amid a frame" if amid else "hung up", "")
            self.write()  # it may have closed only its own half
        self._close()

    def _close(self) -> None:
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            self.queue.discard()
            self._server.closed(self)
            self._share(None)
            self.socket.close()

    def expire(self) -> None:
        """The deadline has come."""
        self.deadline_us = None
        match self.phase:
            case Phase.GREETING:
                self.end("no greeting", f"no HELLO within {GREETING_US // 1_000_000} s")
            case Phase.OPEN:
                self.end("grant unused", f"{self.lent} bytes were granted and did not come in time")
            case _:
                self.hang_up()
