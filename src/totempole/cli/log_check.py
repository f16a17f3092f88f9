"""`totem log check`: every frame, the order, colours and positions of a log's directory, or of a backup."""

from __future__ import annotations

import argparse
from typing import Any

from rich.text import Text

from totempole.cli import options
from totempole.cli.event_text import on_one_line
from totempole.cli.log_source import Span, log_directory
from totempole.cli.output import Screen, table
from totempole.log.check import LogReport, check

EXAMPLES = """\
examples:
  totem log check /var/lib/totempole/log     a node's log; the node may run
  totem log check /backup/log                a copy

Every frame is read and replayed, and every segment's state compared with what the frames before it give.
Snapshots of objects are read, too.
Exits 0 when all is as it was written, 1 when something is not, 2 when this is no log. A torn tail is no
damage: it was never synced, and nobody was told that it was.
"""


def add_check(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIRECTORY", help="of a log, or of its node")
    options.add_json(parser, "the same as data")
    parser.set_defaults(run=run_check)


def run_check(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    report = check(log_directory(arguments.directory))
    screen.save_json(document(report))
    shown = table("segment", "bytes", "frames", "runs", "", right=("bytes", "frames", "runs"))
    for segment in report.segments:
        words = Text("; ".join(segment.problems), "bold red") if segment.problems else Text("good", "green")
        if segment.notes:
            words.append("; " + "; ".join(segment.notes), "yellow")
        shown.add_row(
            segment.path.name, f"{segment.bytes:,}", f"{segment.frames:,}", f"{segment.runs:,}", words
        )
    screen.print(shown)
    if report.snapshots:
        kept = table("snapshot of", "position", "bytes", "", right=("position", "bytes"))
        for snapshot in report.snapshots:
            words = Text("damaged", "bold red") if snapshot.problem else Text("good", "green")
            name = Text(on_one_line(snapshot.object) or snapshot.path.name)
            kept.add_row(name, f"{snapshot.position:,}", f"{snapshot.bytes:,}", words)
        screen.print(kept)
    screen.long(
        f"log {report.log:016x} of cluster {report.cluster}, replica {report.processor}: "
        f"{Span(report.first_position, report.position)}, {report.green_runs:,} green runs, "
        f"{report.yellow_runs:,} yellow, {report.red_runs:,} red"
    )
    of_snapshots = [snapshot.problem for snapshot in report.snapshots if snapshot.problem]
    for problem in (*report.problems, *of_snapshots):
        screen.long(Text(f"! {problem}", "bold red"))
    screen.print(
        Text("The log is good.", "bold green") if report.is_good else Text("The log is damaged.", "bold red")
    )
    return 0 if report.is_good else 1


def document(report: LogReport) -> dict[str, Any]:
    return {
        "directory": str(report.directory),
        "is_good": report.is_good,
        "problems": report.all_problems,
        "cluster": report.cluster,
        "processor": report.processor,
        "log": f"{report.log:016x}",
        "disk": f"{report.disk:016x}",
        "first_position": report.first_position,
        "position": report.position,
        "green_runs": report.green_runs,
        "yellow_runs": report.yellow_runs,
        "red_runs": report.red_runs,
        "snapshots": [
            {
                "object": snapshot.object,
                "position": snapshot.position,
                "bytes": snapshot.bytes,
                "problem": snapshot.problem,
            }
            for snapshot in report.snapshots
        ],
        "segments": [
            {
                "name": segment.path.name,
                "bytes": segment.bytes,
                "frames": segment.frames,
                "runs": segment.runs,
                "problems": segment.problems,
                "notes": segment.notes,
            }
            for segment in report.segments
        ],
    }
