"""What a host holds of calls and reads that are not done: data, and hardly any behaviour.

A call waits in a lane, goes out in a record under a number of its lane's client, and is done when it is
applied.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from totempole.client.appending import RecordName
from totempole.errors import TotemError
from totempole.objects.records import Outcome

CALL_WEIGHT = 64
"""What a call costs beside its arguments, where bytes are counted."""


class Waiting:
    """Somebody who waits. `waiter` is the owner's, and nothing to the host."""

    __slots__ = ("error", "is_done", "waiter")

    def __init__(self, waiter: Any = None) -> None:
        self.is_done = False
        self.error: TotemError | None = None
        """Why it will never come; or, of a call that was sent, why nobody here will know."""
        self.waiter = waiter


class PendingCall(Waiting):
    __slots__ = (
        "arguments",
        "client",
        "is_durable",
        "is_given_up",
        "is_missed",
        "is_wanted",
        "method",
        "number",
        "outcome",
        "record",
        "version",
    )

    def __init__(self, method: str, arguments: bytes, version: int, waiter: Any) -> None:
        self.is_done = False
        self.error = None
        self.waiter = waiter
        self.method = method
        self.arguments = arguments
        self.version = version
        """Of the object, that the arguments are encoded for."""
        self.number = 0
        """0: it was not sent."""
        self.client: Client | None = None
        self.record: RecordUnderWay | None = None
        self.outcome: Outcome | None = None
        self.is_durable = False
        """It is on the disk of the daemon's host; only a red call is told so."""
        self.is_given_up = False
        """Whoever called does not wait any more."""
        self.is_missed = False
        """The machine has passed over records, of which one may have had this call."""
        self.is_wanted = False
        """There is a receipt of it: the outcome stays in the table until somebody has asked for it."""

    @property
    def size(self) -> int:
        return len(self.arguments) + CALL_WEIGHT


class PendingRead(Waiting):
    """Until all that was green anywhere when it was asked for is applied here."""

    __slots__ = ("place",)

    def __init__(self, waiter: Any = None) -> None:
        super().__init__(waiter)
        self.place = 0


class PendingPosition(Waiting):
    """Until the records before a position are applied here."""

    __slots__ = ("position",)

    def __init__(self, position: int, waiter: Any = None) -> None:
        super().__init__(waiter)
        self.position = position


class PendingOutcome(Waiting):
    """Until a call of another program, or of a time before, is applied here."""

    __slots__ = ("client", "number", "outcome", "position", "ticket")

    def __init__(self, client: str, number: int, waiter: Any = None) -> None:
        super().__init__(waiter)
        self.client = client
        self.number = number
        self.ticket = 0
        """The question where its record is, if that was asked."""
        self.position: int | None = None
        """That of a record that has the call, once it is known."""
        self.outcome: Outcome | None = None


class Client:
    """An identity in the exactly-once table."""

    __slots__ = ("born", "id", "number", "open", "unasked")

    def __init__(self, name: str, born: int) -> None:
        self.id = name
        self.born = born
        """A position that was green here when the identity was made."""
        self.number = 0
        """The last that was given."""
        self.open: dict[int, PendingCall] = {}
        """Calls whose outcome is wanted, by number, ascending."""
        self.unasked: dict[int, PendingCall] = {}
        """Those of them that are applied, and have a receipt that nobody has asked."""

    @property
    def acknowledged(self) -> int:
        """Nothing is wanted of the numbers up to this one."""
        return next(iter(self.open), self.number + 1) - 1


class RecordUnderWay:
    """Calls that share a record, until they are applied; or a record of the host's own, without calls."""

    __slots__ = (
        "calls",
        "first",
        "id",
        "is_doubtful",
        "is_durable",
        "is_opening",
        "is_under_way",
        "lane",
        "left",
        "name",
        "payload",
    )

    def __init__(self, number: int, lane: Lane, payload: bytes, calls: list[PendingCall]) -> None:
        self.id = number
        self.lane = lane
        self.payload = payload
        self.calls = calls
        """Until all are applied."""
        self.first = 0
        """The number of the first of them; the others follow."""
        self.left = len(calls)
        """So many are not applied."""
        self.name: RecordName | None = None
        """That of its last sending, once a daemon has accepted it."""
        self.is_under_way = False
        """It waits for an answer."""
        self.is_doubtful = False
        """A sending of it may be in the log, though nobody said so."""
        self.is_durable = False
        self.is_opening = False
        """It names the object's class, and need not be sent again when the log has another one that does."""


class Lane:
    """Calls that wait for the order; or (red) for the disk of the daemon's host."""

    __slots__ = (
        "again",
        "client",
        "is_opening",
        "is_red",
        "is_retrying",
        "own",
        "returned",
        "returned_behind",
        "under_way",
        "version",
        "waiting",
    )

    def __init__(self, is_red: bool) -> None:
        self.is_red = is_red
        self.client: Client | None = None
        self.own: deque[bytes] = deque()
        """Records of the host's own, to be sent."""
        self.version = 0
        """Of the object, that calls were sent for."""
        self.waiting: deque[PendingCall] = deque()
        self.again: list[RecordUnderWay] = []
        """What has to be sent once more, in its order."""
        self.returned: list[PendingCall] = []
        """Calls that have to be called anew, before those that wait;"""
        self.returned_behind = 0
        """and the last record that was sent before that was known."""
        self.under_way = 0
        self.is_opening = False
        """The record that names the object's class was sent, before all others of this lane."""
        self.is_retrying = False
        """The node has refused for now: nothing is sent until `retry`."""

    def gather(self, calls_max: int, bytes_max: int) -> list[PendingCall]:
        """As many waiting calls of one version as a record should have, at least one if there is one. What
        was given up is left out."""
        waiting, size = self.waiting, 0
        found: list[PendingCall] = []
        while waiting and len(found) < calls_max:
            call = waiting[0]
            if not call.is_done:
                size += len(call.arguments) + CALL_WEIGHT
                if found and (size > bytes_max or call.version != found[0].version):
                    break
                found.append(call)
            waiting.popleft()
        return found
