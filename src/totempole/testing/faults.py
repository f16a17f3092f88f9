"""Faults as data: drawn at random for a storm, performed, left out one by one, printed as code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from totempole.testing.clusters import Cluster

PAUSE_S = 0.4
"""Between two faults of a storm, on average."""


@dataclass(frozen=True, slots=True)
class _Verb:
    strike: Callable[..., None]
    mend: Callable[..., None]
    arguments: Callable[[Random, int, Sequence[int]], tuple[Any, ...]]
    """Drawn for a node, of all nodes."""
    lasts_s: tuple[float, float]
    takes_down: bool = False


def _sides(random: Random, _node: int, nodes: Sequence[int]) -> tuple[list[int], ...]:
    shuffled = random.sample(nodes, len(nodes))
    cut = random.randint(1, len(nodes) - 1)
    return tuple(sorted([sorted(shuffled[:cut]), sorted(shuffled[cut:])]))


def _of_node(_random: Random, node: int, _nodes: Sequence[int]) -> tuple[int]:
    return (node,)


def _loss(random: Random, _node: int, _nodes: Sequence[int]) -> tuple[float]:
    return (random.choice((0.01, 0.05, 0.2)),)


def _slow(random: Random, node: int, _nodes: Sequence[int]) -> tuple[int, float]:
    return node, random.choice((3.0, 10.0, 50.0))


VERBS: dict[str, _Verb] = {
    "part": _Verb(lambda c, *sides: c.part(*sides), lambda c, *_: c.heal(), _sides, (0.1, 2.0)),
    "crash": _Verb(lambda c, n: c.crash(n), lambda c, n: c.restart(n), _of_node, (0.05, 1.5), True),
    "crash_daemon": _Verb(
        lambda c, n: c.crash_daemon(n), lambda c, n: c.restart(n), _of_node, (0.05, 1.0), True
    ),
    "pause": _Verb(lambda c, n: c.pause(n), lambda c, n: c.resume(n), _of_node, (0.02, 0.8), True),
    "loss": _Verb(lambda c, p: c.loss(p), lambda c, _: c.loss(0.0), _loss, (0.1, 1.0)),
    "slow": _Verb(lambda c, n, f: c.slow(n, f), lambda c, n, _: c.slow(n, 1.0), _slow, (0.1, 1.0)),
}


@dataclass(frozen=True, slots=True, init=False)
class Fault:
    """`Fault(0.3, "part", [1], [2, 3], lasts=1.5)`: from 0.3 s on, for 1.5 s. The verbs are `Cluster`'s."""

    at: float
    verb: str
    arguments: tuple[Any, ...]
    lasts: float

    def __init__(self, at: float, verb: str, *arguments: Any, lasts: float) -> None:
        if verb not in VERBS:
            raise ValueError(f"{verb!r}: give one of {', '.join(VERBS)}")
        for name, value in (("at", at), ("verb", verb), ("arguments", arguments), ("lasts", lasts)):
            object.__setattr__(self, name, value)

    def strike(self, cluster: Cluster) -> None:
        VERBS[self.verb].strike(cluster, *self.arguments)

    def mend(self, cluster: Cluster) -> None:
        VERBS[self.verb].mend(cluster, *self.arguments)

    def __repr__(self) -> str:
        words = [f"{self.at:g}", repr(self.verb), *map(repr, self.arguments), f"lasts={self.lasts:g}"]
        return f"Fault({', '.join(words)})"


def draw(
    random: Random, nodes: Sequence[int], seconds: float, down_max: int, verbs: Sequence[str] = tuple(VERBS)
) -> list[Fault]:
    """Faults that begin and end within so many seconds. No two that would mend each other overlap."""
    faults: list[Fault] = []
    at = 0.0
    while True:
        at += random.expovariate(1 / PAUSE_S)
        name = random.choice(verbs)
        verb = VERBS[name]
        node = random.choice(nodes)
        lasts = random.uniform(*verb.lasts_s)
        arguments = verb.arguments(random, node, nodes) if len(nodes) > 1 or name != "part" else ()
        if at >= seconds:
            return faults
        fault = Fault(round(at, 3), name, *arguments, lasts=round(min(lasts, seconds - at), 3))
        if arguments and _fits(fault, faults, down_max):
            faults.append(fault)


def _fits(fault: Fault, others: Sequence[Fault], down_max: int) -> bool:
    there = [other for other in others if other.at + other.lasts >= fault.at]
    down = [other for other in there if VERBS[other.verb].takes_down]
    if VERBS[fault.verb].takes_down and len(down) >= down_max:
        return False
    return all(_subject(other) != _subject(fault) for other in there)


def _subject(fault: Fault) -> int | str:
    """What has at most one fault at a time: a node, or something of the network."""
    first = fault.arguments[0]
    return first if isinstance(first, int) else fault.verb


def code(faults: Sequence[Fault]) -> str:
    """As one would write it."""
    lines = [f"    {fault!r}," for fault in faults]
    return "\n".join(["await c.play(", *lines, ")"])


Storms = list[list[Fault]]


def shrink(faults: Storms, fails: Callable[[Storms], bool], runs_max: int) -> Storms:
    """A smaller set of faults that fails, too: halves, quarters, … and single ones are left out for as long
    as that helps. `faults`: of each storm."""
    runs = 0
    size = max(1, sum(map(len, faults)) // 2)
    while True:
        is_smaller = False
        start = 0
        while start < sum(map(len, faults)) and runs < runs_max:
            fewer = _without(faults, start, size)
            runs += 1
            if fails(fewer):
                faults, is_smaller = fewer, True
            else:
                start += size
        if runs >= runs_max or (size == 1 and not is_smaller):
            return faults
        size = max(1, size // 2)


def _without(faults: Storms, start: int, size: int) -> Storms:
    numbers = iter(range(sum(map(len, faults))))
    return [[fault for fault in storm if not start <= next(numbers) < start + size] for storm in faults]
