"""`totem log hold` and `totem log holds`: what readers still need, and nobody trims."""

from __future__ import annotations

import argparse

from rich.markup import escape

from totempole.cli import options
from totempole.cli.event_text import on_one_line
from totempole.cli.log_show import position
from totempole.cli.log_status import read_document
from totempole.cli.output import Screen, table
from totempole.cli.reaching import WHERE, add_daemon, daemon_of
from totempole.client import blocking
from totempole.errors import TotemError, Unknown

ANSWER_S = 10.0
READER = "totem log"

HOLD_EXAMPLES = f"""\
examples:
  totem log hold spark-7 120000        nothing from position 120,000 on is trimmed for spark-7
  totem log hold spark-7 --release     it needs nothing any more

A hold is ordered like a record, and kept by all replicas until it is moved or released. `totem log holds`
shows them all: one that never moves keeps the log growing.

{WHERE}
"""
HOLDS_EXAMPLES = """\
examples:
  totem log holds                      all holds, and how much each keeps
  totem log holds --json -             the same for programs
"""


class NotNowError(TotemError):
    may_pass = True


def add_hold(parser: options.Parser) -> None:
    parser.epilog = HOLD_EXAMPLES
    parser.add_argument("reader", metavar="READER", help="its name")
    parser.add_argument("position", nargs="?", type=position, metavar="POSITION", help="that it needs first")
    parser.add_argument("--release", action="store_true", help="give the hold up")
    add_daemon(parser)
    parser.set_defaults(run=run_hold)


def add_holds(parser: options.Parser) -> None:
    parser.epilog = HOLDS_EXAMPLES
    options.add_node(parser)
    options.add_json(parser, "the same as data")
    parser.set_defaults(run=run_holds)


def run_hold(arguments: argparse.Namespace) -> int:
    if (arguments.position is None) != arguments.release:
        raise TotemError("log hold: give a position, or --release")
    where = -1 if arguments.release else arguments.position
    with blocking.connect(**daemon_of(arguments), name=READER, reconnect=False) as session:
        try:
            session.log(READER).hold(arguments.reader, where, timeout=ANSWER_S)
        except Unknown as error:
            raise NotNowError(
                f"it is not known whether it was ordered: {error}; see totem log holds"
            ) from None
    done = "holds nothing" if arguments.release else f"holds what comes from position {where} on"
    print(f"reader {on_one_line(arguments.reader)} {done}")
    return 0


def run_holds(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    document = read_document(arguments)
    holds = document["holds"]
    screen.save_json({"holds": holds, "position": document["position"]})
    if not holds:
        screen.print("No reader holds anything.")
        return 0
    shown = table("reader", "position", "behind", right=("position", "behind"))
    for reader, where in sorted(holds.items(), key=lambda hold: hold[1]):
        behind = max(0, document["position"] - where)
        shown.add_row(escape(on_one_line(reader)), f"{where:,}", f"{behind:,}")
    screen.print(shown)
    return 0
