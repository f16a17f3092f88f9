"""`totem network`: the networks of a redundant ring; take one out of service everywhere, and put it back."""

from __future__ import annotations

import argparse
from typing import Any

from rich.text import Text

from totempole.cli import network_text, options
from totempole.cli.output import Screen
from totempole.errors import TotemError
from totempole.runtime.control import DRAIN, ONE_NETWORK, RESTORE, WAIT_S, WAIT_S_MAX, Request, ask_node
from totempole.runtime.status import Document, StatusError, read_status

EXAMPLES = """\
examples:
  totem network                         all networks: state, loss, share, what is wrong
  totem network list --json -           the same for programs
  totem network drain left              take `left` out of service on every node, for maintenance
  totem network restore left            put it back

Any node of the ring can be asked: the request is ordered like a message and done by all at the same place.
It is the node on this host, with the directory /var/lib/totempole unless --config or --directory says
otherwise; ask as its user or as root.

list exits 0 when every network is in service and well, or drained; 1 otherwise. drain and restore exit 0 when
it is done, 1 when it is refused (somebody would be cut off) or the restored network is not well, 2 when the
node cannot be asked, 3 when it was not done in time.
"""


class NotInTimeError(TotemError):
    may_pass = True


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("verb", nargs="?", choices=("list", DRAIN, RESTORE), default="list", metavar="VERB")
    parser.add_argument("network", nargs="?", metavar="NETWORK", help="its name, or its number from 1")
    options.add_node(parser)
    parser.add_argument(
        "--wait",
        type=options.seconds,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long drain and restore may take (default {WAIT_S:g})",
    )
    options.add_json(parser, "the same as data")
    parser.set_defaults(run=run_network)


def run_network(arguments: argparse.Namespace) -> int:
    if (arguments.verb == "list") != (arguments.network is None):
        raise TotemError(f"network {arguments.verb}: give {'a verb' if arguments.network else 'a network'}")
    if arguments.wait > WAIT_S_MAX:
        raise TotemError(f"network: --wait {arguments.wait:g}: give at most {WAIT_S_MAX:g} s")
    screen = Screen(arguments.json)
    directory = options.directory_of(arguments, "network")
    try:
        document = read_status(directory)
    except StatusError as error:
        raise StatusError(f"{error} (any node of the ring can be asked, on its own host)") from None
    if arguments.verb == "list":
        return show(screen, document)
    if not document.get("networks"):
        raise TotemError(f"node {document.get('processor')}: {ONE_NETWORK}")
    request = Request(arguments.verb, arguments.network, arguments.wait)
    return tell(screen, request, ask_node(directory, request))


def show(screen: Screen, document: Document) -> int:
    networks = document.get("networks", [])
    screen.save_json(
        {
            "processor": document.get("processor"),
            "ring": document.get("ring"),
            "members": document.get("members"),
            "networks": networks,
        }
    )
    if not networks:
        screen.print("One network, which nobody watches: see totem status, and docs/redundant-networks.md.")
        return 0
    screen.print(network_text.overview(networks))
    for network in networks:
        if network["bad_paths"]:
            screen.print("", network_text.matrix(network, document.get("members", [])))
    for text in network_text.warnings(networks):
        screen.print(Text(f"! {text}", "yellow"))
    well = [network["state"] in network_text.WELL and not network["why"] for network in networks]
    return 0 if all(well) else 1


def tell(screen: Screen, request: Request, answer: dict[str, Any]) -> int:
    """The outcome, in a line."""
    screen.save_json(answer)
    name, why = answer.get("network"), answer.get("why", "")
    done = {DRAIN: "drained", RESTORE: "restored"}[request.ask]
    if answer.get("outcome") == "refused":
        screen.print(Text(f"network {name} is not {done}: {why}", "bold red"))
        return 1
    if answer.get("outcome") != "done":
        reason = why or f"not done within {request.wait_s:g} s; it may be done later"
        raise NotInTimeError(f"network {name}: {reason}: look with totem network")
    if answer.get("already"):
        where = "already"
    else:
        where = f"on all nodes, at {answer.get('seq')} of ring {answer.get('ring')}"
    screen.print(Text(f"network {name} is {done} {where} (asked node {answer.get('processor')})"))
    if request.ask == RESTORE and (answer.get("state") != "in_service" or why):
        screen.print(Text(f"! it is {network_text.state(answer)}: {why}", "yellow"))
        return 1
    return 0
