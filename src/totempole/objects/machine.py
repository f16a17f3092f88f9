"""A replicated object as a machine: records of its log in, outcomes of calls out. No I/O, no clock.

Every host feeds the same records in the same order, and holds the same afterwards. What a command does may
depend on nothing but the state, its arguments and `ordered`. What happens to a call is always one of
`records.Kind`.

An exception in a command is an outcome. The machine does not take back what the method had changed by then:
the same code on the same state raises at the same place, at every host. So a command checks first and changes
then. There are exceptions that depend on the process and not on the order: no memory, no stack, an
interruption. After one of those nobody knows what the state is. The machine says so (ObjectBrokenError) and
takes nothing any more; its host makes a new one from a snapshot and the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from totempole.errors import (
    CannotCarryError,
    CodecError,
    ObjectBrokenError,
    ObjectClassError,
    ObjectError,
    ObjectVersionError,
)
from totempole.objects import records
from totempole.objects.clients import OUTCOME_WEIGHT, ClientTable
from totempole.objects.commands import Command, ObjectType
from totempole.objects.digests import DIGEST_BYTES, Digests, Divergence
from totempole.objects.ordered import Moment, current
from totempole.objects.pieces import Piece
from totempole.objects.records import (
    Call,
    Calls,
    Checkpoint,
    Digest,
    Kind,
    Knows,
    Limits,
    Opened,
    Outcome,
    Upgrade,
)
from totempole.objects.running import DONE, OUT_OF_STACK, PROCESS_ERRORS, Interrupted, part, run
from totempole.objects.snapshots import Snapshot, SnapshotHead, beginning, decode_head, encode_head
from totempole.objects.versions import Hosts, Migrate, Version

T = TypeVar("T")

EVENTS_MAX = 1_024
"""That nobody has taken. The oldest go."""

NO_COMMANDS: dict[str, Command] = {}
BORN_TOO_EARLY = b"the client is not known any more: it has been silent for too long"
SETTLED = b"the number is settled: its outcome was acknowledged, or was too old to be kept"
KEEP_THE_OLD_CLASS = "keep the class of that version, and name it in a @migration"


class ObjectOpened(NamedTuple):
    """The object has its class and its version: calls may be sent."""

    version: int


class Upgraded(NamedTuple):
    before: int
    version: int
    position: int


class UpgradeRefused(NamedTuple):
    """It stays at its version, at every host."""

    version: int
    why: str


class StateNotCarried(NamedTuple):
    """No digest and no snapshot can be taken of the state as it is. Commands go on."""

    position: int
    why: str


class RecordIgnored(NamedTuple):
    """A record of the object's log that no host can read, or one that came too early."""

    position: int
    why: str


Event = ObjectOpened | Upgraded | UpgradeRefused | StateNotCarried | RecordIgnored | Divergence


class ObjectMachine(Generic[T]):
    def __init__(self, cls: ObjectType[T] | type[T], snapshot: Snapshot | None = None) -> None:
        """Raises ObjectError if the class cannot be an object, or a new state of it cannot be carried; or as
        `restore` does."""
        self.newest: Version[T] = Version.of(cls if isinstance(cls, ObjectType) else ObjectType.of(cls))
        """The class that the program has given, and those before it."""
        self.name = self.newest.type.name
        self.version = 0
        """0: the record that names the class has not come."""
        self.applied = 0
        """Records before this position are applied, or were passed over."""
        self.commands = 0
        """So many were applied, whatever became of them."""
        self.time_us = 0
        """The order's time: of the last record that was not passed over."""
        self.limits = self.newest.type.limits
        self._moment = Moment()
        self._current: Version[Any] = self.newest
        self._commands: dict[str, Command] = {}
        self._table = ClientTable(self.limits)
        self._hosts = Hosts(self.limits)
        self._digests = Digests(self.limits.digest_every)
        self._failed_upgrade = 0
        self._digest_due_at = -1
        self._skipped: frozenset[int] = frozenset()
        self._stopped: ObjectError | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.state: T
        """Of the class of the present version. To be read between two records, and changed by nobody else."""
        if snapshot is None:
            self.state = _new_state(self.newest)
            self.newest.codec.refuse_new(self.state)
        else:
            self._restore(snapshot)

    @property
    def object_type(self) -> ObjectType[Any]:
        """Of the present version: calls are encoded with it."""
        return self._current.type

    @property
    def table(self) -> ClientTable:
        return self._table

    @property
    def hosts(self) -> Hosts:
        return self._hosts

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last one."""
        return self._digests.last

    def opening(self) -> bytes | None:
        """The record that a host writes if it has read the whole log and none has named the class."""
        if self.version:
            return None
        newest = self.newest.type
        return records.encode(Opened(newest.name, newest.version, newest.limits))

    # Records

    def apply(self, payload: bytes, position: int, time_us: int) -> list[Outcome]:
        """A record of the log. One outcome for each call in it, those that came again included. A position
        that is applied already is passed over. Raises ObjectClassError, ObjectVersionError or
        ObjectBrokenError: the machine has stopped, and every further record raises the same."""
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        if position < self.applied:
            return []
        try:
            record = records.decode(payload)
            if time_us > self.time_us:
                self.time_us = time_us
            if type(record) is Calls:
                outcomes = self._take_calls(record, position)
            else:
                self._take_other(record, position)
                outcomes = []
        except CodecError as error:
            self._events.append(RecordIgnored(position, str(error)))
            outcomes = []
        except (ObjectClassError, ObjectVersionError) as error:
            self._stopped = error
            raise
        except BaseException as error:
            self._stopped = _broken(position, error)
            cause = error.cause if isinstance(error, Interrupted) else error
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            raise self._stopped from cause
        self.applied = position + 1
        return outcomes

    def _take_calls(self, record: Calls, position: int) -> list[Outcome]:
        """The loop that everything else waits for."""
        if not self.version:
            raise CodecError("too early", "calls before the record that names the class")
        name = record.client
        client = self._table.enter(name, record.born, record.acknowledged, position)
        if client is None:
            return [_too_old(name, call.number, position, BORN_TOO_EARLY) for call in record.calls]
        bytes_before, commands_before = client.bytes, self.commands
        kept, floor, bytes_max = client.outcomes, client.floor, self.limits.client_bytes_max
        commands = self._commands if self._is_in_force(record.version) else NO_COMMANDS
        state, skipped, result_bytes_max = self.state, self._skipped, self.limits.result_bytes_max
        moment = self._moment
        moment.position, moment.time_us, moment.caller = position, self.time_us, name
        outcomes: list[Outcome] = []
        parts: list[bytes] = []
        applied = 0
        mark = current.set(moment)
        try:
            for index, call in enumerate(record.calls):
                number = call.number
                outcome = kept.get(number)
                if outcome is not None:
                    outcomes.append(outcome)
                    continue
                if number <= floor:
                    outcomes.append(_too_old(name, number, position, SETTLED))
                    continue
                moment.index = index
                command = commands.get(call.method)
                if command is None:
                    kind, value = self._unknown(call, record.version)
                elif skipped and moment.token in skipped:
                    kind, value = Kind.RAISED, OUT_OF_STACK
                else:
                    kind, value = run(command, state, call, moment, result_bytes_max)
                applied += 1
                kept[number] = outcome = Outcome(name, number, position, kind, value)
                outcomes.append(outcome)
                parts.append(value if kind is DONE else part(kind, value))
                client.bytes += OUTCOME_WEIGHT + len(value)
                if client.bytes > bytes_max:
                    client.shrink(bytes_max)
                    floor = client.floor
        finally:
            current.reset(mark)
        self._table.leave(client, bytes_before)
        if applied:
            self.commands += applied
            self._digests.add(parts)
            if self._digests.is_due(commands_before, self.commands):
                self._checkpoint(position)
        return outcomes

    def _is_in_force(self, version: int) -> bool:
        """Whether calls that were encoded for this version are taken now."""
        return self._current.type.runs_from <= version <= self.version

    def _unknown(self, call: Call, version: int) -> tuple[Kind, bytes]:
        if not self._is_in_force(version):
            text = f"a call of version {version}; the object is at version {self.version}"
            return Kind.WRONG_VERSION, text.encode()
        method = call.method[: records.METHOD_CHARACTERS_MAX]
        text = f"{self.name} has no command {method!r} at version {self.version}"
        return Kind.UNKNOWN_COMMAND, text.encode("utf-8", "backslashreplace")

    def _take_other(self, record: records.Record, position: int) -> None:
        if isinstance(record, Opened):
            self._open(record)
        elif not self.version:
            raise CodecError("too early", "a record before the one that names the class")
        elif isinstance(record, Knows):
            self._hosts.announce(record.host, record.version, self.time_us)
        elif isinstance(record, Upgrade):
            self._upgrade(record, position)
        elif isinstance(record, Digest):
            divergence = self._digests.compare(record)
            if divergence is not None:
                self._events.append(divergence)

    def _open(self, record: Opened) -> None:
        if self.version:
            if record.name != self.name:
                raise CodecError(
                    "another class", f"a {record.name} cannot be opened here: it is a {self.name}"
                )
            return
        self._check_name(record.name, record.version)
        self._begin(record.version, record.limits)
        if self._current is not self.newest:
            self.state = _new_state(self._current)
        self._events.append(ObjectOpened(self.version))

    def _check_name(self, name: str, version: int) -> None:
        if name != self.name:
            raise ObjectClassError(
                f"this object is a {name} (version {version}), and this program opens it as a {self.name}:"
                " give it another name"
            )

    def _begin(self, version: int, limits: Limits) -> None:
        self._go_to(version, self._found(version))
        self.limits = limits
        self._table = ClientTable(limits)
        self._hosts = Hosts(limits)
        self._digests = Digests(limits.digest_every)

    def _found(self, version: int) -> Version[Any]:
        found = self.newest.find(version)
        if found is None:
            raise ObjectVersionError(
                f"{self.name} is at version {version} from position {self.applied} on, and this program has"
                f" {self.newest.shown()}: "
                + ("use a newer program" if version > self.newest.type.version else KEEP_THE_OLD_CLASS)
            )
        return found

    def _go_to(self, version: int, found: Version[Any]) -> None:
        self.version = self._moment.version = version
        self._current = found
        self._commands = found.commands(version)

    # Versions

    def upgrade_due(self) -> int:
        """A version that all known hosts know, and that the object is not at: a host then appends an
        `Upgrade`. 0: none."""
        common = self._hosts.common(self.time_us)
        if not self.version or common <= self.version or common == self._failed_upgrade:
            return 0
        return common if self.newest.find(common) is not None else 0

    def _upgrade(self, record: Upgrade, position: int) -> None:
        version = record.version
        if version <= self.version:
            return
        lacking = self._hosts.lacking(version, self.time_us)
        if not record.is_forced and (lacking or not self._hosts.known(self.time_us)):
            hosts = ", ".join(lacking) or "no host has announced any"
            self._events.append(UpgradeRefused(version, f"hosts that do not know it: {hosts}"))
            return
        self.applied = position
        target = self._found(version)
        path = target.path_from(self._current)
        if path is None:
            raise ObjectVersionError(
                f"{self.name} goes from version {self.version} to {version} at position {position}, and this"
                " program has no migration between them: use a newer program"
            )
        before = self.version
        try:
            state = self._migrated(target, path, position)
        except PROCESS_ERRORS:
            raise
        except Exception as error:
            self._failed_upgrade = version
            self._events.append(UpgradeRefused(version, f"migration: {type(error).__name__}: {error}"))
        else:
            self.state = state
            self._go_to(version, target)
            self._events.append(Upgraded(before, version, position))
        # A migration that fails at one host only is found by the next digest.
        self._digests.add([b"\xc1version %d" % self.version])

    def _migrated(self, target: Version[Any], path: list[Migrate], position: int) -> Any:
        """On a copy: a migration that fails has changed nothing."""
        if not path:
            return self.state
        state = self._current.codec.copy(self.state)
        moment = self._moment
        moment.position, moment.time_us, moment.caller, moment.index = position, self.time_us, "", 0
        mark = current.set(moment)
        try:
            for migrate in path:
                state = migrate(state)
        finally:
            current.reset(mark)
        if not isinstance(state, target.type.cls):
            raise ObjectError(f"it gave a {type(state).__name__}, no {target.type.cls.__name__}")
        target.codec.encode_exact(state)
        return state

    # What hosts compare

    def _checkpoint(self, position: int) -> None:
        digests = self._digests
        if not digests.is_state_due(self.commands):
            digests.put(self.commands, position)
            return
        if digests.is_large:
            digests.put(self.commands, position)
            digests.schedule(self.commands)
            self._digest_due_at = position + 1
            return
        try:
            digest, state_bytes = self.digest_state()
        except CannotCarryError as error:
            self._events.append(StateNotCarried(position, str(error)))
            digest, state_bytes = b"", 0
        digests.put(self.commands, position, digest, state_bytes)
        digests.schedule(self.commands, state_bytes)

    @property
    def is_state_digest_due(self) -> bool:
        """The state is large, and was not digested at the checkpoint that the last record has made. A host
        that can fork calls `digest_state` in a child before it applies the next record, and later
        `put_state_digest`. Others need not."""
        return self._digest_due_at == self.applied

    def digest_state(self) -> tuple[bytes, int]:
        """Of the state alone, and its size. Raises CannotCarryError."""
        return self._current.codec.digest(self.state)

    def put_state_digest(self, commands: int, digest: bytes, state_bytes: int) -> None:
        """What a child has found. `commands`: of this machine when the child was made."""
        self._digests.put_late(commands, digest, state_bytes)

    def take_digest(self, host: str) -> Digest | None:
        """A record that a host appends: what it held at the last checkpoint. None: nothing to say, or
        another host has said the same."""
        return self._digests.take(host)

    def digest(self) -> bytes:
        """Of everything that is the same at every host. Raises CannotCarryError."""
        state, _ = self.digest_state()
        return blake2b(encode_head(self._head()) + state, digest_size=DIGEST_BYTES).digest()

    def take_events(self) -> list[Event]:
        """What has happened since the last time, beside outcomes."""
        events = list(self._events)
        self._events.clear()
        return events

    # Outcomes

    def outcome_of(self, client: str, number: int) -> Outcome | None:
        """While it is kept: until the client acknowledges it."""
        return self._table.outcome_of(client, number)

    def is_settled(self, client: str, number: int, born: int) -> bool:
        """Whether this call will never be applied any more, and its outcome is not known here."""
        return self._table.is_settled(client, number, born)

    def skip(self, token: int) -> None:
        """A command that has run out of stack (ObjectBrokenError.token) is not run in this machine: its
        outcome is that RecursionError, and the state is as before it."""
        self._skipped = self._skipped | {token}

    # Snapshots

    def _head(self) -> SnapshotHead:
        return SnapshotHead(
            self.name,
            self.version,
            self.applied,
            self.time_us,
            self.commands,
            self.limits,
            self._table.rows(),
            self._hosts.rows(),
            self._digests.rows(),
            self._failed_upgrade,
        )

    def snapshot(self, *, is_checked: bool = True) -> Snapshot:
        """`is_checked`: what would be read back is compared with the state. Raises CannotCarryError, with the
        attribute's name."""
        self._check_open()
        codec = self._current.codec
        return Snapshot(self._head(), (codec.encode_exact if is_checked else codec.encode)(self.state))

    def pieces(self, *, is_checked: bool = True) -> Iterator[Piece]:
        """The bytes of the same snapshot, as `StateCodec.pieces` has them. Needs nothing but memory: a forked
        child may take it."""
        self._check_open()
        before = partial(beginning, self._head())
        return self._current.codec.pieces(self.state, before, is_exact=is_checked)

    def _check_open(self) -> None:
        if self._stopped is not None:
            raise self._stopped.with_traceback(None)
        if not self.version:
            raise ObjectError(
                f"{self.name}: the object is not open yet, there is nothing to take a snapshot of"
            )

    @classmethod
    def restore(cls, type_: ObjectType[T] | type[T], snapshot: Snapshot) -> ObjectMachine[T]:
        """Raises ObjectClassError or ObjectVersionError if it is that of another class, or of a version that
        the program does not have."""
        return cls(type_, snapshot)

    def _restore(self, snapshot: Snapshot) -> None:
        self._resume(snapshot.head)
        self.state = self._current.codec.decode(snapshot.state)

    @classmethod
    def resume(cls, type_: ObjectType[T] | type[T], head: bytes, state: T) -> ObjectMachine[T]:
        """The same, of a state that its host has kept itself."""
        machine = cls(type_)
        machine._resume(decode_head(head))
        machine.state = state
        return machine

    def head(self) -> bytes:
        """What there is beside the state."""
        return encode_head(self._head())

    def _resume(self, head: SnapshotHead) -> None:
        self._check_name(head.name, head.version)
        self.applied = head.applied
        self._begin(head.version, head.limits)
        self.time_us, self.commands = head.time_us, head.commands
        self._table = ClientTable.of_rows(head.table, head.limits)
        self._hosts = Hosts(head.limits, head.hosts)
        self._digests = Digests(head.limits.digest_every, head.digests)
        self._failed_upgrade = head.failed_upgrade

    def copy(self) -> ObjectMachine[T]:
        """Another one that holds the same, for tentative calls."""
        copied = type(self).restore(self.newest.type, self.snapshot(is_checked=False))
        copied._skipped = self._skipped
        return copied


def _new_state(version: Version[Any]) -> Any:
    """It has no place in the order: `ordered` is for commands."""
    cls = version.type.cls
    try:
        return cls()
    except PROCESS_ERRORS:
        raise
    except Exception as error:
        raise ObjectError(f"{cls.__name__}() raised {type(error).__name__}: {error}") from error


def _too_old(client: str, number: int, position: int, why: bytes) -> Outcome:
    return Outcome(client, number, position, Kind.TOO_OLD, why)


def _broken(position: int, error: BaseException) -> ObjectBrokenError:
    token = None
    if isinstance(error, Interrupted):
        token = error.token if isinstance(error.cause, RecursionError) else None
        error = error.cause
    return ObjectBrokenError(
        f"a command at position {position} was interrupted by {type(error).__name__}: {error}; what this"
        " program holds of the object is worth nothing, and must be read again",
        token,
    )
