"""Actions of a scenario on programs that have a replicated object. Part of the language of `script`."""

from __future__ import annotations

from dataclasses import dataclass

from totempole.sim.script_faults import Namer
from totempole.types import ProcessorId

HOST_VERBS = ("open", "crash", "stall", "wake", "snapshot", "move")


@dataclass(frozen=True, slots=True)
class OnHost:
    """`host p.a open`: a program beside processor p opens the object, as a new one or after its crash;
    `crash`; `stall`, `wake`: it hears nothing for a while; `snapshot`: it writes one to its node; `move`: it
    connects to the next processor"""

    verb: str
    processor: ProcessorId
    program: str

    def text(self, name: Namer) -> str:
        return f"host {name(self.processor)}.{self.program} {self.verb}"


@dataclass(frozen=True, slots=True)
class Work:
    """`work p.a count=10 [callers=1] [pause=5000]`: so many operations, shared by callers that wait for each
    answer, with pauses of this length in microseconds on the average.
    """

    processor: ProcessorId
    program: str
    count: int = 10
    callers: int = 1
    pause: int = 5_000

    def text(self, name: Namer) -> str:
        who = f"{name(self.processor)}.{self.program}"
        return f"work {who} count={self.count} callers={self.callers} pause={self.pause}"


ObjectAction = OnHost | Work
