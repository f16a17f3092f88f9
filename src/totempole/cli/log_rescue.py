"""`totem log rescue`: the log goes on from one replica, when a majority of the others is lost for good."""

from __future__ import annotations

import argparse

from rich.text import Text

from totempole.cli import options
from totempole.cli.log_show import when
from totempole.cli.log_source import log_directory
from totempole.cli.output import Screen
from totempole.errors import TotemError
from totempole.runtime.log_rescue import Outcome, Standing, rescue

FLAG = "--i-understand-that-records-may-be-lost"

EXAMPLES = f"""\
examples:
  totem log rescue DIRECTORY                    say what would be done, and what may be lost
  totem log rescue DIRECTORY \\
    {FLAG}

For a log whose majority will never be back: as long as it may be, wait, or restore its disks. Do this on one
replica only, the one with the highest position (`totem log status --directory`), with its node stopped.

The replica becomes the only one of a new log, with all that it has; positions go on. What the others had
ordered and it has not is lost, although programs were told that it was green. The new log has a name of its
own: an old member that comes back does not join it. Then start the node, empty the log's directory on the
other nodes, start these, and add each with `totem log add`. Programs that were reading must begin anew: they
are told so.

Exits 0 when it is done, 1 without the flag, 2 when it cannot be done.
"""


def add_rescue(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("directory", metavar="DIRECTORY", help="of the log, or of its node, which is stopped")
    parser.add_argument(FLAG, dest="understood", action="store_true", help="do it")
    options.add_json(parser, "what was done, as data")
    parser.set_defaults(run=run_rescue)


def run_rescue(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    directory = log_directory(arguments.directory)

    def agrees(standing: Standing) -> bool:
        _tell(screen, standing)
        return bool(arguments.understood)

    outcome = rescue(directory, agrees)
    if outcome is None:
        screen.print(Text(f"Nothing was done. To do it, give {FLAG}", "bold yellow"))
        return 1
    screen.save_json(_document(outcome))
    screen.print(
        Text(f"Done: this replica is the only one of log {outcome.log:016x}.", "bold green"),
        "Start its node; then empty the log's directory on the others, start them, and add each.",
    )
    return 0


def _tell(screen: Screen, standing: Standing) -> None:
    zones = standing.zones
    if set(zones.replicas.voters) == {standing.header.processor}:
        raise TotemError(
            f"replica {standing.header.processor} is the only one of its log: there is nothing to rescue; "
            "start its node"
        )
    screen.long(
        f"replica {standing.header.processor} of cluster {standing.header.cluster}, log {zones.log:016x}: "
        f"{zones.position:,} positions, the last of {when(zones.time_us)}"
    )
    screen.long(
        f"the last primary that it knows: {zones.committed.number}, members {_names(zones.committed.members)}"
    )
    screen.long(
        f"pending: {len(zones.yellow):,} yellow and {len(zones.red):,} red runs, which the new log orders"
    )
    screen.print(
        Text(
            f"May be lost: all that replicas {_names(standing.others)} have ordered from position "
            f"{zones.position:,} on. This replica never got it, or has it in another order.",
            "bold red",
        )
    )
    if standing.damage:
        screen.print(Text(f"! {standing.damage}", "yellow"))


def _names(processors: object) -> str:
    assert isinstance(processors, (list, tuple)), "processors"
    return ", ".join(map(str, processors)) or "none"


def _document(outcome: Outcome) -> dict[str, str | int]:
    return {"log": f"{outcome.log:016x}", "disk": f"{outcome.disk:016x}", "primary": outcome.primary}
