"""`totem completion`: what a shell needs to complete commands and options, made from the parser itself."""

from __future__ import annotations

import argparse
import sys

from totempole.cli import options

SHELLS = ("bash", "zsh", "fish")
FILES, DIRECTORIES = ("FILE", "PATH"), ("DIR", "DIRECTORY")
"""Names of values that are completed as files, and as directories."""

EXAMPLES = """\
examples:
  totem completion bash > ~/.local/share/bash-completion/completions/totem
  totem completion zsh > ~/.zsh/_totem          in a directory of $fpath
  totem completion fish > ~/.config/fish/completions/totem.fish
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")
    parser.set_defaults(run=run_completion)


def run_completion(arguments: argparse.Namespace) -> int:
    sys.stdout.write(completion(arguments.shell))
    return 0


def completion(shell: str) -> str:
    # Here, because nothing else needs it.
    import shtab

    from totempole.cli.command import whole_parser

    parser = whole_parser()
    for each in options.parsers_of(parser):
        for action in each._actions:
            if action.metavar in (*FILES, *DIRECTORIES):
                what = shtab.FILE if action.metavar in FILES else shtab.DIRECTORY
                action.complete = what  # type: ignore[attr-defined]
    return shtab.complete(parser, shell)
