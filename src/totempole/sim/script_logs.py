"""Actions of a scenario on the durable order: records for it, and what befalls its disks and replicas.

Part of the language of `script`, which has the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from totempole.sim.conditions import Range
from totempole.sim.script_faults import Namer
from totempole.sim.settings_text import value_text
from totempole.types import Fence, ProcessorId

LOG_VERBS = ("empty", "rollback", "damage", "fill", "slow", "stick", "mend")


@dataclass(frozen=True, slots=True)
class Append:
    """`append p orders [units=1] [count=1] [size=100] [key=k] [fence=f:0..4:5]`: a program of p appends
    records to a log, in so many requests. With a key, each request has it: the records of all but the first
    are repeats. With a fence, too: a mark from 0 to 4 lets the first in, and becomes 5."""

    processor: ProcessorId
    log: str
    units: int = 1
    count: int = 1
    size: int = 100
    key: str = ""
    fence: Fence | None = None

    def text(self, name: Namer) -> str:
        words = [f"append {name(self.processor)} {self.log} units={self.units} count={self.count}"]
        words.append(f"size={self.size}")
        if self.key:
            words.append(f"key={self.key}")
        if self.fence is not None:
            called, number, low, high = self.fence
            words.append(f"fence={called}:{low}..{high}:{number}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Read:
    """`read p [3]`: so many programs of p ask for a barrier, to read behind it"""

    processor: ProcessorId
    units: int = 1

    def text(self, name: Namer) -> str:
        return f"read {name(self.processor)} {self.units}"


@dataclass(frozen=True, slots=True)
class OnLog:
    """`log-disk p empty`, `log-disk p rollback 3`, `log-disk p damage`: the next start finds it so; `fill`:
    the next append fails, and the replica closes its log; `slow 50000..500000`, `stick`: it answers late, or
    never; `mend`"""

    verb: str
    processor: ProcessorId
    frames: int = 0
    latency_us: Range = (0, 0)

    def text(self, name: Namer) -> str:
        words = [f"log-disk {name(self.processor)} {self.verb}"]
        if self.verb == "rollback":
            words.append(str(self.frames))
        if self.verb == "slow":
            words.append(value_text(self.latency_us))
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class SetReplica:
    """`replica p add q [weight]`, `replica p remove q`: somebody asks p to change the replica set"""

    processor: ProcessorId
    other: ProcessorId
    weight: int
    """0: remove."""

    def text(self, name: Namer) -> str:
        if not self.weight:
            return f"replica {name(self.processor)} remove {name(self.other)}"
        return f"replica {name(self.processor)} add {name(self.other)} {self.weight}"


LogAction = Append | Read | OnLog | SetReplica
