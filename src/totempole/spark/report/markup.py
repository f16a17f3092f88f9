"""The page's HTML: its frame, its style, tables and figures. Whatever comes from a trace is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from totempole.spark.drawing import FAINT, GRID
from totempole.spark.report.lanes import GROUND
from totempole.spark.report.shapes import Plot, Words

STYLE = """\
:root { color-scheme: light dark; --paper: #fcfcfb; --ink: #1c1e21; --soft: #5d636b; --line: #dcdedf;
        --tile: #f1f2f1; --link: #0b62a8; --good: #1a7f37; --bad: #c1121f; --open: #8a5a00; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e4e6e8; --soft: #9aa1a9; --line: #33373c; --tile: #1f2226;
          --link: #6cb6f5; --good: #57c473; --bad: #ff7b72; --open: #e0aa4a; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(.8rem, 3vw, 2rem) 4rem; max-width: 84rem; background: var(--paper);
       color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: .5rem 0 .25rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 2px solid var(--line);
     overflow-wrap: anywhere; }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .4rem; }
p, li { max-width: 46rem; }
a { color: var(--link); }
.soft, figcaption, caption { color: var(--soft); font-size: .88rem; }
.words { background: var(--tile); border-radius: .4rem; padding: .7rem .9rem; margin: .5rem 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .5rem; margin: .8rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--tile); border-radius: .4rem; padding: .4rem .8rem; }
.tiles b { display: block; font-size: 1.1rem; }
.tiles span { color: var(--soft); font-size: .8rem; }
.plots { display: grid; gap: .8rem 1.6rem;
         grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); }
figure { margin: .5rem 0; min-width: 0; }
figcaption b { color: var(--ink); font-weight: 600; }
figure svg { display: block; width: 100%; height: auto; }
figure.wide .scroll svg { min-width: 44rem; }
figure svg text { fill: currentColor; font-family: system-ui, sans-serif !important; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .4rem 0; }
caption { text-align: left; padding-bottom: .2rem; }
th, td { padding: .25rem .6rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line);
         vertical-align: top; white-space: nowrap; }
th { font-weight: 600; color: var(--soft); white-space: normal; vertical-align: bottom; }
td.wrap { white-space: normal; min-width: 16rem; overflow-wrap: anywhere; }
.number { text-align: right; }
.holds { color: var(--good); }
.violated { color: var(--bad); font-weight: 600; }
.undecided { color: var(--open); }
"""

_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)

_THEME = {GRID: "--line", FAINT: "--soft", GROUND: "--paper"}
"""Colours of a picture that are the page's to choose."""

NOTHING = "·"
"""In a cell that has no number."""


def document(title: str, body: str) -> str:
    """One file: nothing is fetched, nothing is run."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Sequence[str] = (),
    caption: str = "",
    sentences: str = "",
) -> str:
    """Columns named in `words` hold text, that of `sentences` long text, others numbers. Cells are HTML."""
    kinds = ["" if header in words else ' class="number"' for header in headers]
    kinds = [
        ' class="wrap"' if header == sentences else kind for header, kind in zip(headers, kinds, strict=True)
    ]
    head = _row("th", kinds, [escape(name) for name in headers])
    body = "\n".join(_row("td", kinds, row) for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{title}<thead>{head}</thead><tbody>\n{body}\n</tbody>"
    return f'<div class="scroll"><table>{inside}</table></div>'


def _row(tag: str, kinds: Sequence[str], cells: Sequence[str]) -> str:
    shown = "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{shown}</tr>"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    shown = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for name, value in pairs)
    return f'<ul class="tiles">{shown}</ul>'


def side_by_side(*drawn: tuple[str, str, Plot]) -> str:
    """Side by side where there is room. Each has a title, a caption and what is drawn."""
    return f'<div class="plots">{"".join(figure(*each) for each in drawn)}</div>'


def figure(title: str, caption: str, drawn: Plot, *, wide: bool = False) -> str:
    told = f"<figcaption><b>{escape(title)}</b> {escape(caption)}</figcaption>"
    if isinstance(drawn, Words):
        return f"<figure>{told}{words(drawn)}</figure>"
    kind = ' class="wide"' if wide else ""
    return f'<figure{kind}>{told}<div class="scroll">{themed(drawn, title)}</div></figure>'


def themed(svg: str, title: str) -> str:
    """A picture whose lines and letters take the page's colours, and whose name is read aloud."""
    svg = _METADATA.sub("", svg)
    for colour, name in _THEME.items():
        svg = svg.replace(colour, f"var({name})")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)


def words(text: str) -> str:
    return f'<p class="words">{escape(text)}</p>'
