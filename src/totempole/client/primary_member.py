"""One member of a primary group, without I/O: who may go on, whose state counts, which commands are done.

The state is in the memory of the members and nowhere else. `expected` nodes have one member each. All
messages here are SAFE multicasts in the group, and each names the regular view that it is meant for; in
another view everybody passes over it.

    HELLO     my epoch and digest, which nodes belong to the group
    SNAPSHOT  the state for one member, as of the later of its HELLO and the formation
    READY     I have the state now
    COMMAND   to be applied by all

A member *holds* a state if it has taken part in a primary since it began. Its epoch is the view of the last
one; its digest covers all commands that it has applied. In each regular view the members say HELLO.

- Formation: at the HELLO with which more than half of the nodes are known to be holders, or with which all
  nodes have spoken. The base is a holder with the highest epoch. Those with the same epoch and digest are
  *established* at once, with the view as their new epoch; the others when they have their snapshot and are
  READY. Without any holder all `expected` nodes must have spoken: they found the group with its first state.
- Primary: from where more than half of the nodes are established. Commands are sent and applied.
- Done: a command is done when its sender applies it in a regular view. It is safe there, so every member of
  the view has received it, and applies it in this view or in the transitional one that follows.

Why nothing that is done gets lost while fewer than half of the nodes lose their memory at once: more than
half were established when it was done. The next formation has heard more than half as holders. So one node is
in both, with its memory or with a later epoch, and the base is at least as new as that.

What was applied in a transitional view is uncertain until the next primary: it is done if its sender was like
the base, and unknown otherwise. A command that everybody passed over is sent again in the next primary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from totempole.errors import NotPrimary, SessionError, Unknown
from totempole.types import OrderKey, Place, ProcessId, ProcessorId, RingId

HELLO, SNAPSHOT, READY, COMMAND = b"H", b"S", b"R", b"C"

PLACE = Struct(">QIQQII")
PROCESS = Struct(">IQI")
NUMBER = Struct(">I")
TICKET = Struct(">Q")

DIGEST_BYTES = 16
NO_DIGEST = bytes(DIGEST_BYTES)
SNAPSHOT_PIECE_BYTES = 262_144
NODES_MAX = 1_000


class StateMachine(Protocol):
    """What a program replicates. Same commands, same order, same results: no clock, no random numbers."""

    def apply(self, command: bytes) -> Any:
        """Changes the state; what it returns or raises is the result of the command."""

    def snapshot(self) -> bytes: ...

    def restore(self, snapshot: bytes) -> None:
        """Of a machine that has just been made."""


M = TypeVar("M", bound=StateMachine)


class Phase(Enum):
    EXCHANGING = "exchanging"
    """The view is new, or does not last: soon it is one of the others."""
    PRIMARY = "primary"
    OUTSIDE = "outside"
    """This side cannot go on."""


class Epoch(NamedTuple):
    """Whose state: of which formation, and with which commands since."""

    place: Place
    digest: bytes


class Hello(NamedTuple):
    epoch: Epoch | None
    """None: a member without memory."""
    expected: int
    nodes: frozenset[ProcessorId]
    """Those that founded the group, as far as it knows."""


class Formation(NamedTuple):
    base: Epoch | None
    """None: the first state."""
    nodes: frozenset[ProcessorId]
    donor: ProcessId
    certain: bool
    """Whether the base has all that was done. It may not, when more than half have lost their memory."""


@dataclass(slots=True)
class Call:
    """A command of this member."""

    command: bytes
    sent: bool = False
    result: tuple[Any, Exception | None] | None = None
    """Applied, but in a transitional view."""


class Answer(NamedTuple):
    ticket: int
    value: Any
    error: Exception | None


@dataclass(slots=True)
class Round:
    """What is said in one regular view."""

    place: Place
    members: tuple[ProcessId, ...]
    hellos: dict[ProcessId, Hello] = field(default_factory=dict)
    formation: Formation | None = None
    established: set[ProcessId] = field(default_factory=set)
    held: list[tuple[ProcessId, int, bytes]] = field(default_factory=list)
    """Commands for the time when the snapshot is here."""
    pieces: list[bytes] = field(default_factory=list)

    @property
    def seats(self) -> dict[ProcessorId, ProcessId]:
        """One member of each node counts: the first."""
        return {member.processor: member for member in sorted(self.members, reverse=True)}


class PrimaryMember(Generic[M]):
    """`out` has what is to be multicast (SAFE, in this order), `answers` what became of commands; whoever
    feeds it empties both."""

    def __init__(self, make: Callable[[], M], expected: int) -> None:
        if not isinstance(expected, int) or not 1 <= expected <= NODES_MAX:
            raise SessionError(f"expected = {expected!r}: give the number of nodes, 1 to {NODES_MAX}")
        self.machine = make()
        self.out: list[bytes] = []
        self.answers: list[Answer] = []
        self.epoch: Epoch | None = None
        self._make = make
        self._expected = expected
        self._nodes: frozenset[ProcessorId] = frozenset()
        self._me: ProcessId | None = None
        self._round: Round | None = None
        self._transitional = False
        self._calls: dict[int, Call] = {}
        self._ticket_last = 0

    # What the group tells

    def lost(self) -> None:
        """The session is lost, and with it messages: this member has no memory any more."""
        self.machine, self.epoch, self._nodes = self._make(), None, frozenset()
        self._round, self._transitional = None, False
        self.out.clear()
        for ticket, call in list(self._calls.items()):
            if call.sent:
                self._fail(ticket, Unknown("the connection was lost while the command was under way", ()))

    def view(self, me: ProcessId, kind: str, members: Sequence[ProcessId], place: Place) -> None:
        self._me = me
        self._transitional = kind != "regular"
        if self._transitional:
            return
        self._round = Round(place, tuple(members))
        hello = Hello(self.epoch, self._expected, self._nodes)
        self.out.append(HELLO + pack_place(place) + pack_hello(hello))
        self._settle()

    def message(self, sender: ProcessId, payload: bytes) -> None:
        """What is not one of ours is passed over: anyone may send to the group."""
        current = self._round
        try:
            kind, place, rest = payload[:1], unpack_place(payload[1:]), payload[1 + PLACE.size :]
            meant = current is not None and place == current.place and sender in current.members
            if kind == COMMAND:
                self._command(sender, TICKET.unpack_from(rest)[0], rest[TICKET.size :], meant)
            elif meant and current is not None:
                self._take(current, sender, kind, rest)
        except (StructError, ValueError):
            return

    def _take(self, current: Round, sender: ProcessId, kind: bytes, rest: bytes) -> None:
        if current.seats[sender.processor] != sender:
            return
        if kind == HELLO:
            self._hello(current, sender, unpack_hello(rest))
        elif kind == SNAPSHOT:
            self._snapshot(current, rest)
        elif kind == READY and current.formation is not None:
            current.established.add(sender)
            self._settle()

    # Formation

    def _hello(self, current: Round, sender: ProcessId, hello: Hello) -> None:
        current.hellos[sender] = hello
        if current.formation is None:
            current.formation = self._formation(current)
            if current.formation is not None:
                self._form(current, current.formation)
        elif sender.processor in current.formation.nodes:
            self._heard_late(current, current.formation, sender, hello)
        self._settle()

    def _formation(self, current: Round) -> Formation | None:
        """What the HELLOs so far allow: the same at every member, for they come in one order."""
        holders = {member: hello for member, hello in current.hellos.items() if hello.epoch is not None}
        if not holders:
            return self._founding(current)
        nodes = next(iter(holders.values())).nodes
        if any(hello.nodes != nodes for hello in holders.values()):
            return None  # two groups were founded: more nodes than expected are in use
        spoken = {member.processor for member in current.hellos} & nodes
        if not self._is_majority(holders, nodes) and spoken != nodes:
            return None
        donor = min(holders, key=lambda member: _rank(member, holders))
        certain = 2 * len({member.processor for member in holders} & nodes) >= len(nodes)
        return Formation(holders[donor].epoch, nodes, donor, certain)

    def _founding(self, current: Round) -> Formation | None:
        """Nobody has a state. With all nodes here, there is none elsewhere either."""
        seats = current.seats
        agreed = {hello.expected for hello in current.hellos.values()} == {len(seats)}
        if not agreed or len(current.hellos) < len(seats):
            return None
        return Formation(None, frozenset(seats), min(seats.values()), True)

    def _form(self, current: Round, formation: Formation) -> None:
        if self.epoch == formation.base and self._belongs(current, formation):
            self._establish(current, formation, NO_DIGEST if self.epoch is None else self.epoch.digest)
        else:
            self._settle_uncertain(applied=False)
        for member, hello in current.hellos.items():
            self._heard(current, formation, member, hello)

    def _heard(self, current: Round, formation: Formation, member: ProcessId, hello: Hello) -> None:
        """Who is like the base is established; the others get its state, as of here."""
        if member.processor not in formation.nodes:
            return
        if hello.epoch == formation.base:
            current.established.add(member)
        elif formation.donor == self._me and not self._transitional:
            self._give(current, member)

    def _heard_late(self, current: Round, formation: Formation, member: ProcessId, hello: Hello) -> None:
        if member == self._me and member not in current.established:
            current.held.clear()  # the snapshot contains them
        self._heard(current, formation, member, hello)

    def _belongs(self, current: Round, formation: Formation) -> bool:
        assert self._me is not None
        return self._me.processor in formation.nodes and current.seats[self._me.processor] == self._me

    def _establish(self, current: Round, formation: Formation, digest: bytes) -> None:
        assert self._me is not None
        self.epoch = Epoch(current.place, digest)
        self._nodes = formation.nodes
        current.established.add(self._me)

    @staticmethod
    def _is_majority(members: Any, nodes: frozenset[ProcessorId]) -> bool:
        return 2 * len({member.processor for member in members} & nodes) > len(nodes)

    # The state for those who lack it

    def _give(self, current: Round, joiner: ProcessId) -> None:
        assert self.epoch is not None
        state = bytes(self.machine.snapshot())
        head = SNAPSHOT + pack_place(current.place) + PROCESS.pack(*joiner) + self.epoch.digest
        cuts = range(0, max(1, len(state)), SNAPSHOT_PIECE_BYTES)
        for at in cuts:
            last = at == cuts[-1]
            self.out.append(head + bytes([last]) + state[at : at + SNAPSHOT_PIECE_BYTES])

    def _snapshot(self, current: Round, rest: bytes) -> None:
        joiner = ProcessId(*PROCESS.unpack_from(rest))
        formation = current.formation
        if joiner != self._me or formation is None or joiner in current.established:
            return
        at = PROCESS.size + DIGEST_BYTES
        current.pieces.append(rest[at + 1 :])
        if rest[at]:
            self.machine = self._make()
            self.machine.restore(b"".join(current.pieces))
            self._establish(current, formation, rest[PROCESS.size : at])
            held, current.held = current.held, []
            for sender, ticket, command in held:
                self._apply(sender, ticket, command)
            self.out.append(READY + pack_place(current.place))

    # Commands

    @property
    def phase(self) -> Phase:
        current = self._round
        if current is None or self._transitional or self._me is None:
            return Phase.EXCHANGING
        if self.problem:
            return Phase.OUTSIDE
        formation = current.formation
        if formation is None or not self._is_majority(current.established, formation.nodes):
            return Phase.EXCHANGING
        return Phase.PRIMARY

    @property
    def certain(self) -> bool:
        """Whether the present primary has all that was done in those before."""
        formation = self._round.formation if self._round is not None else None
        return formation is None or formation.certain

    @property
    def problem(self) -> str:
        """Why this member is not in a primary, and will not be while the view lasts; empty if it may be."""
        current = self._round
        if current is None or self._me is None:
            return ""
        seats = current.seats
        here = f"{len(seats)} of {self._expected} nodes are here"
        if seats[self._me.processor] != self._me:
            return f"node {self._me.processor} has another member of the group: one of each node takes part"
        formation = current.formation
        if formation is None:
            present = len(seats.keys() & self._nodes) if self._nodes else len(seats)
            if 2 * present <= self._expected and present < self._expected:
                return f"{here}: no majority"
            if len(current.hellos) == len(seats):
                return self._why_unformed(current, here)
        elif self._me.processor not in formation.nodes or len(formation.nodes) != self._expected:
            nodes = " ".join(map(str, sorted(formation.nodes)))
            return f"the group was founded by nodes {nodes}, and expected = {self._expected} here"
        return ""

    def _why_unformed(self, current: Round, here: str) -> str:
        holders = [hello for hello in current.hellos.values() if hello.epoch is not None]
        if len({hello.nodes for hello in holders}) > 1:
            return f"{here}, and two groups have been founded: more nodes than expected are in use"
        if len({hello.expected for hello in current.hellos.values()}) > 1:
            return f"{here}, and the members do not agree on how many are expected"
        missing = "no state has been founded yet, which takes all of them"
        return f"{here}, and {len(holders)} of them have the state" if holders else f"{here}: {missing}"

    def do(self, command: bytes) -> int:
        """A ticket; its answer comes later."""
        self._ticket_last += 1
        self._calls[self._ticket_last] = Call(bytes(command))
        self._settle()
        return self._ticket_last

    def give_up(self, ticket: int, why: str) -> SessionError:
        """Nobody waits any more; what is to be said of the command."""
        call = self._calls.pop(ticket, None)
        if call is not None and not call.sent:
            return NotPrimary(f"{why}, and no primary: {self.problem or 'members exchange what they have'}")
        return Unknown(f"{why}, while the command was under way", ())

    def _command(self, sender: ProcessId, ticket: int, command: bytes, meant: bool) -> None:
        current = self._round
        if meant and current is not None and current.formation is not None:
            if self._me in current.established:
                self._apply(sender, ticket, command)
            elif self._belongs(current, current.formation):
                current.held.append((sender, ticket, command))
        elif sender == self._me and ticket in self._calls:
            self._calls[ticket].sent = False  # nobody has applied it
            self._settle()

    def _apply(self, sender: ProcessId, ticket: int, command: bytes) -> None:
        assert self.epoch is not None
        value: Any = None
        error: Exception | None = None
        try:
            value = self.machine.apply(command)
        except StopIteration as raised:
            error = RuntimeError(f"the command raised {raised!r}")  # no future can have it
        except Exception as raised:
            error = raised
        digest = blake2b(command, key=self.epoch.digest, digest_size=DIGEST_BYTES).digest()
        self.epoch = Epoch(self.epoch.place, digest)
        call = self._calls.get(ticket) if sender == self._me else None
        if call is None:
            return
        if self._transitional:
            call.result = (value, error)
        else:
            self._answer(ticket, value, error)

    def _settle_uncertain(self, applied: bool) -> None:
        for ticket, call in list(self._calls.items()):
            if call.result is None:
                continue
            if applied:
                self._answer(ticket, *call.result)
            else:
                self._fail(ticket, Unknown("others may have gone on without the command", ()))

    def _settle(self) -> None:
        """Sends what waits, or says that it cannot be sent."""
        phase = self.phase
        if phase is Phase.EXCHANGING:
            return
        assert self._round is not None
        self._settle_uncertain(applied=phase is Phase.PRIMARY)
        for ticket, call in list(self._calls.items()):
            if call.sent:
                continue
            if phase is Phase.OUTSIDE:
                self._fail(ticket, NotPrimary(self.problem))
            else:
                call.sent = True
                self.out.append(COMMAND + pack_place(self._round.place) + TICKET.pack(ticket) + call.command)

    def _answer(self, ticket: int, value: Any, error: Exception | None) -> None:
        del self._calls[ticket]
        self.answers.append(Answer(ticket, value, error))

    def _fail(self, ticket: int, error: Exception) -> None:
        self._answer(ticket, None, error)


def _rank(member: ProcessId, holders: dict[ProcessId, Hello]) -> tuple[Any, ...]:
    """The base is first: of the highest epoch, and like as many others as possible."""
    epoch = holders[member].epoch
    assert epoch is not None
    alike = sum(hello.epoch == epoch for hello in holders.values())
    newest = max(hello.epoch.place for hello in holders.values() if hello.epoch is not None)
    return epoch.place != newest, -alike, member


# Bytes


def pack_place(place: Place) -> bytes:
    ring, seq, configuration = place.key
    return PLACE.pack(*ring, seq, *configuration, place.index)


def unpack_place(data: bytes) -> Place:
    seq, representative, message, conf_seq, conf_representative, index = PLACE.unpack_from(data)
    key = OrderKey(RingId(seq, representative), message, RingId(conf_seq, conf_representative))
    return Place(key, index)


def pack_hello(hello: Hello) -> bytes:
    held = b"" if hello.epoch is None else pack_place(hello.epoch.place) + hello.epoch.digest
    nodes = [NUMBER.pack(node) for node in sorted(hello.nodes)]
    return b"".join((NUMBER.pack(hello.expected), NUMBER.pack(len(nodes)), *nodes, held))


def unpack_hello(data: bytes) -> Hello:
    (expected,), (count,) = NUMBER.unpack_from(data), NUMBER.unpack_from(data, 4)
    if count > NODES_MAX:
        raise ValueError(count)
    nodes = frozenset(NUMBER.unpack_from(data, 8 + 4 * index)[0] for index in range(count))
    held = data[8 + 4 * count :]
    if not held:
        return Hello(None, expected, nodes)
    if len(held) != PLACE.size + DIGEST_BYTES:
        raise ValueError(len(held))
    return Hello(Epoch(unpack_place(held), held[PLACE.size :]), expected, nodes)
