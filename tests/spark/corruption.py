"""Good traces with a few events spoilt at random: what no protocol does, both judges must still see alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from totempole.trace.schema import Row

ROOM = 10
"""Between two steps, for what is put in."""


def corrupted(rows: Sequence[Row], random: Random, faults: int = 3) -> list[Row]:
    spoilt = [row._replace(step=row.step * ROOM) for row in rows]
    for _ in range(faults):
        place = random.randrange(len(spoilt))
        spoilt[place : place + 1] = random.choice(_FAULTS)(spoilt[place], spoilt, random)
    return _as_counted(spoilt)


def _as_counted(rows: list[Row]) -> list[Row]:
    """What no storage mixes up: a node counts no two events alike, and a life that is over does not go on."""
    lives: dict[int, int] = {}
    kept: dict[tuple[int, int], Row] = {}
    for row in sorted(rows, key=lambda row: (row.node, row.step)):
        lives[row.node] = max(row.incarnation, lives.get(row.node, 0))
        kept.setdefault((row.node, row.step), row._replace(incarnation=lives[row.node]))
    return list(kept.values())


def _lost(row: Row, rows: list[Row], random: Random) -> list[Row]:
    return []


def _told_again(row: Row, rows: list[Row], random: Random) -> list[Row]:
    return [row, row._replace(step=row.step + random.choice((1, 2 * ROOM + 2, 7 * ROOM + 3)))]


def _out_of_turn(row: Row, rows: list[Row], random: Random) -> list[Row]:
    return [row._replace(step=max(0, row.step + random.choice((-3 * ROOM - 4, 2 * ROOM + 5))))]


def _like_another(row: Row, rows: list[Row], random: Random) -> list[Row]:
    """One column has the value that another event of the same kind has."""
    column = random.choice(_COLUMNS)
    other = random.choice([other for other in rows if other.kind == row.kind])
    return [row._replace(**{column: getattr(other, column)})]


def _off_by_a_little(row: Row, rows: list[Row], random: Random) -> list[Row]:
    column = random.choice(("seq", "timestamp", "bytes", "at_us", "origin"))
    return [row._replace(**{column: max(0, getattr(row, column) + random.choice((-200, -1, 1, 200)))})]


def _without_a_name(row: Row, rows: list[Row], random: Random) -> list[Row]:
    return [row._replace(message="")]


def _other_kind(row: Row, rows: list[Row], random: Random) -> list[Row]:
    kind = {"regular": "transitional", "transitional": "regular"}.get(row.configuration_kind, "")
    return [row._replace(configuration_kind=kind)]


def _other_company(row: Row, rows: list[Row], random: Random) -> list[Row]:
    if row.kind != "configuration":
        return [row]
    return [row._replace(members=tuple(sorted(set(row.members) ^ {random.randint(1, 8)})))]


Fault = Callable[[Row, list[Row], Random], list[Row]]

_FAULTS: tuple[Fault, ...] = (
    _lost,
    _told_again,
    _out_of_turn,
    _like_another,
    _like_another,
    _like_another,
    _off_by_a_little,
    _without_a_name,
    _other_kind,
    _other_company,
)
_COLUMNS = (
    *("message", "origin", "service", "ring", "seq", "timestamp"),
    *("configuration", "members", "previous", "old_state", "new_state", "reason", "bytes", "at_us"),
)
