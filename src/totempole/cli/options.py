"""What the commands' options share."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from totempole.errors import TotemError

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction["Parser"]
else:
    Verbs = object


DIRECTORY = Path("/var/lib/totempole")
"""A node's, if nothing else is said."""
STATUS_SOCKET = "status.sock"
"""In a node's directory."""
PORT_MAX = 65_535


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where to read more."""

    mixed = False
    """Whether options may stand among arguments of which there may be several: `totem send G --safe TEXT`."""
    _mixing = False
    fill: Callable[[Parser], None] | None = None
    """Adds what the parser takes, once it is used: only then is the verb's module loaded."""

    def filled(self) -> Parser:
        """With all that it takes."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.filled()
        if not self.mixed or self._mixing:
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The verb's own parser reports arguments that nobody knows: it names the right help."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            verb: Parser = getattr(found, "used_parser", self)
            verb.error(f"there is no such argument: {' '.join(unknown)}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(str(value), action.choices, n=1)
            hint = f"did you mean {close[0]}?" if close else f"give one of {', '.join(action.choices)}"
            self.error(f"there is no command {value!r}: {hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its verbs, of their verbs, and so on."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers_of(below)


def verb(verbs: Verbs, name: str, summary: str, examples: str = "") -> Parser:
    parser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(used_parser=parser)
    return parser


def add_judging(parser: argparse.ArgumentParser, quick: str) -> None:
    """The two options of every command that measures or judges."""
    parser.add_argument("--quick", action="store_true", help=quick)
    add_json(parser, "the same as data")


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """The same everywhere: --json alone, or with -, is standard output."""
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help=f"{what}; without FILE, on standard output"
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """A node's settings."""
    parser.add_argument("--config", metavar="FILE", help="the node's settings")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="go before what FILE says"
    )


def totem_command() -> str:
    """How this command is called here: `totem`, or its path where it is not on PATH."""
    own = Path(sys.argv[0])
    if own.name != "totem" or shutil.which("totem"):
        return "totem"
    path = own.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def add_node(parser: argparse.ArgumentParser) -> None:
    """Which node on this host is asked."""
    add_config(parser)
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help=f"the node's directory (default: that of TOTEMPOLE_SOCKET, or {DIRECTORY})",
    )


def directory_of(arguments: argparse.Namespace, verb: str) -> Path:
    """Of the node that is asked."""
    if arguments.config and arguments.directory:
        raise TotemError(f"{verb}: give --config or --directory, not both")
    if arguments.config:
        from totempole.runtime.config import NodeConfig  # and with it the whole node

        return NodeConfig.load(arguments.config, arguments.set, places=False).directory
    return Path(arguments.directory) if arguments.directory else _default_directory()


def _default_directory() -> Path:
    """The directory of the socket that TOTEMPOLE_SOCKET names, if a node has its status socket there too."""
    from totempole.client.endpoint import SOCKET_VARIABLE  # and with it asyncio, which not every verb needs

    beside = Path(os.environ.get(SOCKET_VARIABLE, "")).parent
    return beside if SOCKET_VARIABLE in os.environ and (beside / STATUS_SOCKET).exists() else DIRECTORY


def add_master(parser: argparse._ActionsContainer) -> None:
    """Where Spark runs."""
    parser.add_argument("--master", metavar="URL", help="Spark's, as spark://HOST:7077 (default: local[*])")


def add_terms(parser: argparse.ArgumentParser) -> None:
    """What a trace cannot say of itself."""
    what = parser.add_argument_group("what is known of runs whose directory has no terms.json")
    what.add_argument("--complete", action="store_true", help="they ended quiescent")
    what.add_argument("--same-clock", action="store_true", help="their nodes share one clock")


def seed_range(text: str) -> range:
    """`A:B`, B not included."""
    first, separator, stop = text.partition(":")
    if not separator or not first.isdecimal() or not stop.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of seeds: give FIRST:STOP, like 0:1000")
    if int(first) >= int(stop):
        raise argparse.ArgumentTypeError(f"{text!r} is empty: give FIRST:STOP with FIRST below STOP")
    return range(int(first), int(stop))


def probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a probability: give a number from 0 to 1")
    return value


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of seconds above 0")
    return value


def port(text: str) -> int:
    """A UDP port whose next one is a port, too."""
    if not text.isdecimal() or not 1 <= int(text) < PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: give a port from 1 to {PORT_MAX - 1}")
    return int(text)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return int(text)
