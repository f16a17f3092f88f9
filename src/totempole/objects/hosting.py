"""An object's host on a session's protocol, without I/O: what the asyncio and the blocking replica share.

It carries the host's records and barriers to the daemon, takes the items of the feed in, and says in words
what has become of a call.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from totempole.client.appending import (
    HEAD_BYTES,
    LOG_NAME_BYTES_MAX,
    NO_LOG,
    OBJECTS_PREFIX,
    UNFOUND,
    InDoubt,
    check_log_name,
    position_in,
)
from totempole.client.endpoint import Endpoint, Reconnect
from totempole.client.log_records import LogBatch, Notice
from totempole.client.protocol import Protocol
from totempole.corel.run import Primary
from totempole.errors import LogTrimmedError, ObjectBrokenError, ObjectError, SessionError, TotemError
from totempole.objects.commands import Command, ObjectType, error_of
from totempole.objects.digests import Divergence
from totempole.objects.host import ObjectHost
from totempole.objects.machine import ObjectMachine, StateNotCarried, UpgradeRefused
from totempole.objects.pending import PendingCall, PendingOutcome, PendingPosition, PendingRead
from totempole.objects.receipts import CallName, ReceiptBase
from totempole.objects.records import Knows, Upgrade
from totempole.objects.snapshotting import Begun, ObjectSnapshots
from totempole.objects.tentative import Tentative

if TYPE_CHECKING:
    from totempole.objects.sqlite import DatabaseFile

T = TypeVar("T")
E = TypeVar("E")

NAME_BYTES_MAX = LOG_NAME_BYTES_MAX - len(OBJECTS_PREFIX)
CALL_HEAD_BYTES = 512
"""More than what a record of one call has beside the arguments."""
SMALL_BYTES = 16_384
"""Every node takes arguments of this size."""
STARTING = Reconnect(give_up_s=10.0)
"""A node's log service starts a moment after its daemon: whoever opens an object waits for it."""
FAILURES_MAX = 3
"""So often an object is read again that fails at the same place."""
RETRY_S = 0.2
"""After a node has refused for now."""
HOUSEKEEPING_S = 30.0
KEEP_S = 0.05
ANNOUNCE_S_MAX = 600.0
"""A host says again which version it knows."""

CLOSED = "the replica is closed: use it inside `async with`, or inside `with` if it is a blocking one"
NO_ANSWER = "no majority of the replicas has answered"


class PrimaryChanged(NamedTuple):
    """A new primary component, in the order before the record at `position`."""

    number: int
    """Primary components are counted."""
    members: tuple[int, ...]
    """The processors of its replicas."""
    position: int
    """Of the record that follows."""


def log_name(name: str) -> str:
    return OBJECTS_PREFIX + name


def check_object_name(name: str) -> None:
    check_log_name(name)
    if len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
        raise SessionError(f"object name {name[:40]!r}: give at most {NAME_BYTES_MAX} bytes")


def unknown_text(why: str) -> str:
    return f"it is not known what becomes of the call: {why}"


def as_totem_error(error: Exception | None) -> TotemError:
    """Of a feed that is over."""
    if isinstance(error, TotemError):
        return error
    return SessionError(f"the log is not read any more: {error}" if error else CLOSED)


class Hosting(Generic[T]):
    def __init__(
        self,
        cls: type[T],
        name: str,
        protocol: Protocol,
        wake: Callable[[], None],
        retry_later: Callable[[], None],
        file: str | os.PathLike[str] | None = None,
    ) -> None:
        """`wake`: something has come, a turn is due. `retry_later`: to be answered by `host.retry`. `file`:
        that keeps the object."""
        check_object_name(name)
        self._file: DatabaseFile | None = None
        self._keep_at = 0.0
        if file is not None:
            from totempole.objects import sqlite

            self._file = sqlite.DatabaseFile(file, cls, name)
        self.name = name
        self.type: ObjectType[T] = ObjectType.of(cls)
        self.host: ObjectHost[T] = ObjectHost(ObjectMachine(self.type), self)
        self.items: deque[LogBatch | Notice] = deque()
        """Fed, and not applied yet."""
        self.error: TotemError | None = None
        """Why it is over."""
        self.on_primary: list[Callable[[PrimaryChanged], None]] = []
        self.on_divergence: list[Callable[[Divergence], None]] = []
        self.retry_later = retry_later
        self.snapshots: ObjectSnapshots[T] | None = None
        self.is_stale = False
        """What is here cannot go on: the object has to be read again, from a snapshot and the log."""
        self._shown = 0
        """What the program has seen has all records before this position: it never sees an older state."""
        self._primary_place = -1
        """Of the last primary component in the order: one that is read again is not told again."""
        self._skipped: set[int] = set()
        self._failures = 0
        self._failed_at = -1
        self._id = protocol.draw_token()
        self._protocol = protocol
        self._wake = wake
        self._logger = logging.getLogger("totempole.objects")
        self._tickets: dict[int, int] = {}
        self._has_sent = False
        self._is_open = False
        self._announce_at = 0.0
        self._proposed = 0
        self.start = 0
        """The position that the log was read from."""
        self._processor = 0
        self._tentative: Tentative[T] = Tentative(self.type)
        self._encoder: ObjectType[Any] = self.type
        self._commands: dict[Callable[..., Any], tuple[Command, str]] = {}
        """By method, of the version that the object is at."""

    @property
    def machine(self) -> ObjectMachine[T]:
        return self.host.machine

    @property
    def state(self) -> T:
        """That is here."""
        self.check_state()
        return self.host.machine.state

    @property
    def is_open(self) -> bool:
        return self._is_open

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error
        if not self._is_open:
            raise SessionError(CLOSED)

    def check_state(self) -> None:
        self.check_open()
        if self.is_stale or self.machine.applied < self._shown:
            raise ObjectBrokenError(f"object {self.name!r} is being read again: try again in a moment")

    # Calls

    def encode(
        self, method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Command, bytes]:
        """Raises ObjectError or SessionError: nothing was called."""
        if not self._is_open:
            self.check_open()
        kind = self.host.machine.object_type
        if kind is not self._encoder:
            self._encoder, self._commands = kind, {}
        known = self._commands.get(method)
        if known is None:
            command = kind.command_of(method)
            known = self._commands[method] = (command, f"{kind.cls.__name__}.{command.name}")
        command, where = known
        arguments = command.encode(where, args, kwargs)
        if len(arguments) > SMALL_BYTES:
            self._check_size(command.name, len(arguments))
        return command, arguments

    def _check_size(self, method: str, size: int) -> None:
        bytes_max = self._protocol.appending.append_bytes_max
        if bytes_max and size > bytes_max - HEAD_BYTES - CALL_HEAD_BYTES:
            raise SessionError(
                f"nothing was called: the arguments of {method} have {size} bytes; this node takes at most "
                f"{bytes_max - HEAD_BYTES - CALL_HEAD_BYTES}, half of its message_bytes_max. Keep the "
                "content elsewhere, and give its name"
            )

    def take_result(self, receipt: ReceiptBase) -> Any:
        """Of a receipt whose call is applied. Raises what the command raised."""
        assert receipt.outcome is not None, "it is applied"
        if receipt.pending is not None:
            self.host.release(receipt.pending)
        return self.type.decode_result(receipt.name.method, receipt.outcome)

    def parse_receipt(self, text: str, method: Callable[..., Any] | None) -> CallName:
        name = CallName.parse(text)
        if name.object != self.name:
            raise SessionError(f"the receipt is one of {name.object!r}, and this is {self.name!r}")
        command = self.type.command_of(name.method)
        if method is not None and getattr(method, "__name__", "") != command.name:
            raise SessionError(f"the receipt is one of {name.method}, which is another method")
        return name

    def failure(self, pending: PendingCall) -> Exception | None:
        """What a call raises that has no result; None: nobody knows what becomes of it."""
        if pending.outcome is not None:
            return error_of(pending.outcome)
        return None if pending.number else pending.error

    def give_up(self, pending: PendingCall | PendingRead | PendingPosition) -> None:
        """Nobody waits for it any more."""
        if isinstance(pending, PendingCall):
            self.host.give_up(pending)
        elif isinstance(pending, PendingRead):
            self.host.give_up_read(pending)
        else:
            self.host.waits.give_up(pending)

    def name_of(self, pending: PendingCall) -> CallName:
        """For a receipt of a call that was sent."""
        record = pending.record
        assert record is not None, "it was sent"
        assert pending.client is not None, "it has a number"
        ticket = self._tickets.get(record.id)
        if ticket is not None:
            for name in self._protocol.appending.names_of(ticket):
                record.name = name
        return CallName(self.name, pending.method, pending.client.id, pending.number, record.name)

    def search(self, name: CallName, waiter: Any, *, for_good: bool) -> PendingOutcome:
        """The outcome of a call of another program, or of a time before. `for_good`: it is waited for also if
        the daemon does not know the record: another one may have it."""
        host, protocol, record = self.host, self._protocol, name.record
        ticket = protocol.appending.find(record) if record is not None else None
        pending = host.watch(name.client, name.number, waiter)

        def found(error: TotemError | None, placed: Any) -> None:
            if pending.is_done:
                return
            if error is None and placed is not None and record is not None:
                host.watch_until(pending, position_in(placed, record.index))
            elif error is not None or not for_good:
                host.waits.give_up(pending, error or SessionError(UNFOUND))
            self._wake()

        if ticket is not None:
            pending.ticket = ticket
            protocol.listen(ticket, found)
            self._has_sent = True
        return pending

    def end_search(self, pending: PendingOutcome) -> None:
        self.host.waits.give_up(pending)
        if pending.ticket:
            self._protocol.unlisten(pending.ticket)

    def tentative(self) -> T:
        self.check_state()
        return self._tentative.state(self.host)

    # Turns

    def take_from(self, take: Callable[[], list[LogBatch | Notice]]) -> bool:
        """Takes in one item of the feed, if there is one."""
        if not self.items:
            self.items.extend(take())
        if self.items:
            self._take_item(self.items.popleft())
            return True
        return False

    def _take_item(self, item: LogBatch | Notice) -> None:
        try:
            if isinstance(item, LogBatch):
                self.host.fed(item.payloads, item.positions, item.time_us)
                if self.snapshots is not None:
                    self.snapshots.applied(self.host.machine, sum(map(len, item.payloads)), len(item))
            elif isinstance(item.content, Primary) and item.place > self._primary_place:
                self._primary_place = item.place
                if self._is_open:
                    self._tell_primary(item, item.content)
        except ObjectBrokenError as error:
            self._read_again(error, error.token)
        except TotemError as error:
            self.fail(error)
        except BaseException as error:  # the program is interrupted, amid a command
            self._read_again(ObjectBrokenError(f"interrupted: {error!r}"))
            raise

    def feed_is_over(self, error: Exception | None) -> None:
        """Nothing more comes from it."""
        if isinstance(error, LogTrimmedError) and self.snapshots is not None:
            self._read_again(error)
        else:
            self.fail(as_totem_error(error))

    def _read_again(self, error: TotemError, token: int | None = None) -> None:
        """A command that ran out of stack would do so again: it is passed over by name. What fails otherwise,
        at the same place again and again, is given up."""
        at = self.machine.applied
        self._shown = max(self._shown, at)
        self._failures = self._failures + 1 if at == self._failed_at else 1
        self._failed_at = at
        if token is not None and token not in self._skipped:
            self._skipped.add(token)
        elif self._failures > FAILURES_MAX:
            self.fail(error)
            return
        self._logger.warning("object %s is read again: %s", self.name, error)
        self.is_stale = True
        self.items.clear()

    def _tell_primary(self, notice: Notice, primary: Primary) -> None:
        self._tell(
            self.on_primary,
            PrimaryChanged(primary.number, tuple(sorted(primary.disks)), notice.position),
        )

    def _tell(self, callbacks: Sequence[Callable[[E], None]], event: E) -> None:
        for callback in callbacks:
            try:
                callback(event)
            except Exception:
                self._logger.exception("object %s: a callback has failed", self.name)

    def reached(self, place: int) -> None:
        """All items of runs before this place were taken in."""
        host = self.host
        host.reached(place)
        for event in host.machine.take_events():
            if isinstance(event, Divergence | StateNotCarried | UpgradeRefused):
                self._logger.error("object %s: %s", self.name, event)
            if isinstance(event, Divergence):
                self._tell(self.on_divergence, event)
            self._propose_upgrade()
        digest = host.machine.take_digest(self._id) if self._is_open else None
        if digest is not None:
            host.announce(digest)
        self._move_hold()

    def _move_hold(self) -> None:
        """The log may be trimmed behind the snapshots, and not before."""
        snapshots = self.snapshots
        hold = snapshots.next_hold() if snapshots is not None else None
        if snapshots is None or hold is None:
            return
        try:
            ticket = self._protocol.appending.hold(hold.reader, hold.position)
        except SessionError:
            snapshots.hold_answered(False)
            return
        self._protocol.listen(ticket, lambda error, _: snapshots.hold_answered(error is None))
        self._has_sent = True

    def send(self) -> bool:
        """What may be sent. Whether there was anything."""
        welcome = self._protocol.welcome
        if welcome is not None and welcome.process.processor != self._processor:
            if self._processor:
                self.host.moved()
            self._processor = welcome.process.processor
        self.host.pump()
        has_sent, self._has_sent = self._has_sent, False
        return has_sent

    def fail(self, error: TotemError) -> None:
        """It cannot go on."""
        if self.error is None:
            self.error = error
            self.items.clear()
            self.host.end(error)

    # Life

    def new_snapshots(self, endpoints: Sequence[Endpoint], reconnect: Reconnect | None) -> ObjectSnapshots[T]:
        """Whose `open` gives what the host begins with."""
        if self._protocol.appending.append_bytes_max == 0:
            raise SessionError(NO_LOG)
        if self.snapshots is None:
            reconnect = reconnect or STARTING
            self.snapshots = ObjectSnapshots(
                self.type, self.name, endpoints, reconnect=reconnect, file=self._file
            )
        return self.snapshots

    def begin(self, begun: Begun[T]) -> int:
        """From here. Returns the position that the log is to be read from."""
        for token in self._skipped:
            begun.machine.skip(token)
        self.is_stale = False
        self.host.restored(begun.machine)
        self.start = begun.start
        return begun.start

    def opened(self, now_s: float) -> None:
        """All that was green at this node is applied."""
        self._is_open = True
        self.keep_house(now_s)

    def keep_house(self, now_s: float) -> None:
        """Every now and then."""
        if self.error is None and now_s >= self._announce_at:
            limits = self.type.limits
            self._announce_at = now_s + min(ANNOUNCE_S_MAX, limits.host_forget_us / 3_000_000)
            self._proposed = 0  # it may have been refused: there are other hosts by now
            self.host.announce(Knows(self._id, self.type.version))
        self._propose_upgrade()
        if self.snapshots is not None and not self.is_stale:
            self.snapshots.settle(self.host.place)
            self._move_hold()

    def keep_file(self, now_s: float) -> bool:
        """Writes what is applied to the object's file, but no more often than every KEEP_S: each time waits
        for the disk. Whether something is left to be written."""
        file = self._file
        if file is None or self.is_stale or self.error is not None or not file.has_news(self.machine):
            return False
        if now_s < self._keep_at:
            return True
        self._keep_at = now_s + KEEP_S
        try:
            file.keep(self.machine)
        except ObjectError as error:
            self.fail(error)
        return False

    def _propose_upgrade(self) -> None:
        version = self.machine.upgrade_due() if self._is_open else 0
        if version and version != self._proposed:
            self._proposed = version
            self.host.announce(Upgrade(version))

    def close(self) -> bool:
        """Whether there is something to be sent."""
        has_sent = False
        self.keep_file(math.inf)
        if self._file is not None:
            self._file.release()
        if self.error is None:
            if self._is_open:
                self.host.announce(Knows(self._id, 0))
                has_sent = self.send()
            self.fail(SessionError(CLOSED))
        self._is_open = False
        if self.snapshots is not None:
            self.snapshots.close()
        return has_sent

    # For the host

    def append(self, record: int, payload: bytes, *, red: bool) -> None:
        appending = self._protocol.appending
        try:
            ticket = appending.append(log_name(self.name), (payload,), (), "red" if red else "green")
        except SessionError as error:
            self.host.refused(record, error)
            self._wake()
            return
        self._tickets[record] = ticket
        self._protocol.listen(ticket, partial(self._answered, record, red))
        self._has_sent = True

    def _answered(self, record: int, red: bool, error: TotemError | None, value: Any) -> None:
        self._tickets.pop(record, None)
        host = self.host
        if error is None:
            if red:
                host.durable(record, value[0])
            else:
                host.placed(record)
        elif isinstance(error, InDoubt):
            for name in error.names:
                host.named(record, name)
            host.doubtful(record)
        else:
            host.refused(record, error)
        self._wake()

    def ask_barrier(self, barrier: int) -> None:
        ticket = self._protocol.feeds.barrier()
        self._protocol.listen(ticket, partial(self._passed, barrier))
        self._has_sent = True

    def _passed(self, barrier: int, error: TotemError | None, place: Any) -> None:
        if error is None:
            self.host.barrier_passed(barrier, place)
        else:
            self.host.barrier_failed(barrier, error)
        self._wake()

    def new_client(self) -> str:
        return self._protocol.draw_token()
