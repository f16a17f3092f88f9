"""Draws a timeline as Totem draws figures 4.15 and 4.16: a column for each processor, time downwards.

A vertical line is the order of messages that a processor delivered in a configuration, with their number:
solid in a regular configuration, dotted in a transitional one. A dashed horizontal line is a Configuration
Change message. Members in parentheses did not install the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from rich.text import Text

from totempole.cli.timeline import Band, Change, Timeline
from totempole.trace.lives import Stay
from totempole.types import ProcessorId

TIME_WIDTH = 10
COLUMN_MAX = 13
COLUMN_MIN = 5

SOLID = "┃"
DOTTED = "┊"
DASH = "╌"
END = {"crash": ("✗", "crash"), "leave": ("○", "left")}
NOTE_MARK = "»"
REGULAR_COLOURS = ("cyan", "green", "magenta", "bright_blue", "bright_cyan", "bright_green", "bright_magenta")
TRANSITIONAL_COLOUR = "yellow"
LEGEND = Text(
    f"{' ' * TIME_WIDTH}{SOLID} 12 messages delivered, {DOTTED} in a transitional configuration, "
    f"{DASH * 2} Configuration Change",
    style="dim",
)


def draw(
    timeline: Timeline,
    names: Mapping[ProcessorId, str],
    width: int = 100,
    *,
    until_us: int | None = None,
    told: Sequence[str] = (),
    legend: bool = True,
) -> Text:
    """The figure, up to `until_us`, with faults of the kinds `told`, or all.

    With too many processors for columns it is a list instead.
    """
    bands = timeline.bands(until_us)
    if told:
        _tell_only(bands, told)
    column = min(COLUMN_MAX, (width - TIME_WIDTH) // max(1, len(timeline.nodes)))
    if column < COLUMN_MIN:
        return _list(timeline, names)
    drawing = _Drawing(bands, timeline, names, column, width).text()
    return drawing.append("\n").append_text(LEGEND) if legend else drawing


def members_text(stay: Stay, names: Mapping[ProcessorId, str], installed: Iterable[ProcessorId]) -> str:
    """`{p q r}`, `[q r]`, and `{(q) r s}` when q did not install it."""
    there = set(installed)
    shown = [names[me] if me in there else f"({names[me]})" for me in stay.members]
    opening, closing = "{}" if stay.regular else "[]"
    return f"{opening}{' '.join(shown)}{closing}"


def _tell_only(bands: Iterable[Band], told: Sequence[str]) -> None:
    """Leaves out other kinds of faults, and those that change nothing of the picture."""
    in_force = ""
    for band in bands:
        partings = {at_us for at_us, what in band.notes if what.startswith("partition")}
        kept = []
        for at_us, what in band.notes:
            undone = what == in_force or (what == "heal" and at_us in partings)
            if what.split()[0] in told and not undone:
                kept.append((at_us, what))
                in_force = what
        band.notes = kept


class _Drawing:
    def __init__(
        self,
        bands: Sequence[Band],
        timeline: Timeline,
        names: Mapping[ProcessorId, str],
        column: int,
        width: int,
    ) -> None:
        self._bands = bands
        self._nodes = timeline.nodes
        self._names = names
        self._column = column
        self._width = width
        self._centre = (column - 1) // 2
        self._now: dict[ProcessorId, Stay] = {}
        """The configuration that each processor is in, as far as it is drawn."""
        self._installed = timeline.installers
        self._colours: dict[str, str] = {}
        self._lines: list[Text] = []

    def text(self) -> Text:
        heads = "".join(self._head(self._names[node]) for node in self._nodes)
        self._lines.append(Text(" " * TIME_WIDTH + heads.rstrip(), style="bold"))
        for band in self._bands:
            self._band(band)
        return Text("\n").join(self._lines)

    def _head(self, name: str) -> str:
        """The name, its middle over the processor's line."""
        return (" " * (self._centre - (len(name) - 1) // 2) + name)[: self._column].ljust(self._column)

    def _band(self, band: Band) -> None:
        self._notes(band.notes)
        if band.ends:
            self._end_lives(band.ends)
        if not band.changes:
            return
        first_us = band.at_us
        transitional = {node: change for node, change in band.changes.items() if change.transitional}
        if transitional:
            self._change(first_us, {node: _first(change) for node, change in transitional.items()})
            self._run(set(transitional))
        self._change(0 if transitional else first_us, {n: c.regular for n, c in band.changes.items()})
        self._run(set(band.changes))
        self._run(set())

    # Lines

    def _notes(self, notes: Sequence[tuple[int, str]]) -> None:
        """Faults of one instant share a line."""
        by_time: dict[int, list[str]] = {}
        for at_us, what in notes:
            by_time.setdefault(at_us, []).append(what)
        for at_us, told in by_time.items():
            self._lines += self._folded(at_us, f"{NOTE_MARK} {' · '.join(told)}")

    def _folded(self, at_us: int, text: str) -> list[Text]:
        pieces = wrap(text, self._width - TIME_WIDTH, subsequent_indent="  ")
        lines = [_time(at_us), *(Text(" " * TIME_WIDTH) for _ in pieces[1:])]
        for line, piece in zip(lines, pieces, strict=True):
            line.append(piece, style="red")
        return lines

    def _end_lives(self, ends: Mapping[ProcessorId, str]) -> None:
        cells = {}
        for node, how in ends.items():
            mark, word = END[how]
            room = self._column - self._centre - len(mark) - 1
            shown = f"{mark} {word}" if len(word) <= room else mark
            cells[node] = self._cell(_styled(shown, "bold red"))
        for node in ends:
            self._now.pop(node, None)
        self._row(Text(" " * TIME_WIDTH), cells)

    def _change(self, at_us: int, stays: Mapping[ProcessorId, Stay]) -> None:
        """The dashed lines of Configuration Change messages."""
        cells: dict[ProcessorId, Text] = {}
        for name in dict.fromkeys(stay.name for stay in stays.values()):
            there = [node for node in self._nodes if node in stays and stays[node].name == name]
            stay = stays[there[0]]
            cells.update(self._dashes(stay, there))
            cells.update(self._missing(stay, there))
        self._row(_time(at_us) if at_us else Text(" " * TIME_WIDTH), cells)
        self._now.update(stays)

    def _dashes(self, stay: Stay, there: Sequence[ProcessorId]) -> dict[ProcessorId, Text]:
        """One line over each run of neighbouring columns, labelled where the label fits."""
        style = self._style(stay)
        label = members_text(stay, self._names, self._installed[stay.name])
        runs = _neighbours(self._nodes, there)
        widest = max(len(run) for run in runs) * self._column - 1
        if len(label) > widest:
            label = label[: widest - 1] + "…"
        cells = {}
        for run in runs:
            width = len(run) * self._column - 1
            shown = f" {label} " if len(label) + 2 <= width else label if len(label) <= width else ""
            line = _styled(shown.center(width, DASH), style)
            for index, node in enumerate(run):
                piece = line[index * self._column : (index + 1) * self._column]
                piece.append(" " if node == run[-1] else "")
                cells[node] = piece
        return cells

    def _missing(self, stay: Stay, there: Sequence[ProcessorId]) -> dict[ProcessorId, Text]:
        """Members that never installed it stand in parentheses beside their own line."""
        absent = set(stay.members) - self._installed[stay.name] if stay.regular else set()
        cells = {}
        for node in absent & set(self._nodes) & set(self._now):
            cell = self._line_of(node)
            cell.append(f" ({self._names[node]})", style=self._style(stay))
            cells[node] = self._cell(cell)
        return cells

    def _run(self, counted: set[ProcessorId]) -> None:
        """A piece of every vertical line, with the numbers of messages for those in `counted`."""
        cells = {}
        for node in counted:
            cell = self._line_of(node)
            cell.append(
                f" {self._now[node].delivered:,}", style="bold" if self._now[node].delivered else "dim"
            )
            cells[node] = self._cell(cell)
        self._row(Text(" " * TIME_WIDTH), cells)

    def _row(self, line: Text, cells: Mapping[ProcessorId, Text]) -> None:
        for node in self._nodes:
            line.append_text(cells.get(node) or self._cell(self._line_of(node)))
        line.rstrip()
        self._lines.append(line)

    def _line_of(self, node: ProcessorId) -> Text:
        stay = self._now.get(node)
        if stay is None:
            return Text(" ")
        return _styled(SOLID if stay.regular else DOTTED, self._style(stay))

    def _cell(self, content: Text) -> Text:
        cell = Text(" " * self._centre)
        cell.append_text(content)
        cell.truncate(self._column, pad=True)
        return cell

    def _style(self, stay: Stay) -> str:
        """A colour for each regular configuration, in order of appearance."""
        if not stay.regular:
            return TRANSITIONAL_COLOUR
        name = stay.name
        if name not in self._colours:
            self._colours[name] = REGULAR_COLOURS[len(self._colours) % len(REGULAR_COLOURS)]
        return self._colours[name]


def _first(change: Change) -> Stay:
    assert change.transitional is not None
    return change.transitional


def _neighbours(nodes: Sequence[ProcessorId], chosen: Sequence[ProcessorId]) -> list[list[ProcessorId]]:
    runs: list[list[ProcessorId]] = []
    for place, node in enumerate(nodes):
        if node not in chosen:
            continue
        if runs and place and nodes[place - 1] == runs[-1][-1]:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def _time(at_us: int) -> Text:
    return _styled(f"{at_us / 1_000_000:.3f} s".rjust(TIME_WIDTH - 2) + "  ", "dim")


def _styled(text: str, style: str) -> Text:
    """So that what is appended to it keeps its own style."""
    return Text().append(text, style=style)


def _list(timeline: Timeline, names: Mapping[ProcessorId, str]) -> Text:
    """Too many columns for a drawing: one line for each processor."""
    lines = []
    for node in timeline.nodes:
        line = _styled(f"{names[node]:>8}  ", "bold")
        for stay in timeline.stays(node):
            style = "green" if stay.regular else "yellow"
            line.append(members_text(stay, names, stay.members), style=style)
            line.append(f" {stay.delivered:,}  ")
        lines.append(line)
    return Text("\n").join(lines)
