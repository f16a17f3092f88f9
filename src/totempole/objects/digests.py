"""How hosts that differ are found.

Every `digest_every` commands each host makes a checkpoint, all at the same place in the order: a chain over
all outcomes so far, which costs next to nothing, and a digest of the state. A large state is digested less
often: the next time after as many commands as it has `STATE_BYTES_PER_COMMAND` bytes. Hosts write their
checkpoints to the log. Of a state of more than `INLINE_BYTES_MAX` only hosts that can fork take digests,
aside; the others still have the chain. A host that finds one that is not its own says so, with the last place
where both were the same and the first where they were not. It cannot tell who is right: `totem log diff`
finds the command.

The text of an exception is not in the chain. It may differ between versions of Python.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from typing import NamedTuple, TypeVar

import msgspec

from totempole.objects.records import Checkpoint, Digest

V = TypeVar("V")

DIGEST_BYTES = 16
STATE_BYTES_PER_COMMAND = 64
INLINE_BYTES_MAX = 16 << 20
"""A state that was larger the last time is digested aside (`ObjectMachine.is_state_digest_due`), or not at
all."""

STATE_BYTES_MAX = 1 << 40

CHECKPOINTS_MAX = 64
"""Kept to be compared with."""

SAID_MAX = 8
"""Checkpoints in a record."""

HOSTS_MAX = 1_000
"""Other hosts that are remembered."""

NO_CHAIN = bytes(DIGEST_BYTES)

OUTCOMES, STATE = "outcomes", "state"


class Divergence(NamedTuple):
    """This host and another one have applied the same commands, and hold something else."""

    host: str
    what: str
    """`outcomes` or `state`."""
    agreed_position: int
    """The last place where what differs was known to be the same; -1: none is known."""
    agreed_commands: int
    position: int
    """The first place where they are known to differ."""
    commands: int

    def __str__(self) -> str:
        since = (
            f"they agreed at position {self.agreed_position} ({self.agreed_commands} commands)"
            if self.agreed_position >= 0
            else "it is not known that they ever agreed"
        )
        return (
            f"this host and {self.host} have different {self.what} at position {self.position}"
            f" ({self.commands} commands); {since}; totem log diff finds the command"
        )


class DigestRows(msgspec.Struct, frozen=True, array_like=True):
    """As a snapshot has it."""

    chain: bytes = NO_CHAIN
    state_due: int = 0
    state_bytes: int = 0
    checkpoints: tuple[Checkpoint, ...] = ()


class Digests:
    def __init__(self, every: int, rows: DigestRows | None = None) -> None:
        rows = rows or DigestRows()
        self._every = every
        self.chain = rows.chain
        """Over the outcomes of all commands so far."""
        self._state_due = rows.state_due
        self._state_bytes = rows.state_bytes
        """When it was taken last, by any host."""
        self._late: OrderedDict[int, tuple[bytes, int]] = OrderedDict()
        """Digests of a large state, and its bytes, by the count of commands. Only those that this host has
        taken: they are in no snapshot."""
        self._checkpoints: deque[Checkpoint] = deque(rows.checkpoints, CHECKPOINTS_MAX)
        self._agreed: OrderedDict[str, Checkpoint] = OrderedDict()
        """The last one whose outcomes each other host had, too."""
        self._same_state: OrderedDict[str, Checkpoint] = OrderedDict()
        """The last one at which the states of both were digested, and were the same."""
        self._diverged: OrderedDict[str, Divergence] = OrderedDict()
        """The first difference from each other host."""
        self._unsaid: Checkpoint | None = None
        """Own, and said by nobody yet."""

    @property
    def last(self) -> Checkpoint | None:
        return self._checkpoints[-1] if self._checkpoints else None

    def add(self, parts: list[bytes]) -> None:
        """Outcomes of one record."""
        self.chain = blake2b(self.chain + b"".join(parts), digest_size=DIGEST_BYTES).digest()

    def is_due(self, before: int, after: int) -> bool:
        """Whether a checkpoint belongs between these counts of commands."""
        return before // self._every != after // self._every

    def is_state_due(self, commands: int) -> bool:
        return commands >= self._state_due

    @property
    def is_large(self) -> bool:
        """The state is not to be digested while commands wait."""
        return self._state_bytes > INLINE_BYTES_MAX

    def put(self, commands: int, position: int, state: bytes = b"", state_bytes: int = 0) -> None:
        self._unsaid = Checkpoint(commands, position, self.chain, state, state_bytes)
        self._checkpoints.append(self._unsaid)

    def schedule(self, commands: int, state_bytes: int | None = None) -> None:
        """The state was taken after so many commands, or is to be taken by those hosts that can do it
        aside."""
        if state_bytes is not None:
            self._state_bytes = min(state_bytes, STATE_BYTES_MAX)
        self._state_due = commands + max(1, self._state_bytes // STATE_BYTES_PER_COMMAND)

    def put_late(self, commands: int, state: bytes, state_bytes: int) -> None:
        """What was taken aside, of the state at an earlier checkpoint."""
        found = next((each for each in self._checkpoints if each.commands == commands), None)
        if found is None:
            return
        self._late[commands] = (state, state_bytes)
        if len(self._late) > CHECKPOINTS_MAX:
            self._late.popitem(last=False)
        self._unsaid = found

    def _with_late(self, checkpoint: Checkpoint) -> Checkpoint:
        late = self._late.get(checkpoint.commands)
        if late is None:
            return checkpoint
        return msgspec.structs.replace(checkpoint, state=late[0], state_bytes=late[1])

    def take(self, host: str) -> Digest | None:
        """What this host has to say, once. None if another one has said the same in the meantime."""
        if self._unsaid is None:
            return None
        self._unsaid = None
        return Digest(host, tuple([self._with_late(each) for each in list(self._checkpoints)[-SAID_MAX:]]))

    def compare(self, digest: Digest) -> Divergence | None:
        """What another host held: if it is not the same as here. A host is reported once."""
        mine = {each.commands: each for each in self._checkpoints}
        # First, and for all of them: it must not depend on what this host alone knows.
        for theirs in digest.checkpoints:
            here = mine.get(theirs.commands)
            if here is not None and not here.state and theirs.state_bytes > 0:
                self.schedule(here.commands, theirs.state_bytes)
        for theirs in digest.checkpoints:
            here = mine.get(theirs.commands)
            if here is None:
                continue
            what = _difference(self._with_late(here), theirs)
            if what:
                return self._diverge(digest.host, what, here)
            self._agree(digest.host, here, theirs)
        return None

    def _diverge(self, host: str, what: str, checkpoint: Checkpoint) -> Divergence | None:
        if host in self._diverged:
            return None
        agreed = (self._same_state if what == STATE else self._agreed).get(host)
        before = (-1, 0) if agreed is None else (agreed.position, agreed.commands)
        found = Divergence(host, what, *before, checkpoint.position, checkpoint.commands)
        _remember(self._diverged, host, found)
        return found

    def _agree(self, host: str, checkpoint: Checkpoint, theirs: Checkpoint) -> None:
        _remember(self._agreed, host, checkpoint)
        if self._with_late(checkpoint).state and theirs.state:
            _remember(self._same_state, host, checkpoint)
        if self._unsaid is checkpoint:
            self._unsaid = None

    def rows(self) -> DigestRows:
        return DigestRows(self.chain, self._state_due, self._state_bytes, tuple(self._checkpoints))


def _remember(rows: OrderedDict[str, V], host: str, value: V) -> None:
    rows[host] = value
    rows.move_to_end(host)
    if len(rows) > HOSTS_MAX:
        rows.popitem(last=False)


def _difference(mine: Checkpoint, other: Checkpoint) -> str:
    if mine.position != other.position or mine.outcomes != other.outcomes:
        return OUTCOMES
    if mine.state and other.state and mine.state != other.state:
        return STATE
    return ""
