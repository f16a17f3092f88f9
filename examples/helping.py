"""What the examples share: options, a session with a daemon or an embedded node, and typed lines."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import totempole


def options(text: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", metavar="PATH", help="the daemon's socket (see totem send --help)")
    parser.add_argument("--embed", metavar="CONFIG", help="no daemon: run a node in here, so configured")
    return parser


def arguments_of(text: str | None, **numbers: int) -> argparse.Namespace:
    """The command line's, with these further options and their defaults."""
    parser = options(text)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def session(arguments: argparse.Namespace) -> AbstractAsyncContextManager[totempole.Session]:
    """The same interface, whether the node is a daemon's or runs within the program."""
    if arguments.embed:
        return totempole.Node(arguments.embed)
    return totempole.connect(arguments.socket)


async def typed() -> AsyncIterator[str]:
    """Lines of standard input. Read on a thread, for a terminal makes one wait."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()

    def read() -> None:
        for line in iter(sys.stdin.readline, ""):
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        yield line.strip()


async def either(*work: Coroutine[Any, Any, None]) -> None:
    """Does all of it at the same time, until one is done."""
    tasks = [*map(asyncio.ensure_future, work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def show(*words: object) -> None:
    print(*words, flush=True)


def run(main: Coroutine[Any, Any, None]) -> None:
    try:
        totempole.run(main)
    except KeyboardInterrupt:
        print()
    except (totempole.TotemError, OSError) as error:  # no daemon; or the port is taken
        sys.exit(str(error))
