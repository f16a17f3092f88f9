"""The kinds of search: of the ring alone, of process groups on it, of the durable order on these, of
replicated objects on that, and of rings on several networks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from totempole.sim.fuzz import coverage, group_coverage, log_coverage, network_coverage, object_coverage
from totempole.sim.fuzz.group_mutants import GROUP_MUTANTS
from totempole.sim.fuzz.group_plan import group_plan
from totempole.sim.fuzz.log_plan import log_plan
from totempole.sim.fuzz.mutants import MUTANTS, Mutant
from totempole.sim.fuzz.network_mutants import NETWORK_MUTANTS
from totempole.sim.fuzz.network_plan import Ways, named, network_plan
from totempole.sim.fuzz.object_mutants import OBJECT_MUTANTS
from totempole.sim.fuzz.object_plan import object_plan
from totempole.sim.fuzz.plan import plan
from totempole.sim.fuzz.profiles import ALL, Profile
from totempole.sim.script import Scenario


class Plan(Protocol):
    def __call__(self, seed: int, profile: Profile = ALL) -> Scenario: ...


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    plan: Plan
    expected: tuple[str, ...]
    """What a large search must have reached."""
    mutants: tuple[Mutant, ...]
    option: str = ""
    """What asks for it on the command line."""

    def missing(self, found: Counter[str]) -> list[str]:
        return [name for name in self.expected if not found[name]]

    def replay_command(self, seed: int, profile: Profile = ALL) -> str:
        return f"totem fuzz{self.option}{profile.option} --seed {seed}"


RING = Kind("ring", plan, coverage.EXPECTED, MUTANTS)
GROUPS = Kind("groups", group_plan, group_coverage.EXPECTED, GROUP_MUTANTS, " --groups")
LOGS = Kind("logs", log_plan, log_coverage.EXPECTED, (), " --logs")
OBJECTS = Kind("objects", object_plan, object_coverage.EXPECTED, OBJECT_MUTANTS, " --objects")


def network_kind(ways: Ways) -> Kind:
    """The search of rings on several networks, used in these ways."""
    expected = network_coverage.EXPECTED
    return Kind(ways.name, partial(network_plan, ways), expected, NETWORK_MUTANTS, ways.option)


NETWORKS, ONLY_NETWORKS = network_kind(Ways()), network_kind(Ways(only_networks=True))
KINDS = {kind.name: kind for kind in (RING, GROUPS, LOGS, OBJECTS, NETWORKS, ONLY_NETWORKS)}


def kind_named(name: str) -> Kind:
    """One of these, or one of certain ways to use networks."""
    ways = named(name)
    return KINDS[name] if ways is None else network_kind(ways)


def kind_of(mutant: Mutant | None) -> Kind:
    """The search that is to notice it."""
    if mutant is None or mutant.package == "srp":
        return RING
    if mutant.package in ("corel", "objects"):
        return OBJECTS
    return GROUPS if mutant.package == "groups" else NETWORKS
