"""What each processor was told of its networks, and that all members of a configuration were told the same.

On a new configuration members may come from several rings, with different pasts. At the first place of the
order at which anything is told in it, their states become the same: some may have had that state before, and
are told nothing. From then on all are told the same, at the same places, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable

from totempole.checkers.history import History
from totempole.checkers.terms import Terms
from totempole.checkers.verdict import Findings
from totempole.trace.lives import Life, Stay
from totempole.trace.schema import Row


class NetworkHistory:
    def __init__(self, history: History, rows: Iterable[Row]) -> None:
        self.history = history
        self.changes: dict[tuple[int, int], list[Row]] = {}
        """Of each life, in its own order: rows on networks."""
        self.retransmissions: list[Row] = []
        for row in rows:
            if row.kind == "network":
                self.changes.setdefault((row.node, row.incarnation), []).append(row)
            elif row.kind == "retransmit":
                self.retransmissions.append(row)
        for told in self.changes.values():
            told.sort(key=lambda row: row.step)

    def of(self, life: Life) -> list[Row]:
        return self.changes.get((life.node, life.incarnation), [])

    def during(self, life: Life, stay: Stay) -> list[Row]:
        """What it was told in a regular configuration, in the order of its messages."""
        ends = [later.change.step for later in life.stays if later.change.step > stay.change.step]
        end = min(ends, default=None)
        return [
            row
            for row in self.of(life)
            if row.ring == stay.name and row.step > stay.change.step and (end is None or row.step < end)
        ]


def agreement(networks: NetworkHistory, terms: Terms, found: Findings) -> None:
    for ring, installers in networks.history.installers.items():
        told = {
            node: _Told(life, networks.during(life, stay), _reached(life, stay))
            for node, (life, stay) in sorted(installers.items())
        }
        places = [row.seq for each in told.values() for row in each.rows]
        if places:
            _compare(ring, list(told.values()), min(places), found)


class _Told:
    """What one processor was told in one configuration, and how far it came in it."""

    def __init__(self, life: Life, rows: list[Row], reached: int) -> None:
        self.life = life
        self.rows = rows
        self.reached = max([reached, *(row.seq for row in rows)])


def _reached(life: Life, stay: Stay) -> int:
    """The highest place of the ring's order that was delivered in the configuration, and told of whole: a
    crash may have come in the middle."""
    places = [row.seq for row in stay.events if row.kind == "deliver" and row.ring == stay.name]
    cut_short = life.ended and stay is life.stays[-1]
    return max(places, default=0) - cut_short


def _compare(ring: str, told: list[_Told], first: int, found: Findings) -> None:
    """Each with the one that came furthest."""
    longest = max(told, key=lambda each: each.reached)
    for each in told:
        if each is longest:
            continue
        mine = [row for row in each.rows if row.seq > first]
        others = [row for row in longest.rows if first < row.seq <= each.reached]
        for one, other in zip(mine, others, strict=False):
            if _content(one) != _content(other):
                found.violated(
                    f"On ring {ring} node {one.node} was told that {_text(one)}, and node {other.node} that "
                    f"{_text(other)}.",
                    one,
                    other,
                )
                break
        else:
            more = mine[len(others) :] or others[len(mine) :]
            if more:
                silent = longest.life.node if more[0] in mine else each.life.node
                found.violated(
                    f"On ring {ring} node {more[0].node} was told that {_text(more[0])}, and node {silent} "
                    "was not.",
                    more[0],
                    nodes=(more[0].node, silent),
                )
        _compare_first(ring, each, longest, first, found)


def _compare_first(ring: str, each: _Told, longest: _Told, first: int, found: Findings) -> None:
    """Where states become the same, whoever is told anything of a network is told the same new state."""
    others = {row.network: row for row in longest.rows if row.seq == first}
    for row in each.rows:
        other = others.get(row.network)
        if row.seq == first and other is not None and row.new_state != other.new_state:
            found.violated(
                f"On ring {ring} node {row.node} was told that {_text(row)}, and node {other.node} that "
                f"{_text(other)}.",
                row,
                other,
            )


def _content(row: Row) -> tuple[int, int, str, str, str]:
    return row.seq, row.network, row.old_state, row.new_state, row.reason


def _text(row: Row) -> str:
    why = f" ({row.reason})" if row.reason else ""
    return f"network {row.network} went from {row.old_state} to {row.new_state}{why} at {row.seq}"
