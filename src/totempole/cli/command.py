"""The command `totem`: finds the verb, runs it, and turns what goes wrong into a line and an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from totempole.cli import (
    bench,
    campaign,
    demo,
    figures,
    fuzz,
    groups,
    keygen,
    listen,
    load,
    node,
    options,
    replay_inputs,
    report,
    send,
    sim,
    status,
    topology,
    verify,
)
from totempole.errors import TotemError

EXIT_TROUBLE = 2
EXIT_PASSING = 3
EXIT_INTERRUPTED = 130

SPARK_MODULES = ("matplotlib", "pyarrow", "pyspark")
"""What is not installed with the rest: most users of a ring never need it."""

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
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
        return code
    except SystemExit as exit:  # --help, --version, and mistakes in the arguments
        return exit.code if isinstance(exit.code, int) else 0
    except KeyboardInterrupt:
        print("totem: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (TotemError, OSError) as error:
        print(f"totem: {_one_line(error)}", file=sys.stderr)
        return EXIT_PASSING if getattr(error, "may_pass", False) else EXIT_TROUBLE
    except ModuleNotFoundError as error:
        if error.name not in SPARK_MODULES:
            raise
        print(f"totem: this command needs {error.name}: pip install 'totempole[spark]'", file=sys.stderr)
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
    for module in (
        demo,
        node,
        status,
        send,
        listen,
        groups,
        load,
        sim,
        fuzz,
        verify,
        report,
        campaign,
        figures,
        topology,
        bench,
        keygen,
        replay_inputs,
    ):
        module.add(verbs)
    return parser


def _version() -> str:
    try:
        return version("totempole")
    except PackageNotFoundError:
        return "(not installed)"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
