"""What one program does for one object, without I/O.

A host applies the object's records in the order of their log, and so has the object's state. Calls of its
program wait for their turn, share records, and are done when the record that has them is applied *here*:
the result of a call is what this host's own machine says of it. Whatever is in doubt is sent again as it was,
with the same client and numbers; the exactly-once table of the machine sees to the rest.

Calls are in one of two lanes. Those that wait for the order must not hold up those that only wait for this
host's disk, and receipts that nobody asks for must not keep the results of other calls in the table: so each
lane has a client identity of its own.

Inputs (`fed`, `durable`, `doubtful`, …) only note what has happened. `pump` sends: the owner calls it when it
has handed in all that has come. Whoever is to be told something is in `settled`.

Why a call that is too old is called anew: the machine here has applied every record since the call was made.
The first outcome that it finds is therefore the only one. If the table had forgotten the client by then, no
copy of the call was applied before, and none will be: the table never takes that identity again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from totempole.client.appending import RecordName
from totempole.errors import SessionError, TotemError
from totempole.objects.machine import ObjectMachine
from totempole.objects.pending import (
    CALL_WEIGHT,
    Client,
    Lane,
    PendingCall,
    PendingOutcome,
    PendingPosition,
    PendingRead,
    RecordUnderWay,
    Waiting,
)
from totempole.objects.recoding import encoded_again
from totempole.objects.records import Call, Calls, Kind, Outcome, Record, encode
from totempole.objects.waits import Waits

T = TypeVar("T")

RECORDS_UNDER_WAY_MAX = 4
"""Of each lane. What is called meanwhile is gathered into the next record."""
RECORD_CALLS_MAX = 2_048
RECORD_BYTES = 512 * 1024
"""A record that has so much takes no more calls. A node takes twice that in one append."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Of calls that are not applied yet. In a minority they may wait for long."""
BARRIERS_UNDER_WAY_MAX = 2
"""A read that comes while a barrier is under way need not wait for the end of that one."""
HELD_NUMBERS_MAX = 4_096
"""A receipt whose result nobody has asked for is kept in the table, and so are the results of all later calls
of its client. When there were so many of them, it is kept no longer."""

_CALLED_ANEW = frozenset({Kind.TOO_OLD, Kind.WRONG_VERSION})


class Carrier(Protocol):
    """What a host asks for."""

    def append(self, record: int, payload: bytes, *, red: bool) -> None:
        """`durable` (red), `placed`, `doubtful` or `refused` follows."""

    def ask_barrier(self, barrier: int) -> None:
        """`barrier_passed` or `barrier_failed` follows."""

    def retry_later(self) -> None:
        """`retry` follows, after a pause."""

    def new_client(self) -> str:
        """A name that no client ever had."""


class ObjectHost(Generic[T]):
    def __init__(self, machine: ObjectMachine[T], carrier: Carrier) -> None:
        self.machine = machine
        self.place = 0
        """All runs of the order before it were taken in."""
        self.settled: list[Waiting] = []
        """For the owner, who empties it."""
        self.waiting_bytes = 0
        """Of calls that are not applied."""
        self.refusal = ""
        """Why calls wait: what the node has said last. Empty: nothing."""
        self.waits = Waits(self._settle)
        self._carrier = carrier
        self._green = Lane(is_red=False)
        self._red = Lane(is_red=True)
        self._clients: dict[str, Client] = {}
        """The present ones of both lanes, and older ones with calls whose outcome is wanted."""
        self._records: dict[int, RecordUnderWay] = {}
        self._last = 0
        self._passed_over: dict[int, RecordUnderWay] = {}
        """Records of calls that may be in the order, and will not be applied here. Those that were sent
        before the object had its class: if they are before the record that names it, every host has passed
        over them. And those that were under way when the machine was made anew from a snapshot."""
        self._returned: list[PendingCall] = []
        """Not applied, and to be called anew."""
        self._reads: list[PendingRead] = []
        """For the next barrier."""
        self._barriers: dict[int, list[PendingRead]] = {}
        self._is_resting = False
        """No barrier is asked for until `retry`."""
        self._passed: list[PendingRead] = []
        """Their barrier has passed; its place is not reached here."""
        self._error: TotemError | None = None

    # What the program asks for

    def call(self, method: str, arguments: bytes, waiter: Any = None, *, red: bool = False) -> PendingCall:
        """A call that waits for its turn. It is settled when it is applied here or was refused; a red one
        also when it is on the disk of the daemon's host."""
        self._check()
        if self.waiting_bytes > WAITING_BYTES_MAX:
            because = f"; the node says: {self.refusal}" if self.refusal else ""
            raise SessionError(
                f"nothing was called: {self.waiting_bytes} bytes of calls wait already, as many as a program "
                f"may have under way{because}"
            )
        pending = PendingCall(method, arguments, self.version, waiter)
        self.waiting_bytes += len(arguments) + CALL_WEIGHT
        lane = self._red if red else self._green
        pending.is_wanted = red
        lane.waiting.append(pending)
        return pending

    @property
    def version(self) -> int:
        """What calls are encoded for. Until the object has one, it is that which this host would give it."""
        return self.machine.version or self.machine.newest.type.version

    def give_up(self, pending: PendingCall, *, wanted: bool = False) -> bool:
        """Its caller waits no longer. Whether it was never sent, and never will be. `wanted`: there will be a
        receipt of it, if it was sent."""
        pending.is_given_up = True
        if pending.number or pending.is_done:
            pending.is_wanted = pending.is_wanted or wanted
            return False
        pending.is_done = True
        self.waiting_bytes -= pending.size
        return True

    def release(self, pending: PendingCall) -> None:
        """The result of a receipt has been taken: the table need not keep it."""
        if pending.client is not None and pending.client.unasked.pop(pending.number, None) is pending:
            self._forget(pending)

    def announce(self, record: Record) -> None:
        """Appends a record of the host's own. Nobody waits for it."""
        self._green.own.append(encode(record))

    def read(self, waiter: Any = None) -> PendingRead:
        """Settled when all that was green anywhere by now is applied here."""
        self._check()
        pending = PendingRead(waiter)
        self._reads.append(pending)
        return pending

    def give_up_read(self, pending: PendingRead) -> None:
        """Nobody waits for it any more."""
        pending.is_done = True
        if pending in self._reads:
            self._reads.remove(pending)

    def when_applied(self, position: int, waiter: Any = None) -> PendingPosition:
        """Settled when the records before this position are applied here."""
        self._check()
        return self.waits.add_position(self.machine, position, waiter)

    def watch(self, client: str, number: int, waiter: Any = None) -> PendingOutcome:
        """Settled when a call of another program, or of a time before, is applied here."""
        self._check()
        return self.waits.add_outcome(self.machine, client, number, waiter)

    def watch_until(self, pending: PendingOutcome, position: int) -> None:
        """The call is in the record at this position. If it has no outcome then, nobody knows it any more."""
        pending.position = position
        self.waits.check(self.machine)

    def find(self, client: str, number: int) -> PendingCall | None:
        """A call of this host whose outcome is wanted."""
        found = self._clients.get(client)
        return found.open.get(number) if found is not None else None

    @property
    def unapplied(self) -> Iterator[PendingCall]:
        """The calls of this host that are not applied, in the order in which they were sent, then those that
        wait."""
        sent = [record for record in self._records.values() if record.calls]
        for record in sorted(sent, key=lambda each: each.id):
            yield from (call for call in record.calls if not call.is_done and call.record is record)
        for lane in (self._red, self._green):
            yield from (call for call in (*lane.returned, *lane.waiting) if not call.is_done)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    # Sending

    def pump(self) -> None:
        """Sends what may be sent."""
        if self._error is not None:
            return
        for lane in (self._green, self._red):
            while lane.under_way < RECORDS_UNDER_WAY_MAX and not lane.is_retrying:
                record = self._next_record(lane)
                if record is None:
                    break
                lane.under_way += 1
                record.is_under_way = True
                self._carrier.append(record.id, record.payload, red=lane.is_red)
        if self._reads and not self._is_resting and len(self._barriers) < BARRIERS_UNDER_WAY_MAX:
            self._last += 1
            self._barriers[self._last], self._reads = self._reads, []
            self._carrier.ask_barrier(self._last)

    def _next_record(self, lane: Lane) -> RecordUnderWay | None:
        if not (lane.waiting or lane.again or lane.own or lane.returned):
            return None
        if not lane.is_opening and (opening := self.machine.opening()) is not None:
            lane.is_opening = True
            record = self._new_record(lane, opening, [])
            record.is_opening = True
            return record
        if lane.again:
            return lane.again.pop(0)
        if lane.own:
            return self._new_record(lane, lane.own.popleft(), [])
        if lane.returned and not self._take_back(lane):
            return None
        if lane.version != self.version and not self._change_version(lane):
            return None
        calls = lane.gather(RECORD_CALLS_MAX, RECORD_BYTES)
        return self._record_of(lane, calls) if calls else None

    def _new_record(self, lane: Lane, payload: bytes, calls: list[PendingCall]) -> RecordUnderWay:
        self._last += 1
        record = self._records[self._last] = RecordUnderWay(self._last, lane, payload, calls)
        return record

    def _record_of(self, lane: Lane, calls: list[PendingCall]) -> RecordUnderWay:
        client = self._client_of(lane)
        self._release_old(client)
        acknowledged, first = client.acknowledged, client.number + 1
        client.number += len(calls)
        content = tuple(
            [Call(number, call.method, call.arguments) for number, call in enumerate(calls, first)]
        )
        version = calls[0].version
        payload = encode(Calls(client.id, client.born, acknowledged, version, content))
        record = self._new_record(lane, payload, calls)
        record.first = first
        for number, call in enumerate(calls, first):
            call.number, call.client, call.record = number, client, record
            client.open[number] = call
        if not self.machine.version:
            self._passed_over[record.id] = record
        return record

    def _client_of(self, lane: Lane) -> Client:
        """The present identity; a new one, if the table has forgotten it and nothing of it is under way."""
        client = lane.client
        if client is None:
            return self._renew(lane)
        if not client.open and self._has_forgotten(client):
            return self._renew(lane)
        return client

    def _has_forgotten(self, client: Client) -> bool:
        """Whether the table takes no call of it any more."""
        return self.machine.is_settled(client.id, client.number + 1, client.born)

    def _renew(self, lane: Lane) -> Client:
        if lane.client is not None and not lane.client.open:
            self._clients.pop(lane.client.id, None)
        name = self._carrier.new_client()
        lane.client = self._clients[name] = Client(name, self.machine.applied)
        return lane.client

    @staticmethod
    def _release_old(client: Client) -> None:
        """Receipts that nobody asked for long."""
        while client.unasked:
            oldest = next(iter(client.unasked))
            if oldest > client.number - HELD_NUMBERS_MAX:
                return
            del client.unasked[oldest]
            del client.open[oldest]

    # What the node says

    def durable(self, record: int, name: RecordName) -> None:
        """A red record is on the disk of the daemon's host."""
        found = self._records.get(record)
        if found is None:
            return
        found.name = name
        self._answered(found)
        if not found.calls:
            del self._records[record]
            return
        found.is_durable = True
        for call in found.calls:
            if not call.is_done:
                call.is_durable = True
                self.settled.append(call)
        self._check_passed_over()

    def named(self, record: int, name: RecordName) -> None:
        """A daemon has accepted it, under this name."""
        found = self._records.get(record)
        if found is not None:
            found.name = name

    def placed(self, record: int) -> None:
        """It is green. What it has brought about shows when it is fed."""
        found = self._records.get(record)
        if found is not None:
            self._answered(found)
            if not found.calls:
                del self._records[record]
            self._check_passed_over()

    def doubtful(self, record: int) -> None:
        """Nobody knows whether it is in the log: it goes again."""
        found = self._records.get(record)
        if found is not None:
            found.is_doubtful = True
            self._again(found)

    def refused(self, record: int, error: TotemError) -> None:
        """This sending has put nothing into the log. If that may pass, or if one before may have, it goes
        again after a pause."""
        found = self._records.get(record)
        if found is None:
            return
        if error.may_pass or found.is_doubtful:
            self.refusal = str(error)
            self._again(found)
            if not found.lane.is_retrying:
                found.lane.is_retrying = True
                self._carrier.retry_later()
            return
        self._answered(found)
        del self._records[record]
        if found.is_opening:
            found.lane.is_opening = False
        for call in found.calls:
            self._forget(call)
            call.number, call.client, call.record = 0, None, None
            self._fail(call, error)

    def retry(self) -> None:
        """The pause is over."""
        self._green.is_retrying = self._red.is_retrying = self._is_resting = False

    def moved(self) -> None:
        """The node is another one. What waits on the disk of the one before may wait there for long: it is
        given to this one, too."""
        self._red.is_opening = False
        for record in list(self._records.values()):
            if record.is_durable:
                record.is_doubtful = True
                self._again(record)

    def _check_passed_over(self) -> None:
        """They go again, once they are answered."""
        if not self._passed_over or not self.machine.version:
            return
        for record in list(self._passed_over.values()):
            if record.id not in self._records:
                del self._passed_over[record.id]
            elif not record.is_under_way:
                del self._passed_over[record.id]
                record.is_doubtful = True
                self._again(record)

    def _again(self, record: RecordUnderWay) -> None:
        self._answered(record)
        record.is_durable = False
        if record.is_opening:
            del self._records[record.id]
            record.lane.is_opening = False
        elif record not in record.lane.again:
            record.lane.again.append(record)
            record.lane.again.sort(key=lambda each: each.id)

    def _answered(self, record: RecordUnderWay) -> None:
        if record.is_under_way:
            record.is_under_way = False
            record.lane.under_way -= 1

    # Reads

    def barrier_passed(self, barrier: int, place: int) -> None:
        """All runs that were green anywhere when it was asked for are before this place."""
        for read in self._barriers.pop(barrier, ()):
            read.place = place
            if place <= self.place:
                self._settle(read)
            elif not read.is_done:
                self._passed.append(read)

    def barrier_failed(self, barrier: int, error: TotemError | None = None) -> None:
        """Its answer was lost: it is asked for again. With an error: it cannot be had, or not now."""
        reads = [read for read in self._barriers.pop(barrier, ()) if not read.is_done]
        if error is None or error.may_pass:
            self._reads[:0] = reads
            if error is not None and not self._is_resting:
                self._is_resting = True
                self._carrier.retry_later()
            return
        for read in reads:
            self._fail(read, error)

    # The order

    def fed(self, payloads: Iterable[bytes], positions: Iterable[int], time_us: int) -> None:
        """Records of the object's log, the next ones. `reached` follows."""
        apply, clients = self.machine.apply, self._clients
        for payload, position in zip(payloads, positions, strict=True):
            outcomes = apply(payload, position, time_us)
            if outcomes:
                client = clients.get(outcomes[0].client)
                if client is not None:
                    self._take(client, outcomes)

    def reached(self, place: int) -> None:
        """All runs before this place were fed, or are not of this object."""
        if place > self.place:
            self.place = place
        if self._passed_over:
            self._check_passed_over()
        if self._returned:
            self._call_anew()
        if self._passed:
            for read in self._passed:
                if read.place <= place:
                    self._settle(read)
            self._passed = [read for read in self._passed if not read.is_done]
        self.waits.check(self.machine)

    def _take(self, client: Client, outcomes: Sequence[Outcome]) -> None:
        """What the machine says of calls of this host."""
        self.refusal = ""
        calls, settled = client.open, self.settled
        for outcome in outcomes:
            call = calls.get(outcome.number)
            if call is None or call.outcome is not None:
                continue  # another copy of the record came before
            if outcome.kind in _CALLED_ANEW and self._is_called_anew(call, outcome):
                self._returned.append(call)
                self._applied(call)
                del calls[outcome.number]
                continue
            call.outcome = outcome
            call.is_done = True
            self.waiting_bytes -= len(call.arguments) + CALL_WEIGHT
            self._applied(call)
            settled.append(call)
            if call.is_wanted:
                client.unasked[call.number] = call
            else:
                del calls[outcome.number]

    def _is_called_anew(self, call: PendingCall, outcome: Outcome) -> bool:
        """Whether it was never applied through no fault of its own, and somebody still wants it to be."""
        if call.is_given_up and not call.is_durable:
            return False
        if outcome.kind is Kind.TOO_OLD:
            return not call.is_missed
        return self._encode_again(call)

    def _encode_again(self, call: PendingCall) -> bool:
        """For the version that the object is at by now. Whether that can be done."""
        if call.version == self.version:
            return False
        arguments = encoded_again(self.machine, call)
        if arguments is None:
            return False
        self.waiting_bytes += len(arguments) - len(call.arguments)
        call.arguments, call.version = arguments, self.version
        return True

    def _applied(self, call: PendingCall) -> None:
        """A record all of whose calls are applied is done, whatever the node says of it later."""
        record = call.record
        assert record is not None, "it was sent"
        record.left -= 1
        if not record.left:
            self._answered(record)
            if record in record.lane.again:
                record.lane.again.remove(record)
            self._records.pop(record.id, None)
            record.calls = []  # they name it, too: only the garbage collector would end a circle

    def _call_anew(self) -> None:
        """Calls of an identity that the table has forgotten, or of a version that is not in force."""
        returned, self._returned = self._returned, []
        for lane in (self._green, self._red):
            mine = [call for call in returned if call.record is not None and call.record.lane is lane]
            if mine and lane.client is not None and self._has_forgotten(lane.client):
                self._renew(lane)
            for call in mine:
                call.number, call.client, call.record = 0, None, None
            lane.returned += mine
            lane.returned_behind = self._last
        present = (self._green.client, self._red.client)
        for client in list(self._clients.values()):
            if client not in present and len(client.open) == len(client.unasked):
                del self._clients[client.id]  # it acknowledges nothing more: the table keeps what is unasked

    def _take_back(self, lane: Lane) -> bool:
        """Calls that are called anew keep their order: what was sent before them may come back, too. Whether
        they can be sent."""
        if self._has_sent_before(lane, lane.returned_behind):
            return False
        lane.waiting.extendleft(reversed(lane.returned))
        lane.returned = []
        return True

    def _change_version(self, lane: Lane) -> bool:
        """The object has another version: what was sent before may come back. Whether the rest can go."""
        if lane.version and self._has_sent_before(lane, self._last):
            return False
        lane.version = self.version
        for call in lane.waiting:
            self._encode_again(call)
        return True

    def _has_sent_before(self, lane: Lane, last: int) -> bool:
        """Whether calls in records up to this one are not applied. Red ones are not waited for: they may be
        on disk only, for long."""
        return not lane.is_red and any(
            record.id <= last and record.calls and record.lane is lane for record in self._records.values()
        )

    def restored(self, machine: ObjectMachine[T], place: int = 0) -> None:
        """The machine was made anew, of a snapshot or of nothing. What comes behind that is fed again; what
        was applied before it is in its table. `place`: all runs before it are in the machine."""
        self.machine = machine
        self.place = place
        for client in list(self._clients.values()):
            for call in client.open.values():
                call.is_missed = call.is_missed or (call.outcome is None and machine.applied > client.born)
            found = [machine.outcome_of(client.id, number) for number in client.open]
            self._take(client, [outcome for outcome in found if outcome is not None])
        for record in self._records.values():
            if record.calls:
                self._passed_over[record.id] = record
        self.reached(place)

    # The end

    def end(self, error: TotemError) -> None:
        """Nothing more comes. Who waits is told so: of calls that were sent, nobody here will know."""
        if self._error is not None:
            return
        self._error = error
        reads = [read for reads in self._barriers.values() for read in reads]
        for waiting in (*self.unapplied, *self._reads, *self._passed, *reads, *self.waits):
            if not waiting.is_done:
                self._fail(waiting, error)

    # Within

    @staticmethod
    def _forget(call: PendingCall) -> None:
        if call.client is not None:
            call.client.open.pop(call.number, None)

    def _settle(self, waiting: Waiting) -> None:
        waiting.is_done = True
        self.settled.append(waiting)

    def _fail(self, waiting: Waiting, error: TotemError) -> None:
        if isinstance(waiting, PendingCall):
            self.waiting_bytes -= waiting.size
        waiting.error = error
        self._settle(waiting)
