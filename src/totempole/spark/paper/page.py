"""The HTML page: every figure, and the table of ours against theirs. One file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from totempole.spark.drawing import inline_svg
from totempole.spark.paper.comparison import Compared
from totempole.spark.paper.figures.frame import PaperFigure
from totempole.spark.paper.results import Results

_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 84rem; margin: 2rem auto;
  padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin: 0.5rem 0 }
.figures { display: grid; gap: 2rem; margin-top: 2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 34rem), 1fr)) }
.figures section { min-width: 0 }
svg { display: block; width: 100%; height: auto }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.92rem }
th, td { padding: 0.25rem 1.2rem 0.25rem 0; text-align: left; border-bottom: 1px solid #ddd;
  white-space: nowrap }
td.words { white-space: normal; min-width: 16rem }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.differs { color: #b3261e } .meets { color: #1b6e3c } .muted { color: #666 }
"""

HEADINGS = ("figure", "where", "what", "theirs", "ours", "ratio", "")


def page(figures: Sequence[PaperFigure], results: Results, compared: Sequence[Compared]) -> str:
    machines = {figure.machine.name: figure.machine for figure in figures}.values()
    calibrations = "".join(
        f"<li>{escape(machine.name)}: {escape(machine.calibrated_on)}</li>" for machine in machines
    )
    drawn = "".join(_section(figure, results) for figure in figures)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Totem, figures rerun</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>\n<body><h1>The papers' figures, rerun</h1>\n"
        "<p>The real protocol on simulated machines and networks, beside what the papers state.</p>\n"
        f"{table(compared)}\n<p>The machines were calibrated on:</p><ul>{calibrations}</ul>\n"
        f"<div class=figures>\n{drawn}</div></body></html>\n"
    )


def _section(figure: PaperFigure, results: Results) -> str:
    name = f"figure {figure.number}" if figure.number else "in the text"
    return (
        f"<section><h2>{escape(figure.title)} <span class=muted>({figure.paper}, {escape(name)})</span>"
        f"</h2>\n{inline_svg(figure.draw(results))}<p>{escape(figure.caption)}</p></section>\n"
    )


def table(compared: Iterable[Compared]) -> str:
    heads = "".join(
        f"<th class=number>{name}</th>" if name in ("ours", "ratio") else f"<th>{name}</th>"
        for name in HEADINGS
    )
    rows = "".join(_row(each) for each in compared)
    return f"<div class=scroll><table><tr>{heads}</tr>\n{rows}</table></div>"


def _row(each: Compared) -> str:
    published = each.published
    note = f"{each.verdict} (used to calibrate)" if published.used else each.verdict
    return (
        f"<tr><td>{escape(published.figure)}</td><td>{escape(published.section)}</td>"
        f"<td class=words>{escape(published.what)}</td><td>{escape(published.stated)}</td>"
        f"<td class=number>{shown(each.ours)}</td><td class=number>{shown(each.ratio, 2)}</td>"
        f"<td class={each.verdict.split()[0]}>{note}</td></tr>\n"
    )


def shown(value: float | None, digits: int | None = None) -> str:
    """Three figures or so, whatever the size."""
    if value is None:
        return "-"
    if digits is None:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
