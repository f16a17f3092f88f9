"""What the durable order tells its node and programs."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from totempole.corel.run import RunId
from totempole.corel.zones import Ordered


class Accepted(NamedTuple):
    """The request has become this run, whose receipt it is. It is on no disk yet."""

    process: int
    request: int
    run: RunId


class Durable(NamedTuple):
    """The run is on this replica's disk: it will be ordered, unless that disk is lost before others have
    the run."""

    process: int
    request: int
    run: RunId


class Placed(NamedTuple):
    """The run is green: it has its place forever."""

    process: int
    request: int
    run: RunId
    position: int
    count: int  # type: ignore[assignment]
    """Records that have taken a position, from that one on."""
    repeats: tuple[tuple[int, int], ...]
    """Records whose key was there before: (index, position of the first)."""


class Fenced(NamedTuple):
    """The run is green, and its fence has kept its records out: none of them takes a position."""

    process: int
    request: int
    run: RunId
    mark: int
    """That was in force."""
    position: int
    """Of the first record of the run that had set it; -1: none had."""


class Lost(NamedTuple):
    """Nobody here will know what becomes of the run."""

    process: int
    request: int
    run: RunId
    why: str


class Unknown(NamedTuple):
    """Answers `FindRun`: this replica does not know the run, or it is not green yet."""

    process: int
    request: int
    run: RunId
    is_held: bool


class GreenLine(NamedTuple):
    """From here on green runs are told (`TellGreen`): the log was opened, or the replica was far behind and
    has begun anew at a later place."""

    log: int
    """The log's own name; 0: it is not founded yet."""
    place: int
    """So many runs are green."""
    position: int
    """Of the next record."""


class GreenRuns(NamedTuple):
    """They have become green, and follow those that were told before. It comes before their `Placed`."""

    runs: tuple[Ordered, ...]


class GreenEnded(NamedTuple):
    """The log is closed: no green runs are told until it is open again."""

    why: str


class BarrierPassed(NamedTuple):
    """Every run that was green at any replica when the barrier was asked for has a place before this one, and
    is green here: a program that has taken all of them reads nothing stale."""

    process: int
    request: int
    place: int
    """So many runs are green here, those of the log itself included."""


GreenNews = GreenLine | GreenRuns | GreenEnded
"""What is told of the green prefix (`TellGreen`)."""

LogAnswer = Accepted | Durable | Placed | Fenced | Lost | Unknown | BarrierPassed
"""What one process is told."""


class Standing(StrEnum):
    """What a replica can do."""

    CLOSED = "closed"
    """It has no log open."""
    FORMING = "forming"
    """The members of its view agree on what they have."""
    PRIMARY = "primary"
    MINORITY = "minority"
    BEHIND = "behind"
    """It fetches what the others have ordered."""


class StandingChanged(NamedTuple):
    standing: Standing
    primary: int
    """The number of the primary component, or of the last one that it knows."""
    members: tuple[int, ...]
    why: str


class LogAlarm(NamedTuple):
    """For people: a disk that was rolled back or emptied, another cluster's log, a replica too slow."""

    kind: str
    processor: int
    text: str
