"""Configurations per processor over time, as in figure 4.15 of Totem, on its side: a lane for each node.

The figure's vertical lines, the messages delivered in a configuration, are boxes here with a strip of
deliveries under them; its dashed lines, the Configuration Change messages, are dashed edges. A transitional
configuration is hatched: mostly a sliver, because it lasts no time at all. Members in parentheses did not
install the configuration, as in figure 4.16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from totempole.spark.drawing import FAINT, PALETTE, STYLE, new_figure
from totempole.spark.report.figures import Record, RunFigures
from totempole.spark.report.shapes import Plot, Words, filled, picture, steps, time_axis
from totempole.spark.report.text import members_text

WIDTH_IN = 9.6
LANE_IN = 0.42
LANES_MAX = 40
"""Processors drawn; the tables have all."""
SLIVER = 0.004
"""Of the width: the least at which a transitional configuration is drawn."""
LETTER = 0.0072
"""Of the width: about a letter, to tell whether a name fits its box."""
NOTE_ROOM = 0.016
"""Of the width: faults that are closer than this share a number."""

BOX_LOW, BOX_HIGH = 0.34, 0.54
"""A lane is 1 high: where its boxes begin, and how high they are."""
STRIP_LOW, STRIP_HIGH = 0.04, 0.26
RING_COLOURS = PALETTE[:7]
GROUND = "#fdfdfc"
"""Stands for the page's own ground, whatever that is."""
CRASH = "#d62839"
CUT_SHORT = "#e07a00"

MARKS = {
    "crash": ("X", CRASH, "red cross: crash"),
    "cut": ("X", CUT_SHORT, "orange cross: the trace was cut short"),
    "leave": ("o", FAINT, "grey circle: left"),
    "restart": (">", PALETTE[2], "green triangle: restart"),
}


def timeline(figures: RunFigures) -> Plot:
    if not figures.rows("stays"):
        return Words("No configuration was installed.")
    nodes = lane_nodes(figures)[:LANES_MAX]
    with rc_context(STYLE):
        figure, axes = new_figure(width_in=WIDTH_IN, height_in=0.75 + LANE_IN * len(nodes))
        _Lanes(axes[0], figures, nodes).draw()
        return picture(figure)


def lane_nodes(figures: RunFigures) -> list[int]:
    """Those that left a trace, and those that others had in their configurations."""
    members = {me for row in figures.rows("stays") for me in row["members"]}
    return sorted(members | {row["node"] for row in figures.rows("lives") if row["node"]})


def marks(figures: RunFigures) -> dict[str, list[tuple[int, int]]]:
    """Node and time of what ended or began a life, by the names of MARKS.

    A kill that nobody recorded is a cut: of that life there are rows up to some time, and then of the next.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for row in figures.rows("marks"):
        if row["kind"] in MARKS:
            found.setdefault(row["kind"], []).append((row["node"], row["at_us"]))
    for row in figures.rows("stays", ended="restart"):
        found.setdefault("cut", []).append((row["node"], row["until_us"]))
    return found


def faults(figures: RunFigures) -> list[tuple[int, list[str]]]:
    """What a simulation did to network and processors, by time from the start; near ones share a number."""
    room_us = int(figures.length_us * NOTE_ROOM)
    found: list[tuple[int, list[str]]] = []
    for row in figures.rows("marks", kind="fault"):
        at_us = row["at_us"] - figures.start_us
        if found and at_us - found[-1][0] <= room_us:
            found[-1][1].append(row["told"])
        else:
            found.append((at_us, [row["told"]]))
    return found


class _Lanes:
    def __init__(self, axes: Axes, figures: RunFigures, nodes: Sequence[int]) -> None:
        self._axes = axes
        self._figures = figures
        self._lane = {node: place for place, node in enumerate(reversed(nodes))}
        self._length_s = max(figures.length_us, 1) / 1e6
        self._end_us = figures.start_us + figures.length_us
        stays = [row for row in figures.rows("stays") if row["node"] in self._lane]
        self._regular = [row for row in stays if row["configuration_kind"] == "regular"]
        self._transitional = [row for row in stays if row["configuration_kind"] != "regular"]
        self._installed = _installers(stays)
        self._colours = _colours(self._regular)

    def draw(self) -> None:
        self._boxes()
        self._outages()
        self._slivers()
        for row in self._regular:
            self._name(row)
        self._strips()
        self._marks()
        self._faults()
        self._frame()

    # Boxes

    def _boxes(self) -> None:
        self._rectangles(self._regular, alpha=0.55, linewidth=0)
        # For all that the trace tells they may have gone on to the end.
        still = [
            row | {"from_us": row["until_us"], "until_us": self._end_us}
            for row in self._regular
            if row["ended"] == "open"
        ]
        self._rectangles(still, alpha=0.15, linewidth=0)
        lows = [self._lane[row["node"]] + BOX_LOW for row in self._regular]
        self._axes.vlines(
            [self._seconds(row["from_us"]) for row in self._regular],
            lows,
            [low + BOX_HIGH for low in lows],
            colors=[self._colours[row["configuration"]] for row in self._regular],
            linewidth=1.0,
            linestyles=(0, (2, 1)),
        )

    def _slivers(self) -> None:
        least_us = int(SLIVER * self._length_s * 1e6)
        wide = [
            row | {"until_us": max(row["until_us"], row["from_us"] + least_us)} for row in self._transitional
        ]
        self._rectangles(wide, "#ffffff", edgecolor="#333333", hatch="//////", linewidth=0.4)

    def _outages(self) -> None:
        """Pale: between leaving the Operational state and installing the next ring nothing is ordered."""
        ended = [row for row in self._figures.rows("outages") if row["until_us"] is not None]
        self._rectangles([row for row in ended if row["node"] in self._lane], GROUND, alpha=0.6, linewidth=0)

    def _rectangles(self, rows: Sequence[Record], colour: str = "", **look: Any) -> None:
        """In a colour, or in those of the rings."""
        if not rows:
            return
        corners = []
        for row in rows:
            start, end = self._span(row)
            low = self._lane[row["node"]] + BOX_LOW
            corners.append([(start, low), (end, low), (end, low + BOX_HIGH), (start, low + BOX_HIGH)])
        faces = [colour or self._colours[row["configuration"]] for row in rows]
        self._axes.add_collection(PolyCollection(corners, facecolors=faces, **look), autolim=False)

    def _name(self, row: Record) -> None:
        start, end = self._span(row)
        room = (end - start) / self._length_s / LETTER
        names = (
            members_text(row["members"], self._installed[row["configuration"]], self._figures.name),
            f"{{{len(row['members'])}}}",
        )
        fitting = next((name for name in names if len(name) + 1 <= room), "")
        if fitting:
            middle = (start + end) / 2, self._middle(row["node"])
            self._axes.text(*middle, fitting, ha="center", va="center_baseline", fontsize=7.5)

    # Under and over the boxes

    def _strips(self) -> None:
        """The root of the number, so that a burst does not flatten all else."""
        rows = [row for row in self._figures.rows("throughput") if row["node"] in self._lane]
        most = max((row["messages"] for row in rows), default=1)
        for node, lane in self._lane.items():
            line = filled(self._figures, [row for row in rows if row["node"] == node], "messages")
            times, heights = steps(self._figures, [STRIP_HIGH * sqrt(number / most) for number in line])
            low = lane + STRIP_LOW
            upper = [low + height for height in heights]
            self._axes.fill_between(times, low, upper, step="post", color=FAINT, linewidth=0)

    def _marks(self) -> None:
        for kind, found in sorted(marks(self._figures).items()):
            shape, colour, _ = MARKS[kind]
            drawn = [(node, at_us) for node, at_us in found if node in self._lane]
            times = [self._seconds(at_us) for _, at_us in drawn]
            middles = [self._middle(node) for node, _ in drawn]
            look: dict[str, Any] = {"marker": shape, "color": colour, "ms": 7, "mec": "white", "mew": 0.6}
            self._axes.plot(times, middles, ls="", zorder=5, clip_on=False, **look)

    def _faults(self) -> None:
        top = len(self._lane) + 0.03
        for number, (at_us, _) in enumerate(faults(self._figures), start=1):
            at_s = at_us / 1e6
            self._axes.axvline(at_s, color=CRASH, lw=0.7, ls=":", alpha=0.8, zorder=0.5)
            self._axes.text(at_s, top, str(number), ha="center", va="bottom", fontsize=7, color=CRASH)

    def _frame(self) -> None:
        seen = {row["node"] for row in self._figures.rows("lives")}
        name = self._figures.name
        names = [name(node) if node in seen else f"{name(node)}: no trace" for node in self._lane]
        self._axes.set_yticks([place + BOX_LOW + BOX_HIGH / 2 for place in self._lane.values()], names)
        self._axes.tick_params(axis="y", length=0)
        self._axes.set_ylim(0, len(self._lane))
        self._axes.grid(False, axis="y")
        self._axes.spines["left"].set_visible(False)
        time_axis(self._axes, self._figures)

    def _middle(self, node: int) -> float:
        return self._lane[node] + BOX_LOW + BOX_HIGH / 2

    def _span(self, row: Record) -> tuple[float, float]:
        return self._seconds(row["from_us"]), self._seconds(row["until_us"])

    def _seconds(self, at_us: int) -> float:
        return (at_us - self._figures.start_us) / 1e6


def _installers(stays: Sequence[Record]) -> Mapping[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for row in stays:
        found.setdefault(row["configuration"], set()).add(row["node"])
    return {name: frozenset(nodes) for name, nodes in found.items()}


def _colours(regular: Sequence[Record]) -> Mapping[str, str]:
    """Those in force longest have colours of their own; the rings of a start-up take what is left."""
    lasted: dict[str, int] = {}
    for row in regular:
        name = row["configuration"]
        lasted[name] = lasted.get(name, 0) + row["until_us"] - row["from_us"]
    longest = sorted(lasted, key=lambda name: (-lasted[name], name))
    return {name: RING_COLOURS[place % len(RING_COLOURS)] for place, name in enumerate(longest)}
