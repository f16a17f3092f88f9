"""Random networks, as Totem §5.4 builds them: edges between random nodes, none of which gets too many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

from totempole.errors import ConfigurationError

Edge = tuple[int, int]
Neighbours = Sequence[Sequence[int]]

ATTEMPTS_MAX = 1_000
"""So often a graph is begun anew before the sizes are held to be impossible."""


def random_graph(nodes: int, degree: int, random: Random, *, fill: bool = False) -> list[Edge]:
    """Edges are added at random until the graph is biconnected; with `fill`, as long as any fits.

    An edge that would be a loop, a double, or one too many for a node is not added. A graph that is full and
    still not biconnected is thrown away.
    """
    for _ in range(ATTEMPTS_MAX):
        found = _grow(nodes, degree, random, fill)
        if found is not None:
            return found
    raise ConfigurationError(
        f"--nodes {nodes} --degree {degree}: none of {ATTEMPTS_MAX} random graphs was biconnected: "
        "allow a higher degree"
    )


def _grow(nodes: int, degree: int, random: Random, fill: bool) -> list[Edge] | None:
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    room = list(range(nodes))
    edges = []
    while (edge := _free_pair(neighbours, room, degree, random)) is not None:
        edges.append(edge)
        for node, other in (edge, edge[::-1]):
            neighbours[node].append(other)
            if len(neighbours[node]) == degree:
                room.remove(node)
        if not fill and is_biconnected(neighbours):
            return edges
    return edges if is_biconnected(neighbours) else None


def _free_pair(neighbours: Neighbours, room: Sequence[int], degree: int, random: Random) -> Edge | None:
    """Two nodes with room for an edge and none between them, every such pair being as likely as another."""
    if len(room) <= degree:
        # So few nodes may all be neighbours. Of more there is always a pair that is not.
        free = [pair for pair in combinations(room, 2) if pair[1] not in neighbours[pair[0]]]
        return random.choice(free) if free else None
    while True:
        one, other = random.choice(room), random.choice(room)
        if one != other and other not in neighbours[one]:
            return one, other


def neighbours_of(nodes: int, edges: Sequence[Edge]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(nodes)]
    for one, other in edges:
        found[one].append(other)
        found[other].append(one)
    return found


def is_biconnected(neighbours: Neighbours) -> bool:
    """Whether the graph of three nodes or more is connected, and stays so without any one node.

    A walk in depth numbers the nodes. `low` is the lowest number that a node reaches by way of those below it
    and one edge more. A node whose branch reaches no lower than itself is the only way to that branch.
    """
    if any(len(each) < 2 for each in neighbours):
        return False
    number = [-1] * len(neighbours)
    low = [0] * len(neighbours)
    number[0], seen = 0, 1
    path = [(0, iter(neighbours[0]))]
    while True:
        node, others = path[-1]
        for other in others:
            if number[other] < 0:
                number[other] = low[other] = seen
                seen += 1
                path.append((other, iter(neighbours[other])))
                break
            low[node] = min(low[node], number[other])
        else:
            path.pop()
            above = path[-1][0]
            if len(path) == 1:
                return seen == len(neighbours)  # the first branch of the root must be the only one
            if low[node] >= number[above]:
                return False
            low[above] = min(low[above], low[node])
