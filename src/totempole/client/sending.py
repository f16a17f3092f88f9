"""What a program sends, on its way to the daemon: messages in batches, pieces of a group's state, on credit.

Messages that are handed in one after the other share a SEND as long as they go to the same groups with the
same service, and as long as a SEND of that size still fills a single ring packet. The daemon gives credit
(`session.Credit`), and gives it back as the ring takes what was sent: whoever has none has to wait. What was
sent on credit that is not back, and has not been received by the program itself either, is not known to be
accepted.

What becomes of the messages says a receipt: delivered where, safe, or unknown.

    receipt = await group.multicast(b"…", safe_notice=True)
    place, view = await receipt.delivered()
    await receipt.safe()

It is settled when its messages come back to the program's session. The program need not take them from a
stream first, so it may wait for a receipt in the task that iterates. Messages that share a frame share one
`Sent`, and the receipts of one frame are one object: a program that asks for none pays for none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from totempole.errors import SessionError, Unknown
from totempole.groups.packing import LENGTH_BYTES, MESSAGES_MAX, OVERHEAD_MAX, pack, pack_names
from totempole.session import HEAD, SEND_OVERHEAD, ClientFrame, Limits, Send, State, cost_of
from totempole.session.codec import body_of, encode
from totempole.types import Payload, Place, Service

if TYPE_CHECKING:
    from totempole.client.events import View

SEND_HEAD_BYTES = 4
STATE_HEAD_BYTES = 512
"""More than what stands before the content in a STATE."""
STATE_PIECE_BYTES = 65_536
CHECKED_MAX = 1024

NOTHING_SENT = "no message was sent, so none is delivered"
NO_NOTICE = "nobody tells when the message is safe: multicast it with safe_notice=True or service=SAFE"
LEFT = "the group was left before the message came back"
SKIPPED = "the daemon did not pass the message on to this program"
CLOSED = "the session was closed before the message came back"


class Target(NamedTuple):
    """Where messages go, and how. Only those with the same one share a batch."""

    groups: tuple[str, ...]
    service: Service
    notice: bool


def target_of(groups: str | Sequence[str], service: Service, notice: bool) -> Target:
    names = (groups,) if isinstance(groups, str) else tuple(dict.fromkeys(groups))
    return Target(names, Service(service), notice)


class Delivered(NamedTuple):
    """Where a program's own message was delivered to it."""

    place: Place
    """In the total order: the `place` of its `Messages`."""
    view: View
    """The view of the group in which it was delivered. Of several groups: of the first in the message's list
    that this program is in."""


class Sent:
    """The messages of one frame, from the program to the daemon and back."""

    __slots__ = ("lost", "number", "place", "safe", "to", "unreturned", "view", "waiters")

    def __init__(self, to: Target, unreturned: str) -> None:
        self.to = to
        self.number = 0
        """Of the last message, once the frame is complete."""
        self.place: Place | None = None
        self.view: View | None = None
        self.safe = False
        self.lost = ""
        """Why nothing more is heard of it."""
        self.unreturned = unreturned
        """Why it does not come back to the program at all."""
        self.waiters: list[Any] = []
        """For the session: how it wakes those who wait."""

    def is_settled(self, safe: bool) -> bool:
        return bool(self.unreturned or self.lost or (self.safe if safe else self.place is not None))

    def outcome(self, safe: bool, receipt: Any) -> Delivered:
        if self.unreturned:
            raise SessionError(self.unreturned)
        if not (self.safe if safe else self.place is not None):
            what = "safe" if safe else "delivered"
            raise Unknown(f"the message is not known to be {what}: {self.lost}", (receipt,))
        assert self.place is not None
        assert self.view is not None
        return Delivered(self.place, self.view)


def check_notice(sent: tuple[Sent, ...]) -> None:
    """Whether there will be news of safety."""
    for each in sent:
        if not (each.to.notice or each.to.service is Service.SAFE):
            raise SessionError(NO_NOTICE)


class Run:
    """Messages that were handed in together, and have not all been taken yet."""

    __slots__ = ("_ends", "length", "longest", "next", "payloads", "sent")

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self.payloads = as_bytes(payloads)
        lengths = list(map(len, self.payloads))
        self.longest = max(lengths, default=0)
        self.length: int | None = None
        """Of each, if all have the same."""
        if lengths.count(self.longest) == len(lengths):
            self.length = self.longest
        else:
            self._ends = list(accumulate([length + LENGTH_BYTES for length in lengths]))
        self.next = 0
        self.sent: list[Sent] = []
        """The frames that have them."""

    @property
    def left(self) -> int:
        return len(self.payloads) - self.next

    def fitting(self, room: int, *, alone: bool) -> int:
        """How many of the next ones fit, in company of others or `alone`."""
        if self.length is not None:
            size = self.length if alone else self.length + LENGTH_BYTES
            return min(self.left, room // size if size else self.left) if room >= 0 else 0
        start = self._ends[self.next - 1] if self.next else 0
        return max(0, bisect_right(self._ends, start + room, lo=self.next) - self.next)

    def size(self, count: int) -> int:
        """Of the next ones in a batch."""
        if self.length is not None:
            return count * (self.length + LENGTH_BYTES)
        start = self._ends[self.next - 1] if self.next else 0
        return self._ends[self.next + count - 1] - start if count else 0

    def take(self, count: int, sent: Sent) -> Sequence[bytes]:
        self.sent.append(sent)
        taken = self.payloads[self.next : self.next + count]
        self.next += count
        return taken


def as_bytes(payloads: Sequence[bytes]) -> tuple[bytes, ...]:
    """The same, unchangeable: the caller may use its list and its buffers again."""
    taken = tuple(payloads)
    if set(map(type, taken)) <= {bytes}:
        return taken
    return tuple(map(one_as_bytes, taken))


def one_as_bytes(payload: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError(f"a message is bytes, not {type(payload).__name__}: encode it first")
    return bytes(payload)


class Sending:
    """Sans-I/O: `out` is what to write. Lives through reconnections."""

    def __init__(self, unreturned: Callable[[tuple[str, ...]], str] = lambda _groups: "") -> None:
        """`unreturned`: why messages to these groups do not come back to the program; empty if they do."""
        self.out: list[Payload] = []
        self.limits: Limits | None = None
        self._credit = 0
        self._window = 0
        """The credit at the beginning: what may be outstanding."""
        self._spent = 0
        self._sent: deque[tuple[int, int, int]] = deque()
        """Of each SEND that is not known to be accepted: what had been spent after it, the number of its last
        message, and how many it has."""
        self._number = 0
        """Of the last message that was sent, as the group layer counts them."""
        self._unreturned = unreturned
        self._open: Sent | None = None
        """Of the batch."""
        self._undelivered: deque[Sent] = deque()
        """Frames whose messages have not come back,"""
        self._unsafe: deque[Sent] = deque()
        """and those that have, and wait for the news that they are safe."""
        self.settled: list[Sent] = []
        """For the session, which empties it: somebody waits for news of them."""
        self._to: Target | None = None
        self._batch: list[bytes] = []
        self._used = 0
        """Bytes of names and batch, so far."""
        self._checked: set[Target] = set()
        """Targets that `check` has found right."""
        self._batch_bytes = 0
        self._room = 0
        """What `_used` may become."""

    # The connection

    def opened(self, credit: int, limits: Limits) -> None:
        self.limits = limits
        self._checked.clear()
        self._credit = self._window = credit
        self._spent = self._number = 0
        self._batch_bytes = min(limits.batch_bytes, limits.send_bytes_max - SEND_HEAD_BYTES)
        self._look()

    def lost(self, reason: str) -> int:
        """How many messages were taken from the program and may never arrive."""
        self.give_up(reason)
        count = self.unacknowledged
        self.limits = None
        self._sent.clear()
        self._batch, self._to, self._used, self._room = [], None, 0, 0
        self._open = None
        self.out = []
        return count

    def credited(self, total: int) -> None:
        self._credit = max(self._credit, total)
        accepted = self._credit - self._window
        sent = self._sent
        while sent and sent[0][0] <= accepted:
            sent.popleft()
        self._look()

    def delivered(self, number: int, place: Place, view: View | None) -> None:
        """The program has got its own message of that number, so the ring has taken all up to it."""
        sent = self._sent
        while sent and sent[0][1] <= number:
            sent.popleft()
        undelivered = self._undelivered
        while undelivered and undelivered[0].number <= number:
            self._came_back(undelivered.popleft(), number, place, view)

    # Receipts

    def _came_back(self, sent: Sent, number: int, place: Place, view: View | None) -> None:
        if sent.number < number or view is None:
            sent.lost = SKIPPED
        else:
            sent.place, sent.view = place, view
            sent.safe = sent.to.service is Service.SAFE
            if sent.to.notice and not sent.safe:
                self._unsafe.append(sent)
        self._tell(sent)

    def became_safe(self, number: int) -> None:
        """So has the program's own message of that number."""
        while self._unsafe and self._unsafe[0].number <= number:
            sent = self._unsafe.popleft()
            if sent.number == number:
                sent.safe = True
            else:
                sent.lost = SKIPPED
            self._tell(sent)

    def left(self) -> None:
        """A group was left. What was only for groups that the program is not in any more is not heard of."""
        self.close_batch()
        for waiting in (self._undelivered, self._unsafe):
            gone = [sent for sent in waiting if self._unreturned(sent.to.groups)]
            for sent in gone:
                waiting.remove(sent)
                self._lose(sent, LEFT)

    def give_up(self, reason: str) -> None:
        """Nothing more is heard of anything that was sent."""
        for sent in (*self._undelivered, *self._unsafe, *filter(None, (self._open,))):
            self._lose(sent, reason)
        self._undelivered.clear()
        self._unsafe.clear()

    def _lose(self, sent: Sent, reason: str) -> None:
        sent.lost = reason
        self._tell(sent)

    def _tell(self, sent: Sent) -> None:
        if sent.waiters:
            self.settled.append(sent)

    def _look(self) -> None:
        self._room = min(self._batch_bytes, self._left - SEND_HEAD_BYTES)

    @property
    def _left(self) -> int:
        """The largest body that the credit allows for."""
        return self._credit - self._spent - SEND_OVERHEAD

    @property
    def unacknowledged(self) -> int:
        return sum(count for _, _, count in self._sent) + len(self._batch)

    # Messages

    @property
    def waiting(self) -> bool:
        """Whether there is something to write."""
        return bool(self.out or self._batch)

    def offer(self, to: Target, payload: bytes) -> Sent | None:
        """Takes a message if its target is checked and there is credit for it. The frame that it is in."""
        used = self._used + len(payload) + LENGTH_BYTES
        if to == self._to and used <= self._room and len(self._batch) < MESSAGES_MAX:
            self._batch.append(payload)
            self._used = used
            return self._open
        return self._begin(to, payload)

    def _begin(self, to: Target, payload: bytes) -> Sent | None:
        """The message is the first of its batch."""
        self.close_batch()
        if self.limits is None or to not in self._checked:
            return None
        used = len(pack_names(to.groups)) + OVERHEAD_MAX + len(payload)
        if used > self._room and used > min(self.limits.send_bytes_max, self._left) - SEND_HEAD_BYTES:
            return None
        self._batch.append(payload)
        return self._open_batch(to, used)

    def _open_batch(self, to: Target, used: int) -> Sent:
        self._to, self._used = to, used
        self._open = sent = Sent(to, self._unreturned(to.groups))
        return sent

    def offer_run(self, to: Target, run: Run) -> bool:
        """Takes as many as there is credit for; whether that was all."""
        while run.left:
            if to == self._to:
                count = run.fitting(self._room - self._used, alone=False)
                if count == run.left or (count and run.length is None):
                    self._extend(run, count)
                    continue
            if not self._begin_run(to, run):
                return False
        return True

    def _begin_run(self, to: Target, run: Run) -> bool:
        self.close_batch()
        if self.limits is None or to not in self._checked:
            return False
        used = len(pack_names(to.groups)) + OVERHEAD_MAX
        count = run.fitting(self._room - used, alone=True)
        if not count:
            sent = self._begin(to, run.payloads[run.next])
            if sent is not None:
                run.sent.append(sent)
                run.next += 1
            return sent is not None
        self._open_batch(to, used)
        self._extend(run, count)
        return True

    def _extend(self, run: Run, count: int) -> None:
        assert self._open is not None
        count = min(count, MESSAGES_MAX - len(self._batch))
        self._used += run.size(count)
        self._batch += run.take(count, self._open)
        if self._used >= self._room or len(self._batch) == MESSAGES_MAX:
            self.close_batch()

    def close_batch(self) -> None:
        """What has been taken so far goes out."""
        if not self._batch:
            self._to = None
            return
        assert self._to is not None
        assert self._open is not None
        groups, service, notice = self._to
        self._write(Send(groups, pack(self._batch), service, notice), len(self._batch))
        self._await(self._open)
        self._batch, self._to, self._used, self._open = [], None, 0, None

    def _write(self, frame: Send | State, count: int) -> None:
        kind, parts = body_of(frame)
        size = sum(map(len, parts))
        self.out.append(HEAD.pack(size, kind) + parts[0])
        self.out += parts[1:]
        self._spent += cost_of(size)
        self._note(count)
        self._look()

    def _note(self, count: int) -> None:
        self._number += count
        self._sent.append((self._spent, self._number, count))

    def _await(self, sent: Sent) -> None:
        """The last message that was written is the last of these."""
        sent.number = self._number
        if not sent.unreturned:
            self._undelivered.append(sent)

    def request(self, frame: ClientFrame) -> None:
        """Any other frame, after what was multicast before it."""
        self.close_batch()
        self.out.append(encode(frame))

    # Large messages

    def is_large(self, to: Target, size: int) -> bool:
        """Whether a message of that size is more than a SEND can have, so that it goes as LARGE."""
        if self.limits is None:
            return False
        body = SEND_HEAD_BYTES + len(pack_names(to.groups)) + OVERHEAD_MAX + size
        return body > min(self.limits.send_bytes_max, self._window - SEND_OVERHEAD)

    def check(self, to: Target, longest: int) -> None:
        """What the daemon would not take raises SessionError; nothing was sent then."""
        limits = self.limits
        if limits is None:
            return  # to be seen when it is there again
        if longest > limits.message_bytes_max:
            raise SessionError(
                f"a message of {longest} bytes: this cluster takes at most {limits.message_bytes_max} "
                "(message_bytes_max)"
            )
        if not 1 <= len(to.groups) <= limits.groups_per_message_max:
            raise SessionError(
                f"a message to {len(to.groups)} groups: give 1 to {limits.groups_per_message_max} "
                "(groups_per_message_max)"
            )
        for name in to.groups:
            check_name(name, limits.group_name_bytes_max)
        if len(self._checked) >= CHECKED_MAX:
            self._checked.clear()
        self._checked.add(to)

    def sent_large(self, to: Target) -> Sent:
        """All parts of a large message are in `out`, or beyond."""
        self._note(1)
        sent = Sent(to, self._unreturned(to.groups))
        self._await(sent)
        return sent

    # State for joiners

    @property
    def state_piece_bytes(self) -> int:
        """What a piece of state should have: of the half of the credit that is for states, a quarter. The
        daemon gives credit back in larger portions than one piece."""
        if self.limits is None:
            return STATE_PIECE_BYTES
        most = min(STATE_PIECE_BYTES, self._window // 8, self.limits.send_bytes_max)
        return max(1, most - STATE_HEAD_BYTES)

    def offer_state(self, frame: State) -> bool:
        """Takes a piece of state, unless that would leave too little credit for messages."""
        cost = cost_of(STATE_HEAD_BYTES + len(frame.content))
        outstanding = self._window - (self._credit - self._spent)
        if self.limits is None or (outstanding > 0 and outstanding + cost > self._window // 2):
            return False
        self.close_batch()
        self._write(frame, 0)
        return True


def check_name(name: str, bytes_max: int) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a group's name is a string, not {type(name).__name__}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise SessionError(f"group name {name[:40]!r}: it cannot be written as UTF-8") from None
    if not 1 <= size <= bytes_max:
        raise SessionError(f"group name {name[:40]!r} has {size} bytes: give 1 to {bytes_max}")
