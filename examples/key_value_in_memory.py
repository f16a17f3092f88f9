"""A replicated key-value store over HTTP, in the memory of its copies: no disk, no log.

    python examples/key_value_in_memory.py --copies 3 [--port N] [--socket PATH | --embed node.toml]

    curl -X PUT -d red http://localhost:8080/colour    # at one copy
    curl http://localhost:8081/colour                  # at another one

One copy on each of three nodes. All three must be there at the beginning. From then on a majority answers,
and what was answered stays, while one copy at a time is killed with -9 or restarted, and whatever the network
does. A minority answers 503 at once. When two of three die at the same time, what only they knew is gone:
examples/key_value.py keeps it on disk.
"""

from __future__ import annotations

import json

from helping import arguments_of, run, session
from http_store import serve

from totempole import Primary


class Table:
    """What is replicated: the same commands in the same order, in every copy."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, command: bytes) -> str | None:
        match json.loads(command):
            case ["put", key, value]:
                self.values[key] = value
            case ["delete", key]:
                self.values.pop(key, None)
            case ["get", key]:
                return self.values.get(key)
        return None

    def snapshot(self) -> bytes:
        return json.dumps(self.values).encode()

    def restore(self, snapshot: bytes) -> None:
        self.values = json.loads(snapshot)


class Store:
    def __init__(self, primary: Primary[Table]) -> None:
        self.primary = primary

    async def get(self, key: str) -> bytes | None:
        value = await self.do("get", key)
        return None if value is None else value.encode("latin-1")

    async def put(self, key: str, value: bytes) -> None:
        await self.do("put", key, value.decode("latin-1"))

    async def delete(self, key: str) -> None:
        await self.do("delete", key)

    async def do(self, *command: str) -> str | None:
        result: str | None = await self.primary.do(json.dumps(command).encode(), timeout=5.0)
        return result


async def main() -> None:
    arguments = arguments_of(__doc__, port=8080, copies=3)
    async with (
        session(arguments) as mine,
        Primary(mine, "store", Table, expected=arguments.copies) as primary,
    ):
        await serve(Store(primary), arguments.port)


if __name__ == "__main__":
    run(main())
