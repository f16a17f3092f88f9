"""What a campaign searches: seeds, each as every kind of run and with every fault profile asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from totempole.sim.fuzz.kinds import KINDS, RING
from totempole.sim.fuzz.profiles import ALL, PROFILES
from totempole.sim.fuzz.search import try_profiled_seed
from totempole.sim.fuzz.trial import Verdict

LIMIT_S = 120.0
"""How long one run may take. On a free core it takes one or two seconds."""
CHUNK_MAX = 8
"""Cases of one task: some seconds, which is what a lost worker costs; Spark's own part in a task is 30 ms."""
CHUNKS_PER_CORE = 4
"""Tasks of one wave. Waves are kept as they end; those under way are lost when the campaign is stopped."""
SHARES_PER_CORE = 8
"""Towards the end chunks are smaller, so that every core still has some and all end together."""


class Case(NamedTuple):
    kind: str
    profile: str
    seed: int

    @property
    def replay_command(self) -> str:
        return KINDS[self.kind].replay_command(self.seed, PROFILES[self.profile])


Chunk = tuple[Case, ...]
Wave = tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class Campaign:
    seeds: range
    kinds: tuple[str, ...] = (RING.name,)
    profiles: tuple[str, ...] = (ALL.name,)
    limit_s: float = LIMIT_S

    def __len__(self) -> int:
        return len(self.seeds) * len(self.kinds) * len(self.profiles)

    def cases(self) -> Iterator[Case]:
        for seed in self.seeds:
            for kind in self.kinds:
                for profile in self.profiles:
                    yield Case(kind, profile, seed)


def try_case(case: Case) -> Verdict:
    """The real stack, run and judged, just as `totem fuzz` does."""
    return try_profiled_seed(case.kind, case.profile, case.seed)[1]


def waves(cases: Sequence[Case], cores: Callable[[], int]) -> Iterator[Wave]:
    """`cores` is asked before each wave: a cluster's executors come one after the other, and go."""
    first = 0
    while first < len(cases):
        now = cores()
        chunk = chunk_size(len(cases) - first, now)
        stop = min(len(cases), first + now * CHUNKS_PER_CORE * chunk)
        yield tuple(tuple(cases[at : min(at + chunk, stop)]) for at in range(first, stop, chunk))
        first = stop


def chunk_size(cases: int, cores: int) -> int:
    return max(1, min(CHUNK_MAX, cases // (cores * SHARES_PER_CORE)))


def size_of(wave: Wave) -> int:
    return sum(map(len, wave))
