"""Edges deleted one by one, until the network falls apart: what Totem §5.4 measures on the way.

The deletions are run backwards. Into an empty graph the edges come back, last deleted first, and all
distances are kept up to date: a new edge (u, v) can only shorten a way from x to y into x … u v … y or
x … v u … y. That is a few operations on a matrix for each edge, for many graphs at once, where following the
deletions would mean to search every spanning tree anew after each. The edge that makes the graph whole is the
one whose deletion parts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from totempole.spark.topology.graphs import Edge

FAR = 10_000
"""The distance between nodes that no way joins. Two of them and an edge fit 16 bits."""
NODES_MAX = FAR - 1


@dataclass(frozen=True, slots=True)
class Decay:
    """A graph that loses its edges."""

    heights: tuple[int, ...]
    """After so many deletions, as long as the graph is connected: the sum of its spanning trees' heights, one
    tree of least depth for each node as its root."""
    smaller: int
    """Nodes in the smaller of the two components that the graph first falls into."""

    @property
    def survived(self) -> int:
        """Deletions after which it was still connected."""
        return len(self.heights) - 1


def decay(nodes: int, orders: Sequence[Sequence[Edge]]) -> list[Decay]:
    """What becomes of connected graphs, each given as its edges in the order of their deletion."""
    steps = max(map(len, orders))
    ends = np.array([_backwards(order, steps) for order in orders])
    graphs = np.arange(len(orders))
    distance = np.full((len(orders), nodes, nodes), FAR, np.int16)
    distance[:, np.arange(nodes), np.arange(nodes)] = 0
    heights = np.zeros((steps, len(orders)), np.int64)
    smaller = np.zeros_like(heights)
    connected = np.zeros(heights.shape, np.bool_)
    for step in range(steps):
        from_one, from_other = (distance[graphs, ends[:, step, end]] for end in (0, 1))
        smaller[step] = np.minimum((from_one < FAR).sum(1), (from_other < FAR).sum(1))
        _shorten(distance, from_one, from_other)
        _shorten(distance, from_other, from_one)
        farthest = distance.max(1)
        connected[step] = farthest[:, 0] < FAR
        heights[step] = farthest.sum(1)
    whole = connected.argmax(0)
    return [
        Decay(
            tuple(heights[whole[graph] : len(order), graph][::-1].tolist()), int(smaller[whole[graph], graph])
        )
        for graph, order in enumerate(orders)
    ]


def _backwards(order: Sequence[Edge], steps: int) -> list[Edge]:
    """Graphs with fewer edges than others get one again, which changes nothing."""
    return [*reversed(order), *[order[0]] * (steps - len(order))]


def _shorten(
    distance: npt.NDArray[np.int16], here: npt.NDArray[np.int16], there: npt.NDArray[np.int16]
) -> None:
    """By ways that take the new edge from here to there."""
    by_edge = (here + np.int16(1))[:, :, None] + there[:, None, :]
    np.minimum(distance, by_edge, out=distance)
