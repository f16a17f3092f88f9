"""What the examples share: options, a session with a daemon or an embedded node, typed lines, and HTTP."""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote

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


def has_strangers(view: totempole.View) -> bool:
    """Whether two sides have come together that went on by themselves, and may differ.

    `view.together` is our side, the same at all its members: the first of them may speak for it.
    """
    return view.changed == "configuration" and view.kind == "regular" and view.members != view.together


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


class KeyValueStore(Protocol):
    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...

    async def delete(self, key: str) -> None: ...


async def serve(store: KeyValueStore, port: int) -> None:
    """HTTP for a store: GET, PUT and DELETE of a path."""
    server = await asyncio.start_server(partial(answer, store), "localhost", port)
    show("serving on port", server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def answer(store: KeyValueStore, reader: StreamReader, writer: StreamWriter) -> None:
    try:
        method, path, _ = (await reader.readline()).decode().split(maxsplit=2)
        length = None
        while header := (await reader.readline()).lower().strip():
            if header.startswith(b"content-length:"):
                length = int(header[15:])
        if length is None and method == "PUT":  # `curl -T-` sends chunks: what it puts must not be lost
            status, content = "411 Length Required", b"not done: give Content-Length, as `curl -d` does\n"
        else:
            sent = await reader.readexactly(length or 0)
            status, content = await _answer(store, method, unquote(path), sent)
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()
    except (ValueError, OSError, asyncio.IncompleteReadError):
        pass  # no request, or nobody waits for the answer
    finally:
        writer.close()


async def _answer(store: KeyValueStore, method: str, key: str, content: bytes) -> tuple[str, bytes]:
    try:
        if method == "GET":
            value = await store.get(key)
            return ("404 Not Found", b"") if value is None else ("200 OK", value)
        if method == "PUT":
            await store.put(key, content)
        elif method == "DELETE":
            await store.delete(key)
        else:
            return "405 Method Not Allowed", b""
        return "200 OK", b""
    except totempole.Unknown as error:
        return "504 Gateway Timeout", f"perhaps done: {error}\n".encode()
    except totempole.TotemError as error:
        return "503 Service Unavailable", f"not done: {error}\n".encode()


def show(*words: object) -> None:
    print(*words, flush=True)


def run(main: Coroutine[Any, Any, None]) -> None:
    try:
        totempole.run(main)
    except KeyboardInterrupt:
        print()
    except (totempole.TotemError, OSError) as error:  # no daemon; or the port is taken
        sys.exit(str(error))
