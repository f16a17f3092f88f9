"""One terminal for several processes: their logs, what is told, and a line that is being typed."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from rich.table import Table
from rich.text import Text

from totempole.cli.output import Screen

PROMPT = "dev> "
LOOK_S = 0.1
COLOURS = ("cyan", "green", "magenta", "bright_blue", "bright_cyan", "bright_green", "bright_magenta")
LEVELS = {"warning": "yellow", "error": "bold red", "critical": "bold red"}
_LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z (\w+) +(.*)")


class Terminal:
    """Lines may come from any thread; they go above the line that is being typed."""

    def __init__(self, screen: Screen, source: TextIO | None = None) -> None:
        """Commands come from `source`, or from the keyboard."""
        self._out = screen.out
        self._source = source
        self._lock = threading.Lock()
        self._typing = False
        self._readline = None
        if source is None:
            with suppress(ImportError):  # it makes arrows and the history of `input` work
                import readline

                self._readline = readline

    def print(self, thing: str | Text | Table = "") -> None:
        """Text may have rich's markup."""
        with self._lock:
            if self._typing:
                sys.stdout.write("\r\x1b[2K")
            self._out.print(thing, soft_wrap=not isinstance(thing, Table))
            if self._typing:
                typed = self._readline.get_line_buffer() if self._readline else ""
                sys.stdout.write(PROMPT + typed)
            sys.stdout.flush()

    def commands(self) -> Iterator[str]:
        """Lines that were typed; or those of a file, shown as they are taken."""
        if self._source is not None:
            for line in self._source:
                words = line.partition("#")[0].strip()
                if words:
                    self.print(Text(f"{PROMPT}{words}", style="bold"))
                    yield words
            return
        while True:
            self._typing = True
            try:
                line = input(PROMPT)
            except EOFError:
                return
            finally:
                self._typing = False
            if line.strip():
                yield line.strip()


class LogFollower:
    """Shows what is written to logs, from where they end when it starts. `check` is called once a look."""

    def __init__(
        self, files: Mapping[int, Path], show: Callable[[Text], None], check: Callable[[], None]
    ) -> None:
        self._show = show
        self._check = check
        self.shown = True
        """Whether lines are shown; they are passed over meanwhile."""
        self._logs = {
            number: _Log(number, file, file.stat().st_size if file.exists() else 0)
            for number, file in files.items()
        }
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="totem-dev-logs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Shows what is left first."""
        self._done.set()
        self._thread.join()
        self.flush()

    def flush(self) -> None:
        """Shows what has been written so far, in the order of its times."""
        with self._lock:
            lines = [line for log in self._logs.values() for line in log.new_lines()]
            if self.shown:
                for _, number, text in sorted(lines, key=lambda line: line[0]):
                    self._show(log_line(number, text))

    def _run(self) -> None:
        while not self._done.wait(LOOK_S):
            self.flush()
            self._check()


class _Log:
    def __init__(self, number: int, file: Path, read: int) -> None:
        self._number, self._file, self._read = number, file, read
        self._at = ""

    def new_lines(self) -> list[tuple[str, int, str]]:
        """Each with its time, or that of the line before if it has none, and the node's number."""
        try:
            with self._file.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + len(newline)
        return [
            (self._time_of(line), self._number, line) for line in whole.decode(errors="replace").splitlines()
        ]

    def _time_of(self, line: str) -> str:
        found = _LOG_LINE.fullmatch(line)
        if found:
            self._at = found[1]
        return self._at


def colour_of(number: int) -> str:
    return COLOURS[(number - 1) % len(COLOURS)]


def log_line(number: int, line: str) -> Text:
    """A node's line with its name before it; without the date, and the node's number, which are known."""
    found = _LOG_LINE.fullmatch(line)
    colour = colour_of(number)
    text = Text(f"node {number} │ ", style=colour)
    if not found:
        return text.append(line, style="default")
    at, level, rest = found.groups()
    said = rest.replace(f" processor={number}", "", 1)
    text.append(f"{at.partition('T')[2]} ", style="dim")
    return text.append(said if level == "info" else f"{level}: {said}", style=LEVELS.get(level, "default"))
