"""Robust networks, as Totem §5.4 designs them: nodes numbered in a ring, joined by a pattern of hops.

The paper's example, figure 5.20, has sixteen nodes, the even ones joined at hops of one and six, the odd ones
at one and four. It does not state its pattern for 50 nodes. So the pattern is searched here: the lowest
spanning trees first, then the fewest short cycles, as the nodes of a short cycle have few edges that lead out
of it. Of sixteen nodes, that finds the paper's own pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from totempole.errors import ConfigurationError
from totempole.spark.topology.graphs import Edge, Neighbours, neighbours_of

CYCLES = range(3, 7)
"""Lengths of the cycles that count as short."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """How far each even and each odd node's edges reach forward; backward they reach by symmetry."""

    nodes: int
    even: tuple[int, ...] = (1,)
    odd: tuple[int, ...] = (1,)

    def edges(self) -> list[Edge]:
        found = set()
        for node in range(self.nodes):
            for hop in self.odd if node % 2 else self.even:
                other = (node + hop) % self.nodes
                found.add((min(node, other), max(node, other)))
        return sorted(found)

    def __str__(self) -> str:
        even, odd = (", ".join(map(str, hops)) for hops in (self.even, self.odd))
        return f"even nodes at hops of {even}; odd nodes at hops of {odd}"


@lru_cache(16)
def robust_pattern(nodes: int, degree: int) -> Pattern:
    """The best pattern that gives every node just that degree."""
    if nodes % 2 or nodes <= 2 * degree:
        raise ConfigurationError(
            f"--nodes {nodes}: the robust pattern tells even nodes from odd ones: give an even number above "
            f"{2 * degree}"
        )
    pattern = Pattern(nodes)
    for _ in range(degree // 2 - 1):
        pattern = _best(_with_hops(pattern))
    return _best(_with_chord(pattern)) if degree % 2 else pattern


def _with_hops(pattern: Pattern) -> Iterator[Pattern]:
    """Each with a hop more for even nodes and one for odd nodes: two edges more at every node."""
    hops = range(2, (pattern.nodes + 1) // 2, 2)
    for even, odd in product(hops, hops):
        if even not in pattern.even and odd not in pattern.odd:
            yield Pattern(pattern.nodes, (*pattern.even, even), (*pattern.odd, odd))


def _with_chord(pattern: Pattern) -> Iterator[Pattern]:
    """Each with an edge from every even node to an odd one: one edge more at every node."""
    for hop in range(3, pattern.nodes - 2, 2):
        yield Pattern(pattern.nodes, (*pattern.even, hop), pattern.odd)


def _best(patterns: Iterable[Pattern]) -> Pattern:
    """An even node speaks for all even ones, and an odd one for all odd ones."""
    graphs = {pattern: neighbours_of(pattern.nodes, pattern.edges()) for pattern in patterns}
    heights = {pattern: tree_height(graph, 0) + tree_height(graph, 1) for pattern, graph in graphs.items()}
    lowest = [pattern for pattern, height in heights.items() if height == min(heights.values())]
    return min(lowest, key=lambda pattern: _short_cycles(graphs[pattern]))


def tree_height(neighbours: Neighbours, root: int) -> int:
    """Of the spanning tree of least depth: the way to the most distant node (Totem §5.4)."""
    reached, front, height = {root}, {root}, 0
    while front := {other for node in front for other in neighbours[node]} - reached:
        reached |= front
        height += 1
    return height


def _short_cycles(neighbours: Neighbours) -> list[int]:
    return [sum(_cycles(neighbours, node, length) for node in (0, 1)) for length in CYCLES]


def _cycles(neighbours: Neighbours, start: int, length: int) -> int:
    """How many cycles of that length pass through a node, each counted in both directions."""

    def close(path: tuple[int, ...]) -> int:
        if len(path) == length:
            return int(start in neighbours[path[-1]])
        return sum(close((*path, other)) for other in neighbours[path[-1]] if other not in path)

    return close((start,))
