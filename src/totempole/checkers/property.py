"""What a property is, and how a layer lists its own.

A property is one function over an index of a run's rows. Its scope says which rows the function must see
together: one that judges each message by itself may be given a part of the messages at a time, and the
findings of the parts are those of the whole. `parts` does that, in one process or on Spark's executors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from totempole.checkers.terms import Terms
from totempole.checkers.verdict import LISTED_MAX, Findings, Outcome, Verdict
from totempole.trace.schema import Row

Index = TypeVar("Index")


class Scope(StrEnum):
    """The rows that a check must see together, beside the context that every part of a run has."""

    MESSAGE = "message"
    """Those of one message."""
    RING = "ring"
    """Those of the messages of one ring."""
    NODE = "node"
    GROUP = "group"
    """Those of one process group. A message to several is in several parts."""
    PLACE = "place"
    """Those of one place in the durable order. Rows without a place are in a part of their own."""
    RUN = "run"
    """All of them. If the check reads none beside the context, that is little."""


@dataclass(frozen=True, slots=True)
class Property(Generic[Index]):
    name: str
    layer: str
    citation: str
    scope: Scope
    check: Callable[[Index, Terms, Findings], None]
    reads: frozenset[str] = frozenset()
    """The kinds of rows that the check reads beside the layer's context."""

    def judge(self, index: Index, terms: Terms, listed_max: int = LISTED_MAX) -> Verdict:
        findings = Findings(self.name, listed_max)
        self.check(index, terms, findings)
        return findings.verdict()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is asked of a run as a whole, and a part of it cannot tell."""

    receipts: bool
    """It says when messages were received."""
    sizes: bool
    """It says how many bytes an originated message has."""


def facts_of(rows: Iterable[Row]) -> Facts:
    receipts = sizes = False
    for row in rows:
        receipts |= row.kind == "receive"
        sizes |= row.kind == "originate" and row.bytes > 0
    return Facts(receipts, sizes)


class Indices:
    """The rows of a run, or of a part of it, with one index for each layer, built when it is first asked for.

    `facts` are those of the run.
    """

    def __init__(self, rows: list[Row], facts: Facts | None = None) -> None:
        self.rows = rows
        self.facts = facts
        self._known: dict[str, Any] = {}

    def of(self, layer: Layer[Index]) -> Index:
        if layer.name not in self._known:
            self._known[layer.name] = layer.index(self)
        found: Index = self._known[layer.name]
        return found


@dataclass(frozen=True, slots=True)
class Layer(Generic[Index]):
    """The properties of one layer, and what they are judged by."""

    name: str
    index: Callable[[Indices], Index]
    """Made of the rows, and of the indices of lower layers."""
    context: frozenset[str]
    """The kinds of rows that every part of a run needs: few, beside those of messages."""
    properties: tuple[Property[Index], ...]
    says: Callable[[Index], bool] = lambda index: True
    """Whether a run has anything of this layer."""
    silence: str = ""
    """What is said of a run that has not."""

    def judge(
        self, item: Property[Index], indices: Indices, terms: Terms, listed_max: int = LISTED_MAX
    ) -> Verdict:
        index = indices.of(self)
        if not self.says(index):
            return Verdict(item.name, Outcome.HOLDS, note=self.silence)
        return item.judge(index, terms, listed_max)
