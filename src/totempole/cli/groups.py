"""`totem groups`: the groups of the cluster and who is in them, as one daemon sees them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from rich.console import RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from totempole.cli import options
from totempole.cli.event_text import on_one_line
from totempole.cli.output import Screen, table
from totempole.cli.reaching import WHERE, add_daemon, daemon_of
from totempole.client import blocking
from totempole.errors import TotemError
from totempole.types import ProcessId

ANSWER_S = 10.0
WATCH_S = 1.0

EXAMPLES = f"""\
examples:
  totem groups                     all groups of the cluster, and their members
  totem groups --watch             once a second, until Ctrl-C
  totem groups --json -            the same for programs

{WHERE}

A member is a program, shown as its host's processor, that one's life, and a number: 2.1700000001.5.
"""

Groups = Mapping[str, tuple[ProcessId, ...]]


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--watch", action="store_true", help="ask again every second, until interrupted")
    parser.add_argument("--json", metavar="FILE", help="the same as data; - is standard output")
    add_daemon(parser)
    parser.set_defaults(run=run_groups)


def run_groups(arguments: argparse.Namespace) -> int:
    screen = Screen(arguments.json)
    asking = Asking(daemon_of(arguments))
    try:
        if arguments.watch:
            return watch(screen, asking)
        groups = asking()
    finally:
        asking.close()
    screen.print(page(groups))
    screen.save_json(document(groups))
    return 0


class Asking:
    """One session for as long as it lasts; then another."""

    def __init__(self, where: dict[str, Any]) -> None:
        self._where = where
        self._session: blocking.Session | None = None

    def __call__(self) -> Groups:
        if self._session is None:
            session = blocking.connect(**self._where, name="totem groups", reconnect=False)
            self._session = session.__enter__()
        try:
            return self._session.groups(timeout=ANSWER_S)
        except TimeoutError:
            self.close()
            raise TotemError(
                f"no answer within {ANSWER_S:g} s: the daemon is forming a ring; see totem status"
            ) from None
        except TotemError:
            self.close()
            raise

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(TotemError):
                session.close()


def watch(screen: Screen, ask: Callable[[], Groups], pause: Callable[[float], None] = time.sleep) -> int:
    """Shows the table until interrupted; a daemon that does not answer is shown so, and asked again."""
    try:
        with Live(console=screen.out, auto_refresh=False) as live:
            while True:
                live.update(_look(screen, ask), refresh=True)
                pause(WATCH_S)
    except KeyboardInterrupt:
        return 0


def _look(screen: Screen, ask: Callable[[], Groups]) -> RenderableType:
    try:
        groups = ask()
    except TotemError as error:
        return Text(str(error), "bold red")
    screen.save_json(document(groups))
    return page(groups)


def page(groups: Groups) -> RenderableType:
    if not groups:
        return Text("No groups: nobody has joined one.", "dim")
    shown = table("group", "members", "who", right=("members",))
    for name, members in sorted(groups.items()):
        shown.add_row(escape(on_one_line(name)), f"{len(members):,}", " ".join(map(str, members)))
    return shown


def document(groups: Groups) -> dict[str, Any]:
    return {"groups": {name: [*map(str, members)] for name, members in sorted(groups.items())}}
