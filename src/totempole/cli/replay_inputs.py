"""`totem replay FILE`: feeds a node's recorded inputs to a fresh protocol, and compares the effects."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from totempole.cli import options
from totempole.cli.output import Screen, table
from totempole.runtime import keyring
from totempole.runtime.replaying import Keys, ReplayReport, replay

QUICK_INPUTS = 10_000
CONFIGURATIONS_SHOWN = 20
"""The last ones; the JSON has all."""

EXAMPLES = """\
examples:
  totem replay inputs-3-17.totem                       a node that ran unsealed
  totem replay inputs-3-17.totem --key-file totem.key  one that was sealed; give old key files too

A node records its inputs when its configuration says `inputs = true` under [trace].

Exits 0 when every input has the effects that were recorded, else 1.
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording")
    parser.add_argument(
        "--key-file",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="keys of a sealed node; may be given again",
    )
    options.add_judging(parser, quick=f"the first {QUICK_INPUTS} inputs only")
    parser.set_defaults(run=run_replay)


def run_replay(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    path: Path = arguments.file
    keys = load_keys(arguments.key_file)
    with screen.err.status(f"replaying {path.name}"):
        report = replay(path, keys=keys, inputs_max=QUICK_INPUTS if arguments.quick else None)
    show(screen, path, report)
    screen.save_json(data(path, report))
    return 0 if report.identical else 1


def load_keys(files: list[Path]) -> Keys:
    """Of files that have a key of the same id, the first one given counts."""
    keys = [key for file in files for key in keyring.load(file).keys]
    return {key.id: key for key in reversed(keys)}


def show(screen: Screen, path: Path, report: ReplayReport) -> None:
    counts = Table.grid(padding=(0, 4, 0, 0))
    counts.add_row(
        _counts("input", "times", dict(report.inputs)), _counts("state", "entered", dict(report.states))
    )
    screen.print(counts)
    screen.print()
    screen.print(_configurations(report))
    screen.print()
    _show_difference(screen, report)
    screen.print(_summary(report), soft_wrap=True)


def _counts(name: str, times: str, counts: dict[str, int]) -> Table:
    shown = table(name, times, right=(times,))
    for what, count in counts.items():
        shown.add_row(what, f"{count:,}")
    return shown


def _configurations(report: ReplayReport) -> Table:
    shown = table("at", "configuration", "kind", "members", title="Configurations installed", right=("at",))
    hidden = len(report.configurations) - CONFIGURATIONS_SHOWN
    if hidden > 0:
        shown.add_row("", f"{hidden} before these")
    for item in report.configurations[-CONFIGURATIONS_SHOWN:]:
        found = item.configuration
        members = " ".join(map(str, found.members))
        shown.add_row(_seconds(item.now_us - report.first_us), str(found.id), found.kind.value, members)
    return shown


def _show_difference(screen: Screen, report: ReplayReport) -> None:
    found = report.difference
    if found is not None:
        at = _seconds(found.now_us - report.first_us)
        screen.print("[bold red]First difference[/]")
        screen.long(f"  input {found.index}, {found.input}, at {at}: {found.text}; it has")
        for line in found.found:
            screen.long(f"    {line}")
        screen.print()


def _summary(report: ReplayReport) -> str:
    verdict = "[bold green]identical[/]" if report.identical else "[bold red]DIFFERENT[/]"
    life = report.header.stable.get("incarnation", 0) + 1
    span = _seconds(report.last_us - report.first_us)
    return (
        f"Processor {report.header.spec.processor}, incarnation {life}: {verdict}. {report.agreed:,} inputs "
        f"agree over {span}, with {report.deliveries:,} deliveries. {_ending(report)}"
    )


def _ending(report: ReplayReport) -> str:
    if report.ended is None:
        return "The rest was not read."
    return f"The recording ends here: {report.ended}."


def _seconds(span_us: int) -> str:
    return f"{span_us / 1_000_000:.6f} s"


def data(path: Path, report: ReplayReport) -> dict[str, Any]:
    found = report.difference
    return {
        "file": str(path),
        "processor": report.header.spec.processor,
        "incarnation": report.header.stable.get("incarnation", 0) + 1,
        "sealed": bool(report.header.key_ids),
        "identical": report.identical,
        "agreed": report.agreed,
        "ended": report.ended,
        "first_us": report.first_us,
        "last_us": report.last_us,
        "inputs": dict(report.inputs),
        "states": dict(report.states),
        "deliveries": report.deliveries,
        "configurations": [
            {
                "at_us": item.now_us,
                "id": str(item.configuration.id),
                "kind": item.configuration.kind.value,
                "members": list(item.configuration.members),
            }
            for item in report.configurations
        ],
        "difference": found
        and {
            "index": found.index,
            "input": found.input,
            "at_us": found.now_us,
            "text": found.text,
            "effects": list(found.found),
        },
    }
