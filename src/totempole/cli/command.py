"""The command `totem`: finds the verb, runs it, and turns what goes wrong into a line and an exit code.

`VERBS` has them all. A verb's module is loaded when the verb is used, so that `totem send` does not wait for
the simulator, the benchmarks and Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from totempole.cli import options
from totempole.errors import TotemError

EXIT_TROUBLE = 2
EXIT_PASSING = 3
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
"""As a shell says of a program that SIGPIPE has ended."""

SPARK_MODULES = ("matplotlib", "numpy", "pandas", "pyarrow", "pyspark")
"""What is not installed with the rest: most users of a ring never need it."""


class Verb(NamedTuple):
    name: str
    summary: str
    module: str
    """In this package. Its `add` gives the verb's parser its arguments, and `run`."""

    def fill(self, parser: options.Parser) -> None:
        import_module(f"totempole.cli.{self.module}").add(parser)


VERBS = (
    Verb("demo", "tell the whole story in the terminal, in a few minutes", "demo"),
    Verb("dev", "run a cluster on this machine, to try things and to break them", "dev"),
    Verb("node", "run a node of a ring", "node"),
    Verb("status", "ask a running node how it is", "status"),
    Verb("network", "show a ring's networks, take one out of service, put it back", "network"),
    Verb("send", "send messages to groups", "send"),
    Verb("listen", "join groups and print what is delivered", "listen"),
    Verb("groups", "show the groups and their members", "groups"),
    Verb("log", "read the durable log, and look after its replicas", "log"),
    Verb("load", "send messages to real nodes and measure them", "load"),
    Verb("sim", "play a scenario file in the simulator and judge it", "sim"),
    Verb("fuzz", "search random runs for violated properties", "fuzz"),
    Verb("verify", "judge recorded traces by every property", "verify"),
    Verb("report", "draw latency, throughput and configurations of traces", "report"),
    Verb("campaign", "search random runs for violated properties, on Spark", "campaign"),
    Verb("figures", "rerun the papers' experiments and draw their figures", "figures"),
    Verb("topology", "study how many gateways a network can lose, on Spark", "topology"),
    Verb("bench", "measure speed", "bench"),
    Verb("keygen", "make the key file of a cluster, or rotate its key", "keygen"),
    Verb("replay", "replay the recorded inputs of a node and compare", "replay_inputs"),
    Verb("completion", "print what a shell needs to complete commands and options", "completion"),
    Verb("man", "write the manual pages", "man"),
)

DESCRIPTION = """\
Totally ordered, fault-tolerant multicast: the Totem protocols, proven in simulation.

Begin with `totem demo`. Each command explains itself: `totem sim --help`.
"""
EPILOG = """\
exit codes: 0 what was checked holds, 1 it does not, 2 the command could not be carried out, 3 not now, but
perhaps later, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    try:
        code = _run(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever read the output has ended: `totem … | head`. Python would try to write once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE


def _run(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
        return code
    except SystemExit as exit:  # --help, --version, and mistakes in the arguments
        return exit.code if isinstance(exit.code, int) else 0
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print("totem: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (TotemError, OSError) as error:
        print(f"totem: {_one_line(error)}", file=sys.stderr)
        return EXIT_PASSING if getattr(error, "may_pass", False) else EXIT_TROUBLE
    except ModuleNotFoundError as error:
        if error.name not in SPARK_MODULES:
            raise
        print(f"totem: this command needs {error.name}: pip install '.[spark]' in a clone", file=sys.stderr)
        return EXIT_TROUBLE


def _parser() -> argparse.ArgumentParser:
    parser = options.Parser(
        prog="totem",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"totem {_version()}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for verb in VERBS:
        options.verb(verbs, verb.name, verb.summary).fill = verb.fill
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """With the arguments of every verb. A verb that needs what is not installed has none."""
    parser = _parser()
    for each in options.parsers_of(parser):
        assert isinstance(each, options.Parser), "every verb is made by `options.verb`"
        try:
            each.filled()
        except ModuleNotFoundError as error:
            if error.name not in SPARK_MODULES:
                raise
    return parser


def _version() -> str:
    try:
        return version("totempole")
    except PackageNotFoundError:
        return "(not installed)"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
