"""`totem keygen`: makes a key file, and replaces its key in three steps that lose no message."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from totempole.cli import options
from totempole.cli.output import Screen
from totempole.runtime import keyring
from totempole.wire.seal import Keyring

EXAMPLES = """\
examples:
  totem keygen totem.key              a new file with a new key, readable by you alone
  totem keygen totem.key --rotate     how far a rotation is, and what comes next; changes nothing

A rotation gives all hosts a new key while they go on working. Its three steps, on one host:
  totem keygen totem.key --add        a new key that is accepted, but not used yet
  totem keygen totem.key --activate   the new key is used; the old one is still accepted
  totem keygen totem.key --retire     the old key is refused
After each, copy the file to every host and have every node read it, before you take the next.
"""

SPREAD = (
    "copy {path} to every host of the cluster, same owner and mode, and have every node read it: "
    "send it SIGHUP, or `systemctl reload` its service."
)

Step = Callable[[Path], Keyring]
Tell = Callable[[Path, Keyring], list[str]]


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("file", type=Path, metavar="FILE", help="the key file")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--rotate", action="store_true", help="show how far a rotation is; changes nothing")
    steps.add_argument("--add", action="store_true", help="step 1: add a new key, accepted but not active")
    steps.add_argument("--activate", action="store_true", help="step 2: make the new key the active one")
    steps.add_argument("--retire", action="store_true", help="step 3: remove the old key")
    parser.set_defaults(run=run_keygen)


def run_keygen(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    step, tell = _chosen(arguments)
    screen = Screen()
    for line in tell(path, step(path)):
        screen.long(line)
    return 0


def _chosen(arguments: argparse.Namespace) -> tuple[Step, Tell]:
    if arguments.add:
        return keyring.add, _tell_added
    if arguments.activate:
        return keyring.activate, _tell_activated
    if arguments.retire:
        return keyring.retire, _tell_retired
    if arguments.rotate:
        return keyring.load, _tell_state
    return keyring.create, _tell_created


def _command(path: Path, step: str) -> str:
    return f"totem keygen {quote(str(path))} {step}"


def _tell_created(path: Path, keys: Keyring) -> list[str]:
    return [
        f"{path}: a new file with key {keys.active.id}. Who can read it can read and forge everything.",
        f"Next: copy it to every host of the cluster, same owner and mode, and name it in each node's "
        f'configuration, under [security]: key_file = "{path.absolute()}"',
    ]


def _tell_added(path: Path, keys: Keyring) -> list[str]:
    old, new = keys.keys
    return [
        f"{path}: key {new.id} is added and will be accepted; key {old.id} is still the active one.",
        f"Next: {SPREAD.format(path=path)}",
        f"When every node has: {_command(path, '--activate')}",
    ]


def _tell_activated(path: Path, keys: Keyring) -> list[str]:
    new, old = keys.keys
    return [
        f"{path}: key {new.id} is now the active one; key {old.id} is still accepted.",
        f"Next: {SPREAD.format(path=path)}",
        f"When every node has, and a minute has passed, so that nothing sealed with key {old.id} is still "
        f"under way: {_command(path, '--retire')}",
    ]


def _tell_retired(path: Path, keys: Keyring) -> list[str]:
    return [
        f"{path}: key {keys.active.id} is the only one.",
        f"Next: {SPREAD.format(path=path)} Then the rotation is done; destroy old copies of the file.",
    ]


def _tell_state(path: Path, keys: Keyring) -> list[str]:
    others = "".join(f", key {key.id} is accepted too" for key in keys.keys[1:])
    step = keyring.next_step(keys)
    if not step:
        following = "The ids do not follow each other, so nobody can tell which key is the new one."
    elif step == "--add":
        following = f"No rotation is under way; one begins with: {_command(path, step)}"
    else:
        following = f"When every node has read this file, the next step is: {_command(path, step)}"
    return [f"{path}: key {keys.active.id} is active{others}.", following]
