"""The study as one HTML page that needs nothing else: the figures, the tables, and what was assumed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from totempole.spark import topology
from totempole.spark.drawing import inline_svg
from totempole.spark.topology.drawing import LABELS, figures
from totempole.spark.topology.published import applies_to, comparisons, findings, judge
from totempole.spark.topology.results import Results

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
figure { margin: 2rem 0 } svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top }
td, th { border-bottom: 1px solid #ddd }
"""


def write_page(results: Results, path: Path) -> Path:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page(results), encoding="utf-8")
    os.replace(partial, path)
    return path


def page(results: Results) -> str:
    study = results.study
    parts = [
        "<h1>Network design</h1>",
        f"<p>The study of Totem §5.4: {study.graphs:,} graphs of each design with {study.nodes} nodes and at "
        f"most {study.degree} edges at a node, seed {study.seed}. A node is a local-area network, an edge a "
        "gateway. "
        "Edges are deleted at random, one by one, until the graph falls apart. The robust graphs join "
        f"{escape(str(study.pattern))}.</p>",
        _designs(results),
        *(_stated(results) if applies_to(study) else ()),
        *(f"<p>{escape(finding)}</p>" for finding in findings(results)),
        *(f"<figure>{inline_svg(figure)}</figure>" for figure in figures(results).values()),
        "<h2>What was assumed</h2>",
        *_assumptions(),
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Network design</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _designs(results: Results) -> str:
    rows = [
        (
            LABELS[design],
            f"{outcome.edges:.1f}",
            f"{outcome.survived:.2f} ± {outcome.margin:.2f}",
            f"{outcome.after[0].mean_height:.2f}",
            f"{outcome.share_of_sizes_to(2):.1%}",
        )
        for design, outcome in results.outcomes.items()
    ]
    return _table(
        ("design", "edges", "deletions survived", "tree height at first", "lose one or two nodes"), rows
    )


def _stated(results: Results) -> Iterable[str]:
    values = [
        (each.figure, each.what, each.paper, f"{each.ours:.4g}", f"{each.ratio:.2f}")
        for each in comparisons(results)
    ]
    claims = [
        (each.figure, each.claim, each.ours, "holds" if each.holds else "does not hold")
        for each in judge(results)
    ]
    yield "<h2>What the paper states</h2>"
    yield _table(("figure", "value", "paper", "ours", "ratio"), values)
    yield _table(("figure", "claim", "ours", ""), claims)


def _assumptions() -> Iterable[str]:
    """As the package's own text has them: one place for both."""
    lines = (topology.__doc__ or "").split("\n- ")[1:]
    yield "<ul>" + "".join(f"<li>{escape(' '.join(line.split()))}</li>" for line in lines) + "</ul>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
