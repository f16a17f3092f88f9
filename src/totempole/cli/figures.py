"""`totem figures`: the papers' experiments rerun by Spark, drawn, and set against what the papers state."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from totempole.cli import options
from totempole.cli.output import Screen, table
from totempole.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from totempole.spark.paper.comparison import Compared
    from totempole.spark.paper.rerun import Rerun

REPEATS = 3
OUT = "figures"

EXAMPLES = """\
examples:
  totem figures --quick                          every figure, with few points
  totem figures --out figures                    all of it: some minutes on two cores
  totem figures --only 4.18,4.20 --repeats 10    two figures, ten seeds for each point
  totem figures --master spark://HOST:7077       on a cluster

figures: 4.18, 4.19, 4.20 and token-loss of Totem §4.4; 7 and crash of Totem CACM; rrp-6 to rrp-9 of RRP.
DIR/index.html shows them with the table; the samples and all tables are beside it as Parquet.

Exits 1 when an experiment failed, or when a machine no longer gives what it was calibrated on. Where ours
differs from a paper otherwise, the table says so.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--only", type=_names, metavar="A,B", help="these figures (default: all)")
    parser.add_argument("--out", default=OUT, metavar="DIR", help=f"where everything goes (default: {OUT})")
    parser.add_argument(
        "--master", metavar="URL", help="a Spark cluster (default: all cores of this machine)"
    )
    parser.add_argument(
        "--repeats",
        type=options.at_least_one,
        default=None,
        metavar="N",
        help=f"seeds for each point (default {REPEATS}, with --quick 1)",
    )
    options.add_judging(parser, quick="few points, short runs, one seed")
    parser.set_defaults(run=run_figures)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("names no figure: give some, like 4.18,7")
    return names


def run_figures(arguments: argparse.Namespace) -> int:
    try:
        from totempole.spark.cancellable import run_cancellable
        from totempole.spark.paper.figures import chosen_figures
        from totempole.spark.paper.rerun import points_of, rerun
        from totempole.spark.paper.studies import Scale
        from totempole.spark.progress import watching
        from totempole.spark.session import open_session
    except ImportError as error:
        raise ConfigurationError(f"totem figures needs pip install '.[spark]' in a clone: {error}") from None
    screen, out = Screen(arguments.json), Path(arguments.out)
    figures = chosen_figures(arguments.only)
    scale = Scale(arguments.repeats or (1 if arguments.quick else REPEATS), arguments.quick)
    with (
        open_session("totem figures", arguments.master) as spark,
        screen.progress("simulating", len(points_of(figures, scale))) as advance,
        watching(spark, lambda done, note, _known: advance(done, note)),
    ):
        found = run_cancellable(spark, lambda: rerun(spark, figures, scale, out))
    _show(screen, found, out)
    screen.save_json(_data(found, scale.repeats))
    return 0 if found.holds else 1


def _show(screen: Screen, found: Rerun, out: Path) -> None:
    screen.print(comparison_table(found.compared))
    for problem in found.problems:
        screen.print(f"[bold red]failed:[/] {problem}", soft_wrap=True)
    screen.print()
    for machine in {figure.machine.name: figure.machine for figure in found.figures}.values():
        screen.print(f"{machine.name}: calibrated on {machine.calibrated_on}", soft_wrap=True)
    screen.print(f"Figures and tables: {out / 'index.html'}", soft_wrap=True)


def comparison_table(compared: Iterable[Compared]) -> Table:
    shown = table("figure", "what", "theirs", "ours", "ratio", "", right=("ours", "ratio"))
    for each in compared:
        published = each.published
        colour = {"meets": "green", "differs": "red"}.get(each.verdict, "dim")
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        ours = "" if each.ours is None else f"{each.ours:.4g}"
        note = f"[{colour}]{each.verdict}[/]{' (calibration)' if published.used else ''}"
        shown.add_row(published.figure, published.what, published.stated, ours, ratio, note)
    return shown


def _data(found: Rerun, repeats: int) -> dict[str, Any]:
    return {
        "figures": [figure.name for figure in found.figures],
        "repeats": repeats,
        "comparison": [each.data() for each in found.compared],
        "calibration": {figure.machine.name: figure.machine.calibrated_on for figure in found.figures},
        "problems": list(found.problems),
        "holds": found.holds,
    }
