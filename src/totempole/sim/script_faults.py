"""Actions of a scenario that break what a processor relies on: its disk, its inputs, its addresses, its keys.

Part of the language of `script`, which has the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from totempole.sim.conditions import Range
from totempole.sim.settings_text import time_text, value_text
from totempole.types import ProcessorId

Namer = Callable[[ProcessorId], str]


def on_text(network: str) -> str:
    """What says that an action is about one network."""
    return f" on {network}" if network else ""


STRAY_VERBS = ("show", "misdirect", "reflect", "replay")
DISK_VERBS = ("wipe", "lose", "rollback", "slow", "stick", "mend")


@dataclass(frozen=True, slots=True)
class OnDisk:
    """`disk p wipe`, `disk p lose ring_seq timestamp`, `disk p rollback 3`: the next start finds it so;
    `disk p slow 50000..500000`, `disk p stick`: it answers late, or never; `disk p mend`"""

    verb: str
    processor: ProcessorId
    lost: tuple[str, ...] = ()
    records: int = 0
    latency_us: Range = (0, 0)

    def text(self, name: Namer) -> str:
        words = [f"disk {name(self.processor)} {self.verb}", *self.lost]
        if self.verb == "rollback":
            words.append(str(self.records))
        if self.verb == "slow":
            words.append(value_text(self.latency_us))
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class CrashWithin:
    """`crash-within p after=3`: at p's next input with more effects than three, when three are executed"""

    processor: ProcessorId
    after: int = 1

    def text(self, name: Namer) -> str:
        return f"crash-within {name(self.processor)} after={self.after}"


@dataclass(frozen=True, slots=True)
class Stray:
    """`show token [from p] to r [count=1]`: r gets it as well; `misdirect`: r gets it and nobody else;
    `reflect join [from p]`: its sender gets it back; `replay message [from p] [to r] after=500ms`: it comes
    again then; `on a`: it comes on that network, wherever it went first"""

    verb: str
    kind: str
    source: ProcessorId | None = None
    to: ProcessorId | None = None
    count: int = 1
    after_us: int = 0
    network: str = ""

    def text(self, name: Namer) -> str:
        words = [f"{self.verb} {self.kind}"]
        if self.source is not None:
            words.append(f"from {name(self.source)}")
        if self.to is not None:
            words.append(f"to {name(self.to)}")
        words.append(f"count={self.count}")
        if self.verb == "replay":
            words.append(f"after={time_text(self.after_us)}")
        return " ".join(words) + on_text(self.network)


@dataclass(frozen=True, slots=True)
class LimitSegments:
    """`segments p 600 [on a]`: p's network has refused larger datagrams"""

    processor: ProcessorId
    segment_bytes: int
    network: str = ""

    def text(self, name: Namer) -> str:
        return f"segments {name(self.processor)} {self.segment_bytes}{on_text(self.network)}"


@dataclass(frozen=True, slots=True)
class SetKeys:
    """`keys p 2 1`: p seals with key 2 from now on, and accepts key 1 as well (needs the line `sealed`)"""

    processor: ProcessorId
    keys: tuple[int, ...]

    def text(self, name: Namer) -> str:
        return f"keys {name(self.processor)} {' '.join(map(str, self.keys))}"


HarmOfOne = OnDisk | CrashWithin | Stray | LimitSegments | SetKeys
