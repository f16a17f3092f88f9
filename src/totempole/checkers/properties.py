"""All properties, by layer, and the one call that judges a trace by them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from totempole.checkers.corel import COREL
from totempole.checkers.groups import GROUPS
from totempole.checkers.networks import NETWORKS
from totempole.checkers.property import Indices, Layer, Property
from totempole.checkers.ring import RING
from totempole.checkers.terms import Alarmed, Calm, Liveness, Terms
from totempole.checkers.verdict import Report
from totempole.trace.schema import Row

LAYERS: tuple[Layer[Any], ...] = (RING, NETWORKS, GROUPS, COREL)
"""From the lowest up: a new layer adds its module and its name here."""

PROPERTIES: tuple[Property[Any], ...] = tuple(item for layer in LAYERS for item in layer.properties)


def check(
    rows: Iterable[Row],
    complete: bool = False,
    *,
    expectation: Liveness | None = None,
    same_clock: bool = True,
    calm: Iterable[Calm] = (),
    shared: Iterable[Calm] = (),
    lossless: Iterable[Calm] = (),
    alarmed: Iterable[Alarmed] = (),
) -> Report:
    """Judges the rows of one run.

    `complete`: the run ended quiescent, and what has not happened by now never will. Otherwise the rows are
    a prefix, and what they cannot tell is undecided. `same_clock`: `at_us` is comparable between nodes.
    `calm`: stretches in which nothing goes wrong; `shared`, `lossless`, `alarmed`: what is known of faults of
    networks (`Terms`).
    """
    stretches = tuple(calm), tuple(shared), tuple(lossless)
    return judge_rows(rows, Terms(complete, same_clock, expectation, *stretches, tuple(alarmed)))


def judge_rows(rows: Iterable[Row], terms: Terms) -> Report:
    """The same, with all that is known of the run."""
    indices = Indices(list(rows))
    verdicts = [layer.judge(item, indices, terms) for layer in LAYERS for item in layer.properties]
    return Report(tuple(verdicts))
