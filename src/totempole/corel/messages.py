"""What replicas say to each other, as messages of the log's group.

Each names the log and, but for data, the round that it belongs to: a view, and how often its handler has
begun. What belongs to another round is ignored. Every message of COReL is here: regular messages carry their
acknowledgements along, and the attempt and commit messages are the phases of figure 3.6.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from totempole.corel.frames import Mark, Opening, Shown
from totempole.corel.quorum import Formation, ReplicaSet
from totempole.corel.run import Run, RunId, Stamp
from totempole.errors import CodecError
from totempole.types import ProcessorId

GROUP = "totem/log"
"""All replicas are its members."""


def inbox(processor: ProcessorId) -> str:
    """The group of one replica, for what only it needs."""
    return f"{GROUP}/{processor}"


class Round(NamedTuple):
    view: Stamp
    number: int


NO_ROUND = Round(Stamp(0, 0, 0, 0), 0)

UNKNOWN = 2**62
"""So many runs may be on the disk of one who does not say."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Data(_Message, frozen=True, tag=1):
    """A run of the sender's own, or (`again`) one that not all members of the view have, with the stamp that
    it had at first (step 7 of recovery). Acknowledges, too."""

    log: int
    run: Run
    again: bool
    round: Round
    acknowledged: int
    frames: int


class Acknowledge(_Message, frozen=True, tag=2):
    """So many runs that were delivered in this primary component are on the sender's disk, and so many frames
    in all. Also sent outside of the order, where it may be lost, late or repeated, and says the same."""

    log: int
    round: Round
    acknowledged: int
    frames: int


class State(_Message, frozen=True, tag=3):
    """Step 1 of recovery."""

    round: Round
    log: int
    disk: int
    frames: int
    attempted: int
    attempts: tuple[Formation, ...]
    committed: Formation
    green_runs: int
    recent_from: int
    """Green runs from this one on are at hand."""
    kept_from: int
    """Green runs from this one on are on the sender's disk."""
    yellow: tuple[RunId, ...]
    vector: tuple[RunId, ...]
    heard: tuple[Shown, ...]
    openings: tuple[Opening, ...]
    founding: ReplicaSet | None
    """While the sender knows of no primary component: the set that it was told to found the log with."""
    takes_hints: bool = False
    """Whether the sender hears acknowledgements past the order, and waits for all that these may have made
    green when it asks a read barrier. Replicas of before decision 0028 do not."""

    @property
    def life(self) -> int:
        return self.openings[-1].life if self.openings else 0

    @property
    def length(self) -> int:
        return self.green_runs + len(self.yellow)


class Priority(_Message, frozen=True, tag=4):
    """Step 5 of recovery, from the chosen representative. Large ones come in parts."""

    log: int
    round: Round
    order: tuple[RunId, ...]
    runs: tuple[Run, ...]
    """Those that not all have, in this order; and all records of primaries."""
    is_last: bool


class Attempt(_Message, frozen=True, tag=5):
    log: int
    round: Round
    number: int


class Commit(_Message, frozen=True, tag=6):
    log: int
    round: Round
    number: int


class CaughtUp(_Message, frozen=True, tag=7):
    """The sender has fetched what it lacked, or has a new disk: let the handler begin again."""

    log: int
    round: Round


class Fetch(_Message, frozen=True, tag=8):
    """Asks one replica for green runs from this place on."""

    log: int
    round: Round
    donor: int
    start: int
    bytes_max: int


class Fetched(_Message, frozen=True, tag=9):
    """To one replica, in its own group. With a mark: what was asked for is trimmed, and the log begins
    there."""

    log: int
    round: Round
    start: int
    runs: tuple[Run, ...]
    near: int
    """Who has so many green runs has caught up."""
    mark: Mark | None


class AskBarrier(_Message, frozen=True, tag=10):
    """Asks the voters whether they are still in this primary component. All count these questions as they are
    delivered (`barriers`)."""

    log: int
    round: Round


class AnswerBarriers(_Message, frozen=True, tag=11):
    """So many questions of this primary component were delivered to the sender, which is still in it, and has
    so many of the component's runs on its disk."""

    log: int
    round: Round
    answered: int
    durable: int = UNKNOWN


Message = (
    Data
    | Acknowledge
    | State
    | Priority
    | Attempt
    | Commit
    | CaughtUp
    | Fetch
    | Fetched
    | AskBarrier
    | AnswerBarriers
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode(content: bytes | memoryview) -> Message:
    """Raises CodecError if it is no message of the log."""
    try:
        decoded: Message = _decoder.decode(content)
        return decoded
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise CodecError("log message malformed") from None
