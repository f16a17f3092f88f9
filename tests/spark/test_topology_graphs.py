"""Totem §5.4: how graphs are drawn and designed, and what is measured as they lose their edges."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from totempole.errors import ConfigurationError
from totempole.spark.topology.deletion import Decay, decay
from totempole.spark.topology.graphs import Edge, is_biconnected, neighbours_of, random_graph
from totempole.spark.topology.patterns import Pattern, robust_pattern, tree_height

SEEDS = st.integers(0, 10_000)


def reached(nodes: set[int], edges: list[Edge]) -> set[int]:
    """From the lowest node, by the plainest search there is."""
    found = {min(nodes)}
    while more := {b for e in edges for a, b in (e, e[::-1]) if a in found and b in nodes} - found:
        found |= more
    return found


def connected(nodes: set[int], edges: list[Edge]) -> bool:
    return reached(nodes, edges) == nodes


def distances(nodes: int, edges: list[Edge]) -> list[list[int]]:
    """Floyd and Warshall's."""
    far = [[0 if a == b else nodes for b in range(nodes)] for a in range(nodes)]
    for a, b in edges:
        far[a][b] = far[b][a] = 1
    for middle in range(nodes):
        for a in range(nodes):
            for b in range(nodes):
                far[a][b] = min(far[a][b], far[a][middle] + far[middle][b])
    return far


def degrees(nodes: int, edges: list[Edge]) -> list[int]:
    return [len(each) for each in neighbours_of(nodes, edges)]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    nodes = draw(st.integers(3, 8))
    pairs = list(combinations(range(nodes), 2))
    return nodes, draw(st.lists(st.sampled_from(pairs), unique=True))


# Biconnected


@given(graphs())
def test_biconnected_is_connected_without_any_one_node(graph: tuple[int, list[Edge]]) -> None:
    nodes, edges = graph
    everyone = set(range(nodes))
    told = connected(everyone, edges) and all(connected(everyone - {one}, edges) for one in everyone)
    assert is_biconnected(neighbours_of(nodes, edges)) == told


@pytest.mark.parametrize(
    ("edges", "told"),
    [
        ([(0, 1), (1, 2), (2, 0)], True),
        ([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)], False),  # two triangles that share a node
        ([(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (3, 4)], False),  # the same, shared by the first node
        ([(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], False),  # two that share nothing
    ],
)
def test_graphs_by_hand(edges: list[Edge], told: bool) -> None:
    nodes = 1 + max(map(max, edges))
    assert is_biconnected(neighbours_of(nodes, edges)) is told


# Random graphs


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(3, 5), st.booleans())
def test_a_random_graph_is_as_the_paper_says(seed: int, degree: int, fill: bool) -> None:
    """§5.4: at least biconnected, no node above the degree, no self-loop, no parallel edge."""
    edges = random_graph(50, degree, Random(seed), fill=fill)
    assert max(degrees(50, edges)) <= degree
    assert all(a != b for a, b in edges)
    assert len({frozenset(edge) for edge in edges}) == len(edges)
    assert is_biconnected(neighbours_of(50, edges))


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_edges_stop_when_the_graph_is_biconnected(seed: int) -> None:
    edges = random_graph(50, 4, Random(seed))
    assert not is_biconnected(neighbours_of(50, edges[:-1]))


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_into_a_filled_graph_no_edge_fits(seed: int) -> None:
    edges = random_graph(50, 4, Random(seed), fill=True)
    room = [node for node, count in enumerate(degrees(50, edges)) if count < 4]
    there = {frozenset(edge) for edge in edges}
    assert all(frozenset(pair) in there for pair in combinations(room, 2))


def test_every_pair_is_as_likely() -> None:
    """The first edge of many graphs: two hundred for each of the ten pairs, give or take."""
    counts = dict.fromkeys(combinations(range(5), 2), 0)
    for seed in range(2_000):
        a, b = random_graph(5, 3, Random(seed))[0]
        counts[min(a, b), max(a, b)] += 1
    assert all(abs(count - 200) < 70 for count in counts.values())


def test_a_graph_comes_from_its_seed_alone() -> None:
    assert random_graph(50, 4, Random("0/random/7")) == random_graph(50, 4, Random("0/random/7"))
    assert random_graph(50, 4, Random("0/random/7")) != random_graph(50, 4, Random("0/random/8"))


def test_sizes_that_give_no_biconnected_graph() -> None:
    with pytest.raises(ConfigurationError, match=r"--nodes 20 --degree 1: none .* allow a higher degree"):
        random_graph(20, 1, Random(0))


# Robust graphs


def test_the_search_finds_the_papers_own_pattern() -> None:
    """Figure 5.20: of sixteen nodes, some connected at hops of one and six, the others of one and four."""
    pattern = robust_pattern(16, 4)
    assert {pattern.even, pattern.odd} == {(1, 6), (1, 4)}


def test_figure_5_20() -> None:
    edges = Pattern(16, even=(1, 6), odd=(1, 4)).edges()
    assert len(edges) == 32
    neighbours = neighbours_of(16, edges)
    assert sorted(neighbours[0]) == [1, 6, 10, 15]
    assert sorted(neighbours[1]) == [0, 2, 5, 13]


@pytest.mark.parametrize(("nodes", "degree"), [(50, 4), (50, 3), (20, 5), (20, 2), (30, 6)])
def test_a_robust_graph_gives_every_node_its_degree(nodes: int, degree: int) -> None:
    edges = robust_pattern(nodes, degree).edges()
    assert set(degrees(nodes, edges)) == {degree}
    assert is_biconnected(neighbours_of(nodes, edges))


def test_the_robust_graph_of_fifty_nodes() -> None:
    """No triangle, square or pentagon, and nobody farther than four hops from anybody."""
    pattern = robust_pattern(50, 4)
    assert str(pattern) == "even nodes at hops of 1, 8; odd nodes at hops of 1, 12"
    far = distances(50, pattern.edges())
    assert {max(row) for row in far} == {4}


@pytest.mark.parametrize("nodes", [51, 8])
def test_sizes_that_have_no_pattern(nodes: int) -> None:
    with pytest.raises(ConfigurationError, match=f"--nodes {nodes}: .* give an even number above 8"):
        robust_pattern(nodes, 4)


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_a_tree_is_as_high_as_the_way_to_the_farthest_node(seed: int) -> None:
    edges = random_graph(16, 4, Random(seed))
    neighbours, far = neighbours_of(16, edges), distances(16, edges)
    assert [tree_height(neighbours, root) for root in range(16)] == [max(row) for row in far]


# Deletion


def decay_step_by_step(nodes: int, order: list[Edge]) -> Decay:
    """As the paper tells it: an edge is deleted, and everything is looked at again."""
    everyone, heights, left = set(range(nodes)), [], list(order)
    while connected(everyone, left):
        heights.append(sum(max(row) for row in distances(nodes, left)))
        left.pop(0)
    first = len(reached(everyone, left))
    return Decay(tuple(heights), min(first, nodes - first))


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(5, 14))
def test_backwards_and_step_by_step_agree(seed: int, nodes: int) -> None:
    random = Random(seed)
    orders = [random_graph(nodes, 4, random, fill=fill) for fill in (False, True, False)]
    for order in orders:
        random.shuffle(order)
    assert decay(nodes, orders) == [decay_step_by_step(nodes, order) for order in orders]


def test_a_ring_survives_one_deletion() -> None:
    """Six nodes in a ring: every tree has height three. One deletion makes it a line: 5 4 3 3 4 5."""
    ring = [(0, 1), (3, 4), (1, 2), (2, 3), (4, 5), (5, 0)]
    (found,) = decay(6, [ring])
    assert found == Decay(heights=(18, 24), smaller=3)
    assert found.survived == 1
