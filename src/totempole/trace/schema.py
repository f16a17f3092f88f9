"""The one schema of everything that happened: the simulator, the nodes, the checkers and Spark share it.

A row says what one processor did, in its own order of events (`step`). Columns that do not apply keep their
empty value. A layer's own columns are a tuple of their own within the row: rows of other layers share one
empty tuple, so that they cost no more for each layer that is added. In files they are flat columns, named
layer_column.

No code parses `detail`: what code reads has a column.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple, get_type_hints

from totempole.trace.kinds import Kind, Level
from totempole.trace.layers import corel, groups, networks, node, objects, srp
from totempole.trace.layers.corel import CorelColumns
from totempole.trace.layers.groups import GroupColumns
from totempole.trace.layers.srp import SrpColumns

SCHEMA_VERSION = 4


class Row(NamedTuple):
    run: str
    node: int
    incarnation: int
    step: int
    """The node's own event counter: never repeats within a run, restarts included."""
    at_us: int
    layer: str
    kind: str
    message: str = ""
    """The message's unique identity: origin.incarnation.number."""
    origin: int = 0
    process: str = ""
    service: str = ""
    ring: str = ""
    """The ring of the message or token, as seq@representative."""
    seq: int = 0
    timestamp: int = 0
    source_ring: str = ""
    network: int = 0
    """From 1."""
    configuration: str = ""
    """The configuration in force, or that a `configuration` row installs."""
    configuration_kind: str = ""
    members: tuple[int, ...] = ()
    group: str = ""
    """The group that the row is about. A message may be sent to several: see `groups.to`."""
    count: int = 0  # type: ignore[assignment]
    bytes: int = 0
    digest: int = 0
    """CRC-32 of the content; 0 below the level `checked`. The group layer's begins at 1, so that the digest
    of an empty content is not 0."""
    reason: str = ""
    """Why, in words that do not vary: one of a few. Of a network: what is wrong with it."""
    old_state: str = ""
    new_state: str = ""
    previous: str = ""
    """The configuration that a new one ends."""
    detail: str = ""
    """For eyes only."""
    srp: SrpColumns = SrpColumns()
    groups: GroupColumns = GroupColumns()
    corel: CorelColumns = CorelColumns()


LAYERS = (node.KINDS, srp.KINDS, networks.KINDS, groups.KINDS, corel.KINDS, objects.KINDS)

KINDS: dict[str, Kind] = {kind.name: kind for layer in LAYERS for kind in layer}
assert len(KINDS) == sum(map(len, LAYERS)), "two layers declare one kind"


def kinds_at(level: Level) -> frozenset[str]:
    return frozenset(kind.name for kind in KINDS.values() if kind.level <= level)


LEVELS = {level.name.lower(): kinds_at(level) for level in Level}
DELIVERY_KINDS, CHECKED_KINDS, PROTOCOL_KINDS = LEVELS.values()


# Columns


class Column(NamedTuple):
    """A column as files have it."""

    name: str
    type: Any
    """int, str, bool, tuple[int, ...] or tuple[str, ...]."""
    empty: Any
    few: bool
    """Text of few different values, and seldom empty: files have it as a dictionary."""


_FEW = frozenset({"run", "layer", "kind", "service", "configuration_kind"})

OWN: dict[str, Any] = {
    name: default for name, default in Row._field_defaults.items() if hasattr(default, "_fields")
}
"""For each layer that has columns of its own, the tuple of a row that has none of them."""

COMMON = tuple(name for name in Row._fields if name not in OWN)
"""The columns that rows of every layer have. They come first in a row."""


def _columns() -> tuple[Column, ...]:
    hints = get_type_hints(Row)
    found = [(name, hints[name], Row._field_defaults.get(name)) for name in COMMON]
    for layer, empty in OWN.items():
        hints = get_type_hints(type(empty))
        found += [(f"{layer}_{name}", hints[name], getattr(empty, name)) for name in empty._fields]
    return tuple(Column(name, hint, empty, name in _FEW) for name, hint, empty in found)


COLUMNS = _columns()
"""All columns of a file: the common ones, then those of each layer."""
assert Row._fields == (*COMMON, *OWN), "the layers' columns come last"
assert not any(set(own._fields) & {*COMMON} for own in OWN.values()), "a layer's column has a common name"


def flat(row: Row) -> tuple[Any, ...]:
    """The values of a row in the order of COLUMNS."""
    own: Iterable[Any] = row[len(COMMON) :]
    return row[: len(COMMON)] + tuple(chain.from_iterable(own))


def in_layers(layer: str, columns: dict[str, Any], before: Row | None = None) -> dict[str, Any]:
    """Puts the layer's own columns into its tuple, in place. `before`: a row that has the others of them."""
    own = OWN.get(layer)
    if own is not None:
        mine = None
        for name in own._fields:
            if name in columns:
                mine = mine or {}
                mine[name] = columns.pop(name)
        if mine is not None:
            columns[layer] = type(own)(**mine) if before is None else getattr(before, layer)._replace(**mine)
    return columns


def another_schema(found: object) -> str:
    """What is said of a trace that another version wrote."""
    return (
        f"the trace has schema {found} and this program reads schema {SCHEMA_VERSION}; read it with the "
        "version that wrote it, or trace the run again: a simulation gives the same run from its seed"
    )
