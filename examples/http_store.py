"""HTTP for a key-value store: GET, PUT and DELETE of a path. Both stores in these examples use it."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from functools import partial
from typing import Protocol
from urllib.parse import unquote

from helping import show

import totempole


class KeyValueStore(Protocol):
    async def get(self, key: str) -> bytes | None: ...

    async def put(self, key: str, value: bytes) -> None: ...

    async def delete(self, key: str) -> None: ...


async def serve(store: KeyValueStore, port: int) -> None:
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
