"""`totem man`: a manual page for each command, made from the parser itself.

A page is roff with the macros of man(7): name, synopsis, description, options, and the examples as they
stand below `--help`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from totempole.cli import options
from totempole.cli.output import Screen

WIDTH = 78

EXAMPLES = """\
examples:
  totem man man1                        totem.1, totem-node.1 … in the directory man1
  totem man ~/.local/share/man/man1     for this user: man totem-node
  man -l man1/totem-node.1              one of them, from where it is
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the pages go; made if missing")
    parser.set_defaults(run=run_man)


def run_man(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.directory
    directory.mkdir(parents=True, exist_ok=True)
    found = pages()
    for name, text in found.items():
        (directory / name).write_text(text, encoding="utf-8")
    Screen().print(f"{len(found)} pages in {directory}", markup=False)
    return 0


def pages() -> dict[str, str]:
    """By file name: one for `totem`, for each command, and for each command of a command."""
    from totempole.cli.command import whole_parser

    parsers = [*options.parsers_of(whole_parser())]
    names = [_name(parser) for parser in parsers]
    return {f"{_name(parser)}.1": _page(parser, names) for parser in parsers}


def _name(parser: argparse.ArgumentParser) -> str:
    return parser.prog.replace(" ", "-")


def _page(parser: argparse.ArgumentParser, names: list[str]) -> str:
    name = _name(parser)
    description = parser.description or ""
    summary = description.partition("\n")[0].rstrip(".")
    lines = [
        f'.TH {_text(name.upper())} 1 "" "totempole {version("totempole")}" "Totempole"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary[:1].lower() + summary[1:])}",
        *_verbatim("SYNOPSIS", _usage(parser)),
        ".SH DESCRIPTION",
        *_paragraphs(description),
    ]
    for group in parser._action_groups:
        lines += _group(parser, group)
    if parser.epilog:
        lines += _verbatim("EXAMPLES AND EXIT CODES", parser.epilog)
    others = [other for other in names if other != name and _is_near(name, other)]
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{_text(other)}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def _is_near(name: str, other: str) -> bool:
    """Its parent, and its children."""
    return other == name.rpartition("-")[0] or other.rpartition("-")[0] == name


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    return formatter.format_help().removeprefix("usage: ").rstrip()


def _group(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> Iterator[str]:
    formatter = parser._get_formatter()
    entries: list[tuple[str, str]] = []
    for action in group._group_actions:
        if isinstance(action, argparse._SubParsersAction):
            entries += [(choice.dest, choice.help or "") for choice in action._choices_actions]
        elif action.help != argparse.SUPPRESS:
            meaning = formatter._expand_help(action) if action.help else ""
            entries.append((formatter._format_action_invocation(action), meaning))
    if entries:
        yield f".SH {_text((group.title or 'options').upper())}"
    for invocation, meaning in entries:
        yield from (".TP", f"\\fB{_text(invocation)}\\fR", *_paragraphs(meaning))


def _verbatim(title: str, text: str) -> Iterator[str]:
    yield from (f".SH {title}", ".nf", *map(_line, text.strip().splitlines()), ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    for line in text.strip().splitlines() or [""]:
        yield _line(line) if line else ".PP"


def _line(text: str) -> str:
    """A line of text must not begin like a macro."""
    escaped = _text(text)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped)
