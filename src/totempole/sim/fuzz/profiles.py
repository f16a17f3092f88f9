"""Fault profiles: a seed's scenario with only some kinds of harm in it, as many as there are else of all.

Where everything goes wrong at once, no one kind of harm goes on for long. A profile names the harms that a
plan may do: it draws only injectors that do one of them, and of what these do it leaves out the rest.
Repairs, traffic and what programs do of themselves are always in. The profile `all` leaves a plan as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from totempole.sim.conditions import Condition
from totempole.sim.script import Action, DropNext, OnLink, OnProcessor, Partition, SetCondition, Slow, When
from totempole.sim.script_faults import CrashWithin, OnDisk, Stray

HARMS = (
    "partition",
    "cut",
    "sever",
    "crash",
    "leave",
    "pause",
    "slow",
    "condition",
    "drop",
    "astray",
    "disk",
)
RARE = ("move", "double")
"""Done in a few seeds, beside all else that these do."""
FORBIDDEN = ("rollback",)
"""Harm beyond what the protocol can bear, which only its own profile does."""

DONE_BY: dict[str, frozenset[str]] = {
    injector: frozenset(harms)
    for injector, harms in {
        "partition": ("partition",),
        "part_and_meet": ("partition",),
        "heal": ("partition",),
        "crash": ("crash",),
        "stillborn": ("crash",),
        "leave": ("leave",),
        "pause": ("pause",),
        "slow": ("slow",),
        "cut": ("cut",),
        "noise": ("condition",),
        "deafen": ("condition",),
        "sluggish": ("condition",),
        "pick_off": ("drop",),
        "lose_the_token": ("drop",),
        "ambush": ("partition", "crash", "leave", "drop"),
        "gap": ("condition", "crash", "partition"),
        "lose_disk": ("disk",),
        "trouble_disk": ("disk",),
        "crash_within": ("crash",),
        "lead_astray": ("astray",),
        "ambush_again": ("partition", "crash", "drop"),
        "roll_back_disk": ("rollback",),
    }.items()
}
"""What each injector of a plan (`plan.FAULTS`, `plan.CASCADES`) may do."""


class Named(Protocol):
    """A function, as `def` makes it."""

    @property
    def __name__(self) -> str: ...


Injector = TypeVar("Injector", bound=Named)


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    summary: str
    harms: frozenset[str]

    @property
    def whole(self) -> bool:
        """Whether nothing is left out, so that a large search must reach everything."""
        return self.harms.issuperset(HARMS)

    @property
    def option(self) -> str:
        """What asks for it on the command line."""
        return "" if self.whole else f" --profile {self.name}"

    def drawn(self, injectors: Sequence[Injector]) -> Sequence[Injector]:
        return [each for each in injectors if self.harms & DONE_BY[each.__name__]]

    def permits(self, action: Action, clean: Condition) -> bool:
        harm = harm_of(action, clean)
        return harm is None or harm in self.harms


def harm_of(action: Action, clean: Condition) -> str | None:
    """None for repairs and for all that is no fault. `clean` is the network's condition before any harm."""
    match action:
        case When(action=then):
            return harm_of(then, clean)
        case Partition():
            return "partition"
        case DropNext():
            return "drop"
        case Stray():
            return "astray"
        case OnLink(verb="cut" | "sever" as verb):
            return verb
        case OnDisk(verb="rollback"):
            return "rollback"
        case OnDisk(verb=verb):
            return None if verb == "mend" else "disk"
        case CrashWithin():
            return "crash"
        case OnProcessor(verb="retire"):
            return "leave"
        case OnProcessor(verb="crash" | "leave" | "pause" | "move" | "double" as verb):
            return verb
        case Slow(factor=factor) if factor > 1.0:
            return "slow"
        case SetCondition(condition=condition) if condition != clean:
            return "condition"
    return None


ALL = Profile("all", "everything that can go wrong", frozenset((*HARMS, *RARE)))

PROFILES = {
    profile.name: profile
    for profile in (
        ALL,
        Profile("calm", "nothing goes wrong", frozenset()),
        Profile(
            "lossy", "loss, duplication, reordering, delay; chosen packets", frozenset({"condition", "drop"})
        ),
        Profile("partitions", "partitions, merging, one-way cuts", frozenset({"partition", "cut"})),
        Profile("crashes", "crashes, restarts, graceful leaves", frozenset({"crash", "leave"})),
        Profile("stalls", "processors that stop for a while, or are slow", frozenset({"pause", "slow"})),
        Profile("disks", "disks lost in whole or in part, slow, stuck", frozenset({"disk", "crash"})),
        Profile("astray", "packets at wrong addresses, sent back, recorded", frozenset({"astray", "crash"})),
        Profile("rollback", "old copies of disks, which docs forbid", frozenset({"rollback", "crash"})),
        Profile(
            "doubles",
            "nodes at new addresses, and two with one number",
            frozenset({"move", "double", "pause", "crash"}),
        ),
        Profile("severed", "links that stay dead one way", frozenset({"sever", "partition"})),
    )
}
