"""What the node and its programs ask of the durable order. Misuse raises SessionError and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from totempole.core.inputs import Command
from totempole.corel.run import RunId
from totempole.corel.zones import Zones
from totempole.types import Fence


@dataclass(frozen=True, slots=True)
class OpenLog(Command):
    """The node has opened its log. `frames`: those since the last mark, that one included."""

    frames: tuple[bytes, ...]
    kept_from: int = 0
    """The first green run that is still there."""
    is_damaged: bool = False
    """Frames amid the log are lost: this disk must not count as what it was."""
    zones: Zones | None = field(default=None, compare=False, repr=False)
    """The state after these frames, if somebody has worked it out: replaying a segment takes longer than a
    ring waits for its token. It is the replica's from here on."""
    entropy: int = 0
    """62 random bits, drawn for this opening by who can: disks and lives are named with it. What a replica
    draws itself follows from its processor's number and incarnation, which a replaced disk repeats."""


@dataclass(frozen=True, slots=True)
class CloseLog(Command):
    """The log has failed, or is no longer wanted: the replica leaves; its node stays."""

    why: str


@dataclass(frozen=True, slots=True)
class AppendRecords(Command):
    """Records for a log, packed as `groups.pack` does. `Accepted`, `Durable` and `Placed` or `Fenced` follow,
    or `Lost`."""

    process: int
    request: int
    log: str
    batch: bytes
    keys: tuple[str, ...]
    time_us: int
    """The wall clock."""
    fence: Fence | None = None


@dataclass(frozen=True, slots=True)
class SetHold(Command):
    """Nothing from this position on is trimmed while the reader needs it; -1 gives it up."""

    process: int
    request: int
    reader: str
    position: int


@dataclass(frozen=True, slots=True)
class ChangeReplicas(Command):
    """Adds the processor to the replica set, with this weight; weight 0 removes it."""

    process: int
    request: int
    processor: int
    weight: int


@dataclass(frozen=True, slots=True)
class Forget(Command):
    """The process is gone: nobody waits for its answers."""

    process: int


@dataclass(frozen=True, slots=True)
class FindRun(Command):
    """Where a run is in the order: `Placed`, `Fenced` or `Unknown` follows."""

    process: int
    request: int
    run: RunId


@dataclass(frozen=True, slots=True)
class TellGreen(Command):
    """Whether runs that become green are told: `GreenLine` says from which place on, `GreenRuns` which. Most
    nodes have nobody who wants to know."""

    on: bool


@dataclass(frozen=True, slots=True)
class ReadBarrier(Command):
    """For a read that must see all that was green anywhere when it began. `BarrierPassed` follows when a
    primary component has said what that is; while there is none, it waits. `Forget` takes it back."""

    process: int
    request: int
