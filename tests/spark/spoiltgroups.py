"""Traces of groups with some events spoilt at random: what no layer does, both judges must see alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tracebuilder import column, with_columns

from totempole.trace.schema import OWN, Row

FAULTS_MAX = 6
_COLUMNS = (
    *("message", "process", "group", "count", "bytes", "service", "origin", "ring", "seq", "configuration"),
    *("configuration_kind", "reason", "digest", "at_us", *OWN["groups"]._fields),
)


def spoilt(rows: Sequence[Row], chance: Random) -> list[Row]:
    spoilt = renumbered(rows)
    for _ in range(chance.randint(1, FAULTS_MAX)):
        kind = chance.choice(sorted({row.kind for row in spoilt if row.layer == "groups"}))
        place = chance.choice([place for place, row in enumerate(spoilt) if row.kind == kind])
        chance.choice(_FAULTS)(spoilt, place, chance)
    return _recounted(spoilt)


def renumbered(rows: Sequence[Row]) -> list[Row]:
    """By node and step; a node counts no two events alike."""
    return _recounted(sorted(rows, key=lambda row: (row.node, row.step)))


def _recounted(rows: Sequence[Row]) -> list[Row]:
    """In the order in which they stand; and a life that is over does not go on."""
    last: dict[int, tuple[int, int]] = {}
    counted = []
    for row in rows:
        step, incarnation = last.get(row.node, (0, 0))
        last[row.node] = step, incarnation = step + 1, max(incarnation, row.incarnation)
        counted.append(row._replace(step=step, incarnation=incarnation))
    return counted


def _lost(rows: list[Row], place: int, chance: Random) -> None:
    del rows[place]


def _told_again(rows: list[Row], place: int, chance: Random) -> None:
    later = [other for other in range(place, len(rows)) if rows[other].node == rows[place].node]
    rows.insert(chance.choice(later) + 1, rows[place])


def _swapped(rows: list[Row], place: int, chance: Random) -> None:
    mine = [other for other, row in enumerate(rows) if row.process == rows[place].process]
    other = chance.choice(mine)
    rows[place], rows[other] = rows[other], rows[place]


def _like_another(rows: list[Row], place: int, chance: Random) -> None:
    """One column has the value that another event of the same kind has."""
    name = chance.choice(_COLUMNS)
    other = chance.choice([row for row in rows if row.kind == rows[place].kind])
    rows[place] = with_columns(rows[place], **{name: column(other, name)})


def _off_by_a_little(rows: list[Row], place: int, chance: Random) -> None:
    name = chance.choice(("seq", "count", "bytes", "at_us", "index"))
    value = column(rows[place], name) + chance.choice((-200, -2, -1, 1, 2, 200))
    rows[place] = with_columns(rows[place], **{name: value})


def _other_company(rows: list[Row], place: int, chance: Random) -> None:
    """Of one who was told of a view, or of all."""
    views = [row for row in rows if row.kind == "group_view"]
    if not views:
        return
    view = chance.choice(views)
    name = chance.choice(("processes", "together"))
    company = tuple(sorted(set(column(view, name)) ^ {chance.choice(views).process}))
    told = [view] if chance.random() < 0.5 else [row for row in views if _alike(row, view)]
    for row in told:
        rows[rows.index(row)] = with_columns(row, **{name: company})


def _alike(one: Row, other: Row) -> bool:
    return (one.groups, one.reason) == (other.groups, other.reason)


def _asked_again(rows: list[Row], place: int, chance: Random) -> None:
    row = rows[place]
    request = row._replace(message="", group=row.group or "g", groups=OWN["groups"], reason="", count=0)
    kinds = chance.choice((["group_leave"], ["group_join"], ["group_leave", "group_join"]))
    rows[place:place] = [request._replace(kind=kind) for kind in kinds]


def _other_connection(rows: list[Row], place: int, chance: Random) -> None:
    reason = chance.choice(("connect", "disconnect"))
    rows.insert(place, rows[place]._replace(kind="process", message="", group="", reason=reason))


def _of_the_ring(rows: list[Row], place: int, chance: Random) -> None:
    """Something that the properties of groups ask the ring for is missing."""
    kinds = ("configuration", "receive", "originate", "crash", "restart")
    del rows[chance.choice([other for other, row in enumerate(rows) if row.kind in kinds])]


_FAULTS: tuple[Callable[[list[Row], int, Random], None], ...] = (
    *(_lost, _told_again, _swapped, _like_another, _like_another, _like_another, _off_by_a_little),
    *(_other_company, _other_company, _asked_again, _other_connection, _of_the_ring),
)
