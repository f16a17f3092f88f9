"""The options that say what `totem fuzz` searches: a ring, groups, the durable order, or several networks."""

from __future__ import annotations

import argparse

from totempole.errors import TotemError
from totempole.sim.fuzz.kinds import GROUPS, LOGS, OBJECTS, Kind, kind_of, network_kind
from totempole.sim.fuzz.mutants import Mutant
from totempole.sim.fuzz.network_plan import ANY, STYLES, Ways


def add_networks(parser: argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--networks",
        type=_networks,
        metavar="N",
        help="rings on 2, 3 or 4 networks, or on any of these, whose networks fail too",
    )
    parser.add_argument(
        "--style", choices=STYLES, metavar="STYLE", help=f"how they use them: {', '.join(STYLES)} (default)"
    )
    parser.add_argument(
        "--only-networks",
        action="store_true",
        help="nothing but networks fails, and every two processors always share one",
    )


def _networks(text: str) -> int:
    if text not in ("any", "2", "3", "4"):
        raise argparse.ArgumentTypeError(f"{text!r}: give 2, 3, 4 or any")
    return 0 if text == "any" else int(text)


def kind_asked(arguments: argparse.Namespace, mutant: Mutant | None = None) -> Kind:
    """What is to be searched; for a mutant, what is to notice it."""
    if arguments.networks is None:
        if arguments.style or arguments.only_networks:
            raise TotemError("fuzz: --style and --only-networks need --networks N")
        if arguments.groups + arguments.logs + arguments.objects > 1:
            raise TotemError(
                "fuzz: --groups, --logs and --objects are searches of their own: give one of them"
            )
        if arguments.objects:
            return OBJECTS
        if arguments.logs:
            return LOGS
        return GROUPS if arguments.groups else kind_of(mutant)
    if arguments.groups or arguments.logs or arguments.objects:
        raise TotemError(
            "fuzz: --networks, --groups, --logs and --objects are searches of their own: give one of them"
        )
    return network_kind(Ways(arguments.style or ANY, arguments.networks, arguments.only_networks))
