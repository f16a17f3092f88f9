"""`totem groups`: the groups of the cluster and who is in them, as one daemon sees them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.console import RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from totempole.cli import options
from totempole.cli.event_text import content, on_one_line
from totempole.cli.event_text import shown as as_line
from totempole.cli.output import Screen, table
from totempole.cli.reaching import WHERE, add_daemon, daemon_of
from totempole.client import blocking
from totempole.errors import TotemError
from totempole.session import Groups
from totempole.types import ProcessId

ANSWER_S = 10.0
WATCH_S = 1.0

EXAMPLES = f"""\
examples:
  totem groups                     all groups of the cluster, and their members
  totem groups --watch             once a second, until Ctrl-C
  totem groups --json -            the same for programs

{WHERE}

A member is a program, shown as its host's processor, that one's life, and a number: 2.1700000001.5; behind it
stands what the program has said of itself, if it has (join with info=).
"""


def add(parser: options.Parser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("--watch", action="store_true", help="ask again every second, until interrupted")
    options.add_json(parser, "the same as data")
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
        info = groups.info.get(name, {})
        who = " ".join(_member(member, info.get(member, b"")) for member in members)
        shown.add_row(escape(on_one_line(name)), f"{len(members):,}", escape(who))
    return shown


def _member(member: ProcessId, info: bytes) -> str:
    return f"{member} ({as_line(info)})" if info else str(member)


def document(groups: Groups) -> dict[str, Any]:
    members = {name: [*map(str, who)] for name, who in sorted(groups.items())}
    info = {
        name: {str(member): content(each) for member, each in sorted(told.items())}
        for name, told in sorted(groups.info.items())
    }
    return {"groups": members, **({"info": info} if info else {})}
