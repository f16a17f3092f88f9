"""`totem topology`: how many gateways a network can lose, the study of Totem §5.4 on Spark."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from totempole.cli import options
from totempole.cli.output import Screen, table

if TYPE_CHECKING:
    from totempole.spark.topology.published import Comparison, Judged
    from totempole.spark.topology.results import Results
    from totempole.spark.topology.study import Study

GRAPHS = 20_000
QUICK_GRAPHS = 500
OUT = "totem-topology"

EXAMPLES = """\
examples:
  totem topology                                 figures 5.21 to 5.23, 20,000 graphs of each design
  totem topology --quick                         a first impression
  totem topology --nodes 20 --degree 3           a network of your own size
  totem topology --graphs 500000 --master spark://HOST:7077 --out study

A node is a local-area network, an edge is a gateway. In the directory --out are the figures (SVG), the tables
(Parquet) and a page with all of it, index.html. The same seed gives the same tables on any number of cores.

Exits 1 when a claim of the paper does not hold. It speaks of 50 nodes with at most 4 edges; nothing is judged
for other sizes.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    number = options.at_least_one
    which = parser.add_argument_group("which networks")
    which.add_argument(
        "--graphs", type=number, default=GRAPHS, metavar="N", help=f"of each design (default: {GRAPHS:,})"
    )
    which.add_argument(
        "--nodes", type=number, default=50, metavar="N", help="local-area networks (default: 50)"
    )
    which.add_argument(
        "--degree", type=number, default=4, metavar="N", help="gateways at each, at most (default: 4)"
    )
    which.add_argument("--seed", type=int, default=0, metavar="N", help="of the random choices (default: 0)")
    how = parser.add_argument_group("how")
    options.add_master(how)
    how.add_argument(
        "--out", type=Path, default=Path(OUT), metavar="DIR", help=f"what is found (default: {OUT})"
    )
    options.add_judging(parser, quick=f"at most {QUICK_GRAPHS} graphs of each design")
    parser.set_defaults(run=run_topology)


def run_topology(arguments: argparse.Namespace) -> int:
    from totempole.spark.topology.published import applies_to, comparisons, judge
    from totempole.spark.topology.study import Study

    screen = Screen(arguments.json)
    graphs = min(arguments.graphs, QUICK_GRAPHS) if arguments.quick else arguments.graphs
    study = Study(graphs, arguments.nodes, arguments.degree, arguments.seed)
    study.check()
    started_s = time.perf_counter()
    results, page = _run(screen, study, arguments.master, arguments.out)
    known = applies_to(study)
    report = StudyReport(
        results,
        comparisons(results) if known else [],
        judge(results) if known else [],
        page,
        time.perf_counter() - started_s,
    )
    report.show(screen)
    screen.save_json(report.data())
    return 0 if report.holds else 1


def _run(screen: Screen, study: Study, master: str | None, out: Path) -> tuple[Results, Path]:
    from totempole.spark.progress import watching
    from totempole.spark.session import open_session
    from totempole.spark.topology.results import collect
    from totempole.spark.topology.store import save
    from totempole.spark.topology.study import run

    with screen.progress("deleting edges", study.tasks) as advance:
        advance(0, "starting Spark")

        def tell(tasks: int, note: str, _known: int) -> None:
            """The tables take tasks as well, but no time."""
            advance(min(tasks, study.tasks), note)

        with open_session("totem topology", master=master) as spark, watching(spark, tell):
            found = run(spark, study)
        results = collect(study, found)
        return results, save(out, found, results)


class StudyReport:
    def __init__(
        self,
        results: Results,
        compared: list[Comparison],
        judged: list[Judged],
        page: Path,
        elapsed_s: float,
    ) -> None:
        self.results = results
        self.compared = compared
        self.judged = judged
        self.page = page
        self.elapsed_s = elapsed_s

    @property
    def holds(self) -> bool:
        return all(each.holds for each in self.judged)

    def show(self, screen: Screen) -> None:
        from totempole.spark.topology.published import findings

        study = self.results.study
        screen.print(self._designs())
        if self.judged:
            screen.print(self._values(), self._claims(), sep="\n")
        else:
            screen.print(
                "\nThe paper speaks of 50 nodes with at most 4 edges: there is nothing to compare with."
            )
        for finding in findings(self.results):
            screen.print(f"\n{finding}")
        screen.print(
            f"\n{len(self.results.outcomes) * study.graphs:,} graphs of {study.nodes} nodes, degree at most "
            f"{study.degree}, seed {study.seed}, in {self.elapsed_s:.1f} s"
        )
        screen.long(f"Figures and tables: {self.page}")

    def _designs(self) -> Table:
        numbers = ("edges", "deletions survived", "tree height", "at half", "lose one or two nodes")
        shown = table("design", *numbers, title="Means over all graphs", right=numbers)
        for design, outcome in self.results.outcomes.items():
            shown.add_row(
                design,
                f"{outcome.edges:.1f}",
                f"{outcome.survived:.2f} ± {outcome.margin:.2f}",
                f"{outcome.after[0].mean_height:.2f}",
                f"{outcome.after[outcome.deletions_to(0.5)].mean_height:.2f}",
                f"{outcome.share_of_sizes_to(2):.1%}",
            )
        shown.caption = "At half: when half of the graphs have parted. Filled is not in the paper."
        shown.caption_justify = "left"
        return shown

    def _values(self) -> Table:
        shown = table(
            "figure", "value", "paper", "ours", "ratio", title="\nThe paper's values", right=("ours", "ratio")
        )
        for each in self.compared:
            ours = f"{each.ours:.4g}" + (f" ± {each.margin:.2g}" if each.margin else "")
            shown.add_row(each.figure, each.what, each.paper, ours, f"{each.ratio:.2f}")
        return shown

    def _claims(self) -> Table:
        shown = table("figure", "claim", "ours", "", title="\nThe paper's claims")
        for each in self.judged:
            word = Text("holds", "green") if each.holds else Text("does not hold", "bold red")
            shown.add_row(each.figure, each.claim, each.ours, word)
        return shown

    def data(self) -> dict[str, Any]:
        from totempole.spark.topology.published import findings

        return {
            **asdict(self.results.study),
            "pattern": str(self.results.study.pattern),
            "designs": {str(design): asdict(outcome) for design, outcome in self.results.outcomes.items()},
            "values": [asdict(each) | {"ratio": each.ratio} for each in self.compared],
            "claims": [asdict(each) for each in self.judged],
            "findings": findings(self.results),
            "holds": self.holds,
            "page": str(self.page),
            "elapsed_s": round(self.elapsed_s, 2),
        }
