"""What a command writes to: a terminal with colours and bars, or plain text; and the same as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 100
"""Columns when the output is no terminal."""
PLAIN_PROGRESS_S = 10.0
"""How often a line tells of progress when there is no terminal for a bar."""


class Screen:
    """`out` has the results, `err` progress and trouble. With `--json -`, standard output is JSON only."""

    def __init__(self, json_target: str | None = None) -> None:
        self.out = _console(stderr=json_target == "-")
        self.err = _console(stderr=True)
        self._json_target = json_target

    def print(self, *things: Any, **options: Any) -> None:
        self.out.print(*things, **options)

    def long(self, text: str | Text) -> None:
        """Text whose lines are not to be folded."""
        self.out.print(text, soft_wrap=True, markup=False)

    def rule(self, title: str) -> None:
        self.out.print()
        self.out.rule(f"[bold]{title}[/]", align="left", style="cyan")

    def save_json(self, data: Any) -> None:
        if self._json_target is None:
            return
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        if self._json_target == "-":
            sys.stdout.write(text)
        else:
            Path(self._json_target).write_text(text, encoding="utf-8")

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Advance]:
        """A bar while the work lasts; without a terminal, a line now and then."""
        if not self.err.is_terminal:
            yield _PlainAdvance(self.err, what, total)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            _Note(),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self.err, transient=True) as bars:
            task = bars.add_task(what, total=total, note="")
            yield Advance(
                lambda done, note, of: bars.update(task, completed=done, note=note, total=of or total)
            )


class Advance:
    """Called with what is done so far, a word about it, and how much there is, if only that is known now."""

    def __init__(self, show: Any) -> None:
        self._show = show

    def __call__(self, done: int, note: str = "", total: int | None = None) -> None:
        self._show(done, note, total)


class _PlainAdvance(Advance):
    def __init__(self, console: Console, what: str, total: int | None) -> None:
        self._next_s = time.monotonic() + PLAIN_PROGRESS_S
        self._console, self._what, self._total = console, what, total

    def __call__(self, done: int, note: str = "", total: int | None = None) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + PLAIN_PROGRESS_S
            known = total or self._total
            of = "" if known is None else f" of {known}"
            self._console.print(f"{self._what}: {done}{of} {note}".rstrip(), soft_wrap=True, markup=False)


class _Note(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(str(task.fields["note"]))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which means here that something does not hold."""
        raise BrokenPipeError


def _console(stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    if hasattr(stream, "reconfigure"):
        # A terminal that cannot show a line of a box shows a question mark, and not a traceback.
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False)


def table(*columns: str, title: str | None = None, right: tuple[str, ...] = ()) -> Table:
    """An empty table in the one style of all commands; columns named in `right` hold numbers."""
    found = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None)
    found.padding = (0, 2, 0, 0)
    for column in columns:
        found.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return found
