"""`totem log add`, `remove`, `replace` and `trim`: asked of the node on this host."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from totempole.cli import options
from totempole.cli.log_show import position
from totempole.cli.log_status import read_document
from totempole.cli.output import Screen
from totempole.errors import TotemError
from totempole.runtime.control import ADD, REMOVE, REPLACE, TRIM, WAIT_S, WAIT_S_MAX, LogRequest, ask_node

NODE = """\
The node on this host is asked, as its user or as root: the one with the directory /var/lib/totempole, unless
--config or --directory says otherwise. Any replica will do.

Exits 0 when it is done, 1 when it is refused, 2 when the node cannot be asked, 3 when it was not done in
time.
"""
ADD_EXAMPLES = f"""\
examples:
  totem log add 4                  node 4 votes from now on
  totem log add 4 --weight 2       its vote counts twice

Start node 4 with [log] enabled = true first: it learns all that is ordered, and only then can be added
(`totem log status` shows when it has caught up). The change is ordered like a record, and green before it
counts.

{NODE}"""
REMOVE_EXAMPLES = f"""\
examples:
  totem log remove 3               node 3 votes no more

It is refused if those that are connected would be no majority of the rest. A removed node goes on to receive
all that is ordered, until its log is disabled.

{NODE}"""
REPLACE_EXAMPLES = f"""\
examples:
  totem log replace 3 4            node 4 votes, and node 3 does not any more

Node 4 is added first, then node 3 is removed: two changes, both ordered.

{NODE}"""
TRIM_EXAMPLES = f"""\
examples:
  totem log trim 1000000           records before position 1,000,000 may go
  totem log trim 1000000 --yes     without asking

Only this node's disk is trimmed, in whole segments, and nothing that a reader holds (`totem log holds`). It
cannot be undone. A replica that was away longer than the others keep begins anew where these begin.

{NODE}"""


class NotInTimeError(TotemError):
    may_pass = True


def add_add(parser: options.Parser) -> None:
    parser.epilog = ADD_EXAMPLES
    parser.add_argument("processor", type=options.at_least_one, metavar="NODE", help="its processor number")
    parser.add_argument("--weight", type=options.at_least_one, default=1, metavar="N", help="of its vote")
    _add(parser, ADD)


def add_remove(parser: options.Parser) -> None:
    parser.epilog = REMOVE_EXAMPLES
    parser.add_argument("processor", type=options.at_least_one, metavar="NODE", help="its processor number")
    _add(parser, REMOVE)


def add_replace(parser: options.Parser) -> None:
    parser.epilog = REPLACE_EXAMPLES
    parser.add_argument("processor", type=options.at_least_one, metavar="OLD", help="that votes no more")
    parser.add_argument("other", type=options.at_least_one, metavar="NEW", help="that votes in its place")
    parser.add_argument("--weight", type=options.at_least_one, default=1, metavar="N", help="of its vote")
    _add(parser, REPLACE)


def add_trim(parser: options.Parser) -> None:
    parser.epilog = TRIM_EXAMPLES
    parser.add_argument("position", type=position, metavar="POSITION", help="the first that stays")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    _add(parser, TRIM)


def _add(parser: options.Parser, ask: str) -> None:
    options.add_node(parser)
    parser.add_argument(
        "--wait",
        type=options.seconds,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long it may take (default {WAIT_S:g})",
    )
    options.add_json(parser, "the answer as data")
    parser.set_defaults(run=run_trim if ask == TRIM else run_change, ask=ask)


def run_change(arguments: argparse.Namespace) -> int:
    request = LogRequest(
        arguments.ask,
        arguments.processor,
        getattr(arguments, "other", 0),
        getattr(arguments, "weight", 1),
        wait_s=arguments.wait,
    )
    if request.other == request.processor:
        raise TotemError(f"replace {request.processor} {request.other}: give two nodes")
    answer = _ask(arguments, request)
    screen = Screen(arguments.json)
    screen.save_json(answer)
    if answer["outcome"] == "refused":
        return _refused(screen, answer)
    names = ", ".join(map(str, answer["replicas"]))
    already = ", as they were already" if answer.get("already") else ""
    screen.long(f"the log's replicas are {names}{already} (asked node {answer['processor']})")
    return 0


def run_trim(arguments: argparse.Namespace) -> int:
    document = read_document(arguments)
    if not arguments.yes:
        _confirm(
            f"Records before position {arguments.position:,} of replica {document['processor']} are removed, "
            "as far as they fill whole segments. This cannot be undone."
        )
    answer = _ask(arguments, LogRequest(TRIM, position=arguments.position, wait_s=arguments.wait))
    screen = Screen(arguments.json)
    screen.save_json(answer)
    if answer["outcome"] == "refused":
        return _refused(screen, answer)
    screen.long(
        f"{answer['segments']:,} segments are gone (asked node {answer['processor']})"
        if answer["segments"]
        else "nothing to trim: no whole segment is before that position"
    )
    return 0


def _ask(arguments: argparse.Namespace, request: LogRequest) -> dict[str, Any]:
    if arguments.wait > WAIT_S_MAX:
        raise TotemError(f"log {request.ask}: --wait {arguments.wait:g}: give at most {WAIT_S_MAX:g} s")
    answer = ask_node(options.directory_of(arguments, f"log {request.ask}"), request)
    if answer.get("outcome") not in ("done", "refused"):
        why = answer.get("why") or f"not done within {request.wait_s:g} s; it may be done later"
        raise NotInTimeError(f"log {request.ask}: {why}: look with totem log status")
    return answer


def _refused(screen: Screen, answer: dict[str, Any]) -> int:
    done = " (the new replica was added, the old one is still there)" if answer.get("steps_done") else ""
    screen.long(f"refused: {answer.get('why', '')}{done}")
    return 1


def _confirm(text: str) -> None:
    print(text, file=sys.stderr)
    if not sys.stdin.isatty():
        raise TotemError("there is nobody to ask: give --yes")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise TotemError("nothing was done")
